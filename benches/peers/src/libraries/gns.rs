//! GameNetworkingSockets, the C++ library with its source in a crate. It always uses AES-256-GCM, here without certificates.
//!
//! Settings: the highest rate of a connection, because the library never adapts it, and a flush with the last answer of a batch to each
//! connection. The library reads sockets on its own thread, and no call waits for messages. So the server polls every millisecond, and
//! immediately after a poll that found some. The library sets the socket buffers, and pings silent connections every 10 s, which is not a
//! setting. Each connection of a client has a socket, and all share the library's thread, so an idle client yields. Lanes are not used.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use drumfire_benches::traffic::Client;
use drumfire_benches::{Answers, Counts, Served};
use drumfire_tools::clock;
use gns::sys::{EResult, ESteamNetworkingConfigValue as Setting, ESteamNetworkingConnectionState as Stage};
use gns::{
    GnsConfig, GnsError, GnsGlobal, GnsSocket, IsClient, IsCreated, IsServer, MessageSlot, SendFlags,
    SendOutcome,
};

use crate::adapter::{Library, Setup, line, serve_in_loop, version_of};

/// The pause of a server after a poll that found nothing.
const TICK: Duration = Duration::from_millis(1);

/// Messages that the server receives in one call.
const BATCH: usize = 256;

/// Messages that a connection of the client receives in one call.
const CLIENT_BATCH: usize = 32;

/// The interval in which a client that finds nothing yields. It polls many connections one after the other.
const YIELD_NS: u64 = 20_000;

thread_local! {
    /// When the client last yielded.
    static YIELDED: Cell<u64> = const { Cell::new(0) };
}

/// Bytes per second of a connection, the maximum of the library.
const RATE: i32 = 100 * 1_024 * 1_024;

/// The library does not bind to port 0, so ports that were free a moment ago are tried.
const PORTS: usize = 16;

pub(crate) fn libraries() -> Vec<Library> {
    vec![Library {
        version: version_of("game-networking-sockets"),
        encrypted: "AES-256",
        wait: "tick of 1 ms".to_owned(),
        keep_alive: "10 s, its own",
        has_one_thread: false,
        ..Library::new("GameNetworkingSockets", "gns", serve, connect)
    }]
}

fn library() -> Result<&'static GnsGlobal, String> {
    let library = GnsGlobal::get().map_err(line)?;
    for setting in
        [Setting::k_ESteamNetworkingConfig_SendRateMin, Setting::k_ESteamNetworkingConfig_SendRateMax]
    {
        library.utils().set_global_config_value(setting, GnsConfig::Int32(RATE)).map_err(line)?;
    }
    Ok(library)
}

fn flags(is_reliable: bool) -> SendFlags {
    if is_reliable { SendFlags::RELIABLE } else { SendFlags::UNRELIABLE }
}

fn listen(global: &'static GnsGlobal) -> Result<GnsSocket<IsServer>, String> {
    let mut failure = String::new();
    for _ in 0..PORTS {
        let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr());
        let free = free.map_err(line)?;
        match GnsSocket::<IsCreated>::new(global).listen(free.ip(), free.port()) {
            Ok(socket) => return Ok(socket),
            Err(error) => failure = line(error),
        }
    }
    Err(failure)
}

fn serve(setup: &Setup) -> Result<Counts, String> {
    let global = library()?;
    let socket = listen(global)?;
    let address = socket.get_listen_socket_address().ok_or("the server has no address")?;
    let mut answers = Answers::default();
    serve_in_loop(SocketAddr::from(address), |served| {
        global.poll_callbacks();
        for event in socket.receive_events() {
            match event.info().state() {
                Stage::k_ESteamNetworkingConnectionState_Connecting => {
                    socket.accept(event.connection()).map_err(line)?;
                }
                Stage::k_ESteamNetworkingConnectionState_ClosedByPeer
                | Stage::k_ESteamNetworkingConnectionState_ProblemDetectedLocally => {
                    socket.close_connection(event.connection(), 0, None, false).map_err(line)?;
                }
                _ => {}
            }
        }
        if !answer((global, &socket), setup, &mut answers, served)? {
            clock::pause(TICK);
        }
        Ok(())
    })
}

/// Sends a batch of messages back, and returns whether there was one.
fn answer(
    (global, socket): (&GnsGlobal, &GnsSocket<IsServer>),
    setup: &Setup,
    answers: &mut Answers,
    served: &Served,
) -> Result<bool, String> {
    let each = flags(setup.is_reliable);
    let last = each | SendFlags::NO_NAGLE;
    let mut messages: Vec<_> = socket.receive_messages::<BATCH>().map_err(line)?.collect();
    // The sort is stable, so the messages of a connection stay in order.
    messages.sort_by_key(gns::GnsNetworkMessage::connection);
    let mut outgoing = Vec::with_capacity(messages.len());
    let mut rest = messages.iter().peekable();
    while let Some(message) = rest.next() {
        let to = message.connection();
        let is_last = rest.peek().is_none_or(|next| next.connection() != to);
        let answer: Box<[u8]> = answers.to(message.payload(), setup.answer_bytes).into();
        outgoing.push(global.utils().allocate_message(to, if is_last { last } else { each }, answer));
    }
    for outcome in socket.send_messages(outgoing) {
        served.on_echo(matches!(outcome, SendOutcome::Sent(_)));
    }
    Ok(!messages.is_empty())
}

/// One connection.
struct Connection {
    global: &'static GnsGlobal,
    socket: GnsSocket<IsClient>,
    flags: SendFlags,
    is_ready: bool,
    has_sent: bool,
}

fn connect(server: SocketAddr, _: usize, setup: &Setup) -> Result<Box<dyn Client>, String> {
    let global = library()?;
    let socket = GnsSocket::<IsCreated>::new(global).connect(server.ip(), server.port()).map_err(line)?;
    let flags = flags(setup.is_reliable);
    Ok(Box::new(Connection { global, socket, flags, is_ready: false, has_sent: false }))
}

impl Connection {
    /// Handles events until the connection is established.
    fn handle_events(&mut self) -> Result<(), String> {
        self.global.poll_callbacks();
        for event in self.socket.receive_events() {
            match event.info().state() {
                Stage::k_ESteamNetworkingConnectionState_Connected => self.is_ready = true,
                Stage::k_ESteamNetworkingConnectionState_ClosedByPeer
                | Stage::k_ESteamNetworkingConnectionState_ProblemDetectedLocally => {
                    return Err(format!("a client lost its connection: {}", event.info().end_debug()));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Client for Connection {
    fn is_ready(&self) -> bool {
        self.is_ready
    }

    fn receive(&mut self, now: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        if !self.is_ready {
            self.handle_events()?;
        }
        let mut is_idle = true;
        let mut slots = [const { MessageSlot::uninit() }; CLIENT_BATCH];
        for message in self.socket.receive_messages_into(&mut slots).map_err(line)? {
            is_idle = false;
            take(0, message.payload());
        }
        if is_idle && now >= YIELDED.get() + YIELD_NS {
            std::thread::yield_now();
            YIELDED.set(clock::host_ns());
        }
        Ok(())
    }

    fn send(&mut self, _: u64, _: usize, _: u8, message: &[u8]) -> Result<bool, String> {
        let payload: Box<[u8]> = message.into();
        let message = self.global.utils().allocate_message(self.socket.connection(), self.flags, payload);
        match self.socket.send_message(message) {
            Ok(_) => self.has_sent = true,
            Err(GnsError::Api(EResult::k_EResultLimitExceeded)) => return Ok(false),
            Err(error) => return Err(line(error)),
        }
        Ok(true)
    }

    fn flush(&mut self, _: u64) -> Result<(), String> {
        if !std::mem::take(&mut self.has_sent) {
            return Ok(());
        }
        self.socket.flush_messages_on_connection(self.socket.connection()).map_err(line)
    }
}
