//! Another way to build a receiver, which a bench compares: one thread receives and sends every datagram through a bounded
//! channel to a second thread, which runs the same stages.
//!
//! Each datagram is copied once into a buffer of its own, as in other servers of this kind. Responses return through a channel,
//! because the socket belongs to the first thread. A full channel blocks the first thread, so that the kernel drops and counts
//! the excess. The command line has no flag for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver as Inbox, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use drumfire::worker::Wake;
use drumfire_proto::limits::DATAGRAM_SENT_MAX_BYTES;
use drumfire_socket::{
    DrainEnd, Fault, Io, Outgoing, ReceiveCounts, RecvBatch, SendBatch, SendMode, Sender, Socket,
};

use super::book::StageTotals;
use super::group::{ReadyWorker, WorkerTotals, arrivals};
use super::stages::{BUDGET, Parcel, ThreadStage};
use super::state::Shared;
use crate::clock;
use crate::host;

/// The capacity of the channel to the second thread, in datagrams.
const PARCELS: usize = 4_096;

/// The capacity of the channel back. Other responses wait in the batch of the second thread.
const ANSWERS: usize = 4_096;

/// Datagrams that are handled together, and responses that are sent together.
const BATCH: usize = 64;

/// The longest wait of the second thread before it checks for a session.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The socket of the second thread: it sends through the first thread, and receives nothing.
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
        self.shared.states[self.index].wake();
        Ok(count)
    }

    fn is_emptied_by_short_batch(&self) -> bool {
        false
    }

    fn enable_gro(&mut self) -> bool {
        false
    }
}

/// Receives until the group stops or the socket fails. The second thread runs on `core`, if there is one.
pub(super) fn run(ready: ReadyWorker, core: Option<usize>) -> WorkerTotals {
    let ReadyWorker { mut worker, mut poller, mut receiver, mut waiter, stage } = ready;
    let shared = Arc::clone(&worker.shared);
    let state = &shared.states[worker.index as usize];
    state.thread_id.store(host::current_thread_id().unwrap_or(0), Ordering::Release);
    let (outbox, inbox) = sync_channel(PARCELS);
    let (answers_outbox, answers) = sync_channel(ANSWERS);
    let index = worker.index as usize;
    let io = Answers { outbox: answers_outbox, shared: Arc::clone(&shared), index };
    let handler = start(Handler { stage, inbox, io, shared: Arc::clone(&shared), index }, core);
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
                // A second thread that has ended is found when it is joined.
                let _ = outbox.send(parcel);
            }
        });
        returning.send(&mut worker.socket);
        let new = arrivals(receiver.counts()) - before;
        waiter.on_pass(clock::now(), new);
        if new > 0 {
            state.on_pass(receiver.counts().datagrams, receiver.is_gro_on());
        }
        is_more_waiting = end.is_more_waiting();
        if let DrainEnd::Closed(error) = end {
            fault = Some(error);
            break;
        }
    }
    // The second thread handles the rest of the channel, and ends.
    drop((outbox, returning));
    let stage = handler.ok().and_then(|handler| handler.join().ok());
    if stage.is_none() {
        fault = Some(Fault::Other);
    }
    let stage: StageTotals = stage.unwrap_or_default();
    let counts = receiver.counts().clone();
    WorkerTotals { index: worker.index, counts, before: before_session, stage, fault }
}

/// Responses for the socket.
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

    /// Sends the responses that the channel holds.
    fn send(&mut self, socket: &mut Socket) {
        for _ in 0..ANSWERS.div_ceil(BATCH) {
            for (to, bytes) in self.inbox.try_iter().take(BATCH) {
                // The batch has room for `BATCH` datagrams of the largest size.
                let _ = self.batch.push(Some(to), &bytes);
            }
            if self.batch.is_empty() {
                return;
            }
            self.sender.flush(socket, &mut self.batch, |_| {});
            // A full socket counts as loss in the network.
            self.batch.clear();
        }
    }
}

/// The second thread.
struct Handler {
    stage: ThreadStage,
    inbox: Inbox<Parcel>,
    io: Answers,
    shared: Arc<Shared>,
    index: usize,
}

fn start(handler: Handler, core: Option<usize>) -> std::io::Result<JoinHandle<StageTotals>> {
    std::thread::Builder::new().name(format!("handler-{}", handler.index)).spawn(move || {
        if let Some(core) = core {
            // If this fails, the system chooses the core.
            let _ = host::pin_current_thread(core);
        }
        handler.run()
    })
}

impl Handler {
    fn run(mut self) -> StageTotals {
        let shared = Arc::clone(&self.shared);
        let state = &shared.states[self.index];
        state.handler_thread_id.store(host::current_thread_id().unwrap_or(0), Ordering::Release);
        let mut parcels = Vec::with_capacity(BATCH);
        loop {
            let at_most = self.stage.due_in().map_or(LOOK_EVERY, |due| due.min(LOOK_EVERY));
            match self.inbox.recv_timeout(at_most) {
                Ok(parcel) => parcels.push(parcel),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            parcels.extend(self.inbox.try_iter().take(BATCH - 1));
            if !self.stage.book().has_session()
                && let Some(session) = shared.session.get()
            {
                self.stage.begin(session);
                state.has_session.store(true, Ordering::Release);
            }
            let ours_before = self.stage.book().ours();
            self.stage.take_parcels(&mut parcels, &mut self.io);
            parcels.clear();
            if self.stage.book().ours() > ours_before {
                state.last_receive_ns.store(clock::host_ns(), Ordering::Relaxed);
            }
        }
        self.stage.into_totals()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::{Gro, SendMode as Send, Stage, Steer};
    use crate::receiver::{BoundReceiver, Observer, Outcome, Plan};
    use crate::sender::{self, SendPlan};

    const FLOWS: u32 = 8;

    fn run(stage: Stage) -> Outcome {
        let mut plan = Plan::new(([127, 0, 0, 1], 0).into());
        (plan.threads, plan.gro, plan.steer, plan.stage, plan.has_hop) =
            (1, Gro::Off, Steer::Hash, stage, true);
        let receiver = BoundReceiver::open(plan).expect("a free port");
        let to = vec![receiver.address()];
        let sender = std::thread::spawn(move || {
            let (size, rate, send, secs) = (128, 20_000, Send::Single, Duration::from_millis(200));
            let plan = SendPlan { to, threads: 1, flows: FLOWS, size, rate, send, secs, cores: Vec::new() };
            sender::run(&plan, &|| false)
        });
        let mut observer = Observer { on_second: &mut |_| {}, on_note: &mut |_| {}, is_stopped: &|| false };
        let outcome = receiver.serve(&mut observer).expect("two books");
        sender.join().expect("no panic").expect("the receiver has answered");
        outcome
    }

    #[test]
    fn a_second_thread_runs_every_stage_and_answers() {
        for stage in [Stage::Raw, Stage::Parse, Stage::Open, Stage::Deliver] {
            let outcome = run(stage);
            let (books, notes) = (&outcome.report.books, &outcome.report.notes);
            assert!(books.received > 0 && books.close(), "{stage}: {books:?}");
            assert!(notes.iter().any(|note| note.contains("second one")), "{notes:?}");
            if host::current_thread_id().is_some() {
                assert!(outcome.receiver_cpu().is_some(), "{stage}: both threads have a clock");
            }
            if stage.is_sealed() {
                // Without responses there would be no connection.
                let connections = format!("{FLOWS} connections");
                assert!(notes.iter().any(|note| note.contains(&connections)), "{notes:?}");
            }
        }
    }
}
