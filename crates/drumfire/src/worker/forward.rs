//! Datagrams that belong to another worker: a bounded ring into each, with one wake-up per pass.
//!
//! Hellos travel here once per handshake. A packet does only where the kernel has no steering filter.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use drumfire_proto::{Endpoint, Forwarded, Now, Placement};

use crate::base::wake::Wake;

/// Datagrams that wait in the ring into one worker, at most.
const RING_DATAGRAMS: usize = 256;

/// One worker's end of all rings.
#[derive(Debug)]
pub struct ForwardQueue<W> {
    inbox: Receiver<Forwarded>,
    outboxes: Vec<Outbox<W>>,
    /// The oldest datagram for which there was no room. Those behind it wait in the endpoint, and are counted
    /// as dropped there when they are too many.
    held: Option<Forwarded>,
}

#[derive(Debug)]
struct Outbox<W> {
    sender: SyncSender<Forwarded>,
    worker: Arc<W>,
    is_owed_wake: bool,
}

/// A ring for each worker, from all others.
pub fn forward_queues<W>(workers: &[Arc<W>]) -> Vec<ForwardQueue<W>> {
    let ends: Vec<_> = workers.iter().map(|_| sync_channel(RING_DATAGRAMS)).collect();
    let senders: Vec<SyncSender<Forwarded>> = ends.iter().map(|(sender, _)| sender.clone()).collect();
    let outboxes = || {
        let ends = senders.iter().zip(workers);
        ends.map(|(sender, worker)| Outbox {
            sender: sender.clone(),
            worker: Arc::clone(worker),
            is_owed_wake: false,
        })
        .collect()
    };
    ends.into_iter().map(|(_, inbox)| ForwardQueue { inbox, outboxes: outboxes(), held: None }).collect()
}

impl<W: Wake> ForwardQueue<W> {
    /// Takes in what other workers sent; answers how much that was.
    pub fn receive<P: Placement>(&mut self, endpoint: &mut Endpoint<P>, now: Now) -> u64 {
        let mut count = 0;
        // As many as there were room for: what comes meanwhile has its own wake-up.
        for forwarded in self.inbox.try_iter().take(RING_DATAGRAMS) {
            count += 1;
            endpoint.handle_forwarded(now, forwarded);
        }
        count
    }

    /// Gives other workers what is theirs. Answers whether something had to wait.
    pub fn send<P: Placement>(&mut self, endpoint: &mut Endpoint<P>) -> bool {
        while let Some(forwarded) = self.held.take().or_else(|| endpoint.poll_forward()) {
            // An id that names no worker cannot be: the endpoint takes it modulo their number.
            let Some(outbox) = self.outboxes.get_mut(usize::from(forwarded.shard())) else { continue };
            match outbox.sender.try_send(forwarded) {
                Ok(()) => outbox.is_owed_wake = true,
                Err(TrySendError::Full(forwarded)) => {
                    self.held = Some(forwarded);
                    break;
                }
                // That worker is gone, and its connections with it.
                Err(TrySendError::Disconnected(_)) => {}
            }
        }
        for outbox in &mut self.outboxes {
            if std::mem::take(&mut outbox.is_owed_wake) {
                outbox.worker.wake();
            }
        }
        self.held.is_some()
    }
}
