//! The replay window: lets each packet number through at most once (RFC 6479).
//!
//! Numbers at most the window's size below the highest accepted one are remembered exactly, older ones are
//! refused. Only [`ReplayWindow::accept`] moves the window, and it belongs after the packet was
//! authenticated; [`ReplayWindow::check`] moves nothing and may be asked before, to save the work of opening
//! a duplicate. The window does not restore truncated numbers.

mod words;

use std::fmt;
use std::hint::black_box;
use std::num::NonZeroU32;

use self::words::Words;

/// Size of the window in packet numbers unless configured otherwise.
pub const DEFAULT_WINDOW: u32 = 1_024;
/// Largest permitted size of the window in packet numbers.
pub const MAX_WINDOW: u32 = 8_192;
/// Permitted sizes are multiples of this.
pub const WINDOW_STEP: u32 = 1 << WORD_LOG2;

/// Numbers per word of the bitmap, as a power of two.
const WORD_LOG2: u32 = 6;

/// Which packet numbers of one direction were accepted. Fixed in size: 8 bytes per 64 numbers, and 8 more; nothing but itself
/// where it is narrow.
pub struct ReplayWindow(Numbers);

enum Numbers {
    /// Of an idle connection: all it takes is 24 bytes.
    Narrow(Narrow),
    Wide(Box<Bitmap<WORD_LOG2>>),
}

impl ReplayWindow {
    /// As [`Opener::fetch`](crate::Opener::fetch).
    #[inline]
    pub fn fetch(&self) {
        if let Numbers::Wide(bitmap) = &self.0 {
            black_box(bitmap.words.get(bitmap.head));
        }
    }

    /// A window of `size` packet numbers, a multiple of 64 from 64 to 8,192; `None` for any other size.
    #[must_use]
    pub fn new(size: u32) -> Option<Self> {
        let mut window = Self::narrow(size)?;
        window.widen();
        Some(window)
    }

    /// The same, with 64 numbers until it is widened, or a number comes that is more than 64 ahead.
    #[must_use]
    pub fn narrow(size: u32) -> Option<Self> {
        let is_permitted = (WINDOW_STEP..=MAX_WINDOW).contains(&size) && size.is_multiple_of(WINDOW_STEP);
        let size = NonZeroU32::new(size).filter(|_| is_permitted)?;
        Some(Self(Numbers::Narrow(Narrow { accepted: 0, highest: 0, size })))
    }

    /// Whether `number` could still be accepted. Changes nothing.
    ///
    /// # Errors
    /// See [`ReplayError`].
    pub fn check(&self, number: u64) -> Result<(), ReplayError> {
        match &self.0 {
            Numbers::Wide(bitmap) => bitmap.check(number),
            Numbers::Narrow(narrow) => narrow.check(number),
        }
    }

    /// Notes that packet `number` was authenticated, and moves the window if it is the highest so far. The
    /// verdict of this call is the one that counts: a caller that opens first and asks afterwards shows no
    /// difference in time between a duplicate and a forgery.
    ///
    /// # Errors
    /// See [`ReplayError`]; nothing has changed then, and the packet must be dropped.
    pub fn accept(&mut self, number: u64) -> Result<(), ReplayError> {
        if let Numbers::Narrow(narrow) = &self.0
            && number.saturating_sub(narrow.highest) >= u64::from(u64::BITS)
        {
            // Those in between may come yet: the connection is busy, and the first packets of it overtook each other.
            self.widen();
        }
        match &mut self.0 {
            Numbers::Wide(bitmap) => bitmap.accept(number),
            Numbers::Narrow(narrow) => narrow.accept(number),
        }
    }

    /// Makes the window as wide as it was made for, for a connection that is busy. What it did not remember while it was
    /// narrow stays too old.
    #[inline]
    pub fn widen(&mut self) {
        if let Numbers::Narrow(narrow) = &self.0 {
            self.0 = Numbers::Wide(Box::new(narrow.widened()));
        }
    }

    /// Gives its memory back, for a connection that is idle: the newest 64 numbers are remembered from now on.
    pub fn shrink(&mut self) {
        if let Numbers::Wide(bitmap) = &self.0 {
            self.0 = Numbers::Narrow(Narrow::of(bitmap));
        }
    }

    /// The highest number accepted so far; `None` before the first.
    #[must_use]
    #[inline]
    pub fn highest(&self) -> Option<u64> {
        let highest = match &self.0 {
            Numbers::Wide(bitmap) => bitmap.highest,
            Numbers::Narrow(narrow) => narrow.highest,
        };
        if highest > 0 { Some(highest) } else { self.first() }
    }

    /// Whether packet 0 came: the highest number is always remembered, and no other may be one that never came.
    #[cold]
    fn first(&self) -> Option<u64> {
        self.check(0).is_err().then_some(0)
    }
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self(Numbers::Wide(Box::new(Bitmap::new(DEFAULT_WINDOW))))
    }
}

impl fmt::Debug for ReplayWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayWindow").field("highest", &self.highest()).finish_non_exhaustive()
    }
}

/// Why a packet number is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// It was accepted before.
    Duplicate,
    /// It is so far below the highest accepted number that nobody remembers it.
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

/// The newest numbers, one bit each: those of one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Narrow {
    /// Bit n belongs to the number n below the highest.
    accepted: u64,
    highest: u64,
    /// Of the window when it is wide.
    size: NonZeroU32,
}

impl Narrow {
    fn of(bitmap: &Bitmap<WORD_LOG2>) -> Self {
        let is_over = |depth: &u64| {
            let number = bitmap.highest.checked_sub(*depth);
            number.is_some_and(|number| bitmap.check(number).is_err())
        };
        let accepted = (0..u64::from(u64::BITS)).filter(is_over).fold(0, |bits, depth| bits | 1 << depth);
        Self {
            accepted,
            highest: bitmap.highest,
            size: NonZeroU32::new(bitmap.size).unwrap_or(NonZeroU32::MIN),
        }
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
        match self.accepted.checked_shr(u32::try_from(depth).unwrap_or(u32::MAX)) {
            None => Err(ReplayError::TooOld),
            Some(bits) if bits & 1 == 0 => Ok(()),
            Some(_) => Err(ReplayError::Duplicate),
        }
    }

    fn accept(&mut self, number: u64) -> Result<(), ReplayError> {
        self.check(number)?;
        let ahead = number.saturating_sub(self.highest);
        self.accepted = self.accepted.checked_shl(u32::try_from(ahead).unwrap_or(u32::MAX)).unwrap_or(0);
        self.highest = self.highest.max(number);
        // It is among the newest, or it would not have passed.
        let depth = u32::try_from(self.highest.saturating_sub(number)).unwrap_or(u32::MAX);
        self.accepted |= 1_u64.checked_shl(depth).unwrap_or(0);
        Ok(())
    }
}

/// A ring of words, each with the bits of `2^LOG2` consecutive numbers (a block).
///
/// One word more than the window needs, so that the ring may be cleared by whole words. `LOG2` is a parameter
/// because the tests walk through every state of a window of 8 numbers, which has words of 2.
struct Bitmap<const LOG2: u32> {
    words: Words,
    highest: u64,
    /// Lower numbers are too old, whatever the window's size.
    floor: u64,
    /// Where in the ring the highest number's word is.
    head: u32,
    size: u32,
}

impl<const LOG2: u32> Bitmap<LOG2> {
    fn new(size: u32) -> Self {
        let word_count = (size >> LOG2).saturating_add(1);
        Self { words: Words::new(word_count), highest: 0, floor: 0, head: 0, size }
    }

    fn check(&self, number: u64) -> Result<(), ReplayError> {
        if number < self.floor {
            return Err(ReplayError::TooOld);
        }
        let Some(depth) = self.highest.checked_sub(number) else { return Ok(()) };
        if depth >= u64::from(self.size) {
            return Err(ReplayError::TooOld);
        }
        let word = self.words.get(self.place_of(number)).ok_or(ReplayError::TooOld)?;
        if word & Self::bit(number) == 0 { Ok(()) } else { Err(ReplayError::Duplicate) }
    }

    fn accept(&mut self, number: u64) -> Result<(), ReplayError> {
        self.check(number)?;
        if number > self.highest {
            self.move_to(number);
        }
        self.mark(number);
        Ok(())
    }

    /// Sets the bit of a number inside the window.
    fn mark(&mut self, number: u64) {
        let place = self.place_of(number);
        if let Some(word) = self.words.get_mut(place) {
            *word |= Self::bit(number);
        }
    }

    /// Makes `number`, which is higher than the highest, the highest, and clears the words between.
    fn move_to(&mut self, number: u64) {
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

    /// Where the word of `number` is, which must be inside the window. No division: the distance to the head
    /// is short.
    fn place_of(&self, number: u64) -> u32 {
        let blocks_back = (self.highest >> LOG2).saturating_sub(number >> LOG2);
        let blocks_back = u32::try_from(blocks_back).unwrap_or(u32::MAX);
        match self.head.checked_sub(blocks_back) {
            Some(place) => place,
            None => self.head.saturating_add(self.words.count()).saturating_sub(blocks_back),
        }
    }

    fn bit(number: u64) -> u64 {
        let in_word = number & (1_u64 << LOG2).saturating_sub(1);
        1 << in_word
    }
}

#[cfg(test)]
mod tests;
