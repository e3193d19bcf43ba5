//! What a client says: how long an answer it wants, who it is, the message's number, and when it was to leave.

/// Of each client; what it says goes over them in turn.
pub(crate) const CHANNELS: u16 = 4;

/// What each client says ten times a second.
pub(crate) const MESSAGE_BYTES: usize = 32;

/// What an answer repeats.
pub(crate) const HEAD_BYTES: usize = 22;

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Bytes of the answer; 0 = none.
    pub(crate) ask: u16,
    /// The client's place among all.
    pub(crate) place: u32,
    pub(crate) number: u64,
    /// On the host's clock, in nanoseconds.
    pub(crate) due: u64,
}

impl Head {
    pub(crate) fn message(self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[..2].copy_from_slice(&self.ask.to_be_bytes());
        bytes[2..6].copy_from_slice(&self.place.to_be_bytes());
        bytes[6..14].copy_from_slice(&self.number.to_be_bytes());
        bytes[14..HEAD_BYTES].copy_from_slice(&self.due.to_be_bytes());
        bytes
    }

    /// Reads it from the beginning of an answer.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let (ask, rest) = bytes.split_first_chunk()?;
        let (place, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        Some(Self {
            ask: u16::from_be_bytes(*ask),
            place: u32::from_be_bytes(*place),
            number: u64::from_be_bytes(*number),
            due: u64::from_be_bytes(*rest.first_chunk()?),
        })
    }
}
