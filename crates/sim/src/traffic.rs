//! One direction of one connection: what was sent, what came out, and whether that is what was promised.

mod sent;

use std::collections::HashMap;

use bytes::Bytes;
use drumfire::conditioner::Random;
use drumfire::{ChannelId, Mode, Outcome, ReceiptId, SendOptions};

use crate::message::{self, Number};
use sent::{Owed, Sent, Single};

/// What was sent one way, and how much of it arrived.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Messages may be dropped for want of room: then their receipts say so, and nothing else does.
    may_drop: bool,
    /// The receiver is short of memory and may forget which values it had: the newest of a key may come again.
    may_repeat: bool,
    messages: Sent,
    receipts: HashMap<ReceiptId, Wanted>,
    /// Receipts of acks of which it is not certain yet that they are true.
    told: Vec<ReceiptId>,
    /// Messages for which there was no room.
    refused: u64,
    /// How often it was told that there is room again.
    told_of_room: u64,
    /// It was not told since the last that was refused.
    waits_for_room: bool,
    /// Messages to a group for which there was no room, as it was told.
    pub(crate) missed: u64,
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
    pub(crate) fn next(&self, options: SendOptions, bytes: usize, random: &mut Random) -> Bytes {
        // An ordered message is known by its place, unless some may be left out.
        let number = match options.mode {
            Mode::ReliableOrdered => self.may_expire(&options).then(|| self.sent()),
            _ => Some(self.messages.next_number()),
        };
        message::compose(options.mode, number.map(Number::OfFlow), bytes, random)
    }

    fn may_expire(&self, options: &SendOptions) -> bool {
        options.lifetime.is_some() || self.may_drop
    }

    /// The message was taken.
    pub(crate) fn on_sent(
        &mut self,
        channel: u16,
        options: SendOptions,
        bytes: Bytes,
        receipt: Option<ReceiptId>,
    ) {
        let SendOptions { mode, key, .. } = options;
        let may_expire = self.may_expire(&options);
        let owed = if may_expire { Owed::Perhaps } else { Owed::Surely };
        let single = Single { channel, mode, key, bytes, owed, to_group: None, is_delivered: false };
        let index = self.messages.push(single);
        if let Some(receipt) = receipt {
            let wanted = Wanted { channel, mode, index, may_expire, outcome: None };
            self.receipts.insert(receipt, wanted);
        }
    }

    /// The message of this number was taken for a group, of which this one is a member.
    pub(crate) fn on_said_to_group(&mut self, number: u64, channel: u16, options: SendOptions, bytes: Bytes) {
        let SendOptions { mode, key, .. } = options;
        let owed = if self.may_expire(&options) { Owed::Perhaps } else { Owed::UnlessMissed };
        let to_group = Some(number);
        self.messages.push(Single { channel, mode, key, bytes, owed, to_group, is_delivered: false });
    }

    /// The sender heard that so many messages to a group were missed.
    pub(crate) fn on_missed(&mut self, count: u32) {
        self.missed += u64::from(count);
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
        self.messages.deliver(channel, bytes, self.may_repeat)
    }

    /// Reliable messages that did not arrive, receipts that are not true, and messages to a group of which nobody was told that
    /// they were missed: which.
    pub(crate) fn missing(&self) -> Option<String> {
        let missing = self.messages.undelivered(Owed::Surely);
        let missing = missing.map(|(index, single)| (single.channel, index, single.mode));
        if let Some((channel, index, mode)) = missing.min_by_key(|(channel, index, _)| (*channel, *index)) {
            return Some(format!("message {index} of {mode:?} on channel {channel}"));
        }
        let untrue = self.receipts.iter().filter(|(_, wanted)| !self.is_true(wanted));
        if let Some(untrue) = untrue.min_by_key(|(receipt, _)| **receipt) {
            return Some(format!("a receipt: {untrue:?}"));
        }
        let owed = self.messages.undelivered(Owed::UnlessMissed).count() as u64;
        let is_unheard = |single: &Single| single.to_group.is_some() && !single.is_delivered;
        let unheard = self.messages.all().filter(|(_, single)| is_unheard(single)).count() as u64;
        let is_told = (owed..=unheard).contains(&self.missed);
        let missed = self.missed;
        (!is_told).then(|| {
            format!("{unheard} to a group, of which {owed} were owed and {missed} said to be missed")
        })
    }

    /// Reliable messages that were not given up by a newer one and did not arrive.
    pub(crate) fn left_out(&self) -> u64 {
        let is_kept = |single: &Single| {
            matches!(single.mode, Mode::ReliableOrdered | Mode::ReliableUnordered) && !single.is_delivered
        };
        self.messages.all().filter(|(_, single)| is_kept(single)).count() as u64
    }

    /// Whether a receipt was answered, and what is acknowledged was delivered.
    fn is_true(&self, wanted: &Wanted) -> bool {
        let message = self.messages.get(wanted.channel, wanted.mode, wanted.index);
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
        self.messages.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANNEL: ChannelId = ChannelId(2);

    fn send(flow: &mut Flow, options: SendOptions, bytes: usize) -> Bytes {
        let message = flow.next(options, bytes, &mut Random::new(flow.sent()));
        flow.on_sent(CHANNEL.0, options, message.clone(), None);
        message
    }

    fn sent(flow: &mut Flow, mode: Mode, bytes: usize) -> Bytes {
        send(flow, SendOptions::new(mode), bytes)
    }

    #[test]
    fn what_was_promised_passes() {
        let mut flow = Flow::default();
        let lengths = [0, 1, 8, 9, 10, 1_000];
        let reliable = lengths.map(|bytes| sent(&mut flow, Mode::ReliableOrdered, bytes));
        let unreliable = lengths.map(|bytes| sent(&mut flow, Mode::Unreliable, bytes));
        assert_eq!(reliable.each_ref().map(Bytes::len), lengths);
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

    /// What is said to a group, and whether this one hears it.
    fn said(flow: &mut Flow, number: u64, options: SendOptions) -> Bytes {
        let random = &mut Random::new(number);
        let message = message::compose(options.mode, Some(Number::ToGroup(number)), 20, random);
        flow.on_said_to_group(number, CHANNEL.0, options, message.clone());
        message
    }

    #[test]
    fn what_is_said_to_a_group_comes_in_its_turn_or_was_missed() {
        for mode in [Mode::ReliableOrdered, Mode::ReliableUnordered, Mode::ReliableSequenced] {
            let mut flow = Flow::default();
            let options = SendOptions::new(mode);
            let before = send(&mut flow, options, 20);
            let [first, second] = [4, 7].map(|number| said(&mut flow, number, options));
            flow.on_delivered(CHANNEL, &before).unwrap();
            flow.on_delivered(CHANNEL, &first).unwrap();
            assert!(flow.on_delivered(CHANNEL, &first).is_err(), "twice");
            assert!(flow.missing().is_some_and(|missing| missing.contains("1 were owed")), "{mode:?}");
            flow.on_missed(1);
            assert_eq!(flow.missing(), None);
            // It was said to be missed.
            flow.on_delivered(CHANNEL, &second).unwrap();
            assert!(flow.missing().is_some(), "{mode:?}");
            let other = message::compose(mode, Some(Number::ToGroup(5)), 20, &mut Random::new(5));
            assert!(flow.on_delivered(CHANNEL, &other).is_err(), "to others only");
        }
        let mut flow = Flow::default();
        said(&mut flow, 1, SendOptions::reliable_ordered());
        let after = send(&mut flow, SendOptions::reliable_ordered(), 20);
        flow.on_delivered(CHANNEL, &after).unwrap();
        assert!(flow.missing().is_some(), "nobody was told");
        flow.on_missed(1);
        assert_eq!(flow.missing(), None);
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
        flow.on_sent(CHANNEL.0, reliable, Bytes::from_static(&[4; 20]), Some(receipt(3)));
        for outcome in [Outcome::Lost, Outcome::Expired] {
            assert!(flow.on_receipt(receipt(3), outcome, false).is_err(), "{outcome:?}");
        }
    }

    #[test]
    fn every_broken_promise_is_seen() {
        let mut flow = Flow::default();
        let [first, second] = [16, 17].map(|bytes| sent(&mut flow, Mode::ReliableOrdered, bytes));
        let [single, other] = [16, 17].map(|bytes| sent(&mut flow, Mode::Unreliable, bytes));
        let mut spoiled = other.to_vec();
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
