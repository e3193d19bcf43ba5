//! The opening half of a connection: it opens packets of the current key epoch, the one before and the one after, and
//! counts those that fail.
//!
//! It keeps no replay window (see [`crate::ReplayWindow`]) and does not restore truncated packet numbers. The count of
//! failed opens belongs to the connection, not to a key: it goes on when the keys of an epoch change. When an epoch's
//! keys are forgotten is the caller's decision, because it knows the time.

use std::fmt;

use crate::keys::{OpenKeys, Working};
use crate::nonce::nonce;
use crate::suite::{AeadError, PacketKey, Suite, TAG_BYTES};

/// Failed opens on one connection from which an alarm is due.
pub const FAILED_OPEN_ALARM: u64 = 1 << 20;
/// Failed opens at which a connection must close (RFC 9001 section 6.6, the stricter limit for both suites).
pub const FAILED_OPEN_LIMIT: u64 = 1 << 36;

/// Opens packets and counts failures.
pub struct Opener {
    current: Epoch,
    /// The epochs around it, boxed because they seldom exist.
    around: Option<Box<Around>>,
    failed_count: u64,
}

/// The keys of one epoch.
struct Epoch {
    keys: OpenKeys,
    /// The key phase of its packets, which changes with every epoch. It stands here because it takes no memory here.
    key_phase: bool,
    /// The expanded key, boxed because an idle connection has none.
    working: Option<Box<Working>>,
}

/// Each epoch in a box of its own: an option that holds keys itself keeps their bytes when it is emptied.
#[derive(Default)]
struct Around {
    previous: Option<Box<Epoch>>,
    /// Computed when a packet first claims to be of it, so that later claims cost no more than any forgery.
    next: Option<Box<Epoch>>,
    /// The lowest number opened in the current epoch: lower ones of the other phase are of the previous one.
    first_number: Option<u64>,
}

/// A packet that was opened.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened<'a> {
    /// What was sealed.
    pub body: &'a mut [u8],
    /// It is the first of a new epoch: the peer has changed its keys, and ours must follow.
    pub is_new_epoch: bool,
}

impl Epoch {
    const fn new(keys: OpenKeys, key_phase: bool) -> Self {
        Self { keys, key_phase, working: None }
    }

    fn open(&self, number: u64, aad: &[u8], body: &mut [u8], tag: &[u8; TAG_BYTES]) -> Result<(), AeadError> {
        let mut open =
            |working: &Working| working.provider.open_in_place(nonce(working.iv(), number), aad, body, tag);
        match &self.working {
            Some(working) => open(working),
            None => self.keys.epoch_keys().expand().and_then(|working| open(&working)),
        }
    }

    fn expand(&mut self) {
        if self.working.is_none() {
            self.working = self.keys.epoch_keys().expand().ok().map(Box::new);
        }
    }
}

impl Opener {
    /// Reads a little of each part of it that a packet needs, so that it is in the cache when one is opened.
    #[inline]
    pub fn fetch(&self) {
        if let Some(working) = &self.current.working {
            working.fetch();
        }
    }

    /// An opener for the first epoch, with no failure yet. Its key phase is 0.
    #[must_use]
    pub const fn new(keys: OpenKeys) -> Self {
        Self { current: Epoch::new(keys, false), around: None, failed_count: 0 }
    }

    #[cfg(test)]
    pub(crate) fn with_failed_count(keys: OpenKeys, failed_count: u64) -> Self {
        Self { failed_count, ..Self::new(keys) }
    }

    /// Checks and decrypts `sealed` (body and tag) of packet `number` in place. Expands the key for this one packet
    /// unless [`Opener::keep_expanded`] was called. A packet of the next epoch that opens makes it the current one.
    ///
    /// # Errors
    /// See [`OpenError`]. The content of `sealed` is then unspecified and must not be used.
    pub fn open<'a>(
        &mut self,
        number: u64,
        key_phase: bool,
        aad: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<Opened<'a>, OpenError> {
        if self.failed_count >= FAILED_OPEN_LIMIT {
            return Err(OpenError::LimitReached);
        }
        let (body, tag) = sealed.split_last_chunk_mut::<TAG_BYTES>().ok_or(OpenError::TooShort)?;
        if key_phase == self.key_phase() {
            return match self.current.open(number, aad, body, tag) {
                Ok(()) => {
                    self.note_first(number);
                    Ok(Opened { body, is_new_epoch: false })
                }
                Err(AeadError) => Err(self.on_failed()),
            };
        }
        if let Some(previous) = self.previous_of(number) {
            return match previous.open(number, aad, body, tag) {
                Ok(()) => Ok(Opened { body, is_new_epoch: false }),
                Err(AeadError) => Err(self.on_failed()),
            };
        }
        match self.next_epoch().open(number, aad, body, tag) {
            Ok(()) => {
                self.step_to_next_epoch();
                self.note_first(number);
                Ok(Opened { body, is_new_epoch: true })
            }
            Err(AeadError) => Err(self.on_failed()),
        }
    }

    /// Makes the next epoch the current one, because this end begins it; the current one's packets still open.
    pub fn step_to_next_epoch(&mut self) {
        self.next_epoch();
        let around = self.around.get_or_insert_default();
        let Some(mut next) = around.next.take() else { return };
        // Exchanged and not moved: a move leaves bytes behind that nobody wipes.
        std::mem::swap(&mut self.current, &mut *next);
        around.previous = Some(next);
        around.first_number = None;
    }

    /// Whether a packet of the current epoch was opened while the previous one's keys were kept.
    #[must_use]
    pub fn has_met_current(&self) -> bool {
        self.around.as_ref().is_some_and(|around| around.first_number.is_some())
    }

    /// Whether the keys of the previous epoch are kept.
    #[must_use]
    pub fn has_previous(&self) -> bool {
        self.around.as_ref().is_some_and(|around| around.previous.is_some())
    }

    /// Wipes the keys of the previous epoch.
    pub fn forget_previous(&mut self) {
        self.around = None;
    }

    /// The key phase of the current epoch.
    #[must_use]
    pub const fn key_phase(&self) -> bool {
        self.current.key_phase
    }

    /// How many opens failed so far.
    #[must_use]
    pub const fn failed_count(&self) -> u64 {
        self.failed_count
    }

    /// Whether so many opens failed that the application should hear of it.
    #[must_use]
    pub const fn is_alarmed(&self) -> bool {
        self.failed_count >= FAILED_OPEN_ALARM
    }

    /// Expands the current key now and keeps it (550 bytes or so on the heap), for a connection with several packets
    /// to open in a row.
    pub fn keep_expanded(&mut self) {
        self.current.expand();
    }

    /// Drops expanded keys; what they are derived from stays.
    pub fn drop_expanded(&mut self) {
        self.current.working = None;
        if let Some(around) = &mut self.around {
            for epoch in around.previous.iter_mut().chain(&mut around.next) {
                epoch.working = None;
            }
        }
    }

    /// The suite in use.
    #[must_use]
    pub const fn suite(&self) -> Suite {
        self.current.keys.suite()
    }

    /// The epoch before, if a packet of the other phase with this number belongs to it.
    fn previous_of(&self, number: u64) -> Option<&Epoch> {
        let around = self.around.as_ref()?;
        around.previous.as_deref().filter(|_| around.first_number.is_none_or(|first| number < first))
    }

    fn next_epoch(&mut self) -> &Epoch {
        let around = self.around.get_or_insert_default();
        let next = around.next.get_or_insert_with(|| {
            Box::new(Epoch::new(self.current.keys.next_epoch(), !self.current.key_phase))
        });
        if self.current.working.is_some() {
            // Else every packet that claims to be of it would cost a derivation.
            next.expand();
        }
        next
    }

    fn note_first(&mut self, number: u64) {
        if let Some(around) = &mut self.around
            && around.previous.is_some()
        {
            around.first_number = Some(around.first_number.map_or(number, |first| first.min(number)));
        }
    }

    #[cold]
    fn on_failed(&mut self) -> OpenError {
        self.failed_count = self.failed_count.saturating_add(1);
        if self.failed_count >= FAILED_OPEN_LIMIT { OpenError::LimitReached } else { OpenError::Forged }
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener")
            .field("suite", &self.suite())
            .field("failed_count", &self.failed_count)
            .finish_non_exhaustive()
    }
}

/// Why a packet was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// Shorter than a tag; not counted as a failed open, since nothing was tried.
    TooShort,
    /// Key, number, associated data, body or tag do not fit together.
    Forged,
    /// 2^36 opens failed, this one or earlier ones: the connection must close, and nothing is opened any
    /// more.
    LimitReached,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooShort => "the packet is shorter than its tag",
            Self::Forged => "the packet was not sealed by the peer",
            Self::LimitReached => "too many forged packets, close the connection",
        })
    }
}

impl std::error::Error for OpenError {}

#[cfg(test)]
mod tests;
