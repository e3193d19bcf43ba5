//! Every way to receive with every way to send: the books close, and the report says what was granted.

use crate::process::receiver;
use crate::report::{IS_NATIVE, Report, SEVERAL};

/// One short run and what its report must say.
fn assert_run(flags: &str) -> Report {
    let common = format!("--with-sender --secs 0.1 --flows 8 --json - --threads {SEVERAL} {flags}");
    let ended = receiver(&common).end().with_code(0);
    let report = Report::of(&ended);
    assert_eq!(report.0["name"], "receiver");
    assert_eq!(report.0["threads"].as_array().unwrap().len(), SEVERAL as usize, "{flags}");
    report
}

fn assert_granted(report: &Report, gro: &str, steer: &str, flags: &str) {
    let granted = &report.0["granted"];
    assert!(report.number("/granted/receive_buffer_bytes") > 0, "{flags}");
    assert!(report.number("/granted/send_buffer_bytes") > 0, "{flags}");
    assert!(granted["gso"].is_boolean(), "{flags}: {granted}");
    let is_gro_on = granted["gro"].as_bool().unwrap();
    match gro {
        "on" => assert!(is_gro_on, "{flags}"),
        "off" => assert!(!is_gro_on, "{flags}"),
        _ => {}
    }
    let filter = if IS_NATIVE { steer } else { "none, for one socket" };
    assert_eq!(granted["filter"], filter, "{flags}");
}

fn assert_all(drain: &str, gros: &[&str]) {
    for gro in gros {
        for steer in ["hash", "tag"] {
            for stage in ["raw", "parse"] {
                for send in ["single", "sendmmsg", "gso"] {
                    let ways = format!("--drain {drain} --gro {gro} --steer {steer} --stage {stage}");
                    let flags = format!("{ways} --send {send} --rate 10000");
                    assert_granted(&assert_run(&flags), gro, steer, &flags);
                }
            }
        }
    }
}

#[test]
fn the_reference_drain_closes_its_books_with_every_sender() {
    assert_all("recv", &["auto", "off"]);
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
#[test]
fn the_batched_drain_closes_its_books_with_every_sender() {
    assert_all("recvmmsg", &["auto", "off"]);
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
#[test]
fn trains_close_their_books_with_every_sender() {
    assert_all("recvmmsg", &["on"]);
}

#[test]
fn every_way_to_wait_closes_its_books() {
    let ways: &[&str] =
        if IS_NATIVE { &["notify", "gather", "gather=50", "spin"] } else { &["notify", "spin"] };
    for wait in ways {
        assert_run(&format!("--wait {wait} --rate 20000"));
    }
}

#[test]
fn sizes_from_the_shortest_to_the_longest_close_their_books() {
    for (size, send) in [(28, "gso"), (1_200, "gso"), (65_507, "sendmmsg")] {
        assert_run(&format!("--size {size} --send {send} --rate 500"));
    }
}

#[test]
fn latency_is_told_from_the_length_on_that_has_room_for_the_time_of_sending() {
    for (size, is_told) in [(28, false), (29, true), (30, true)] {
        let report = assert_run(&format!("--size {size} --rate 10000"));
        assert_eq!(report.0.get("latency_ns").is_some(), is_told, "{size}");
    }
}
