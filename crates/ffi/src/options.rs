//! How messages are sent, as C programs say it.
//!
//! Numbers come in as numbers: one that means nothing is an error and never an enumeration.

use std::num::NonZeroU8;
use std::time::Duration;

use drumfire::{ChannelOptions, Mode, Priority, Redundancy, SendOptions, WhenFull};

use crate::error::Failure;

/// What is promised of a message.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrumfireMode {
    /// At most once, in any order: effects, voice.
    Unreliable = 1,
    /// At most once, never an older one after a newer: snapshots.
    UnreliableSequenced = 2,
    /// Exactly once, in any order: hits, pick-ups.
    ReliableUnordered = 3,
    /// Exactly once, in the order of its channel: chat, inputs.
    ReliableOrdered = 4,
    /// The newest of a channel always arrives, older ones may be left out: one state.
    ReliableSequenced = 5,
    /// Of every key the newest always arrives, at most 1,024 bytes: the state of many things.
    ReliableLatest = 6,
}

/// What a message goes before. Zero is as most messages.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrumfirePriority {
    /// As most messages.
    Normal = 0,
    /// Before everything else.
    Urgent = 1,
    /// When nothing normal waits.
    Low = 2,
    /// When nothing else waits: assets, replays, logs.
    Bulk = 3,
}

/// What becomes of a channel's message for which there is no memory.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrumfireWhenFull {
    /// It is not taken, and `drumfire_client_send` answers `DRUMFIRE_STATUS_FULL`.
    Block = 0,
    /// It takes the place of the channel's oldest messages that were not sent yet.
    DropOldest = 1,
    /// It is dropped.
    DropNewest = 2,
    /// The connection is closed.
    Disconnect = 3,
}

/// A flag of `DrumfireSendOptions`: one event will tell what became of the message.
pub const DRUMFIRE_SEND_RECEIPT: u32 = 1;

/// A flag of `DrumfireSendOptions`: the message leaves at once, with all that was taken before, and does not wait for the next
/// flush or poll.
pub const DRUMFIRE_SEND_FLUSH: u32 = 2;

/// How to send one message. `mode` must be said; all else may be zero.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DrumfireSendOptions {
    /// One of `DrumfireMode`.
    pub mode: u32,
    /// One of `DrumfirePriority`.
    pub priority: u32,
    /// Any of `DRUMFIRE_SEND_RECEIPT` and `DRUMFIRE_SEND_FLUSH`, added.
    pub flags: u32,
    /// Given up after so many milliseconds; zero: never.
    pub lifetime_ms: u32,
    /// Whose value it is, in the mode `DRUMFIRE_MODE_RELIABLE_LATEST`.
    pub key: u64,
}

/// How the messages of a channel are sent. All zero is what a channel has anyway.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DrumfireChannelOptions {
    /// How many bytes the channel may send in its turn, compared to others of the same priority, 1 to 255; zero: 1.
    pub weight: u32,
    /// In how many more packets its reliable messages of up to 128 bytes ride again, 0 to 3.
    pub redundancy: u32,
    /// One of `DrumfireWhenFull`.
    pub when_full: u32,
}

impl DrumfireSendOptions {
    /// # Errors
    /// `BadArgument` for a number that means nothing.
    pub(crate) fn read(self) -> Result<SendOptions, Failure> {
        let mut options = SendOptions::new(mode(self.mode)?).priority(priority(self.priority)?);
        if self.flags & !(DRUMFIRE_SEND_RECEIPT | DRUMFIRE_SEND_FLUSH) != 0 {
            return Err(Failure::unknown("flags", self.flags));
        }
        options.key = self.key;
        options.wants_receipt = self.flags & DRUMFIRE_SEND_RECEIPT != 0;
        options.is_flushed = self.flags & DRUMFIRE_SEND_FLUSH != 0;
        if self.lifetime_ms != 0 {
            options.lifetime = Some(Duration::from_millis(self.lifetime_ms.into()));
        }
        Ok(options)
    }
}

impl DrumfireChannelOptions {
    /// # Errors
    /// `BadArgument` for a number that means nothing.
    pub(crate) fn read(self) -> Result<ChannelOptions, Failure> {
        let weight = u8::try_from(self.weight).map_err(|_| Failure::unknown("weight", self.weight))?;
        let redundancy = match self.redundancy {
            0 => Redundancy::None,
            1 => Redundancy::One,
            2 => Redundancy::Two,
            3 => Redundancy::Three,
            other => return Err(Failure::unknown("redundancy", other)),
        };
        let options = ChannelOptions::default().when_full(when_full(self.when_full)?);
        Ok(options.redundancy(redundancy).weight(NonZeroU8::new(weight).unwrap_or(NonZeroU8::MIN)))
    }
}

fn mode(number: u32) -> Result<Mode, Failure> {
    let known = [
        (DrumfireMode::Unreliable, Mode::Unreliable),
        (DrumfireMode::UnreliableSequenced, Mode::UnreliableSequenced),
        (DrumfireMode::ReliableUnordered, Mode::ReliableUnordered),
        (DrumfireMode::ReliableOrdered, Mode::ReliableOrdered),
        (DrumfireMode::ReliableSequenced, Mode::ReliableSequenced),
        (DrumfireMode::ReliableLatest, Mode::ReliableLatest),
    ];
    chosen("mode", number, known.map(|(number, mode)| (number as u32, mode)))
}

fn priority(number: u32) -> Result<Priority, Failure> {
    let known = [
        (DrumfirePriority::Normal, Priority::Normal),
        (DrumfirePriority::Urgent, Priority::Urgent),
        (DrumfirePriority::Low, Priority::Low),
        (DrumfirePriority::Bulk, Priority::Bulk),
    ];
    chosen("priority", number, known.map(|(number, priority)| (number as u32, priority)))
}

fn when_full(number: u32) -> Result<WhenFull, Failure> {
    let known = [
        (DrumfireWhenFull::Block, WhenFull::Block),
        (DrumfireWhenFull::DropOldest, WhenFull::DropOldest),
        (DrumfireWhenFull::DropNewest, WhenFull::DropNewest),
        (DrumfireWhenFull::Disconnect, WhenFull::Disconnect),
    ];
    chosen("when_full", number, known.map(|(number, when_full)| (number as u32, when_full)))
}

fn chosen<T, const N: usize>(name: &str, number: u32, known: [(u32, T); N]) -> Result<T, Failure> {
    let found = known.into_iter().find(|(known, _)| *known == number);
    found.map(|(_, meaning)| meaning).ok_or_else(|| Failure::unknown(name, number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::DrumfireStatus;

    #[test]
    fn all_that_is_said_is_meant() {
        let options = DrumfireSendOptions {
            mode: DrumfireMode::ReliableLatest as u32,
            priority: DrumfirePriority::Urgent as u32,
            flags: DRUMFIRE_SEND_FLUSH | DRUMFIRE_SEND_RECEIPT,
            lifetime_ms: 250,
            key: 7,
        };
        let meant = SendOptions::reliable_latest(7).priority(Priority::Urgent).with_receipt().flush_now();
        assert_eq!(options.read().unwrap(), meant.lifetime(Duration::from_millis(250)));
        let options = DrumfireSendOptions { mode: 4, ..DrumfireSendOptions::default() };
        assert_eq!(options.read().unwrap(), SendOptions::reliable_ordered());
        let options = DrumfireChannelOptions { weight: 3, redundancy: 1, when_full: 1 };
        let meant = ChannelOptions::default().redundancy(Redundancy::One).when_full(WhenFull::DropOldest);
        assert_eq!(options.read().unwrap(), meant.weight(NonZeroU8::new(3).unwrap()));
        assert_eq!(DrumfireChannelOptions::default().read().unwrap(), ChannelOptions::default());
    }

    #[test]
    fn numbers_that_mean_nothing_are_named() {
        let good = DrumfireSendOptions { mode: 1, ..DrumfireSendOptions::default() };
        for (name, bad) in [
            ("mode", DrumfireSendOptions { mode: 0, ..good }),
            ("mode", DrumfireSendOptions { mode: 7, ..good }),
            ("priority", DrumfireSendOptions { priority: 4, ..good }),
            ("flags", DrumfireSendOptions { flags: 4, ..good }),
        ] {
            let failure = bad.read().unwrap_err();
            assert_eq!(failure.status, DrumfireStatus::BadArgument);
            assert!(failure.text.starts_with(name), "{}", failure.text);
        }
        let good = DrumfireChannelOptions::default();
        for (name, bad) in [
            ("weight", DrumfireChannelOptions { weight: 256, ..good }),
            ("redundancy", DrumfireChannelOptions { redundancy: 4, ..good }),
            ("when_full", DrumfireChannelOptions { when_full: 4, ..good }),
        ] {
            assert!(bad.read().unwrap_err().text.starts_with(name), "{name}");
        }
    }
}
