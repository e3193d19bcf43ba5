//! Datagrams waiting to be sent, end to end in one piece of memory, so that equal ones to one peer already lie
//! as the train that segmentation offload wants.
//!
//! It decides nothing about when or how to send.

use std::net::SocketAddr;

use crate::sys::SendHeaders;
use crate::{Drain, LocalAddress};

/// How datagrams are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMode {
    /// One call per datagram.
    Single,
    /// One `sendmmsg` for many.
    Sendmmsg,
    /// `sendmmsg` of trains: equal-sized datagrams in a row to one peer go as one message (`UDP_SEGMENT`).
    Gso,
}

impl SendMode {
    /// The best mode of this platform for a socket that was granted segmentation or not.
    #[must_use]
    pub const fn best(has_gso: bool) -> Self {
        match (has_gso, Drain::best()) {
            (true, _) => Self::Gso,
            (false, Drain::Recvmmsg) => Self::Sendmmsg,
            (false, Drain::Recv) => Self::Single,
        }
    }
}

/// The most datagrams in one train (`UDP_MAX_SEGMENTS` of the oldest kernels that segment).
pub(crate) const MAX_TRAIN: usize = 64;

/// The most bytes in one train: what fits an IPv6 payload behind its UDP header.
const MAX_TRAIN_BYTES: usize = 65_487;

/// The most messages one send call carries.
pub(crate) const MAX_MESSAGES: usize = 64;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) to: Option<SocketAddr>,
    /// Which of the host's addresses it leaves from.
    pub(crate) local: LocalAddress,
    pub(crate) at: usize,
    pub(crate) bytes: usize,
    /// Whether no train goes on from the one before.
    is_cut: bool,
}

/// A bounded queue of datagrams for one flush; its memory is allocated once.
pub struct SendBatch {
    arena: Box<[u8]>,
    used: usize,
    entries: Vec<Entry>,
    sent: usize,
    /// Of the next datagram.
    is_cut: bool,
    max_datagrams: usize,
    headers: SendHeaders,
}

impl SendBatch {
    /// Room for `max_datagrams` datagrams and `max_bytes` payload bytes in all.
    #[must_use]
    pub fn new(max_datagrams: usize, max_bytes: usize) -> Self {
        Self {
            arena: vec![0; max_bytes].into_boxed_slice(),
            used: 0,
            entries: Vec::with_capacity(max_datagrams),
            sent: 0,
            is_cut: false,
            max_datagrams,
            headers: SendHeaders::new(MAX_MESSAGES),
        }
    }

    /// Adds a datagram to `to` (`None` on a connected socket); false when there is no room left.
    #[must_use]
    pub fn push(&mut self, to: Option<SocketAddr>, datagram: &[u8]) -> bool {
        self.push_with(to, datagram.len(), |memory| memory.copy_from_slice(datagram))
    }

    /// [`Self::push`], to leave from this address of the host, on a socket bound to an unspecified one.
    #[must_use]
    pub fn push_from(&mut self, local: LocalAddress, to: SocketAddr, datagram: &[u8]) -> bool {
        let is_taken = self.push(Some(to), datagram);
        if let (true, Some(entry)) = (is_taken, self.entries.last_mut()) {
            entry.local = local;
        }
        is_taken
    }

    /// Lets the next datagram begin a train of its own. For connections that share an address: the receiver's kernel hands a
    /// train whole to one socket, which may be that of its first packet alone.
    pub const fn cut(&mut self) {
        self.is_cut = true;
    }

    /// Adds a datagram of `bytes` bytes that `write` fills in place; false when there is no room left.
    #[must_use]
    pub fn push_with(&mut self, to: Option<SocketAddr>, bytes: usize, write: impl FnOnce(&mut [u8])) -> bool {
        if self.entries.len() == self.max_datagrams {
            return false;
        }
        let Some(memory) = self.arena.get_mut(self.used..self.used.saturating_add(bytes)) else {
            return false;
        };
        write(memory);
        let is_cut = std::mem::take(&mut self.is_cut);
        self.entries.push(Entry { to, local: LocalAddress::ANY, at: self.used, bytes, is_cut });
        self.used += bytes;
        true
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sent == self.entries.len()
    }

    /// Datagrams still waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len() - self.sent
    }

    /// Forgets what waits.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.sent = 0;
        self.used = 0;
    }

    /// What waits, as a send call takes it.
    pub(crate) fn outgoing(&mut self) -> Outgoing<'_> {
        Outgoing { arena: &self.arena, entries: &self.entries[self.sent..], headers: &mut self.headers }
    }

    pub(crate) fn waiting(&self) -> &[Entry] {
        &self.entries[self.sent..]
    }

    /// Returns whether the first `count` waiting datagrams hold a train of more than one.
    pub(crate) fn has_train(&self, count: usize) -> bool {
        // Two datagrams in a row that could be a train are one, or the first of them ends a longer one.
        self.waiting()[..count.min(self.len())].windows(2).any(|pair| first_train(pair) > 1)
    }

    /// How many went, sent or lost, since it was last empty.
    pub(crate) const fn gone(&self) -> usize {
        self.sent
    }

    /// Moves past `count` datagrams, sent or lost; when none waits the memory is free again.
    pub(crate) fn advance(&mut self, count: usize) {
        self.sent = (self.sent + count).min(self.entries.len());
        if self.is_empty() {
            self.clear();
        }
    }
}

/// The datagrams one send call may take from.
pub struct Outgoing<'a> {
    pub(crate) arena: &'a [u8],
    pub(crate) entries: &'a [Entry],
    pub(crate) headers: &'a mut SendHeaders,
}

impl Outgoing<'_> {
    /// The waiting datagrams with their peers, oldest first.
    pub fn datagrams(&self) -> impl Iterator<Item = (Option<SocketAddr>, &[u8])> {
        self.entries.iter().map(|entry| (entry.to, self.payload(entry)))
    }

    /// How many datagrams the first train holds: equal lengths from one address to one peer, the last may be shorter. None goes
    /// on past a [`cut`](SendBatch::cut).
    #[must_use]
    pub fn first_train(&self) -> usize {
        first_train(self.entries)
    }

    /// The first datagram alone.
    pub(crate) fn first(&mut self) -> Outgoing<'_> {
        let entries = self.entries.get(..1).unwrap_or_default();
        Outgoing { arena: self.arena, entries, headers: self.headers }
    }

    pub(crate) fn payload(&self, entry: &Entry) -> &[u8] {
        &self.arena[entry.at..entry.at + entry.bytes]
    }
}

/// How many of `entries` go as one train.
pub(crate) fn first_train(entries: &[Entry]) -> usize {
    let Some(first) = entries.first() else { return 0 };
    let mut total = first.bytes;
    let mut count = 1;
    for entry in entries.iter().take(MAX_TRAIN).skip(1) {
        total += entry.bytes;
        let is_same_way = entry.to == first.to && entry.local == first.local;
        let fits = is_same_way && !entry.is_cut && entry.bytes <= first.bytes && entry.bytes > 0;
        if !fits || total > MAX_TRAIN_BYTES {
            break;
        }
        count += 1;
        if entry.bytes < first.bytes {
            break;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(lengths: &[(u16, usize)]) -> SendBatch {
        let mut batch = SendBatch::new(256, 1 << 20);
        for &(port, bytes) in lengths {
            let to = SocketAddr::from(([127, 0, 0, 1], port));
            assert!(batch.push(Some(to), &vec![7; bytes]));
        }
        batch
    }

    #[test]
    fn a_train_is_equal_datagrams_to_one_peer_and_may_end_short() {
        let train = |lengths: &[(u16, usize)]| batch(lengths).outgoing().first_train();
        assert_eq!(train(&[]), 0);
        assert_eq!(train(&[(1, 10)]), 1);
        assert_eq!(train(&[(1, 10), (1, 10), (1, 4), (1, 10)]), 3);
        assert_eq!(train(&[(1, 10), (2, 10)]), 1);
        assert_eq!(train(&[(1, 10), (1, 11)]), 1);
        assert_eq!(train(&[(1, 10), (1, 0)]), 1);
        assert_eq!(train(&[(1, 100); 63]), 63);
        assert_eq!(train(&[(1, 100); 64]), 64);
        assert_eq!(train(&[(1, 100); 65]), 64);
        assert_eq!(train(&[(1, 1_200); 64]), 54);
        assert_eq!(train(&[(1, 65_507), (1, 10)]), 1);
    }

    #[test]
    fn a_train_is_found_behind_lone_datagrams() {
        let lone_then_train = batch(&[(1, 10), (2, 10), (3, 10), (3, 10)]);
        assert_eq!(
            [0, 1, 3, 4, 9].map(|count| lone_then_train.has_train(count)),
            [false, false, false, true, true]
        );
        assert!(batch(&[(1, 10), (1, 4), (1, 4)]).has_train(3));
        assert!(!batch(&[(1, 4), (1, 10), (2, 10)]).has_train(3));
    }

    #[test]
    fn datagrams_from_two_addresses_are_no_train() {
        let (mut batch, to) = (batch(&[]), SocketAddr::from(([127, 0, 0, 1], 1)));
        for local in [1, 1, 2] {
            assert!(batch.push_from(LocalAddress::from_number(local), to, b"x"));
        }
        assert_eq!(batch.outgoing().first_train(), 2);
    }

    #[test]
    fn a_train_ends_at_a_cut_and_another_begins_behind_it() {
        let (mut batch, to) = (batch(&[(1, 10), (1, 10)]), SocketAddr::from(([127, 0, 0, 1], 1)));
        batch.cut();
        for _ in 0..3 {
            assert!(batch.push(Some(to), &[7; 10]));
        }
        assert_eq!(batch.outgoing().first_train(), 2);
        batch.advance(1);
        assert_eq!(batch.outgoing().first_train(), 1);
        batch.advance(1);
        assert_eq!(batch.outgoing().first_train(), 3, "a cut is before one datagram and no other");
    }

    #[test]
    fn a_full_batch_refuses_and_keeps_what_it_has() {
        let mut batch = SendBatch::new(2, 10);
        assert!(batch.push(None, &[1; 4]));
        assert!(!batch.push(None, &[2; 7]));
        assert!(batch.push(None, &[3; 6]));
        assert!(!batch.push(None, &[]));
        let waiting: Vec<Vec<u8>> = batch.outgoing().datagrams().map(|(_, bytes)| bytes.to_vec()).collect();
        assert_eq!(waiting, [vec![1; 4], vec![3; 6]]);
        batch.advance(1);
        assert_eq!(batch.len(), 1);
        batch.advance(1);
        assert!(batch.is_empty() && batch.push(None, &[0; 10]));
    }
}
