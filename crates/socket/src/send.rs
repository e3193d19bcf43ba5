//! The flush: hands a [`SendBatch`] to a socket call by call and does what the fault table says.
//!
//! It neither queues nor paces: what waits is the batch's, when to send is the caller's.

use std::net::SocketAddr;
use std::time::Duration;

use crate::fault::{SendAction, send_action};
use crate::send_batch::Entry;
use crate::{Fault, FaultCounts, Io, LocalAddress, SendBatch, SendMode};

/// How long a batch rests after the kernel's buffers were full.
const PAUSE: Duration = Duration::from_millis(1);

/// How often an interrupted call is repeated at once.
const MAX_RETRIES: u32 = 3;

/// Trains refused in a row, with all their datagrams sent singly, after which the sender stops asking for trains. A device that
/// cannot segment refuses every train. One peer whose route cannot (a tunnel, for example) refuses only its own.
const REFUSED_TRAINS: u32 = 8;

/// Datagrams sent without segmentation before the sender asks for a train again. One peer alone never takes trains from the
/// others for longer.
const DATAGRAMS_WITHOUT_TRAINS: usize = 4_096;

/// What a [`Sender`] has done since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendCounts {
    /// Datagrams the kernel took.
    pub datagrams: u64,
    /// Payload bytes the kernel took.
    pub bytes: u64,
    /// Send calls, those that failed included.
    pub calls: u64,
    /// Failed calls by fault.
    pub faults: FaultCounts,
    /// Datagrams given up, by the fault that took them.
    pub lost: FaultCounts,
}

/// A datagram that a flush gave up, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostDatagram {
    /// Where it was to go; `None` on a connected socket.
    pub to: Option<SocketAddr>,
    /// Which of the host's addresses it was to leave from.
    pub local: LocalAddress,
    /// Payload bytes.
    pub bytes: usize,
    /// How many were put into its batch before it, since that was last empty: whoever keeps something beside each datagram
    /// finds it by this.
    pub place: usize,
    /// What the call answered.
    pub fault: Fault,
}

/// How a flush ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushEnd {
    /// The batch is empty.
    Sent,
    /// The socket's buffer is full: arm write interest and flush again when it is writable.
    Blocked,
    /// The kernel had no buffers: flush again after this time.
    Paused(Duration),
    /// The descriptor is gone: whoever sends opens the socket anew, or ends.
    Closed(Fault),
}

/// Writes batches to one socket.
#[derive(Debug)]
pub struct Sender {
    mode: SendMode,
    /// Trains refused since the kernel last took one.
    refused_trains: u32,
    /// Datagrams still to be sent without segmentation; 0 while trains are asked for.
    without_trains: usize,
    counts: SendCounts,
}

impl Sender {
    /// Returns a sender that writes in this mode as long as the kernel takes it.
    #[must_use]
    pub fn new(mode: SendMode) -> Self {
        Self { mode, refused_trains: 0, without_trains: 0, counts: SendCounts::default() }
    }

    /// Returns the mode in use. [`SendMode::Gso`] becomes [`SendMode::Sendmmsg`] when the kernel or the device refuses
    /// train after train whose datagrams then leave singly. Trains are tried again from time to time.
    #[must_use]
    pub fn mode(&self) -> SendMode {
        if self.without_trains > 0 { SendMode::Sendmmsg } else { self.mode }
    }

    /// What was done so far.
    #[must_use]
    pub fn counts(&self) -> &SendCounts {
        &self.counts
    }

    /// Sends until the batch is empty or the socket takes no more. `on_lost` hears of each datagram given up;
    /// after [`Fault::MessageTooLong`] its path size wants lowering, and where [`send_action`] says
    /// [`SendAction::Unreachable`] its connection wants closing.
    pub fn flush<I: Io>(
        &mut self,
        io: &mut I,
        batch: &mut SendBatch,
        mut on_lost: impl FnMut(LostDatagram),
    ) -> FlushEnd {
        let mut retries = 0;
        // Datagrams at the front that leave one by one: what is left of a train that the kernel refused.
        let mut singly = 0_usize;
        // Whether that train was refused as a train, as far as its datagrams sent so far can tell.
        let mut is_train_refused = false;
        while !batch.is_empty() {
            self.counts.calls += 1;
            let mode = if singly > 0 { SendMode::Single } else { self.mode() };
            let fault = match io.send(&mut batch.outgoing(), mode) {
                Ok(count) => {
                    let taken = batch.waiting().iter().take(count);
                    self.counts.bytes += taken.map(|entry| entry.bytes as u64).sum::<u64>();
                    self.counts.datagrams += count as u64;
                    self.without_trains = self.without_trains.saturating_sub(count);
                    if self.refused_trains > 0 && mode == SendMode::Gso && batch.has_train(count) {
                        self.refused_trains = 0;
                    }
                    batch.advance(count);
                    singly = singly.saturating_sub(count);
                    if singly == 0 && std::mem::take(&mut is_train_refused) {
                        self.on_train_refused();
                    }
                    retries = 0;
                    continue;
                }
                Err(fault) => fault,
            };
            self.counts.faults.add(fault);
            // What the failed call would have sent first: one datagram, or one train.
            let first = if mode == SendMode::Gso { batch.outgoing().first_train() } else { 1 };
            match send_action(fault, first > 1) {
                SendAction::Keep => return FlushEnd::Blocked,
                SendAction::Retry if retries < MAX_RETRIES => retries += 1,
                SendAction::Singly => {
                    singly = first;
                    // A segment that is too long says nothing about trains.
                    is_train_refused = fault != Fault::MessageTooLong;
                }
                SendAction::Close => return FlushEnd::Closed(fault),
                SendAction::LostAndPause => {
                    self.lose(batch, first, fault, &mut on_lost);
                    return FlushEnd::Paused(PAUSE);
                }
                SendAction::Lost | SendAction::Unreachable | SendAction::Retry => {
                    self.lose(batch, first, fault, &mut on_lost);
                    singly = singly.saturating_sub(first);
                    // What fails singly too is the fault of its address.
                    is_train_refused = false;
                    retries = 0;
                }
            }
        }
        FlushEnd::Sent
    }

    /// Counts a train that the kernel refused and whose datagrams then left singly.
    fn on_train_refused(&mut self) {
        self.refused_trains = self.refused_trains.saturating_add(1);
        if self.refused_trains >= REFUSED_TRAINS {
            self.without_trains = DATAGRAMS_WITHOUT_TRAINS;
        }
    }

    /// Gives up the first `count` datagrams.
    fn lose(
        &mut self,
        batch: &mut SendBatch,
        count: usize,
        fault: Fault,
        on_lost: &mut impl FnMut(LostDatagram),
    ) {
        for (place, entry) in (batch.gone()..).zip(batch.waiting()).take(count) {
            let Entry { to, local, bytes, .. } = *entry;
            on_lost(LostDatagram { to, local, bytes, place, fault });
        }
        self.counts.lost.add_many(fault, count as u64);
        batch.advance(count);
    }
}
