//! The replay window: lets each packet number through at most once (RFC 6479).
//!
//! Numbers at most the window's size below the highest accepted one are remembered exactly, older ones are
//! refused. Only [`ReplayWindow::accept`] moves the window, and it belongs after the packet was
//! authenticated; [`ReplayWindow::check`] moves nothing and may be asked before, to save the work of opening
//! a duplicate. The window does not restore truncated numbers.

use std::fmt;

/// Size of the window in packet numbers unless configured otherwise.
pub const DEFAULT_WINDOW: u32 = 1_024;
/// Largest permitted size of the window in packet numbers.
pub const MAX_WINDOW: u32 = 8_192;
/// Permitted sizes are multiples of this.
pub const WINDOW_STEP: u32 = 1 << WORD_LOG2;

/// Numbers per word of the bitmap, as a power of two.
const WORD_LOG2: u32 = 6;

/// Which packet numbers of one direction were accepted. Fixed in size: 8 bytes per 64 numbers, and 8 more.
pub struct ReplayWindow(Bitmap<WORD_LOG2>);

impl ReplayWindow {
    /// A window of `size` packet numbers, a multiple of 64 from 64 to 8,192; `None` for any other size.
    #[must_use]
    pub fn new(size: u32) -> Option<Self> {
        let is_permitted = (WINDOW_STEP..=MAX_WINDOW).contains(&size) && size.is_multiple_of(WINDOW_STEP);
        is_permitted.then(|| Self(Bitmap::new(size)))
    }

    /// Whether `number` could still be accepted. Changes nothing.
    ///
    /// # Errors
    /// See [`ReplayError`].
    pub fn check(&self, number: u64) -> Result<(), ReplayError> {
        self.0.check(number)
    }

    /// Notes that packet `number` was authenticated, and moves the window if it is the highest so far. The
    /// verdict of this call is the one that counts: a caller that opens first and asks afterwards shows no
    /// difference in time between a duplicate and a forgery.
    ///
    /// # Errors
    /// See [`ReplayError`]; nothing has changed then, and the packet must be dropped.
    pub fn accept(&mut self, number: u64) -> Result<(), ReplayError> {
        self.0.accept(number)
    }

    /// Gives its memory back, for a connection that is idle: from now on every number up to the highest accepted one
    /// counts as too old.
    pub fn forget(&mut self) {
        self.0.forget();
    }

    /// The highest number accepted so far, 0 before the first.
    #[must_use]
    pub const fn highest(&self) -> u64 {
        self.0.highest
    }
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self(Bitmap::new(DEFAULT_WINDOW))
    }
}

impl fmt::Debug for ReplayWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayWindow").field("highest", &self.0.highest).finish_non_exhaustive()
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

/// A ring of words, each with the bits of `2^LOG2` consecutive numbers (a block).
///
/// One word more than the window needs, so that the ring may be cleared by whole words. `LOG2` is a parameter
/// because the tests walk through every state of a window of 8 numbers, which has words of 2.
struct Bitmap<const LOG2: u32> {
    /// None after everything was forgotten.
    words: Box<[u64]>,
    highest: u64,
    /// Lower numbers are too old, whatever the window's size.
    floor: u64,
    /// Where in the ring the highest number's word is.
    head: u32,
    size: u32,
}

impl<const LOG2: u32> Bitmap<LOG2> {
    fn new(size: u32) -> Self {
        Self { words: Self::words(size), highest: 0, floor: 0, head: 0, size }
    }

    fn words(size: u32) -> Box<[u64]> {
        let word_count = (size >> LOG2).saturating_add(1);
        (0..word_count).map(|_| 0).collect()
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
        if self.words.is_empty() {
            (self.words, self.head, self.highest) = (Self::words(self.size), 0, number);
        } else if number > self.highest {
            self.move_to(number);
        }
        let index = self.index_of(number);
        if let Some(word) = self.words.get_mut(index) {
            *word |= Self::bit(number);
        }
        Ok(())
    }

    fn forget(&mut self) {
        // Numbers end long before the highest there is.
        self.floor = self.highest.saturating_add(1);
        self.words = Box::default();
    }

    /// Makes `number`, which is higher than the highest, the highest, and clears the words between.
    fn move_to(&mut self, number: u64) {
        let blocks = (number >> LOG2).saturating_sub(self.highest >> LOG2);
        self.highest = number;
        let word_count = u32::try_from(self.words.len()).unwrap_or(u32::MAX);
        match u32::try_from(blocks) {
            Ok(blocks) if blocks < word_count => {
                for _ in 0..blocks {
                    self.head = if self.head.saturating_add(1) < word_count {
                        self.head.saturating_add(1)
                    } else {
                        0
                    };
                    if let Some(word) = self.words.get_mut(at(self.head)) {
                        *word = 0;
                    }
                }
            }
            _ => self.words.fill(0),
        }
    }

    /// Where the word of `number` is, which must be inside the window. No division: the distance to the head
    /// is short.
    fn index_of(&self, number: u64) -> usize {
        let blocks_back = (self.highest >> LOG2).saturating_sub(number >> LOG2);
        let blocks_back = usize::try_from(blocks_back).unwrap_or(usize::MAX);
        match at(self.head).checked_sub(blocks_back) {
            Some(index) => index,
            None => at(self.head).saturating_add(self.words.len()).saturating_sub(blocks_back),
        }
    }

    fn bit(number: u64) -> u64 {
        let in_word = number & (1_u64 << LOG2).saturating_sub(1);
        1 << in_word
    }
}

fn at(head: u32) -> usize {
    usize::try_from(head).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
