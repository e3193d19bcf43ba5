//! Fuzz targets: one function each from any bytes to a panic or none, with what must hold inside.
//!
//! A panic is a finding. Where the bytes come from is the caller's business: `cargo xtask fuzz` lets libFuzzer make them
//! (`libfuzzer/`), and this crate's tests replay the corpus (`corpus/`), as it is and changed a little. The targets start
//! where an attacker stands: at the datagram, behind the key agreement, or behind the packet protection with keys that
//! are genuine. Nothing here reads a clock or draws a number of its own: the same bytes do the same each time.
#![forbid(unsafe_code)]

mod codec;
mod fragments;
mod handshake;
mod input;
mod kernel;
mod numbers;
mod script;
mod sealed;
mod strangers;
mod text;

// What the crates' own tests are made of stays beside them; here it meets bytes that nobody thought of.
#[path = "../../proto/tests/core/counted.rs"]
mod counted;
#[expect(dead_code, reason = "the core's tests look at more than the targets do")]
#[expect(clippy::cast_possible_truncation, reason = "a test's seeds and places, cut on purpose")]
#[path = "../../proto/tests/core/harness.rs"]
mod harness;
#[expect(dead_code, reason = "the core's tests say more than the targets do")]
#[path = "../../proto/tests/core/puppet.rs"]
mod puppet;
#[expect(dead_code, reason = "tests write whole packets in more ways than the targets")]
#[path = "../../wire/tests/wire/samples.rs"]
mod samples;
#[path = "../../wire/tests/wire/soundness.rs"]
mod soundness;

/// One fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What it is called: `F1`.
    pub name: &'static str,
    /// The folder of its corpus, below `corpus`: `f01`.
    pub folder: &'static str,
    /// What it looks at, in a few words.
    pub about: &'static str,
    /// Takes any bytes, of any length. Panics where something does not hold.
    pub run: fn(&[u8]),
}

const fn target(name: &'static str, folder: &'static str, about: &'static str, run: fn(&[u8])) -> Target {
    Target { name, folder, about, run }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    target("F1", "f01", "datagram headers", codec::datagram),
    target("F2", "f02", "frames, decoded, encoded and decoded again", codec::frames),
    target("F3", "f03", "one datagram of a stranger to a server", strangers::datagram),
    target("F4", "f04", "what is sealed in a token", handshake::token),
    target("F5", "f05", "a Welcome to a client", handshake::welcome),
    target("F6", "f06", "Retries, Refuses and Resets to a client", handshake::answers),
    target("F7", "f07", "one packet sealed with genuine keys", sealed::packet),
    target("F8", "f08", "a live connection fed with packets that open", sealed::packets),
    target("F9", "f09", "two cores driven by a script against a model", script::play),
    target("F10", "f10", "ack frames against a set", numbers::acks),
    target("F11", "f11", "messages in pieces against a map of their bytes", fragments::reassembly),
    target("F12", "f12", "the replay window against a set", numbers::replay),
    target("F13", "f13", "packet numbers cut and found again", numbers::expansion),
    target(
        "F14",
        "f14",
        "connection ids and the kernel's program against the Rust function",
        kernel::steering,
    ),
    target("F15", "f15", "control messages and trains", kernel::received),
    target("F16", "f16", "addresses, keys and configurations as text", text::config),
    target("F18", "f18", "a server before it knows anybody, with its ledgers", strangers::flood),
];

/// The target of this name, in any case.
#[must_use]
pub fn target_of(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name.eq_ignore_ascii_case(name))
}
