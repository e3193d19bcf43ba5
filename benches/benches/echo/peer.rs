//! Who is measured, by the name that the processes of a round tell each other.

use std::time::Duration;

use drumfire_crypto::Suite;

/// One subject of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Plain UDP through mio, one datagram at a time, not encrypted: the floor.
    Raw,
    /// drumfire, server and client.
    Drumfire(Staffing, Delivery, Suite),
}

/// How long datagrams gather where they are told to.
pub(crate) const GATHERED: Duration = Duration::from_millis(1);

/// Who does the server's I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Staffing {
    /// The thread of the application, which is notified of each datagram.
    Inline,
    /// One worker thread on the same core, with the default wait, which hands each message to the application's thread.
    Worker,
    /// One worker thread, with the default wait, on which the application's handler answers.
    Handler,
    /// The same, where what comes gathers for [`GATHERED`].
    Gathered,
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
    /// Those of F and A, the floor first: a handler with both suites, the application's own thread, and a worker that hands each
    /// message to it.
    pub(crate) fn all() -> Vec<Self> {
        let (fast, slow) = (Self::fast(), Suite::ChaCha20Poly1305);
        let mut ours = vec![(Staffing::Handler, fast), (Staffing::Handler, slow)];
        ours.dedup();
        ours.extend([(Staffing::Inline, fast), (Staffing::Worker, fast)]);
        let both = [Delivery::Unreliable, Delivery::Reliable];
        let each = |(staffing, suite)| both.map(|delivery| Self::Drumfire(staffing, delivery, suite));
        [Self::Raw].into_iter().chain(ours.into_iter().flat_map(each)).collect()
    }

    /// Those of nbio's loads: a handler answers in the loop that reads, as nbio's does, and the application's own thread, notified of
    /// each datagram as the floor is, is told when to flush. Every message arrives, in order, as with TCP.
    pub(crate) fn all_of_many() -> Vec<Self> {
        let reliable = |staffing, suite| Self::Drumfire(staffing, Delivery::Reliable, suite);
        let gathered = |suite| reliable(Staffing::Gathered, suite);
        let mut all = vec![Self::Raw, gathered(Self::fast()), gathered(Suite::ChaCha20Poly1305)];
        all.dedup();
        all.push(reliable(Staffing::Inline, Self::fast()));
        all
    }

    /// The suite that both ends take by themselves.
    pub(crate) fn fast() -> Suite {
        if Suite::Aes128Gcm.is_offered() { Suite::Aes128Gcm } else { Suite::ChaCha20Poly1305 }
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
            Staffing::Inline => "inline".to_owned(),
            Staffing::Worker => "one worker".to_owned(),
            Staffing::Handler => "handler".to_owned(),
            Staffing::Gathered => format!("handler, gathered {} ms", GATHERED.as_millis()),
        };
        let suite = match suite {
            Suite::Aes128Gcm => "AES-128-GCM",
            Suite::ChaCha20Poly1305 => "ChaCha20",
        };
        format!("{delivery}, {staffing}, {suite}")
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().chain(Self::all_of_many()).find(|peer| peer.name() == name)
    }

    /// Whether a message of it may never arrive.
    pub(crate) const fn may_lose(self) -> bool {
        !matches!(self, Self::Drumfire(_, Delivery::Reliable, _))
    }

    /// Whether what it costs is held against the floor, which answers where it reads too.
    pub(crate) const fn answers_where_it_reads(self) -> bool {
        matches!(self, Self::Drumfire(Staffing::Inline | Staffing::Handler | Staffing::Gathered, ..))
    }

    /// Whether its times are held against the floor's: it waits as a server does by default.
    pub(crate) const fn has_time_goal(self) -> bool {
        matches!(self, Self::Drumfire(Staffing::Handler, ..))
    }

    /// Whether its server has one busy thread: more of them wait for the core because of each other.
    pub(crate) const fn has_one_thread(self) -> bool {
        !matches!(self, Self::Drumfire(Staffing::Worker, ..))
    }
}
