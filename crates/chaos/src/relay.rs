//! Relays between players and the server, which translate addresses like a router, and trains of datagrams: consecutive datagrams of
//! one length that the kernel handles as one message.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use drumfire::conditioner::Random;
use drumfire_socket::{
    FlushEnd, Gro, GroupConfig, Receiver, ReceiverConfig, ReuseportGroup, SendBatch, SendMode, Sender, Socket,
};
use drumfire_tools::clock::{now, pause};

use crate::error::{Error, ErrorContext};
use crate::flood::{CONNECTION_PACKET, source};
use crate::host::locked;
use crate::net::v4;

/// The bit of the first byte that is set in all datagrams of a handshake.
const HANDSHAKE_BIT: u8 = 0x80;

/// The bytes of the connection id in a packet.
const CONNECTION_ID: std::ops::Range<usize> = 1..9;

/// Datagrams of a player, as templates for a flood.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// The first datagram, a Hello without a cookie.
    pub(crate) hello: Vec<u8>,
    /// Packets of the connection, oldest first.
    pub(crate) packets: Vec<Vec<u8>>,
}

/// The maximum number of packets among the samples.
const SAMPLES_MAX: usize = 1_000;

impl Samples {
    fn keep(&mut self, datagram: &[u8]) {
        let is_handshake = datagram.first().is_some_and(|first| first & HANDSHAKE_BIT != 0);
        if is_handshake && self.hello.is_empty() {
            self.hello = datagram.to_vec();
        } else if !is_handshake && self.packets.len() < SAMPLES_MAX {
            self.packets.push(datagram.to_vec());
        }
    }
}

/// A socket that sends datagrams in order, and trains of them where its mode has trains.
pub(crate) struct TrainSender {
    socket: Socket,
    sender: Sender,
    batch: SendBatch,
    random: Random,
}

impl TrainSender {
    /// The capacity of the batch: datagrams and bytes.
    const BATCH: usize = 256;
    const BATCH_BYTES: usize = 1 << 19;

    /// Binds a socket that sends trains to the address, at any port.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the kernel does not segment datagrams.
    pub(crate) fn new(address: SocketAddr) -> Result<Self, Error> {
        Self::with_mode(address.ip(), SendMode::Gso)
    }

    fn with_mode(address: IpAddr, mode: SendMode) -> Result<Self, Error> {
        let group = ReuseportGroup::bind(&GroupConfig::new((address, 0).into())).context("a socket")?;
        let socket = group.into_sockets().pop().context("a socket")?;
        if mode == SendMode::Gso && !socket.granted().has_gso {
            return Err(Error::Unsupported("a kernel that segments trains of datagrams".to_owned()));
        }
        let (sender, batch) = (Sender::new(mode), SendBatch::new(Self::BATCH, Self::BATCH_BYTES));
        Ok(Self { socket, sender, batch, random: Random::new(Self::BATCH as u64) })
    }

    /// Sends datagrams in order.
    pub(crate) fn send<'a>(&mut self, to: SocketAddr, datagrams: impl IntoIterator<Item = &'a [u8]>) {
        for datagram in datagrams {
            if !self.batch.push(Some(to), datagram) {
                self.flush();
                // An empty batch has room for any datagram.
                let _ = self.batch.push(Some(to), datagram);
            }
        }
        self.flush();
    }

    /// Sends trains with random connection ids, so that each worker of the server receives some. They are short enough for the
    /// smallest receive buffer.
    pub(crate) fn warm_up(&mut self, to: SocketAddr) {
        for _ in 0..16 {
            let mut datagram = [0x5a; 200];
            datagram[0] = CONNECTION_PACKET;
            datagram[CONNECTION_ID].copy_from_slice(&self.random.bits().to_be_bytes());
            self.send(to, [&datagram[..]; 192]);
            pause(Duration::from_millis(1));
        }
    }

    fn flush(&mut self) {
        let Self { socket, sender, batch, .. } = self;
        for _ in 0..1_000 {
            if sender.flush(socket, batch, |_| {}) == FlushEnd::Sent {
                return;
            }
            pause(Duration::from_millis(1));
        }
        // These datagrams are not in `sent`.
        batch.clear();
    }
}

/// A relay between players and the server, through one port, which keeps samples of the players' datagrams. It forwards
/// the server's datagrams to all players, and each player can open only its own.
pub(crate) struct Relay {
    /// The address at which the players reach the server.
    pub(crate) address: SocketAddr,
    relayed: Arc<Mutex<Relayed>>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

/// The datagrams that a relay has forwarded to the server.
#[derive(Debug, Default)]
pub(crate) struct Relayed {
    pub(crate) samples: Samples,
    /// The number of datagrams.
    pub(crate) sent: u64,
    /// The number of packets sent right after one of the same length and of another connection.
    pub(crate) mixed: u64,
    /// How often the relay has to take another address. The players do not notice.
    pub(crate) moves: u32,
    /// Whether a copy of each datagram follows it, from another address.
    pub(crate) is_copying: bool,
    /// The number of copies.
    pub(crate) copied: u64,
    /// The datagrams of the server to the source of the copies, or to the address before the last move.
    pub(crate) unroutable: u64,
    /// Whether the relay has to end.
    is_over: bool,
}

/// The number of the address that copies come from.
const COPY_SOURCE: u32 = 4_000;

/// The socket of a relay towards the server.
struct Uplink {
    mode: SendMode,
    sender: TrainSender,
    receiver: Receiver,
}

impl Uplink {
    fn bind(address: IpAddr, mode: SendMode) -> Result<Self, Error> {
        let mut sender = TrainSender::with_mode(address, mode)?;
        let config = ReceiverConfig::default().gro(Gro::Off);
        let receiver = Receiver::new(&mut sender.socket, &config).context("a receiver")?;
        Ok(Self { mode, sender, receiver })
    }

    /// Passes each datagram that has arrived to `handle`. Returns their number.
    fn receive(&mut self, mut handle: impl FnMut(&[u8])) -> u64 {
        let before = self.receiver.counts().datagrams;
        self.receiver.drain(&mut self.sender.socket, 256, |received| {
            received.datagrams().for_each(|datagram| handle(datagram.bytes));
        });
        self.receiver.counts().datagrams - before
    }
}

impl Relay {
    /// Starts a relay that forwards each datagram immediately.
    pub(crate) fn start(server: SocketAddr) -> Result<Self, Error> {
        Self::with(server, SendMode::Single, None)
    }

    /// Starts a relay that sends the players' datagrams of some milliseconds together, so that the server receives trains with
    /// packets of several connections.
    pub(crate) fn start_mixing(server: SocketAddr) -> Result<Self, Error> {
        const WINDOW: Duration = Duration::from_millis(5);
        Self::with(server, SendMode::Gso, Some(WINDOW))
    }

    fn with(server: SocketAddr, mode: SendMode, window: Option<Duration>) -> Result<Self, Error> {
        let uplink = Uplink::bind(server.ip(), mode)?;
        let front = UdpSocket::bind((server.ip(), 0)).context("a socket")?;
        front.set_nonblocking(true).context("a nonblocking socket")?;
        let address = front.local_addr().context("an address")?;
        let relayed = Arc::<Mutex<Relayed>>::default();
        let shared = Arc::clone(&relayed);
        let thread = thread::spawn(move || forward(&front, uplink, server, window, &shared));
        Ok(Self { address, relayed, thread: Some(thread) })
    }

    /// Returns the counts and samples of the forwarded datagrams.
    pub(crate) fn relayed(&self) -> MutexGuard<'_, Relayed> {
        locked(&self.relayed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.relayed().is_over = true;
        // A run that needs the relay notices that its thread has failed.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// The thread of a relay: collects the players' datagrams at `front`, and sends them to the server immediately, or mixed after each
/// `window`. Sends the server's datagrams to all players.
fn forward(
    front: &UdpSocket,
    mut uplink: Uplink,
    server: SocketAddr,
    window: Option<Duration>,
    relayed: &Mutex<Relayed>,
) -> Result<(), Error> {
    let (mut players, mut held, mut memory) = (BTreeSet::new(), Vec::new(), [0; 2_048]);
    let (mut random, mut sent_at, mut is_sorted) = (Random::new(256), now(), false);
    let (network, mut moves, mut abandoned) = (*v4(server)?.ip(), 0, None::<Uplink>);
    let copies = UdpSocket::bind((source(network, COPY_SOURCE), 0)).context("a socket")?;
    copies.set_nonblocking(true).context("a nonblocking socket")?;
    while !locked(relayed).is_over {
        let mut is_idle = true;
        if moves != locked(relayed).moves {
            moves += 1;
            let moved = Uplink::bind(source(network, moves).into(), uplink.mode)?;
            abandoned = Some(std::mem::replace(&mut uplink, moved));
        }
        while let Ok((length, from)) = front.recv_from(&mut memory) {
            is_idle = false;
            players.insert(from);
            locked(relayed).samples.keep(&memory[..length]);
            held.push(memory[..length].to_vec());
        }
        let received = uplink.receive(|datagram| {
            for player in &players {
                // A datagram that the socket refuses is lost, as on any path.
                let _ = front.send_to(datagram, player);
            }
        });
        is_idle &= received == 0;
        let unroutable = abandoned.as_mut().map_or(0, |abandoned| abandoned.receive(|_| {}));
        let to_copies = std::iter::from_fn(|| copies.recv(&mut memory).ok()).count() as u64;
        locked(relayed).unroutable += unroutable + to_copies;
        if window.is_none_or(|window| now().duration_since(sent_at) >= window) {
            if window.is_some() {
                is_sorted = !is_sorted;
                locked(relayed).mixed += mix(&mut held, is_sorted, &mut random);
            }
            let before = uplink.sender.sender.counts().datagrams;
            uplink.sender.send(server, held.iter().map(Vec::as_slice));
            let mut relayed = locked(relayed);
            relayed.sent += uplink.sender.sender.counts().datagrams - before;
            if relayed.is_copying {
                relayed.copied +=
                    held.iter().filter(|datagram| copies.send_to(datagram, server).is_ok()).count() as u64;
            }
            held.clear();
            sent_at = now();
        }
        if is_idle {
            pause(Duration::from_micros(200));
        }
    }
    Ok(())
}

/// Shuffles datagrams or, with `is_sorted`, sorts them by length, longest first. Returns the number of packets that
/// follow a packet of the same length and of another connection.
fn mix(held: &mut [Vec<u8>], is_sorted: bool, random: &mut Random) -> u64 {
    for index in (1..held.len()).rev() {
        held.swap(index, usize::try_from(random.below(index as u64 + 1)).unwrap_or(0));
    }
    if is_sorted {
        held.sort_by_key(|datagram| std::cmp::Reverse(datagram.len()));
    }
    held.windows(2).filter(|pair| are_mixed(&pair[0], &pair[1])).count() as u64
}

/// Returns whether two datagrams are packets of the same length and of different connections.
fn are_mixed(one: &[u8], next: &[u8]) -> bool {
    let is_packet = |datagram: &[u8]| datagram.first().is_some_and(|first| first & HANDSHAKE_BIT == 0);
    let have_one_length = one.len() == next.len();
    have_one_length && is_packet(one) && is_packet(next) && one.get(CONNECTION_ID) != next.get(CONNECTION_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_one_length_and_two_connections_are_mixed() {
        let packet = |first: u8, id: u8, length: usize| {
            let mut packet = vec![id; length];
            packet[0] = first;
            packet
        };
        let one = packet(0x09, 1, 40);
        assert!(are_mixed(&one, &packet(0x0a, 2, 40)));
        for other in [packet(0x0a, 1, 40), packet(0x0a, 2, 41), packet(0x89, 2, 40)] {
            assert!(!are_mixed(&one, &other));
        }
    }
}
