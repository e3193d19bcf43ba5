//! Large transfers: something of many megabytes as a run of messages on a channel of its own, sent as fast as there is room
//! and never in the way of anything more urgent.
//!
//! Each message is a piece of the whole and says where it belongs, so that a receiver needs no more memory than for one.
//! Sending is paced by the connection: [`Upload::step`] gives it what it takes now. Nothing here knows of files; the bytes come
//! from memory and go to whoever asked for them.
//!
//! ```
//! use drumfire::transfer::{Download, Upload};
//! use drumfire::{Bytes, ChannelId};
//!
//! let mut upload = Upload::new(ChannelId(7), Bytes::from(vec![5; 100_000]));
//! let (mut download, mut asset) = (Download::new(1 << 24), Vec::new());
//! // With a client: `upload.step(|message| client.send(message))`, after each poll.
//! let progress = upload.step(|message| {
//!     asset.extend_from_slice(download.take(&message.payload).expect("pieces of one transfer").bytes);
//!     Ok(())
//! })?;
//! assert!(progress.is_over() && download.progress().is_over());
//! assert_eq!(asset, [5; 100_000]);
//! # Ok::<(), drumfire::SendError>(())
//! ```

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use drumfire_proto::{ChannelId, Message, Priority, SendError};

/// Bytes of the head of each piece: the length of the whole, and where the piece begins.
const HEAD_BYTES: usize = 16;

/// Bytes of a piece: several fit a connection's memory and the peer's credit, so that one is under way while another is taken.
pub const PIECE_BYTES: usize = 16 * 1_024;

/// How far a transfer has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that were given to the connection, or came.
    pub done_bytes: u64,
    /// Bytes in all; 0 before the first piece came.
    pub total_bytes: u64,
    has_begun: bool,
}

impl Progress {
    /// Whether that is all: it has begun, and everything is done.
    #[must_use]
    pub const fn is_over(self) -> bool {
        self.has_begun && self.done_bytes == self.total_bytes
    }
}

/// Something large on its way out.
#[derive(Clone, Debug)]
pub struct Upload {
    channel: ChannelId,
    bytes: Bytes,
    sent_bytes: usize,
    has_begun: bool,
    priority: Priority,
}

impl Upload {
    /// Of these bytes, on a channel that nothing else uses until it is over, with the priority [`Priority::Bulk`].
    #[must_use]
    pub const fn new(channel: ChannelId, bytes: Bytes) -> Self {
        Self { channel, bytes, sent_bytes: 0, has_begun: false, priority: Priority::Bulk }
    }

    /// With another priority than [`Priority::Bulk`].
    #[must_use]
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Gives `send` as many pieces as are taken now; call it again after each `poll`. It stops without an error when the
    /// connection is full.
    ///
    /// # Errors
    /// What `send` answers beside [`SendError::Full`]; of the piece that met it nothing was taken.
    pub fn step(
        &mut self,
        mut send: impl FnMut(Message) -> Result<(), SendError>,
    ) -> Result<Progress, SendError> {
        while !self.progress().is_over() {
            let end = self.bytes.len().min(self.sent_bytes + PIECE_BYTES);
            let mut piece = BytesMut::with_capacity(HEAD_BYTES + end - self.sent_bytes);
            piece.put_u64(self.bytes.len() as u64);
            piece.put_u64(self.sent_bytes as u64);
            piece.put_slice(self.bytes.get(self.sent_bytes..end).unwrap_or_default());
            let message = Message::reliable_ordered(self.channel, piece.freeze());
            match send(message.priority(self.priority)) {
                Ok(()) => (self.sent_bytes, self.has_begun) = (end, true),
                Err(SendError::Full) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(self.progress())
    }

    /// What the connection has taken so far.
    #[must_use]
    pub const fn progress(&self) -> Progress {
        Progress {
            done_bytes: self.sent_bytes as u64,
            total_bytes: self.bytes.len() as u64,
            has_begun: self.has_begun,
        }
    }
}

/// Something large on its way in. It keeps no bytes: each piece is handed on as it comes.
#[derive(Clone, Copy, Debug)]
pub struct Download {
    progress: Progress,
    limit_bytes: u64,
}

/// A piece of a transfer, which follows on from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// How far the transfer has come with it.
    pub progress: Progress,
}

/// What came is not the next piece of this transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransferError {
    /// It is no piece at all, or not the one that is due: something else was sent on the channel.
    NotAPiece,
    /// The whole is longer than this end wants.
    TooLong {
        /// Bytes of the whole.
        total_bytes: u64,
    },
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAPiece => {
                f.write_str("not the next piece of the transfer: use a channel for nothing else")
            }
            Self::TooLong { total_bytes } => {
                write!(f, "a transfer of {total_bytes} bytes is longer than allowed")
            }
        }
    }
}

impl std::error::Error for TransferError {}

drumfire_proto::debug_with_display!(TransferError);

impl Download {
    /// Of at most so many bytes.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        Self { progress: Progress::default(), limit_bytes }
    }

    /// Takes the next message of the transfer's channel.
    ///
    /// # Errors
    /// [`TransferError`]; nothing has changed then.
    pub fn take<'a>(&mut self, message: &'a [u8]) -> Result<Piece<'a>, TransferError> {
        let (total, rest) = message.split_first_chunk().ok_or(TransferError::NotAPiece)?;
        let (begin, bytes) = rest.split_first_chunk().ok_or(TransferError::NotAPiece)?;
        let (total_bytes, begin) = (u64::from_be_bytes(*total), u64::from_be_bytes(*begin));
        if total_bytes > self.limit_bytes {
            return Err(TransferError::TooLong { total_bytes });
        }
        let Progress { done_bytes, total_bytes: known, has_begun } = self.progress;
        let end = begin.checked_add(bytes.len() as u64).filter(|end| *end <= total_bytes);
        let is_next = begin == done_bytes && (!has_begun || known == total_bytes) && !self.progress.is_over();
        let (true, Some(done_bytes)) = (is_next, end) else { return Err(TransferError::NotAPiece) };
        self.progress = Progress { done_bytes, total_bytes, has_begun: true };
        Ok(Piece { bytes, progress: self.progress })
    }

    /// What has come so far.
    #[must_use]
    pub const fn progress(&self) -> Progress {
        self.progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asset(bytes: usize) -> Bytes {
        (0..bytes).map(|at| (at.wrapping_mul(7) >> 4).to_le_bytes()[0]).collect::<Vec<_>>().into()
    }

    /// All pieces of something of this length.
    fn pieces(bytes: usize) -> Vec<Bytes> {
        let mut pieces = Vec::new();
        let mut upload = Upload::new(ChannelId(1), asset(bytes));
        let progress = upload.step(|message| {
            pieces.push(message.payload);
            Ok(())
        });
        assert!(progress.unwrap().is_over());
        pieces
    }

    #[test]
    fn what_comes_is_what_was_sent_whatever_its_length() {
        for bytes in [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 200_000] {
            let (mut download, mut got) = (Download::new(1 << 20), Vec::new());
            for piece in pieces(bytes) {
                assert!(!download.progress().is_over());
                got.extend_from_slice(download.take(&piece).unwrap().bytes);
            }
            assert!(download.progress().is_over() && got == asset(bytes), "{bytes}");
        }
    }

    #[test]
    fn a_full_connection_stops_it_and_it_goes_on_later() {
        let (mut room, mut got) = (0, 0);
        let mut upload = Upload::new(ChannelId(1), asset(100_000));
        for _ in 0..7 {
            room += 1;
            let progress = upload.step(|message| {
                if room == 0 {
                    return Err(SendError::Full);
                }
                room -= 1;
                got += message.payload.len() - HEAD_BYTES;
                Ok(())
            });
            assert_eq!(progress.unwrap().done_bytes, got as u64);
        }
        assert!(upload.progress().is_over());
        let closed = Upload::new(ChannelId(1), asset(1)).step(|_| Err(SendError::Closed));
        assert_eq!(closed, Err(SendError::Closed));
    }

    #[test]
    fn what_is_not_the_next_piece_is_refused_and_changes_nothing() {
        let pieces = pieces(50_000);
        let mut download = Download::new(50_000);
        assert_eq!(download.take(&pieces[1]), Err(TransferError::NotAPiece));
        assert!(download.take(&pieces[0]).is_ok());
        for wrong in [&pieces[0][..], &pieces[2], b"short", &[0; 16]] {
            assert_eq!(download.take(wrong), Err(TransferError::NotAPiece));
        }
        assert!(pieces[1..].iter().all(|piece| download.take(piece).is_ok()));
        assert_eq!(download.take(&pieces[0]), Err(TransferError::NotAPiece), "it is over");
        let too_long = Download::new(49_999).take(&pieces[0]);
        assert_eq!(too_long, Err(TransferError::TooLong { total_bytes: 50_000 }));
        let mut beyond = pieces[0].to_vec();
        beyond[8..16].copy_from_slice(&u64::MAX.to_be_bytes());
        assert_eq!(Download::new(u64::MAX).take(&beyond), Err(TransferError::NotAPiece));
    }
}
