//! Sending: a [`Sender`] hands a [`SendBatch`] to a socket call by call and reacts to each fault as [`send_action`] says.
//!
//! It does not queue or pace. The batch holds the datagrams that wait, and the caller decides when to flush.

use std::net::SocketAddr;
use std::time::Duration;

use crate::counts::SendCounts;
use crate::error::{Fault, SendAction, send_action};
use crate::send_batch::{SendBatch, SendMode};
use crate::socket::Io;
use crate::sys::{LocalAddress, SendEntry};

/// The pause of a batch after the kernel's buffers were full.
const PAUSE: Duration = Duration::from_millis(1);

/// The maximum number of immediate repetitions of an interrupted call.
const MAX_RETRIES: u32 = 3;

/// Consecutive refused trains, all of whose datagrams were sent one by one, after which the sender stops requesting
/// segmentation. A device that cannot segment refuses every train. A peer whose route cannot, such as a tunnel, causes
/// only its own trains to be refused.
const MAX_REFUSED_TRAINS: u32 = 8;

/// The number of datagrams that are sent without segmentation before the sender tries a train again. It limits for how
/// long a single peer can take segmentation from the others.
const DATAGRAMS_WITHOUT_GSO: usize = 4_096;

/// A datagram that a flush discarded, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostDatagram {
    /// The destination, or `None` on a connected socket.
    pub to: Option<SocketAddr>,
    /// The local address that the datagram was to be sent from.
    pub local: LocalAddress,
    /// The number of payload bytes.
    pub bytes: usize,
    /// The number of datagrams that were added to the batch before this one since the batch was last empty. A caller
    /// that keeps data for each datagram finds the data by this index.
    pub index: usize,
    /// The fault that the call returned.
    pub fault: Fault,
}

/// The reason why a flush ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushEnd {
    /// All datagrams were sent or lost, and the batch is empty.
    Sent,
    /// The socket's buffer is full: watch the socket for writing, and flush again when it is writable.
    Blocked,
    /// The kernel had no buffers: flush again after this time.
    Paused(Duration),
    /// The descriptor is closed. The socket's owner opens the socket again, or ends.
    Closed(Fault),
}

/// Sends batches of datagrams through one socket, with GSO where the kernel supports it.
#[derive(Debug)]
pub struct Sender {
    mode: SendMode,
    /// Refused trains since the kernel last accepted one.
    refused_trains: u32,
    /// The number of datagrams to send without segmentation before the next train, 0 while GSO is in use.
    remaining_without_gso: usize,
    counts: SendCounts,
}

impl Sender {
    /// Returns a sender that uses this mode while the kernel accepts it.
    #[must_use]
    pub fn new(mode: SendMode) -> Self {
        Self { mode, refused_trains: 0, remaining_without_gso: 0, counts: SendCounts::default() }
    }

    /// Returns the mode in use.
    ///
    /// [`SendMode::Gso`] becomes [`SendMode::Sendmmsg`] after the kernel or the device refused several trains in a row
    /// whose datagrams it then accepted one by one. Trains are tried again from time to time.
    #[must_use]
    pub fn mode(&self) -> SendMode {
        if self.remaining_without_gso > 0 { SendMode::Sendmmsg } else { self.mode }
    }

    /// Returns the counters since the sender was created.
    #[must_use]
    pub fn counts(&self) -> &SendCounts {
        &self.counts
    }

    /// Sends until the batch is empty or the socket accepts no more. `on_lost` receives each datagram that is discarded.
    ///
    /// After [`Fault::MessageTooLong`], reduce the datagram size of that path. If [`send_action`] returns
    /// [`SendAction::Unreachable`] for the fault, close the connection.
    pub fn flush<I: Io + ?Sized>(
        &mut self,
        io: &mut I,
        batch: &mut SendBatch,
        mut on_lost: impl FnMut(LostDatagram),
    ) -> FlushEnd {
        let mut retries = 0;
        // The number of datagrams at the front that are sent one by one: the rest of a train that the kernel refused.
        let mut remaining_single = 0_usize;
        // Whether segmentation was the reason for the refusal, as far as the datagrams of that train show so far.
        let mut is_gso_refused = false;
        while !batch.is_empty() {
            self.counts.calls += 1;
            let mode = if remaining_single > 0 { SendMode::Single } else { self.mode() };
            let fault = match io.send(&mut batch.outgoing(), mode) {
                Ok(count) => {
                    self.on_sent(batch, count, mode);
                    batch.advance(count);
                    // The last datagram of a refused train was sent. If none of them failed, only segmentation did.
                    remaining_single = remaining_single.saturating_sub(count);
                    if remaining_single == 0 && std::mem::take(&mut is_gso_refused) {
                        self.on_train_refused();
                    }
                    retries = 0;
                    continue;
                }
                Err(fault) => fault,
            };
            self.counts.faults.add(fault);
            // The fault is that of the first message of the call: one datagram, or one train.
            let first = if mode == SendMode::Gso { batch.outgoing().first_train() } else { 1 };
            match send_action(fault, first > 1) {
                SendAction::Keep => return FlushEnd::Blocked,
                SendAction::Retry if retries < MAX_RETRIES => retries += 1,
                SendAction::SplitTrain => {
                    remaining_single = first;
                    // The path MTU is the reason for `MessageTooLong`, and not segmentation.
                    is_gso_refused = fault != Fault::MessageTooLong;
                }
                // The datagrams stay in the batch, so that a socket that is opened again can send them.
                SendAction::Close => return FlushEnd::Closed(fault),
                // The first message is lost, as in a full queue of a router. The pause lets the kernel's buffers drain.
                SendAction::LostAndPause => {
                    self.discard(batch, first, fault, &mut on_lost);
                    return FlushEnd::Paused(PAUSE);
                }
                SendAction::Lost | SendAction::Unreachable | SendAction::Retry => {
                    self.discard(batch, first, fault, &mut on_lost);
                    remaining_single = remaining_single.saturating_sub(first);
                    // A datagram that fails alone too shows that the address is the reason.
                    is_gso_refused = false;
                    retries = 0;
                }
            }
        }
        FlushEnd::Sent
    }

    /// Counts the first `count` datagrams of the batch as sent.
    fn on_sent(&mut self, batch: &SendBatch, count: usize, mode: SendMode) {
        let sent = batch.waiting().iter().take(count);
        self.counts.bytes += sent.map(|entry| entry.bytes as u64).sum::<u64>();
        self.counts.datagrams += count as u64;
        self.remaining_without_gso = self.remaining_without_gso.saturating_sub(count);
        // An accepted train proves that the device can segment.
        if self.refused_trains > 0 && mode == SendMode::Gso && batch.has_train(count) {
            self.refused_trains = 0;
        }
    }

    /// Counts a refused train whose datagrams were then sent one by one.
    fn on_train_refused(&mut self) {
        self.refused_trains = self.refused_trains.saturating_add(1);
        if self.refused_trains >= MAX_REFUSED_TRAINS {
            self.remaining_without_gso = DATAGRAMS_WITHOUT_GSO;
        }
    }

    /// Discards the first `count` datagrams and counts them as lost.
    fn discard(
        &mut self,
        batch: &mut SendBatch,
        count: usize,
        fault: Fault,
        on_lost: &mut impl FnMut(LostDatagram),
    ) {
        for (index, entry) in (batch.finished()..).zip(batch.waiting()).take(count) {
            let SendEntry { to, local, bytes, .. } = *entry;
            on_lost(LostDatagram { to, local, bytes, index, fault });
        }
        self.counts.lost.add_many(fault, count as u64);
        batch.advance(count);
    }
}
