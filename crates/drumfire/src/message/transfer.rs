//! Transfers of many megabytes as a series of messages on a channel of their own. They use the room that more urgent messages leave.
//!
//! Each message is a chunk with its position, so a receiver needs memory for one chunk only. The connection paces the upload:
//! [`Upload::step`] sends the chunks that it accepts now. The uploaded bytes are in memory. The receiver stores the bytes of each chunk.
//!
//! ```
//! use drumfire::transfer::{Download, Upload};
//! use drumfire::{Bytes, ChannelId};
//!
//! let mut upload = Upload::new(ChannelId(7), Bytes::from(vec![5; 100_000]));
//! let (mut download, mut asset) = (Download::new(1 << 24), Vec::new());
//! // With a client: `upload.step(|message| client.send(peer, message))`, after each poll.
//! let progress = upload.step(|message| {
//!     asset.extend_from_slice(download.take(&message.payload).expect("chunks of one transfer").bytes);
//!     Ok(())
//! })?;
//! assert!(progress.is_over() && download.progress().is_over());
//! assert_eq!(asset, [5; 100_000]);
//! # Ok::<(), drumfire::SendError>(())
//! ```

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use drumfire_proto::{ChannelId, Message, Priority, SendError};

/// The length of the header of each chunk in bytes: the total length, and the position of the chunk.
const HEADER_BYTES: usize = 16;

/// The length of a chunk in bytes. Several fit in a connection's memory and the peer's credit, so that one is in flight while the next
/// one is queued.
pub const CHUNK_BYTES: usize = 16 * 1_024;

/// The progress of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The bytes that the connection has accepted, or that have arrived.
    pub done_bytes: u64,
    /// The total number of bytes. It is 0 until the first chunk arrives.
    pub total_bytes: u64,
    has_begun: bool,
}

impl Progress {
    /// Returns whether the transfer is complete.
    #[must_use]
    pub const fn is_over(self) -> bool {
        self.has_begun && self.done_bytes == self.total_bytes
    }
}

/// A transfer of many bytes to one peer, in chunks.
#[derive(Clone, Debug)]
pub struct Upload {
    channel: ChannelId,
    bytes: Bytes,
    sent_bytes: usize,
    has_begun: bool,
    priority: Priority,
}

impl Upload {
    /// Creates a transfer of these bytes with [`Priority::Bulk`]. Until the transfer is complete, nothing else may be sent on the channel.
    #[must_use]
    pub const fn new(channel: ChannelId, bytes: Bytes) -> Self {
        Self { channel, bytes, sent_bytes: 0, has_begun: false, priority: Priority::Bulk }
    }

    /// Sets another priority than [`Priority::Bulk`].
    #[must_use]
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Passes chunks to `send` until the transfer is complete or `send` returns [`SendError::Full`]. Call it again after each `poll`.
    ///
    /// # Errors
    ///
    /// The error of `send`, except for [`SendError::Full`]. The chunk with the error is not sent.
    pub fn step(
        &mut self,
        mut send: impl FnMut(Message) -> Result<(), SendError>,
    ) -> Result<Progress, SendError> {
        while !self.progress().is_over() {
            let end = self.bytes.len().min(self.sent_bytes + CHUNK_BYTES);
            let mut chunk = BytesMut::with_capacity(HEADER_BYTES + end - self.sent_bytes);
            chunk.put_u64(self.bytes.len() as u64);
            chunk.put_u64(self.sent_bytes as u64);
            chunk.put_slice(self.bytes.get(self.sent_bytes..end).unwrap_or_default());
            let message = Message::reliable_ordered(self.channel, chunk.freeze());
            match send(message.priority(self.priority)) {
                Ok(()) => (self.sent_bytes, self.has_begun) = (end, true),
                Err(SendError::Full) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(self.progress())
    }

    /// Returns the progress, which counts the bytes that the connection has accepted so far.
    #[must_use]
    pub const fn progress(&self) -> Progress {
        Progress {
            done_bytes: self.sent_bytes as u64,
            total_bytes: self.bytes.len() as u64,
            has_begun: self.has_begun,
        }
    }
}

/// An incoming transfer. It keeps no bytes: [`Download::take`] returns each chunk as it arrives.
#[derive(Clone, Copy, Debug)]
pub struct Download {
    progress: Progress,
    limit_bytes: u64,
}

/// A chunk of a transfer. It follows the previous one without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// The bytes of the chunk.
    pub bytes: &'a [u8],
    /// The progress of the transfer, including this chunk.
    pub progress: Progress,
}

/// A message that is not the next chunk of the transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransferError {
    /// The message is not a chunk, or not the next one: something else was sent on the channel.
    NotNextChunk,
    /// The transfer is longer than the limit of this end.
    TooLong {
        /// The total number of bytes.
        total_bytes: u64,
    },
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotNextChunk => f.write_str(
                "not the next chunk of the transfer: send nothing else on the channel of a transfer",
            ),
            Self::TooLong { total_bytes } => {
                write!(f, "a transfer of {total_bytes} bytes is longer than allowed")
            }
        }
    }
}

impl std::error::Error for TransferError {}

drumfire_proto::debug_with_display!(TransferError);

impl Download {
    /// Creates a download that accepts at most `limit_bytes`.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        Self { progress: Progress::default(), limit_bytes }
    }

    /// Takes the next message of the transfer's channel.
    ///
    /// # Errors
    ///
    /// [`TransferError`] if it is not the next chunk. The progress does not change.
    pub fn take<'a>(&mut self, message: &'a [u8]) -> Result<Chunk<'a>, TransferError> {
        let (total, rest) = message.split_first_chunk().ok_or(TransferError::NotNextChunk)?;
        let (begin, bytes) = rest.split_first_chunk().ok_or(TransferError::NotNextChunk)?;
        let (total_bytes, begin) = (u64::from_be_bytes(*total), u64::from_be_bytes(*begin));
        if total_bytes > self.limit_bytes {
            return Err(TransferError::TooLong { total_bytes });
        }
        let Progress { done_bytes, total_bytes: known, has_begun } = self.progress;
        let end = begin.checked_add(bytes.len() as u64).filter(|end| *end <= total_bytes);
        let is_next = begin == done_bytes && (!has_begun || known == total_bytes) && !self.progress.is_over();
        let (true, Some(done_bytes)) = (is_next, end) else { return Err(TransferError::NotNextChunk) };
        self.progress = Progress { done_bytes, total_bytes, has_begun: true };
        Ok(Chunk { bytes, progress: self.progress })
    }

    /// Returns the progress, which counts the bytes that have arrived so far.
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

    /// Returns all chunks of a transfer of this length.
    fn chunks(bytes: usize) -> Vec<Bytes> {
        let mut chunks = Vec::new();
        let mut upload = Upload::new(ChannelId(1), asset(bytes));
        let progress = upload.step(|message| {
            chunks.push(message.payload);
            Ok(())
        });
        assert!(progress.unwrap().is_over());
        chunks
    }

    #[test]
    fn transfers_of_any_length_arrive_unchanged() {
        for bytes in [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 200_000] {
            let (mut download, mut received) = (Download::new(1 << 20), Vec::new());
            for chunk in chunks(bytes) {
                assert!(!download.progress().is_over());
                received.extend_from_slice(download.take(&chunk).unwrap().bytes);
            }
            assert!(download.progress().is_over() && received == asset(bytes), "{bytes}");
        }
    }

    #[test]
    fn a_transfer_pauses_while_the_connection_is_full() {
        let (mut room, mut received) = (0, 0);
        let mut upload = Upload::new(ChannelId(1), asset(100_000));
        for _ in 0..7 {
            room += 1;
            let progress = upload.step(|message| {
                if room == 0 {
                    return Err(SendError::Full);
                }
                room -= 1;
                received += message.payload.len() - HEADER_BYTES;
                Ok(())
            });
            assert_eq!(progress.unwrap().done_bytes, received as u64);
        }
        assert!(upload.progress().is_over());
        let closed = Upload::new(ChannelId(1), asset(1)).step(|_| Err(SendError::Closed));
        assert_eq!(closed, Err(SendError::Closed));
    }

    #[test]
    fn a_message_that_is_not_the_next_chunk_is_refused() {
        let chunks = chunks(50_000);
        let mut download = Download::new(50_000);
        assert_eq!(download.take(&chunks[1]), Err(TransferError::NotNextChunk));
        assert!(download.take(&chunks[0]).is_ok());
        for wrong in [&chunks[0][..], &chunks[2], b"short", &[0; 16]] {
            assert_eq!(download.take(wrong), Err(TransferError::NotNextChunk));
        }
        assert!(chunks[1..].iter().all(|chunk| download.take(chunk).is_ok()));
        assert_eq!(download.take(&chunks[0]), Err(TransferError::NotNextChunk), "the transfer is complete");
        let too_long = Download::new(49_999).take(&chunks[0]);
        assert_eq!(too_long, Err(TransferError::TooLong { total_bytes: 50_000 }));
        let mut beyond = chunks[0].to_vec();
        beyond[8..16].copy_from_slice(&u64::MAX.to_be_bytes());
        assert_eq!(Download::new(u64::MAX).take(&beyond), Err(TransferError::NotNextChunk));
    }
}
