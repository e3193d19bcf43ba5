//! Many connections over a few sockets, all on the thread that calls: begun at a rate that servers bear, and counted by what
//! became of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use drumfire::{ClientConfig, Clients, ClientsEvent, ConnectError, PeerId, ServerPublicKey, WorkerStats};
use drumfire_tools::clock;

use crate::served::RECEIVE_BUFFER_BYTES;

/// Attempts under way at a time: a server keeps 4,096 that are half-open.
const UNDER_WAY_MAX: u64 = 1_024;

/// A ramp that takes so long beyond its own time will not come to an end.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a thread that has nothing to do rests.
const REST: Duration = Duration::from_micros(500);

/// Connections over a few sockets.
#[derive(Debug)]
pub struct Crowd {
    sockets: Vec<Clients>,
    peers: Vec<(usize, PeerId)>,
    ended: u64,
    /// Attempts so far, which go around the sockets.
    begun: usize,
}

/// What became of attempts to connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ramped {
    /// How long it took from the first attempt to the last answer.
    pub took: Duration,
    /// How many are connected.
    pub connected: u64,
    /// How many are not, by the reason.
    pub failed: BTreeMap<String, u64>,
}

impl Ramped {
    /// How many attempts failed.
    #[must_use]
    pub fn failed_count(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Attempts that came to an end.
    fn ended(&self) -> u64 {
        self.connected + self.failed_count()
    }
}

impl Crowd {
    /// Binds so many sockets on the loopback for so many connections in all.
    ///
    /// # Errors
    ///
    /// One line: what could not be bound.
    pub fn bind(sockets: u32, connections: u32) -> Result<Self, String> {
        // Many clients have one socket here, and what comes while this process has no core has to fit.
        let config = ClientConfig::default().receive_buffer_bytes(RECEIVE_BUFFER_BYTES);
        Self::bind_with(sockets, connections, &config)
    }

    /// The same with this configuration.
    ///
    /// # Errors
    ///
    /// As [`Self::bind`].
    pub fn bind_with(sockets: u32, connections: u32, config: &ClientConfig) -> Result<Self, String> {
        let bind = |_| Clients::bind(([127, 0, 0, 1], 0).into(), connections.div_ceil(sockets), config);
        let sockets = (0..sockets).map(bind).collect::<Result<_, _>>();
        let sockets = sockets.map_err(|error| format!("the clients' sockets: {error}"))?;
        Ok(Self { sockets, peers: Vec::new(), ended: 0, begun: 0 })
    }

    /// The connections there are, as a place among the sockets and a name there.
    #[must_use]
    pub fn peers(&self) -> &[(usize, PeerId)] {
        &self.peers
    }

    /// The socket at this place.
    pub fn socket(&mut self, place: usize) -> Option<&mut Clients> {
        self.sockets.get_mut(place)
    }

    /// How many sockets there are.
    #[must_use]
    pub fn sockets(&self) -> usize {
        self.sockets.len()
    }

    /// Connections that ended after they had begun.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// Connects so many more, so many in a second, each on the next socket; `heard` is told of everything that happens beside.
    ///
    /// # Errors
    ///
    /// One line: what cannot be begun, or that it took too long.
    pub fn connect(
        &mut self,
        (server, key): (SocketAddr, ServerPublicKey),
        count: u64,
        per_second: u64,
        mut heard: impl FnMut(usize, &ClientsEvent),
    ) -> Result<Ramped, String> {
        let start = clock::now();
        let deadline = start + Duration::from_secs(count / per_second.max(1)) + PATIENCE;
        let (mut begun, mut ramped) = (0, Ramped::default());
        while ramped.ended() < count {
            let due = due(start, per_second).min(count).min(ramped.ended() + UNDER_WAY_MAX);
            while begun < due {
                let place = self.begun % self.sockets.len();
                let begins = self.sockets[place].connect(server, key);
                begins.map_err(|error| format!("connection {begun}: {error}"))?;
                (begun, self.begun) = (begun + 1, self.begun + 1);
            }
            let came = self.look(|place, event| match event {
                ClientsEvent::Connected { .. } => ramped.connected += 1,
                ClientsEvent::ConnectFailed { error, .. } => {
                    *ramped.failed.entry(reason(error)).or_default() += 1;
                }
                event => heard(place, event),
            });
            if clock::now() > deadline {
                return Err(format!("{} of {count} attempts came to an end in time", ramped.ended()));
            }
            if !came {
                clock::pause(REST);
            }
        }
        ramped.took = clock::now().duration_since(start);
        Ok(ramped)
    }

    /// Does all sockets' work and tells what happened; answers whether anything did.
    pub fn look(&mut self, mut heard: impl FnMut(usize, &ClientsEvent)) -> bool {
        let mut came = false;
        for place in 0..self.sockets.len() {
            came |= self.look_at(place, |event| heard(place, event));
        }
        came
    }

    /// Does the work of the socket at this place and tells what happened; answers whether anything did.
    pub fn look_at(&mut self, place: usize, mut heard: impl FnMut(&ClientsEvent)) -> bool {
        let Some(socket) = self.sockets.get_mut(place) else { return false };
        let mut came = false;
        for event in socket.poll() {
            came = true;
            match &event {
                ClientsEvent::Connected { peer } => self.peers.push((place, *peer)),
                ClientsEvent::Disconnected { .. } => self.ended += 1,
                _ => {}
            }
            heard(&event);
        }
        came
    }

    /// Sends what all connections have to say.
    pub fn flush(&mut self) {
        self.sockets.iter_mut().for_each(Clients::flush);
    }

    /// Datagrams that all sockets took since they were bound, those that no connection had a use for too.
    #[must_use]
    pub fn received_in_all(&self) -> u64 {
        let received = self.sockets.iter().map(|socket| socket.stats().received);
        received.map(|received| received.datagrams + received.dropped_in_all()).sum()
    }

    /// Takes all that is there, and answers as [`Self::received_in_all`].
    pub fn drain(&mut self) -> u64 {
        loop {
            let before = self.received_in_all();
            self.look(|_, _| {});
            if self.received_in_all() == before {
                return before;
            }
        }
    }

    /// What all sockets carried since they were bound.
    #[must_use]
    pub fn carried(&self) -> Carried {
        self.sockets.iter().map(Carried::of).fold(Carried::default(), Carried::plus)
    }

    /// What the socket at this place counted since it was bound.
    #[must_use]
    pub fn socket_stats(&self, place: usize) -> Option<WorkerStats> {
        self.sockets.get(place).map(Clients::stats)
    }

    /// What the socket at this place carried since it was bound.
    #[must_use]
    pub fn carried_by(&self, place: usize) -> Carried {
        self.sockets.get(place).map(Carried::of).unwrap_or_default()
    }
}

/// What sockets carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Datagrams sent.
    pub sent: u64,
    /// Bytes of them.
    pub sent_bytes: u64,
    /// Datagrams received.
    pub received: u64,
    /// Bytes of them.
    pub received_bytes: u64,
}

impl Carried {
    fn of(socket: &Clients) -> Self {
        let stats = socket.stats();
        Self {
            sent: stats.sent.datagrams,
            sent_bytes: stats.sent.bytes,
            received: stats.received.datagrams,
            received_bytes: stats.received.bytes,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            received: self.received + other.received,
            received_bytes: self.received_bytes + other.received_bytes,
        }
    }
}

/// Attempts that should have begun by now.
fn due(start: Instant, per_second: u64) -> u64 {
    let elapsed = clock::now().duration_since(start).as_micros();
    let due = elapsed.saturating_mul(per_second.into()) / 1_000_000;
    u64::try_from(due).unwrap_or(u64::MAX).saturating_add(1)
}

fn reason(error: &ConnectError) -> String {
    match error {
        ConnectError::Refused(refusal) => format!("refused: {:?}", refusal.reason),
        error => format!("{error:?}"),
    }
}
