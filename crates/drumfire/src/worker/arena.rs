//! The memory of messages on their way to the application: a few large pieces, which messages share.
//!
//! A piece is used again when the application has dropped all messages in it. If the application keeps one, the piece is replaced by a
//! new one, and stays allocated as long as that message.

use bytes::{Bytes, BytesMut};

/// The bytes of one piece.
const PIECE_BYTES: usize = 64 * 1_024;

/// The maximum number of full pieces that are kept to be used again. Other full pieces stay allocated only while the application holds
/// messages in them.
const PIECES: usize = 4;

/// The pieces of one worker.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    current: BytesMut,
    /// Full pieces, oldest first.
    full: Vec<BytesMut>,
}

impl Arena {
    /// Copies a payload into the current piece.
    pub(crate) fn copy(&mut self, payload: &[u8]) -> Bytes {
        self.copy_parts(payload, &[])
    }

    /// Copies a payload in two parts.
    pub(crate) fn copy_parts(&mut self, head: &[u8], tail: &[u8]) -> Bytes {
        let payload_bytes = head.len().saturating_add(tail.len());
        // An empty payload needs no memory, and must not keep a piece from being used again.
        if payload_bytes == 0 {
            return Bytes::new();
        }
        if self.current.capacity() < payload_bytes {
            self.next_piece(PIECE_BYTES.max(payload_bytes));
        }
        self.current.extend_from_slice(head);
        self.current.extend_from_slice(tail);
        self.current.split().freeze()
    }

    /// Replaces the current piece by one whose messages were all dropped, or by a new one.
    fn next_piece(&mut self, bytes: usize) {
        // The current piece may be free itself.
        if self.current.try_reclaim(bytes) {
            return;
        }
        let place = self.full.iter_mut().position(|piece| piece.try_reclaim(bytes));
        let next = match place {
            Some(place) => self.full.remove(place),
            None => BytesMut::with_capacity(bytes),
        };
        // The oldest piece leaves the list. The messages in it keep it allocated, and the last of them frees it.
        if self.full.len() == PIECES {
            self.full.remove(0);
        }
        self.full.push(std::mem::replace(&mut self.current, next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointers(arena: &mut Arena, count: usize) -> Vec<*const u8> {
        (0..count).map(|_| arena.copy(&[1; 1_000]).as_ptr()).collect()
    }

    #[test]
    fn a_piece_is_used_again_when_its_messages_are_dropped() {
        let mut arena = Arena::default();
        let first = pointers(&mut arena, 65);
        let second = pointers(&mut arena, 65);
        assert_eq!(first, second);
    }

    #[test]
    fn messages_that_are_kept_do_not_change() {
        let mut arena = Arena::default();
        let kept: Vec<Bytes> =
            (0..2_000_u32).map(|number| arena.copy(&number.to_be_bytes().repeat(100))).collect();
        for (number, bytes) in (0_u32..).zip(&kept) {
            assert_eq!(bytes, &number.to_be_bytes().repeat(100));
        }
        assert!(arena.full.len() <= PIECES);
    }

    #[test]
    fn one_kept_message_per_batch_does_not_use_up_pieces() {
        let mut arena = Arena::default();
        let mut held = arena.copy(b"x");
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1_000 {
            let next = arena.copy(&[2; 1_000]);
            seen.insert(next.as_ptr() as usize / PIECE_BYTES);
            held = next;
        }
        drop(held);
        assert!(seen.len() <= 2 * PIECES, "{} pieces are in use", seen.len());
    }

    #[test]
    fn a_message_longer_than_a_piece_gets_its_own() {
        let mut arena = Arena::default();
        let long = vec![3; PIECE_BYTES + 1];
        assert_eq!(arena.copy(&long), long);
        assert_eq!(arena.copy(b""), Bytes::new());
    }
}
