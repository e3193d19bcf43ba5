//! A queue of datagrams to send. Their payloads are stored without gaps, which is the layout of a train. Consecutive
//! datagrams of the same length to one peer need no copy for segmentation offload.
//!
//! [`crate::Sender`] decides how a batch is sent, and the caller decides when.

use std::net::SocketAddr;

use crate::sys::{self, LocalAddress, SendEntry, SendHeaders, SendParts, first_train};

/// The system call that sends datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMode {
    /// One call for each datagram.
    Single,
    /// One `sendmmsg(2)` for many datagrams.
    Sendmmsg,
    /// One `sendmmsg(2)` for many trains. Consecutive datagrams of the same length to one peer form one message, which
    /// the kernel or the device segments (`UDP_SEGMENT`, see udp(7)).
    Gso,
}

impl SendMode {
    /// Returns the best mode of this platform. `has_gso` is whether the kernel granted segmentation for the socket.
    #[must_use]
    pub const fn best(has_gso: bool) -> Self {
        match (has_gso, sys::HAS_BATCHES) {
            (true, _) => Self::Gso,
            (false, true) => Self::Sendmmsg,
            (false, false) => Self::Single,
        }
    }
}

/// The maximum number of messages in one send call.
const MAX_MESSAGES: usize = 64;

/// A queue of datagrams for one flush, with fixed limits. It allocates its memory once.
pub struct SendBatch {
    // Payloads, in the order of the entries and without gaps.
    memory: Box<[u8]>,
    used_bytes: usize,

    // Datagrams.
    entries: Vec<SendEntry>,
    max_datagrams: usize,
    /// The number of entries that are finished, sent or lost.
    finished: usize,
    /// Whether the next datagram starts a new train.
    is_cut: bool,

    headers: SendHeaders,
}

impl SendBatch {
    /// Returns an empty batch for at most `max_datagrams` datagrams with at most `max_bytes` payload bytes in total.
    #[must_use]
    pub fn new(max_datagrams: usize, max_bytes: usize) -> Self {
        Self {
            memory: vec![0; max_bytes].into_boxed_slice(),
            used_bytes: 0,
            entries: Vec::with_capacity(max_datagrams),
            max_datagrams,
            finished: 0,
            is_cut: false,
            headers: SendHeaders::new(MAX_MESSAGES),
        }
    }

    /// Adds a datagram to `to` (`None` on a connected socket), and returns whether there was room for it.
    #[must_use]
    pub fn push(&mut self, to: Option<SocketAddr>, datagram: &[u8]) -> bool {
        self.copy(to, LocalAddress::ANY, datagram)
    }

    /// Returns memory for a datagram of at most `max_bytes` bytes, or `None` if there is no room for it. The caller
    /// encodes or encrypts the datagram at the front of this memory, and adds it with [`Self::commit`]. The send call
    /// reads it there, so no copy is needed.
    pub fn spare(&mut self, max_bytes: usize) -> Option<&mut [u8]> {
        if self.entries.len() == self.max_datagrams {
            return None;
        }
        self.memory.get_mut(self.used_bytes..self.used_bytes.saturating_add(max_bytes))
    }

    /// Adds the datagram of `bytes` bytes that was written to the memory of [`Self::spare`], with a source address as in
    /// [`Self::push_from`]. Returns false, and adds nothing, if there was no room for so long a datagram.
    #[must_use]
    pub fn commit(&mut self, to: Option<SocketAddr>, local: LocalAddress, bytes: usize) -> bool {
        if self.spare(bytes).is_none() {
            return false;
        }
        let starts_train = std::mem::take(&mut self.is_cut);
        self.entries.push(SendEntry { to, local, offset: self.used_bytes, bytes, starts_train });
        self.used_bytes += bytes;
        true
    }

    /// Adds a datagram like [`Self::push`], with a source address: the local address `local`, on a socket that is bound
    /// to an unspecified address.
    #[must_use]
    pub fn push_from(&mut self, local: LocalAddress, to: SocketAddr, datagram: &[u8]) -> bool {
        self.copy(Some(to), local, datagram)
    }

    fn copy(&mut self, to: Option<SocketAddr>, local: LocalAddress, datagram: &[u8]) -> bool {
        let Some(memory) = self.spare(datagram.len()) else {
            return false;
        };
        memory.copy_from_slice(datagram);
        self.commit(to, local, datagram.len())
    }

    /// Starts a new train with the next datagram.
    ///
    /// Call it between datagrams of different connections to the same address. The receiving kernel hands a train to a
    /// single socket, and its steering filter reads only the first datagram of the train.
    pub const fn cut(&mut self) {
        self.is_cut = true;
    }

    /// Returns whether no datagram is waiting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.finished == self.entries.len()
    }

    /// Returns the number of datagrams that are waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len() - self.finished
    }

    /// Removes all datagrams.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.finished = 0;
        self.used_bytes = 0;
    }

    /// Returns the waiting datagrams in the form that a send call takes.
    pub(crate) fn outgoing(&mut self) -> Outgoing<'_> {
        let entries = &self.entries[self.finished..];
        Outgoing { parts: SendParts { memory: &self.memory, entries, headers: &mut self.headers } }
    }

    pub(crate) fn waiting(&self) -> &[SendEntry] {
        &self.entries[self.finished..]
    }

    /// Returns whether the first `count` waiting datagrams contain a train of more than one datagram.
    pub(crate) fn has_train(&self, count: usize) -> bool {
        // A pair that could be a train is one, or its first datagram ends a longer train.
        self.waiting()[..count.min(self.len())].windows(2).any(|pair| first_train(pair) > 1)
    }

    /// Returns the number of datagrams that were sent or lost since the batch was last empty.
    pub(crate) const fn finished(&self) -> usize {
        self.finished
    }

    /// Removes the first `count` waiting datagrams. When no datagram is left, all of the memory is free again.
    pub(crate) fn advance(&mut self, count: usize) {
        // The entries stay until the end, because their index identifies lost datagrams.
        self.finished = (self.finished + count).min(self.entries.len());
        if self.is_empty() {
            self.clear();
        }
    }
}

/// The datagrams that one send call may send.
pub struct Outgoing<'a> {
    pub(crate) parts: SendParts<'a>,
}

impl Outgoing<'_> {
    /// Returns the waiting datagrams with their peers, oldest first.
    pub fn datagrams(&self) -> impl Iterator<Item = (Option<SocketAddr>, &[u8])> {
        self.parts.entries.iter().map(|entry| (entry.to, self.parts.payload(entry)))
    }

    /// Returns the number of datagrams in the first train. They have the same length and addresses, except that the
    /// last one may be shorter. A train does not continue past a [`cut`](SendBatch::cut).
    #[must_use]
    pub fn first_train(&self) -> usize {
        first_train(self.parts.entries)
    }

    /// Returns the first datagram only.
    pub(crate) fn first(&mut self) -> Outgoing<'_> {
        let SendParts { memory, entries, headers } = &mut self.parts;
        let entries = entries.get(..1).unwrap_or_default();
        Outgoing { parts: SendParts { memory, entries, headers } }
    }
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
    fn a_train_has_equal_lengths_and_one_peer_and_may_end_short() {
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
    fn a_train_after_single_datagrams_is_found() {
        let singles_then_train = batch(&[(1, 10), (2, 10), (3, 10), (3, 10)]);
        assert_eq!(
            [0, 1, 3, 4, 9].map(|count| singles_then_train.has_train(count)),
            [false, false, false, true, true]
        );
        assert!(batch(&[(1, 10), (1, 4), (1, 4)]).has_train(3));
        assert!(!batch(&[(1, 4), (1, 10), (2, 10)]).has_train(3));
    }

    #[test]
    fn datagrams_from_two_local_addresses_are_no_train() {
        let (mut batch, to) = (batch(&[]), SocketAddr::from(([127, 0, 0, 1], 1)));
        for local in [1, 1, 2] {
            assert!(batch.push_from(LocalAddress::from_number(local), to, b"x"));
        }
        assert_eq!(batch.outgoing().first_train(), 2);
    }

    #[test]
    fn a_cut_ends_one_train_and_starts_another() {
        let (mut batch, to) = (batch(&[(1, 10), (1, 10)]), SocketAddr::from(([127, 0, 0, 1], 1)));
        batch.cut();
        for _ in 0..3 {
            assert!(batch.push(Some(to), &[7; 10]));
        }
        assert_eq!(batch.outgoing().first_train(), 2);
        batch.advance(1);
        assert_eq!(batch.outgoing().first_train(), 1);
        batch.advance(1);
        assert_eq!(batch.outgoing().first_train(), 3, "a cut applies to one datagram only");
    }

    #[test]
    fn a_full_batch_refuses_datagrams_and_keeps_the_others() {
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
