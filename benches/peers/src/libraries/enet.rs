//! ENet, not encrypted. The server is a C program with the system's libenet (`enet/server.c`). The client, and a second server for
//! machines without that library, are the same library transpiled to Rust. Settings: as many channels as the load needs, no bandwidth
//! limits, a throttle that never drops unreliable packets (as the documentation advises for that case), and pings of silent connections
//! every 7.5 s instead of 500 ms. Both servers wait for the socket, handle all events, and flush. While peers are connected, they wait
//! at most 1 ms, because acks and resends leave with the service call only.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use drumfire_benches::roles::print_address;
use drumfire_benches::traffic::Client;
use drumfire_benches::{Counts, RECEIVE_BUFFER_BYTES, stop_flag};
use drumfire_tools::clock;
use mio::{Events, Interest, Poll, Token};
use rusty_enet::{EventNoRef, Host, HostSettings, Packet, Peer, PeerID};

use crate::adapter::{
    Answers, CHANNELS, KEEP_ALIVE, LOOK_UP, Library, Served, Setup, line, output, program, version_of,
};

/// The name of the server in C.
const PROGRAM: &str = "enet-server";

/// Connections of a client that share a host.
const PER_SOCKET: usize = 16;

/// Room for connections at a server. ENet allocates and walks all slots, so there are as many as the loads have.
const PEERS: usize = 2_048;

/// The longest wait of a server with peers.
const TICK: Duration = Duration::from_millis(1);

/// The interval in which ENet adapts the throttle, its default.
const THROTTLE_INTERVAL_MS: u32 = 5_000;

/// The throttle rises to its maximum in one step, and never falls.
const THROTTLE_UP: u32 = 32;

pub(crate) fn libraries() -> Vec<Library> {
    let enet = |name, serve| Library {
        per_socket: PER_SOCKET,
        connections_max: PEERS,
        ..Library::new(name, "enet", serve, connect)
    };
    vec![
        Library { build: Some(build), ..enet("ENet", serve_in_c) },
        Library { version: version_of("rusty_enet"), ..enet("ENet in Rust", serve) },
    ]
}

/// Builds the server in C and returns the version of libenet.
fn build() -> Result<String, String> {
    let path = program(PROGRAM)?;
    let flags = output("pkg-config", Command::new("pkg-config").args(["--cflags", "--libs", "libenet"]))
        .map_err(|_| "pkg-config knows no libenet (Debian: libenet-dev)".to_owned())?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("enet/server.c");
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&path).arg(source);
    output("cc", compile.args(flags.split_whitespace()))?;
    output("the ENet server", Command::new(&path).arg("version"))
}

/// Replaces this process by the server in C, which keeps its core and its pipes.
fn serve_in_c(setup: &Setup) -> Result<Counts, String> {
    let delivery = if setup.is_reliable { "reliable" } else { "unreliable" };
    Err(line(Command::new(program(PROGRAM)?).args([delivery, &setup.answer_bytes.to_string()]).exec()))
}

fn host(peers: usize) -> Result<(Host<UdpSocket>, UdpSocket), String> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(line)?;
    socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES).map_err(line)?;
    let same_socket = socket.try_clone().map_err(line)?;
    let start = clock::now();
    let settings = HostSettings {
        peer_limit: peers,
        channel_limit: CHANNELS.into(),
        time: Box::new(move || clock::now().duration_since(start)),
        seed: Some(u32::try_from(clock::host_ns() & 0xffff_ffff).unwrap_or(1)),
        ..HostSettings::default()
    };
    Ok((Host::new(socket, settings).map_err(|error| format!("{error:?}"))?, same_socket))
}

/// Sets up an established connection. Before, the server's reply would not contain the throttle that the client asked for.
fn set_up(peer: &mut Peer<UdpSocket>) {
    peer.set_throttle(THROTTLE_INTERVAL_MS, THROTTLE_UP, 0);
    peer.set_ping_interval(u32::try_from(KEEP_ALIVE.as_millis()).unwrap_or(u32::MAX));
}

fn packet(message: &[u8], is_reliable: bool) -> Packet {
    if is_reliable { Packet::reliable(message) } else { Packet::unreliable(message) }
}

/// Runs the server in Rust.
fn serve(setup: &Setup) -> Result<Counts, String> {
    let ((mut host, socket), is_over) = (host(PEERS)?, stop_flag());
    print_address(socket.local_addr().map_err(line)?)?;
    let mut socket = mio::net::UdpSocket::from_std(socket);
    let mut poll = Poll::new().map_err(line)?;
    poll.registry().register(&mut socket, Token(0), Interest::READABLE).map_err(line)?;
    let (mut answers, mut served) = (Answers::new(setup), Served::default());
    let (mut events, mut connected) = (Events::with_capacity(4), 0_usize);
    while !is_over.load(Ordering::Acquire) {
        let wait = if connected > 0 { TICK } else { LOOK_UP };
        if let Err(error) = poll.poll(&mut events, Some(wait))
            && error.kind() != std::io::ErrorKind::Interrupted
        {
            return Err(line(error));
        }
        while let Some(event) = host.service().map_err(line)?.map(rusty_enet::Event::no_ref) {
            match event {
                EventNoRef::Connect { peer, .. } => {
                    connected += 1;
                    set_up(host.peer_mut(peer));
                }
                EventNoRef::Disconnect { .. } => connected -= 1,
                EventNoRef::Receive { peer, channel_id, packet: message } => {
                    let answer = packet(answers.to(message.data()), setup.is_reliable);
                    served.on_answer(host.peer_mut(peer).send(channel_id, &answer).is_ok());
                }
            }
        }
        host.flush();
    }
    Ok(served.counts())
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
                    let index = self.peers.iter().position(|known| *known == peer);
                    take(index.unwrap_or(usize::MAX), packet.data());
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, _: u64, index: usize, channel: u8, message: &[u8]) -> Result<bool, String> {
        let packet = packet(message, self.is_reliable);
        Ok(self.host.peer_mut(self.peers[index]).send(channel, &packet).is_ok())
    }

    fn flush(&mut self, _: u64) -> Result<(), String> {
        self.host.flush();
        Ok(())
    }
}
