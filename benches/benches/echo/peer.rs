//! Who is measured, by the name that the processes of a round tell each other.

use drumfire_crypto::Suite;

/// One subject of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Plain UDP through mio, one datagram at a time, not encrypted: the floor.
    Raw,
    /// drumfire, server and client.
    Drumfire(Staffing, Delivery, Suite),
}

/// Who does the server's I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Staffing {
    /// The thread of the application, which is notified of each datagram.
    Inline,
    /// One worker thread on the same core, with the default wait.
    Worker,
}

/// What is promised of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// It may be lost.
    Unreliable,
    /// It arrives once and in order.
    Reliable,
}

impl Peer {
    /// All of them, the floor first: both suites with one thread as the floor has, then with a worker.
    pub(crate) fn all() -> Vec<Self> {
        let fast = if Suite::Aes128Gcm.is_offered() { Suite::Aes128Gcm } else { Suite::ChaCha20Poly1305 };
        let mut all = vec![Self::Raw];
        let both = [Delivery::Unreliable, Delivery::Reliable];
        all.extend(both.map(|delivery| Self::Drumfire(Staffing::Inline, delivery, fast)));
        if fast != Suite::ChaCha20Poly1305 {
            let slow = Suite::ChaCha20Poly1305;
            all.extend(both.map(|delivery| Self::Drumfire(Staffing::Inline, delivery, slow)));
        }
        all.extend(both.map(|delivery| Self::Drumfire(Staffing::Worker, delivery, fast)));
        all
    }

    pub(crate) fn name(self) -> String {
        let Self::Drumfire(staffing, delivery, suite) = self else {
            return "raw mio, not encrypted".to_owned();
        };
        let delivery = match delivery {
            Delivery::Unreliable => "unreliable",
            Delivery::Reliable => "reliable",
        };
        let staffing = match staffing {
            Staffing::Inline => "inline",
            Staffing::Worker => "one worker",
        };
        let suite = match suite {
            Suite::Aes128Gcm => "AES-128-GCM",
            Suite::ChaCha20Poly1305 => "ChaCha20",
        };
        format!("{delivery}, {staffing}, {suite}")
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|peer| peer.name() == name)
    }

    /// Whether a message of it may never arrive.
    pub(crate) const fn may_lose(self) -> bool {
        !matches!(self, Self::Drumfire(_, Delivery::Reliable, _))
    }

    /// Whether its server is one that waits as a server does by default.
    pub(crate) const fn has_default_wait(self) -> bool {
        matches!(self, Self::Drumfire(Staffing::Worker, ..))
    }

    /// Whether its server has one busy thread: more of them wait for the core because of each other.
    pub(crate) const fn has_one_thread(self) -> bool {
        !self.has_default_wait()
    }
}
