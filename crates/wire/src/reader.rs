//! A cursor over borrowed bytes: every decoder of this crate reads through it.
//!
//! It never indexes and never panics; what is not there is `None`. It deliberately knows no frame and no header.

use crate::varint::{self, VarintError};

/// The bytes not yet read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (array, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(array)
    }

    pub(crate) fn slice(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (slice, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(slice)
    }

    pub(crate) fn varint(&mut self) -> Result<u64, VarintError> {
        let (value, rest) = varint::decode(self.rest)?;
        self.rest = rest;
        Ok(value)
    }

    /// What was read since `earlier`, a copy of this reader taken before.
    pub(crate) fn since(self, earlier: Self) -> &'a [u8] {
        let read_bytes = earlier.rest.len().saturating_sub(self.rest.len());
        earlier.rest.get(..read_bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_read_leaves_the_cursor_where_it_was() {
        let mut reader = Reader::new(&[1, 2, 3]);
        assert_eq!(reader.slice(4), None);
        assert_eq!(reader.array::<4>(), None);
        assert_eq!(reader.rest(), [1, 2, 3]);
        assert_eq!(reader.slice(3), Some(&[1, 2, 3][..]));
        assert_eq!(reader.u8(), None);
        assert_eq!(reader.varint(), Err(VarintError::Truncated));
    }

    #[test]
    fn since_is_exactly_what_was_read() {
        let mut reader = Reader::new(&[1, 2, 3]);
        let before = reader;
        assert_eq!(reader.since(before), [0u8; 0]);
        reader.u8();
        assert_eq!(reader.array::<1>(), Some(&[2]));
        assert_eq!(reader.since(before), [1, 2]);
    }
}
