//! What stands in a message: its mode, which one it is where that has to be known, and bytes that follow from the seed, so
//! that nothing else can pass for it.

use bytes::Bytes;
use drumfire::Mode;
use drumfire::conditioner::Random;

/// The mode, and the number behind it.
const NUMBER_BYTES: usize = 9;

/// The first byte of a message of each mode.
const MODES: [(u8, Mode); 6] = [
    (1, Mode::Unreliable),
    (2, Mode::ReliableOrdered),
    (3, Mode::UnreliableSequenced),
    (4, Mode::ReliableUnordered),
    (5, Mode::ReliableSequenced),
    (6, Mode::ReliableLatest),
];

/// Is set in the first byte of what is said to a group.
const TO_GROUP: u8 = 0x10;

/// Which message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// Of those of its flow,
    OfFlow(u64),
    /// or of all that were ever said to a group.
    ToGroup(u64),
}

/// A message about so long. One without a number is known by its place.
pub(crate) fn compose(mode: Mode, number: Option<Number>, bytes: usize, random: &mut Random) -> Bytes {
    if number.is_none() && bytes == 0 {
        return Bytes::new();
    }
    let mut message = Vec::with_capacity(bytes.max(NUMBER_BYTES));
    message.extend(MODES.iter().filter(|(_, of)| *of == mode).map(|(byte, _)| byte));
    match number {
        Some(Number::OfFlow(number)) => message.extend_from_slice(&number.to_be_bytes()),
        Some(Number::ToGroup(number)) => {
            message[0] |= TO_GROUP;
            message.extend_from_slice(&number.to_be_bytes());
        }
        None => {}
    }
    let least = message.len();
    while message.len() < bytes {
        message.extend_from_slice(&random.bits().to_be_bytes());
    }
    message.truncate(bytes.max(least));
    message.into()
}

/// The mode of a message, and its number where it may have one; what has no mode is one without a number.
pub(crate) fn read(bytes: &[u8]) -> (Mode, Option<Number>) {
    let first = bytes.first().copied().unwrap_or_default();
    let mode = MODES.iter().find(|(byte, _)| *byte == first & !TO_GROUP);
    let mode = mode.map_or(Mode::ReliableOrdered, |(_, mode)| *mode);
    let number = bytes.get(1..NUMBER_BYTES).and_then(|number| number.try_into().ok()).map(u64::from_be_bytes);
    let kind = if first & TO_GROUP == 0 { Number::OfFlow } else { Number::ToGroup };
    (mode, number.map(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_what_it_is_and_no_two_are_alike() {
        let random = &mut Random::new(1);
        for (_, mode) in MODES {
            for number in [Number::OfFlow(7), Number::ToGroup(7)] {
                for bytes in [0, 9, 10, 100] {
                    let message = compose(mode, Some(number), bytes, random);
                    assert_eq!((message.len(), read(&message)), (bytes.max(9), (mode, Some(number))));
                }
                assert_ne!(compose(mode, Some(number), 40, random), compose(mode, Some(number), 40, random));
            }
        }
        assert_eq!(read(&compose(Mode::ReliableOrdered, None, 0, random)), (Mode::ReliableOrdered, None));
        assert_eq!(read(&compose(Mode::ReliableOrdered, None, 3, random)), (Mode::ReliableOrdered, None));
    }
}
