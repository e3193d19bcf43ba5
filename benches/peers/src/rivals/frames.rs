//! Messages on a stream of bytes: two bytes of length before each.

/// Bytes of a length.
const HEAD_BYTES: usize = 2;

/// Adds a message with its length.
pub(super) fn push(stream: &mut Vec<u8>, message: &[u8]) {
    // No message of the bench is longer than 1,024 bytes.
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    stream.extend(length.to_be_bytes());
    stream.extend_from_slice(&message[..length.into()]);
}

/// Bytes of a stream that do not make up a whole message yet.
#[derive(Debug, Default)]
pub(super) struct Frames(Vec<u8>);

impl Frames {
    /// Takes bytes of the stream and gives out the messages that are whole.
    pub(super) fn take(&mut self, bytes: &[u8], mut message: impl FnMut(&[u8])) {
        self.0.extend_from_slice(bytes);
        let mut rest = &self.0[..];
        while let Some((head, body)) = rest.split_first_chunk::<HEAD_BYTES>() {
            let Some(whole) = body.get(..u16::from_be_bytes(*head).into()) else { break };
            message(whole);
            rest = &body[whole.len()..];
        }
        let taken = self.0.len() - rest.len();
        self.0.drain(..taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_whole_however_the_stream_is_cut() {
        let (mut stream, mut frames, mut came) = (Vec::new(), Frames::default(), Vec::new());
        let messages: Vec<Vec<u8>> =
            [0_u8, 1, 64].iter().map(|bytes| vec![*bytes; usize::from(*bytes)]).collect();
        messages.iter().for_each(|message| push(&mut stream, message));
        for piece in stream.chunks(3) {
            frames.take(piece, |message| came.push(message.to_vec()));
        }
        assert_eq!(came, messages);
    }
}
