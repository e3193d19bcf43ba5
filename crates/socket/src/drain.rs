//! Receiving: a [`Receiver`] drains a socket in batches until the socket would block or a budget is spent.
//!
//! Each message is counted. The length of a message and the kernel's truncation flags decide whether it is dropped or
//! handed on. The caller borrows each batch and interprets the bytes. The receiver keeps no datagram.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use crate::batch::{
    GroBatch, MAX_BATCH, MAX_MESSAGE_BYTES, Received, ReceivedMut, RecvBatch, datagram_count,
};
use crate::counts::{DropReason, ReceiveCounts};
use crate::error::{ConfigError, Fault, RecvAction, recv_action};
use crate::socket::Io;
use crate::sys;

/// The number of slots offered in the first call, before the traffic is known.
const START_BATCH: usize = 8;

/// Consecutive failed calls after which a drain ends. A socket has one pending network error at a time, so this many in
/// a row are not errors of single datagrams.
const MAX_CONSECUTIVE_FAULTS: u32 = 32;

/// The system call that reads a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// One `recv_from` per datagram. Every platform supports it.
    Recv,
    /// `recvmmsg(2)` into up to 32 slots. The headers are kept between calls.
    Recvmmsg,
}

impl Drain {
    /// Returns the fastest system call that this platform supports.
    #[must_use]
    pub const fn best() -> Self {
        if sys::HAS_BATCHES { Self::Recvmmsg } else { Self::Recv }
    }
}

/// Whether the kernel may coalesce several datagrams of one sender into one message (`UDP_GRO`, see udp(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gro {
    /// GRO is off until trains arrive, then on for the lifetime of the socket. It is never turned off again, because
    /// trains that are still queued would be read as single datagrams.
    Auto,
    /// The kernel may coalesce datagrams into trains from the beginning.
    On,
    /// GRO is off. Only then do kernel drops count datagrams: with GRO the kernel counts one drop per train.
    Off,
}

/// Settings of a [`Receiver`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReceiverConfig {
    /// The system call that reads the socket. The default is [`Drain::best`].
    pub drain: Drain,
    /// Whether the kernel may coalesce datagrams into trains. The default is [`Gro::Auto`].
    pub gro: Gro,
    /// The maximum length of a datagram in bytes, 1 to 65,507. Longer datagrams are counted and dropped. The default is
    /// 1,500.
    pub max_datagram_bytes: usize,
    /// The maximum number of messages per call, 1 to 32. The default is 32. With [`Drain::Recvmmsg`],
    /// each slot takes 64 KiB unless GRO is [`Gro::Off`].
    pub max_batch: usize,
}

impl Default for ReceiverConfig {
    fn default() -> Self {
        Self { drain: Drain::best(), gro: Gro::Auto, max_datagram_bytes: 1_500, max_batch: MAX_BATCH }
    }
}

impl ReceiverConfig {
    /// Sets the system call that reads the socket.
    #[must_use]
    pub fn drain(mut self, drain: Drain) -> Self {
        self.drain = drain;
        self
    }

    /// Sets whether the kernel may coalesce datagrams into trains.
    #[must_use]
    pub fn gro(mut self, gro: Gro) -> Self {
        self.gro = gro;
        self
    }

    /// Sets the maximum length of a datagram in bytes.
    #[must_use]
    pub fn max_datagram_bytes(mut self, bytes: usize) -> Self {
        self.max_datagram_bytes = bytes;
        self
    }

    /// Sets the maximum number of messages per call.
    #[must_use]
    pub fn max_batch(mut self, messages: usize) -> Self {
        self.max_batch = messages;
        self
    }

    fn check(&self) -> Result<(), ConfigError> {
        if !(1..=65_507).contains(&self.max_datagram_bytes) {
            return Err(ConfigError::new("max_datagram_bytes", "must be 1 to 65507"));
        }
        if !(1..=MAX_BATCH).contains(&self.max_batch) {
            return Err(ConfigError::new("max_batch", "must be 1 to 32"));
        }
        if self.drain == Drain::Recvmmsg && !sys::HAS_BATCHES {
            return Err(ConfigError::new("drain", "recvmmsg is not available on this platform; use recv"));
        }
        if self.gro == Gro::On && self.drain == Drain::Recv {
            return Err(ConfigError::new("gro", "needs the recvmmsg drain; use it, or turn gro off"));
        }
        if self.gro == Gro::On && self.max_batch == 1 {
            // A single slot is read with `recv_from`, which does not return the segment size of a train.
            return Err(ConfigError::new(
                "gro",
                "needs a batch of at least 2; raise max_batch, or turn gro off",
            ));
        }
        Ok(())
    }
}

/// The reason why a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainEnd {
    /// The socket is empty. The next datagram triggers the poll.
    Blocked,
    /// The budget is spent, and the socket may hold more datagrams. No new edge will report them: poll with a zero
    /// timeout, then drain again.
    BudgetSpent,
    /// The kernel was out of memory, or many consecutive calls failed. Treat the socket as still readable and drain
    /// again in the next pass. If this repeats without any datagram, let some time pass in between.
    Starved,
    /// The descriptor is closed. The socket's owner opens the socket again, or ends.
    Closed(Fault),
}

impl DrainEnd {
    /// Returns whether the socket may hold datagrams that no new edge will report. Pass it to the next
    /// [`crate::Waiter::wait`].
    #[must_use]
    pub const fn is_more_waiting(self) -> bool {
        matches!(self, Self::BudgetSpent | Self::Starved)
    }
}

/// Reads the datagrams of one socket until it is empty or the budget of the caller is spent.
pub struct Receiver {
    batch: RecvBatch,
    /// The number of slots to offer in the next call. It follows the traffic up to `max_batch`.
    limit: usize,
    max_batch: usize,
    max_datagram_bytes: usize,
    gro: GroDetector,
    counts: ReceiveCounts,
    /// The number of datagrams that were handed on or dropped.
    arrived_count: u64,
}

impl Receiver {
    /// Returns a receiver for this socket. It allocates all of its memory here.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with the field that is out of range, not available on this platform, or refused by the kernel.
    pub fn new<I: Io + ?Sized>(io: &mut I, config: &ReceiverConfig) -> Result<Self, ConfigError> {
        config.check()?;
        // The segment size of a train is in a control message, which only the batched call returns.
        let takes_batches = config.drain == Drain::Recvmmsg;
        let may_see_trains = takes_batches && config.gro != Gro::Off;
        // One byte more than the maximum, so that a datagram that is too long is recognized by filling its slot.
        let slot_bytes = config.max_datagram_bytes.saturating_add(1).min(MAX_MESSAGE_BYTES);
        let slots = if takes_batches { config.max_batch } else { 1 };
        let mut batch = RecvBatch::new(slots, slot_bytes, may_see_trains);
        let gro = match config.gro {
            Gro::On if io.enable_gro() => {
                batch.grow_to_trains();
                GroDetector::On
            }
            Gro::On => return Err(ConfigError::new("gro", "is refused by this kernel; turn it off")),
            // Smaller batches hold too few datagrams to detect trains.
            Gro::Auto if may_see_trains && slots == MAX_BATCH => GroDetector::Watching { hits: 0, skip: 0 },
            Gro::Auto | Gro::Off => GroDetector::Off,
        };
        Ok(Self {
            batch,
            limit: slots.min(START_BATCH),
            max_batch: slots,
            max_datagram_bytes: config.max_datagram_bytes,
            gro,
            counts: ReceiveCounts::default(),
            arrived_count: 0,
        })
    }

    /// Receives until the socket would block or about `budget` datagrams arrived, and passes every batch to `handle`.
    ///
    /// Dropped datagrams and failed calls cost budget too, so that a flood of them cannot extend a pass. A received
    /// batch is always handed on completely, so trains may exceed the budget.
    pub fn drain<I: Io + ?Sized>(
        &mut self,
        io: &mut I,
        budget: usize,
        mut handle: impl FnMut(Received<'_>),
    ) -> DrainEnd {
        self.drain_batches(io, budget, |batch| handle(batch.received()))
    }

    /// Drains like [`Receiver::drain`], with datagrams that `handle` may change, for example to decrypt them in place.
    pub fn drain_mut<I: Io + ?Sized>(
        &mut self,
        io: &mut I,
        budget: usize,
        mut handle: impl FnMut(ReceivedMut<'_>),
    ) -> DrainEnd {
        self.drain_batches(io, budget, |batch| handle(batch.received_mut()))
    }

    fn drain_batches<I: Io + ?Sized>(
        &mut self,
        io: &mut I,
        budget: usize,
        mut handle: impl FnMut(&mut RecvBatch),
    ) -> DrainEnd {
        let (mut budget_left, mut consecutive_faults) = (budget, 0_u32);
        let mut largest_batch = 0;
        let end = loop {
            if budget_left == 0 {
                break DrainEnd::BudgetSpent;
            }
            // No batch offers more slots than the budget has left, so that only trains can exceed the budget.
            self.batch.set_limit(self.limit.min(budget_left));
            count(&mut self.counts.calls, 1);
            match io.recv(&mut self.batch) {
                Ok(()) => {
                    consecutive_faults = 0;
                    // Validate and count the messages, then hand on the rest. An empty message costs budget too.
                    let (messages, offered) = (self.batch.filled(), self.batch.limit());
                    budget_left = budget_left.saturating_sub(self.drop_invalid().max(1));
                    handle(&mut self.batch);
                    largest_batch = largest_batch.max(messages);
                    // GRO pays off only under load, and then the batches are full.
                    if messages == self.max_batch {
                        self.detect_trains(io);
                    }
                    // A short batch ends the drain without another call, if it proves that the socket is empty. A full
                    // batch doubles the next one.
                    if messages < offered {
                        if io.is_emptied_by_short_batch() {
                            break DrainEnd::Blocked;
                        }
                    } else {
                        self.limit = self.limit.saturating_mul(2).min(self.max_batch);
                    }
                }
                Err(fault) => {
                    // A failed call costs budget too, so a socket that always fails cannot extend the pass.
                    self.counts.faults.add(fault);
                    budget_left = budget_left.saturating_sub(1);
                    match recv_action(fault) {
                        RecvAction::Stop => break DrainEnd::Blocked,
                        RecvAction::Continue => {
                            // Datagrams may wait behind the error. Give up if the next calls return only errors.
                            consecutive_faults = consecutive_faults.saturating_add(1);
                            if consecutive_faults >= MAX_CONSECUTIVE_FAULTS {
                                break DrainEnd::Starved;
                            }
                        }
                        RecvAction::RetryNextPass => break DrainEnd::Starved,
                        RecvAction::Close => break DrainEnd::Closed(fault),
                    }
                }
            }
        };
        self.shrink_limit(largest_batch);
        end
    }

    /// Returns the counters since the receiver was created.
    #[must_use]
    pub fn counts(&self) -> &ReceiveCounts {
        &self.counts
    }

    /// Returns the number of datagrams that arrived since the receiver was created, including those that were dropped.
    #[must_use]
    pub fn arrived_count(&self) -> u64 {
        self.arrived_count
    }

    /// Returns whether the kernel coalesces datagrams into trains.
    #[must_use]
    pub fn is_gro_on(&self) -> bool {
        matches!(self.gro, GroDetector::On)
    }

    /// Counts the messages of the batch, drops the invalid ones, and returns the number of datagrams, dropped or not.
    fn drop_invalid(&mut self) -> usize {
        let mut total = 0;
        for slot in self.batch.filled_slots() {
            let datagrams = datagram_count(slot);
            total = datagrams.saturating_add(total);
            // The limit applies to each datagram of a train, and the first one is the longest.
            let longest =
                if slot.segment_bytes == 0 { slot.bytes } else { slot.segment_bytes.min(slot.bytes) };
            // Truncation comes first, because the other tests need the length of the whole message.
            let reason = if slot.is_truncated {
                DropReason::Truncated
            } else if slot.is_control_truncated {
                DropReason::ControlTruncated
            } else if slot.bytes == 0 {
                DropReason::Empty
            } else if longest > self.max_datagram_bytes {
                DropReason::Overlong
            } else {
                count(&mut self.counts.datagrams, datagrams);
                count(&mut self.counts.bytes, slot.bytes);
                count(&mut self.counts.messages, 1);
                continue;
            };
            self.counts.add_dropped(reason, datagrams);
            // The views of the batch skip messages without bytes.
            slot.bytes = 0;
        }
        count(&mut self.arrived_count, total);
        total
    }

    /// Halves the offered batch if the traffic no longer fills it. Fewer slots use less cache. One slot more than the
    /// usual number of messages remains, so that a short batch can end the drain.
    fn shrink_limit(&mut self, largest_batch: usize) {
        let wanted = largest_batch.saturating_add(1).next_power_of_two();
        if wanted < self.limit {
            self.limit = (self.limit / 2).max(wanted).clamp(1, self.max_batch);
        }
    }

    /// Turns on GRO when full batches hold trains.
    fn detect_trains<I: Io + ?Sized>(&mut self, io: &mut I) {
        if self.gro.sees_trains(&self.batch) {
            self.gro = if io.enable_gro() {
                self.batch.grow_to_trains();
                GroDetector::On
            } else {
                GroDetector::Off
            };
        }
    }
}

/// Adds to a counter. 2^64 is out of reach, so saturation never occurs.
fn count(counter: &mut u64, more: usize) {
    *counter = counter.saturating_add(more as u64);
}

/// Decides when GRO pays off: when full batches hold runs of datagrams of one sender with the same length.
enum GroDetector {
    Off,
    On,
    /// `hits` examined batches in a row held trains, and the next `skip` full batches are not examined.
    Watching {
        hits: u32,
        skip: u32,
    },
}

impl GroDetector {
    /// Consecutive examined batches that must hold trains.
    const HITS: u32 = 4;
    /// Full batches that are skipped between two examined ones, which keeps the examination cheap.
    const SKIP: u32 = 7;

    /// Examines one full batch and returns whether to turn on GRO.
    fn sees_trains(&mut self, batch: &RecvBatch) -> bool {
        let Self::Watching { hits, skip } = self else { return false };
        if *skip > 0 {
            *skip = skip.saturating_sub(1);
            return false;
        }
        *skip = Self::SKIP;
        // A batch holds trains if three of four neighbors have the same sender and length.
        let key = |train: GroBatch<'_>| (train.from, train.bytes.len());
        let messages = || batch.received().trains().map(key);
        let pairs = messages().skip(1).count();
        let equal = messages().zip(messages().skip(1)).filter(|(this, next)| this == next).count();
        let is_train = pairs > 0 && equal.saturating_mul(4) >= pairs.saturating_mul(3);
        *hits = if is_train { hits.saturating_add(1) } else { 0 };
        *hits >= Self::HITS
    }
}
