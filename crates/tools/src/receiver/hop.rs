//! The other way to build a receiver, kept to be measured against: one thread receives and hands every datagram through a
//! bounded channel to a second one, which takes it through the very same stages.
//!
//! Each datagram is copied once into a buffer of its own, as in servers that are built so; what the stages send comes back
//! through a channel too, since the socket belongs to the first thread. A full channel holds the first thread up, so that
//! what is too much is dropped by the kernel and has its name in the books. It is no choice of the command line.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver as Inbox, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use drumfire::worker::Wake;
use drumfire_proto::limits::DATAGRAM_SENT_MAX_BYTES;
use drumfire_socket::{
    DatagramMut, DrainEnd, Fault, Io, LocalAddress, Outgoing, ReceiveCounts, RecvBatch, SendBatch, SendMode,
    Sender, Socket,
};

use super::engine::{BUDGET, Engine};
use super::ledger::StageTotals;
use super::worker::{Ready, Shared, WorkerTotals, arrivals};
use crate::clock;
use crate::host;

/// Datagrams on their way to the second thread.
const PARCELS: usize = 4_096;

/// Datagrams on their way back; what finds no room waits in the second thread's batch.
const ANSWERS: usize = 4_096;

/// Datagrams taken through the stages together, and answers sent together.
const BATCH: usize = 64;

/// How long the second thread waits at most: it looks then whether a session began.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A datagram on its way between the threads.
pub(super) struct Parcel {
    from: SocketAddr,
    local: LocalAddress,
    bytes: Vec<u8>,
}

impl Parcel {
    /// The datagram, as a socket would show it.
    pub(super) fn datagram(&mut self) -> DatagramMut<'_> {
        DatagramMut { from: self.from, local: self.local, bytes: &mut self.bytes }
    }
}

/// What the second thread has of the socket: it can send through the first thread, and receives nothing.
struct Answers {
    outbox: SyncSender<(SocketAddr, Vec<u8>)>,
    shared: Arc<Shared>,
    index: usize,
}

impl Io for Answers {
    fn recv(&mut self, _: &mut RecvBatch) -> Result<(), Fault> {
        Err(Fault::WouldBlock)
    }

    fn send(&mut self, outgoing: &mut Outgoing<'_>, _: SendMode) -> Result<usize, Fault> {
        let mut count = 0;
        for (to, bytes) in outgoing.datagrams() {
            let to = to.ok_or(Fault::InvalidArgument)?;
            if self.outbox.try_send((to, bytes.to_vec())).is_err() {
                break;
            }
            count += 1;
        }
        if count == 0 {
            return Err(Fault::WouldBlock);
        }
        self.shared.boards[self.index].wake();
        Ok(count)
    }

    fn is_emptied_by_short_batch(&self) -> bool {
        false
    }

    fn enable_gro(&mut self) -> bool {
        false
    }
}

/// Receives until the crew stops or the socket is gone; the stages are done beside it, on `core` where one is named.
pub(super) fn run(ready: Ready, core: Option<usize>) -> WorkerTotals {
    let Ready { mut worker, mut poller, mut receiver, mut waiter, engine } = ready;
    let shared = Arc::clone(&worker.shared);
    let board = &shared.boards[worker.index as usize];
    board.set_thread_id(host::current_thread_id().unwrap_or(0));
    let (outbox, inbox) = sync_channel(PARCELS);
    let (answers_outbox, answers) = sync_channel(ANSWERS);
    let index = worker.index as usize;
    let io = Answers { outbox: answers_outbox, shared: Arc::clone(&shared), index };
    let handler = start(Handler { engine, inbox, io, shared: Arc::clone(&shared), index }, core);
    let mut returning = Returning::new(answers, &worker.socket);
    let (mut before_session, mut has_session) = (ReceiveCounts::default(), false);
    let mut is_more_waiting = false;
    let mut fault = None;
    while !shared.is_stopping.load(Ordering::Acquire) {
        if let Err(error) = waiter.wait(&mut poller, None, is_more_waiting) {
            fault = Some(error);
            break;
        }
        if !has_session && shared.session.get().is_some() {
            (before_session, has_session) = (receiver.counts().clone(), true);
        }
        let before = arrivals(receiver.counts());
        let end = receiver.drain(&mut worker.socket, BUDGET, |received| {
            for datagram in received.datagrams() {
                let parcel =
                    Parcel { from: datagram.from, local: datagram.local, bytes: datagram.bytes.to_vec() };
                // A second thread that is gone is found when it is joined.
                let _ = outbox.send(parcel);
            }
        });
        returning.send(&mut worker.socket);
        let new = arrivals(receiver.counts()) - before;
        waiter.on_pass(clock::now(), new);
        if new > 0 {
            board.on_pass(receiver.counts().datagrams, receiver.is_gro_on());
        }
        is_more_waiting = end.is_more_waiting();
        if let DrainEnd::Closed(error) = end {
            fault = Some(error);
            break;
        }
    }
    // The second thread takes what is on its way, and ends.
    drop((outbox, returning));
    let stages = handler.ok().and_then(|handler| handler.join().ok());
    if stages.is_none() {
        fault = Some(Fault::Other);
    }
    let stages = stages.unwrap_or_default();
    WorkerTotals::new(worker.index, receiver.counts().clone(), before_session, stages, fault)
}

/// Answers on their way to the socket.
struct Returning {
    inbox: Inbox<(SocketAddr, Vec<u8>)>,
    batch: SendBatch,
    sender: Sender,
}

impl Returning {
    fn new(inbox: Inbox<(SocketAddr, Vec<u8>)>, socket: &Socket) -> Self {
        Self {
            inbox,
            batch: SendBatch::new(BATCH, BATCH * DATAGRAM_SENT_MAX_BYTES),
            sender: Sender::new(SendMode::best(socket.granted().has_gso)),
        }
    }

    /// Sends what came back, so much in one pass as the channel holds.
    fn send(&mut self, socket: &mut Socket) {
        for _ in 0..ANSWERS.div_ceil(BATCH) {
            for (to, bytes) in self.inbox.try_iter().take(BATCH) {
                // There is room: the batch was made for so many of the largest.
                let _ = self.batch.push(Some(to), &bytes);
            }
            if self.batch.is_empty() {
                return;
            }
            self.sender.flush(socket, &mut self.batch, |_| {});
            // What a full socket does not take is as if the network had lost it.
            self.batch.clear();
        }
    }
}

/// The second thread.
struct Handler {
    engine: Engine,
    inbox: Inbox<Parcel>,
    io: Answers,
    shared: Arc<Shared>,
    index: usize,
}

fn start(handler: Handler, core: Option<usize>) -> std::io::Result<JoinHandle<StageTotals>> {
    std::thread::Builder::new().name(format!("handler-{}", handler.index)).spawn(move || {
        if let Some(core) = core {
            // One of the plan's: where it cannot be had, the thread is wherever the system puts it.
            let _ = host::pin_current_thread(core);
        }
        handler.run()
    })
}

impl Handler {
    fn run(mut self) -> StageTotals {
        let shared = Arc::clone(&self.shared);
        let board = &shared.boards[self.index];
        board.set_handler_thread_id(host::current_thread_id().unwrap_or(0));
        let mut parcels = Vec::with_capacity(BATCH);
        loop {
            let at_most = self.engine.due_in().map_or(LOOK_EVERY, |due| due.min(LOOK_EVERY));
            match self.inbox.recv_timeout(at_most) {
                Ok(parcel) => parcels.push(parcel),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            parcels.extend(self.inbox.try_iter().take(BATCH - 1));
            if !self.engine.ledger().has_session()
                && let Some(session) = shared.session.get()
            {
                self.engine.begin(&session.ids, session.is_one_host);
                board.on_session();
            }
            let ours_before = self.engine.ledger().ours();
            self.engine.take_parcels(&mut parcels, &mut self.io);
            parcels.clear();
            if self.engine.ledger().ours() > ours_before {
                board.on_ours(clock::host_ns());
            }
        }
        self.engine.into_totals()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::{Gro, SendMode as Send, Stage, Steer};
    use crate::receiver::{Outcome, Plan, Station, Watch};
    use crate::sender;

    const FLOWS: u32 = 8;

    fn run(stage: Stage) -> Outcome {
        let mut plan = Plan::new(([127, 0, 0, 1], 0).into());
        (plan.threads, plan.gro, plan.steer, plan.stage, plan.has_hop) =
            (1, Gro::Off, Steer::Hash, stage, true);
        let station = Station::open(plan).expect("a free port");
        let to = vec![station.address()];
        let sender = std::thread::spawn(move || {
            let (size, rate, send, secs) = (128, 20_000, Send::Single, Duration::from_millis(200));
            let plan =
                sender::Plan { to, threads: 1, flows: FLOWS, size, rate, send, secs, cores: Vec::new() };
            sender::run(&plan, &|| false)
        });
        let mut watch = Watch { on_second: &mut |_| {}, on_note: &mut |_| {}, is_stopped: &|| false };
        let outcome = station.serve(&mut watch).expect("two books");
        sender.join().expect("no panic").expect("the receiver has answered");
        outcome
    }

    #[test]
    fn a_second_thread_takes_every_datagram_through_the_stages_and_answers_are_sent() {
        for stage in [Stage::Raw, Stage::Parse, Stage::Open, Stage::Deliver] {
            let outcome = run(stage);
            let books = &outcome.books;
            assert!(books.received > 0 && books.close(), "{stage}: {books:?}");
            assert!(outcome.notes.iter().any(|note| note.contains("second one")), "{:?}", outcome.notes);
            if host::current_thread_id().is_some() {
                assert!(outcome.receiver_cpu().is_some(), "{stage}: both threads have a clock");
            }
            if stage.is_sealed() {
                // Without its answers no connection would have come about.
                let connections = format!("{FLOWS} connections");
                assert!(outcome.notes.iter().any(|note| note.contains(&connections)), "{:?}", outcome.notes);
            }
        }
    }
}
