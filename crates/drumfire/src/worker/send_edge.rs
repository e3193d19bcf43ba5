//! The send edge of a peer: how many bytes of messages its senders on other threads may have sent in total.
//!
//! It works like the flow control of QUIC (RFC 9000 section 4.1). The memory for messages to a peer is the send queue of its
//! connection, which belongs to the worker. The worker publishes an edge, and a sender compares it with the sum of what it has sent.
//! Each number has one writer, so an accepted message costs no atomic read-modify-write, and the send queue never refuses it.
//!
//! Senders on the worker's own thread need no edge: they ask the send queue itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use drumfire_proto::limits::ITEM_CHARGE_BYTES;
use drumfire_proto::{Config, Mode, SendError, SendOptions, notify_below_bytes};

use crate::base::sync::{AtomicU32, AtomicU64, OnceLock};

/// The bit of [`SendEdge::edge`] that is set when the connection has ended.
const CLOSED: u64 = 1 << 63;

/// The bit of [`SendEdge::edge`] that is set while a client that reconnects has no connection.
const NOT_CONNECTED: u64 = 1 << 62;

/// The limits of the messages to each peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendLimits {
    /// The send memory of a peer, in bytes.
    pub(crate) memory_bytes: usize,
    /// The bytes of the longest reliable message to a peer, until the limit of the peer itself is known.
    pub(crate) message_max_bytes: usize,
}

impl From<&Config> for SendLimits {
    fn from(config: &Config) -> Self {
        Self { memory_bytes: config.send_memory_bytes, message_max_bytes: config.message_max_bytes }
    }
}

/// The part of a peer's send memory that its worker and its senders share.
#[derive(Debug)]
pub(crate) struct SendEdge {
    /// The sum of bytes that senders may have sent, charges included, and two flags in the highest bits. Written by the worker.
    edge: AtomicU64,
    /// The sum of bytes that were sent over this connection, charges included. Written by the senders, one at a time.
    sent_bytes: AtomicU64,
    /// A refused sender is notified when the edge reaches this value. 0 = no sender waits.
    notify_at: AtomicU64,
    /// The bytes of the longest reliable message. It can change when the peer connects, because the peer may accept less.
    message_max_bytes: AtomicU32,
    /// The send memory of the connection, in bytes. Larger limits count as 4 GiB.
    limit_bytes: u32,
    /// The waker of asynchronous senders. Boxed to keep the struct small, because few peers ever have one.
    waker: OnceLock<Box<Waker>>,
}

impl SendEdge {
    /// Creates the edge of a connection without messages. `is_connected` is false for a client whose messages are refused until the
    /// connection is established.
    pub(crate) fn new(limit_bytes: usize, message_max_bytes: usize, is_connected: bool) -> Self {
        let limit_bytes = saturated(limit_bytes);
        let flags = if is_connected { 0 } else { NOT_CONNECTED };
        Self {
            edge: AtomicU64::new(u64::from(limit_bytes) | flags),
            sent_bytes: AtomicU64::new(0),
            notify_at: AtomicU64::new(0),
            message_max_bytes: AtomicU32::new(saturated(message_max_bytes)),
            limit_bytes,
            waker: OnceLock::new(),
        }
    }

    pub(crate) fn set_message_max_bytes(&self, bytes: usize) {
        self.message_max_bytes.store(saturated(bytes), Ordering::Release);
    }

    /// Sets the waker of asynchronous senders. Only the first call has an effect.
    #[cfg(feature = "tokio")]
    pub(crate) fn set_waker(&self, waker: Waker) {
        self.waker.get_or_init(|| Box::new(waker));
    }

    /// Publishes the edge after a change of the send queue. `received_bytes` is the sum of what senders have sent so far, as seen by
    /// the worker, and `used_bytes` the present use of the send memory.
    ///
    /// Returns true if a refused sender must be notified by an event, because it has no waker. This happens once per refusal.
    pub(crate) fn publish(&self, received_bytes: u64, used_bytes: usize) -> bool {
        // A limit of QUIC never falls, but this edge can, because messages of other origins use the same memory. The
        // worker accepts admitted messages even then.
        let used_bytes = u64::try_from(used_bytes).unwrap_or(CLOSED);
        let edge = received_bytes.saturating_add(self.limit_bytes.into()).saturating_sub(used_bytes);
        let before = self.edge.load(Ordering::Relaxed);
        let flags = before & (CLOSED | NOT_CONNECTED);
        // An equal value is not stored again, because a store takes the cache line from the senders.
        if before != edge | flags {
            self.edge.store(edge | flags, Ordering::SeqCst);
        }
        // A sender stores `notify_at` and then loads the edge. This side stores the edge and then loads `notify_at`. With `SeqCst`
        // on all four steps, at least one side sees the other, so no notification is lost.
        let notify_at = self.notify_at.load(Ordering::SeqCst);
        notify_at > 0 && edge >= notify_at && self.notify()
    }

    /// Returns the bytes of messages that the worker has not received yet, charges included.
    pub(crate) fn on_the_way_bytes(&self, received_bytes: u64) -> usize {
        let bytes = self.sent_bytes.load(Ordering::Acquire).saturating_sub(received_bytes);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Refuses further messages and wakes the waiting senders, because the connection has ended.
    pub(crate) fn close(&self) {
        self.set_flags(CLOSED);
    }

    /// Refuses further messages and wakes the waiting senders, because the connection ended and the client connects again. The next
    /// attempt has an edge of its own.
    pub(crate) fn end_for_reconnect(&self) {
        self.set_flags(NOT_CONNECTED);
    }

    fn set_flags(&self, flags: u64) {
        // Only the worker writes the edge, so no change is lost between the load and the store.
        let edge = self.edge.load(Ordering::Relaxed);
        self.edge.store(edge | flags, Ordering::SeqCst);
        self.notify();
    }

    /// Accepts messages from now on, because the connection is established.
    pub(crate) fn set_connected(&self) {
        let edge = self.edge.load(Ordering::Relaxed);
        self.edge.store(edge & !NOT_CONNECTED, Ordering::SeqCst);
    }

    /// Whether messages are refused because there is no connection yet.
    pub(crate) fn is_not_connected(&self) -> bool {
        self.edge.load(Ordering::SeqCst) & NOT_CONNECTED != 0
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.edge.load(Ordering::SeqCst) & CLOSED != 0
    }

    /// Wakes the waiting senders. Returns true if a sender waits and there is no waker.
    fn notify(&self) -> bool {
        // The exchange also removes the request. The worker and a closing sender can both be here, and only one of
        // them notifies.
        if self.notify_at.swap(0, Ordering::SeqCst) == 0 {
            return false;
        }
        let waker = self.waker.get();
        if let Some(waker) = waker {
            waker.wake_by_ref();
        }
        waker.is_none()
    }
}

/// The account of the senders of one peer. One thread uses it at a time.
#[derive(Debug)]
pub(crate) struct SendAccount {
    pub(crate) edge: Arc<SendEdge>,
    /// Whether this end has closed the connection.
    is_closed: bool,
}

impl SendAccount {
    pub(crate) const fn new(edge: Arc<SendEdge>) -> Self {
        Self { edge, is_closed: false }
    }

    /// Counts a message with these options, if there is room for it. A message that need not wait may use twice the memory: the send
    /// queue decides which messages of such a channel it drops.
    ///
    /// # Errors
    ///
    /// The reason why the message was not accepted.
    pub(crate) fn admit(
        &mut self,
        payload_bytes: usize,
        options: &SendOptions,
        must_wait: bool,
    ) -> Result<(), SendError> {
        // One load returns both flags and the edge, so all checks below see the same state.
        let edge = self.edge.edge.load(Ordering::SeqCst);
        if self.is_closed || edge & CLOSED != 0 {
            return Err(SendError::Closed);
        }
        if edge & NOT_CONNECTED != 0 {
            return Err(SendError::NotConnected);
        }
        let reliable_bytes = self.edge.message_max_bytes.load(Ordering::Acquire) as usize;
        check_length(payload_bytes, options.mode, reliable_bytes)?;
        let charge_bytes = charge(payload_bytes);
        let room_bytes = self.room_bytes(options, must_wait);
        if self.used_bytes(edge).saturating_add(charge_bytes) > room_bytes as u64 {
            return Err(SendError::Full);
        }
        // The only writer needs no read-modify-write.
        self.edge.sent_bytes.store(self.sent_bytes().saturating_add(charge_bytes), Ordering::Release);
        Ok(())
    }

    /// Calls [`SendAccount::admit`] for a sender without a waker. After `Full`, [`SendEdge::publish`] returns true once, when half of
    /// the room for such messages is free and the message fits.
    pub(crate) fn admit_or_register(
        &mut self,
        payload_bytes: usize,
        options: &SendOptions,
        must_wait: bool,
    ) -> Result<(), SendError> {
        let answer = self.admit(payload_bytes, options, must_wait);
        if answer != Err(SendError::Full) {
            return answer;
        }
        self.register(payload_bytes, options, must_wait, 2);
        // `publish` does not report an edge that it published before `register`, so try again.
        self.admit(payload_bytes, options, must_wait)
    }

    /// Registers a sender that was refused. It is notified when one of `parts` equal parts of the room for such messages is free, and
    /// the message fits. Of several senders, the first that can be served counts.
    pub(crate) fn register(
        &self,
        payload_bytes: usize,
        options: &SendOptions,
        must_wait: bool,
        parts: usize,
    ) {
        let below_bytes = notify_below_bytes(self.room_bytes(options, must_wait), payload_bytes, parts);
        // The edge at which fewer than `below_bytes` are used.
        let at = self.sent_bytes().saturating_add(self.edge.limit_bytes.into()).saturating_add(1);
        let at = at.saturating_sub(below_bytes as u64).max(1);
        // The worker can remove an earlier request at the same time, so this is a compare-and-exchange and not a
        // store.
        let earlier = |before: u64| (before == 0 || at < before).then_some(at);
        let _ = self.edge.notify_at.fetch_update(Ordering::SeqCst, Ordering::SeqCst, earlier);
    }

    /// Closes the account of a connection that this end closes.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        // A waiting sender tries again, finds the account closed, and stops waiting.
        self.edge.notify();
    }

    /// Whether this end has closed the connection, or the worker has reported its end.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed || self.edge.is_closed()
    }

    fn sent_bytes(&self) -> u64 {
        self.edge.sent_bytes.load(Ordering::Relaxed)
    }

    fn room_bytes(&self, options: &SendOptions, must_wait: bool) -> usize {
        let limit_bytes = self.edge.limit_bytes as usize;
        if must_wait { options.priority.share_of(limit_bytes) } else { limit_bytes.saturating_mul(2) }
    }

    /// Returns the bytes that wait for the worker or are in the send queue.
    fn used_bytes(&self, edge: u64) -> u64 {
        self.sent_bytes().saturating_add(self.edge.limit_bytes.into()).saturating_sub(edge)
    }
}

/// Checks the length of a message in this mode. `reliable_bytes` is the length of the longest reliable message.
pub(crate) fn check_length(bytes: usize, mode: Mode, reliable_bytes: usize) -> Result<(), SendError> {
    // A value fits one packet, so the mode limits it further.
    let is_value = mode == Mode::ReliableLatest;
    let limit_bytes = if mode.is_reliable() && !is_value { reliable_bytes } else { mode.message_max_bytes() };
    if bytes <= limit_bytes { Ok(()) } else { Err(SendError::TooLarge { bytes, limit_bytes }) }
}

/// Converts to 32 bits, saturating.
fn saturated(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Returns the memory that a message of this length takes, in bytes.
pub(crate) const fn charge(payload_bytes: usize) -> u64 {
    payload_bytes.saturating_add(ITEM_CHARGE_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use drumfire_proto::Priority;

    use super::*;

    fn account(limit_bytes: usize) -> SendAccount {
        SendAccount::new(Arc::new(SendEdge::new(limit_bytes, 65_536, true)))
    }

    /// Sends messages of `charge_bytes` each until one is refused, and returns their number.
    fn fill(account: &mut SendAccount, charge_bytes: usize) -> u64 {
        let options = SendOptions::reliable_ordered();
        let sends = || account.admit(charge_bytes - ITEM_CHARGE_BYTES, &options, true).ok();
        std::iter::from_fn(sends).count() as u64
    }

    #[test]
    fn room_ends_exactly_at_the_limit() {
        for (limit_bytes, count) in [(99, 0), (100, 1), (199, 1), (200, 2)] {
            assert_eq!(fill(&mut account(limit_bytes), 100), count, "{limit_bytes}");
        }
    }

    #[test]
    fn freed_memory_can_be_used_again() {
        let mut account = account(1_000);
        assert_eq!(fill(&mut account, 100), 10);
        // Six messages are still in the queue of the worker, and four were acknowledged.
        account.edge.publish(1_000, 600);
        assert_eq!(fill(&mut account, 100), 4);
        // The worker has received two of them, and has queued 300 bytes of its own.
        account.edge.publish(1_200, 1_100);
        assert_eq!(fill(&mut account, 100), 0);
        account.edge.publish(1_400, 300);
        assert_eq!(fill(&mut account, 100), 7);
    }

    #[test]
    fn a_limit_above_32_bits_counts_as_4_gib() {
        let mut account = account(usize::MAX);
        let half = (1 << 31) - ITEM_CHARGE_BYTES;
        account.edge.set_message_max_bytes(usize::MAX);
        let options = SendOptions::reliable_ordered();
        assert_eq!(account.admit(half, &options, true), Ok(()));
        assert_eq!(account.admit(half, &options, true), Err(SendError::Full));
        assert_eq!(account.admit(half, &options, false), Ok(()));
    }

    #[test]
    fn a_refused_sender_is_reported_once_when_half_is_free() {
        let mut account = account(1_000);
        let options = SendOptions::reliable_ordered();
        fill(&mut account, 100);
        assert!(!account.edge.publish(1_000, 0), "room is reported only after a refusal");
        account.edge.publish(1_000, 1_000);
        for _ in 0..3 {
            assert_eq!(account.admit_or_register(36, &options, true), Err(SendError::Full));
        }
        let reports: Vec<bool> =
            (0..10).map(|freed| account.edge.publish(1_000, 900 - 100 * freed)).collect();
        assert_eq!(
            reports.iter().position(|is_reported| *is_reported),
            Some(4),
            "room is reported once half is free"
        );
        assert_eq!(reports.iter().filter(|is_reported| **is_reported).count(), 1);
    }

    #[test]
    fn a_refused_message_fits_when_its_sender_is_reported() {
        let reported_at = |payload_bytes: usize, options: &SendOptions, must_wait: bool| {
            let mut account = account(1_000);
            let sent =
                std::iter::from_fn(|| account.admit(0, options, false).ok()).count() * ITEM_CHARGE_BYTES;
            assert_eq!(account.admit_or_register(payload_bytes, options, must_wait), Err(SendError::Full));
            let mut used = sent;
            while !account.edge.publish(sent as u64, used) {
                used -= ITEM_CHARGE_BYTES;
            }
            assert_eq!(account.admit(payload_bytes, options, must_wait), Ok(()));
            used
        };
        let normal = SendOptions::reliable_ordered();
        assert_eq!(reported_at(0, &normal, true), 7 * ITEM_CHARGE_BYTES, "half is free");
        assert_eq!(
            reported_at(900 - ITEM_CHARGE_BYTES, &normal, true),
            ITEM_CHARGE_BYTES,
            "the message fits"
        );
        let bulk = normal.priority(Priority::Bulk);
        assert_eq!(reported_at(0, &bulk, true), 5 * ITEM_CHARGE_BYTES, "half of the share of bulk is free");
        assert_eq!(reported_at(0, &normal, false), 15 * ITEM_CHARGE_BYTES, "half of the memory is free");
    }

    #[test]
    fn an_ended_connection_accepts_nothing() {
        let mut account = account(1_000);
        let options = SendOptions::reliable_ordered();
        account.edge.end_for_reconnect();
        assert_eq!(account.admit(0, &options, true), Err(SendError::NotConnected));
        account.edge.set_connected();
        assert_eq!(account.admit(0, &options, true), Ok(()));
        account.edge.close();
        account.edge.publish(0, 0);
        assert_eq!(account.admit(0, &options, true), Err(SendError::Closed));
        assert!(account.is_closed());
    }

    #[test]
    fn an_edge_takes_at_most_48_bytes() {
        assert!(size_of::<SendEdge>() <= 48, "{}", size_of::<SendEdge>());
    }
}
