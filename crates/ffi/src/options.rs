//! The options of messages and channels, as C programs set them.
//!
//! Enumerations arrive as plain integers, because an undefined value of a Rust enumeration is undefined behavior.
//! Undefined values are errors.

use std::num::NonZeroU8;
use std::time::Duration;

use drumfire::{ChannelOptions, Mode, Priority, Redundancy, SendOptions, WhenFull};

use crate::error::Failure;

/// The delivery guarantee of a message.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrumfireMode {
    /// The message is delivered at most once, in any order. Use it for effects and voice.
    Unreliable = 1,
    /// The message is delivered at most once, and never after a newer one. Use it for snapshots.
    UnreliableSequenced = 2,
    /// The message is delivered exactly once, in any order. Use it for hits and pick-ups.
    ReliableUnordered = 3,
    /// The message is delivered exactly once, in the order of the channel. Use it for chat and inputs.
    ReliableOrdered = 4,
    /// The newest message of the channel is always delivered. Older ones may be skipped. Use it for a single state.
    ReliableSequenced = 5,
    /// The newest message of each key is always delivered. It has at most 1,024 bytes. Use it for the state of many objects.
    ReliableLatest = 6,
}

/// The priority of a message.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrumfirePriority {
    /// The message is sent when no urgent message waits. This is the default.
    Normal = 0,
    /// The message is sent before all other messages.
    Urgent = 1,
    /// The message is sent when no urgent or normal message waits.
    Low = 2,
    /// The message is sent when no other message waits. Use it for assets, replays, and logs.
    Bulk = 3,
}

/// The action when the connection has no memory for a message.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrumfireWhenFull {
    /// The message is not queued, and `drumfire_client_send` returns `DRUMFIRE_STATUS_FULL`.
    Block = 0,
    /// The message replaces the oldest messages of the channel that were not sent yet.
    DropOldest = 1,
    /// The new message is dropped.
    DropNewest = 2,
    /// The connection is closed.
    Disconnect = 3,
}

/// A flag of `DrumfireSendOptions`: a receipt event will report the outcome of the message.
pub const DRUMFIRE_SEND_RECEIPT: u32 = 1;

/// A flag of `DrumfireSendOptions`: the message and all queued messages are sent immediately, without waiting for the
/// next flush or poll.
pub const DRUMFIRE_SEND_FLUSH: u32 = 2;

/// The options of a message. `mode` is required; zero selects the default of the other fields.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DrumfireSendOptions {
    /// A value of `DrumfireMode`.
    pub mode: u32,
    /// A value of `DrumfirePriority`.
    pub priority: u32,
    /// The sum of `DRUMFIRE_SEND_RECEIPT` and `DRUMFIRE_SEND_FLUSH`, either of them, or 0.
    pub flags: u32,
    /// The message is given up after this time, in milliseconds. Zero: never.
    pub lifetime_ms: u32,
    /// The key of the value in the mode `DRUMFIRE_MODE_RELIABLE_LATEST`.
    pub key: u64,
}

/// The options of a channel. All zero are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DrumfireChannelOptions {
    /// The share of the channel in the send rate, relative to other channels of the same priority: 1 to 255, or zero for 1.
    pub weight: u32,
    /// The number of later packets that repeat a reliable message of up to 128 bytes, from 0 to 3.
    pub redundancy: u32,
    /// A value of `DrumfireWhenFull`.
    pub when_full: u32,
}

/// The options of a message, and what to do in addition to sending it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReadOptions {
    pub(crate) options: SendOptions,
    pub(crate) wants_receipt: bool,
    pub(crate) is_flushed: bool,
}

impl DrumfireSendOptions {
    /// # Errors
    /// Returns `BadArgument` for an undefined value.
    pub(crate) fn read(self) -> Result<ReadOptions, Failure> {
        let mut options = SendOptions::new(mode(self.mode)?).priority(priority(self.priority)?);
        if self.flags & !(DRUMFIRE_SEND_RECEIPT | DRUMFIRE_SEND_FLUSH) != 0 {
            return Err(Failure::unknown("flags", self.flags));
        }
        options.key = self.key;
        if self.lifetime_ms != 0 {
            options.lifetime = Some(Duration::from_millis(self.lifetime_ms.into()));
        }
        Ok(ReadOptions {
            options,
            wants_receipt: self.flags & DRUMFIRE_SEND_RECEIPT != 0,
            is_flushed: self.flags & DRUMFIRE_SEND_FLUSH != 0,
        })
    }
}

impl DrumfireChannelOptions {
    /// # Errors
    /// Returns `BadArgument` for an undefined value.
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
    find_value("mode", number, known.map(|(number, mode)| (number as u32, mode)))
}

fn priority(number: u32) -> Result<Priority, Failure> {
    let known = [
        (DrumfirePriority::Normal, Priority::Normal),
        (DrumfirePriority::Urgent, Priority::Urgent),
        (DrumfirePriority::Low, Priority::Low),
        (DrumfirePriority::Bulk, Priority::Bulk),
    ];
    find_value("priority", number, known.map(|(number, priority)| (number as u32, priority)))
}

fn when_full(number: u32) -> Result<WhenFull, Failure> {
    let known = [
        (DrumfireWhenFull::Block, WhenFull::Block),
        (DrumfireWhenFull::DropOldest, WhenFull::DropOldest),
        (DrumfireWhenFull::DropNewest, WhenFull::DropNewest),
        (DrumfireWhenFull::Disconnect, WhenFull::Disconnect),
    ];
    find_value("when_full", number, known.map(|(number, when_full)| (number as u32, when_full)))
}

fn find_value<T, const N: usize>(name: &str, number: u32, known: [(u32, T); N]) -> Result<T, Failure> {
    let found = known.into_iter().find(|(known, _)| *known == number);
    found.map(|(_, meaning)| meaning).ok_or_else(|| Failure::unknown(name, number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::DrumfireStatus;

    #[test]
    fn every_option_is_converted() {
        let options = DrumfireSendOptions {
            mode: DrumfireMode::ReliableLatest as u32,
            priority: DrumfirePriority::Urgent as u32,
            flags: DRUMFIRE_SEND_FLUSH | DRUMFIRE_SEND_RECEIPT,
            lifetime_ms: 250,
            key: 7,
        };
        let expected = SendOptions::reliable_latest(7).priority(Priority::Urgent);
        let expected = expected.lifetime(Duration::from_millis(250));
        assert_eq!(
            options.read().unwrap(),
            ReadOptions { options: expected, wants_receipt: true, is_flushed: true }
        );
        let options = DrumfireSendOptions { mode: 4, ..DrumfireSendOptions::default() };
        assert_eq!(
            options.read().unwrap(),
            ReadOptions { options: SendOptions::reliable_ordered(), wants_receipt: false, is_flushed: false }
        );
        let options = DrumfireChannelOptions { weight: 3, redundancy: 1, when_full: 1 };
        let expected = ChannelOptions::default().redundancy(Redundancy::One).when_full(WhenFull::DropOldest);
        assert_eq!(options.read().unwrap(), expected.weight(NonZeroU8::new(3).unwrap()));
        assert_eq!(DrumfireChannelOptions::default().read().unwrap(), ChannelOptions::default());
    }

    #[test]
    fn undefined_values_are_errors_that_name_the_field() {
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
