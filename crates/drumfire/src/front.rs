//! The application's side of all links: answers `send` at once, gathers what one tick sends, and takes reports
//! in.
//!
//! It belongs to one thread and does no I/O.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use drumfire_proto::limits::MESSAGE_MAX_BYTES;
use drumfire_proto::{ChannelId, CloseError, SendError, SendOptions};

use crate::credit::Credit;
use crate::link::{Command, Link, Report};
use crate::peer::PeerId;
use crate::stats::Stats;

/// Bytes of the longest text that goes with a close.
pub const CLOSE_TEXT_MAX_BYTES: usize = 128;

/// What the application's thread knows.
#[derive(Debug)]
pub(crate) struct Front {
    links: Vec<Arc<Link>>,
    /// Peers whose `Connected` was taken in and whose last report was not.
    peers: HashMap<PeerId, Arc<Credit>>,
    /// Commands since the last flush, per worker.
    staged: Vec<Vec<Command>>,
    incoming: VecDeque<Report>,
}

impl Front {
    pub(crate) fn new(links: Vec<Arc<Link>>) -> Self {
        let staged = links.iter().map(|_| Vec::new()).collect();
        Self { links, peers: HashMap::new(), staged, incoming: VecDeque::new() }
    }

    /// A client's attempt is a peer from its beginning.
    pub(crate) fn add(&mut self, peer: PeerId, credit: Arc<Credit>) {
        self.peers.insert(peer, credit);
    }

    pub(crate) fn send(
        &mut self,
        peer: PeerId,
        channel: ChannelId,
        bytes: Bytes,
        options: SendOptions,
    ) -> Result<(), SendError> {
        let credit = self.peers.get(&peer).ok_or(SendError::UnknownPeer)?;
        if credit.is_closed() {
            return Err(SendError::Closed);
        }
        if bytes.len() > MESSAGE_MAX_BYTES {
            return Err(SendError::TooLarge { limit_bytes: MESSAGE_MAX_BYTES });
        }
        let staged = self.staged.get_mut(peer.worker()).ok_or(SendError::UnknownPeer)?;
        if !credit.take(bytes.len()) {
            return Err(SendError::Full);
        }
        staged.push(Command::Send { peer, channel, bytes, options });
        Ok(())
    }

    pub(crate) fn close(&mut self, peer: PeerId, code: u32, text: &str) -> Result<(), CloseError> {
        let credit = self.peers.get(&peer).ok_or(CloseError::UnknownPeer)?;
        if text.len() > CLOSE_TEXT_MAX_BYTES {
            return Err(CloseError::TextTooLong { limit_bytes: CLOSE_TEXT_MAX_BYTES });
        }
        let staged = self.staged.get_mut(peer.worker()).ok_or(CloseError::UnknownPeer)?;
        if !credit.is_closed() {
            credit.close();
            staged.push(Command::Close { peer, code, text: Bytes::copy_from_slice(text.as_bytes()) });
        }
        Ok(())
    }

    /// Hands what was gathered to the workers.
    pub(crate) fn flush(&mut self) {
        for (link, staged) in self.links.iter().zip(&mut self.staged) {
            if !staged.is_empty() {
                link.command(staged);
            }
        }
    }

    /// Takes in what the workers reported; what it answers has to be taken whole.
    pub(crate) fn gather(&mut self) -> impl Iterator<Item = Report> {
        for link in &self.links {
            link.take_reports(&mut self.incoming);
        }
        let peers = &mut self.peers;
        self.incoming.drain(..).inspect(|report| match report {
            Report::Connected { peer, credit, .. } => {
                peers.insert(*peer, Arc::clone(credit));
            }
            Report::ConnectFailed { peer, .. } | Report::Disconnected { peer, .. } => {
                peers.remove(peer);
            }
            Report::Message { .. } => {}
        })
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats { workers: self.links.iter().map(|link| link.stats()).collect() }
    }

    pub(crate) fn links(&self) -> &[Arc<Link>] {
        &self.links
    }
}
