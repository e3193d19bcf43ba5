//! Forwarding of datagrams that belong to another worker. Each worker has a bounded ring, and a sender wakes it at most once
//! per pass.
//!
//! A client's Hello can arrive at any worker, so it is forwarded once per handshake. Packets are forwarded only if the kernel does not
//! steer them to their worker.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use drumfire_proto::{Endpoint, Forwarded, Now, Placement};

use crate::base::wake::Wake;

/// The largest number of datagrams that wait in the ring of a worker.
const RING_DATAGRAMS: usize = 256;

/// One worker's access to all rings: it receives from its own ring and sends into the others.
#[derive(Debug)]
pub struct ForwardQueue<W> {
    inbox: Receiver<Forwarded>,
    /// The rings of all workers, by index.
    rings: Vec<RingSender<W>>,
    /// The oldest datagram for which there was no room. Later datagrams wait in the endpoint, which drops and counts the excess.
    held: Option<Forwarded>,
}

/// The sending end of a worker's ring.
#[derive(Debug)]
struct RingSender<W> {
    sender: SyncSender<Forwarded>,
    worker: Arc<W>,
    /// Whether this pass has put a datagram into the ring, and has not woken the worker yet.
    is_owed_wake: bool,
}

/// Creates a ring for each worker, and returns each worker's access to all of them.
pub fn forward_queues<W>(workers: &[Arc<W>]) -> Vec<ForwardQueue<W>> {
    let ends: Vec<_> = workers.iter().map(|_| sync_channel(RING_DATAGRAMS)).collect();
    let senders: Vec<SyncSender<Forwarded>> = ends.iter().map(|(sender, _)| sender.clone()).collect();
    let rings = || {
        // Each worker has a sender for its own ring too, so that the index of a worker is the index of its ring in every
        // list.
        let ends = senders.iter().zip(workers);
        ends.map(|(sender, worker)| RingSender {
            sender: sender.clone(),
            worker: Arc::clone(worker),
            is_owed_wake: false,
        })
        .collect()
    };
    ends.into_iter().map(|(_, inbox)| ForwardQueue { inbox, rings: rings(), held: None }).collect()
}

impl<W: Wake> ForwardQueue<W> {
    /// Whether there are other workers.
    pub(crate) fn has_others(&self) -> bool {
        self.rings.len() > 1
    }

    /// Gives the endpoint the datagrams from other workers, and returns their number.
    pub fn receive<P: Placement>(&mut self, endpoint: &mut Endpoint<P>, now: Now) -> u64 {
        let mut count = 0;
        // The bound keeps a pass finite. Datagrams that arrive during this loop come with a wake-up, so they are not stranded.
        for forwarded in self.inbox.try_iter().take(RING_DATAGRAMS) {
            count += 1;
            endpoint.handle_forwarded(now, forwarded);
        }
        count
    }

    /// Sends the endpoint's forwarded datagrams to their workers. Returns whether a datagram waits for room.
    pub fn send<P: Placement>(&mut self, endpoint: &mut Endpoint<P>) -> bool {
        while let Some(forwarded) = self.held.take().or_else(|| endpoint.poll_forward()) {
            // The endpoint derives the index from the number of workers, so it is always in range.
            let Some(ring) = self.rings.get_mut(usize::from(forwarded.shard())) else { continue };
            match ring.sender.try_send(forwarded) {
                Ok(()) => ring.is_owed_wake = true,
                Err(TrySendError::Full(forwarded)) => {
                    // The endpoint cannot take the datagram back, so it is kept here. The full ring also delays
                    // datagrams for other workers, which wait in the endpoint.
                    self.held = Some(forwarded);
                    break;
                }
                // That worker has ended, and its connections with it.
                Err(TrySendError::Disconnected(_)) => {}
            }
        }
        // The wake-ups follow after all datagrams. One wake-up then serves all datagrams of this pass, and the woken
        // worker finds them.
        for ring in &mut self.rings {
            if std::mem::take(&mut ring.is_owed_wake) {
                ring.worker.wake();
            }
        }
        self.held.is_some()
    }
}
