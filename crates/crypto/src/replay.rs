//! The replay window, which accepts each packet number at most once (RFC 6479).
//!
//! It remembers each number that is less than the window's size below the highest accepted number, and rejects older numbers.
//! Only [`ReplayWindow::accept`] moves the window, so it must be called after the packet was authenticated.
//! [`ReplayWindow::check`] changes nothing. A call before the packet is opened saves the work of opening a duplicate.

mod words;

use std::fmt;
use std::hint::black_box;
use std::num::NonZeroU32;

use self::words::BitRing;

/// The default size of the window in packet numbers.
pub const DEFAULT_WINDOW: u32 = 1_024;
/// The largest permitted size of the window in packet numbers.
pub const MAX_WINDOW: u32 = 8_192;
/// Permitted sizes are multiples of this number.
pub const WINDOW_STEP: u32 = 1 << WORD_LOG2;

/// The binary logarithm of the number of packet numbers per word of the bitmap.
const WORD_LOG2: u32 = 6;

/// The packet numbers of one direction that were accepted.
///
/// A wide window has 8 bytes per 64 numbers on the heap, and 8 more. A narrow window, for an idle connection, remembers 64
/// numbers and has nothing on the heap.
pub struct ReplayWindow(State);

enum State {
    SmallWindow(SmallWindow),
    Wide(Box<Bitmap<WORD_LOG2>>),
}

impl ReplayWindow {
    /// Loads the newest part of the window into the cache, as [`Opener::prefetch`](crate::Opener::prefetch) does.
    #[inline]
    pub fn prefetch(&self) {
        if let State::Wide(bitmap) = &self.0 {
            black_box(bitmap.words.get(bitmap.head));
        }
    }

    /// Creates a wide window of `size` packet numbers. Returns `None` if `size` is not a multiple of 64 from 64 to 8,192.
    #[must_use]
    pub fn new(size: u32) -> Option<Self> {
        let mut window = Self::narrow(size)?;
        window.widen();
        Some(window)
    }

    /// Creates a window like [`ReplayWindow::new`], but narrow until it is widened or a number arrives that is 64 or more ahead.
    #[must_use]
    pub fn narrow(size: u32) -> Option<Self> {
        let is_permitted = (WINDOW_STEP..=MAX_WINDOW).contains(&size) && size.is_multiple_of(WINDOW_STEP);
        let size = NonZeroU32::new(size).filter(|_| is_permitted)?;
        Some(Self(State::SmallWindow(SmallWindow { accepted: 0, highest: 0, size })))
    }

    /// Checks whether `number` could be accepted, and changes nothing.
    ///
    /// # Errors
    /// See [`ReplayError`].
    pub fn check(&self, number: u64) -> Result<(), ReplayError> {
        match &self.0 {
            State::Wide(bitmap) => bitmap.check(number),
            State::SmallWindow(narrow) => narrow.check(number),
        }
    }

    /// Records that packet `number` was authenticated, and moves the window if the number is the highest so far.
    ///
    /// The result of this call decides, even after a successful [`check`](Self::check). A caller that opens each packet first and
    /// then calls only `accept` takes the same time for a duplicate and a forgery.
    ///
    /// # Errors
    /// See [`ReplayError`]. Nothing has changed then, and the packet must be dropped.
    pub fn accept(&mut self, number: u64) -> Result<(), ReplayError> {
        if let State::SmallWindow(narrow) = &self.0
            && number.saturating_sub(narrow.highest) >= u64::from(u64::BITS)
        {
            // The connection is busy again and its first packets were reordered, so packets in between may still arrive.
            self.widen();
        }
        match &mut self.0 {
            State::Wide(bitmap) => bitmap.accept(number),
            State::SmallWindow(narrow) => narrow.accept(number),
        }
    }

    /// Widens the window to its full size, for a connection that is busy.
    ///
    /// Numbers that the narrow window did not remember stay too old.
    #[inline]
    pub fn widen(&mut self) {
        if let State::SmallWindow(narrow) = &self.0 {
            self.0 = State::Wide(Box::new(narrow.widened()));
        }
    }

    /// Makes the window narrow and frees its memory, for a connection that is idle. It remembers the newest 64 numbers.
    pub fn shrink(&mut self) {
        if let State::Wide(bitmap) = &self.0 {
            self.0 = State::SmallWindow(SmallWindow::of(bitmap));
        }
    }

    /// Returns the highest accepted number, or `None` if no number was accepted.
    #[must_use]
    #[inline]
    pub fn highest(&self) -> Option<u64> {
        let highest = match &self.0 {
            State::Wide(bitmap) => bitmap.highest,
            State::SmallWindow(narrow) => narrow.highest,
        };
        if highest > 0 { Some(highest) } else { self.packet_zero() }
    }

    /// Returns 0 if packet 0 was accepted.
    ///
    /// A highest number of 0 is ambiguous: either packet 0 was accepted, or no packet was. Only in the first case does the window
    /// reject packet 0.
    #[cold]
    fn packet_zero(&self) -> Option<u64> {
        self.check(0).is_err().then_some(0)
    }
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self(State::Wide(Box::new(Bitmap::new(DEFAULT_WINDOW))))
    }
}

impl fmt::Debug for ReplayWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayWindow").field("highest", &self.highest()).finish_non_exhaustive()
    }
}

/// The reason why a packet number is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// The number was accepted before.
    Duplicate,
    /// The number is below the window, so it may have been accepted before.
    TooOld,
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Duplicate => "the packet number was accepted before",
            Self::TooOld => "the packet number is below the replay window",
        })
    }
}

impl std::error::Error for ReplayError {}

/// A window of the 64 newest numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SmallWindow {
    /// Bit n is set if the number n below the highest was accepted.
    accepted: u64,
    highest: u64,
    /// The size of the window when it is wide. It is not zero, so the compiler stores the variant of [`State`] here.
    size: NonZeroU32,
}

impl SmallWindow {
    fn of(bitmap: &Bitmap<WORD_LOG2>) -> Self {
        let is_accepted = |depth: &u64| {
            let number = bitmap.highest.checked_sub(*depth);
            number.is_some_and(|number| bitmap.check(number).is_err())
        };
        let accepted = (0..u64::from(u64::BITS)).filter(is_accepted).fold(0, |bits, depth| bits | 1 << depth);
        let size = NonZeroU32::new(bitmap.size);
        debug_assert!(size.is_some(), "a window has at least {WINDOW_STEP} numbers");
        Self { accepted, highest: bitmap.highest, size: size.unwrap_or(NonZeroU32::MIN) }
    }

    fn widened(&self) -> Bitmap<WORD_LOG2> {
        let mut bitmap = Bitmap::new(self.size.get());
        bitmap.highest = self.highest;
        bitmap.floor = self.highest.saturating_sub(u64::from(u64::BITS - 1));
        for depth in (0..u64::from(u64::BITS)).filter(|depth| self.accepted & (1 << depth) != 0) {
            if let Some(number) = self.highest.checked_sub(depth) {
                bitmap.mark(number);
            }
        }
        bitmap
    }

    fn check(&self, number: u64) -> Result<(), ReplayError> {
        let Some(depth) = self.highest.checked_sub(number) else { return Ok(()) };
        // A shift by 64 or more returns `None`, also for a depth that exceeds a `u32`.
        match self.accepted.checked_shr(u32::try_from(depth).unwrap_or(u32::MAX)) {
            None => Err(ReplayError::TooOld),
            Some(bits) if bits & 1 == 0 => Ok(()),
            Some(_) => Err(ReplayError::Duplicate),
        }
    }

    fn accept(&mut self, number: u64) -> Result<(), ReplayError> {
        self.check(number)?;
        let ahead = number.saturating_sub(self.highest);
        debug_assert!(ahead < u64::from(u64::BITS), "the window must be widened for {number}");
        self.accepted = self.accepted.checked_shl(u32::try_from(ahead).unwrap_or(u32::MAX)).unwrap_or(0);
        self.highest = self.highest.max(number);
        let depth = self.highest.saturating_sub(number);
        debug_assert!(depth < u64::from(u64::BITS), "`check` rejects {number}, which is below the window");
        self.accepted |= 1_u64.checked_shl(u32::try_from(depth).unwrap_or(u32::MAX)).unwrap_or(0);
        Ok(())
    }
}

/// A wide window: a ring of words, each with the bits of a block of `2^LOG2` consecutive numbers.
///
/// The ring has one word more than the window needs, so that whole words can be cleared (RFC 6479). `LOG2` is a parameter
/// because a test visits every state of a window of 8 numbers with words of 2 bits.
struct Bitmap<const LOG2: u32> {
    words: BitRing,
    highest: u64,
    /// Numbers below the floor are too old. The floor is above zero if the window was narrow before.
    floor: u64,
    /// The index in the ring of the highest number's word.
    head: u32,
    size: u32,
}

impl<const LOG2: u32> Bitmap<LOG2> {
    fn new(size: u32) -> Self {
        let word_count = (size >> LOG2).saturating_add(1);
        Self { words: BitRing::new(word_count), highest: 0, floor: 0, head: 0, size }
    }

    fn check(&self, number: u64) -> Result<(), ReplayError> {
        if number < self.floor {
            return Err(ReplayError::TooOld);
        }
        let Some(depth) = self.highest.checked_sub(number) else { return Ok(()) };
        if depth >= u64::from(self.size) {
            return Err(ReplayError::TooOld);
        }
        let word = self.words.get(self.index_of(number)).ok_or(ReplayError::TooOld)?;
        if word & Self::bit(number) == 0 { Ok(()) } else { Err(ReplayError::Duplicate) }
    }

    fn accept(&mut self, number: u64) -> Result<(), ReplayError> {
        self.check(number)?;
        if number > self.highest {
            self.advance_to(number);
        }
        self.mark(number);
        Ok(())
    }

    /// Sets the bit of a number inside the window.
    fn mark(&mut self, number: u64) {
        let index = self.index_of(number);
        if let Some(word) = self.words.get_mut(index) {
            *word |= Self::bit(number);
        }
    }

    /// Makes `number` the highest number, and clears the words between the old and the new one. `number` is above the highest.
    fn advance_to(&mut self, number: u64) {
        let blocks = (number >> LOG2).saturating_sub(self.highest >> LOG2);
        self.highest = number;
        let word_count = self.words.count();
        match u32::try_from(blocks) {
            Ok(blocks) if blocks < word_count => {
                for _ in 0..blocks {
                    self.head = if self.head.saturating_add(1) < word_count {
                        self.head.saturating_add(1)
                    } else {
                        0
                    };
                    if let Some(word) = self.words.get_mut(self.head) {
                        *word = 0;
                    }
                }
            }
            _ => self.words.clear(),
        }
    }

    /// Returns the index of the word of `number`, which must be inside the window.
    ///
    /// The distance to the head is less than the length of the ring, so no division is necessary.
    fn index_of(&self, number: u64) -> u32 {
        let blocks_back = (self.highest >> LOG2).saturating_sub(number >> LOG2);
        debug_assert!(blocks_back < u64::from(self.words.count()), "the window contains {number}");
        let blocks_back = u32::try_from(blocks_back).unwrap_or(u32::MAX);
        match self.head.checked_sub(blocks_back) {
            Some(index) => index,
            None => self.head.saturating_add(self.words.count()).saturating_sub(blocks_back),
        }
    }

    /// Returns the bit of `number` in its word.
    fn bit(number: u64) -> u64 {
        let in_word = number & (1_u64 << LOG2).saturating_sub(1);
        1 << in_word
    }
}

#[cfg(test)]
mod tests;
