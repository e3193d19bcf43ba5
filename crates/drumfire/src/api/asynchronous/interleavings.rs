//! Models of tasks and their worker: no task misses a wake-up, and the end of a connection or worker reaches all tasks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use drumfire_proto::limits::ITEM_CHARGE_BYTES;
use drumfire_proto::{ChannelId, CloseCode, CloseReason, PeerId, Priority, SendOptions};

use super::accept_queue::AcceptQueue;
use super::connection::Connection;
use super::senders::{QueuePosition, Senders};
use super::shared::Shared;
use super::task_queues::TaskQueues;
use crate::base::sync::models::{check, check_in_part, run};
use crate::base::sync::{Mutex, lock, thread};
use crate::message::event::{Closed, Event, PeerInfo};
use crate::message::group::GroupId;
use crate::worker::channel::{WorkerChannel, tests};
use crate::worker::command::Command;
use crate::worker::send_edge::{SendAccount, SendEdge, charge};

const RECEIVE_MEMORY_BYTES: usize = 65_536;

/// Returns a connection whose worker channel has no waker, because no worker runs behind it.
fn connection(peer: PeerId) -> Arc<Shared> {
    let queues = Arc::new(TaskQueues::new(
        &Arc::new(WorkerChannel::new(Arc::default(), tests::LIMITS)),
        RECEIVE_MEMORY_BYTES,
    ));
    let edge = Arc::new(SendEdge::new(ITEM_CHARGE_BYTES, 1_200, true));
    let address = "192.0.2.1:1".parse().unwrap();
    let info = PeerInfo::new(address);
    Arc::new(Shared::new(&queues, peer, info, edge))
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
fn accept_queue_with_one(peer: PeerId) -> (Arc<AcceptQueue>, thread::JoinHandle<()>) {
    let accept_queue = Arc::new(AcceptQueue::default());
    accept_queue.add_worker();
    let (of_worker, arrival) = (Arc::clone(&accept_queue), Connection::new(connection(peer)));
    let worker = thread::spawn(move || {
        of_worker.push(arrival);
        of_worker.wake();
        of_worker.remove_worker();
    });
    (accept_queue, worker)
}

#[test]
fn interleavings_of_an_arrival_and_the_end_keep_their_order() {
    let peer = tests::peer();
    check(move || {
        let (accept_queue, worker) = accept_queue_with_one(peer);
        assert!(run(accept_queue.accept()).is_some() && run(accept_queue.accept()).is_none());
        worker.join().unwrap();
    });
}

#[test]
fn interleavings_of_an_arrival_and_the_end_wake_both_accepts() {
    let peer = tests::peer();
    check_in_part(move || {
        let (accept_queue, worker) = accept_queue_with_one(peer);
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
        accept_queue.add_worker();
        let arrivals = [Connection::new(connection(peer)), Connection::new(connection(peer))];
        let of_worker = Arc::clone(&accept_queue);
        let worker = thread::spawn(move || {
            arrivals.into_iter().for_each(|arrival| of_worker.push(arrival));
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

#[test]
fn interleavings_of_join_and_leave_reach_the_worker_in_their_order() {
    let (peer, group) = (tests::peer(), GroupId(1));
    check(move || {
        let shared = connection(peer);
        let of_other = Arc::clone(&shared);
        let other = thread::spawn(move || of_other.act(Command::Leave { peer, group }));
        assert!(shared.join(group));
        other.join().unwrap();
        let mut commands = VecDeque::new();
        shared.queues.link.take_commands(&mut commands);
        // If the other task left first, it was no member and sent no command.
        shared.act(Command::Leave { peer, group });
        shared.queues.link.take_commands(&mut commands);
        let commands = commands.make_contiguous();
        assert!(matches!(commands, [Command::Join { .. }, Command::Leave { .. }]), "{commands:?}");
    });
}

/// Returns the account of a connection with room for two messages, all of which is used, and the senders that its edge wakes.
fn full() -> (Arc<Senders>, Arc<Mutex<SendAccount>>) {
    let (senders, edge) = (Arc::new(Senders::default()), SendEdge::new(2 * ITEM_CHARGE_BYTES, 1_200, true));
    edge.set_waker(Waker::from(Arc::clone(&senders)));
    let mut account = SendAccount::new(Arc::new(edge));
    assert!((0..2).all(|_| account.admit(0, &OPTIONS, true).is_ok()));
    (senders, Arc::new(Mutex::new(account)))
}

const OPTIONS: SendOptions = SendOptions::reliable_ordered();

/// Waits for room and sends a message, as a task does.
fn send(senders: &Senders, account: &Mutex<SendAccount>) {
    let position = QueuePosition { priority: Priority::Normal, must_wait: true };
    let offer = || lock(account).admit(0, &OPTIONS, true).ok();
    let register = || lock(account).register(0, &OPTIONS, true, 4);
    run(senders.wait(position, register, offer));
}

#[test]
fn interleavings_of_returned_room_wake_the_first_sender() {
    check(|| {
        let (senders, account) = full();
        let edge = Arc::clone(&lock(&account).edge);
        let worker = thread::spawn(move || edge.publish(2 * charge(0), ITEM_CHARGE_BYTES));
        send(&senders, &account);
        worker.join().unwrap();
        assert!(lock(&account).admit(0, &OPTIONS, true).is_err(), "the memory has room for one message");
    });
}

#[test]
fn interleavings_of_returned_room_serve_all_senders() {
    check_in_part(|| {
        let (senders, account) = full();
        let (of_other, its_account) = (Arc::clone(&senders), Arc::clone(&account));
        let edge = Arc::clone(&lock(&account).edge);
        let other = thread::spawn(move || send(&of_other, &its_account));
        let worker = thread::spawn(move || {
            edge.publish(2 * charge(0), ITEM_CHARGE_BYTES);
            edge.publish(2 * charge(0), 0);
        });
        send(&senders, &account);
        other.join().unwrap();
        worker.join().unwrap();
        assert!(lock(&account).admit(0, &OPTIONS, true).is_err(), "the memory has room for two messages");
    });
}
