//! Tests of paths: who gets the datagrams, and when the path moves.

use super::*;
use drumfire_crypto::Secret;

const SETTLING: Duration = Duration::from_millis(300);

fn address(number: u16) -> Route {
    std::net::SocketAddr::from(([192, 0, 2, 1], number)).into()
}

fn ms(milliseconds: u64) -> Moment {
    Moment::from_nanos(milliseconds * 1_000_000)
}

struct TestPath {
    path: Path,
    entropy: Entropy,
}

impl TestPath {
    fn new() -> Self {
        let path = Path::new(address(1), None);
        Self { path, entropy: Entropy::from_seed(Secret::new([1; 32])) }
    }

    fn receive(&mut self, at: u64, from: u16, bytes: usize, is_newest: bool) {
        self.path.on_packet(ms(at), address(from), bytes, is_newest, &mut self.entropy);
    }

    /// Sends datagrams of 100 B until nothing but data is left to send. Returns the challenges with their addresses,
    /// and where the data went.
    fn send(&mut self, at: u64) -> (Vec<(Route, PathData)>, Route) {
        let mut challenges = Vec::new();
        loop {
            let to = self.path.destination(ms(at), || SETTLING);
            let bytes = to.room_bytes.unwrap_or(100).min(100);
            self.path.on_sent(ms(at), &to, bytes);
            self.path.assert_invariants();
            match to.challenge {
                Some(data) => challenges.push((to.route, data)),
                None => return (challenges, to.route),
            }
        }
    }
}

#[test]
fn a_newer_packet_from_elsewhere_challenges_both_addresses() {
    let mut test_path = TestPath::new();
    test_path.receive(0, 2, 100, true);
    let (challenges, data_to) = test_path.send(0);
    let addresses: Vec<_> = challenges.iter().map(|(address, _)| *address).collect();
    assert_eq!((addresses, data_to), (vec![address(1), address(2)], address(2)));
    assert_ne!(challenges[0].1, challenges[1].1);
    assert!(test_path.path.on_response(challenges[1].1));
    assert_eq!(test_path.path.route, address(2));
    assert_eq!(test_path.send(10), (vec![], address(2)));
}

#[test]
fn older_packets_start_no_migration() {
    let mut test_path = TestPath::new();
    test_path.receive(0, 2, 1_200, false);
    assert_eq!(test_path.send(0), (vec![], address(1)));
}

#[test]
fn a_candidate_gets_three_times_the_bytes_it_sent() {
    let mut test_path = TestPath::new();
    test_path.receive(0, 2, 150, true);
    let mut sent = 0;
    for _ in 0..20 {
        let to = test_path.path.destination(ms(0), || SETTLING);
        let bytes = to.room_bytes.unwrap_or(100).min(100);
        test_path.path.on_sent(ms(0), &to, bytes);
        sent += if to.route == address(2) { bytes } else { 0 };
    }
    assert!(sent <= 450 && sent > 386, "{sent}");
    test_path.receive(5, 2, 100, false);
    assert_eq!(test_path.path.destination(ms(5), || SETTLING).route, address(2), "more came");
}

#[test]
fn a_candidate_gets_datagrams_of_the_size_that_every_path_carries() {
    let mut test_path = TestPath::new();
    test_path.path.datagram_max_bytes = 1_472;
    test_path.receive(0, 2, 1_472, true);
    let to_known = test_path.path.destination(ms(0), || SETTLING);
    assert_eq!((to_known.route, to_known.room_bytes), (address(1), None));
    test_path.path.on_sent(ms(0), &to_known, 100);
    // The challenge, then data.
    for has_challenge in [true, false] {
        let to = test_path.path.destination(ms(0), || SETTLING);
        assert_eq!((to.route, to.challenge.is_some()), (address(2), has_challenge));
        assert_eq!(to.room_bytes, Some(1_200));
        test_path.path.on_sent(ms(0), &to, 1_200);
    }
}

#[test]
fn a_known_address_whose_response_was_lost_is_challenged_again() {
    let mut test_path = TestPath::new();
    test_path.receive(0, 2, 100, true);
    test_path.send(0);
    test_path.receive(1, 1, 100, true);
    assert_eq!(test_path.send(1).0, [], "the response may be on its way");
    test_path.receive(1_000, 1, 100, true);
    let (challenges, _) = test_path.send(1_000);
    assert_eq!(challenges.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [address(1)]);
    respond_from_known(&mut test_path, &challenges);
    test_path.receive(6_000, 1, 100, true);
    assert!(!test_path.path.is_searching());
}

#[test]
fn without_a_response_data_returns_after_three_probe_timeouts() {
    let mut test_path = TestPath::new();
    test_path.receive(0, 2, 1_000, true);
    assert_eq!(test_path.send(0).1, address(2));
    assert_eq!(test_path.send(299).1, address(2));
    assert_eq!(test_path.send(300).1, address(1));
}

#[test]
fn a_newer_packet_from_the_old_address_ends_the_migration() {
    let mut test_path = TestPath::new();
    test_path.receive(0, 2, 1_000, true);
    assert_eq!(test_path.send(0).1, address(2));
    test_path.receive(1, 1, 100, true);
    assert_eq!(test_path.send(1).1, address(1));
}

#[test]
fn a_known_address_that_responds_keeps_the_data() {
    let mut test_path = TestPath::new();
    test_path.receive(0, 2, 1_000, true);
    let (challenges, _) = test_path.send(0);
    assert!(!test_path.path.on_response(challenges[0].1));
    for at in (0..10_000).step_by(10) {
        test_path.receive(at, 2, 1_000, true);
        let (challenges, data_to) = test_path.send(at);
        assert_eq!(data_to, address(1), "{at}");
        for (_, data) in challenges.into_iter().filter(|(to, _)| *to == address(1)) {
            test_path.path.on_response(data);
        }
    }
    test_path.receive(10_000, 2, 1_000, true);
    let (challenges, _) = test_path.send(10_000);
    let to_new = challenges.iter().find(|(to, _)| *to == address(2)).unwrap();
    assert!(test_path.path.on_response(to_new.1), "it is the peer after all");
}

#[test]
fn an_unresponsive_address_is_challenged_once_a_second() {
    let mut test_path = TestPath::new();
    let mut count = 0;
    for at in 0..10_000 {
        test_path.receive(at, 2, 1_000, true);
        count += test_path.send(at).0.iter().filter(|(to, _)| *to == address(2)).count();
    }
    assert_eq!(count, 10);
}

#[test]
fn a_leading_address_is_challenged_again_within_its_allowance() {
    let mut test_path = TestPath::new();
    test_path.receive(0, 2, 100, true);
    assert_eq!(test_path.path.repeat_at(), None, "the first challenge is not sent yet");
    let first = test_path.send(0).0[1];
    let mut times = Vec::new();
    while let Some(at) = test_path.path.repeat_at() {
        test_path.path.repeat_due(Moment::from_nanos(at.as_nanos() - 1));
        assert!(!test_path.path.has_to_send());
        test_path.path.repeat_due(at);
        assert!(test_path.path.has_to_send());
        let to = test_path.path.destination(at, || SETTLING);
        assert_eq!((to.route, to.challenge), (address(2), Some(first.1)));
        test_path.path.on_sent(at, &to, 64);
        times.push(at.as_nanos() / 1_000_000);
    }
    assert_eq!(times, [1_000], "200 of 300 B were sent immediately");
    assert!(test_path.path.on_response(first.1));
}

#[test]
fn an_answered_or_leading_known_address_ends_the_challenges() {
    let mut test_path = TestPath::new();
    test_path.receive(0, 2, 1_000, true);
    let known = test_path.send(0).0[0];
    assert!(test_path.path.repeat_at().is_some());
    assert!(!test_path.path.on_response(known.1));
    assert_eq!(test_path.path.repeat_at(), None);
    let mut test_path = TestPath::new();
    test_path.receive(0, 2, 1_000, true);
    test_path.send(0);
    test_path.receive(1, 1, 100, true);
    assert_eq!(test_path.path.repeat_at(), None);
}

#[test]
fn two_candidates_are_kept_and_the_older_makes_room() {
    let mut test_path = TestPath::new();
    test_path.receive(0, 2, 1_000, true);
    let second = test_path.send(0).0;
    test_path.receive(1, 3, 1_000, true);
    let third = test_path.send(1).0;
    test_path.receive(2, 4, 1_000, true);
    test_path.send(2);
    let data = |challenges: &[(Route, PathData)], of| {
        challenges.iter().find(|(to, _)| *to == address(of)).unwrap().1
    };
    assert!(!test_path.path.on_response(data(&second, 2)), "forgotten");
    assert!(test_path.path.on_response(data(&third, 3)), "kept");
}

#[test]
fn unsolicited_responses_validate_no_path() {
    let mut test_path = TestPath::new();
    assert!(!test_path.path.on_response(PathData([0; 8])));
    test_path.receive(0, 2, 1_000, true);
    test_path.send(0);
    assert!(!test_path.path.on_response(PathData([0; 8])));
    assert_eq!(test_path.path.route, address(1));
}

#[test]
fn all_addresses_of_a_hello_are_challenged_until_a_response() {
    let mut test_path = TestPath::new();
    test_path.path.search_among(ms(0), [address(2)].into_iter(), 1_200, &mut test_path.entropy);
    let (first, data_to) = test_path.send(0);
    assert_eq!((first.len(), data_to), (2, address(1)));
    test_path.receive(1_000, 1, 100, true);
    let (again, _) = test_path.send(1_000);
    assert_eq!(again.len(), 2, "both were lost");
    assert!(test_path.path.on_response(again.iter().find(|(to, _)| *to == address(2)).unwrap().1));
    assert_eq!(test_path.path.route, address(2));
}

#[test]
fn a_copied_packet_makes_a_candidate_only_during_a_search() {
    let mut test_path = TestPath::new();
    test_path.path.on_copy(ms(0), address(3), 1_000, &mut test_path.entropy);
    assert_eq!(test_path.send(0), (vec![], address(1)));
    test_path.receive(1, 2, 1_000, true);
    test_path.path.on_copy(ms(1), address(3), 1_000, &mut test_path.entropy);
    test_path.path.on_copy(ms(1), address(1), 1_000, &mut test_path.entropy);
    let (challenges, data_to) = test_path.send(1);
    assert_eq!((challenges.len(), data_to), (3, address(2)), "the first one leads");
    assert!(test_path.path.on_response(challenges.iter().find(|(to, _)| *to == address(3)).unwrap().1));
    assert_eq!(test_path.path.route, address(3));
}

/// Responds to the challenges that were sent to the known address.
fn respond_from_known(test_path: &mut TestPath, challenges: &[(Route, PathData)]) {
    for (_, data) in challenges.iter().filter(|(to, _)| *to == address(1)) {
        assert!(!test_path.path.on_response(*data));
    }
}

#[test]
fn a_search_ends_when_the_known_address_wins() {
    let mut test_path = TestPath::new();
    test_path.receive(0, 2, 1_000, true);
    let (challenges, _) = test_path.send(0);
    respond_from_known(&mut test_path, &challenges);
    for at in (10..5_000).step_by(10) {
        test_path.receive(at, 1, 100, true);
        assert!(test_path.path.is_searching(), "the candidate may send again: {at}");
    }
    test_path.receive(5_000, 1, 100, false);
    assert!(test_path.path.is_searching(), "the packet is not the newest");
    test_path.receive(5_000, 1, 100, true);
    assert!(!test_path.path.is_searching());
    // The peer moves minutes later. Data follows immediately, and a lost challenge is repeated.
    test_path.receive(200_000, 3, 1_000, true);
    assert_eq!(test_path.send(200_000).1, address(3));
    assert!(test_path.path.repeat_at().is_some());
}

#[test]
fn a_search_continues_while_a_candidate_sends_or_none_is_proved() {
    let mut test_path = TestPath::new();
    for at in (0..60_000).step_by(2_000) {
        test_path.receive(at, 2, 1_000, true);
        let (challenges, _) = test_path.send(at);
        respond_from_known(&mut test_path, &challenges);
        test_path.receive(at + 1_000, 1, 100, true);
        assert!(test_path.path.is_searching(), "{at}");
    }
    let mut test_path = TestPath::new();
    test_path.receive(0, 2, 1_000, true);
    test_path.send(0);
    test_path.receive(60_000, 1, 100, true);
    assert!(test_path.path.is_searching(), "the known address has not responded");
}

#[test]
fn a_search_among_hello_addresses_ends_after_its_rounds() {
    let mut test_path = TestPath::new();
    test_path.path.search_among(ms(0), [address(2)].into_iter(), 1_200, &mut test_path.entropy);
    let (mut challenge_count, mut at) = (0, 0);
    while test_path.path.is_searching() {
        assert!(at < 60_000, "the search does not end");
        let (challenges, _) = test_path.send(at);
        challenge_count += challenges.iter().filter(|(to, _)| *to == address(2)).count();
        respond_from_known(&mut test_path, &challenges);
        at += 1_000;
        test_path.receive(at, 1, 100, true);
    }
    assert_eq!(challenge_count, 10);
}
