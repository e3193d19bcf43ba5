//! What did not hold: in which seed, at which packet, and how to see it again.

use std::fmt;

use drumfire_puppet::DrawnFrame;

/// Frames of a packet that are printed.
const SHOWN_FRAMES: usize = 12;

/// An invariant that did not hold.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) test: &'static str,
    pub(crate) seed: u64,
    /// The packets or Hellos before it.
    pub(crate) packet: u64,
    pub(crate) what: String,
    /// The frames of the packet.
    pub(crate) frames: Vec<DrawnFrame>,
    /// The choices of the seed.
    pub(crate) plan: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { test, seed, packet, what, frames, plan } = self;
        writeln!(f, "seed {seed}, packet {packet}: {what}")?;
        for frame in frames.iter().take(SHOWN_FRAMES) {
            writeln!(f, "    {frame:?}")?;
        }
        if frames.len() > SHOWN_FRAMES {
            writeln!(f, "    and {} more frames", frames.len() - SHOWN_FRAMES)?;
        }
        writeln!(f, "  {plan}")?;
        let next = seed + 1;
        let release = if cfg!(debug_assertions) { "" } else { " --release" };
        write!(
            f,
            "replay it with: HOSTILE_SEEDS={seed}..{next} cargo test{release} -p drumfire-proto --test hostile_traffic \
             -- {test} --nocapture"
        )
    }
}
