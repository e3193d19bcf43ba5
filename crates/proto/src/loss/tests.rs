//! Tests of loss detection: acks as the wire carries them, against packets sent one per millisecond.

use super::*;
use crate::path::Path;
use drumfire_wire::{AckDelay, AckRange, Frame, FrameWriter, Frames};

fn ms(milliseconds: u64) -> Moment {
    Moment::from_nanos(milliseconds * 1_000_000)
}

/// Packet n, sent at n ms, with 100 bytes and one message.
fn sent(number: u64) -> SentPacket {
    SentPacket {
        number,
        at: ms(number),
        bytes: 100,
        carried: 1,
        acks_up_to: None,
        is_repeated: true,
        urgency: AckUrgency::High,
        is_mtu_probe: false,
    }
}

/// Sends packets `from..to`, with message n in packet n.
fn send(loss: &mut Loss, numbers: std::ops::Range<u64>) {
    for number in numbers {
        loss.carry(MessageId(number));
        loss.on_sent(sent(number));
    }
}

/// The packets in flight of a connection that is not idle.
fn packets(loss: &Loss) -> &InFlightPackets {
    loss.packets.as_ref().unwrap()
}

fn carried_count(loss: &Loss) -> usize {
    packets(loss).carried.as_ref().map_or(0, |carried| carried.ids.len())
}

type Reported = Vec<(PacketFate, u64)>;

fn ack(
    loss: &mut Loss,
    at: u64,
    ranges: &[(u64, u64)],
    next: u64,
) -> Result<(Reported, AckOutcome), AckError> {
    let mut buffer = [0; 400];
    let mut writer = FrameWriter::new(&mut buffer[..]);
    let ranges: Vec<_> = ranges
        .iter()
        .map(|&(small, large)| AckRange::new(PacketNumber(small), PacketNumber(large)).unwrap())
        .collect();
    writer.ack(AckDelay::from_duration(Duration::ZERO), ranges.into_iter()).unwrap();
    let bytes = writer.written_bytes();
    let Some(Ok(Frame::Ack(frame))) = Frames::new(&buffer[..bytes]).next() else { panic!("an ack") };
    let mut fates = Vec::new();
    let outcome = loss.on_ack(ms(at), &frame, next, |fate, id, _| fates.push((fate, id.0)))?;
    loss.assert_invariants();
    Ok((fates, outcome))
}

#[test]
fn an_acked_packet_resolves_its_messages_and_gives_a_sample() {
    let mut loss = Loss::default();
    send(&mut loss, 0..2);
    let (fates, outcome) = ack(&mut loss, 41, &[(0, 1)], 2).unwrap();
    assert_eq!(fates, [(PacketFate::Acknowledged, 0), (PacketFate::Acknowledged, 1)]);
    assert_eq!((outcome.acknowledged_count, loss.lost_count()), (2, 0));
    assert_eq!(loss.round_trip().smoothed(), Duration::from_millis(40));
    assert_eq!((loss.in_flight_bytes(), loss.has_in_flight(), loss.deadline()), (0, false, None));
    assert_eq!((packets(&loss).ring.len(), carried_count(&loss)), (0, 0));
}

#[test]
fn a_clock_jump_with_packets_in_flight_gives_no_sample() {
    const YEAR_MS: u64 = 365 * 24 * 3_600 * 1_000;
    for (at, smoothed) in [(10_000, 10_000), (10_001, 40), (YEAR_MS, 40)] {
        let mut loss = Loss::default();
        send(&mut loss, 0..1);
        if smoothed == 40 {
            ack(&mut loss, 40, &[(0, 0)], 1).unwrap();
            send(&mut loss, 1..2);
        }
        let newest = u64::from(smoothed == 40);
        let (fates, outcome) = ack(&mut loss, at + newest, &[(newest, newest)], 2).unwrap();
        assert_eq!((fates, outcome.acknowledged_count), (vec![(PacketFate::Acknowledged, newest)], 1));
        assert_eq!(outcome.round_trip.is_some(), smoothed != 40, "{at}");
        assert_eq!(loss.round_trip().smoothed(), Duration::from_millis(smoothed), "{at}");
    }
}

#[test]
fn a_packet_is_lost_when_a_packet_three_later_arrived() {
    for (later, lost) in [(2, 0), (3, 1), (4, 2)] {
        let mut loss = Loss::default();
        send(&mut loss, 0..10);
        let (fates, _) = ack(&mut loss, 100, &[(later, later)], 10).unwrap();
        assert_eq!(loss.lost_count(), lost, "{later}");
        assert_eq!(fates.iter().filter(|(fate, _)| *fate == PacketFate::Lost).count() as u64, lost);
    }
}

#[test]
fn lost_packets_above_the_minimum_mtu_count_as_large() {
    let sizes = [Path::START_BYTES - 1, Path::START_BYTES, Path::START_BYTES + 1, 60];
    for (path_changed_at, large_count) in [(0, 1), (1, 0)] {
        let mut loss = Loss::default();
        for (number, bytes) in (0..).zip(sizes) {
            loss.on_sent(SentPacket {
                number,
                at: ms(0),
                bytes,
                carried: 0,
                acks_up_to: None,
                is_repeated: false,
                urgency: AckUrgency::Low,
                is_mtu_probe: false,
            });
        }
        // The losses of an earlier path say nothing about the sizes that this one carries.
        loss.ignore_sent_before(ms(path_changed_at));
        let lost = ack(&mut loss, 20, &[(9, 9)], 10).unwrap().1.lost;
        assert_eq!((lost.count, lost.large_count), (4, large_count));
    }
}

#[test]
fn a_packet_is_lost_by_time_after_nine_eighths_of_a_round_trip() {
    let mut loss = Loss::default();
    send(&mut loss, 0..2);
    ack(&mut loss, 81, &[(1, 1)], 2).unwrap();
    // Round trip 80 ms, and 5 ms that an ack may be held back, so packet 0 is lost at 95 ms.
    assert_eq!(loss.deadline(), Some(ms(95)));
    assert_ne!(loss.on_timeout(ms(94), |_, _, _| unreachable!()), TimerOutcome::Probe);
    let mut fates = Vec::new();
    assert_ne!(
        loss.on_timeout(ms(95), |fate, id, number| fates.push((fate, id.0, number))),
        TimerOutcome::Probe
    );
    assert_eq!(fates, [(PacketFate::Lost, 0, 0)]);
    assert!(!loss.has_in_flight());
}

#[test]
fn a_packet_acked_twice_is_resolved_once() {
    let mut loss = Loss::default();
    send(&mut loss, 0..8);
    ack(&mut loss, 20, &[(1, 2)], 8).unwrap();
    let (fates, outcome) = ack(&mut loss, 21, &[(0, 4)], 8).unwrap();
    assert_eq!(
        fates,
        [(PacketFate::Acknowledged, 0), (PacketFate::Acknowledged, 3), (PacketFate::Acknowledged, 4)]
    );
    assert_eq!(outcome.acknowledged_count, 3);
    let (fates, outcome) = ack(&mut loss, 22, &[(0, 4)], 8).unwrap();
    assert_eq!((fates, outcome), (Vec::new(), AckOutcome::default()));
    assert_eq!((packets(&loss).ring.len(), loss.in_flight_bytes()), (3, 300));
}

#[test]
fn a_probe_waits_for_the_delay_of_the_most_urgent_ack() {
    let mut loss = Loss::default();
    send(&mut loss, 0..1);
    ack(&mut loss, 40, &[(0, 0)], 1).unwrap();
    assert_eq!(loss.deadline(), None);
    let margin = 40 + 4 * 20;
    for (number, urgency, wait) in
        [(1, AckUrgency::Late, 300), (2, AckUrgency::Low, 40), (3, AckUrgency::High, 10)]
    {
        let (at, bytes, acks_up_to) = (ms(100), 30, None);
        let is_repeated = urgency == AckUrgency::High;
        loss.on_sent(SentPacket {
            number,
            at,
            bytes,
            carried: 0,
            acks_up_to,
            is_repeated,
            urgency,
            is_mtu_probe: false,
        });
        assert_eq!(loss.deadline(), Some(ms(100 + margin + wait)), "{urgency:?}");
    }
    assert_eq!(loss.probe_timeout(), Duration::from_millis(margin + 25));
    // The packets that the ack leaves in flight may take longer again.
    ack(&mut loss, 100, &[(2, 3)], 4).unwrap();
    assert_eq!(packets(&loss).in_flight.urgency(), AckUrgency::Late);
    ack(&mut loss, 100, &[(1, 3)], 4).unwrap();
    assert_eq!(packets(&loss).in_flight, in_flight::InFlight::default());
}

#[test]
fn one_long_round_trip_does_not_slow_down_probes() {
    let mut loss = Loss::default();
    for (number, at) in [(0, 40), (1, 80), (2, 120), (3, 3_100)] {
        send(&mut loss, number..number + 1);
        ack(&mut loss, at, &[(number, number)], number + 1).unwrap();
    }
    let timeout = loss.probe_timeout();
    assert!(timeout > PROBE_INTERVAL_MAX && loss.round_trip().smoothed() < PROBE_INTERVAL_MAX, "{timeout:?}");
    loss.carry(MessageId(4));
    loss.on_sent(SentPacket { at: ms(3_100), ..sent(4) });
    assert_eq!(loss.deadline(), Some(ms(3_100).after(PROBE_INTERVAL_MAX)));
}

#[test]
fn an_ack_of_an_unsent_or_skipped_number_is_an_error() {
    let mut loss = Loss::default();
    send(&mut loss, 0..5);
    loss.on_skipped(5);
    send(&mut loss, 6..8);
    for largest in [7, 8, 9] {
        let result = ack(&mut loss, 20, &[(largest, largest)], 8).map(|_| ());
        assert_eq!(result, if largest < 8 { Ok(()) } else { Err(AckError::Unsent) });
    }
    for range in [(0, 5), (5, 5), (5, 6), (4, 7)] {
        assert_eq!(ack(&mut loss, 21, &[range], 8).map(|_| ()), Err(AckError::Skipped), "{range:?}");
    }
    assert!(ack(&mut loss, 21, &[(6, 7), (0, 4)], 8).is_ok());
}

#[test]
fn probes_double_after_one_second_or_17_up_to_700_ms() {
    for (round_trip, constant_count) in [(10, 17), (60, 5)] {
        check_probe_waits(round_trip, constant_count);
    }
}

/// Checks the waits of forty probes. The first expects an ack after a quarter of the round trip, and `constant_count` more
/// expect it after 25 ms. The later waits double.
fn check_probe_waits(round_trip: u64, constant_count: usize) {
    let mut loss = Loss::default();
    send(&mut loss, 0..1);
    ack(&mut loss, round_trip, &[(0, 0)], 1).unwrap();
    send(&mut loss, 1..2);
    let first = loss.probe_timeout().as_millis();
    let mut waits = Vec::new();
    for _ in 0..40 {
        let due = loss.deadline().unwrap();
        waits.push(due.since(packets(&loss).probed_at.unwrap_or(ms(1))).as_millis());
        assert_eq!(loss.on_timeout(due, |_, _, _| unreachable!()), TimerOutcome::Probe);
    }
    let later = |doublings: u32| (first << doublings).min(700);
    assert_eq!(waits[0], reliable_timeout(&loss).as_millis());
    assert!(waits[1..=constant_count].iter().all(|wait| *wait == first), "{waits:?}");
    for (wait, doublings) in waits[constant_count + 1..].iter().zip(1..) {
        assert_eq!(*wait, later(doublings), "{waits:?}");
    }
    assert!(waits.ends_with(&[700; 10]));
    assert!(loss.is_silenced());
    loss.packets.as_mut().unwrap().probe_count = 1_000_000;
    assert!(loss.deadline().is_some());
    ack(&mut loss, 3_000, &[(1, 1)], 2).unwrap();
    assert!(!loss.is_silenced());
}

#[test]
fn probes_without_reliable_data_double_from_the_first_one() {
    let mut loss = Loss::default();
    send(&mut loss, 0..1);
    ack(&mut loss, 10, &[(0, 0)], 1).unwrap();
    loss.on_sent(SentPacket { carried: 0, is_repeated: false, urgency: AckUrgency::Low, ..sent(20) });
    let (first, mut last) = (loss.probe_timeout(), ms(20));
    for doublings in 0..10 {
        let due = loss.deadline().unwrap();
        assert_eq!(due.since(last), (first * (1 << doublings)).min(QUIET_PROBE_INTERVAL_MAX));
        assert_eq!(loss.on_timeout(due, |_, _, _| unreachable!()), TimerOutcome::Probe);
        last = due;
    }
}

#[test]
fn acks_of_other_packets_do_not_postpone_a_probe() {
    let mut loss = Loss::default();
    send(&mut loss, 0..4);
    ack(&mut loss, 41, &[(2, 2)], 4).unwrap();
    ack(&mut loss, 45, &[(0, 1)], 4).unwrap();
    assert!(loss.has_in_flight());
    assert_eq!(loss.deadline(), Some(ms(3).after(reliable_timeout(&loss))));
}

#[test]
fn packets_without_reliable_data_hasten_no_probe() {
    let mut loss = Loss::default();
    send(&mut loss, 0..1);
    ack(&mut loss, 40, &[(0, 0)], 1).unwrap();
    loss.on_sent(SentPacket { carried: 0, is_repeated: false, urgency: AckUrgency::Late, ..sent(41) });
    let twice_as_long = loss.round_trip().probe_timeout(ACK_DELAY_LATE * 2);
    assert_eq!(loss.deadline(), Some(ms(41).after(twice_as_long)), "the peer's timer may be late");
    send(&mut loss, 90..91);
    assert_eq!(loss.deadline(), Some(ms(90).after(reliable_timeout(&loss))));
}

#[test]
fn a_probe_for_control_frames_waits_as_long_as_their_ack() {
    let mut loss = Loss::default();
    send(&mut loss, 0..1);
    ack(&mut loss, 40, &[(0, 0)], 1).unwrap();
    loss.carry(MessageId(1));
    loss.on_sent(SentPacket { urgency: AckUrgency::Low, ..sent(50) });
    // The peer waits for a round trip of 40 ms, and not for a quarter of it.
    assert_eq!(
        loss.deadline(),
        Some(ms(50).after(loss.round_trip().probe_timeout(Duration::from_millis(40))))
    );
    // Ack-eliciting frames that are not repeated do not postpone the probe.
    loss.on_sent(SentPacket { carried: 0, is_repeated: false, urgency: AckUrgency::Low, ..sent(60) });
    loss.on_timeout(loss.deadline().unwrap(), |_, _, _| {});
    assert_eq!(loss.carried_for_probe().collect::<Vec<_>>(), [MessageId(1)]);
}

/// The wait for the ack of a packet with reliable data, before a probe.
fn reliable_timeout(loss: &Loss) -> Duration {
    let ack_delay = reliable_ack_delay(loss.round_trip().smoothed_nanos());
    loss.round_trip().probe_timeout(Duration::from_nanos(ack_delay))
}

#[test]
fn the_probe_back_off_restarts_after_an_outage() {
    let mut loss = Loss::default();
    send(&mut loss, 0..1);
    for _ in 0..20 {
        let due = loss.deadline().unwrap();
        loss.on_timeout(due, |_, _, _| {});
    }
    loss.restart_probing(ms(60_000));
    assert_eq!(loss.probe_count(), 0);
    assert_eq!(loss.deadline(), Some(ms(60_000).after(reliable_timeout(&loss))));
}

#[test]
fn the_estimate_of_another_path_begins_with_its_first_packet() {
    let mut loss = Loss::default();
    send(&mut loss, 0..2);
    ack(&mut loss, 400, &[(0, 0)], 2).unwrap();
    assert_eq!(loss.round_trip().smoothed(), Duration::from_millis(400));
    loss.on_path_changed(ms(500));
    assert_eq!(loss.round_trip().measured(), None);
    let (fates, outcome) = ack(&mut loss, 501, &[(0, 1)], 2).unwrap();
    assert_eq!((fates, outcome.round_trip), (vec![(PacketFate::Acknowledged, 1)], None));
    send(&mut loss, 600..601);
    assert_eq!(
        ack(&mut loss, 620, &[(600, 600)], 601).unwrap().1.round_trip,
        Some(Duration::from_millis(20))
    );
    assert_eq!(loss.round_trip().measured(), Some(Duration::from_millis(20)));
}

#[test]
fn a_probe_repeats_the_oldest_messages_in_flight_and_a_later_one_also_the_newest() {
    let mut loss = Loss::default();
    send(&mut loss, 0..3);
    ack(&mut loss, 10, &[(0, 0)], 3).unwrap();
    let mut repeated_by_next_probe = || {
        loss.on_timeout(loss.deadline().unwrap(), |_, _, _| {});
        loss.carried_for_probe().map(|id| id.0).collect::<Vec<_>>()
    };
    assert_eq!(repeated_by_next_probe(), [1]);
    // The newest packet with messages is usually the last probe.
    assert_eq!(repeated_by_next_probe(), [1, 2]);
}

#[test]
fn the_ring_holds_packets_in_flight_and_at_most_three_more() {
    let mut loss = Loss::default();
    for number in 0..2_000 {
        send(&mut loss, number..number + 1);
        // Every other packet is acknowledged, each on its own, so half are lost.
        if number % 2 == 1 {
            ack(&mut loss, number + 5, &[(number, number)], number + 1).unwrap();
        }
        assert!(packets(&loss).ring.len() <= 4 && carried_count(&loss) <= 4, "{}", packets(&loss).ring.len());
    }
}

#[test]
fn the_peer_knows_the_newest_acknowledged_ack() {
    let mut loss = Loss::default();
    for (number, acks_up_to) in [(0, None), (1, Some(PacketNumber(40))), (2, Some(PacketNumber(44)))] {
        loss.on_sent(SentPacket {
            number,
            at: ms(number),
            bytes: 30,
            carried: 0,
            acks_up_to,
            is_repeated: false,
            urgency: AckUrgency::Low,
            is_mtu_probe: false,
        });
    }
    assert_eq!(ack(&mut loss, 10, &[(0, 1)], 3).unwrap().1.knows_up_to, Some(PacketNumber(40)));
    assert_eq!(ack(&mut loss, 11, &[(0, 2)], 3).unwrap().1.knows_up_to, Some(PacketNumber(44)));
}

#[test]
fn an_ack_that_declares_all_lost_ends_the_silence() {
    let mut loss = Loss::default();
    send(&mut loss, 0..3);
    while !loss.is_silenced() {
        let due = loss.deadline().unwrap();
        loss.on_timeout(due, |_, _, _| {});
    }
    // The ack names a packet that is not ack-eliciting.
    let (fates, outcome) = ack(&mut loss, 60_000, &[(9, 9)], 10).unwrap();
    assert_eq!((fates.len(), outcome.acknowledged_count, loss.has_in_flight()), (3, 0, false));
    assert!(!loss.is_silenced(), "no packet is in flight that an ack could name, so sending must be allowed");
}
