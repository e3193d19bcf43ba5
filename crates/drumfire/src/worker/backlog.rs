//! Messages of one peer for which its connection has no memory at the moment: the more urgent first, those of a channel in
//! their order.

use std::collections::{BTreeMap, VecDeque};

use drumfire_proto::{ChannelId, Message, Priority, ReceiptId};

/// A message on its way into a connection, with the id of its receipt if the sender asked for one.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) message: Message,
    pub(crate) receipt: Option<ReceiptId>,
}

/// The messages that wait for room in a connection.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// By class of priority.
    classes: [VecDeque<Outgoing>; Priority::COUNT],
    /// In which class the messages of a channel wait, and how many.
    channels: BTreeMap<ChannelId, (usize, usize)>,
}

impl Backlog {
    pub(super) fn len(&self) -> usize {
        self.classes.iter().map(VecDeque::len).sum()
    }

    /// Whether a message must wait behind others: of its channel, or as urgent at least.
    pub(super) fn holds_up(&self, outgoing: &Outgoing) -> bool {
        let as_urgent = self.classes.iter().take(outgoing.message.options.priority.class() + 1);
        self.channels.contains_key(&outgoing.message.channel)
            || as_urgent.into_iter().any(|class| !class.is_empty())
    }

    /// Appends a message to its class, or to the class of its channel's waiting messages, so that the order of the channel is kept.
    pub(super) fn push(&mut self, outgoing: Outgoing) {
        let own = (outgoing.message.options.priority.class(), 0);
        let (class, count) = self.channels.entry(outgoing.message.channel).or_insert(own);
        *count += 1;
        if let Some(messages) = self.classes.get_mut(*class) {
            messages.push_back(outgoing);
        }
    }

    /// Removes and returns the most urgent message.
    pub(super) fn pop(&mut self) -> Option<Outgoing> {
        let outgoing = self.classes.iter_mut().find_map(VecDeque::pop_front)?;
        if let Some((_, count)) = self.channels.get_mut(&outgoing.message.channel) {
            *count -= 1;
            if *count == 0 {
                self.channels.remove(&outgoing.message.channel);
            }
        }
        Some(outgoing)
    }

    /// Puts the message that was taken out last back where it was.
    pub(super) fn put_back(&mut self, outgoing: Outgoing) {
        let own = (outgoing.message.options.priority.class(), 0);
        let (class, count) = self.channels.entry(outgoing.message.channel).or_insert(own);
        *count += 1;
        if let Some(messages) = self.classes.get_mut(*class) {
            messages.push_front(outgoing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(channel: u16, priority: Priority, byte: u8) -> Outgoing {
        let message = Message::reliable_ordered(ChannelId(channel), vec![byte]).priority(priority);
        Outgoing { message, receipt: None }
    }

    #[test]
    fn the_urgent_goes_first_and_no_channel_loses_its_order() {
        let mut backlog = Backlog::default();
        backlog.push(message(1, Priority::Bulk, 0));
        backlog.push(message(1, Priority::Urgent, 1));
        backlog.push(message(2, Priority::Normal, 2));
        assert!(backlog.holds_up(&message(1, Priority::Urgent, 9)), "of the same channel");
        assert!(!backlog.holds_up(&message(3, Priority::Urgent, 9)));
        assert!(backlog.holds_up(&message(3, Priority::Normal, 9)), "behind as urgent ones");
        let first = backlog.pop().unwrap();
        assert_eq!(first.message.payload[0], 2);
        backlog.put_back(first);
        assert_eq!(backlog.len(), 3);
        let order: Vec<u8> =
            std::iter::from_fn(|| backlog.pop()).map(|outgoing| outgoing.message.payload[0]).collect();
        assert_eq!(order, [2, 0, 1]);
        assert!(backlog.len() == 0 && backlog.channels.is_empty());
    }
}
