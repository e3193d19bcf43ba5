//! Every row of the error table, injected through the `Io` contract: what is counted, what is kept, what is
//! lost, and that one bad item never takes another with it.
//!
//! No real socket: the kernel's own errors are the other files' subject.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use crate::script::{Script, Step, number_of, numbered};
use drumfire_socket::{
    DrainEnd, DropReason, Fault, FlushEnd, Io, LostDatagram, Outgoing, Receiver, ReceiverConfig, RecvAction,
    RecvBatch, SendAction, SendBatch, SendMode, Sender, recv_action, send_action,
};

/// Datagrams in one script.
const DATAGRAMS: u32 = 64;

const BUDGET: usize = 1_024;

/// Drains as a worker does: again after every end, until the script is used up or the descriptor is gone.
fn work(script: &mut Script, receiver: &mut Receiver) -> (Vec<u32>, Vec<DrainEnd>) {
    let mut seen = Vec::new();
    let mut ends = Vec::new();
    loop {
        let end = receiver.drain(script, BUDGET, |received| {
            seen.extend(received.datagrams().map(|datagram| number_of(datagram.bytes)));
        });
        ends.push(end);
        let is_over = script.steps.is_empty() && end == DrainEnd::Blocked;
        if is_over || matches!(end, DrainEnd::Closed(_)) {
            return (seen, ends);
        }
    }
}

/// Numbered datagrams with `fault` in front of the one at `position`.
fn with_fault(fault: Fault, position: u32) -> (Script, Receiver) {
    let mut steps: Vec<Step> = (0..DATAGRAMS).map(numbered).collect();
    steps.insert(position as usize, Step::Fault(fault));
    let mut script = Script::new(steps, false);
    let receiver = Receiver::new(&mut script, &ReceiverConfig::default()).expect("a receiver");
    (script, receiver)
}

#[test]
fn a_receive_fault_at_any_position_never_takes_a_datagram_with_it() {
    for fault in Fault::ALL {
        for position in 0..=DATAGRAMS {
            let (mut script, mut receiver) = with_fault(fault, position);
            let (seen, ends) = work(&mut script, &mut receiver);
            let counts = receiver.counts();
            let is_last = position == DATAGRAMS;
            let action = recv_action(fault);
            let delivered = if action == RecvAction::Close { position } else { DATAGRAMS };
            assert_eq!(seen, (0..delivered).collect::<Vec<_>>(), "{fault} at {position}");
            assert_eq!(counts.datagrams, u64::from(delivered));
            let expected_ends = match action {
                RecvAction::Stop if is_last => vec![DrainEnd::Blocked],
                RecvAction::Stop => vec![DrainEnd::Blocked; 2],
                RecvAction::GoOn => vec![DrainEnd::Blocked],
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
fn the_receive_table_is_the_one_written_down() {
    use RecvAction::{Close, GoOn, RetryNextPass, Stop};
    let rows = [
        (Stop, vec![Fault::WouldBlock]),
        (
            GoOn,
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
fn a_drain_that_starved_is_not_waited_for_though_no_edge_will_come() {
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
fn a_fault_between_every_two_datagrams_skips_none() {
    for fault in Fault::ALL.into_iter().filter(|&fault| recv_action(fault) == RecvAction::GoOn) {
        let steps = (0..DATAGRAMS).flat_map(|number| [Step::Fault(fault), numbered(number)]);
        let mut script = Script::new(steps, false);
        let mut receiver = Receiver::new(&mut script, &ReceiverConfig::default()).expect("a receiver");
        let (seen, ends) = work(&mut script, &mut receiver);
        assert_eq!(seen, (0..DATAGRAMS).collect::<Vec<_>>());
        assert_eq!(ends, [DrainEnd::Blocked]);
        assert_eq!(receiver.counts().faults.count(fault), u64::from(DATAGRAMS), "{fault}");
    }
}

#[test]
fn a_bad_datagram_at_any_position_never_skips_a_good_one() {
    let config = ReceiverConfig::default().max_datagram_bytes(100);
    let kinds = [(0, DropReason::Empty), (101, DropReason::Overlong), (102, DropReason::Truncated)];
    for (bytes, reason) in kinds {
        for position in 0..=DATAGRAMS as usize {
            for bad in [1, 2, 31, 32, 33] {
                let mut steps: Vec<Step> = (0..DATAGRAMS).map(numbered).collect();
                let bad_ones = std::iter::repeat_n(Step::Message(vec![0; bytes]), bad);
                steps.splice(position..position, bad_ones);
                let mut script = Script::new(steps, true);
                let mut receiver = Receiver::new(&mut script, &config).expect("a receiver");
                let (seen, _) = work(&mut script, &mut receiver);
                assert_eq!(seen, (0..DATAGRAMS).collect::<Vec<_>>(), "{bad} of {reason:?} at {position}");
                assert_eq!(receiver.counts().dropped(reason), bad as u64);
                assert_eq!(receiver.counts().datagrams, u64::from(DATAGRAMS));
            }
        }
    }
}

#[test]
fn a_storm_of_faults_ends_the_drain_after_32_and_skips_nothing() {
    const ROW: usize = 32;
    for fault in Fault::ALL.into_iter().filter(|&fault| recv_action(fault) == RecvAction::GoOn) {
        let storm = |faults| std::iter::repeat_n(Step::Fault(fault), faults);
        let steps = storm(ROW * 2).chain([numbered(7)]).chain(storm(ROW - 1)).chain([numbered(8)]);
        let mut script = Script::new(steps, false);
        let mut receiver = Receiver::new(&mut script, &ReceiverConfig::default()).expect("a receiver");
        let (seen, ends) = work(&mut script, &mut receiver);
        assert_eq!(ends, [DrainEnd::Starved, DrainEnd::Starved, DrainEnd::Blocked], "{fault}");
        assert_eq!(seen, [7, 8]);
        assert_eq!(receiver.counts().faults.count(fault), ROW as u64 * 3 - 1);
    }
}

#[test]
fn a_storm_of_faults_ends_with_the_budget() {
    let storm = std::iter::repeat_n(Step::Fault(Fault::Protocol), 12);
    let mut script = Script::new(storm.chain([numbered(7)]), true);
    let mut receiver = Receiver::new(&mut script, &ReceiverConfig::default()).expect("a receiver");
    let ends = [0; 2].map(|_| receiver.drain(&mut script, 8, |_| {}));
    assert_eq!(ends, [DrainEnd::BudgetSpent, DrainEnd::Blocked]);
}

/// A socket that takes what it is given, or answers a script first.
#[derive(Default)]
struct Wire {
    answers: VecDeque<Answer>,
    /// The answer once the script is used up, if not to take everything.
    always: Option<Fault>,
    modes: Vec<SendMode>,
    sent: Vec<u32>,
}

#[derive(Clone, Copy)]
enum Answer {
    Take(usize),
    Fail(Fault),
}

impl Wire {
    fn answering(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self { answers: answers.into_iter().collect(), ..Self::default() }
    }
}

impl Io for Wire {
    fn recv(&mut self, _: &mut RecvBatch) -> Result<(), Fault> {
        Err(Fault::WouldBlock)
    }

    fn send(&mut self, outgoing: &mut Outgoing<'_>, mode: SendMode) -> Result<usize, Fault> {
        self.modes.push(mode);
        let everything = if mode == SendMode::Single { 1 } else { usize::MAX };
        let count = match (self.answers.pop_front(), self.always) {
            (Some(Answer::Fail(fault)), _) | (None, Some(fault)) => return Err(fault),
            (Some(Answer::Take(count)), _) => count,
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

/// A socket that refuses trains, or everything, to one peer or to all.
#[derive(Default)]
struct Picky {
    /// The peer that is refused; `None` refuses all.
    to: Option<SocketAddr>,
    /// The answer to trains, if not to take them.
    trains: Option<Fault>,
    /// The answer to single datagrams, if not to take them.
    singly: Option<Fault>,
}

impl Io for Picky {
    fn recv(&mut self, _: &mut RecvBatch) -> Result<(), Fault> {
        Err(Fault::WouldBlock)
    }

    fn send(&mut self, outgoing: &mut Outgoing<'_>, mode: SendMode) -> Result<usize, Fault> {
        let first = if mode == SendMode::Gso { outgoing.first_train() } else { 1 };
        let to = outgoing.datagrams().next().and_then(|(to, _)| to);
        let fault = if first > 1 { self.trains } else { self.singly };
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

/// Numbered datagrams, each to its own peer.
fn to_many(numbers: std::ops::Range<u32>) -> SendBatch {
    let mut batch = SendBatch::new(256, 4_096);
    for number in numbers {
        assert!(batch.push(Some(peer(number)), &number.to_be_bytes()));
    }
    batch
}

/// Numbered datagrams of one length to one peer: one train when segmented.
fn to_one(count: u32) -> SendBatch {
    let mut batch = SendBatch::new(256, 4_096);
    for number in 0..count {
        assert!(batch.push(Some(peer(0)), &number.to_be_bytes()));
    }
    batch
}

fn never_lost(datagram: LostDatagram) {
    panic!("given up: {datagram:?}");
}

const MODES: [SendMode; 3] = [SendMode::Single, SendMode::Sendmmsg, SendMode::Gso];

/// `Take` for the first `position` datagrams, in the way the mode takes them, then `fault`.
fn fails_at(position: u32, mode: SendMode, fault: Fault) -> Vec<Answer> {
    let mut answers = match (position, mode) {
        (0, _) => Vec::new(),
        (_, SendMode::Single) => vec![Answer::Take(1); position as usize],
        _ => vec![Answer::Take(position as usize)],
    };
    answers.push(Answer::Fail(fault));
    answers
}

#[test]
fn a_full_socket_keeps_the_datagram_and_the_order() {
    for mode in MODES {
        for position in 0..DATAGRAMS {
            let mut wire = Wire::answering(fails_at(position, mode, Fault::WouldBlock));
            let mut sender = Sender::new(mode);
            let mut batch = to_many(0..DATAGRAMS);
            assert_eq!(sender.flush(&mut wire, &mut batch, never_lost), FlushEnd::Blocked);
            assert_eq!(batch.len(), (DATAGRAMS - position) as usize);
            assert!(batch.push(None, &DATAGRAMS.to_be_bytes()));
            assert_eq!(sender.flush(&mut wire, &mut batch, never_lost), FlushEnd::Sent);
            assert_eq!(wire.sent, (0..=DATAGRAMS).collect::<Vec<_>>(), "{mode:?} at {position}");
            assert_eq!(sender.counts().datagrams, u64::from(DATAGRAMS) + 1);
            assert_eq!(sender.counts().faults.count(Fault::WouldBlock), 1);
            assert_eq!((sender.counts().lost.total(), sender.mode()), (0, mode));
        }
    }
}

#[test]
fn a_full_socket_is_not_spun_on() {
    let mut wire = Wire { always: Some(Fault::WouldBlock), ..Wire::default() };
    let mut sender = Sender::new(SendMode::Sendmmsg);
    let mut batch = to_many(0..DATAGRAMS);
    assert_eq!(sender.flush(&mut wire, &mut batch, never_lost), FlushEnd::Blocked);
    assert_eq!(wire.modes.len(), 1);
    assert_eq!(batch.len(), DATAGRAMS as usize);
}

#[test]
fn an_interrupted_send_is_repeated_three_times_for_each_datagram() {
    for interruptions in 0..=9_usize {
        let mut wire = Wire::answering(vec![Answer::Fail(Fault::Interrupted); interruptions]);
        let mut sender = Sender::new(SendMode::Single);
        let mut batch = to_many(0..4);
        let mut lost = Vec::new();
        let end = sender.flush(&mut wire, &mut batch, |it| lost.push((it.to, it.fault)));
        assert_eq!(end, FlushEnd::Sent);
        // Four calls were spent on each datagram given up.
        let first_sent = u32::try_from(interruptions / 4).expect("a small number");
        assert_eq!(wire.sent, (first_sent..4).collect::<Vec<_>>(), "{interruptions} interruptions");
        let given_up: Vec<_> =
            (0..first_sent).map(|number| (Some(peer(number)), Fault::Interrupted)).collect();
        assert_eq!(lost, given_up);
        assert_eq!(sender.counts().faults.count(Fault::Interrupted), interruptions as u64);
        assert_eq!(sender.counts().lost.count(Fault::Interrupted), u64::from(first_sent));
    }
}

#[test]
fn a_refused_datagram_is_lost_alone_and_its_peer_is_named() {
    let lost_alone = Fault::ALL
        .into_iter()
        .filter(|&fault| matches!(send_action(fault, false), SendAction::Lost | SendAction::Unreachable));
    for fault in lost_alone {
        for (mode, position) in MODES.into_iter().flat_map(|mode| (0..DATAGRAMS).map(move |at| (mode, at))) {
            let mut wire = Wire::answering(fails_at(position, mode, fault));
            let mut sender = Sender::new(mode);
            let mut lost = Vec::new();
            let end = sender.flush(&mut wire, &mut to_many(0..DATAGRAMS), |it| lost.push((it.to, it.fault)));
            assert_eq!(end, FlushEnd::Sent);
            assert_eq!(lost, [(Some(peer(position)), fault)], "{mode:?}, {fault} at {position}");
            let others: Vec<u32> = (0..DATAGRAMS).filter(|&number| number != position).collect();
            assert_eq!(wire.sent, others, "{mode:?}, {fault} at {position}");
            assert_eq!(sender.counts().datagrams, u64::from(DATAGRAMS) - 1);
            assert_eq!((sender.counts().lost.count(fault), sender.counts().lost.total()), (1, 1));
            assert_eq!((sender.counts().faults.count(fault), sender.counts().faults.total()), (1, 1));
            assert_eq!(sender.mode(), mode);
        }
    }
}

#[test]
fn what_was_given_up_is_found_by_its_place_in_the_batch_segment_by_segment() {
    let answers = [Answer::Take(3), Answer::Fail(Fault::WouldBlock), Answer::Fail(Fault::NoBuffers)];
    let mut wire = Wire::answering(answers);
    let mut sender = Sender::new(SendMode::Gso);
    let mut batch = to_one(DATAGRAMS);
    assert_eq!(sender.flush(&mut wire, &mut batch, never_lost), FlushEnd::Blocked);
    let mut lost = Vec::new();
    sender.flush(&mut wire, &mut batch, |it| lost.push((it.place, it.bytes, it.fault)));
    let rest: Vec<_> = (3..DATAGRAMS as usize).map(|place| (place, 4, Fault::NoBuffers)).collect();
    assert_eq!(lost, rest);
    // An empty batch counts anew.
    assert!(batch.push(Some(peer(0)), b"again"));
    let mut wire = Wire::answering([Answer::Fail(Fault::NotPermitted)]);
    sender.flush(&mut wire, &mut batch, |it| lost.push((it.place, it.bytes, it.fault)));
    assert_eq!(lost.last(), Some(&(0, 5, Fault::NotPermitted)));
}

#[test]
fn the_send_table_is_the_one_written_down() {
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
        assert_eq!((send_action(fault, false), send_action(fault, true)), (Lost, SendAction::Singly));
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
        for (mode, position) in MODES.into_iter().flat_map(|mode| (0..DATAGRAMS).map(move |at| (mode, at))) {
            let mut wire = Wire::answering(fails_at(position, mode, fault));
            let mut sender = Sender::new(mode);
            let mut batch = to_many(0..DATAGRAMS);
            let mut lost = Vec::new();
            let end = sender.flush(&mut wire, &mut batch, |it| lost.push((it.to, it.fault)));
            assert_eq!(end, FlushEnd::Paused(Duration::from_millis(1)));
            assert_eq!(lost, [(Some(peer(position)), fault)]);
            assert_eq!(batch.len(), (DATAGRAMS - position - 1) as usize);
            assert_eq!(sender.flush(&mut wire, &mut batch, never_lost), FlushEnd::Sent);
            let others: Vec<u32> = (0..DATAGRAMS).filter(|&number| number != position).collect();
            assert_eq!(wire.sent, others, "{mode:?}, {fault} at {position}");
            assert_eq!((sender.counts().lost.count(fault), sender.counts().lost.total()), (1, 1));
        }
    }
}

/// The faults with which the kernel refuses a train as such.
const TRAIN_FAULTS: [Fault; 2] = [Fault::InputOutput, Fault::InvalidArgument];

/// Trains in a row that have to be refused, and datagrams that then leave without trains.
const REFUSED: usize = 8;
const WITHOUT: usize = 4_096;

#[test]
fn a_refused_train_leaves_singly_and_trains_go_on() {
    for fault in TRAIN_FAULTS {
        for trains_before in [0, 1, 3] {
            let mut answers = vec![Answer::Take(8); trains_before];
            answers.push(Answer::Fail(fault));
            let mut wire = Wire::answering(answers);
            let mut sender = Sender::new(SendMode::Gso);
            assert_eq!(sender.flush(&mut wire, &mut to_one(DATAGRAMS), never_lost), FlushEnd::Sent);
            assert_eq!(wire.sent, (0..DATAGRAMS).collect::<Vec<_>>(), "{fault}");
            let singly = DATAGRAMS as usize - 8 * trains_before;
            assert_eq!(wire.modes[..=trains_before], vec![SendMode::Gso; trains_before + 1]);
            assert_eq!(wire.modes[trains_before + 1..], vec![SendMode::Single; singly]);
            assert_eq!(sender.flush(&mut wire, &mut to_one(2), never_lost), FlushEnd::Sent);
            assert_eq!((wire.modes.last(), sender.mode()), (Some(&SendMode::Gso), SendMode::Gso));
            assert_eq!((sender.counts().lost.total(), sender.counts().faults.count(fault)), (0, 1));
        }
    }
}

#[test]
fn a_device_that_refuses_every_train_is_asked_seldom() {
    for fault in TRAIN_FAULTS {
        let mut wire = Picky { trains: Some(fault), ..Picky::default() };
        let mut sender = Sender::new(SendMode::Gso);
        for train in 1..=REFUSED {
            assert_eq!(sender.mode(), SendMode::Gso, "{fault}: {train}");
            assert_eq!(sender.flush(&mut wire, &mut to_one(4), never_lost), FlushEnd::Sent);
        }
        assert_eq!(sender.mode(), SendMode::Sendmmsg, "{fault}");
        for _ in 0..10 * WITHOUT / 4 {
            assert_eq!(sender.flush(&mut wire, &mut to_one(4), never_lost), FlushEnd::Sent);
        }
        // The first eight, and one of each 4,096 datagrams and its own four.
        assert_eq!(sender.counts().faults.count(fault), REFUSED as u64 + 9, "{fault}");
        // A device that takes trains again gets them.
        wire.trains = None;
        for _ in 0..=WITHOUT / 4 {
            assert_eq!(sender.flush(&mut wire, &mut to_one(4), never_lost), FlushEnd::Sent);
        }
        assert_eq!((sender.mode(), sender.counts().lost.total()), (SendMode::Gso, 0), "{fault}");
    }
}

#[test]
fn a_peer_without_trains_takes_them_from_no_other() {
    for (fault, is_lost) in TRAIN_FAULTS.into_iter().flat_map(|fault| [(fault, false), (fault, true)]) {
        let singly = is_lost.then_some(fault);
        let mut wire = Picky { to: Some(peer(0)), trains: Some(fault), singly };
        let mut sender = Sender::new(SendMode::Gso);
        for _ in 0..10 * REFUSED {
            let mut lost = Vec::new();
            let mut batch = to_one(4);
            // A lone datagram goes first, and the train of another peer behind it.
            for to in [2, 1, 1, 1] {
                assert!(batch.push(Some(peer(to)), &[0; 4]));
            }
            let end = sender.flush(&mut wire, &mut batch, |it| lost.push((it.to, it.fault)));
            assert_eq!(end, FlushEnd::Sent);
            assert_eq!(lost, vec![(Some(peer(0)), fault); if is_lost { 4 } else { 0 }]);
            assert_eq!(sender.mode(), SendMode::Gso, "{fault}");
        }
    }
}

#[test]
fn an_address_that_takes_nothing_never_ends_segmentation() {
    for fault in TRAIN_FAULTS {
        let mut wire = Picky { to: Some(peer(0)), trains: Some(fault), singly: Some(fault) };
        let mut sender = Sender::new(SendMode::Gso);
        for _ in 0..100 * REFUSED {
            assert_eq!(sender.flush(&mut wire, &mut to_one(4), |_| {}), FlushEnd::Sent);
            assert_eq!(sender.mode(), SendMode::Gso, "{fault}");
        }
        assert_eq!(sender.counts().lost.count(fault), 400 * REFUSED as u64);
    }
}

#[test]
fn a_train_too_long_for_its_path_goes_out_one_by_one_and_trains_go_on() {
    let mut wire = Wire::answering([Answer::Take(8), Answer::Fail(Fault::MessageTooLong)]);
    let mut sender = Sender::new(SendMode::Gso);
    assert_eq!(sender.flush(&mut wire, &mut to_one(DATAGRAMS), never_lost), FlushEnd::Sent);
    assert_eq!(wire.sent, (0..DATAGRAMS).collect::<Vec<_>>());
    let refused = DATAGRAMS as usize - 8;
    assert_eq!(wire.modes[..2], [SendMode::Gso; 2]);
    assert_eq!(wire.modes[2..], vec![SendMode::Single; refused]);
    assert_eq!(sender.mode(), SendMode::Gso);
    assert_eq!(sender.flush(&mut wire, &mut to_one(2), never_lost), FlushEnd::Sent);
    assert_eq!(wire.modes.last(), Some(&SendMode::Gso));
}

#[test]
fn a_datagram_too_long_even_alone_is_lost_alone() {
    let mut answers = vec![Answer::Fail(Fault::MessageTooLong); 2];
    answers.push(Answer::Take(1));
    answers.push(Answer::Fail(Fault::MessageTooLong));
    let mut wire = Wire::answering(answers);
    let mut sender = Sender::new(SendMode::Gso);
    let mut lost = Vec::new();
    let end = sender.flush(&mut wire, &mut to_one(4), |it| lost.push(it.fault));
    assert_eq!((end, wire.sent), (FlushEnd::Sent, vec![1, 3]));
    assert_eq!(lost, [Fault::MessageTooLong; 2]);
    assert_eq!(sender.mode(), SendMode::Gso);
}

#[test]
fn a_fault_of_a_lone_datagram_does_not_end_segmentation() {
    // A peer whose address cannot be sent to must not turn trains off for everybody else.
    for fault in [Fault::InputOutput, Fault::InvalidArgument] {
        let mut wire = Wire::answering([Answer::Fail(fault)]);
        let mut sender = Sender::new(SendMode::Gso);
        let mut lost = Vec::new();
        let end = sender.flush(&mut wire, &mut to_many(0..2), |it| lost.push((it.to, it.fault)));
        assert_eq!((end, wire.sent), (FlushEnd::Sent, vec![1]));
        assert_eq!(lost, [(Some(peer(0)), fault)]);
        assert_eq!(sender.mode(), SendMode::Gso);
    }
}

#[test]
fn a_closed_descriptor_ends_the_worker_on_both_sides() {
    for fault in [Fault::BadDescriptor, Fault::NotSocket] {
        let (mut script, mut receiver) = with_fault(fault, 0);
        assert_eq!(receiver.drain(&mut script, BUDGET, |_| {}), DrainEnd::Closed(fault));
        for mode in MODES {
            let mut wire = Wire { always: Some(fault), ..Wire::default() };
            let mut sender = Sender::new(mode);
            let mut batch = to_one(3);
            assert_eq!(sender.flush(&mut wire, &mut batch, never_lost), FlushEnd::Closed(fault));
            assert_eq!((wire.modes.len(), batch.len()), (1, 3));
        }
    }
}

#[test]
fn a_socket_that_always_fails_never_traps_a_flush() {
    for fault in Fault::ALL {
        for mode in MODES {
            let mut wire = Wire { always: Some(fault), ..Wire::default() };
            let mut sender = Sender::new(mode);
            let mut batch = to_one(DATAGRAMS);
            let mut lost = 0;
            sender.flush(&mut wire, &mut batch, |_| lost += 1);
            assert!(wire.modes.len() <= 4 * DATAGRAMS as usize, "{fault}, {mode:?}");
            assert_eq!(sender.counts().calls, wire.modes.len() as u64);
            assert_eq!(lost + batch.len(), DATAGRAMS as usize, "{fault}, {mode:?}");
            assert_eq!(sender.counts().lost.total(), lost as u64);
        }
    }
}
