//! One direction of one connection: what was sent, what came out, and whether that is what was promised.
//!
//! Every message says which it is where that has to be known, and its other bytes follow from the seed, so that
//! nothing else can pass for it.

use std::collections::HashMap;

use drumfire::conditioner::Random;
use drumfire::{ChannelId, Mode};

/// Bytes that say which unreliable message it is; reliable ones are told by their order.
const NUMBER_BYTES: usize = 9;

/// Tells unreliable messages from reliable ones by their first byte.
const UNRELIABLE: u8 = 1;
const RELIABLE: u8 = 2;

/// What was sent one way, and how much of it arrived.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    reliable: HashMap<u16, Ordered>,
    unreliable: Vec<Single>,
    pub(crate) delivered: u64,
}

/// The reliable messages of a channel.
#[derive(Debug, Default)]
struct Ordered {
    sent: Vec<Vec<u8>>,
    delivered: usize,
}

#[derive(Debug)]
struct Single {
    channel: u16,
    bytes: Vec<u8>,
    is_delivered: bool,
}

impl Flow {
    /// The next message of this mode, about so long.
    pub(crate) fn next(&self, mode: Mode, bytes: usize, random: &mut Random) -> Vec<u8> {
        let mut message = Vec::with_capacity(bytes.max(NUMBER_BYTES));
        match mode {
            Mode::Unreliable => {
                message.push(UNRELIABLE);
                message.extend_from_slice(&(self.unreliable.len() as u64).to_be_bytes());
            }
            Mode::ReliableOrdered if bytes == 0 => return message,
            Mode::ReliableOrdered => message.push(RELIABLE),
        }
        while message.len() < bytes {
            message.extend_from_slice(&random.bits().to_be_bytes());
        }
        message.truncate(bytes.max(if mode == Mode::Unreliable { NUMBER_BYTES } else { 1 }));
        message
    }

    /// The message was taken.
    pub(crate) fn on_sent(&mut self, channel: u16, mode: Mode, bytes: Vec<u8>) {
        match mode {
            Mode::Unreliable => self.unreliable.push(Single { channel, bytes, is_delivered: false }),
            Mode::ReliableOrdered => self.reliable.entry(channel).or_default().sent.push(bytes),
        }
    }

    /// A message came out; says what is wrong with that.
    pub(crate) fn on_delivered(&mut self, channel: ChannelId, bytes: &[u8]) -> Result<(), String> {
        self.delivered += 1;
        if bytes.first() == Some(&UNRELIABLE) {
            self.on_unreliable(channel.0, bytes)
        } else {
            self.on_reliable(channel.0, bytes)
        }
    }

    fn on_unreliable(&mut self, channel: u16, bytes: &[u8]) -> Result<(), String> {
        let number =
            bytes.get(1..NUMBER_BYTES).and_then(|number| number.try_into().ok()).map(u64::from_be_bytes);
        let index = number.and_then(|number| usize::try_from(number).ok());
        let Some(message) = index.and_then(|index| self.unreliable.get_mut(index)) else {
            return Err(format!("an unreliable message that nobody sent, on channel {channel}"));
        };
        if message.bytes != bytes || message.channel != channel {
            return Err(format!("unreliable message {number:?} changed on its way, on channel {channel}"));
        }
        if std::mem::replace(&mut message.is_delivered, true) {
            return Err(format!("unreliable message {number:?} came twice"));
        }
        Ok(())
    }

    fn on_reliable(&mut self, channel: u16, bytes: &[u8]) -> Result<(), String> {
        let ordered = self.reliable.entry(channel).or_default();
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

    /// Reliable messages that did not arrive, by channel and number of the first.
    pub(crate) fn missing(&self) -> Option<String> {
        let mut missing: Vec<_> =
            self.reliable.iter().filter(|(_, ordered)| ordered.delivered < ordered.sent.len()).collect();
        missing.sort_by_key(|(channel, _)| **channel);
        let (channel, ordered) = missing.first()?;
        Some(format!("{} of {} on channel {channel}", ordered.delivered, ordered.sent.len()))
    }

    /// Messages taken.
    pub(crate) fn sent(&self) -> u64 {
        (self.unreliable.len() + self.reliable.values().map(|ordered| ordered.sent.len()).sum::<usize>())
            as u64
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
