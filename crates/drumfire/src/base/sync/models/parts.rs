//! Models of the notification types, mailboxes, and worker channels.

use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use drumfire_proto::limits::ITEM_CHARGE_BYTES;
use drumfire_proto::{ChannelId, Moment, PeerId, SendError, SendOptions};

use super::{Alarm, FOREVER, check, check_in_part, link};
use crate::base::sync::{AtomicBool, AtomicU32, Mailbox, Mutex, Notifier, Pending, lock, thread};
use crate::base::wake::Wake;
use crate::message::event::Event;
use crate::worker::channel::{Batch, REPORT_BYTES_MAX, WorkerChannel, tests};
use crate::worker::command::Command;
use crate::worker::send_edge::{SendAccount, SendEdge, charge};
use crate::worker::shutdown::ShutdownOrder;

static LONGEST: [u8; REPORT_BYTES_MAX] = [0; REPORT_BYTES_MAX];

fn message(peer: PeerId, payload: &'static [u8]) -> Batch {
    let mut batch = Batch::default();
    let payload = Bytes::from_static(payload);
    batch.push(Event::Message { peer, channel: ChannelId(0), payload }, None);
    batch
}

/// Takes commands, and waits for the alarm in between, until there are `count` commands.
fn take_commands(link: &WorkerChannel, alarm: &Alarm, count: usize) {
    let mut taken = VecDeque::new();
    loop {
        link.take_commands(&mut taken);
        if taken.len() == count {
            return;
        }
        alarm.wait();
    }
}

#[test]
fn interleavings_of_two_commands_wake_the_worker_for_both() {
    let peer = tests::peer();
    check(move || {
        let (link, alarm) = link();
        let of_tick = Arc::clone(&link);
        let tick = thread::spawn(move || of_tick.command(&mut vec![Command::Measure { peer }]));
        let of_remote = Arc::clone(&link);
        let remote = thread::spawn(move || of_remote.send_command(Command::Record { peer }));
        take_commands(&link, &alarm, 2);
        tick.join().unwrap();
        remote.join().unwrap();
    });
}

#[test]
fn interleavings_of_a_starting_worker_wake_it_for_earlier_commands() {
    let peer = tests::peer();
    check(move || {
        let link = Arc::new(WorkerChannel::new(Arc::default(), tests::LIMITS));
        let of_other = Arc::clone(&link);
        let other = thread::spawn(move || of_other.send_command(Command::Measure { peer }));
        let alarm = Alarm::default();
        link.set_waker(alarm.clone());
        // It sleeps before it takes commands, as workers do.
        alarm.wait();
        take_commands(&link, &alarm, 1);
        other.join().unwrap();
    });
}

/// A note may rely on the wake-up of an earlier command, because the worker takes commands first.
#[test]
fn interleavings_of_a_note_and_a_command_lose_neither() {
    let peer = tests::peer();
    check(move || {
        let (link, alarm) = link();
        let mailbox = Arc::new(Mailbox::default());
        let (of_note_sender, its_link) = (Arc::clone(&mailbox), Arc::clone(&link));
        let note_sender = thread::spawn(move || {
            of_note_sender.put(7, 1).unwrap();
            its_link.notify_worker();
        });
        let of_sender = Arc::clone(&link);
        let sender = thread::spawn(move || of_sender.send_command(Command::Measure { peer }));
        let (mut commands, mut notes) = (VecDeque::new(), VecDeque::new());
        loop {
            link.take_commands(&mut commands);
            mailbox.take(&mut notes);
            if (commands.len(), notes.len()) == (1, 1) {
                break;
            }
            alarm.wait();
        }
        note_sender.join().unwrap();
        sender.join().unwrap();
    });
}

#[test]
fn interleavings_of_a_command_with_the_workers_end_leave_no_caller_waiting() {
    check(|| {
        let (link, _) = link();
        let (mut pending, mut parts) = Pending::new(Vec::new(), 1);
        let part = parts.pop().unwrap();
        let order = ShutdownOrder { deadline: Moment::ORIGIN, application_code: 0, part };
        let of_worker = Arc::clone(&link);
        let worker = thread::spawn(move || of_worker.end());
        link.send_command(Command::ShutDown(order));
        worker.join().unwrap();
        assert!(pending.try_take().is_some(), "a dropped part completes the result");
    });
}

#[test]
fn interleavings_of_parts_that_complete_wake_a_task_that_awaits_the_result() {
    check(|| {
        let (mut pending, parts) = Pending::new((), 2);
        let workers: Vec<_> = parts.into_iter().map(|part| thread::spawn(move || drop(part))).collect();
        let alarm = Alarm::default();
        let waker = Waker::from(Arc::new(alarm.clone()));
        let mut context = Context::from_waker(&waker);
        while Pin::new(&mut pending).poll(&mut context).is_pending() {
            alarm.wait();
        }
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

#[test]
fn interleavings_of_parts_that_complete_wake_a_thread_that_waits_for_the_result() {
    check(|| {
        let (mut pending, parts) = Pending::new((), 2);
        let workers: Vec<_> = parts.into_iter().map(|part| thread::spawn(move || drop(part))).collect();
        assert!(pending.wait(FOREVER).is_some());
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

#[test]
fn interleavings_of_a_full_link_wake_its_worker_when_there_is_room() {
    let peer = tests::peer();
    check(move || {
        let (link, alarm) = link();
        link.report(&mut message(peer, &LONGEST));
        let of_worker = Arc::clone(&link);
        let worker = thread::spawn(move || {
            if !of_worker.hold() {
                alarm.wait();
            }
            assert_eq!(of_worker.room().1, REPORT_BYTES_MAX);
        });
        let mut taken = Batch::default();
        link.take_reports(&mut taken);
        worker.join().unwrap();
        assert_eq!(taken.events.len(), 1);
    });
}

#[test]
fn interleavings_of_reports_of_two_workers_notify_of_both() {
    let peer = tests::peer();
    check(move || {
        let notifier = Arc::new(Notifier::default());
        let links: Vec<Arc<WorkerChannel>> =
            (0..2).map(|_| Arc::new(WorkerChannel::new(Arc::clone(&notifier), tests::LIMITS))).collect();
        let begin = |link: &Arc<WorkerChannel>| {
            let link = Arc::clone(link);
            thread::spawn(move || link.report(&mut message(peer, b"x")))
        };
        let workers: Vec<_> = links.iter().map(begin).collect();
        let mut taken = Batch::default();
        loop {
            links.iter().for_each(|link| link.take_reports(&mut taken));
            if taken.events.len() == 2 {
                break;
            }
            notifier.wait(FOREVER);
        }
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// Returns the account of a sender to a peer with room for one message, which is used up, and the alarm that wakes the sender.
fn full_account() -> (SendAccount, Alarm) {
    let (edge, alarm) = (SendEdge::new(ROOM_BYTES, usize::MAX, true), Alarm::default());
    edge.set_waker(Waker::from(Arc::new(alarm.clone())));
    let mut account = SendAccount::new(Arc::new(edge));
    assert_eq!(account.admit(0, &OPTIONS, true), Ok(()));
    (account, alarm)
}

const OPTIONS: SendOptions = SendOptions::reliable_ordered();

/// Room for one empty message.
const ROOM_BYTES: usize = ITEM_CHARGE_BYTES;

/// Sends another message as a task does: it registers, and then tries again.
fn send_when_writable(account: &mut SendAccount, alarm: &Alarm) -> Result<(), SendError> {
    loop {
        let mut sent = account.admit(0, &OPTIONS, true);
        if sent == Err(SendError::Full) {
            account.register(0, &OPTIONS, true, 4);
            sent = account.admit(0, &OPTIONS, true);
        }
        if sent != Err(SendError::Full) {
            return sent;
        }
        alarm.wait();
    }
}

#[test]
fn interleavings_of_an_edge_that_rises_wake_a_waiting_sender() {
    check(|| {
        let (mut account, alarm) = full_account();
        let edge = Arc::clone(&account.edge);
        // The worker has received the first message, and then its acknowledgment.
        let worker = thread::spawn(move || {
            edge.publish(charge(0), ROOM_BYTES);
            edge.publish(charge(0), 0);
        });
        assert_eq!(send_when_writable(&mut account, &alarm), Ok(()));
        worker.join().unwrap();
        assert_eq!(
            account.admit(0, &OPTIONS, true),
            Err(SendError::Full),
            "the memory has room for one message"
        );
    });
}

#[test]
fn interleavings_of_an_edge_and_a_refusal_accept_or_notify() {
    check(|| {
        let mut account = SendAccount::new(Arc::new(SendEdge::new(ROOM_BYTES, usize::MAX, true)));
        assert_eq!(account.admit(0, &OPTIONS, true), Ok(()));
        let edge = Arc::clone(&account.edge);
        let worker = thread::spawn(move || edge.publish(charge(0), 0));
        let answer = account.admit_or_register(0, &OPTIONS, true);
        let is_notified = worker.join().unwrap();
        assert!(answer.is_ok() || is_notified);
    });
}

#[test]
fn interleavings_of_an_edge_that_closes_leave_no_sender_waiting() {
    check(|| {
        let (mut account, alarm) = full_account();
        let edge = Arc::clone(&account.edge);
        let worker = thread::spawn(move || edge.close());
        assert_eq!(send_when_writable(&mut account, &alarm), Err(SendError::Closed));
        worker.join().unwrap();
    });
}

#[test]
fn interleavings_of_the_end_of_an_attempt_leave_no_sender_waiting() {
    check(|| {
        let (mut account, alarm) = full_account();
        let edge = Arc::clone(&account.edge);
        let worker = thread::spawn(move || edge.end_for_reconnect());
        assert_eq!(send_when_writable(&mut account, &alarm), Err(SendError::NotConnected));
        worker.join().unwrap();
    });
}

/// Two tasks share the account under a lock, and register one after another.
#[test]
fn interleavings_of_two_senders_and_an_edge_wake_both() {
    check_in_part(|| {
        let (account, alarm) = full_account();
        let edge = Arc::clone(&account.edge);
        let account = Arc::new(Mutex::new(account));
        let of_other = Arc::clone(&account);
        let sends = |account: &Mutex<SendAccount>| {
            let mut account = lock(account);
            let sent = account.admit(0, &OPTIONS, true).is_ok();
            if !sent {
                account.register(0, &OPTIONS, true, 4);
            }
            sent || account.admit(0, &OPTIONS, true).is_ok()
        };
        let other = thread::spawn(move || sends(&of_other));
        let has_sent = sends(&account);
        // There is room for both messages now.
        let worker = thread::spawn(move || edge.publish(2 * charge(0), 0));
        worker.join().unwrap();
        if !(other.join().unwrap() && has_sent) {
            alarm.wait();
        }
    });
}

/// Proves that models can fail: this sleeper checks the flag before it registers.
#[test]
#[should_panic(expected = "deadlock")]
fn interleavings_of_a_sleeper_that_checks_too_early_are_found() {
    check(|| {
        let shared = Arc::new((AtomicBool::new(false), AtomicU32::new(0)));
        let alarm = Alarm::default();
        let (of_other, its_alarm) = (Arc::clone(&shared), alarm.clone());
        let other = thread::spawn(move || {
            let (is_there, waiters) = &*of_other;
            is_there.store(true, std::sync::atomic::Ordering::SeqCst);
            if waiters.load(std::sync::atomic::Ordering::SeqCst) > 0 {
                Wake::wake(&its_alarm);
            }
        });
        let (is_there, waiters) = &*shared;
        if !is_there.load(std::sync::atomic::Ordering::SeqCst) {
            waiters.store(1, std::sync::atomic::Ordering::SeqCst);
            alarm.wait();
        }
        other.join().unwrap();
    });
}
