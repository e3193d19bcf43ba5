//! The controllers on a simulated bottleneck, and invariants that hold for any input.

mod link;

use link::{SimulatedLink, Simulation, Source, UNLIMITED, at, ms};
use proptest::prelude::*;

use super::*;

const WINDOW_CONTROLLERS: [Congestion; 2] = [Congestion::Delay, Congestion::Cubic];

const ALL_CONTROLLERS: [Congestion; 3] =
    [Congestion::Delay, Congestion::Cubic, Congestion::Fixed { bytes_per_second: 500_000 }];

/// One bulk sender for 35 seconds.
fn bulk(link: SimulatedLink, source: Source) -> Simulation {
    let mut sim = Simulation::new(link, &[source]);
    sim.run(ms(35_000));
    sim
}

#[test]
fn a_congestion_controller_is_small() {
    assert!(size_of::<Rate>() <= 296, "{}", size_of::<Rate>());
}

#[test]
fn one_flow_fills_the_link() {
    for choice in WINDOW_CONTROLLERS {
        for packet_bytes in [1_200, 200] {
            let sim = bulk(SimulatedLink::new(10, ms(50), ms(50)), Source::bulk(choice).of(packet_bytes));
            let used = sim.utilisation(5..35);
            assert!(used >= 900, "{choice:?} {packet_bytes}: {used}");
            let estimate = sim.flows[0].rate.estimate_bytes_per_second();
            assert!(estimate.abs_diff(sim.link.bytes_per_second) < 50_000, "{choice:?} {estimate}");
        }
    }
}

#[test]
fn other_links_are_filled_with_the_rarest_acks() {
    for (megabits, trip, buffer) in [(1, 50, 200), (10, 5, 100), (10, 150, 300), (50, 20, 200)] {
        for choice in WINDOW_CONTROLLERS {
            let mut link = SimulatedLink::new(megabits, ms(trip), ms(buffer));
            (link.ack_packets, link.ack_delay) = (32, ms(25));
            let used = bulk(link, Source::bulk(choice)).utilisation(5..35);
            assert!(used >= 900, "{choice:?} {megabits} Mbit/s {trip} ms: {used}");
        }
    }
}

#[test]
fn delay_keeps_a_deep_queue_short_and_cubic_fills_it() {
    let of = |choice| bulk(SimulatedLink::new(10, ms(50), ms(1_000)), Source::bulk(choice));
    let (delay, cubic) = (of(Congestion::Delay), of(Congestion::Cubic));
    assert!(delay.utilisation(5..35) >= 900, "{}", delay.utilisation(5..35));
    assert!(delay.queue_millis(0, 5..35, 950) <= 30, "{}", delay.queue_millis(0, 5..35, 950));
    assert_eq!(delay.flows[0].lost, 0);
    assert!(cubic.queue_millis(0, 5..35, 950) > 300, "{}", cubic.queue_millis(0, 5..35, 950));
}

/// Percent of a link that the first of two flows has in the second half of a minute, when the other begins so much later.
fn share_of_the_first(link: SimulatedLink, choice: Congestion, packet_bytes: u64, later: u64) -> u64 {
    let first = Source::bulk(choice).of(packet_bytes);
    let mut sim = Simulation::new(link, &[first, first.after(ms(later))]);
    sim.run(ms(60_000));
    assert!(sim.utilisation(30..60) >= 950, "{choice:?} {packet_bytes} {later}");
    let (one, other) = (sim.delivered(0, 30..60), sim.delivered(1, 30..60));
    one * 100 / (one + other)
}

#[test]
fn two_flows_share_a_link_fairly() {
    for choice in WINDOW_CONTROLLERS {
        for packet_bytes in [1_200, 200] {
            // Faster links are shared less evenly: two flows disagree by a few milliseconds on how long the queue is.
            for (megabits, buffer, allowed) in
                [(1, 50, 40..=60), (1, 100, 40..=60), (1, 200, 40..=60), (10, 200, 33..=67)]
            {
                let shares = [1_000, 2_000, 3_000, 4_000, 5_000].map(|later| {
                    share_of_the_first(
                        SimulatedLink::new(megabits, ms(50), ms(buffer)),
                        choice,
                        packet_bytes,
                        later,
                    )
                });
                println!("{choice:?}, {megabits} Mbit/s, {buffer} ms, {packet_bytes} B: {shares:?} %");
                let is_fair = shares.iter().all(|share| allowed.contains(share));
                assert!(is_fair, "{choice:?} {megabits} {buffer} {packet_bytes}: {shares:?}");
            }
        }
    }
}

#[test]
fn random_loss_and_jitter_do_not_starve_delay() {
    for (loss_per_mille, jitter) in [(20, 0), (50, 0), (0, 5), (0, 10), (10, 5)] {
        let mut link = SimulatedLink::new(10, ms(50), ms(200));
        (link.loss_per_mille, link.jitter) = (loss_per_mille, ms(jitter));
        let used = bulk(link, Source::bulk(Congestion::Delay)).utilisation(5..35);
        assert!(used >= 800, "{loss_per_mille} {jitter}: {used}");
    }
}

#[test]
fn delay_uses_capacity_that_becomes_free() {
    let mut sim = Simulation::new(SimulatedLink::new(5, ms(50), ms(200)), &[Source::bulk(Congestion::Delay)]);
    sim.run(ms(10_000));
    sim.link.bytes_per_second *= 8;
    sim.run(ms(15_000));
    let used = sim.utilisation(12..15);
    assert!(used >= 900, "{used}");
}

#[test]
fn a_game_is_never_blocked_on_an_idle_link() {
    for choice in ALL_CONTROLLERS {
        for (trip, ack_delay) in [(5, 12), (50, 12), (150, 25)] {
            let mut link = SimulatedLink::new(10, ms(trip), ms(100));
            link.ack_delay = ms(ack_delay);
            let mut sim = Simulation::new(link, &[Source::game(choice)]);
            sim.run(ms(20_000));
            assert_eq!(sim.flows[0].blocked, 0, "{choice:?} {trip}");
            assert!(sim.delivered(0, 0..20) >= 200 * 60 * 19);
            assert!(sim.queue_millis(0, 0..20, 999) <= 1);
        }
    }
}

#[test]
fn a_game_is_not_starved_by_a_queue_filling_flow() {
    let game = Source::game(Congestion::Delay).after(ms(2_000));
    let mut sim =
        Simulation::new(SimulatedLink::new(5, ms(40), ms(400)), &[Source::bulk(Congestion::Cubic), game]);
    sim.run(ms(62_000));
    assert!(sim.queue_millis(1, 10..60, 500) > 200, "the queue is full");
    assert!(sim.flows[1].blocked <= 36, "one in a hundred: {}", sim.flows[1].blocked);
}

#[test]
fn a_game_next_to_a_delay_based_download_sees_no_queue() {
    let game = Source::game(Congestion::Delay).after(ms(2_000));
    let mut sim =
        Simulation::new(SimulatedLink::new(5, ms(40), ms(400)), &[Source::bulk(Congestion::Delay), game]);
    sim.run(ms(32_000));
    assert!(sim.queue_millis(1, 5..30, 950) <= 40, "{}", sim.queue_millis(1, 5..30, 950));
    assert_eq!(sim.flows[1].blocked, 0);
}

#[test]
fn an_outage_restarts_the_window_and_it_recovers() {
    for choice in WINDOW_CONTROLLERS {
        let mut link = SimulatedLink::new(10, ms(50), ms(50));
        link.outage = at(10_000)..at(13_000);
        let sim = bulk(link, Source::bulk(choice));
        let mut since = sim.flows[0].windows.iter().filter(|(when, _)| *when >= at(13_000));
        let min_bytes = if choice == Congestion::Cubic { WINDOW_MIN_BYTES } else { WINDOW_START_BYTES };
        assert!(since.any(|&(_, window)| window == min_bytes), "{choice:?}");
        assert!(sim.utilisation(20..35) >= 900, "{choice:?} {}", sim.utilisation(20..35));
    }
}

#[test]
fn a_window_grows_only_while_it_is_used() {
    for choice in WINDOW_CONTROLLERS {
        let mut sim = Simulation::new(SimulatedLink::new(10, ms(50), ms(50)), &[Source::game(choice)]);
        sim.run(ms(20_000));
        assert_eq!(sim.flows[0].rate.window_bytes(), WINDOW_START_BYTES, "{choice:?}");
    }
}

#[test]
fn a_window_grows_no_further_than_another_limit_lets_it_be_used() {
    for (choice, is_count_limited) in WINDOW_CONTROLLERS.into_iter().flat_map(|of| [(of, false), (of, true)])
    {
        for (limit_bytes, max_bytes) in [(131_072, 131_072 + 12_000), (u32::MAX, WINDOW_MAX_BYTES)] {
            let mut rate = Rate::new(choice, &(limit_bytes..=limit_bytes));
            for sent in 0..4_000 {
                rate.on_acked(&AckSummary {
                    now: at(sent + 50),
                    bytes: 12_000,
                    sent_at: at(sent),
                    round_trip: ms(50),
                    smoothed: ms(50),
                    is_app_limited: false,
                    is_count_limited,
                });
            }
            let window_bytes = rate.controller.get().window_bytes();
            if is_count_limited {
                assert_eq!(window_bytes, WINDOW_START_BYTES, "{choice:?}");
            } else {
                assert!((131_072..=max_bytes).contains(&window_bytes), "{choice:?}: {window_bytes}");
            }
            // The estimate of the path is that of 12,000 bytes a millisecond.
            assert!(rate.estimate_bytes_per_second().abs_diff(12_000_000) < 600_000, "{choice:?}");
        }
    }
}

#[test]
fn losses_of_one_round_trip_are_one_congestion_event() {
    let mut rate = Rate::new(Congestion::Cubic, &UNLIMITED);
    let lose = |rate: &mut Rate, now, sent| {
        let (now, sent_at) = (at(now), at(sent));
        rate.on_lost(&LossSummary { now, bytes: 1_200, sent_at, is_persistent: false });
        rate.window_bytes()
    };
    assert_eq!(lose(&mut rate, 100, 40), WINDOW_START_BYTES * 7 / 10);
    assert_eq!(lose(&mut rate, 150, 100), WINDOW_START_BYTES * 7 / 10, "sent before the first was known");
    assert_eq!(lose(&mut rate, 200, 101), WINDOW_START_BYTES * 49 / 100);
    rate.on_path_changed(at(300));
    assert_eq!(rate.window_bytes(), WINDOW_START_BYTES);
    assert_eq!(lose(&mut rate, 350, 299), WINDOW_START_BYTES, "lost on the path before");
}

#[test]
fn after_an_outage_the_window_grows_from_the_first_ack() {
    for choice in WINDOW_CONTROLLERS {
        let mut rate = Rate::new(choice, &UNLIMITED);
        rate.on_lost(&LossSummary { now: at(1_000), bytes: 9_600, sent_at: at(400), is_persistent: true });
        let min_bytes = if choice == Congestion::Cubic { WINDOW_MIN_BYTES } else { WINDOW_START_BYTES };
        assert_eq!(rate.window_bytes(), min_bytes, "{choice:?}");
        let trip = ms(50);
        rate.on_acked(&AckSummary {
            now: at(1_050),
            bytes: 1_200,
            sent_at: at(1_000),
            round_trip: trip,
            smoothed: trip,
            is_app_limited: false,
            is_count_limited: false,
        });
        assert_eq!(rate.window_bytes(), min_bytes + 1_200, "{choice:?}");
    }
}

#[test]
fn a_fixed_rate_has_its_full_limit_from_the_start() {
    let fixed = Congestion::Fixed { bytes_per_second: 125_000_000 };
    let mut rate = Rate::new(fixed, &(131_072..=4_194_304));
    assert_eq!(rate.window_bytes(), 4_194_304);
    rate.on_path_changed(at(1_000));
    assert_eq!(rate.window_bytes(), 4_194_304);
}

#[test]
fn a_fixed_rate_ignores_losses() {
    for bytes_per_second in [2_000, 500_000, 5_000_000] {
        for (loss_per_mille, packet_bytes) in [(0, 1_200), (0, 200), (200, 1_200)] {
            let mut link = SimulatedLink::new(100, ms(50), ms(50));
            link.loss_per_mille = loss_per_mille;
            let source = Source::bulk(Congestion::Fixed { bytes_per_second }).of(packet_bytes);
            let sim = bulk(link, source);
            let sent = sim.flows[0].sent_bytes(10..30) / 20;
            let off = sent.abs_diff(bytes_per_second);
            assert!(off <= bytes_per_second / 50, "{bytes_per_second} {loss_per_mille}: {sent}");
        }
    }
}

/// An event of a connection.
#[derive(Debug, Clone)]
enum RateEvent {
    Sent(u64),
    Acked { bytes: u64, age: u64, trip: u64, smoothed: u64, is_app_limited: bool },
    Lost { bytes: u64, age: u64, is_persistent: bool },
    PathChanged,
}

/// Numbers of all magnitudes.
fn magnitude() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0_u32..64).prop_map(|(value, shift)| value >> shift)
}

fn random_event() -> impl Strategy<Value = RateEvent> {
    let acked = (magnitude(), magnitude(), magnitude(), magnitude(), any::<bool>());
    let usual = (1_u64..100_000, 0_u64..100_000_000, 0_u64..300_000_000, 0_u64..300_000_000, any::<bool>());
    let acked = prop_oneof![usual, acked].prop_map(|(bytes, age, trip, smoothed, is_app_limited)| {
        RateEvent::Acked { bytes, age, trip, smoothed, is_app_limited }
    });
    prop_oneof![
        3 => magnitude().prop_map(RateEvent::Sent),
        6 => acked,
        2 => (magnitude(), magnitude(), any::<bool>())
            .prop_map(|(bytes, age, is_persistent)| RateEvent::Lost { bytes, age, is_persistent }),
        1 => Just(RateEvent::PathChanged),
    ]
}

fn apply_event(rate: &mut Rate, now: Moment, event: &RateEvent) {
    let ago = |age: u64| Moment::from_nanos(now.as_nanos().saturating_sub(age));
    match *event {
        RateEvent::Sent(bytes) => rate.on_sent(now, bytes),
        RateEvent::Acked { bytes, age, trip, smoothed, is_app_limited } => rate.on_acked(&AckSummary {
            now,
            bytes,
            sent_at: ago(age),
            round_trip: if trip == 0 { Duration::MAX } else { Duration::from_nanos(trip) },
            smoothed: Duration::from_nanos(smoothed),
            is_app_limited,
            is_count_limited: false,
        }),
        RateEvent::Lost { bytes, age, is_persistent } => {
            rate.on_lost(&LossSummary { now, bytes, sent_at: ago(age), is_persistent });
        }
        RateEvent::PathChanged => rate.on_path_changed(now),
    }
}

proptest! {
    #[test]
    fn bounds_hold_under_random_events(
        which in 0_usize..4,
        fixed in magnitude(),
        events in prop::collection::vec((prop_oneof![0_u64..50_000_000, magnitude()], random_event()), 0..200),
    ) {
        let choices = [Congestion::Delay, Congestion::Cubic, Congestion::Fixed { bytes_per_second: fixed }];
        let mut rate = Rate::new(choices[which.min(2)], &UNLIMITED);
        let mut now = Moment::ORIGIN;
        for (later, event) in &events {
            now = now.after(Duration::from_nanos(*later));
            apply_event(&mut rate, now, event);
            // The configuration refuses lower fixed rates.
            if which < 2 || fixed >= 1_200 {
                rate.assert_invariants();
            }
            let window = rate.window_bytes();
            prop_assert!((WINDOW_MIN_BYTES..=WINDOW_MAX_BYTES).contains(&window), "{window}");
            let next = rate.next_at(now);
            prop_assert_eq!(next.is_none(), rate.may_send_after(now, 0));
            prop_assert!(next.is_none_or(|next| next >= now));
            rate.estimate_bytes_per_second();
        }
    }
}
