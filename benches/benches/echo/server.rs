//! What the server's process tells the bench: its address first, what it counted last. It ends when its
//! standard input does.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use drumfire_benches::say;
use serde_json::{Value, json};

/// The receive buffer to ask for: room for a message of every connection and more.
pub(crate) const RECEIVE_BUFFER_BYTES: usize = 4 * 1_024 * 1_024;

/// What a server counted from its first datagram to its last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Served {
    /// Messages that arrived.
    pub(crate) received: u64,
    /// Messages that were sent back.
    pub(crate) echoed: u64,
    /// Messages that could not be sent back.
    pub(crate) refused: u64,
    /// Datagrams in no counter.
    pub(crate) unexplained: u64,
    /// What else it counted.
    pub(crate) counts: BTreeMap<String, u64>,
}

impl Served {
    pub(crate) fn to_line(&self) -> String {
        json!({
            "received": self.received,
            "echoed": self.echoed,
            "refused": self.refused,
            "unexplained": self.unexplained,
            "counts": self.counts,
        })
        .to_string()
    }

    pub(crate) fn of_line(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let count = |key: &str| value.get(key)?.as_u64();
        Some(Self {
            received: count("received")?,
            echoed: count("echoed")?,
            refused: count("refused")?,
            unexplained: count("unexplained")?,
            counts: serde_json::from_value(value.get("counts")?.clone()).ok()?,
        })
    }
}

/// Says where the server is.
pub(crate) fn announce(address: SocketAddr) -> io::Result<()> {
    say(&address.to_string())
}
