//! ENet, not encrypted. The server is a C program with the system's libenet (`enet/server.c`). The client is the same library transpiled
//! to Rust. Settings: as many channels as the load needs, no bandwidth limits, and pings of silent connections every 7.5 s instead of
//! 500 ms. The throttle never drops unreliable packets, as the documentation advises for that case. The server waits for the socket,
//! handles all events, and flushes. While peers are connected, it waits at most 1 ms, because acks and resends leave with the service
//! call only.

use std::net::{SocketAddr, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use drumfire_benches::traffic::Client;
use drumfire_benches::{Counts, output_of};
use drumfire_tools::clock;
use rusty_enet::{EventNoRef, Host, HostSettings, Packet, Peer, PeerID};

use crate::adapter::{CHANNELS, KEEP_ALIVE, Library, Setup, bind, line, program};

/// The name of the server in C.
const PROGRAM: &str = "enet-server";

/// Connections of a client that share a host.
const PER_SOCKET: usize = 16;

/// Room for connections at the server, as in `enet/server.c`. ENet allocates and walks all slots.
const PEERS: usize = 2_048;

/// The interval in which ENet adapts the throttle, its default.
const THROTTLE_INTERVAL_MS: u32 = 5_000;

/// The throttle rises to its maximum in one step, and never falls.
const THROTTLE_UP: u32 = 32;

pub(crate) fn libraries() -> Vec<Library> {
    vec![Library {
        per_socket: PER_SOCKET,
        connections_max: PEERS,
        build: Some(build),
        ..Library::new("ENet", "enet", serve, connect)
    }]
}

/// Builds the server in C and returns the version of libenet.
fn build() -> Result<String, String> {
    let path = program(PROGRAM)?;
    let flags = output_of(Command::new("pkg-config").args(["--cflags", "--libs", "libenet"]))
        .map_err(|_| "pkg-config knows no libenet (Debian: libenet-dev)".to_owned())?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("enet/server.c");
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&path).arg(source);
    output_of(compile.args(flags.split_whitespace()))?;
    output_of(Command::new(&path).arg("version"))
}

/// Replaces this process by the server in C, which keeps its core and its pipes.
fn serve(setup: &Setup) -> Result<Counts, String> {
    let delivery = if setup.is_reliable { "reliable" } else { "unreliable" };
    Err(line(Command::new(program(PROGRAM)?).args([delivery, &setup.answer_bytes.to_string()]).exec()))
}

fn host(peers: usize) -> Result<Host<UdpSocket>, String> {
    let start = clock::now();
    let settings = HostSettings {
        peer_limit: peers,
        channel_limit: CHANNELS.into(),
        time: Box::new(move || clock::now().duration_since(start)),
        seed: Some(u32::try_from(clock::host_ns() & 0xffff_ffff).unwrap_or(1)),
        ..HostSettings::default()
    };
    Host::new(bind()?, settings).map_err(|error| format!("{error:?}"))
}

/// Sets up an established connection. Before, the server's reply would not contain the throttle that the client asked for.
fn set_up(peer: &mut Peer<UdpSocket>) {
    peer.set_throttle(THROTTLE_INTERVAL_MS, THROTTLE_UP, 0);
    peer.set_ping_interval(u32::try_from(KEEP_ALIVE.as_millis()).unwrap_or(u32::MAX));
}

/// Several connections of one host.
struct Peers {
    host: Host<UdpSocket>,
    peers: Vec<PeerID>,
    ready_count: usize,
    is_reliable: bool,
}

fn connect(server: SocketAddr, count: usize, setup: &Setup) -> Result<Box<dyn Client>, String> {
    let mut host = host(count)?;
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
        let packet = if self.is_reliable { Packet::reliable(message) } else { Packet::unreliable(message) };
        Ok(self.host.peer_mut(self.peers[index]).send(channel, &packet).is_ok())
    }

    fn flush(&mut self, _: u64) -> Result<(), String> {
        self.host.flush();
        Ok(())
    }
}
