//! renet with its own transport (netcode): connect tokens, ChaCha20-Poly1305. Settings: a tick of 1 ms, a resend time of
//! 100 ms, a channel for each channel of the load, and a budget per tick that no load reaches. Both ends of a silent connection send
//! keep-alives every 250 ms, which is not a setting. The server sleeps until the next tick, as the library's examples do. Each client
//! has its own socket.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use drumfire_benches::traffic::Client;
use drumfire_benches::{Answers, Counts, Served};
use drumfire_tools::clock;
use renet::{Bytes, ChannelConfig, ConnectionConfig, RenetClient, RenetServer, SendType};
use renet_netcode::{
    ClientAuthentication, ConnectToken, NetcodeClientTransport, NetcodeServerTransport, ServerAuthentication,
    ServerConfig,
};

use crate::adapter::{CHANNELS, Library, MESSAGE_MAX_BYTES, Setup, bind, line, serve_in_loop, version_of};

const TICK: Duration = Duration::from_millis(1);

const RESEND: Duration = Duration::from_millis(100);

/// The limit of the library's transport.
const CLIENTS_MAX: usize = 1_024;

/// The memory of a channel.
const MEMORY_BYTES: usize = 5 * 1_024 * 1_024;

/// Bytes sent to one client in a tick, at most.
const TICK_BYTES: u64 = 1 << 20;

const PROTOCOL: u64 = 0xd5;

const KEY: [u8; 32] = [0x4e; 32];

const TIMEOUT_S: i32 = 15;

const TOKEN_S: u64 = 3_600;

/// An address in tokens and at the server. The server does not know the address of a relay, and would refuse a token with that alone.
const NAMED: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

pub(crate) fn libraries() -> Vec<Library> {
    vec![Library {
        version: version_of("renet"),
        encrypted: "ChaCha20",
        wait: "tick of 1 ms".to_owned(),
        keep_alive: "250 ms, its own",
        connections_max: CLIENTS_MAX,
        ..Library::new("renet", "renet", serve, connect)
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

/// The time, which is the same in all processes of this host.
fn time() -> Duration {
    Duration::from_nanos(clock::host_ns())
}

fn serve(setup: &Setup) -> Result<Counts, String> {
    let socket = bind()?;
    let address = socket.local_addr().map_err(line)?;
    let transport = ServerConfig {
        current_time: time(),
        max_clients: CLIENTS_MAX,
        protocol_id: PROTOCOL,
        public_addresses: vec![address, NAMED],
        authentication: ServerAuthentication::Secure { private_key: KEY },
    };
    let mut server = RenetServer::new(config(setup.is_reliable));
    let mut transport = NetcodeServerTransport::new(transport, socket).map_err(line)?;
    let (mut last, mut answers) = (clock::now(), Answers::default());
    serve_in_loop(address, |served| {
        let now = clock::now();
        let elapsed = now.duration_since(last);
        last = now;
        server.update(elapsed);
        transport.update(elapsed, &mut server).map_err(line)?;
        while server.get_event().is_some() {}
        answer(&mut server, setup.answer_bytes, &mut answers, served);
        transport.send_packets(&mut server);
        clock::pause(TICK.saturating_sub(clock::now().duration_since(now)));
        Ok(())
    })
}

fn answer(server: &mut RenetServer, bytes: usize, answers: &mut Answers, served: &Served) {
    for client in server.clients_id() {
        for channel in 0..CHANNELS {
            while let Some(message) = server.receive_message(client, channel) {
                let answer = Bytes::copy_from_slice(answers.to(&message, bytes));
                let has_room = server.can_send_message(client, channel, answer.len());
                if has_room {
                    server.send_message(client, channel, answer);
                }
                served.on_echo(has_room);
            }
        }
    }
}

/// One connection.
struct Connection {
    client: RenetClient,
    transport: NetcodeClientTransport,
    last: u64,
}

fn connect(server: SocketAddr, _: usize, setup: &Setup) -> Result<Box<dyn Client>, String> {
    let socket = bind()?;
    let id = u64::from(socket.local_addr().map_err(line)?.port());
    let now = clock::host_ns();
    let to = vec![server, NAMED];
    let token =
        ConnectToken::generate(time(), PROTOCOL, TOKEN_S, id, TIMEOUT_S, to, None, &KEY).map_err(line)?;
    let authentication = ClientAuthentication::Secure { connect_token: token };
    let transport = NetcodeClientTransport::new(time(), authentication, socket).map_err(line)?;
    Ok(Box::new(Connection { client: RenetClient::new(config(setup.is_reliable)), transport, last: now }))
}

impl Client for Connection {
    fn is_ready(&self) -> bool {
        self.client.is_connected()
    }

    fn receive(&mut self, now: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        let elapsed = Duration::from_nanos(now.saturating_sub(self.last));
        self.last = now;
        self.client.update(elapsed);
        self.transport.update(elapsed, &mut self.client).map_err(line)?;
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
