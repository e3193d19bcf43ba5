//! The threads of a server: how they begin, ask for their shards, and end.
//!
//! Which shard belongs to which of them, and how it gets there while it serves, is the rota's business. No datagram goes through
//! here; while a shard is on its way, its socket keeps them.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use drumfire_socket::{Hub, Wait};

use super::plan::{Next, Post, Rota};
use super::shard::{Place, Shard};
use super::thread::Thread;
use crate::base::clock::SystemClock;
use crate::base::error::BindError;
use crate::base::sync::thread::{self, JoinHandle};
use crate::base::sync::{Call, Mutex, MutexGuard, lock};
use crate::engine::port_monitor::Lookout;

/// The threads of a server.
pub(crate) struct Roster {
    pub(super) wait: Wait,
    pub(super) clock: SystemClock,
    rota: Mutex<Rota<Shard>>,
    /// Where the port is shared.
    lookout: Option<Lookout>,
    #[cfg(test)]
    pub(super) trap: super::tests::Trap,
}

impl Roster {
    /// Starts so many threads with these shards, and waits until all of them are ready.
    pub(super) fn start(
        wait: Wait,
        clock: SystemClock,
        places: Vec<Place>,
        threads: u16,
        lookout: Option<Lookout>,
    ) -> Result<Arc<Self>, BindError> {
        let threads = usize::from(threads);
        let rota = Rota::new(places.len(), threads);
        let mut seats: Vec<Vec<Place>> = (0..threads).map(|_| Vec::new()).collect();
        for (place, home) in places.into_iter().zip(rota.homes()) {
            if let Some(seats) = seats.get_mut(*home) {
                seats.push(place);
            }
        }
        let roster = Arc::new(Self {
            wait,
            clock,
            rota: Mutex::new(rota),
            lookout,
            #[cfg(test)]
            trap: super::tests::Trap::default(),
        });
        for (me, places) in seats.into_iter().enumerate() {
            let hired = roster.hire(&mut roster.rota(), me, places);
            if let Err(error) = hired {
                // Every thread ends when one cannot start.
                roster.stop(0);
                return Err(error);
            }
        }
        Ok(roster)
    }

    /// Spreads the shards evenly over so many threads. What cannot be started is answered before anything moves.
    pub(super) fn set_threads(self: &Arc<Self>, threads: u16) -> Result<(), BindError> {
        self.rota().spread(threads.into(), |rota, me| self.hire(rota, me, Vec::new()))
    }

    /// How many shards each thread drives that runs.
    pub(super) fn driven(&self) -> Vec<u16> {
        self.rota().driven()
    }

    pub(super) fn foreign_sockets(&self) -> Option<usize> {
        self.lookout.as_ref()?.count()
    }

    /// Ends all threads; their shards say goodbye with this application code, also those that were on their way.
    pub(super) fn stop(&self, goodbye: u32) {
        self.lookout.iter().for_each(Lookout::end);
        let handles = self.rota().stop(goodbye);
        // The last hand on a server may be let go by a task that one of these threads has woken: that one ends by itself.
        let me = thread::current().id();
        for handle in handles.into_iter().filter(|handle| handle.thread().id() != me) {
            // Every panic is caught there; one that was not has nothing more to end.
            let _ = handle.join();
        }
        self.lookout.iter().for_each(Lookout::join);
    }

    /// What a thread that was called does next, and with which shards.
    pub(super) fn settle(&self, me: usize, shards: &mut Vec<Shard>, hub: &Hub) -> Next {
        self.rota().settle(me, shards, |shard| shard.leave(hub))
    }

    /// Starts a thread and waits until it has taken its places.
    fn hire(
        self: &Arc<Self>,
        rota: &mut Rota<Shard>,
        me: usize,
        places: Vec<Place>,
    ) -> Result<(), BindError> {
        let (outbox, inbox) = sync_channel(1);
        let (roster, call) = (Arc::clone(self), Arc::new(Call::default()));
        // One that begins asks first.
        call.set();
        let (of_thread, driven) = (Arc::clone(&call), places.len());
        let waker = places.first().map(|place| Arc::clone(&place.link));
        let handle = thread::Builder::new().name(format!("drumfire-{me}")).spawn(move || {
            // Whoever hires waits for this answer, so it is there to take it.
            match Thread::new(me, roster, of_thread, places) {
                Ok(thread) => {
                    let _ = outbox.send(Ok(()));
                    thread.run();
                }
                Err(error) => {
                    let _ = outbox.send(Err(error));
                }
            }
        })?;
        let ended = || Err(BindError::Io(std::io::Error::other("a worker's thread ended before it began")));
        inbox.recv().unwrap_or_else(|_| ended())?;
        let before = rota.fill(me, Post::new(call, handle, waker, driven));
        let _ = before.map(JoinHandle::join);
        Ok(())
    }

    fn rota(&self) -> MutexGuard<'_, Rota<Shard>> {
        // A thread that panicked between two lines there has its shards still, or has given them away.
        lock(&self.rota)
    }
}
