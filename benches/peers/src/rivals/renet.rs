//! renet with its own transport (netcode): connect tokens, ChaCha20-Poly1305. Settings: a tick of 1 ms, one channel of each kind
//! for every channel of the load, a resend time of 100 ms, a budget per tick that no load reaches; both ends of a silent connection
//! send a keep-alive each 250 ms, which is no setting. The server rests until the next tick, as the library's examples do. Each
//! client has a socket of its own, which the library takes.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use drumfire_benches::Counts;
use drumfire_tools::clock;
use renet::{Bytes, ChannelConfig, ConnectionConfig, RenetClient, RenetServer, SendType};
use renet_netcode::{
    ClientAuthentication, ConnectToken, NetcodeClientTransport, NetcodeServerTransport, ServerAuthentication,
    ServerConfig,
};

use super::{Rival, Serve, version_of};
use crate::face::{
    Answers, CHANNELS, Client, Ending, MESSAGE_MAX_BYTES, RECEIVE_BUFFER_BYTES, Served, Server, Setup, line,
    serve,
};

const TICK: Duration = Duration::from_millis(1);

const RESEND: Duration = Duration::from_millis(100);

/// Clients that the library's transport takes.
const CLIENTS_MAX: usize = 1_024;

/// Bytes that a channel holds.
const MEMORY_BYTES: usize = 5 * 1_024 * 1_024;

/// Bytes that leave in a tick for one client.
const TICK_BYTES: u64 = 1 << 20;

const PROTOCOL: u64 = 0xd5;

const KEY: [u8; 32] = [0x4e; 32];

const TIMEOUT_S: i32 = 15;

const TOKEN_S: u64 = 3_600;

/// An address that tokens and server both name: through a relay, where a client connects to is none of the server's own.
const NAMED: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

pub(super) fn rivals() -> Vec<Rival> {
    vec![Rival {
        version: version_of("renet"),
        encrypted: "ChaCha20",
        wait: "tick of 1 ms".to_owned(),
        keep_alive: "250 ms, its own",
        connections_max: CLIENTS_MAX,
        ..Rival::new("renet", "renet", Serve::Here(serve::<Ticking>), connect)
    }]
}

fn config(is_reliable: bool) -> ConnectionConfig {
    let send_type = || {
        if is_reliable { SendType::ReliableOrdered { resend_time: RESEND } } else { SendType::Unreliable }
    };
    let channels = || {
        let channel = |channel_id| ChannelConfig {
            channel_id,
            max_memory_usage_bytes: MEMORY_BYTES,
            send_type: send_type(),
        };
        (0..CHANNELS).map(channel).collect()
    };
    ConnectionConfig {
        available_bytes_per_tick: TICK_BYTES,
        server_channels_config: channels(),
        client_channels_config: channels(),
    }
}

fn socket() -> Result<UdpSocket, String> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(line)?;
    socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES).map_err(line)?;
    Ok(socket)
}

/// The same for all processes of this host.
fn time() -> Duration {
    Duration::from_nanos(clock::host_ns())
}

struct Ticking {
    server: RenetServer,
    transport: NetcodeServerTransport,
    address: SocketAddr,
    answers: Answers,
}

impl Server for Ticking {
    fn bind(setup: &Setup) -> Result<Self, String> {
        let socket = socket()?;
        let address = socket.local_addr().map_err(line)?;
        let transport = ServerConfig {
            current_time: time(),
            max_clients: CLIENTS_MAX,
            protocol_id: PROTOCOL,
            public_addresses: vec![address, NAMED],
            authentication: ServerAuthentication::Secure { private_key: KEY },
        };
        Ok(Self {
            server: RenetServer::new(config(setup.is_reliable)),
            transport: NetcodeServerTransport::new(transport, socket).map_err(line)?,
            address,
            answers: Answers::new(setup),
        })
    }

    fn address(&self) -> Result<SocketAddr, String> {
        Ok(self.address)
    }

    fn echo(mut self, ending: &Ending) -> Result<Counts, String> {
        let (mut served, mut last) = (Served::default(), clock::now());
        while !ending.is_here() {
            let now = clock::now();
            let passed = now.duration_since(last);
            last = now;
            self.server.update(passed);
            self.transport.update(passed, &mut self.server).map_err(line)?;
            while self.server.get_event().is_some() {}
            self.answer(&mut served);
            self.transport.send_packets(&mut self.server);
            clock::pause(TICK.saturating_sub(clock::now().duration_since(now)));
        }
        Ok(served.counts())
    }
}

impl Ticking {
    fn answer(&mut self, served: &mut Served) {
        for client in self.server.clients_id() {
            for channel in 0..CHANNELS {
                while let Some(message) = self.server.receive_message(client, channel) {
                    let answer = Bytes::copy_from_slice(self.answers.to(&message));
                    let has_room = self.server.can_send_message(client, channel, answer.len());
                    if has_room {
                        self.server.send_message(client, channel, answer);
                    }
                    served.on_answer(has_room);
                }
            }
        }
    }
}

/// One connection.
struct Player {
    client: RenetClient,
    transport: NetcodeClientTransport,
    last: u64,
}

fn connect(server: SocketAddr, _: usize, setup: &Setup) -> Result<Box<dyn Client>, String> {
    let socket = socket()?;
    let id = u64::from(socket.local_addr().map_err(line)?.port());
    let now = clock::host_ns();
    let to = vec![server, NAMED];
    let token =
        ConnectToken::generate(time(), PROTOCOL, TOKEN_S, id, TIMEOUT_S, to, None, &KEY).map_err(line)?;
    let authentication = ClientAuthentication::Secure { connect_token: token };
    let transport = NetcodeClientTransport::new(time(), authentication, socket).map_err(line)?;
    Ok(Box::new(Player { client: RenetClient::new(config(setup.is_reliable)), transport, last: now }))
}

impl Client for Player {
    fn is_ready(&self) -> bool {
        self.client.is_connected()
    }

    fn receive(&mut self, now: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        let passed = Duration::from_nanos(now.saturating_sub(self.last));
        self.last = now;
        self.client.update(passed);
        self.transport.update(passed, &mut self.client).map_err(line)?;
        for channel in 0..CHANNELS {
            while let Some(message) = self.client.receive_message(channel) {
                take(0, &message);
            }
        }
        Ok(())
    }

    fn send(&mut self, _: u64, _: usize, channel: u8, message: &[u8]) -> Result<bool, String> {
        let has_room = self.client.can_send_message(channel, MESSAGE_MAX_BYTES);
        if has_room {
            self.client.send_message(channel, Bytes::copy_from_slice(message));
        }
        Ok(has_room)
    }

    fn flush(&mut self, _: u64) -> Result<(), String> {
        if !self.client.is_connected() {
            return Ok(());
        }
        self.transport.send_packets(&mut self.client).map_err(line)
    }
}
