//! ENet, which protects nothing. Its server is a C program with the system's libenet (`enet/server.c`); its client, and a second
//! server for machines without that library, is the same library transpiled to Rust. Settings: as many channels as the load needs,
//! no bandwidth limits, and the throttle that drops unreliable packets at will never lowered, as its documentation has it for those
//! who want all of them sent; pings of a silent connection as seldom as others send them, where the library's default is 500 ms.
//! Both servers wait for the socket, take all events, flush, and come back at the latest after a millisecond while peers are
//! connected, since acks and resends leave with the service call only.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use drumfire_benches::Counts;
use drumfire_tools::clock;
use mio::{Events, Interest, Poll, Token};
use rusty_enet::{EventNoRef, Host, HostSettings, Packet, Peer, PeerID};

use super::{Rival, Serve, version_of};
use crate::face::{
    Answers, CHANNELS, Client, Ending, KEEP_ALIVE, LOOK_UP, RECEIVE_BUFFER_BYTES, Served, Server, Setup,
    line, serve,
};
use crate::programs::Program;

/// Connections of a client that share a host.
const PER_SOCKET: usize = 16;

/// Connections that a server has room for: the slots are allocated and walked, so as many as the loads have.
const PEERS: usize = 2_048;

/// How long a server waits that has connected peers: what it owes them leaves when it comes back.
const TICK: Duration = Duration::from_millis(1);

/// Milliseconds over which the throttle is looked at; its documentation's default.
const THROTTLE_INTERVAL_MS: u32 = 5_000;

/// The throttle rises to its top at once, and never falls.
const THROTTLE_UP: u32 = 32;

pub(super) fn rivals() -> Vec<Rival> {
    let enet = |name, serve| Rival {
        per_socket: PER_SOCKET,
        connections_max: PEERS,
        ..Rival::new(name, "enet", serve, connect)
    };
    vec![
        enet("ENet", Serve::Program(Program::Enet)),
        Rival { version: version_of("rusty_enet"), ..enet("ENet in Rust", Serve::Here(serve::<Service>)) },
    ]
}

fn host(peers: usize) -> Result<(Host<UdpSocket>, UdpSocket), String> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(line)?;
    socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES).map_err(line)?;
    let beside = socket.try_clone().map_err(line)?;
    let start = clock::now();
    let settings = HostSettings {
        peer_limit: peers,
        channel_limit: CHANNELS.into(),
        time: Box::new(move || clock::now().duration_since(start)),
        seed: Some(u32::try_from(clock::host_ns() & 0xffff_ffff).unwrap_or(1)),
        ..HostSettings::default()
    };
    Ok((Host::new(socket, settings).map_err(|error| format!("{error:?}"))?, beside))
}

/// The settings of a connection that stands: not before, since the server's answer has to name the throttle that was asked for.
fn set_up(peer: &mut Peer<UdpSocket>) {
    peer.set_throttle(THROTTLE_INTERVAL_MS, THROTTLE_UP, 0);
    peer.set_ping_interval(u32::try_from(KEEP_ALIVE.as_millis()).unwrap_or(u32::MAX));
}

fn packet(message: &[u8], is_reliable: bool) -> Packet {
    if is_reliable { Packet::reliable(message) } else { Packet::unreliable(message) }
}

/// The server in Rust.
struct Service {
    host: Host<UdpSocket>,
    /// The same socket, to be waited for.
    socket: UdpSocket,
    is_reliable: bool,
    answers: Answers,
}

impl Server for Service {
    fn bind(setup: &Setup) -> Result<Self, String> {
        let (host, socket) = host(PEERS)?;
        Ok(Self { host, socket, is_reliable: setup.is_reliable, answers: Answers::new(setup) })
    }

    fn address(&self) -> Result<SocketAddr, String> {
        self.socket.local_addr().map_err(line)
    }

    fn echo(mut self, ending: &Ending) -> Result<Counts, String> {
        let mut socket = mio::net::UdpSocket::from_std(self.socket);
        let mut poll = Poll::new().map_err(line)?;
        poll.registry().register(&mut socket, Token(0), Interest::READABLE).map_err(line)?;
        let (mut served, mut events, mut connected) = (Served::default(), Events::with_capacity(4), 0_usize);
        while !ending.is_here() {
            let wait = if connected > 0 { TICK } else { LOOK_UP };
            if let Err(error) = poll.poll(&mut events, Some(wait))
                && error.kind() != std::io::ErrorKind::Interrupted
            {
                return Err(line(error));
            }
            while let Some(event) = self.host.service().map_err(line)?.map(rusty_enet::Event::no_ref) {
                match event {
                    EventNoRef::Connect { peer, .. } => {
                        connected += 1;
                        set_up(self.host.peer_mut(peer));
                    }
                    EventNoRef::Disconnect { .. } => connected -= 1,
                    EventNoRef::Receive { peer, channel_id, packet: message } => {
                        let answer = packet(self.answers.to(message.data()), self.is_reliable);
                        served.on_answer(self.host.peer_mut(peer).send(channel_id, &answer).is_ok());
                    }
                }
            }
            self.host.flush();
        }
        Ok(served.counts())
    }
}

/// Several connections of one host.
struct Peers {
    host: Host<UdpSocket>,
    peers: Vec<PeerID>,
    ready_count: usize,
    is_reliable: bool,
}

fn connect(server: SocketAddr, count: usize, setup: &Setup) -> Result<Box<dyn Client>, String> {
    let (mut host, _) = host(count)?;
    let connect = |_| {
        let peer = host.connect(server, CHANNELS.into(), 0).map_err(line)?;
        Ok(peer.id())
    };
    let peers = (0..count).map(connect).collect::<Result<_, String>>()?;
    Ok(Box::new(Peers { host, peers, ready_count: 0, is_reliable: setup.is_reliable }))
}

impl Client for Peers {
    fn is_ready(&self) -> bool {
        self.ready_count == self.peers.len()
    }

    fn receive(&mut self, _: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        while let Some(event) = self.host.service().map_err(line)?.map(rusty_enet::Event::no_ref) {
            match event {
                EventNoRef::Connect { peer, .. } => {
                    self.ready_count += 1;
                    set_up(self.host.peer_mut(peer));
                }
                EventNoRef::Disconnect { .. } => return Err("a client lost its connection".to_owned()),
                EventNoRef::Receive { peer, packet, .. } => {
                    let place = self.peers.iter().position(|known| *known == peer);
                    take(place.unwrap_or(usize::MAX), packet.data());
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, _: u64, place: usize, channel: u8, message: &[u8]) -> Result<bool, String> {
        let packet = packet(message, self.is_reliable);
        Ok(self.host.peer_mut(self.peers[place]).send(channel, &packet).is_ok())
    }

    fn flush(&mut self, _: u64) -> Result<(), String> {
        self.host.flush();
        Ok(())
    }
}
