//! Tests of single links with fixed seeds: the arrivals, their times, and their frequencies.

use std::time::Duration;

use super::*;

const MANY: u64 = 100_000;

fn link(config: LinkConfig, seed: u64) -> Link {
    Link::new(config, seed).unwrap()
}

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn push(link: &mut Link, now: Duration, bytes: &[u8]) {
    link.push(now, (), bytes);
}

/// Removes and returns all datagrams of a link, with their times of arrival.
fn arrivals(link: &mut Link) -> Vec<(Duration, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(next) = link.next_at() {
        all.push((next, link.poll(next).expect("it has arrived").1));
    }
    all
}

/// Sends numbered datagrams, one per millisecond. Returns the numbers that arrived, with their times of arrival.
fn numbered(link: &mut Link, count: u64) -> Vec<(Duration, u64)> {
    for number in 0..count {
        push(link, at(number), &number.to_be_bytes());
    }
    let number = |bytes: Vec<u8>| u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
    arrivals(link).into_iter().map(|(at, bytes)| (at, number(bytes))).collect()
}

fn balances(link: &Link) -> bool {
    let counts = link.counts();
    let gone = counts.delivered + counts.lost + counts.queue_full + counts.too_large;
    counts.pushed + counts.duplicated == gone + link.in_flight_count() as u64
}

/// Asserts that `count` of `MANY` is this fraction, within five standard deviations.
fn assert_fraction(count: u64, fraction: f64) {
    let (expected, deviation) = (MANY as f64 * fraction, (MANY as f64 * fraction * (1.0 - fraction)).sqrt());
    assert!((count as f64 - expected).abs() <= 5.0 * deviation, "{count} of {MANY}, not {fraction}");
}

fn bad_link() -> LinkConfig {
    let burst = Loss::Bursts { begin: 0.05, end: 0.3, inside: 0.7, outside: 0.02 };
    let delay = Delay::Normal { mean: Duration::from_millis(40), deviation: Duration::from_millis(9) };
    LinkConfig::default()
        .loss(burst)
        .delay(delay)
        .duplicate(0.1, Duration::from_millis(70))
        .reorder(0.1, Duration::from_millis(90))
        .corrupt(0.1)
        .rate(5_000, 4_000)
}

#[test]
fn a_perfect_link_delivers_immediately_and_in_order() {
    let mut link = link(LinkConfig::default(), 1);
    assert_eq!(link.next_at(), None);
    let got = numbered(&mut link, 100);
    assert_eq!(got, (0..100).map(|number| (at(number), number)).collect::<Vec<_>>());
    let counts = LinkCounts { pushed: 100, delivered: 100, ..LinkCounts::default() };
    assert_eq!(*link.counts(), counts);
}

#[test]
fn no_datagram_arrives_before_its_time() {
    let mut link = link(LinkConfig::default().delay(Delay::Constant(Duration::from_millis(5))), 1);
    push(&mut link, at(10), b"x");
    assert_eq!(link.next_at(), Some(at(15)));
    assert_eq!(link.poll(Duration::from_nanos(15_000_000 - 1)), None);
    assert_eq!(link.poll(at(15)), Some(((), b"x".to_vec())));
    assert_eq!(link.poll(at(99)), None);
}

#[test]
fn even_loss_loses_its_fraction() {
    for (seed, loss) in [(1, 0.01), (2, 0.1), (3, 0.3), (4, 0.9)] {
        let mut link = link(LinkConfig::default().loss(Loss::Random(loss)), seed);
        for _ in 0..MANY {
            push(&mut link, at(0), b"x");
        }
        assert_fraction(link.counts().lost, loss);
        assert!(balances(&link));
    }
}

#[test]
fn loss_of_none_and_of_all_is_exact() {
    for (loss, lost) in [(0.0, 0), (1.0, 1_000)] {
        let mut link = link(LinkConfig::default().loss(Loss::Random(loss)), 9);
        for _ in 0..1_000 {
            push(&mut link, at(0), b"x");
        }
        assert_eq!(link.counts().lost, lost);
    }
}

#[test]
fn burst_loss_agrees_with_the_model() {
    let loss = Loss::Bursts { begin: 0.01, end: 0.1, inside: 1.0, outside: 0.0 };
    let mut link = link(LinkConfig::default().loss(loss), 5);
    let arrived: Vec<u64> = numbered(&mut link, MANY).into_iter().map(|(_, number)| number).collect();
    let lost = MANY - arrived.len() as u64;
    let rows = arrived.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
    // A burst has 10 datagrams on average, and a fraction of 0.01 / (0.01 + 0.1) of all datagrams is in bursts.
    let mean = lost as f64 / rows as f64;
    assert!((9.0..11.0).contains(&mean), "{mean}");
    assert!((0.08..0.102).contains(&(lost as f64 / MANY as f64)), "{lost}");
}

#[test]
fn delays_have_their_bounds_and_mean() {
    let ms = Duration::from_millis;
    let uniform = Delay::Uniform { min: ms(20), max: ms(60) };
    let normal = Delay::Normal { mean: ms(40), deviation: ms(5) };
    for (delay, least, most, deviation) in [(uniform, 20, 60, 11.55), (normal, 10, 70, 5.0)] {
        let config = LinkConfig::default().delay(delay).reorder(1.0, Duration::ZERO);
        let mut link = link(config, 3);
        for _ in 0..MANY {
            push(&mut link, at(0), b"x");
        }
        let times: Vec<f64> = arrivals(&mut link).iter().map(|(at, _)| at.as_nanos() as f64 / 1e6).collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / times.len() as f64;
        assert!(times.iter().all(|time| (f64::from(least)..=f64::from(most)).contains(time)));
        assert!((mean - 40.0).abs() < 0.2, "{mean}");
        assert!((variance.sqrt() - deviation).abs() < 0.2, "{}", variance.sqrt());
    }
}

#[test]
fn a_normal_delay_is_never_negative() {
    let delay = Delay::Normal { mean: Duration::from_millis(1), deviation: Duration::from_millis(50) };
    let mut link = link(LinkConfig::default().delay(delay).reorder(1.0, Duration::ZERO), 3);
    for _ in 0..1_000 {
        push(&mut link, at(100), b"x");
    }
    assert!(arrivals(&mut link).iter().all(|(time, _)| *time >= at(100)));
}

#[test]
fn jitter_alone_keeps_the_order_and_reordering_breaks_it() {
    let delay = Delay::Uniform { min: Duration::ZERO, max: Duration::from_millis(50) };
    let in_order = |got: &[(Duration, u64)]| got.windows(2).all(|pair| pair[0].1 < pair[1].1);
    assert!(in_order(&numbered(&mut link(LinkConfig::default().delay(delay), 4), 5_000)));
    let config = LinkConfig::default().reorder(0.1, Duration::from_millis(10));
    let got = numbered(&mut link(config, 4), 5_000);
    assert!(!in_order(&got));
    assert_eq!(got.len(), 5_000);
    // One datagram is sent per millisecond, and delayed by at most 10 ms. So no datagram is more than 10 places late.
    assert!(got.iter().zip(0..).all(|((_, number), place)| *number <= place + 10 && place <= *number + 10));
}

#[test]
fn duplicates_are_copies_and_counted() {
    let mut link = link(LinkConfig::default().duplicate(0.2, Duration::from_millis(3)), 6);
    let got = numbered(&mut link, MANY);
    assert_fraction(link.counts().duplicated, 0.2);
    assert_eq!(got.len() as u64, MANY + link.counts().duplicated);
    assert!(got.iter().all(|(time, number)| (at(*number)..=at(number + 3)).contains(time)));
    assert!(balances(&link));
}

#[test]
fn corrupted_datagrams_differ_in_bits_or_length_and_are_counted() {
    let mut link = link(LinkConfig::default().corrupt(0.25), 8);
    for _ in 0..MANY {
        push(&mut link, at(0), &[0; 3]);
    }
    let (same, others): (Vec<_>, Vec<_>) =
        arrivals(&mut link).into_iter().map(|(_, bytes)| bytes).partition(|bytes| bytes.len() == 3);
    let flips: Vec<u32> = same.iter().map(|bytes| bytes.iter().map(|byte| byte.count_ones()).sum()).collect();
    let flipped = flips.iter().filter(|flips| **flips > 0).count() as u64;
    assert_eq!(flipped + others.len() as u64, link.counts().corrupted);
    assert_fraction(link.counts().corrupted, 0.25);
    assert_eq!(flips.iter().max(), Some(&4));
    let longer = others.iter().filter(|bytes| bytes.len() > 3).count() as u64;
    let shorter = others.len() as u64 - longer;
    assert!(others.iter().all(|bytes| bytes.len() <= 3 + 64));
    for count in [shorter, longer] {
        assert_fraction(count, 0.25 / 8.0);
    }
    assert!(balances(&link));
}

#[test]
fn an_empty_datagram_passes_uncorrupted() {
    let mut link = link(LinkConfig::default().corrupt(1.0), 8);
    push(&mut link, at(0), b"");
    assert_eq!(arrivals(&mut link), [(at(0), Vec::new())]);
    assert_eq!(link.counts().corrupted, 0);
}

#[test]
fn a_bottleneck_delays_datagrams_by_their_size() {
    // A datagram has 100 bytes with headers. At 1,000 bytes per second, it takes 100 ms.
    let mut link = link(LinkConfig::default().rate(1_000, 300), 1);
    for _ in 0..4 {
        push(&mut link, at(0), &[0; 72]);
    }
    assert_eq!(link.counts().queue_full, 1);
    let times: Vec<Duration> = arrivals(&mut link).into_iter().map(|(at, _)| at).collect();
    assert_eq!(times, [at(100), at(200), at(300)]);
    assert!(balances(&link));
}

#[test]
fn a_queue_is_full_exactly_at_its_size_and_drains() {
    for (payload, is_taken) in [(71, true), (72, true), (73, false)] {
        let mut link = link(LinkConfig::default().rate(1_000, 100), 1);
        push(&mut link, at(0), &vec![0; payload]);
        assert_eq!(link.counts().queue_full, u64::from(!is_taken), "{payload}");
    }
    let mut link = link(LinkConfig::default().rate(1_000, 100), 1);
    push(&mut link, at(0), &[0; 72]);
    push(&mut link, Duration::from_nanos(100_000_000 - 1), &[0; 72]);
    assert_eq!(link.counts().queue_full, 1);
    push(&mut link, at(100), &[0; 72]);
    assert_eq!(link.counts().queue_full, 1);
}

#[test]
fn a_datagram_longer_than_the_limit_of_the_path_is_dropped() {
    let mut link = link(LinkConfig::default().datagram_max_bytes(100), 1);
    for bytes in [99, 100, 101] {
        push(&mut link, at(0), &vec![0; bytes]);
    }
    assert_eq!((link.counts().too_large, link.in_flight_count()), (1, 2));
    assert!(balances(&link));
}

#[test]
fn memory_is_bounded_and_freed_on_arrival() {
    let mut link = link(LinkConfig::default().memory_bytes(65_600), 1);
    for _ in 0..700 {
        push(&mut link, at(0), &[0; 36]);
    }
    assert_eq!((link.in_flight_count(), link.counts().queue_full), (656, 44));
    assert_eq!(arrivals(&mut link).len(), 656);
    push(&mut link, at(0), &[0; 36]);
    assert_eq!(link.counts().queue_full, 44);
    assert!(balances(&link));
}

#[test]
fn datagrams_in_flight_are_lost_when_their_socket_is_replaced() {
    let mut link = Link::new(bad_link(), 1).unwrap();
    for number in 0..1_000_u64 {
        link.push(at(number), number, &number.to_be_bytes());
    }
    let (in_flight, before) = (link.in_flight_count() as u64, *link.counts());
    assert!(in_flight > 0);
    link.lose_all();
    assert_eq!(*link.counts(), LinkCounts { lost: before.lost + in_flight, ..before });
    assert_eq!((link.in_flight_count(), link.next_at()), (0, None));
    link.set_config(LinkConfig::default().memory_bytes(65_600)).unwrap();
    link.push(at(9_999), 7, &[0; 65_000]);
    assert_eq!(link.next_at(), Some(at(9_999)), "it waits for none of the lost ones");
    assert_eq!(link.poll(at(9_999)), Some((7, vec![0; 65_000])));
}

#[test]
fn a_datagram_without_memory_does_not_delay_later_ones() {
    // A datagram of maximum size takes all of the memory, and about one second at the bottleneck.
    let config = LinkConfig::default().memory_bytes(65_600).rate(65_535, 1 << 20);
    let mut link = link(config, 1);
    push(&mut link, at(0), &[0; 65_500]);
    for _ in 0..9 {
        push(&mut link, at(0), &[0; 65_500]);
    }
    let (arrival, _) = arrivals(&mut link)[0];
    push(&mut link, arrival, &[0; 65_500]);
    assert_eq!((link.next_at(), link.counts().queue_full), (Some(2 * arrival), 9));
}

#[test]
fn duplicates_without_memory_are_not_made() {
    let mut link = link(LinkConfig::default().memory_bytes(65_600).duplicate(1.0, Duration::ZERO), 1);
    for _ in 0..1_000 {
        push(&mut link, at(0), &[0; 36]);
    }
    assert_eq!((link.in_flight_count(), link.counts().duplicated), (656, 328));
    assert!(balances(&link));
}

#[test]
fn a_link_can_be_reconfigured_and_refuses_invalid_settings() {
    let mut link = link(LinkConfig::default(), 1);
    push(&mut link, at(0), b"x");
    let refused = link.set_config(LinkConfig::default().corrupt(2.0)).map_err(|error| error.field());
    assert_eq!((refused, link.config()), (Err("corrupt"), &LinkConfig::default()));
    link.set_config(LinkConfig::default().loss(Loss::Random(1.0))).unwrap();
    push(&mut link, at(0), b"y");
    assert_eq!((link.counts().lost, arrivals(&mut link).len()), (1, 1));
}

#[test]
fn the_same_seed_replays_a_link_exactly() {
    let run = |seed| {
        let mut link = link(bad_link(), seed);
        for number in 0..2_000_u64 {
            push(&mut link, at(number), &number.to_be_bytes());
        }
        assert!(balances(&link));
        (arrivals(&mut link), *link.counts())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let (_, counts) = run(1);
    let all = [counts.lost, counts.corrupted, counts.duplicated, counts.queue_full, counts.delivered];
    assert!(all.iter().all(|count| *count > 0), "{counts:?}");
}
