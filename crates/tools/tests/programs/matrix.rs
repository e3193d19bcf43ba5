//! Every drain with every send mode and every stage: the books close, and the report names the granted settings.

use clap::ValueEnum as _;
use drumfire_tools::choices::{Mode, Suite};
use drumfire_tools::report::{Granted, Report};

use crate::report::{IS_NATIVE, SEVERAL, messages_of, report_of_run};

const SENDS: [&str; 3] = ["single", "sendmmsg", "gso"];

/// The ways to drain a socket on this platform.
pub(crate) fn drains() -> &'static [&'static str] {
    if IS_NATIVE {
        &[
            "--drain recv",
            "--drain recvmmsg --gro auto",
            "--drain recvmmsg --gro off",
            "--drain recvmmsg --gro on",
        ]
    } else {
        &["--drain recv"]
    }
}

/// One short run with a sender, whose report has been checked.
pub(crate) fn run(flags: &str) -> Report {
    report_of_run(&format!("--secs 0.1 --flows 8 --threads {SEVERAL} {flags}"))
}

fn assert_granted(report: &Report, drain: &str, steer: &str, flags: &str) {
    let Granted { receive_buffer_bytes, send_buffer_bytes, gro, gso, filter } = &report.granted;
    assert!(*receive_buffer_bytes > Some(0) && *send_buffer_bytes > Some(0), "{flags}");
    assert!(gso.is_some() && gro.is_some(), "{flags}: {gso:?}, {gro:?}");
    assert!(!drain.ends_with("on") || *gro == Some(true), "{flags}: {gro:?}");
    assert!(!drain.ends_with("off") || *gro == Some(false), "{flags}: {gro:?}");
    let expected = if IS_NATIVE { steer } else { "none, for one socket" };
    assert_eq!(filter.as_deref(), Some(expected), "{flags}");
}

/// Runs a stage with every drain and send mode. Each drain and each send mode meets both ways to steer.
fn assert_stage(stage: &str) {
    for (place, drain) in drains().iter().enumerate() {
        for (at, send) in SENDS.into_iter().enumerate() {
            let steer = ["hash", "tag"][(place + at) % 2];
            let flags = format!("--stage {stage} {drain} --steer {steer} --send {send} --rate 10000");
            let report = run(&flags);
            assert_eq!(report.threads.len(), SEVERAL as usize, "{flags}");
            assert_granted(&report, drain, steer, &flags);
            if matches!(stage, "open" | "deliver") {
                assert_eq!(report.books.received, report.books.sent, "{flags}");
                assert!(report.foreign.is_empty(), "{flags}: {:?}", report.foreign);
                assert_eq!(report.flags["suite"], Suite::best().name(), "{flags}");
            }
        }
    }
}

#[test]
fn every_stage_closes_its_books() {
    ["raw", "parse", "open", "deliver"].into_iter().for_each(assert_stage);
}

#[test]
fn every_mode_closes_both_books_with_every_drain() {
    let modes = Mode::value_variants().iter().filter(|mode| **mode != Mode::Packets);
    for (at, mode) in modes.copied().enumerate() {
        // Each mode meets both ways to steer and two send modes, and so does each drain.
        for (place, drain) in drains().iter().enumerate() {
            let (send, steer) = (["single", "gso"][(at + place) % 2], ["tag", "hash"][(at / 2 + place) % 2]);
            let flags =
                format!("--stage deliver --mode {mode} {drain} --send {send} --steer {steer} --rate 8000");
            let report = run(&flags);
            assert_eq!(report.flags["mode"], mode.name(), "{flags}");
            let messages = messages_of(&report);
            assert_eq!(messages.mode, mode, "{flags}");
            assert!(messages.offered > Some(0) && messages.books.received > 0, "{flags}");
            assert!(messages.answers > 0, "{flags}: nothing was acknowledged");
            // Each thread measures one message in sixteen.
            let is_measured = messages.books.received >= 16 * u64::from(SEVERAL);
            assert!(!is_measured || report.latency_ns.is_some_and(|latency| latency.count > 0), "{flags}");
            if matches!(mode, Mode::ReliableUnordered | Mode::ReliableOrdered) {
                assert_eq!(messages.books.received, messages.books.sent, "{flags}");
            }
        }
    }
}

#[test]
fn every_wait_size_and_address_closes_its_books() {
    let ways: &[&str] =
        if IS_NATIVE { &["notify", "gather", "gather=50", "spin"] } else { &["notify", "spin"] };
    for wait in ways {
        run(&format!("--wait {wait} --rate 20000"));
    }
    for (size, send) in [(28, "gso"), (1_200, "gso"), (65_507, "sendmmsg")] {
        run(&format!("--size {size} --send {send} --rate 500"));
    }
    // A datagram has room for its time of sending from 29 bytes on.
    for (size, has_latency) in [(28, false), (29, true)] {
        let report = run(&format!("--size {size} --rate 10000"));
        assert_eq!(report.latency_ns.is_some(), has_latency, "{size}");
    }
    // A local sender reaches every address.
    for bind in ["[::1]:0", "0.0.0.0:0", "[::]:0"] {
        run(&format!("--bind {bind} --rate 5000"));
    }
}
