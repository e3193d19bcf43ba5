//! The drain: receive batch after batch until the socket would block or a budget is spent, judge each message
//! by its length alone, and count everything by name.
//!
//! It hands out borrowed batches and keeps no datagram; what the bytes mean is somebody else's question.
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

use std::fmt;

use crate::batch::{MAX_BATCH, MAX_MESSAGE_BYTES, Received, ReceivedMut, RecvBatch};
use crate::config_error::ConfigError;
use crate::fault::{RecvAction, recv_action};
use crate::train::Train;
use crate::{Fault, FaultCounts, Io, sys};

/// How a socket is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// One `recv_from` per datagram: the reference, and the portable path.
    Recv,
    /// `recvmmsg` into up to 32 slots whose headers are kept between calls.
    Recvmmsg,
}

impl Drain {
    /// The best this platform has.
    #[must_use]
    pub const fn best() -> Self {
        if sys::HAS_BATCHES { Self::Recvmmsg } else { Self::Recv }
    }
}

/// Whether the kernel may hand over several datagrams of one sender as one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gro {
    /// Off until trains arrive, then on for the life of the socket: trains still queued when it is turned off
    /// would be read as single datagrams.
    Auto,
    /// On from the start.
    On,
    /// Never. Only then are kernel drops exact to the datagram: with GRO the kernel counts one per train.
    Off,
}

/// Settings of a [`Receiver`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReceiverConfig {
    /// How the socket is read.
    pub drain: Drain,
    /// Trains of datagrams.
    pub gro: Gro,
    /// The longest datagram handed on, in bytes, 1 to 65,507; longer ones are counted and dropped.
    pub max_datagram_bytes: usize,
    /// The most messages per call, 1 to 32.
    pub max_batch: usize,
}

impl Default for ReceiverConfig {
    fn default() -> Self {
        Self { drain: Drain::best(), gro: Gro::Auto, max_datagram_bytes: 1_500, max_batch: MAX_BATCH }
    }
}

impl ReceiverConfig {
    /// Sets how the socket is read.
    #[must_use]
    pub fn drain(mut self, drain: Drain) -> Self {
        self.drain = drain;
        self
    }

    /// Sets whether trains are taken whole.
    #[must_use]
    pub fn gro(mut self, gro: Gro) -> Self {
        self.gro = gro;
        self
    }

    /// Sets the longest datagram handed on, in bytes.
    #[must_use]
    pub fn max_datagram_bytes(mut self, bytes: usize) -> Self {
        self.max_datagram_bytes = bytes;
        self
    }

    /// Sets the most messages per call.
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
            // One slot is read by the plain call, which cannot tell how a train is cut.
            return Err(ConfigError::new(
                "gro",
                "needs a batch of at least 2; raise max_batch, or turn gro off",
            ));
        }
        Ok(())
    }
}

/// Why a message was not handed on. The kernel's own drops are counted by [`crate::DropMeter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DropReason {
    /// A datagram without payload. It is legal, costs budget, and never means end of file.
    Empty,
    /// Longer than the slot: the kernel cut it.
    Truncated,
    /// Read whole, but longer than `max_datagram_bytes`.
    Overlong,
    /// The kernel had no room to say how a train is cut, so it cannot be split.
    ControlTruncated,
}

impl DropReason {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Empty, Self::Truncated, Self::Overlong, Self::ControlTruncated];

    /// A stable name for counters and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Truncated => "truncated",
            Self::Overlong => "overlong",
            Self::ControlTruncated => "control_truncated",
        }
    }
}

/// What a [`Receiver`] has seen since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiveCounts {
    /// Datagrams handed on.
    pub datagrams: u64,
    /// Payload bytes handed on.
    pub bytes: u64,
    /// Messages handed on: trains count once.
    pub messages: u64,
    /// Receive calls, those that failed included.
    pub calls: u64,
    /// Failed calls by fault; [`Fault::WouldBlock`] is the ordinary end of a drain.
    pub faults: FaultCounts,
    pub(crate) drops: DropCounts,
}

/// The number of dropped datagrams per [`DropReason`].
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct DropCounts(pub(crate) [u64; DropReason::ALL.len()]);

impl fmt::Debug for DropCounts {
    /// Prints the reasons that occurred, by name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = DropReason::ALL.iter().map(|reason| reason.name()).zip(&self.0);
        f.debug_map().entries(counts.filter(|(_, count)| **count > 0)).finish()
    }
}

impl ReceiveCounts {
    /// Datagrams dropped for this reason.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops.0.get(reason as usize).copied().unwrap_or(0)
    }

    /// Datagrams dropped for any reason.
    #[must_use]
    pub fn dropped_in_all(&self) -> u64 {
        self.drops.0.iter().sum()
    }

    fn drop(&mut self, reason: DropReason, datagrams: usize) {
        if let Some(counter) = self.drops.0.get_mut(reason as usize) {
            count(counter, datagrams);
        }
    }
}

/// Adds to a counter that no machine fills.
fn count(counter: &mut u64, more: usize) {
    *counter = counter.saturating_add(more as u64);
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainEnd {
    /// The socket is empty; the next datagram fires the poll.
    Blocked,
    /// The budget is spent and the socket may hold more: poll with a zero timeout, then drain again. No new
    /// edge will come for what is left.
    BudgetSpent,
    /// The kernel was out of memory, or call after call failed: treat the socket as still readable and drain again in the next
    /// pass. Where that happens again and again and nothing came, let some time pass in between.
    Starved,
    /// The descriptor is gone: whoever drains opens the socket anew, or ends.
    Closed(Fault),
}

impl DrainEnd {
    /// Whether the socket may hold datagrams that no new edge will tell of: what [`crate::Waiter::wait`] has to
    /// know before the next drain.
    #[must_use]
    pub const fn is_more_waiting(self) -> bool {
        matches!(self, Self::BudgetSpent | Self::Starved)
    }
}

/// Drains one socket.
pub struct Receiver {
    batch: RecvBatch,
    limit: usize,
    max_batch: usize,
    max_datagram_bytes: usize,
    trains: TrainWatch,
    counts: ReceiveCounts,
}

impl Receiver {
    /// A receiver for this socket; all its memory is allocated here.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] naming the field that is out of range, not available on this platform, or refused by
    /// the kernel.
    pub fn new<I: Io>(io: &mut I, config: &ReceiverConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let takes_batches = config.drain == Drain::Recvmmsg;
        let may_see_trains = takes_batches && config.gro != Gro::Off;
        // One byte more than the longest datagram wanted: a longer one fills it and is known by that.
        let slot_bytes = config.max_datagram_bytes.saturating_add(1).min(MAX_MESSAGE_BYTES);
        let slots = if takes_batches { config.max_batch } else { 1 };
        let mut batch = RecvBatch::new(slots, slot_bytes, may_see_trains);
        let trains = match config.gro {
            Gro::On if io.enable_gro() => {
                batch.grow_to_trains();
                TrainWatch::On
            }
            Gro::On => return Err(ConfigError::new("gro", "is refused by this kernel; turn it off")),
            Gro::Auto if may_see_trains && slots == MAX_BATCH => TrainWatch::Watching { hits: 0, skip: 0 },
            Gro::Auto | Gro::Off => TrainWatch::Off,
        };
        Ok(Self {
            batch,
            limit: slots.min(START_BATCH),
            max_batch: slots,
            max_datagram_bytes: config.max_datagram_bytes,
            trains,
            counts: ReceiveCounts::default(),
        })
    }

    /// Receives until the socket would block or about `budget` datagrams were taken, and gives every batch to
    /// `handle`. Bad and empty datagrams and failed calls cost budget too; a batch already received is handed
    /// on whole.
    pub fn drain<I: Io>(
        &mut self,
        io: &mut I,
        budget: usize,
        mut handle: impl FnMut(Received<'_>),
    ) -> DrainEnd {
        self.drain_batches(io, budget, |batch| handle(batch.received()))
    }

    /// As [`Receiver::drain`], for who changes the datagrams where they lie, as opening a packet does.
    pub fn drain_mut<I: Io>(
        &mut self,
        io: &mut I,
        budget: usize,
        mut handle: impl FnMut(ReceivedMut<'_>),
    ) -> DrainEnd {
        self.drain_batches(io, budget, |batch| handle(batch.received_mut()))
    }

    fn drain_batches<I: Io>(
        &mut self,
        io: &mut I,
        budget: usize,
        mut handle: impl FnMut(&mut RecvBatch),
    ) -> DrainEnd {
        let (mut left, mut faults_in_a_row) = (budget, 0_u32);
        let mut largest = 0;
        let end = loop {
            if left == 0 {
                break DrainEnd::BudgetSpent;
            }
            self.batch.set_limit(self.limit.min(left));
            count(&mut self.counts.calls, 1);
            match io.recv(&mut self.batch) {
                Ok(()) => {
                    faults_in_a_row = 0;
                    let (messages, offered) = (self.batch.filled(), self.batch.limit());
                    left = left.saturating_sub(self.admit().max(1));
                    handle(&mut self.batch);
                    largest = largest.max(messages);
                    if messages == self.max_batch {
                        self.watch_for_trains(io);
                    }
                    if messages < offered {
                        if io.is_emptied_by_short_batch() {
                            break DrainEnd::Blocked;
                        }
                    } else {
                        self.limit = self.limit.saturating_mul(2).min(self.max_batch);
                    }
                }
                Err(fault) => {
                    self.counts.faults.add(fault);
                    left = left.saturating_sub(1);
                    match recv_action(fault) {
                        RecvAction::Stop => break DrainEnd::Blocked,
                        RecvAction::GoOn => {
                            faults_in_a_row = faults_in_a_row.saturating_add(1);
                            if faults_in_a_row >= FAULTS_IN_A_ROW {
                                break DrainEnd::Starved;
                            }
                        }
                        RecvAction::RetryNextPass => break DrainEnd::Starved,
                        RecvAction::Close => break DrainEnd::Closed(fault),
                    }
                }
            }
        };
        self.shrink(largest);
        end
    }

    /// What was seen so far.
    #[must_use]
    pub fn counts(&self) -> &ReceiveCounts {
        &self.counts
    }

    /// Whether the kernel hands over trains whole.
    #[must_use]
    pub fn is_gro_on(&self) -> bool {
        matches!(self.trains, TrainWatch::On)
    }

    /// Counts the batch and sets unusable messages aside; answers how many datagrams it held.
    fn admit(&mut self) -> usize {
        let mut taken = 0;
        for slot in self.batch.filled_slots() {
            let datagrams = slot.datagram_count();
            taken = datagrams.saturating_add(taken);
            let longest =
                if slot.segment_bytes == 0 { slot.bytes } else { slot.segment_bytes.min(slot.bytes) };
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
            self.counts.drop(reason, datagrams);
            slot.bytes = 0;
        }
        taken
    }

    /// Lets the batch follow the traffic down, by half at a time: fewer slots touched is less cache used, but
    /// one slot beyond what usually comes lets a short batch end the drain.
    fn shrink(&mut self, largest: usize) {
        let wanted = largest.saturating_add(1).next_power_of_two();
        if wanted < self.limit {
            self.limit = (self.limit / 2).max(wanted).clamp(1, self.max_batch);
        }
    }

    fn watch_for_trains<I: Io>(&mut self, io: &mut I) {
        if self.trains.sees_trains(&self.batch) {
            self.trains = if io.enable_gro() {
                self.batch.grow_to_trains();
                TrainWatch::On
            } else {
                TrainWatch::Off
            };
        }
    }
}

/// Calls that fail one after the other before the drain ends. A socket keeps one error of the network at a time, so that so many
/// are no errors of datagrams any more.
const FAULTS_IN_A_ROW: u32 = 32;

/// Slots offered in the first call, before the traffic is known.
const START_BATCH: usize = 8;

/// Decides when GRO pays: when full batches hold runs of equal datagrams from one sender.
enum TrainWatch {
    Off,
    On,
    Watching { hits: u32, skip: u32 },
}

impl TrainWatch {
    /// Full batches in a row that must look like trains.
    const HITS: u32 = 4;
    /// Full batches passed over between two looks.
    const SKIP: u32 = 7;

    /// Looks at one full batch; true when the time has come.
    fn sees_trains(&mut self, batch: &RecvBatch) -> bool {
        let Self::Watching { hits, skip } = self else { return false };
        if *skip > 0 {
            *skip = skip.saturating_sub(1);
            return false;
        }
        *skip = Self::SKIP;
        let like = |train: Train<'_>| (train.from, train.bytes.len());
        let messages = || batch.received().trains().map(like);
        let pairs = messages().skip(1).count();
        let equal = messages().zip(messages().skip(1)).filter(|(this, next)| this == next).count();
        let is_train = pairs > 0 && equal.saturating_mul(4) >= pairs.saturating_mul(3);
        *hits = if is_train { hits.saturating_add(1) } else { 0 };
        *hits >= Self::HITS
    }
}
