//! Relays between players and the server, and trains of datagrams: datagrams of one length in a row that the kernel takes and hands
//! over as one.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use drumfire::conditioner::Random;
use drumfire_socket::{
    FlushEnd, Gro, GroupConfig, Receiver, ReceiverConfig, ReuseportGroup, SendBatch, SendMode, Sender, Socket,
};
use drumfire_tools::clock::{now, pause};

use crate::error::{Error, ErrorContext};
use crate::flood::CONNECTION_PACKET;
use crate::host::{BackgroundThread, locked};

/// The bit of the first byte that is set in all datagrams of a handshake.
const HANDSHAKE_BIT: u8 = 0x80;

/// The place of the connection id in a packet.
const CONNECTION_ID: std::ops::Range<usize> = 1..9;

/// Datagrams of a player, as templates for a flood.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// The first datagram, a Hello without a cookie.
    pub(crate) hello: Vec<u8>,
    /// Packets of the connection, oldest first.
    pub(crate) packets: Vec<Vec<u8>>,
}

/// The most packets among the samples.
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
        Self::with_mode(address, SendMode::Gso)
    }

    fn with_mode(address: SocketAddr, mode: SendMode) -> Result<Self, Error> {
        let group = ReuseportGroup::bind(&GroupConfig::new((address.ip(), 0).into())).context("a socket")?;
        let socket = group.into_sockets().pop().context("a socket")?;
        if mode == SendMode::Gso && !socket.granted().has_gso {
            return Err(Error::Unsupported("a kernel that cuts trains of datagrams".to_owned()));
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

/// A relay between players and the server, through one port, which keeps samples of what the players send. The server's datagrams go
/// to all players, each of which opens its own.
pub(crate) struct Relay {
    /// Where the players find the server.
    pub(crate) address: SocketAddr,
    relayed: Arc<Mutex<Relayed>>,
    _thread: BackgroundThread<Result<(), Error>>,
}

/// The datagrams that a relay has forwarded to the server.
#[derive(Debug, Default)]
pub(crate) struct Relayed {
    pub(crate) samples: Samples,
    /// The number of datagrams.
    pub(crate) sent: u64,
    /// The number of packets sent right after one of the same length and of another connection.
    pub(crate) mixed: u64,
}

impl Relay {
    /// Starts a relay that forwards each datagram as it comes.
    pub(crate) fn start(server: SocketAddr) -> Result<Self, Error> {
        Self::with(server, TrainSender::with_mode(server, SendMode::Single)?, None)
    }

    /// Starts a relay that sends the players' datagrams of some milliseconds together, so that the server receives trains with
    /// packets of several connections.
    pub(crate) fn start_mixing(server: SocketAddr) -> Result<Self, Error> {
        const WINDOW: Duration = Duration::from_millis(5);
        Self::with(server, TrainSender::new(server)?, Some(WINDOW))
    }

    fn with(server: SocketAddr, back: TrainSender, window: Option<Duration>) -> Result<Self, Error> {
        let front = UdpSocket::bind((server.ip(), 0)).context("a socket")?;
        front.set_nonblocking(true).context("a nonblocking socket")?;
        let address = front.local_addr().context("an address")?;
        let relayed = Arc::<Mutex<Relayed>>::default();
        let (players, held, random) = (BTreeSet::new(), Vec::new(), Random::new(256));
        let forwarder = Forwarder {
            front,
            back,
            server,
            players,
            held,
            random,
            window,
            is_sorted: false,
            sent_at: now(),
            relayed: Arc::clone(&relayed),
        };
        let thread = BackgroundThread::spawn(move |is_over| forwarder.run(is_over));
        Ok(Self { address, relayed, _thread: thread })
    }

    /// Returns what the relay has forwarded so far.
    pub(crate) fn relayed(&self) -> MutexGuard<'_, Relayed> {
        locked(&self.relayed)
    }
}

/// The thread of a relay.
struct Forwarder {
    front: UdpSocket,
    back: TrainSender,
    server: SocketAddr,
    players: BTreeSet<SocketAddr>,
    held: Vec<Vec<u8>>,
    random: Random,
    /// The time for which datagrams are collected and mixed.
    window: Option<Duration>,
    is_sorted: bool,
    sent_at: Instant,
    relayed: Arc<Mutex<Relayed>>,
}

impl Forwarder {
    fn run(mut self, is_over: &AtomicBool) -> Result<(), Error> {
        let config = ReceiverConfig::default().gro(Gro::Off);
        let mut receiver = Receiver::new(&mut self.back.socket, &config).context("a receiver")?;
        while !is_over.load(Ordering::Acquire) {
            let is_idle = !(self.collect() | self.answer(&mut receiver));
            match self.window {
                Some(window) if now().duration_since(self.sent_at) < window => {}
                window => {
                    if window.is_some() {
                        self.mix();
                    }
                    self.back.send(self.server, self.held.iter().map(Vec::as_slice));
                    self.held.clear();
                    self.sent_at = now();
                }
            }
            locked(&self.relayed).sent = self.back.sender.counts().datagrams;
            if is_idle {
                pause(Duration::from_micros(200));
            }
        }
        Ok(())
    }

    /// Takes the players' datagrams. Returns whether there were any.
    fn collect(&mut self) -> bool {
        let mut memory = [0; 2_048];
        let before = self.held.len();
        while let Ok((length, from)) = self.front.recv_from(&mut memory) {
            self.players.insert(from);
            locked(&self.relayed).samples.keep(&memory[..length]);
            self.held.push(memory[..length].to_vec());
        }
        self.held.len() > before
    }

    /// Sends the server's datagrams to all players. Returns whether there were any.
    fn answer(&mut self, receiver: &mut Receiver) -> bool {
        let Self { front, back, players, .. } = self;
        let mut has_answered = false;
        receiver.drain(&mut back.socket, 256, |received| {
            for datagram in received.datagrams() {
                has_answered = true;
                for player in &*players {
                    // A datagram that the socket refuses is lost, as on any path.
                    let _ = front.send_to(datagram.bytes, player);
                }
            }
        });
        has_answered
    }

    /// Orders what was collected, alternately at random and by length, longest first. Counts packets that follow one of the same
    /// length and of another connection.
    fn mix(&mut self) {
        let Self { held, random, is_sorted, .. } = self;
        for index in (1..held.len()).rev() {
            held.swap(index, usize::try_from(random.below(index as u64 + 1)).unwrap_or(0));
        }
        *is_sorted = !*is_sorted;
        if *is_sorted {
            held.sort_by_key(|datagram| std::cmp::Reverse(datagram.len()));
        }
        let mixed = held.windows(2).filter(|pair| are_mixed(&pair[0], &pair[1])).count();
        locked(&self.relayed).mixed += mixed as u64;
    }
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
