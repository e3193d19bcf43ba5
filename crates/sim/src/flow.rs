//! One direction of one connection: what was sent, what came out, and whether that is what was promised.
//!
//! Every message says which it is where that has to be known, and its other bytes follow from the seed, so that
//! nothing else can pass for it.

use std::collections::HashMap;

use drumfire::conditioner::Random;
use drumfire::{ChannelId, Mode};

/// Bytes that say which message it is; ordered ones are told by their order.
const NUMBER_BYTES: usize = 9;

/// The first byte of a message of each mode.
const MODES: [(u8, Mode); 5] = [
    (1, Mode::Unreliable),
    (2, Mode::ReliableOrdered),
    (3, Mode::UnreliableSequenced),
    (4, Mode::ReliableUnordered),
    (5, Mode::ReliableSequenced),
];

/// What was sent one way, and how much of it arrived.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    ordered: HashMap<u16, Ordered>,
    /// Messages of all other modes.
    singles: Vec<Single>,
    /// The newest message of each channel and sequenced mode: the last that was sent, and the last that was delivered.
    sequenced: HashMap<(u16, Mode), Newest>,
    pub(crate) delivered: u64,
}

/// The ordered messages of a channel.
#[derive(Debug, Default)]
struct Ordered {
    sent: Vec<Vec<u8>>,
    delivered: usize,
}

#[derive(Debug)]
struct Single {
    channel: u16,
    mode: Mode,
    bytes: Vec<u8>,
    is_delivered: bool,
}

#[derive(Debug, Default)]
struct Newest {
    sent: usize,
    delivered: Option<usize>,
}

impl Flow {
    /// The next message of this mode, about so long.
    pub(crate) fn next(&self, mode: Mode, bytes: usize, random: &mut Random) -> Vec<u8> {
        let mut message = Vec::with_capacity(bytes.max(NUMBER_BYTES));
        if mode == Mode::ReliableOrdered && bytes == 0 {
            return message;
        }
        message.extend(MODES.iter().filter(|(_, of)| *of == mode).map(|(byte, _)| byte));
        if mode != Mode::ReliableOrdered {
            message.extend_from_slice(&(self.singles.len() as u64).to_be_bytes());
        }
        let least = message.len();
        while message.len() < bytes {
            message.extend_from_slice(&random.bits().to_be_bytes());
        }
        message.truncate(bytes.max(least));
        message
    }

    /// The message was taken.
    pub(crate) fn on_sent(&mut self, channel: u16, mode: Mode, bytes: Vec<u8>) {
        if mode == Mode::ReliableOrdered {
            self.ordered.entry(channel).or_default().sent.push(bytes);
            return;
        }
        self.sequenced.entry((channel, mode)).or_default().sent = self.singles.len();
        self.singles.push(Single { channel, mode, bytes, is_delivered: false });
    }

    /// A message came out; says what is wrong with that.
    pub(crate) fn on_delivered(&mut self, channel: ChannelId, bytes: &[u8]) -> Result<(), String> {
        self.delivered += 1;
        let mode = bytes.first().and_then(|first| MODES.iter().find(|(byte, _)| byte == first));
        match mode {
            None | Some((_, Mode::ReliableOrdered)) => self.on_reliable(channel.0, bytes),
            Some((_, mode)) => self.on_single(channel.0, *mode, bytes),
        }
    }

    fn on_single(&mut self, channel: u16, mode: Mode, bytes: &[u8]) -> Result<(), String> {
        let number =
            bytes.get(1..NUMBER_BYTES).and_then(|number| number.try_into().ok()).map(u64::from_be_bytes);
        let index = number.and_then(|number| usize::try_from(number).ok()).unwrap_or(usize::MAX);
        let Some(message) = self.singles.get_mut(index) else {
            return Err(format!("a message that nobody sent, {mode:?} on channel {channel}"));
        };
        if message.bytes != bytes || message.channel != channel {
            return Err(format!("message {index}, {mode:?}, changed on its way, on channel {channel}"));
        }
        if std::mem::replace(&mut message.is_delivered, true) {
            return Err(format!("message {index}, {mode:?}, came twice"));
        }
        let newest = self.sequenced.entry((channel, mode)).or_default();
        let is_sequenced = matches!(mode, Mode::UnreliableSequenced | Mode::ReliableSequenced);
        match newest.delivered.replace(index) {
            Some(before) if is_sequenced && before > index => {
                Err(format!("message {index}, {mode:?}, came after {before} on channel {channel}"))
            }
            _ => Ok(()),
        }
    }

    fn on_reliable(&mut self, channel: u16, bytes: &[u8]) -> Result<(), String> {
        let ordered = self.ordered.entry(channel).or_default();
        let number = ordered.delivered;
        match ordered.sent.get(number) {
            Some(sent) if sent == bytes => {
                ordered.delivered += 1;
                Ok(())
            }
            Some(_) => {
                let place = ordered.sent.iter().position(|sent| sent == bytes);
                Err(format!(
                    "reliable message {number} of channel {channel} was due, but {} came",
                    place.map_or("none that was sent".to_owned(), |place| place.to_string())
                ))
            }
            None => Err(format!("a reliable message more than the {number} sent on channel {channel}")),
        }
    }

    /// Reliable messages that did not arrive: which.
    pub(crate) fn missing(&self) -> Option<String> {
        let mut missing: Vec<_> =
            self.ordered.iter().filter(|(_, ordered)| ordered.delivered < ordered.sent.len()).collect();
        missing.sort_by_key(|(channel, _)| **channel);
        if let Some((channel, ordered)) = missing.first() {
            return Some(format!("{} of {} on channel {channel}", ordered.delivered, ordered.sent.len()));
        }
        let is_owed = |(index, single): &(usize, &Single)| match single.mode {
            Mode::ReliableUnordered => true,
            Mode::ReliableSequenced => {
                self.sequenced.get(&(single.channel, single.mode)).is_some_and(|newest| newest.sent == *index)
            }
            _ => false,
        };
        let singles = self.singles.iter().enumerate();
        let (index, single) = singles.filter(is_owed).find(|(_, single)| !single.is_delivered)?;
        Some(format!("message {index}, {:?} on channel {}", single.mode, single.channel))
    }

    /// Messages taken.
    pub(crate) fn sent(&self) -> u64 {
        (self.singles.len() + self.ordered.values().map(|ordered| ordered.sent.len()).sum::<usize>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANNEL: ChannelId = ChannelId(2);

    fn sent(flow: &mut Flow, mode: Mode, bytes: usize) -> Vec<u8> {
        let message = flow.next(mode, bytes, &mut Random::new(flow.sent()));
        flow.on_sent(CHANNEL.0, mode, message.clone());
        message
    }

    #[test]
    fn what_was_promised_passes() {
        let mut flow = Flow::default();
        let lengths = [0, 1, 8, 9, 10, 1_000];
        let reliable = lengths.map(|bytes| sent(&mut flow, Mode::ReliableOrdered, bytes));
        let unreliable = lengths.map(|bytes| sent(&mut flow, Mode::Unreliable, bytes));
        assert_eq!(reliable.each_ref().map(Vec::len), lengths);
        for message in unreliable.iter().rev().skip(1).chain(&reliable) {
            assert_eq!(flow.on_delivered(CHANNEL, message), Ok(()));
        }
        assert_eq!((flow.missing(), flow.sent(), flow.delivered), (None, 12, 11));
    }

    #[test]
    fn a_sequenced_message_after_a_newer_one_is_seen_and_the_newest_must_come_where_that_is_promised() {
        for mode in [Mode::UnreliableSequenced, Mode::ReliableSequenced] {
            let mut flow = Flow::default();
            let messages = [20, 21, 22].map(|bytes| sent(&mut flow, mode, bytes));
            assert_eq!(flow.on_delivered(CHANNEL, &messages[1]), Ok(()));
            assert_eq!(flow.missing().is_some(), mode == Mode::ReliableSequenced);
            assert!(flow.on_delivered(CHANNEL, &messages[0]).is_err(), "older");
            flow.on_delivered(CHANNEL, &messages[1]).unwrap_err();
            assert_eq!(flow.on_delivered(CHANNEL, &messages[2]), Ok(()));
            assert_eq!(flow.missing(), None, "the first need not come");
        }
    }

    #[test]
    fn unordered_messages_come_in_any_order_once_and_all() {
        let mut flow = Flow::default();
        let messages = [20, 21, 22].map(|bytes| sent(&mut flow, Mode::ReliableUnordered, bytes));
        for at in [2, 0] {
            assert_eq!(flow.on_delivered(CHANNEL, &messages[at]), Ok(()));
            assert!(flow.missing().is_some());
        }
        assert!(flow.on_delivered(CHANNEL, &messages[0]).is_err());
        assert_eq!(flow.on_delivered(CHANNEL, &messages[1]), Ok(()));
        assert_eq!(flow.missing(), None);
    }

    #[test]
    fn every_broken_promise_is_seen() {
        let mut flow = Flow::default();
        let [first, second] = [16, 17].map(|bytes| sent(&mut flow, Mode::ReliableOrdered, bytes));
        let [single, other] = [16, 17].map(|bytes| sent(&mut flow, Mode::Unreliable, bytes));
        let mut spoiled = other;
        spoiled[12] ^= 1;
        assert!(flow.on_delivered(CHANNEL, &second).is_err(), "out of order");
        assert_eq!(flow.on_delivered(CHANNEL, &first), Ok(()));
        assert!(flow.on_delivered(CHANNEL, &first).is_err(), "twice");
        assert!(flow.missing().is_some(), "the second is missing");
        assert_eq!(flow.on_delivered(CHANNEL, &second), Ok(()));
        assert!(flow.on_delivered(CHANNEL, &second).is_err(), "more than were sent");
        assert!(flow.on_delivered(ChannelId(3), &single).is_err(), "on another channel");
        assert_eq!(flow.on_delivered(CHANNEL, &single), Ok(()));
        assert!(flow.on_delivered(CHANNEL, &single).is_err(), "twice");
        assert!(flow.on_delivered(CHANNEL, &spoiled).is_err(), "changed");
        assert!(flow.on_delivered(CHANNEL, &[1; 9]).is_err(), "never sent");
    }
}
