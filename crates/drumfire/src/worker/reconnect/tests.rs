//! Tests of the decision to reconnect, for each way in which a connection or an attempt can end.

use super::*;
use crate::base::error::Error;
use drumfire_proto::{ProtocolError, Refusal};

const MINUTE: Duration = Duration::from_secs(60);

fn seconds(seconds: u64) -> Moment {
    Moment::from_nanos(seconds * 1_000_000_000)
}

fn home() -> SocketAddr {
    "192.0.2.1:7777".parse().unwrap()
}

fn reconnect_state(within: Duration, seed: u64) -> Box<ReconnectState> {
    let options = ConnectOptions::new(home(), ServerPublicKey::from_bytes([3; 32]));
    ReconnectState::new(Reconnect::Within(within), seconds(0), &options, &mut Random::new(seed)).unwrap()
}

/// Returns the state of a client that connected at 0 s.
fn connected(within: Duration, seed: u64) -> Box<ReconnectState> {
    let mut reconnect_state = reconnect_state(within, seed);
    reconnect_state.on_connected(seconds(0));
    reconnect_state
}

fn peer() -> PeerId {
    "0.0.0".parse().unwrap()
}

fn ended(reconnect_state: &mut ReconnectState, at: Moment, reason: CloseReason) -> Event {
    let closed = Box::new(Closed::new(reason, Bytes::from_static(b"why")));
    reconnect_state.on_end(at, peer(), ReconnectReason::Ended(closed))
}

fn failed(reconnect_state: &mut ReconnectState, at: Moment, error: ConnectError) -> Event {
    reconnect_state.on_end(at, peer(), ReconnectReason::Failed(error))
}

fn refused(reason: RefuseReason, after: Option<u64>, address: Option<&str>) -> ConnectError {
    let (retry_after, address) =
        (after.map(Duration::from_secs), address.map(|address| address.parse().unwrap()));
    let refusal = Refusal { reason, version_min: 1, version_max: 1, retry_after, address, is_proved: true };
    ConnectError::Refused(Box::new(refusal))
}

/// Returns the same error without a proof that the server sent it.
fn unproved(error: ConnectError) -> ConnectError {
    let ConnectError::Refused(refusal) = error else { panic!("{error:?}") };
    ConnectError::Refused(Box::new(Refusal { is_proved: false, ..*refusal }))
}

/// Returns the last event of a client that gives up, with the error of its last attempt if there was one.
fn over(reason: CloseReason, text: &'static str, reconnect_error: Option<ConnectError>) -> Event {
    Event::disconnected(peer(), Closed { reason, text: text.into(), reconnect_error })
}

fn delay(event: &Event) -> Duration {
    let Event::Reconnecting { delay, .. } = event else { panic!("{event:?}") };
    *delay
}

fn remote(code: CloseCode, application_code: u32) -> CloseReason {
    CloseReason::Remote { code, application_code }
}

#[test]
fn a_client_reconnects_after_each_unwanted_end() {
    let local = |code| CloseReason::Local { code, application_code: SHUTDOWN_RESTARTS };
    for (reason, reconnects) in [
        (CloseReason::Reset, true),
        (CloseReason::IdleTimeout, true),
        (CloseReason::Unacknowledged, true),
        (CloseReason::KeyLimit, true),
        (CloseReason::KeysInvalidated, true),
        (CloseReason::Unreachable, true),
        (remote(CloseCode::Shutdown, SHUTDOWN_RESTARTS), true),
        (remote(CloseCode::Shutdown, 0), false),
        (remote(CloseCode::Application, SHUTDOWN_RESTARTS), false),
        (remote(CloseCode::Replaced, 0), false),
        (remote(CloseCode::SessionEnded, 0), false),
        (remote(CloseCode::Protocol, 0), false),
        (remote(CloseCode::Overflow, 0), false),
        (remote(CloseCode::Internal, 0), false),
        (local(CloseCode::Application), false),
        (local(CloseCode::Shutdown), false),
        (CloseReason::Protocol(ProtocolError::WrongSide), false),
    ] {
        let event = ended(&mut connected(MINUTE, 1), seconds(1), reason);
        let is_again = matches!(
            &event,
            Event::Reconnecting { reason: ReconnectReason::Ended(closed), attempt: 1, .. }
                if closed.reason == reason && closed.text == "why"
        );
        assert_eq!(is_again, reconnects, "{reason:?}: {event:?}");
        assert_eq!(event == over(reason, "why", None), !reconnects, "{reason:?}: {event:?}");
    }
}

#[test]
fn an_attempt_is_repeated_if_the_server_may_still_accept_it() {
    for (error, is_repeated) in [
        (ConnectError::Timeout, true),
        (ConnectError::Unreachable, true),
        (refused(RefuseReason::Full, Some(2), None), true),
        (refused(RefuseReason::Full, None, None), true),
        (refused(RefuseReason::Redirect, None, Some("192.0.2.2:1")), true),
        (refused(RefuseReason::Redirect, None, None), false),
        (refused(RefuseReason::Redirect, None, Some("192.0.2.2:0")), false),
        (refused(RefuseReason::Redirect, None, Some("0.0.0.0:1")), false),
        (refused(RefuseReason::Redirect, None, Some("239.1.1.1:1")), false),
        (refused(RefuseReason::Banned, Some(2), None), false),
        (refused(RefuseReason::TokenForeign, None, None), false),
        (refused(RefuseReason::TokenUsed, None, None), false),
        (refused(RefuseReason::TokenMissing, None, None), false),
        (refused(RefuseReason::TokenUnreadable, None, None), false),
        (refused(RefuseReason::TokenUnexpected, None, None), false),
        (refused(RefuseReason::Protocol, None, None), false),
        (refused(RefuseReason::Other(99), Some(2), None), false),
        (ConnectError::TokenExpired, false),
        (unproved(refused(RefuseReason::Banned, None, None)), true),
        (unproved(refused(RefuseReason::Protocol, None, None)), true),
        (unproved(refused(RefuseReason::TokenExpired, None, None)), true),
        (unproved(refused(RefuseReason::Redirect, None, None)), true),
        (ConnectError::VersionMismatch { min: 2, max: 3 }, true),
        (ConnectError::KeysInvalidated, true),
        (ConnectError::Closed, false),
        (ConnectError::BadServerKey, false),
    ] {
        let event = failed(&mut reconnect_state(MINUTE, 1), seconds(1), error.clone());
        let is_again = matches!(event, Event::Reconnecting { .. });
        assert_eq!(is_again, is_repeated, "{error:?}: {event:?}");
        assert_eq!(
            event == Event::ConnectFailed { peer: peer(), error: error.clone() },
            !is_repeated,
            "{error:?}: {event:?}"
        );
        let mut lost = connected(MINUTE, 1);
        ended(&mut lost, seconds(1), CloseReason::Reset);
        let over = over(CloseReason::Reset, "why", Some(error.clone()));
        assert_eq!(failed(&mut lost, seconds(2), error) == over, !is_repeated, "{over:?}");
    }
}

#[test]
fn waits_are_spread_and_double_up_to_5_s() {
    let mut longest = [Duration::ZERO; 12];
    for seed in 0..400 {
        let mut reconnect_state = connected(24 * 60 * MINUTE, seed);
        let mut event = ended(&mut reconnect_state, seconds(1), CloseReason::Reset);
        for (attempt, longest) in longest.iter_mut().enumerate() {
            let most = Duration::from_millis(100 << attempt).min(Duration::from_secs(5));
            assert!(delay(&event) <= most, "attempt {attempt}: {event:?}");
            *longest = delay(&event).max(*longest);
            event = failed(&mut reconnect_state, seconds(2), ConnectError::Timeout);
        }
    }
    for (attempt, longest) in longest.into_iter().enumerate() {
        let most = Duration::from_millis(100 << attempt).min(Duration::from_secs(5));
        assert!(
            longest > most.mul_f64(0.9),
            "attempt {attempt}: the longest delay is {longest:?}, the limit is {most:?}"
        );
    }
    let first = |seed| delay(&ended(&mut connected(MINUTE, seed), seconds(1), CloseReason::Reset));
    let below = (0..400).filter(|seed| first(*seed) < Duration::from_millis(50)).count();
    assert!((150..250).contains(&below), "{below} of 400 delays are in the lower half");
}

#[test]
fn a_full_server_is_asked_again_after_the_time_it_requested() {
    for seed in 0..100 {
        let event = failed(
            &mut reconnect_state(MINUTE, seed),
            seconds(1),
            refused(RefuseReason::Full, Some(20), None),
        );
        let (least, most) = (Duration::from_secs(20), Duration::from_millis(20_100));
        assert!((least..=most).contains(&delay(&event)), "{event:?}");
    }
    let error = refused(RefuseReason::Full, Some(61), None);
    assert_eq!(
        failed(&mut reconnect_state(MINUTE, 1), seconds(1), error.clone()),
        Event::ConnectFailed { peer: peer(), error },
        "the time is up before the server can be asked again"
    );
}

#[test]
fn an_unproved_refusal_delays_and_moves_no_attempt() {
    let there = "192.0.2.2:1";
    for reason in [RefuseReason::Full, RefuseReason::Redirect, RefuseReason::Banned] {
        let mut reconnect_state = connected(24 * 60 * MINUTE, 1);
        ended(&mut reconnect_state, seconds(1), CloseReason::IdleTimeout);
        for attempt in 2..=20 {
            let error = unproved(refused(reason, Some(65_535), Some(there)));
            let event = failed(&mut reconnect_state, seconds(2), error);
            assert!(delay(&event) <= WAIT_MAX, "attempt {attempt}: {event:?}");
            assert_eq!(reconnect_state.options_of_attempt(None).server, home());
        }
    }
    // The attempts end with the time limit, and the last refusal is the reason.
    let error = unproved(refused(RefuseReason::Banned, None, None));
    let mut reconnect_state = connected(MINUTE, 1);
    ended(&mut reconnect_state, seconds(1), CloseReason::IdleTimeout);
    let expected = over(CloseReason::IdleTimeout, "why", Some(error.clone()));
    assert_eq!(failed(&mut reconnect_state, seconds(62), error), expected);
}

#[test]
fn no_attempt_starts_after_the_time_limit() {
    let mut reconnect_state = connected(MINUTE, 7);
    let mut at = seconds(100);
    let mut event = ended(&mut reconnect_state, at, CloseReason::IdleTimeout);
    let mut begun = 0;
    while let Event::Reconnecting { attempt, delay, .. } = event {
        begun += 1;
        assert_eq!(attempt, begun);
        at = at.after(delay);
        assert!(at.since(seconds(100)) <= MINUTE, "{at:?}");
        at = at.after(Duration::from_secs(5));
        event = failed(&mut reconnect_state, at, ConnectError::Timeout);
    }
    assert!((7..=12).contains(&begun), "{begun}");
    assert_eq!(event, over(CloseReason::IdleTimeout, "why", Some(ConnectError::Timeout)));
}

#[test]
fn short_connections_reset_neither_waits_nor_time_limit() {
    let mut reconnect_state = connected(MINUTE, 7);
    let mut at = seconds(20);
    for expected in 1.. {
        let event = ended(&mut reconnect_state, at, CloseReason::Reset);
        let Event::Reconnecting { attempt, delay, .. } = event else { break };
        assert_eq!(attempt, expected);
        at = at.after(delay);
        reconnect_state.on_connected(at);
        at = at.after(Duration::from_millis(100));
        assert!(at < seconds(90), "the client gives up after its time limit");
    }
    assert!(at > seconds(60), "the client gave up too early: {at:?}");
    let mut steady = connected(MINUTE, 7);
    for minute in 1..10 {
        let event = ended(&mut steady, seconds(60 * minute), CloseReason::Reset);
        assert!(matches!(event, Event::Reconnecting { attempt: 1, .. }), "{event:?}");
        steady.on_connected(seconds(60 * minute));
    }
}

#[test]
fn a_redirect_is_tried_once_and_kept_if_it_succeeds() {
    let there = "192.0.2.2:1";
    let mut reconnect_state = reconnect_state(MINUTE, 1);
    failed(&mut reconnect_state, seconds(1), refused(RefuseReason::Redirect, None, Some(there)));
    assert_eq!(reconnect_state.options_of_attempt(None).server, there.parse().unwrap());
    failed(&mut reconnect_state, seconds(2), ConnectError::Timeout);
    assert_eq!(reconnect_state.options_of_attempt(None).server, home());
    failed(&mut reconnect_state, seconds(3), refused(RefuseReason::Redirect, None, Some(there)));
    reconnect_state.on_connected(seconds(4));
    ended(&mut reconnect_state, seconds(5), CloseReason::Reset);
    assert_eq!(reconnect_state.options_of_attempt(None).server, there.parse().unwrap());
}

#[test]
fn a_token_is_tried_again_while_the_server_may_hold_it() {
    let used = refused(RefuseReason::TokenUsed, None, None);
    for (later, is_again) in [(2, true), (9, true), (10, false)] {
        let mut reconnect_state = connected(MINUTE, 1);
        ended(&mut reconnect_state, seconds(1), CloseReason::IdleTimeout);
        failed(&mut reconnect_state, seconds(6), ConnectError::Timeout);
        let event = failed(&mut reconnect_state, seconds(6 + later), used.clone());
        assert_eq!(matches!(event, Event::Reconnecting { .. }), is_again, "{later} s: {event:?}");
    }
}

#[test]
fn a_closed_client_does_not_reconnect_and_keeps_its_reason() {
    let mut reconnect_state = connected(MINUTE, 1);
    ended(&mut reconnect_state, seconds(1), CloseReason::Reset);
    reconnect_state.on_close(7, b"enough");
    let reason = CloseReason::Local { code: CloseCode::Application, application_code: 7 };
    assert_eq!(failed(&mut reconnect_state, seconds(2), ConnectError::Closed), over(reason, "enough", None));
    let mut late = connected(MINUTE, 1);
    late.on_close(7, b"enough");
    let over = over(CloseReason::Reset, "why", None);
    assert_eq!(
        ended(&mut late, seconds(1), CloseReason::Reset),
        over,
        "the connection had ended before the close"
    );
}

#[test]
fn the_time_limit_of_attempts_has_bounds() {
    let check = |within| Reconnect::Within(within).check();
    assert!(check(Duration::from_secs(1)).is_ok() && check(Duration::from_secs(86_400)).is_ok());
    for within in [Duration::ZERO, Duration::from_millis(999), Duration::from_secs(86_401), Duration::MAX] {
        let refused = check(within);
        assert!(matches!(refused, Err(Error::Setting { field: "reconnect", .. })), "{within:?}");
    }
    assert!(Reconnect::Never.check().is_ok());
}
