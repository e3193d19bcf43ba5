//! The messages of one direction of one connection: the sent and the delivered messages, and whether the promises of
//! each mode hold.

use std::collections::HashMap;

use bytes::Bytes;
use drumfire::conditioner::Random;
use drumfire::{ChannelId, Mode, Outcome, ReceiptId, SendOptions};

/// The first byte of a message of each mode.
const MODES: [(u8, Mode); 6] = [
    (1, Mode::Unreliable),
    (2, Mode::ReliableOrdered),
    (3, Mode::UnreliableSequenced),
    (4, Mode::ReliableUnordered),
    (5, Mode::ReliableSequenced),
    (6, Mode::ReliableLatest),
];

/// The bit of the first byte that is set in messages to a group.
const TO_GROUP: u8 = 0x10;

/// The bytes of the mode and of the number.
const NUMBER_BYTES: usize = 9;

/// The number in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Number {
    /// Among the messages of its flow.
    OfFlow(u64),
    /// Among all messages to groups.
    ToGroup(u64),
}

/// Returns a message of about `bytes` bytes: its mode, its number, and random bytes, so that no two messages are equal. An ordered
/// message may have no number, because its place identifies it.
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

/// Returns the mode of a message, and its number if it is long enough for one. A message without a mode is ordered and has no number.
fn read(bytes: &[u8]) -> (Mode, Option<Number>) {
    let first = bytes.first().copied().unwrap_or_default();
    let mode = MODES.iter().find(|(byte, _)| *byte == first & !TO_GROUP);
    let mode = mode.map_or(Mode::ReliableOrdered, |(_, mode)| *mode);
    let number = bytes.get(1..NUMBER_BYTES).and_then(|number| number.try_into().ok()).map(u64::from_be_bytes);
    let kind = if first & TO_GROUP == 0 { Number::OfFlow } else { Number::ToGroup };
    (mode, number.map(kind))
}

/// The messages of one direction.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Whether messages may be dropped for lack of memory, which their receipts report.
    may_drop: bool,
    /// Whether the newest value of a key may be delivered again. A receiver that is short of memory forgets which
    /// values it delivered.
    may_repeat: bool,
    /// All messages that were sent.
    messages: Vec<Message>,
    /// The indexes of the messages that are not ordered, by number.
    numbered: HashMap<Number, usize>,
    /// The ordered messages of each channel.
    ordered: HashMap<u16, OrderedMessages>,
    /// The newest message of each channel, sequenced mode, and key.
    newest: HashMap<(u16, Mode, u64), Newest>,
    receipts: HashMap<ReceiptId, RequestedReceipt>,
    /// Receipts with the outcome `Acknowledged` that have not been compared with the deliveries yet.
    unchecked: Vec<ReceiptId>,
    /// Messages that a full queue refused, and `Writable` events since the start.
    refused: u64,
    writable: u64,
    /// Whether no `Writable` event followed the last refused message.
    pub(crate) awaits_writable: bool,
    /// Messages to groups that were missed, as the sender was notified.
    pub(crate) missed: u64,
    pub(crate) delivered: u64,
}

/// A message that was sent.
#[derive(Debug)]
struct Message {
    channel: u16,
    mode: Mode,
    key: u64,
    /// Empty once it is delivered.
    bytes: Bytes,
    owed: Expected,
    is_to_group: bool,
    is_delivered: bool,
}

/// Whether a message must arrive, if its mode promises that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Required,
    /// Unless its sender is notified that it was missed.
    UnlessMissed,
    /// It may expire or be dropped.
    Optional,
}

/// The ordered messages of a channel.
#[derive(Debug, Default)]
struct OrderedMessages {
    /// Their indexes.
    sent: Vec<usize>,
    /// The place in `sent` of the first message that may be delivered next.
    next: usize,
}

/// The newest message that was sent, and the newest that was delivered.
#[derive(Debug, Default)]
struct Newest {
    sent: usize,
    delivered: Option<usize>,
}

/// A receipt that the sender requested.
#[derive(Debug)]
struct RequestedReceipt {
    /// The index of the message.
    index: usize,
    outcome: Option<Outcome>,
}

impl Flow {
    pub(crate) fn new(may_drop: bool, may_repeat: bool) -> Self {
        Self { may_drop, may_repeat, ..Self::default() }
    }

    /// Records that a full queue refused a message.
    pub(crate) fn on_refused(&mut self) {
        self.refused += 1;
        self.awaits_writable = true;
    }

    /// Records that the queue has room again. There is at most one such event for each refusal.
    pub(crate) fn on_writable(&mut self) -> Result<(), String> {
        self.writable += 1;
        self.awaits_writable = false;
        if self.writable <= self.refused {
            Ok(())
        } else {
            Err(format!("{} Writable events for {} refusals", self.writable, self.refused))
        }
    }

    /// Returns the next message with these options, of about `bytes` bytes.
    pub(crate) fn next(&self, options: SendOptions, bytes: usize, random: &mut Random) -> Bytes {
        // The place of an ordered message identifies it, unless earlier ones may be left out.
        let number = match options.mode {
            Mode::ReliableOrdered => self.may_expire(&options).then(|| self.sent()),
            _ => Some(self.numbered.len() as u64),
        };
        compose(options.mode, number.map(Number::OfFlow), bytes, random)
    }

    fn may_expire(&self, options: &SendOptions) -> bool {
        options.lifetime.is_some() || self.may_drop
    }

    /// Records that the connection accepted the message.
    pub(crate) fn on_sent(
        &mut self,
        channel: u16,
        options: SendOptions,
        bytes: Bytes,
        receipt: Option<ReceiptId>,
    ) {
        let number = Number::OfFlow(self.numbered.len() as u64);
        let index = self.push(channel, options, bytes, number);
        if let Some(receipt) = receipt {
            self.receipts.insert(receipt, RequestedReceipt { index, outcome: None });
        }
    }

    /// Records that the server accepted a message to a group with this client.
    pub(crate) fn on_broadcast(&mut self, number: u64, channel: u16, options: SendOptions, bytes: Bytes) {
        self.push(channel, options, bytes, Number::ToGroup(number));
    }

    /// Adds a message, and returns its index.
    fn push(&mut self, channel: u16, options: SendOptions, bytes: Bytes, number: Number) -> usize {
        let is_to_group = matches!(number, Number::ToGroup(_));
        let owed = match is_to_group {
            _ if self.may_expire(&options) => Expected::Optional,
            true => Expected::UnlessMissed,
            false => Expected::Required,
        };
        let (SendOptions { mode, key, .. }, index) = (options, self.messages.len());
        if mode == Mode::ReliableOrdered {
            self.ordered.entry(channel).or_default().sent.push(index);
        } else {
            self.newest.entry((channel, mode, key)).or_default().sent = index;
            self.numbered.insert(number, index);
        }
        self.messages.push(Message { channel, mode, key, bytes, owed, is_to_group, is_delivered: false });
        index
    }

    /// Records that the sender received a receipt.
    pub(crate) fn on_receipt(
        &mut self,
        receipt: ReceiptId,
        outcome: Outcome,
        is_over: bool,
    ) -> Result<(), String> {
        let Some(requested) = self.receipts.get_mut(&receipt) else {
            return Err(format!("{receipt:?} was not requested"));
        };
        if let Some(before) = requested.outcome.replace(outcome) {
            return Err(format!("{receipt:?} came twice, {before:?} and {outcome:?}"));
        }
        let Message { channel, mode, owed, .. } = self.messages[requested.index];
        let may_be_replaced = matches!(mode, Mode::ReliableSequenced | Mode::ReliableLatest);
        let is_permitted = match outcome {
            Outcome::Acknowledged => true,
            Outcome::Lost => is_over || !mode.is_reliable(),
            Outcome::Expired => owed == Expected::Optional || may_be_replaced,
        };
        // An acknowledged ordered message may still wait for earlier ones, and the other modes may skip messages.
        if outcome == Outcome::Acknowledged && mode == Mode::ReliableUnordered {
            self.unchecked.push(receipt);
        }
        if is_permitted {
            Ok(())
        } else {
            Err(format!("{outcome:?} for a message of {mode:?} on channel {channel}"))
        }
    }

    /// Returns the first acknowledged message that was not delivered. Both ends must have taken all their events.
    pub(crate) fn false_receipt(&mut self) -> Option<String> {
        let unchecked = std::mem::take(&mut self.unchecked);
        let is_false =
            |receipt: &&ReceiptId| !self.receipts.get(receipt).is_some_and(|it| self.is_fulfilled(it));
        let receipt = unchecked.iter().find(is_false)?;
        Some(format!("{receipt:?} reports a delivery that did not happen"))
    }

    /// Records that a message was delivered.
    pub(crate) fn on_delivered(&mut self, channel: ChannelId, bytes: &[u8]) -> Result<(), String> {
        let ChannelId(channel) = channel;
        self.delivered += 1;
        let (mode, number) = read(bytes);
        if mode == Mode::ReliableOrdered {
            return self.deliver_ordered(channel, bytes);
        }
        let Some(index) = number.and_then(|number| self.numbered.get(&number).copied()) else {
            return Err(format!("a message that was not sent, {mode:?} on channel {channel}, {number:?}"));
        };
        let message = &mut self.messages[index];
        let newest = self.newest.entry((channel, mode, message.key)).or_default();
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

    fn deliver_ordered(&mut self, channel: u16, bytes: &[u8]) -> Result<(), String> {
        let (messages, ordered) = (&mut self.messages, self.ordered.entry(channel).or_default());
        let due = ordered.next;
        let is_owed = |message: &Message| message.bytes == bytes || message.owed == Expected::Required;
        let owed = ordered.sent.iter().skip(due).position(|index| is_owed(&messages[*index]));
        let Some(place) = owed.map(|owed| due + owed) else {
            return Err(format!("a reliable message without one due after {due} on channel {channel}"));
        };
        let message = &mut messages[ordered.sent[place]];
        if message.bytes == bytes {
            message.deliver();
            ordered.next = place + 1;
            return Ok(());
        }
        let has_come = |message: &Message| !message.is_delivered && message.bytes == bytes;
        let came = ordered.sent.iter().position(|index| has_come(&messages[*index]));
        let came = came.map_or("one that is not on its way".to_owned(), |came| came.to_string());
        Err(format!("reliable message {place} of channel {channel} was due, but {came} came"))
    }

    /// Returns what is missing at the end: a reliable message, a receipt, or a notification of a missed message to a group.
    pub(crate) fn missing(&self) -> Option<String> {
        if let Some((index, Message { channel, mode, .. })) = self.owed(Expected::Required).next() {
            return Some(format!("message {index} of {mode:?} on channel {channel}"));
        }
        let unfulfilled = self.receipts.iter().filter(|(_, requested)| !self.is_fulfilled(requested));
        if let Some(receipt) = unfulfilled.min_by_key(|(receipt, _)| **receipt) {
            return Some(format!("a receipt: {receipt:?}"));
        }
        let owed = self.owed(Expected::UnlessMissed).count() as u64;
        let is_unheard = |message: &&Message| message.is_to_group && !message.is_delivered;
        let unheard = self.messages.iter().filter(is_unheard).count() as u64;
        let missed = self.missed;
        (!(owed..=unheard).contains(&missed)).then(|| {
            format!(
                "{unheard} messages to a group, of which {owed} were owed and {missed} reported as missed"
            )
        })
    }

    /// Returns the undelivered reliable messages of this kind, with their indexes: of messages that replace each other, the newest.
    fn owed(&self, owed: Expected) -> impl Iterator<Item = (usize, &Message)> {
        let must_arrive = |index, message: &Message| match message.mode {
            Mode::ReliableUnordered | Mode::ReliableOrdered => true,
            Mode::ReliableSequenced | Mode::ReliableLatest => {
                let newest = self.newest.get(&(message.channel, message.mode, message.key));
                newest.is_some_and(|newest| newest.sent == index)
            }
            _ => false,
        };
        let is_missing = move |message: &Message| !message.is_delivered && message.owed == owed;
        let messages = self.messages.iter().enumerate();
        messages.filter(move |(index, message)| is_missing(message) && must_arrive(*index, message))
    }

    /// Returns the number of reliable messages that no newer message replaced and that were not delivered.
    pub(crate) fn undelivered(&self) -> u64 {
        let is_undelivered = |message: &&Message| {
            matches!(message.mode, Mode::ReliableOrdered | Mode::ReliableUnordered) && !message.is_delivered
        };
        self.messages.iter().filter(is_undelivered).count() as u64
    }

    /// Returns whether a receipt arrived, and its message too if it reports that.
    fn is_fulfilled(&self, requested: &RequestedReceipt) -> bool {
        let message = &self.messages[requested.index];
        match requested.outcome {
            None => false,
            Some(Outcome::Acknowledged) if message.mode.is_reliable() => message.is_delivered,
            Some(_) => true,
        }
    }

    /// Returns the number of messages that were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.messages.len() as u64
    }
}

impl Message {
    /// Marks the message as delivered, and frees its bytes.
    fn deliver(&mut self) {
        self.is_delivered = true;
        self.bytes = Bytes::new();
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

    #[test]
    fn a_message_contains_its_mode_and_number() {
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
        for bytes in [0, 3] {
            let message = compose(Mode::ReliableOrdered, None, bytes, random);
            assert_eq!(read(&message), (Mode::ReliableOrdered, None));
        }
    }

    /// Sends four messages, delivers some, and checks which deliveries pass and whether a message is missing at the end.
    fn check(mut flow: Flow, options: SendOptions, deliveries: &[(usize, bool)], is_missing: bool) {
        let messages = [0, 9, 21, 1_000].map(|bytes| send(&mut flow, options, bytes));
        for (index, passes) in deliveries {
            let outcome = flow.on_delivered(CHANNEL, &messages[*index]);
            assert_eq!(outcome.is_ok(), *passes, "{options:?}, {deliveries:?}: {index}");
        }
        assert_eq!(flow.missing().is_some(), is_missing, "{options:?}, {deliveries:?}");
    }

    #[test]
    fn each_mode_has_its_own_promises() {
        let usual = |mode, deliveries: &[(usize, bool)], is_missing| {
            check(Flow::default(), SendOptions::new(mode), deliveries, is_missing);
        };
        let in_order = [(0, true), (1, true), (2, true), (3, true)];
        let older = [(1, true), (0, false), (1, false), (3, true)];
        usual(Mode::Unreliable, &[(2, true), (0, true), (0, false)], false);
        usual(Mode::UnreliableSequenced, &older, false);
        usual(Mode::ReliableSequenced, &older, false);
        usual(Mode::ReliableSequenced, &in_order[..3], true);
        usual(Mode::ReliableUnordered, &[(2, true), (0, true), (0, false), (3, true)], true);
        usual(Mode::ReliableUnordered, &[(2, true), (0, true), (3, true), (1, true)], false);
        usual(Mode::ReliableOrdered, &in_order, false);
        usual(Mode::ReliableOrdered, &[(1, false), (0, true), (0, false), (1, true)], true);
        usual(Mode::ReliableOrdered, &[in_order.as_slice(), &[(3, false)]].concat(), false);
        let droppable = [(1, true), (1, false), (0, false)];
        check(Flow::new(true, false), SendOptions::reliable_ordered(), &droppable, false);
        for may_repeat in [false, true] {
            let again = [in_order.as_slice(), &[(3, may_repeat), (2, false)]].concat();
            check(Flow::new(false, may_repeat), SendOptions::reliable_latest(7), &again, false);
        }
    }

    #[test]
    fn a_changed_or_unknown_message_is_found() {
        let mut flow = Flow::default();
        let message = send(&mut flow, SendOptions::unreliable(), 17);
        let mut changed = message.to_vec();
        changed[12] ^= 1;
        assert!(flow.on_delivered(CHANNEL, &changed).is_err());
        assert!(flow.on_delivered(ChannelId(3), &message).is_err(), "on another channel");
        assert!(flow.on_delivered(CHANNEL, &[1; 9]).is_err(), "never sent");
        assert_eq!(flow.on_delivered(CHANNEL, &message), Ok(()));
        assert_eq!((flow.sent(), flow.delivered), (1, 4));
    }

    #[test]
    fn only_an_ordered_message_that_may_expire_may_be_left_out() {
        let options = SendOptions::reliable_ordered();
        let short = options.lifetime(std::time::Duration::from_millis(1));
        let mut flow = Flow::default();
        let messages = [short, options, short, options].map(|options| send(&mut flow, options, 20));
        assert_eq!(flow.on_delivered(CHANNEL, &messages[1]), Ok(()));
        assert!(flow.on_delivered(CHANNEL, &messages[0]).is_err(), "after a later one");
        let mut flow = Flow::default();
        let messages = [short, options, short, options].map(|options| send(&mut flow, options, 20));
        assert!(flow.on_delivered(CHANNEL, &messages[2]).is_err(), "the second was due");
        assert!(flow.missing().is_some_and(|missing| missing.starts_with("message 1")));
    }

    /// Sends a message to a group.
    fn broadcast(flow: &mut Flow, number: u64, options: SendOptions) -> Bytes {
        let random = &mut Random::new(number);
        let message = compose(options.mode, Some(Number::ToGroup(number)), 20, random);
        flow.on_broadcast(number, CHANNEL.0, options, message.clone());
        message
    }

    #[test]
    fn a_message_to_a_group_arrives_in_its_turn_or_was_missed() {
        for mode in [Mode::ReliableOrdered, Mode::ReliableUnordered, Mode::ReliableSequenced] {
            let mut flow = Flow::default();
            let options = SendOptions::new(mode);
            let before = send(&mut flow, options, 20);
            let [first, second] = [4, 7].map(|number| broadcast(&mut flow, number, options));
            flow.on_delivered(CHANNEL, &before).unwrap();
            flow.on_delivered(CHANNEL, &first).unwrap();
            assert!(flow.on_delivered(CHANNEL, &first).is_err(), "twice");
            assert!(flow.missing().is_some_and(|missing| missing.contains("1 were owed")), "{mode:?}");
            flow.missed += 1;
            assert_eq!(flow.missing(), None);
            // It was reported as missed.
            flow.on_delivered(CHANNEL, &second).unwrap();
            assert!(flow.missing().is_some(), "{mode:?}");
            let other = compose(mode, Some(Number::ToGroup(5)), 20, &mut Random::new(5));
            assert!(flow.on_delivered(CHANNEL, &other).is_err(), "sent to other members");
        }
        let mut flow = Flow::default();
        broadcast(&mut flow, 1, SendOptions::reliable_ordered());
        let after = send(&mut flow, SendOptions::reliable_ordered(), 20);
        flow.on_delivered(CHANNEL, &after).unwrap();
        assert!(flow.missing().is_some(), "no notification");
        flow.missed += 1;
        assert_eq!(flow.missing(), None);
    }

    #[test]
    fn receipts_come_once_and_are_true() {
        let receipt = |number| ReceiptId(std::num::NonZeroU64::new(number).unwrap());
        let mut flow = Flow::default();
        let reliable = SendOptions::reliable_unordered();
        let message = flow.next(reliable, 20, &mut Random::new(1));
        flow.on_sent(CHANNEL.0, reliable, message.clone(), Some(receipt(1)));
        assert!(flow.on_receipt(receipt(2), Outcome::Lost, true).is_err(), "not requested");
        assert!(flow.on_receipt(receipt(1), Outcome::Acknowledged, false).is_ok());
        assert!(flow.on_receipt(receipt(1), Outcome::Acknowledged, false).is_err(), "twice");
        assert!(!flow.is_fulfilled(&flow.receipts[&receipt(1)]), "acknowledged and not delivered");
        assert_eq!(flow.on_delivered(CHANNEL, &message), Ok(()));
        assert_eq!(flow.missing(), None);
        flow.on_sent(CHANNEL.0, reliable, Bytes::from_static(&[4; 20]), Some(receipt(3)));
        for outcome in [Outcome::Lost, Outcome::Expired] {
            assert!(flow.on_receipt(receipt(3), outcome, false).is_err(), "{outcome:?}");
        }
    }
}
