//! The messages of one flow: which were sent, which of them came out, and whether each did in its turn.

use std::collections::HashMap;

use bytes::Bytes;
use drumfire::{ChannelId, Mode};

use crate::message::{self, Number};

/// A message.
#[derive(Debug)]
pub(super) struct Single {
    pub(super) channel: u16,
    pub(super) mode: Mode,
    pub(super) key: u64,
    pub(super) bytes: Bytes,
    pub(super) owed: Owed,
    /// It was said to a group, under this number.
    pub(super) to_group: Option<u64>,
    pub(super) is_delivered: bool,
}

/// Whether a message must come, as far as its mode promises it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owed {
    Surely,
    /// It was said to a group: unless its sender is told that it was missed.
    UnlessMissed,
    /// It may be given up, and then need not come.
    Perhaps,
}

/// All that was sent.
#[derive(Debug, Default)]
pub(super) struct Sent {
    ordered: HashMap<u16, Ordered>,
    /// Messages of all other modes.
    singles: Vec<Single>,
    /// Where among those stands what was said to a group.
    said_to_group: HashMap<u64, usize>,
    /// The newest message of each channel, sequenced mode and key: the last that was sent, and the last that was delivered.
    sequenced: HashMap<(u16, Mode, u64), Newest>,
    count: u64,
}

/// The ordered messages of a channel.
#[derive(Debug, Default)]
struct Ordered {
    sent: Vec<Single>,
    /// The first that may be delivered next.
    next: usize,
}

#[derive(Debug, Default)]
struct Newest {
    sent: usize,
    delivered: Option<usize>,
}

impl Single {
    /// It came; from now on nobody asks what was in it.
    fn deliver(&mut self) {
        self.is_delivered = true;
        self.bytes = Bytes::new();
    }
}

impl Sent {
    /// Answers where it stands: among the ordered ones of its channel, or among all others.
    pub(super) fn push(&mut self, single: Single) -> usize {
        self.count += 1;
        let messages = if single.mode == Mode::ReliableOrdered {
            &mut self.ordered.entry(single.channel).or_default().sent
        } else {
            let index = self.singles.len();
            self.sequenced.entry((single.channel, single.mode, single.key)).or_default().sent = index;
            if let Some(number) = single.to_group {
                self.said_to_group.insert(number, index);
            }
            &mut self.singles
        };
        messages.push(single);
        messages.len() - 1
    }

    /// How many there are.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// The number of the next one that is not ordered.
    pub(super) fn next_number(&self) -> u64 {
        self.singles.len() as u64
    }

    /// The one that stands here.
    pub(super) fn get(&self, channel: u16, mode: Mode, index: usize) -> Option<&Single> {
        let messages = match mode {
            Mode::ReliableOrdered => &self.ordered.get(&channel)?.sent,
            _ => &self.singles,
        };
        messages.get(index)
    }

    /// One came out; says what is wrong with that. Where it may, the newest value of a key comes again.
    pub(super) fn deliver(
        &mut self,
        channel: ChannelId,
        bytes: &[u8],
        may_repeat: bool,
    ) -> Result<(), String> {
        match message::read(bytes) {
            (Mode::ReliableOrdered, _) => self.deliver_ordered(channel.0, bytes),
            (mode, number) => self.deliver_single(channel.0, mode, number, bytes, may_repeat),
        }
    }

    fn deliver_single(
        &mut self,
        channel: u16,
        mode: Mode,
        number: Option<Number>,
        bytes: &[u8],
        may_repeat: bool,
    ) -> Result<(), String> {
        let index = match number {
            Some(Number::OfFlow(number)) => usize::try_from(number).ok(),
            Some(Number::ToGroup(number)) => self.said_to_group.get(&number).copied(),
            None => None,
        };
        let index = index.unwrap_or(usize::MAX);
        let Some(message) = self.singles.get_mut(index) else {
            return Err(format!("a message that nobody sent it, {mode:?} on channel {channel}, {number:?}"));
        };
        let newest = self.sequenced.entry((channel, mode, message.key)).or_default();
        if message.is_delivered {
            if may_repeat && mode == Mode::ReliableLatest && newest.delivered == Some(index) {
                return Ok(());
            }
            return Err(format!("message {index}, {mode:?}, came twice"));
        }
        if message.bytes != bytes || message.channel != channel {
            return Err(format!("message {index}, {mode:?}, changed on its way, on channel {channel}"));
        }
        message.deliver();
        let is_sequenced =
            matches!(mode, Mode::UnreliableSequenced | Mode::ReliableSequenced | Mode::ReliableLatest);
        match newest.delivered.replace(index) {
            Some(before) if is_sequenced && before > index => {
                Err(format!("message {index}, {mode:?}, came after {before} on channel {channel}"))
            }
            _ => Ok(()),
        }
    }

    fn deliver_ordered(&mut self, channel: u16, bytes: &[u8]) -> Result<(), String> {
        let ordered = self.ordered.entry(channel).or_default();
        let due = ordered.next;
        let mut left = ordered.sent.iter().skip(due);
        let owed = left.position(|sent| sent.bytes == bytes || sent.owed == Owed::Surely);
        let Some(place) = owed.map(|owed| due + owed) else {
            return Err(format!("a reliable message that none was due for after {due} on channel {channel}"));
        };
        if ordered.sent[place].bytes == bytes {
            ordered.sent[place].deliver();
            ordered.next = place + 1;
            return Ok(());
        }
        let came = ordered.sent.iter().position(|sent| !sent.is_delivered && sent.bytes == bytes);
        Err(format!(
            "reliable message {place} of channel {channel} was due, but {} came",
            came.map_or("none that is under way".to_owned(), |came| came.to_string())
        ))
    }

    /// Reliable messages that are so much owed and did not arrive, by their places; of those that replace each other the newest.
    pub(super) fn undelivered(&self, owed: Owed) -> impl Iterator<Item = (usize, &Single)> {
        let is_due = |index, single: &Single| match single.mode {
            Mode::ReliableUnordered | Mode::ReliableOrdered => true,
            Mode::ReliableSequenced | Mode::ReliableLatest => {
                let newest = self.sequenced.get(&(single.channel, single.mode, single.key));
                newest.is_some_and(|newest| newest.sent == index)
            }
            _ => false,
        };
        let is_missing = move |single: &Single| !single.is_delivered && single.owed == owed;
        self.all().filter(move |(index, single)| is_missing(single) && is_due(*index, single))
    }

    /// Everything, by its place.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, &Single)> {
        let lists = self.ordered.values().map(|ordered| &ordered.sent).chain([&self.singles]);
        lists.flat_map(|messages| messages.iter().enumerate())
    }
}
