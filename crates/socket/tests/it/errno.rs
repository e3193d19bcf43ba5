//! Every row of the two fault tables, injected through the `Io` contract. The tests check which faults are counted and
//! which datagrams are kept or lost. One failed datagram never affects another.
//!
//! These tests use no real socket. Errors of the kernel itself are tested in the other files.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire_socket::{
    DrainEnd, DropReason, Fault, FlushEnd, Io, LostDatagram, Outgoing, Receiver, ReceiverConfig, RecvAction,
    RecvBatch, SendAction, SendBatch, SendMode, Sender, recv_action, send_action,
};

use crate::fixtures::{Script, Step, number_of, numbered};

/// The number of datagrams in one script.
const DATAGRAMS: u32 = 64;

const BUDGET: usize = 1_024;

/// Drains again after every end, as a worker does, until the script is used up or the descriptor is closed.
fn drain_all(script: &mut Script, receiver: &mut Receiver) -> (Vec<u32>, Vec<DrainEnd>) {
    let mut seen = Vec::new();
    let mut ends = Vec::new();
    loop {
        let end = receiver.drain(script, BUDGET, |received| {
            seen.extend(received.datagrams().map(|datagram| number_of(datagram.bytes)));
        });
        ends.push(end);
        let is_finished = script.steps.is_empty() && end == DrainEnd::Blocked;
        if is_finished || matches!(end, DrainEnd::Closed(_)) {
            return (seen, ends);
        }
    }
}

/// Returns a script of numbered datagrams, with `fault` before the one at `position`.
fn with_fault(fault: Fault, position: u32) -> (Script, Receiver) {
    let mut steps: Vec<Step> = (0..DATAGRAMS).map(numbered).collect();
    steps.insert(position as usize, Step::Fault(fault));
    let mut script = Script::new(steps, false);
    let receiver = Receiver::new(&mut script, &ReceiverConfig::default()).expect("a receiver");
    (script, receiver)
}

#[test]
fn a_receive_fault_at_any_position_loses_no_datagram() {
    for fault in Fault::ALL {
        for position in 0..=DATAGRAMS {
            let (mut script, mut receiver) = with_fault(fault, position);
            let (seen, ends) = drain_all(&mut script, &mut receiver);
            let counts = receiver.counts();
            let is_last = position == DATAGRAMS;
            let action = recv_action(fault);
            let delivered = if action == RecvAction::Close { position } else { DATAGRAMS };
            assert_eq!(seen, (0..delivered).collect::<Vec<_>>(), "{fault} at {position}");
            assert_eq!(counts.datagrams, u64::from(delivered));
            let expected_ends = match action {
                RecvAction::Stop if is_last => vec![DrainEnd::Blocked],
                RecvAction::Stop => vec![DrainEnd::Blocked; 2],
                RecvAction::Continue => vec![DrainEnd::Blocked],
                RecvAction::RetryNextPass => vec![DrainEnd::Starved, DrainEnd::Blocked],
                RecvAction::Close => vec![DrainEnd::Closed(fault)],
            };
            assert_eq!(ends, expected_ends, "{fault} at {position}");
            let blocked = ends.iter().filter(|&&end| end == DrainEnd::Blocked).count() as u64;
            assert_eq!(counts.faults.count(Fault::WouldBlock), blocked, "{fault} at {position}");
            let others = counts.faults.total() - blocked;
            assert_eq!(others, u64::from(fault != Fault::WouldBlock));
            assert_eq!(counts.faults.count(fault), if others == 0 { blocked } else { 1 });
        }
    }
}

#[test]
fn receive_actions_match_the_table() {
    use RecvAction::{Close, Continue, RetryNextPass, Stop};
    let rows = [
        (Stop, vec![Fault::WouldBlock]),
        (
            Continue,
            vec![
                Fault::Interrupted,
                Fault::ConnectionRefused,
                Fault::HostUnreachable,
                Fault::NetworkUnreachable,
                Fault::ConnectionReset,
                Fault::Protocol,
            ],
        ),
        (RetryNextPass, vec![Fault::OutOfMemory, Fault::NoBuffers]),
        (Close, vec![Fault::BadDescriptor, Fault::NotSocket]),
    ];
    for (action, faults) in rows {
        for fault in faults {
            assert_eq!(recv_action(fault), action, "{fault}");
        }
    }
}

#[test]
fn a_starved_drain_is_repeated_without_a_new_edge() {
    for fault in [Fault::OutOfMemory, Fault::NoBuffers] {
        let mut script = Script::new([numbered(0), Step::Fault(fault), numbered(1)], false);
        let mut receiver = Receiver::new(&mut script, &ReceiverConfig::default()).expect("a receiver");
        let ends = [0; 2].map(|_| receiver.drain(&mut script, 1_024, |_| {}));
        assert_eq!(ends, [DrainEnd::Starved, DrainEnd::Blocked]);
        assert_eq!(ends.map(DrainEnd::is_more_waiting), [true, false], "{fault}");
    }
    assert!(DrainEnd::BudgetSpent.is_more_waiting());
    assert!(!DrainEnd::Closed(Fault::BadDescriptor).is_more_waiting());
}

#[test]
fn a_fault_between_every_two_datagrams_skips_no_datagram() {
    for fault in Fault::ALL.into_iter().filter(|&fault| recv_action(fault) == RecvAction::Continue) {
        let steps = (0..DATAGRAMS).flat_map(|number| [Step::Fault(fault), numbered(number)]);
        let mut script = Script::new(steps, false);
        let mut receiver = Receiver::new(&mut script, &ReceiverConfig::default()).expect("a receiver");
        let (seen, ends) = drain_all(&mut script, &mut receiver);
        assert_eq!(seen, (0..DATAGRAMS).collect::<Vec<_>>());
        assert_eq!(ends, [DrainEnd::Blocked]);
        assert_eq!(receiver.counts().faults.count(fault), u64::from(DATAGRAMS), "{fault}");
    }
}

#[test]
fn an_invalid_datagram_never_hides_a_valid_one() {
    let config = ReceiverConfig::default().max_datagram_bytes(100);
    let invalid = [(0, DropReason::Empty), (101, DropReason::Overlong), (102, DropReason::Truncated)];
    for (bytes, reason) in invalid {
        for position in 0..=DATAGRAMS as usize {
            for count in [1, 2, 31, 32, 33] {
                let mut steps: Vec<Step> = (0..DATAGRAMS).map(numbered).collect();
                let inserted = std::iter::repeat_n(Step::Message(vec![0; bytes]), count);
                steps.splice(position..position, inserted);
                let mut script = Script::new(steps, true);
                let mut receiver = Receiver::new(&mut script, &config).expect("a receiver");
                let (seen, _) = drain_all(&mut script, &mut receiver);
                assert_eq!(seen, (0..DATAGRAMS).collect::<Vec<_>>(), "{count} of {reason:?} at {position}");
                assert_eq!(receiver.counts().dropped(reason), count as u64);
                assert_eq!(receiver.counts().datagrams, u64::from(DATAGRAMS));
            }
        }
    }
}

#[test]
fn thirty_two_faults_in_a_row_end_the_drain_and_skip_nothing() {
    const CONSECUTIVE: usize = 32;
    for fault in Fault::ALL.into_iter().filter(|&fault| recv_action(fault) == RecvAction::Continue) {
        let repeated = |faults| std::iter::repeat_n(Step::Fault(fault), faults);
        let steps = repeated(CONSECUTIVE * 2)
            .chain([numbered(7)])
            .chain(repeated(CONSECUTIVE - 1))
            .chain([numbered(8)]);
        let mut script = Script::new(steps, false);
        let mut receiver = Receiver::new(&mut script, &ReceiverConfig::default()).expect("a receiver");
        let (seen, ends) = drain_all(&mut script, &mut receiver);
        assert_eq!(ends, [DrainEnd::Starved, DrainEnd::Starved, DrainEnd::Blocked], "{fault}");
        assert_eq!(seen, [7, 8]);
        assert_eq!(receiver.counts().faults.count(fault), CONSECUTIVE as u64 * 3 - 1);
    }
}

#[test]
fn faults_in_a_row_end_with_the_budget() {
    let repeated = std::iter::repeat_n(Step::Fault(Fault::Protocol), 12);
    let mut script = Script::new(repeated.chain([numbered(7)]), true);
    let mut receiver = Receiver::new(&mut script, &ReceiverConfig::default()).expect("a receiver");
    let ends = [0; 2].map(|_| receiver.drain(&mut script, 8, |_| {}));
    assert_eq!(ends, [DrainEnd::BudgetSpent, DrainEnd::Blocked]);
}

/// A socket that returns scripted results to send calls, and then accepts every datagram.
#[derive(Default)]
struct ScriptedSender {
    results: VecDeque<SendResult>,
    /// The result of every call after the script, or `None` to accept every datagram.
    always: Option<Fault>,
    modes: Vec<SendMode>,
    sent: Vec<u32>,
}

#[derive(Clone, Copy)]
enum SendResult {
    Accept(usize),
    Fail(Fault),
}

impl ScriptedSender {
    fn with(results: impl IntoIterator<Item = SendResult>) -> Self {
        Self { results: results.into_iter().collect(), ..Self::default() }
    }
}

impl Io for ScriptedSender {
    fn recv(&mut self, _: &mut RecvBatch) -> Result<(), Fault> {
        Err(Fault::WouldBlock)
    }

    fn send(&mut self, outgoing: &mut Outgoing<'_>, mode: SendMode) -> Result<usize, Fault> {
        self.modes.push(mode);
        let everything = if mode == SendMode::Single { 1 } else { usize::MAX };
        let count = match (self.results.pop_front(), self.always) {
            (Some(SendResult::Fail(fault)), _) | (None, Some(fault)) => return Err(fault),
            (Some(SendResult::Accept(count)), _) => count,
            (None, None) => everything,
        };
        let before = self.sent.len();
        self.sent.extend(outgoing.datagrams().take(count).map(|(_, bytes)| number_of(bytes)));
        Ok(self.sent.len() - before)
    }

    fn is_emptied_by_short_batch(&self) -> bool {
        true
    }

    fn enable_gro(&mut self) -> bool {
        false
    }
}

/// A socket that refuses trains, single datagrams, or both, to one peer or to all.
#[derive(Default)]
struct RefusingSender {
    /// The peer that is refused, or `None` for all peers.
    to: Option<SocketAddr>,
    /// The fault for trains, or `None` to accept them.
    trains: Option<Fault>,
    /// The fault for single datagrams, or `None` to accept them.
    singles: Option<Fault>,
}

impl Io for RefusingSender {
    fn recv(&mut self, _: &mut RecvBatch) -> Result<(), Fault> {
        Err(Fault::WouldBlock)
    }

    fn send(&mut self, outgoing: &mut Outgoing<'_>, mode: SendMode) -> Result<usize, Fault> {
        let first = if mode == SendMode::Gso { outgoing.first_train() } else { 1 };
        let to = outgoing.datagrams().next().and_then(|(to, _)| to);
        let fault = if first > 1 { self.trains } else { self.singles };
        match fault.filter(|_| self.to.is_none() || self.to == to) {
            Some(fault) => Err(fault),
            None => Ok(first),
        }
    }

    fn is_emptied_by_short_batch(&self) -> bool {
        true
    }

    fn enable_gro(&mut self) -> bool {
        false
    }
}

fn peer(number: u32) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1_000 + u16::try_from(number).expect("a small number")))
}

/// Returns numbered datagrams, each to its own peer.
fn to_many(numbers: std::ops::Range<u32>) -> SendBatch {
    let mut batch = SendBatch::new(256, 4_096);
    for number in numbers {
        assert!(batch.push(Some(peer(number)), &number.to_be_bytes()));
    }
    batch
}

/// Returns numbered datagrams of one length to one peer, which form one train with segmentation.
fn to_one(count: u32) -> SendBatch {
    let mut batch = SendBatch::new(256, 4_096);
    for number in 0..count {
        assert!(batch.push(Some(peer(0)), &number.to_be_bytes()));
    }
    batch
}

fn never_lost(datagram: LostDatagram) {
    panic!("lost: {datagram:?}");
}

const MODES: [SendMode; 3] = [SendMode::Single, SendMode::Sendmmsg, SendMode::Gso];

/// Returns results that accept the first `position` datagrams, as calls of this mode do, and then `fault`.
fn fails_at(position: u32, mode: SendMode, fault: Fault) -> Vec<SendResult> {
    let mut results = match (position, mode) {
        (0, _) => Vec::new(),
        (_, SendMode::Single) => vec![SendResult::Accept(1); position as usize],
        _ => vec![SendResult::Accept(position as usize)],
    };
    results.push(SendResult::Fail(fault));
    results
}

#[test]
fn a_full_socket_keeps_the_datagram_and_the_order() {
    for mode in MODES {
        for position in 0..DATAGRAMS {
            let mut socket = ScriptedSender::with(fails_at(position, mode, Fault::WouldBlock));
            let mut sender = Sender::new(mode);
            let mut batch = to_many(0..DATAGRAMS);
            assert_eq!(sender.flush(&mut socket, &mut batch, never_lost), FlushEnd::Blocked);
            assert_eq!(batch.len(), (DATAGRAMS - position) as usize);
            assert!(batch.push(None, &DATAGRAMS.to_be_bytes()));
            assert_eq!(sender.flush(&mut socket, &mut batch, never_lost), FlushEnd::Sent);
            assert_eq!(socket.sent, (0..=DATAGRAMS).collect::<Vec<_>>(), "{mode:?} at {position}");
            assert_eq!(sender.counts().datagrams, u64::from(DATAGRAMS) + 1);
            assert_eq!(sender.counts().faults.count(Fault::WouldBlock), 1);
            assert_eq!((sender.counts().lost.total(), sender.mode()), (0, mode));
        }
    }
}

#[test]
fn a_full_socket_ends_the_flush_after_one_call() {
    let mut socket = ScriptedSender { always: Some(Fault::WouldBlock), ..ScriptedSender::default() };
    let mut sender = Sender::new(SendMode::Sendmmsg);
    let mut batch = to_many(0..DATAGRAMS);
    assert_eq!(sender.flush(&mut socket, &mut batch, never_lost), FlushEnd::Blocked);
    assert_eq!(socket.modes.len(), 1);
    assert_eq!(batch.len(), DATAGRAMS as usize);
}

#[test]
fn an_interrupted_send_is_repeated_three_times() {
    for interruptions in 0..=9_usize {
        let mut socket = ScriptedSender::with(vec![SendResult::Fail(Fault::Interrupted); interruptions]);
        let mut sender = Sender::new(SendMode::Single);
        let mut batch = to_many(0..4);
        let mut lost = Vec::new();
        let end = sender.flush(&mut socket, &mut batch, |it| lost.push((it.to, it.fault)));
        assert_eq!(end, FlushEnd::Sent);
        // Each lost datagram took four calls.
        let first_sent = u32::try_from(interruptions / 4).expect("a small number");
        assert_eq!(socket.sent, (first_sent..4).collect::<Vec<_>>(), "{interruptions} interruptions");
        let expected: Vec<_> =
            (0..first_sent).map(|number| (Some(peer(number)), Fault::Interrupted)).collect();
        assert_eq!(lost, expected);
        assert_eq!(sender.counts().faults.count(Fault::Interrupted), interruptions as u64);
        assert_eq!(sender.counts().lost.count(Fault::Interrupted), u64::from(first_sent));
    }
}

#[test]
fn a_refused_datagram_is_reported_with_its_peer() {
    let datagram_faults = Fault::ALL
        .into_iter()
        .filter(|&fault| matches!(send_action(fault, false), SendAction::Lost | SendAction::Unreachable));
    for fault in datagram_faults {
        for (mode, position) in
            MODES.into_iter().flat_map(|mode| (0..DATAGRAMS).map(move |position| (mode, position)))
        {
            let mut socket = ScriptedSender::with(fails_at(position, mode, fault));
            let mut sender = Sender::new(mode);
            let mut lost = Vec::new();
            let end =
                sender.flush(&mut socket, &mut to_many(0..DATAGRAMS), |it| lost.push((it.to, it.fault)));
            assert_eq!(end, FlushEnd::Sent);
            assert_eq!(lost, [(Some(peer(position)), fault)], "{mode:?}, {fault} at {position}");
            let others: Vec<u32> = (0..DATAGRAMS).filter(|&number| number != position).collect();
            assert_eq!(socket.sent, others, "{mode:?}, {fault} at {position}");
            assert_eq!(sender.counts().datagrams, u64::from(DATAGRAMS) - 1);
            assert_eq!((sender.counts().lost.count(fault), sender.counts().lost.total()), (1, 1));
            assert_eq!((sender.counts().faults.count(fault), sender.counts().faults.total()), (1, 1));
            assert_eq!(sender.mode(), mode);
        }
    }
}

#[test]
fn a_lost_datagram_is_found_by_its_index_in_the_batch() {
    let results =
        [SendResult::Accept(3), SendResult::Fail(Fault::WouldBlock), SendResult::Fail(Fault::NoBuffers)];
    let mut socket = ScriptedSender::with(results);
    let mut sender = Sender::new(SendMode::Gso);
    let mut batch = to_one(DATAGRAMS);
    assert_eq!(sender.flush(&mut socket, &mut batch, never_lost), FlushEnd::Blocked);
    let mut lost = Vec::new();
    sender.flush(&mut socket, &mut batch, |it| lost.push((it.index, it.bytes, it.fault)));
    let rest: Vec<_> = (3..DATAGRAMS as usize).map(|index| (index, 4, Fault::NoBuffers)).collect();
    assert_eq!(lost, rest);
    // After the batch was empty, the count starts at 0 again.
    assert!(batch.push(Some(peer(0)), b"again"));
    let mut socket = ScriptedSender::with([SendResult::Fail(Fault::NotPermitted)]);
    sender.flush(&mut socket, &mut batch, |it| lost.push((it.index, it.bytes, it.fault)));
    assert_eq!(lost.last(), Some(&(0, 5, Fault::NotPermitted)));
}

#[test]
fn send_actions_match_the_table() {
    use SendAction::{Keep, Lost, LostAndPause, Retry, Unreachable};
    let rows = [
        (Keep, vec![Fault::WouldBlock]),
        (Retry, vec![Fault::Interrupted]),
        (Lost, vec![Fault::NotPermitted, Fault::AccessDenied]),
        (Lost, vec![Fault::ConnectionRefused, Fault::HostUnreachable, Fault::NetworkUnreachable]),
        (LostAndPause, vec![Fault::NoBuffers, Fault::OutOfMemory]),
        (Unreachable, vec![Fault::AddressFamilyUnsupported, Fault::AddressNotAvailable]),
    ];
    for fault in [Fault::MessageTooLong, Fault::InputOutput, Fault::InvalidArgument] {
        assert_eq!((send_action(fault, false), send_action(fault, true)), (Lost, SendAction::SplitTrain));
    }
    for (action, faults) in rows {
        for fault in faults {
            assert_eq!(send_action(fault, false), action, "{fault}");
            assert_eq!(send_action(fault, true), action, "{fault}, segmented");
        }
    }
}

#[test]
fn a_kernel_without_buffers_costs_one_datagram_and_a_pause() {
    for fault in [Fault::NoBuffers, Fault::OutOfMemory] {
        for (mode, position) in
            MODES.into_iter().flat_map(|mode| (0..DATAGRAMS).map(move |position| (mode, position)))
        {
            let mut socket = ScriptedSender::with(fails_at(position, mode, fault));
            let mut sender = Sender::new(mode);
            let mut batch = to_many(0..DATAGRAMS);
            let mut lost = Vec::new();
            let end = sender.flush(&mut socket, &mut batch, |it| lost.push((it.to, it.fault)));
            assert_eq!(end, FlushEnd::Paused(Duration::from_millis(1)));
            assert_eq!(lost, [(Some(peer(position)), fault)]);
            assert_eq!(batch.len(), (DATAGRAMS - position - 1) as usize);
            assert_eq!(sender.flush(&mut socket, &mut batch, never_lost), FlushEnd::Sent);
            let others: Vec<u32> = (0..DATAGRAMS).filter(|&number| number != position).collect();
            assert_eq!(socket.sent, others, "{mode:?}, {fault} at {position}");
            assert_eq!((sender.counts().lost.count(fault), sender.counts().lost.total()), (1, 1));
        }
    }
}

/// The faults with which the kernel refuses segmentation.
const TRAIN_FAULTS: [Fault; 2] = [Fault::InputOutput, Fault::InvalidArgument];

/// Consecutive refused trains after which segmentation stops.
const REFUSED: usize = 8;
/// Datagrams that are then sent without segmentation.
const WITHOUT_GSO: usize = 4_096;

#[test]
fn a_refused_train_is_sent_one_by_one_and_gso_continues() {
    for fault in TRAIN_FAULTS {
        for trains_before in [0, 1, 3] {
            let mut results = vec![SendResult::Accept(8); trains_before];
            results.push(SendResult::Fail(fault));
            let mut socket = ScriptedSender::with(results);
            let mut sender = Sender::new(SendMode::Gso);
            assert_eq!(sender.flush(&mut socket, &mut to_one(DATAGRAMS), never_lost), FlushEnd::Sent);
            assert_eq!(socket.sent, (0..DATAGRAMS).collect::<Vec<_>>(), "{fault}");
            let singles = DATAGRAMS as usize - 8 * trains_before;
            assert_eq!(socket.modes[..=trains_before], vec![SendMode::Gso; trains_before + 1]);
            assert_eq!(socket.modes[trains_before + 1..], vec![SendMode::Single; singles]);
            assert_eq!(sender.flush(&mut socket, &mut to_one(2), never_lost), FlushEnd::Sent);
            assert_eq!((socket.modes.last(), sender.mode()), (Some(&SendMode::Gso), SendMode::Gso));
            assert_eq!((sender.counts().lost.total(), sender.counts().faults.count(fault)), (0, 1));
        }
    }
}

#[test]
fn a_device_without_gso_rarely_gets_a_train() {
    for fault in TRAIN_FAULTS {
        let mut socket = RefusingSender { trains: Some(fault), ..RefusingSender::default() };
        let mut sender = Sender::new(SendMode::Gso);
        for train in 1..=REFUSED {
            assert_eq!(sender.mode(), SendMode::Gso, "{fault}: {train}");
            assert_eq!(sender.flush(&mut socket, &mut to_one(4), never_lost), FlushEnd::Sent);
        }
        assert_eq!(sender.mode(), SendMode::Sendmmsg, "{fault}");
        for _ in 0..10 * WITHOUT_GSO / 4 {
            assert_eq!(sender.flush(&mut socket, &mut to_one(4), never_lost), FlushEnd::Sent);
        }
        // The first eight trains, and then one train of four after every 4,096 datagrams.
        assert_eq!(sender.counts().faults.count(fault), REFUSED as u64 + 9, "{fault}");
        // When the device accepts trains again, it gets them.
        socket.trains = None;
        for _ in 0..=WITHOUT_GSO / 4 {
            assert_eq!(sender.flush(&mut socket, &mut to_one(4), never_lost), FlushEnd::Sent);
        }
        assert_eq!((sender.mode(), sender.counts().lost.total()), (SendMode::Gso, 0), "{fault}");
    }
}

#[test]
fn a_peer_without_gso_does_not_affect_other_peers() {
    for (fault, is_lost) in TRAIN_FAULTS.into_iter().flat_map(|fault| [(fault, false), (fault, true)]) {
        let singles = is_lost.then_some(fault);
        let mut socket = RefusingSender { to: Some(peer(0)), trains: Some(fault), singles };
        let mut sender = Sender::new(SendMode::Gso);
        for _ in 0..10 * REFUSED {
            let mut lost = Vec::new();
            let mut batch = to_one(4);
            // A single datagram and the train of another peer follow.
            for to in [2, 1, 1, 1] {
                assert!(batch.push(Some(peer(to)), &[0; 4]));
            }
            let end = sender.flush(&mut socket, &mut batch, |it| lost.push((it.to, it.fault)));
            assert_eq!(end, FlushEnd::Sent);
            assert_eq!(lost, vec![(Some(peer(0)), fault); if is_lost { 4 } else { 0 }]);
            assert_eq!(sender.mode(), SendMode::Gso, "{fault}");
        }
    }
}

#[test]
fn an_address_that_refuses_every_datagram_never_ends_gso() {
    for fault in TRAIN_FAULTS {
        let mut socket = RefusingSender { to: Some(peer(0)), trains: Some(fault), singles: Some(fault) };
        let mut sender = Sender::new(SendMode::Gso);
        for _ in 0..100 * REFUSED {
            assert_eq!(sender.flush(&mut socket, &mut to_one(4), |_| {}), FlushEnd::Sent);
            assert_eq!(sender.mode(), SendMode::Gso, "{fault}");
        }
        assert_eq!(sender.counts().lost.count(fault), 400 * REFUSED as u64);
    }
}

#[test]
fn a_train_too_long_for_its_path_is_sent_one_by_one() {
    let mut socket = ScriptedSender::with([SendResult::Accept(8), SendResult::Fail(Fault::MessageTooLong)]);
    let mut sender = Sender::new(SendMode::Gso);
    assert_eq!(sender.flush(&mut socket, &mut to_one(DATAGRAMS), never_lost), FlushEnd::Sent);
    assert_eq!(socket.sent, (0..DATAGRAMS).collect::<Vec<_>>());
    let refused = DATAGRAMS as usize - 8;
    assert_eq!(socket.modes[..2], [SendMode::Gso; 2]);
    assert_eq!(socket.modes[2..], vec![SendMode::Single; refused]);
    assert_eq!(sender.mode(), SendMode::Gso);
    assert_eq!(sender.flush(&mut socket, &mut to_one(2), never_lost), FlushEnd::Sent);
    assert_eq!(socket.modes.last(), Some(&SendMode::Gso));
}

#[test]
fn an_overlong_datagram_of_a_train_is_lost_alone() {
    let mut results = vec![SendResult::Fail(Fault::MessageTooLong); 2];
    results.push(SendResult::Accept(1));
    results.push(SendResult::Fail(Fault::MessageTooLong));
    let mut socket = ScriptedSender::with(results);
    let mut sender = Sender::new(SendMode::Gso);
    let mut lost = Vec::new();
    let end = sender.flush(&mut socket, &mut to_one(4), |it| lost.push(it.fault));
    assert_eq!((end, socket.sent), (FlushEnd::Sent, vec![1, 3]));
    assert_eq!(lost, [Fault::MessageTooLong; 2]);
    assert_eq!(sender.mode(), SendMode::Gso);
}

#[test]
fn a_fault_of_a_single_datagram_does_not_end_gso() {
    // A peer with an invalid address must not turn off segmentation for the other peers.
    for fault in [Fault::InputOutput, Fault::InvalidArgument] {
        let mut socket = ScriptedSender::with([SendResult::Fail(fault)]);
        let mut sender = Sender::new(SendMode::Gso);
        let mut lost = Vec::new();
        let end = sender.flush(&mut socket, &mut to_many(0..2), |it| lost.push((it.to, it.fault)));
        assert_eq!((end, socket.sent), (FlushEnd::Sent, vec![1]));
        assert_eq!(lost, [(Some(peer(0)), fault)]);
        assert_eq!(sender.mode(), SendMode::Gso);
    }
}

#[test]
fn a_closed_descriptor_ends_drains_and_flushes() {
    for fault in [Fault::BadDescriptor, Fault::NotSocket] {
        let (mut script, mut receiver) = with_fault(fault, 0);
        assert_eq!(receiver.drain(&mut script, BUDGET, |_| {}), DrainEnd::Closed(fault));
        for mode in MODES {
            let mut socket = ScriptedSender { always: Some(fault), ..ScriptedSender::default() };
            let mut sender = Sender::new(mode);
            let mut batch = to_one(3);
            assert_eq!(sender.flush(&mut socket, &mut batch, never_lost), FlushEnd::Closed(fault));
            assert_eq!((socket.modes.len(), batch.len()), (1, 3));
        }
    }
}

#[test]
fn a_socket_that_always_fails_ends_the_flush() {
    for fault in Fault::ALL {
        for mode in MODES {
            let mut socket = ScriptedSender { always: Some(fault), ..ScriptedSender::default() };
            let mut sender = Sender::new(mode);
            let mut batch = to_one(DATAGRAMS);
            let mut lost = 0;
            sender.flush(&mut socket, &mut batch, |_| lost += 1);
            assert!(socket.modes.len() <= 4 * DATAGRAMS as usize, "{fault}, {mode:?}");
            assert_eq!(sender.counts().calls, socket.modes.len() as u64);
            assert_eq!(lost + batch.len(), DATAGRAMS as usize, "{fault}, {mode:?}");
            assert_eq!(sender.counts().lost.total(), lost as u64);
        }
    }
}
