//! A received message as the train of datagrams it is: with GRO the kernel hands over several datagrams of one
//! sender at once, all of one length but the last, which may be shorter.
//!
//! Splitting is arithmetic on lengths only. Each segment is a datagram of its own and is routed on its own.
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

use std::net::SocketAddr;

use crate::LocalAddress;

/// One message from the kernel: one datagram, or several of one sender in a row.
#[derive(Clone, Copy, Debug)]
pub struct Train<'a> {
    /// The sender's address, as the socket reported it.
    pub from: SocketAddr,
    /// Which of the host's addresses it came to, on a socket bound to an unspecified one.
    pub local: LocalAddress,
    /// The datagrams, end to end. Never empty.
    pub bytes: &'a [u8],
    /// Length of each datagram but the last, which may be shorter. At least 1.
    pub segment_bytes: usize,
}

impl<'a> Train<'a> {
    /// How many datagrams the train holds, at least one.
    #[must_use]
    pub fn datagram_count(&self) -> usize {
        segment_count(self.bytes.len(), self.segment_bytes)
    }

    /// The datagrams, in the order in which they were sent.
    #[must_use]
    pub fn segments(&self) -> Segments<'a> {
        Segments { rest: self.bytes, segment_bytes: self.segment_bytes.max(1) }
    }

    /// The first datagram.
    #[must_use]
    pub fn first(&self) -> &'a [u8] {
        self.bytes.get(..self.segment_bytes).unwrap_or(self.bytes)
    }

    /// The last datagram.
    #[must_use]
    pub fn last(&self) -> &'a [u8] {
        let before = self.datagram_count().saturating_sub(1).saturating_mul(self.segment_bytes);
        self.bytes.get(before..).unwrap_or_default()
    }
}

/// The datagrams of a [`Train`].
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    rest: &'a [u8],
    segment_bytes: usize,
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let (segment, rest) = self.rest.split_at_checked(self.segment_bytes).unwrap_or((self.rest, &[]));
        self.rest = rest;
        Some(segment)
    }
}

/// Number of datagrams in `bytes` cut every `segment_bytes`; 1 for an empty message.
pub(crate) fn segment_count(bytes: usize, segment_bytes: usize) -> usize {
    if bytes <= segment_bytes { 1 } else { bytes.div_ceil(segment_bytes.max(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn train(bytes: &[u8], segment_bytes: usize) -> Train<'_> {
        let from = "127.0.0.1:1".parse().expect("an address");
        Train { from, local: LocalAddress::ANY, bytes, segment_bytes }
    }

    #[test]
    fn a_train_splits_by_its_stride_and_the_last_may_be_short() {
        let bytes: Vec<u8> = (0..=255).collect();
        for stride in 1..=256 {
            for length in 1..=bytes.len() {
                let train = train(&bytes[..length], stride);
                let segments: Vec<&[u8]> = train.segments().collect();
                assert_eq!(segments.concat(), &bytes[..length]);
                assert_eq!(segments.len(), train.datagram_count());
                assert_eq!(segments[0], train.first());
                assert_eq!(segments[segments.len() - 1], train.last());
                assert!(segments[..segments.len() - 1].iter().all(|segment| segment.len() == stride));
            }
        }
    }

    #[test]
    fn a_stride_of_zero_still_ends() {
        assert_eq!(train(b"abc", 0).segments().count(), 3);
        assert_eq!(train(b"abc", 0).datagram_count(), 3);
    }
}
