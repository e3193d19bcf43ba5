//! One direction of one connection: what was sent, what came out, and whether that is what was promised.
//!
//! Every message says which it is where that has to be known, and its other bytes follow from the seed, so that
//! nothing else can pass for it.

use std::collections::HashMap;

use drumfire::conditioner::Random;
use drumfire::{ChannelId, Mode, Outcome, ReceiptId, SendOptions};

/// Bytes that say which message it is; ordered ones are told by their order.
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

/// What was sent one way, and how much of it arrived.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Messages may be dropped for want of room: then their receipts say so, and nothing else does.
    may_drop: bool,
    /// The receiver is short of memory and may forget which values it had: the newest of a key may come again.
    may_repeat: bool,
    ordered: HashMap<u16, Ordered>,
    /// Messages of all other modes.
    singles: Vec<Single>,
    /// The newest message of each channel, sequenced mode and key: the last that was sent, and the last that was delivered.
    sequenced: HashMap<(u16, Mode, u64), Newest>,
    receipts: HashMap<ReceiptId, Wanted>,
    /// Receipts of acks of which it is not certain yet that they are true.
    told: Vec<ReceiptId>,
    /// Messages for which there was no room.
    refused: u64,
    /// How often it was told that there is room again.
    told_of_room: u64,
    /// It was not told since the last that was refused.
    waits_for_room: bool,
    pub(crate) delivered: u64,
}

/// A message whose sender wants to know what became of it.
#[derive(Debug)]
struct Wanted {
    channel: u16,
    mode: Mode,
    /// Its place among those of its channel when it is ordered, else among all others.
    index: usize,
    may_expire: bool,
    outcome: Option<Outcome>,
}

/// The ordered messages of a channel.
#[derive(Debug, Default)]
struct Ordered {
    sent: Vec<Single>,
    /// The first that may be delivered next.
    next: usize,
}

#[derive(Debug)]
struct Single {
    channel: u16,
    mode: Mode,
    key: u64,
    bytes: Vec<u8>,
    /// It may be given up, and then need not come.
    may_expire: bool,
    is_delivered: bool,
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
        self.bytes = Vec::new();
    }
}

impl Flow {
    pub(crate) fn new(may_drop: bool, may_repeat: bool) -> Self {
        Self { may_drop, may_repeat, ..Self::default() }
    }

    /// There was no room for a message.
    pub(crate) fn on_refused(&mut self) {
        self.refused += 1;
        self.waits_for_room = true;
    }

    /// There is room again: nobody is told who was not refused before, and nobody more often.
    pub(crate) fn on_writable(&mut self) -> Result<(), String> {
        self.told_of_room += 1;
        self.waits_for_room = false;
        if self.told_of_room <= self.refused {
            Ok(())
        } else {
            Err(format!("told of room {} times, and refused {} times", self.told_of_room, self.refused))
        }
    }

    pub(crate) fn waits_for_room(&self) -> bool {
        self.waits_for_room
    }

    /// The next message with these options, about so long.
    pub(crate) fn next(&self, options: SendOptions, bytes: usize, random: &mut Random) -> Vec<u8> {
        let mut message = Vec::with_capacity(bytes.max(NUMBER_BYTES));
        // An ordered message is known by its place, unless some may be left out.
        let is_numbered = options.mode != Mode::ReliableOrdered || self.may_expire(&options);
        if !is_numbered && bytes == 0 {
            return message;
        }
        message.extend(MODES.iter().filter(|(_, of)| *of == options.mode).map(|(byte, _)| byte));
        if is_numbered {
            let is_ordered = options.mode == Mode::ReliableOrdered;
            let number = if is_ordered { self.sent() } else { self.singles.len() as u64 };
            message.extend_from_slice(&number.to_be_bytes());
        }
        let least = message.len();
        while message.len() < bytes {
            message.extend_from_slice(&random.bits().to_be_bytes());
        }
        message.truncate(bytes.max(least));
        message
    }

    fn may_expire(&self, options: &SendOptions) -> bool {
        options.lifetime.is_some() || self.may_drop
    }

    /// The message was taken.
    pub(crate) fn on_sent(
        &mut self,
        channel: u16,
        options: SendOptions,
        bytes: Vec<u8>,
        receipt: Option<ReceiptId>,
    ) {
        let (mode, key, may_expire) = (options.mode, options.key, self.may_expire(&options));
        let single = Single { channel, mode, key, bytes, may_expire, is_delivered: false };
        let messages = if mode == Mode::ReliableOrdered {
            &mut self.ordered.entry(channel).or_default().sent
        } else {
            self.sequenced.entry((channel, mode, key)).or_default().sent = self.singles.len();
            &mut self.singles
        };
        let index = messages.len();
        messages.push(single);
        if let Some(receipt) = receipt {
            let wanted = Wanted { channel, mode, index, may_expire, outcome: None };
            self.receipts.insert(receipt, wanted);
        }
    }

    /// The sender heard what became of a message; says what is wrong with that.
    pub(crate) fn on_receipt(
        &mut self,
        receipt: ReceiptId,
        outcome: Outcome,
        is_over: bool,
    ) -> Result<(), String> {
        let Some(wanted) = self.receipts.get_mut(&receipt) else {
            return Err(format!("{receipt:?} of nothing that was sent"));
        };
        if let Some(before) = wanted.outcome.replace(outcome) {
            return Err(format!("{receipt:?} came twice, {before:?} and {outcome:?}"));
        }
        let may_be_replaced = matches!(wanted.mode, Mode::ReliableSequenced | Mode::ReliableLatest);
        let is_true = match outcome {
            Outcome::Acknowledged => true,
            Outcome::Lost => is_over || !wanted.mode.is_reliable(),
            Outcome::Expired => wanted.may_expire || may_be_replaced,
        };
        // An ordered message may be there and wait for others, and of the others some are never delivered.
        if outcome == Outcome::Acknowledged && wanted.mode == Mode::ReliableUnordered {
            self.told.push(receipt);
        }
        if is_true { Ok(()) } else { Err(format!("{outcome:?} for {wanted:?}")) }
    }

    /// Both ends took all their events in: says which message was acknowledged and is not there.
    pub(crate) fn untrue(&mut self) -> Option<String> {
        let told = std::mem::take(&mut self.told);
        let untrue =
            told.iter().find(|receipt| !self.receipts.get(receipt).is_some_and(|it| self.is_true(it)));
        untrue.map(|receipt| format!("{receipt:?} says that a message came, and it did not"))
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
        let newest = self.sequenced.entry((channel, mode, message.key)).or_default();
        if message.is_delivered {
            if self.may_repeat && mode == Mode::ReliableLatest && newest.delivered == Some(index) {
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

    fn on_reliable(&mut self, channel: u16, bytes: &[u8]) -> Result<(), String> {
        let ordered = self.ordered.entry(channel).or_default();
        let due = ordered.next;
        let owed = ordered.sent.iter().skip(due).position(|sent| sent.bytes == bytes || !sent.may_expire);
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

    /// Reliable messages that did not arrive, and receipts that are not true: which.
    pub(crate) fn missing(&self) -> Option<String> {
        let is_owed = |(index, single): &(usize, &Single)| match single.mode {
            Mode::ReliableUnordered | Mode::ReliableOrdered => !single.may_expire,
            Mode::ReliableSequenced | Mode::ReliableLatest => {
                let newest = self.sequenced.get(&(single.channel, single.mode, single.key));
                !single.may_expire && newest.is_some_and(|newest| newest.sent == *index)
            }
            _ => false,
        };
        let lists = self.ordered.values().map(|ordered| &ordered.sent).chain([&self.singles]);
        let mut missing: Vec<_> = lists
            .flat_map(|messages| messages.iter().enumerate())
            .filter(is_owed)
            .filter(|(_, single)| !single.is_delivered)
            .map(|(index, single)| (single.channel, index, single.mode))
            .collect();
        missing.sort_by_key(|(channel, index, _)| (*channel, *index));
        if let Some((channel, index, mode)) = missing.first() {
            return Some(format!("message {index} of {mode:?} on channel {channel}"));
        }
        let mut untrue: Vec<_> = self.receipts.iter().filter(|(_, wanted)| !self.is_true(wanted)).collect();
        untrue.sort_by_key(|(receipt, _)| **receipt);
        untrue.first().map(|untrue| format!("a receipt: {untrue:?}"))
    }

    /// Reliable messages that were not given up by a newer one and did not arrive.
    pub(crate) fn left_out(&self) -> u64 {
        let is_kept = |single: &&Single| {
            matches!(single.mode, Mode::ReliableOrdered | Mode::ReliableUnordered) && !single.is_delivered
        };
        let lists = self.ordered.values().map(|ordered| &ordered.sent).chain([&self.singles]);
        lists.flat_map(|messages| messages.iter().filter(is_kept)).count() as u64
    }

    /// Whether a receipt was answered, and what is acknowledged was delivered.
    fn is_true(&self, wanted: &Wanted) -> bool {
        let messages = if wanted.mode == Mode::ReliableOrdered {
            self.ordered.get(&wanted.channel).map(|ordered| &ordered.sent)
        } else {
            Some(&self.singles)
        };
        let message = messages.and_then(|messages| messages.get(wanted.index));
        match wanted.outcome {
            None => false,
            Some(Outcome::Acknowledged) if wanted.mode.is_reliable() => {
                message.is_some_and(|m| m.is_delivered)
            }
            Some(_) => true,
        }
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

    fn send(flow: &mut Flow, options: SendOptions, bytes: usize) -> Vec<u8> {
        let message = flow.next(options, bytes, &mut Random::new(flow.sent()));
        flow.on_sent(CHANNEL.0, options, message.clone(), None);
        message
    }

    fn sent(flow: &mut Flow, mode: Mode, bytes: usize) -> Vec<u8> {
        send(flow, SendOptions::new(mode), bytes)
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
    fn an_ordered_message_may_be_left_out_only_when_its_time_may_be_over() {
        let options = SendOptions::reliable_ordered();
        let short = options.lifetime(std::time::Duration::from_millis(1));
        let mut flow = Flow::default();
        let messages = [short, options, short, options].map(|options| send(&mut flow, options, 20));
        assert_eq!(flow.on_delivered(CHANNEL, &messages[1]), Ok(()));
        assert!(flow.on_delivered(CHANNEL, &messages[0]).is_err(), "after one behind it");
        let mut flow = Flow::default();
        let messages = [short, options, short, options].map(|options| send(&mut flow, options, 20));
        assert!(flow.on_delivered(CHANNEL, &messages[2]).is_err(), "the second was due");
        assert!(flow.missing().is_some_and(|missing| missing.starts_with("message 1")));
    }

    #[test]
    fn where_messages_may_be_dropped_none_need_come_and_those_that_do_come_in_order() {
        let mut flow = Flow::new(true, false);
        let messages = [20, 20, 20].map(|bytes| sent(&mut flow, Mode::ReliableOrdered, bytes));
        assert_eq!(flow.on_delivered(CHANNEL, &messages[1]), Ok(()));
        assert!(flow.on_delivered(CHANNEL, &messages[1]).is_err(), "twice");
        assert!(flow.on_delivered(CHANNEL, &messages[0]).is_err(), "after one behind it");
        assert_eq!((flow.missing(), flow.left_out()), (None, 2));
    }

    #[test]
    fn only_who_is_short_of_memory_gets_a_value_twice_and_only_the_newest() {
        for may_repeat in [false, true] {
            let mut flow = Flow::new(false, may_repeat);
            let values = [20, 21].map(|bytes| send(&mut flow, SendOptions::reliable_latest(7), bytes));
            for value in &values {
                assert_eq!(flow.on_delivered(CHANNEL, value), Ok(()));
            }
            assert_eq!(flow.on_delivered(CHANNEL, &values[1]).is_ok(), may_repeat);
            assert!(flow.on_delivered(CHANNEL, &values[0]).is_err(), "older");
        }
    }

    #[test]
    fn receipts_come_once_and_say_what_is_true() {
        let receipt = |number| ReceiptId(std::num::NonZeroU64::new(number).unwrap());
        let mut flow = Flow::default();
        let reliable = SendOptions::reliable_unordered();
        let message = flow.next(reliable, 20, &mut Random::new(1));
        flow.on_sent(CHANNEL.0, reliable, message.clone(), Some(receipt(1)));
        assert!(flow.on_receipt(receipt(2), Outcome::Lost, true).is_err(), "of nothing");
        assert!(flow.on_receipt(receipt(1), Outcome::Acknowledged, false).is_ok());
        assert!(flow.on_receipt(receipt(1), Outcome::Acknowledged, false).is_err(), "twice");
        assert!(!flow.is_true(&flow.receipts[&receipt(1)]), "acknowledged and not delivered");
        assert_eq!(flow.on_delivered(CHANNEL, &message), Ok(()));
        assert_eq!(flow.missing(), None);
        flow.on_sent(CHANNEL.0, reliable, vec![4; 20], Some(receipt(3)));
        for outcome in [Outcome::Lost, Outcome::Expired] {
            assert!(flow.on_receipt(receipt(3), outcome, false).is_err(), "{outcome:?}");
        }
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
