//! Messages with a number that is repeated over all their bytes, so that a message that was changed in transit is detected.

/// The bits of a number below those of its connection. They count the messages of the connection.
const CONNECTION_SHIFT: u32 = 40;

/// The number of a connection's first message. Numbers rise by one.
pub const fn first_number(connection: usize) -> u64 {
    (connection as u64) << CONNECTION_SHIFT
}

/// Fills a message with its number.
pub fn write_number(message: &mut [u8], number: u64) {
    for chunk in message.chunks_mut(8) {
        let bytes = number.to_be_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
}

/// Returns the number of a message of this length, or `None` when the length or any byte is wrong.
pub fn number_of(message: &[u8], bytes: usize) -> Option<u64> {
    let number = *message.first_chunk()?;
    let is_whole = message.len() == bytes && message.chunks(8).all(|chunk| number.starts_with(chunk));
    is_whole.then(|| u64::from_be_bytes(number))
}

/// Returns the connection to which this number belongs.
pub fn connection_of(number: u64) -> usize {
    usize::try_from(number >> CONNECTION_SHIFT).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_message_has_no_number() {
        let mut message = [0; 64];
        write_number(&mut message, 0x0102_0304_0506_0708);
        assert_eq!(number_of(&message, 64), Some(0x0102_0304_0506_0708));
        assert_eq!((number_of(&message, 65), number_of(&message[..63], 64)), (None, None));
        message[40] ^= 1;
        assert_eq!(number_of(&message, 64), None);
        assert_eq!(number_of(&message[..7], 7), None);
    }

    #[test]
    fn a_number_has_its_connection() {
        for connection in [0, 1, 9_999] {
            let first = first_number(connection);
            assert_eq!((connection_of(first), connection_of(first + 1_000_000)), (connection, connection));
        }
    }
}
