//! The bugs that can be planted (feature `plant`), by number: what each is called, what is wrong, and in which file.
//!
//! They stand where such bugs would be made, in the crates below. Whether one is found is for the scenarios to show.

use drumfire::testing::plant::{self, Plant};

/// A bug that can be planted.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    /// From 1 on.
    pub number: usize,
    /// Which.
    pub plant: Plant,
    /// What is wrong with it, in some words.
    pub what: &'static str,
    /// The file it stands in, seen from the root of the workspace.
    pub file: &'static str,
}

impl Planted {
    /// Whether it shows only where a server has workers, and something goes wrong with them.
    #[must_use]
    pub fn needs_workers(&self) -> bool {
        self.file.starts_with(WORKERS)
    }
}

/// Where the code of workers is.
const WORKERS: &str = "crates/drumfire/src/worker/";

/// All of them.
#[must_use]
pub fn all() -> Vec<Planted> {
    let numbered = (1..).zip(Plant::ALL);
    numbered
        .map(|(number, plant)| {
            let (what, file) = of(plant);
            Planted { number, plant, what, file }
        })
        .collect()
}

/// The one of this number.
#[must_use]
pub fn by_number(number: usize) -> Option<Planted> {
    all().into_iter().find(|planted| planted.number == number)
}

/// Plants it in all scenarios that this thread runs from now on.
pub fn plant(planted: Planted) {
    plant::set(Some(planted.plant));
}

const fn of(plant: Plant) -> (&'static str, &'static str) {
    match plant {
        Plant::WindowOffByOne => ("replay window takes the newest once more", "crates/crypto/src/replay.rs"),
        Plant::AckOfUnsent => ("ack of an unsent packet is taken in", "crates/proto/src/loss.rs"),
        Plant::AckOfSkipped => ("ack of a skipped number is taken in", "crates/proto/src/loss.rs"),
        Plant::OldKeysKept => ("keys of the epoch before are kept", "crates/proto/src/session.rs"),
        Plant::CapInMessages => {
            ("send memory counts messages, not bytes", "crates/proto/src/channel/send.rs")
        }
        Plant::BatchAborted => ("a bad datagram ends its batch", "crates/proto/src/endpoint/receive.rs"),
        Plant::JunkKeepsAlive => ("junk keeps a connection alive", "crates/proto/src/endpoint/receive.rs"),
        Plant::NumbersReset => ("packet numbers begin anew after idling", "crates/crypto/src/sealer.rs"),
        Plant::PathByCopy => ("a path moves to a copy's source", "crates/proto/src/endpoint/receive.rs"),
        Plant::PathUnchallenged => ("a path moves without a challenge", "crates/proto/src/path.rs"),
        Plant::TokenTwice => ("a token opens two sessions at once", "crates/proto/src/ledger.rs"),
        Plant::OrderIgnored => {
            ("ordered messages are not put in order", "crates/proto/src/channel/receive.rs")
        }
        Plant::ReliableTwice => ("reliable messages come twice", "crates/proto/src/channel/receive.rs"),
        Plant::PieceMisplaced => {
            ("a piece lies at the wrong offset", "crates/proto/src/channel/receive/pieces.rs")
        }
        Plant::ReceiptOfSending => {
            ("a receipt is told before its ack", "crates/proto/src/channel/send/fill.rs")
        }
        Plant::OlderDelivered => {
            ("sequenced messages come too late", "crates/proto/src/channel/receive/sequenced.rs")
        }
        Plant::ProbeNeverDue => ("the probe timer is never armed", "crates/proto/src/loss.rs"),
        Plant::SilenceForever => ("silence after lost probes never ends", "crates/proto/src/loss.rs"),
        Plant::CookieForAll => ("a cookie is good for every address", "crates/crypto/src/cookie.rs"),
        Plant::ResetUnmatched => ("a Reset needs no matching token", "crates/proto/src/identity.rs"),
        Plant::EdgeLost => ("a socket's edge is waited for twice", "crates/drumfire/src/worker/net.rs"),
        Plant::HeadDropped => ("what a full socket refused is gone", "crates/drumfire/src/worker/net.rs"),
        Plant::ForwardedTwice => {
            ("what is handed to a worker is taken twice", "crates/drumfire/src/worker/ring.rs")
        }
        Plant::AnewUntold => ("who begins anew tells nobody", "crates/drumfire/src/worker/pass.rs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn each_has_a_number_and_stands_once_in_its_file() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for planted in all() {
            let text = std::fs::read_to_string(root.join(planted.file)).unwrap();
            let name = format!("plant::is(Plant::{:?})", planted.plant);
            assert_eq!(text.matches(&name).count(), 1, "{name} in {}", planted.file);
            assert_eq!(by_number(planted.number).unwrap().plant, planted.plant);
        }
        assert_eq!(all().len(), 24);
        assert_eq!(all().iter().filter(|planted| planted.needs_workers()).count(), 4);
        assert!(by_number(0).is_none() && by_number(25).is_none());
    }
}
