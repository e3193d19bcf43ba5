//! The clients: connections of drumfire, or plain sockets that carry as long datagrams.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use drumfire::{ChannelId, ClientsEvent, ConnectError, PeerId, RefuseReason, SendError};
use drumfire_benches::{Carried, Crowd, PLAIN_BYTES_MAX};

use crate::message::{CHANNELS, Head, MESSAGE_BYTES};
use crate::server::{key, options};

/// Clients that share a socket: so few that its receive buffer holds what comes while this process has no core.
pub(crate) const PER_SOCKET: usize = 128;

/// Those who speak.
pub(crate) trait Ends {
    /// How many there are.
    fn count(&self) -> usize;

    /// Takes what the one at this place says; `false` when there is no room for it.
    fn send(&mut self, head: Head) -> Result<bool, String>;

    /// Takes in what came: `heard` gets the head of each answer, `None` for what is no answer, or not of the one it
    /// came to.
    fn look(&mut self, heard: impl FnMut(Option<Head>)) -> Result<(), String>;

    /// Sends what was taken.
    fn flush(&mut self) -> Result<(), String>;

    /// What was carried so far.
    fn carried(&self) -> Carried;
}

/// drumfire's clients.
pub(crate) struct Players {
    pub(crate) crowd: Crowd,
    peers: Vec<(usize, PeerId)>,
    server: SocketAddr,
    begun: usize,
    /// Attempts that were refused politely, because the server is full.
    pub(crate) refused: u64,
    /// Attempts that failed otherwise, by the reason.
    pub(crate) failed: BTreeMap<String, u64>,
}

impl Players {
    /// Room for so many; nobody connects yet.
    pub(crate) fn bind(server: SocketAddr, count: u32) -> Result<Self, String> {
        let per_socket = u32::try_from(PER_SOCKET).unwrap_or(1);
        let sockets = count.div_ceil(per_socket).max(1);
        // Room for as many more attempts as there may be beyond the server's limit.
        let crowd = Crowd::bind(sockets, count + sockets)?;
        let peers = Vec::new();
        Ok(Self { crowd, peers, server, begun: 0, refused: 0, failed: BTreeMap::new() })
    }

    /// Begins to connect one more.
    pub(crate) fn begin(&mut self) -> Result<(), String> {
        let place = self.begun % self.crowd.sockets();
        let clients = self.crowd.socket(place).ok_or("no such socket")?;
        clients.connect(self.server, key().public()).map_err(|error| error.to_string())?;
        self.begun += 1;
        Ok(())
    }

    /// Attempts that came to an end.
    pub(crate) fn ended_attempts(&self) -> u64 {
        self.peers.len() as u64 + self.refused + self.failed.values().sum::<u64>()
    }

    /// An error, when connections ended that had begun.
    pub(crate) fn check(&self) -> Result<(), String> {
        let ended = self.crowd.ended();
        if ended == 0 { Ok(()) } else { Err(format!("{ended} connections ended")) }
    }
}

impl Ends for Players {
    fn count(&self) -> usize {
        self.peers.len()
    }

    fn send(&mut self, head: Head) -> Result<bool, String> {
        let (socket, peer) = *self.peers.get(head.place as usize).ok_or("no such client")?;
        let clients = self.crowd.socket(socket).ok_or("no such socket")?;
        let channel = ChannelId(u16::try_from(head.number % u64::from(CHANNELS)).unwrap_or(0));
        match clients.send(peer, channel, head.message().to_vec(), options(channel)) {
            Ok(_) => Ok(true),
            Err(SendError::Full) => Ok(false),
            Err(error) => Err(format!("a client: {error}")),
        }
    }

    fn look(&mut self, mut heard: impl FnMut(Option<Head>)) -> Result<(), String> {
        let Self { crowd, peers, refused, failed, .. } = self;
        crowd.look(|socket, event| match event {
            ClientsEvent::Message { peer, bytes, .. } => {
                let is_known = |head: &Head| {
                    peers.get(head.place as usize) == Some(&(socket, *peer))
                        && bytes.len() == usize::from(head.ask)
                };
                heard(Head::of(bytes).filter(is_known));
            }
            ClientsEvent::Connected { peer } => peers.push((socket, *peer)),
            ClientsEvent::ConnectFailed { error: ConnectError::Refused(refusal), .. }
                if refusal.reason == RefuseReason::Full =>
            {
                *refused += 1;
            }
            ClientsEvent::ConnectFailed { error, .. } => {
                *failed.entry(format!("{error:?}")).or_default() += 1;
            }
            _ => {}
        });
        self.check()
    }

    fn flush(&mut self) -> Result<(), String> {
        self.crowd.flush();
        Ok(())
    }

    fn carried(&self) -> Carried {
        self.crowd.carried()
    }
}

/// Plain sockets, as many for as many clients, with datagrams as long as drumfire's were.
pub(crate) struct PlainEnds {
    sockets: Vec<UdpSocket>,
    count: usize,
    up_bytes: usize,
    down_bytes: u16,
    carried: Carried,
}

impl PlainEnds {
    pub(crate) fn connect(server: SocketAddr, count: usize) -> Result<Self, String> {
        let socket = |_| -> std::io::Result<UdpSocket> {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.connect(server)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let sockets = (0..count.div_ceil(PER_SOCKET)).map(socket).collect::<Result<_, _>>();
        let sockets = sockets.map_err(|error| format!("plain sockets: {error}"))?;
        Ok(Self { sockets, count, up_bytes: MESSAGE_BYTES, down_bytes: 0, carried: Carried::default() })
    }

    /// From now on datagrams are as long as these on average.
    pub(crate) fn shape(&mut self, carried: Carried) {
        let mean = |bytes: u64, count: u64| usize::try_from(bytes / count.max(1)).unwrap_or(0);
        self.up_bytes = mean(carried.sent_bytes, carried.sent).clamp(MESSAGE_BYTES, PLAIN_BYTES_MAX);
        let down = mean(carried.received_bytes, carried.received).clamp(MESSAGE_BYTES, PLAIN_BYTES_MAX);
        self.down_bytes = u16::try_from(down).unwrap_or(u16::MAX);
    }
}

impl Ends for PlainEnds {
    fn count(&self) -> usize {
        self.count
    }

    fn send(&mut self, head: Head) -> Result<bool, String> {
        let mut datagram = [0; PLAIN_BYTES_MAX];
        datagram[..MESSAGE_BYTES].copy_from_slice(&Head { ask: self.down_bytes, ..head }.message());
        let socket = self.sockets.get(head.place as usize / PER_SOCKET).ok_or("no such socket")?;
        match socket.send(&datagram[..self.up_bytes]) {
            Ok(_) => {
                self.carried.sent += 1;
                self.carried.sent_bytes += self.up_bytes as u64;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(format!("a plain socket: {error}")),
        }
    }

    fn look(&mut self, mut heard: impl FnMut(Option<Head>)) -> Result<(), String> {
        let mut buffer = [0; PLAIN_BYTES_MAX];
        for (place, socket) in self.sockets.iter().enumerate() {
            loop {
                match socket.recv(&mut buffer) {
                    Ok(bytes) => {
                        self.carried.received += 1;
                        self.carried.received_bytes += bytes as u64;
                        let head = buffer.get(..bytes).and_then(Head::of);
                        heard(head.filter(|head| {
                            head.place as usize / PER_SOCKET == place && bytes == usize::from(head.ask)
                        }));
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(format!("a plain socket: {error}")),
                }
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn carried(&self) -> Carried {
        self.carried
    }
}
