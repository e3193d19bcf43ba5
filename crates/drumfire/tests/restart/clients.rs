//! 200 clients: 180 over two shared sockets, and 20 with a socket each. Each client sends a message twenty times a second, as a
//! game does, and records its replies and reconnects.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use drumfire::{
    ChannelId, Client, ClientConfig, ConnectOptions, ConnectToken, Event, Message, PeerId, Reconnect,
    ServerPublicKey,
};

pub(crate) const ALL: usize = 200;
const SHARED_SOCKETS: usize = 2;
const PER_SOCKET: usize = 90;

/// The time between two messages of each client.
const PERIOD: Duration = Duration::from_millis(50);

/// The time after which an awaited condition counts as failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// The state of one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientState {
    /// Whether a reply has arrived since the last `reset` and the last reconnect.
    pub(crate) is_answered: bool,
    /// Whether the client has had a resume token since the last `reset`.
    pub(crate) has_resume_token: bool,
    /// The number of reconnect attempts since the last `reset`.
    pub(crate) reconnects: u32,
}

pub(crate) struct Clients {
    singles: Vec<(Client, PeerId)>,
    /// The shared sockets, each with the index of its clients in `states`.
    shared: Vec<(Client, HashMap<PeerId, usize>)>,
    states: Vec<ClientState>,
    /// The time of the last messages. `None` before the first ones.
    sent_at: Option<Instant>,
}

impl Clients {
    /// Starts to connect all clients. A client connects with its token if `token` returns one for its index.
    pub(crate) fn connect(
        address: SocketAddr,
        key: ServerPublicKey,
        token: impl Fn(usize) -> Option<ConnectToken>,
    ) -> Self {
        let config = ClientConfig::default().reconnect(Reconnect::Within(PATIENCE));
        let mut shared = Vec::new();
        for socket in 0..SHARED_SOCKETS {
            let mut clients = Client::new(config.clone().connections(100)).expect("a socket");
            let mut peers = HashMap::new();
            for index in socket * PER_SOCKET..(socket + 1) * PER_SOCKET {
                let peer = match token(index) {
                    Some(token) => clients.connect(&token),
                    None => clients.connect((address, key)),
                };
                peers.insert(peer.expect("room"), index);
            }
            shared.push((clients, peers));
        }
        let singles = (SHARED_SOCKETS * PER_SOCKET..ALL).map(|index| {
            let mut client = Client::new(config.clone()).expect("a socket");
            let to = token(index).map_or_else(|| (address, key).into(), ConnectOptions::from);
            let peer = client.connect(to).expect("room");
            (client, peer)
        });
        Self { singles: singles.collect(), shared, states: vec![ClientState::default(); ALL], sent_at: None }
    }

    /// Resets the state of all clients.
    pub(crate) fn reset(&mut self) {
        self.states.fill(ClientState::default());
    }

    pub(crate) fn count(&self, is_counted: impl Fn(&ClientState) -> bool) -> usize {
        self.states.iter().filter(|state| is_counted(state)).count()
    }

    /// Runs until `is_true` holds for all clients. Returns the time that this took.
    pub(crate) fn until(&mut self, what: &str, is_true: impl Fn(&ClientState) -> bool) -> Duration {
        let start = now();
        while self.count(&is_true) < ALL {
            let reached = self.count(&is_true);
            assert!(now().duration_since(start) < PATIENCE, "{what}: {reached} of {ALL}; {:?}", self.states);
            self.step();
        }
        now().duration_since(start)
    }

    /// Runs for `duration`.
    pub(crate) fn run_for(&mut self, duration: Duration) {
        let start = now();
        while now().duration_since(start) < duration {
            self.step();
        }
    }

    fn step(&mut self) {
        let is_time = self.sent_at.is_none_or(|at| now().duration_since(at) >= PERIOD);
        if is_time {
            self.sent_at = Some(now());
            self.send_messages();
        }
        // Only the first socket waits. It bounds the delay of all others to 1 ms.
        self.shared[0].0.poll(Duration::from_millis(1));
        for (clients, peers) in &mut self.shared {
            clients.poll(Duration::ZERO);
            while let Some(event) = clients.next_event() {
                on_shared_event(&mut self.states, peers, event);
            }
            for (peer, index) in peers.iter() {
                self.states[*index].has_resume_token |= clients.resume_token(*peer).is_some();
            }
        }
        for ((client, peer), index) in self.singles.iter_mut().zip(SHARED_SOCKETS * PER_SOCKET..) {
            let state = &mut self.states[index];
            client.poll(Duration::ZERO);
            while let Some(event) = client.next_event() {
                match event {
                    Event::Message { .. } => state.is_answered = true,
                    Event::Reconnecting { .. } => on_reconnecting(state),
                    Event::Connected { .. } | Event::FlightRecord { .. } => {}
                    event => panic!("{index}: {event:?}"),
                }
            }
            state.has_resume_token |= state.reconnects == 0 && client.resume_token(*peer).is_some();
        }
    }

    fn send_messages(&mut self) {
        // The messages are unreliable, so an error while the server is down is ignored.
        for (clients, peers) in &mut self.shared {
            for peer in peers.keys() {
                let _ = clients.send(*peer, Message::unreliable(ChannelId(0), "here"));
            }
        }
        for (client, peer) in &mut self.singles {
            let _ = client.send(*peer, Message::unreliable(ChannelId(0), "here"));
        }
    }
}

fn on_shared_event(states: &mut [ClientState], peers: &HashMap<PeerId, usize>, event: Event) {
    match event {
        Event::Message { peer, .. } => states[peers[&peer]].is_answered = true,
        Event::Reconnecting { peer, .. } => on_reconnecting(&mut states[peers[&peer]]),
        Event::FlightRecord { .. } => {}
        Event::Connected { peer, .. } => assert!(peers.contains_key(&peer), "{peer:?}"),
        event => panic!("{event:?}"),
    }
}

fn on_reconnecting(state: &mut ClientState) {
    state.reconnects += 1;
    state.is_answered = false;
}

#[expect(clippy::disallowed_methods, reason = "conditions on real sockets have deadlines")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
