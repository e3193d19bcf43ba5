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
    counts: SendCounts,
}

impl Sender {
    /// A sender that writes in this mode as long as the kernel takes it.
    #[must_use]
    pub fn new(mode: SendMode) -> Self {
        Self { mode, counts: SendCounts::default() }
    }

    /// The mode in use: [`SendMode::Gso`] turns into [`SendMode::Sendmmsg`] for good when a device or kernel
    /// refuses a train.
    #[must_use]
    pub fn mode(&self) -> SendMode {
        self.mode
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
        // Datagrams at the front that go one by one, whatever the mode.
        let mut singly = 0_usize;
        while !batch.is_empty() {
            self.counts.calls += 1;
            let mode = if singly > 0 { SendMode::Single } else { self.mode };
            let fault = match io.send(&mut batch.outgoing(), mode) {
                Ok(count) => {
                    let taken = batch.waiting().iter().take(count);
                    self.counts.bytes += taken.map(|entry| entry.bytes as u64).sum::<u64>();
                    self.counts.datagrams += count as u64;
                    batch.advance(count);
                    singly = singly.saturating_sub(count);
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
                SendAction::Unsegment => self.mode = SendMode::Sendmmsg,
                SendAction::Singly => singly = first,
                SendAction::Close => return FlushEnd::Closed(fault),
                SendAction::LostAndPause => {
                    self.lose(batch, first, fault, &mut on_lost);
                    return FlushEnd::Paused(PAUSE);
                }
                SendAction::Lost | SendAction::Unreachable | SendAction::Retry => {
                    self.lose(batch, first, fault, &mut on_lost);
                    singly = singly.saturating_sub(first);
                    retries = 0;
                }
            }
        }
        FlushEnd::Sent
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
