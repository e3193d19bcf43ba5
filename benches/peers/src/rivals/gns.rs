//! GameNetworkingSockets, the C++ library with its source in a crate; AES-256-GCM always, and no certificates, as the open library
//! has it. Settings: the rate of a connection, which the library never adapts by itself, raised to its highest; the answers of a
//! batch sent with the last of them for each connection, or left to the library's gathering time, 5 ms (Nagle). The library reads
//! sockets on a thread of its own and lets nobody wait for messages, so the server looks each millisecond, and again at once after
//! it has found some; socket buffers are the library's. Every connection of a client has a socket, all of them share the library's
//! thread, and a client that finds nothing yields to it now and then. A silent connection is pinged each 10 s, which is no setting.
//! Lanes are not used: no load needs them.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use drumfire_benches::Counts;
use drumfire_tools::clock;
use gns::sys::{EResult, ESteamNetworkingConfigValue as Setting, ESteamNetworkingConnectionState as Stage};
use gns::{
    GnsConfig, GnsError, GnsGlobal, GnsSocket, IsClient, IsCreated, IsServer, MessageSlot, SendFlags,
    SendOutcome,
};

use super::{Rival, Serve, version_of};
use crate::face::{Answers, Client, Ending, Served, Server, Setup, Variant, line, serve};

/// How long a server rests that found nothing.
const TICK: Duration = Duration::from_millis(1);

/// Messages that the server takes at a time.
const BATCH: usize = 256;

/// Messages that a connection of the client takes at a time.
const CLIENT_BATCH: usize = 32;

/// A client that finds nothing yields this often: not on each of the many connections on which it finds nothing.
const YIELD_NS: u64 = 20_000;

thread_local! {
    /// When the client last yielded.
    static YIELDED: Cell<u64> = const { Cell::new(0) };
}

/// The library's default, which one of the settings leaves as it is.
const NAGLE_US: u64 = 5_000;

/// Bytes per second of a connection: the library takes no more.
const RATE: i32 = 100 * 1_024 * 1_024;

/// The library takes no port from the kernel: a port that was free is tried, and perhaps another one.
const PORTS: usize = 16;

pub(super) fn rivals() -> Vec<Rival> {
    let gns = |name, gather_us| Rival {
        version: version_of("game-networking-sockets"),
        encrypted: "AES-256",
        variant: Variant { gather_us, ..Variant::default() },
        wait: "tick of 1 ms".to_owned(),
        keep_alive: "10 s, its own",
        has_one_thread: false,
        client_has_one_thread: false,
        ..Rival::new(name, "gns", Serve::Here(serve::<Polled>), connect)
    };
    vec![gns("GameNetworkingSockets", 0), gns("GameNetworkingSockets, 5 ms", NAGLE_US)]
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

struct Polled {
    global: &'static GnsGlobal,
    socket: GnsSocket<IsServer>,
    flags: SendFlags,
    /// What the last answer of a batch has besides.
    at_last: SendFlags,
    answers: Answers,
}

impl Server for Polled {
    fn bind(setup: &Setup) -> Result<Self, String> {
        let global = library()?;
        let flags = flags(setup.is_reliable);
        let at_last = if setup.variant.gather_us > 0 { SendFlags::empty() } else { SendFlags::NO_NAGLE };
        let mut failure = String::new();
        for _ in 0..PORTS {
            let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr());
            let free = free.map_err(line)?;
            match GnsSocket::<IsCreated>::new(global).listen(free.ip(), free.port()) {
                Ok(socket) => {
                    return Ok(Self { global, socket, flags, at_last, answers: Answers::new(setup) });
                }
                Err(error) => failure = line(error),
            }
        }
        Err(failure)
    }

    fn address(&self) -> Result<SocketAddr, String> {
        let address = self.socket.get_listen_socket_address();
        address.map(SocketAddr::from).ok_or_else(|| "the server has no address".to_owned())
    }

    fn echo(mut self, ending: &Ending) -> Result<Counts, String> {
        let mut served = Served::default();
        while !ending.is_here() {
            self.global.poll_callbacks();
            for event in self.socket.receive_events() {
                match event.info().state() {
                    Stage::k_ESteamNetworkingConnectionState_Connecting => {
                        self.socket.accept(event.connection()).map_err(line)?;
                    }
                    Stage::k_ESteamNetworkingConnectionState_ClosedByPeer
                    | Stage::k_ESteamNetworkingConnectionState_ProblemDetectedLocally => {
                        self.socket.close_connection(event.connection(), 0, None, false).map_err(line)?;
                    }
                    _ => {}
                }
            }
            if !self.answer(&mut served)? {
                clock::pause(TICK);
            }
        }
        Ok(served.counts())
    }
}

impl Polled {
    /// Answers a batch; whether there was one.
    fn answer(&mut self, served: &mut Served) -> Result<bool, String> {
        let mut messages: Vec<_> = self.socket.receive_messages::<BATCH>().map_err(line)?.collect();
        // Stable: the messages of a connection stay in order.
        messages.sort_by_key(gns::GnsNetworkMessage::connection);
        let mut answers = Vec::with_capacity(messages.len());
        let mut rest = messages.iter().peekable();
        while let Some(message) = rest.next() {
            let to = message.connection();
            let is_last = rest.peek().is_none_or(|next| next.connection() != to);
            let flags = if is_last { self.flags | self.at_last } else { self.flags };
            let answer: Box<[u8]> = self.answers.to(message.payload()).into();
            answers.push(self.global.utils().allocate_message(to, flags, answer));
        }
        for outcome in self.socket.send_messages(answers) {
            served.on_answer(matches!(outcome, SendOutcome::Sent(_)));
        }
        Ok(!messages.is_empty())
    }
}

/// One connection.
struct Player {
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
    Ok(Box::new(Player { global, socket, flags, is_ready: false, has_sent: false }))
}

impl Player {
    /// Hears how far the connection is.
    fn hear(&mut self) -> Result<(), String> {
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

impl Client for Player {
    fn is_ready(&self) -> bool {
        self.is_ready
    }

    fn receive(&mut self, now: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        if !self.is_ready {
            self.hear()?;
        }
        let mut came = false;
        let mut slots = [const { MessageSlot::uninit() }; CLIENT_BATCH];
        for message in self.socket.receive_messages_into(&mut slots).map_err(line)? {
            came = true;
            take(0, message.payload());
        }
        if !came && now >= YIELDED.get() + YIELD_NS {
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
