//! Fuzz targets: functions that take any bytes, and panic if a requirement is violated.
//!
//! `cargo xtask fuzz` lets libFuzzer make the bytes (`libfuzzer/`), and this crate's tests replay the corpus (`corpus/`), unchanged and
//! slightly changed. The targets start where an attacker can: at the datagram, after the key agreement, or after the packet protection
//! with genuine keys. No target reads a clock or draws random numbers, so that the same bytes have the same effect each time.
#![forbid(unsafe_code)]

mod codec;
mod handshake;
mod input;
mod kernel;
mod numbers;
mod script;
mod sealed;
mod text;
mod unknown_clients;

// The helpers of the crates' own tests.
#[path = "../../proto/tests/core/counted.rs"]
mod counted;
#[expect(dead_code, reason = "the core's tests use more of it")]
#[expect(clippy::cast_possible_truncation, reason = "seeds and places of a test are truncated on purpose")]
#[path = "../../proto/tests/core/harness.rs"]
mod harness;
#[expect(dead_code, reason = "the core's tests use more of it")]
#[path = "../../proto/tests/core/puppet.rs"]
mod puppet;
#[expect(dead_code, reason = "the codec's tests use more of it")]
#[path = "../../wire/tests/wire/samples.rs"]
mod samples;
#[path = "../../wire/tests/wire/soundness.rs"]
mod soundness;
// The simulator's record of messages, which knows the promises of each mode.
#[expect(dead_code, reason = "the simulator uses more of it")]
#[path = "../../sim/src/traffic.rs"]
mod traffic;

/// One fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name, such as `F1`. Its corpus is in the folder `corpus/f01`.
    pub name: &'static str,
    /// The subject, in a few words.
    pub about: &'static str,
    /// Runs the target with these bytes, of any length. Panics if a requirement is violated.
    pub run: fn(&[u8]),
}

const fn target(name: &'static str, about: &'static str, run: fn(&[u8])) -> Target {
    Target { name, about, run }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    target("F1", "datagram headers", codec::datagram),
    target("F2", "frames, decoded, encoded, and decoded again", codec::frames),
    target("F3", "one datagram of an unknown client to a server", unknown_clients::datagram),
    target("F4", "the content of a sealed token", handshake::token),
    target("F5", "a Welcome to a client", handshake::welcome),
    target("F6", "Retries, Refuses, and Resets to a client", handshake::answers),
    target("F7", "one packet sealed with genuine keys", sealed::packet),
    target("F8", "many packets sealed with genuine keys", sealed::packets),
    target("F9", "two cores driven by a script, compared with a model", script::play),
    target("F10", "ack frames, compared with a set", numbers::acks),
    target("F11", "fragments of messages, compared with the ranges of their bytes", sealed::reassembly),
    target("F12", "the replay window, compared with a set", numbers::replay),
    target("F13", "truncated and expanded packet numbers", numbers::expansion),
    target(
        "F14",
        "connection ids, and the kernel's program compared with the Rust function",
        kernel::steering,
    ),
    target("F15", "control messages and trains", kernel::received),
    target("F16", "addresses, keys, and configurations as text", text::config),
    target("F18", "many datagrams of unknown clients to a server", unknown_clients::flood),
];

/// Returns the target of a name, in any case.
#[must_use]
pub fn target_of(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name.eq_ignore_ascii_case(name))
}
