//! Models of tasks and their worker: no task misses a wake-up, and the end of a connection or worker reaches all tasks.

use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use drumfire_proto::{ChannelId, CloseCode, CloseReason, PeerId, Priority};

use super::accept_queue::AcceptQueue;
use super::connection::Connection;
use super::senders::{QueuePosition, Senders};
use super::shared::Shared;
use super::task_queues::TaskQueues;
use crate::base::sync::models::{check, check_in_part, run};
use crate::base::sync::thread;
use crate::message::event::{Closed, Event, PeerInfo};
use crate::worker::channel::{WorkerChannel, tests};
use crate::worker::credit::{Credit, charge};

const RECEIVE_MEMORY_BYTES: usize = 65_536;

/// Returns a connection whose worker channel has no waker, because no worker runs behind it.
fn connection(peer: PeerId) -> Arc<Shared> {
    let queues =
        Arc::new(TaskQueues::new(&Arc::new(WorkerChannel::new(Arc::default())), RECEIVE_MEMORY_BYTES));
    let credit = Arc::new(Credit::new(charge(0), 1_200));
    let address = "192.0.2.1:1".parse().unwrap();
    let info = PeerInfo::new(address);
    Arc::new(Shared::new(&queues, peer, info, credit))
}

fn closed() -> Closed {
    let reason = CloseReason::Local { code: CloseCode::Internal, application_code: 0 };
    Closed::new(reason, Bytes::new())
}

/// Ends a connection as its worker does.
fn end(shared: &Shared) {
    shared.on_end(closed());
    shared.wake();
}

/// Returns an accept queue, and the thread of a worker that adds one connection and then ends.
fn lobby_of_one(peer: PeerId) -> (Arc<AcceptQueue>, thread::JoinHandle<()>) {
    let accept_queue = Arc::new(AcceptQueue::default());
    accept_queue.begin();
    let (of_worker, arrival) = (Arc::clone(&accept_queue), Connection::new(connection(peer)));
    let worker = thread::spawn(move || {
        of_worker.enter(arrival);
        of_worker.wake();
        of_worker.end();
    });
    (accept_queue, worker)
}

#[test]
fn interleavings_of_an_arrival_and_the_end_keep_their_order() {
    let peer = tests::peer();
    check(move || {
        let (accept_queue, worker) = lobby_of_one(peer);
        assert!(run(accept_queue.accept()).is_some() && run(accept_queue.accept()).is_none());
        worker.join().unwrap();
    });
}

#[test]
fn interleavings_of_an_arrival_and_the_end_wake_both_accepts() {
    let peer = tests::peer();
    check_in_part(move || {
        let (accept_queue, worker) = lobby_of_one(peer);
        let of_other = Arc::clone(&accept_queue);
        let other = thread::spawn(move || run(of_other.accept()));
        let accepted = [run(accept_queue.accept()), other.join().unwrap()];
        worker.join().unwrap();
        assert_eq!(accepted.iter().flatten().count(), 1);
    });
}

#[test]
fn interleavings_of_two_arrivals_in_one_pass_wake_both_accepts() {
    let peer = tests::peer();
    check_in_part(move || {
        let accept_queue = Arc::new(AcceptQueue::default());
        accept_queue.begin();
        let arrivals = [Connection::new(connection(peer)), Connection::new(connection(peer))];
        let of_worker = Arc::clone(&accept_queue);
        let worker = thread::spawn(move || {
            arrivals.into_iter().for_each(|arrival| of_worker.enter(arrival));
            of_worker.wake();
        });
        let of_other = Arc::clone(&accept_queue);
        let other = thread::spawn(move || run(of_other.accept()));
        assert!(run(accept_queue.accept()).is_some() && other.join().unwrap().is_some());
        worker.join().unwrap();
    });
}

#[test]
fn interleavings_of_a_message_and_the_end_keep_their_order() {
    let peer = tests::peer();
    check(move || {
        let shared = connection(peer);
        let of_worker = Arc::clone(&shared);
        let worker = thread::spawn(move || {
            of_worker.inbox().push(ChannelId(0), b"x");
            of_worker.wake();
            end(&of_worker);
        });
        let message = Event::Message { peer, channel: ChannelId(0), payload: Bytes::from_static(b"x") };
        assert_eq!(run(shared.next_event()), Ok(message));
        assert_eq!(run(shared.next_event()), Err(closed()));
        worker.join().unwrap();
    });
}

#[test]
fn interleavings_of_an_end_wake_next_event_and_closed() {
    let peer = tests::peer();
    check(move || {
        let shared = connection(peer);
        let of_worker = Arc::clone(&shared);
        let worker = thread::spawn(move || end(&of_worker));
        let of_other = Arc::clone(&shared);
        let other = thread::spawn(move || run(of_other.closed()));
        assert_eq!(run(shared.next_event()), Err(closed()));
        assert_eq!(other.join().unwrap(), closed());
        worker.join().unwrap();
    });
}

#[test]
fn interleavings_of_a_stats_request_and_the_end_always_complete() {
    let peer = tests::peer();
    check(move || {
        let shared = connection(peer);
        let of_worker = Arc::clone(&shared);
        let worker = thread::spawn(move || end(&of_worker));
        assert_eq!(run(shared.stats()).map(drop), Err(closed()));
        worker.join().unwrap();
    });
}

/// Returns a credit for two messages, with all its room taken, and the senders that it wakes.
fn full() -> (Arc<Senders>, Arc<Credit>) {
    let (senders, credit) = (Arc::new(Senders::default()), Arc::new(Credit::new(2 * charge(0), 1_200)));
    credit.set_waiter(Waker::from(Arc::clone(&senders)));
    assert!(credit.take(0, Priority::Normal) && credit.take(0, Priority::Normal));
    (senders, credit)
}

/// Waits for room and takes it, as a task that sends does.
fn take(senders: &Senders, credit: &Credit) {
    let standing = QueuePosition { priority: Priority::Normal, must_wait: true };
    let offer = || credit.take(0, Priority::Normal).then_some(());
    run(senders.wait(credit, standing, 0, offer));
}

#[test]
fn interleavings_of_returned_room_wake_the_first_sender() {
    check(|| {
        let (senders, credit) = full();
        let of_worker = Arc::clone(&credit);
        let worker = thread::spawn(move || of_worker.give(0));
        take(&senders, &credit);
        worker.join().unwrap();
        assert_eq!(credit.used_bytes(), 2 * charge(0));
    });
}

#[test]
fn interleavings_of_returned_room_serve_all_senders() {
    check_in_part(|| {
        let (senders, credit) = full();
        let (of_other, its_credit) = (Arc::clone(&senders), Arc::clone(&credit));
        let other = thread::spawn(move || take(&of_other, &its_credit));
        let of_worker = Arc::clone(&credit);
        let worker = thread::spawn(move || {
            of_worker.give(0);
            of_worker.give(0);
        });
        take(&senders, &credit);
        other.join().unwrap();
        worker.join().unwrap();
        assert_eq!(credit.used_bytes(), 2 * charge(0));
    });
}
