//! Tests of surveys over made-up connections.

use drumfire_proto::PeerId;

use super::*;
use crate::base::sync::Pending;
use crate::observe::survey::{Survey, SurveyOrder, WorkerSample};

fn at(milliseconds: u64) -> Moment {
    Moment::ORIGIN.after(Duration::from_millis(milliseconds))
}

fn id(slot: usize) -> PeerId {
    format!("0.{slot}.0").parse().unwrap()
}

fn sample(place: usize, bytes: u64) -> PeerSample {
    PeerSample {
        peer: id(place),
        address: ([192, 0, 2, 1], 7).into(),
        player: None,
        // Each slot has another round trip, in no order.
        round_trip: Duration::from_micros((place as u64 * 7_919) % 100_003),
        packets_sent: 100,
        packets_lost: 3,
        packets_received: 40,
        packets_missing: 10,
        bytes_sent: bytes,
        bytes_received: 2 * bytes,
        queued_bytes: place,
        sent_per_second: None,
        received_per_second: None,
    }
}

fn ask(surveys: &mut Surveys, now: Moment, order: SurveyOrder, limit: usize) -> Pending<Survey> {
    let workers = vec![WorkerSample::default()];
    let (survey, mut parts) = Pending::new(Survey { workers, ..Survey::default() }, 1);
    surveys.add(now, SurveyQuery { order, limit, part: parts.pop().unwrap() });
    survey
}

/// Runs passes until all surveys are complete. Returns the number of passes, and the largest number of slots that one pass visited.
fn passes(surveys: &mut Surveys, now: Moment, places: usize, bytes: u64) -> (usize, usize) {
    let (mut count, mut most) = (0, 0);
    while surveys.is_running() {
        surveys.step(now, (0, 5), places, |from, length, found| {
            most = most.max(length);
            (from..from + length).for_each(|place| found(sample(place, bytes)));
        });
        count += 1;
    }
    (count, most)
}

#[test]
fn a_survey_visits_each_of_100_000_connections_once() {
    let mut surveys = Surveys::default();
    let mut survey = ask(&mut surveys, at(0), SurveyOrder::RoundTrip, 10);
    let (count, most) = passes(&mut surveys, at(0), 100_000, 0);
    assert_eq!((count, most), (100_000_usize.div_ceil(SLOTS_PER_PASS), SLOTS_PER_PASS));
    let answer = survey.try_take().unwrap();
    assert_eq!((answer.examined_count, answer.workers[0].busy_percent), (100_000, Some(5)));
    let mut all: Vec<Duration> = (0..100_000).map(|place| sample(place, 0).round_trip).collect();
    all.sort_unstable_by_key(|trip| std::cmp::Reverse(*trip));
    let first: Vec<Duration> = answer.peers.iter().map(|peer| peer.round_trip).collect();
    assert_eq!(first, all[..10]);
}

#[test]
fn samples_are_in_the_requested_order() {
    let mut surveys = Surveys::default();
    for (order, first) in [(SurveyOrder::Queue, 299), (SurveyOrder::Loss, 0)] {
        let mut survey = ask(&mut surveys, at(0), order, 3);
        passes(&mut surveys, at(0), 300, 0);
        assert_eq!(survey.try_take().unwrap().peers[0].peer, id(first), "{order:?}");
    }
    // The direction with the greater loss counts: 10 of 50 received packets, and not 3 of 100 sent packets.
    assert_eq!(sample(0, 0).loss_per_million(), 200_000);
}

#[test]
fn rates_need_two_surveys_and_a_minimum_interval() {
    let mut surveys = Surveys::default();
    let mut rate_at = |milliseconds, bytes| {
        let mut survey = ask(&mut surveys, at(milliseconds), SurveyOrder::Rate, 1);
        passes(&mut surveys, at(milliseconds), 1, bytes);
        let peer = survey.try_take().unwrap().peers.remove(0);
        peer.sent_per_second.zip(peer.received_per_second)
    };
    assert_eq!(rate_at(0, 1_000), None);
    assert_eq!(rate_at(499, 2_000), None, "the interval is too short for a rate");
    assert_eq!(rate_at(2_000, 5_000), Some((2_000, 4_000)));
    assert_eq!(rate_at(2_100, 9_000), Some((2_000, 4_000)), "the previous rate is repeated");
    assert_eq!(rate_at(3_000, 600), Some((600, 1_200)), "the idle connection restarted its counts");
    assert_eq!(rate_at(13_000, 700), None, "the previous counts have expired");
}

#[test]
fn counts_expire_and_excess_surveys_are_dropped() {
    let mut surveys = Surveys::default();
    let mut pending: Vec<_> =
        (0..=WAITING_MAX).map(|_| ask(&mut surveys, at(0), SurveyOrder::Rate, 1)).collect();
    passes(&mut surveys, at(0), 1, 0);
    let surveys_taken = pending.iter_mut().filter_map(Pending::try_take);
    let answered = surveys_taken.filter(|survey| survey.examined_count == 1).count();
    assert_eq!(answered, WAITING_MAX);
    assert!(!surveys.is_over(at(9_999)) && surveys.is_over(at(10_000)));
    let _pending = ask(&mut surveys, at(10_000), SurveyOrder::Rate, 0);
    assert!(!surveys.is_over(at(30_000)), "a new survey renews the counts");
    assert_eq!(passes(&mut surveys, at(30_000), 0, 0).0, 1);
}
