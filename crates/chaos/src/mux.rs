//! A relay between players and a server, by one port of its own: the server sees one source for all of them, and trains in which
//! packets of several connections lie side by side, in any order.
//!
//! What the server answers goes to all players: each takes what it can open.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use drumfire::conditioner::Random;
use drumfire_socket::{Gro, Receiver, ReceiverConfig};
use drumfire_tools::clock::{now, pause};

use crate::stop::{Stop, Tried};
use crate::trains::Trains;

/// What comes within this time leaves together.
const WINDOW: Duration = Duration::from_millis(5);

/// How long it rests when there is nothing to do.
const REST: Duration = Duration::from_micros(200);

/// Where the id of a connection stands.
const ID: std::ops::Range<usize> = 1..9;

/// Datagrams of the server that are taken at a time.
const TURN: usize = 256;

/// A relay that works until it is dropped.
pub(crate) struct Mux {
    /// Where the players find the server.
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<(), Stop>>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    /// Lessons that are to be given.
    lessons: AtomicU64,
    sent: AtomicU64,
    mixed: AtomicU64,
}

impl Mux {
    /// Before the server.
    pub(crate) fn start(server: SocketAddr) -> Result<Self, Stop> {
        let front = UdpSocket::bind((server.ip(), 0)).tried("a socket")?;
        front.set_nonblocking(true).tried("a socket that does not wait")?;
        let address = front.local_addr().tried("an address")?;
        let shared = Arc::<Shared>::default();
        let (back, seen) = (Trains::new(server)?, Arc::clone(&shared));
        let thread = Some(std::thread::spawn(move || {
            let mut work = Work {
                front,
                back,
                server,
                players: BTreeSet::new(),
                held: Vec::new(),
                random: Random::new(TURN as u64),
                is_sorted: false,
                sent_at: now(),
            };
            work.go_on_until_over(&seen)
        }));
        Ok(Self { address, shared, thread })
    }

    /// Lets the server see that trains come.
    pub(crate) fn teach(&self) {
        self.shared.lessons.fetch_add(1, Ordering::AcqRel);
    }

    /// Lessons that are still to be given.
    pub(crate) fn lessons(&self) -> u64 {
        self.shared.lessons.load(Ordering::Acquire)
    }

    /// Datagrams handed to the server.
    pub(crate) fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Acquire)
    }

    /// Packets that left right behind one of the same length and of another connection.
    pub(crate) fn mixed(&self) -> u64 {
        self.shared.mixed.load(Ordering::Acquire)
    }
}

impl Drop for Mux {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        // One that ended early hands on nothing more, as one that ended.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

struct Work {
    front: UdpSocket,
    back: Trains,
    server: SocketAddr,
    players: BTreeSet<SocketAddr>,
    held: Vec<Vec<u8>>,
    random: Random,
    is_sorted: bool,
    sent_at: Instant,
}

impl Work {
    fn go_on_until_over(&mut self, shared: &Shared) -> Result<(), Stop> {
        let config = ReceiverConfig::default().gro(Gro::Off);
        let mut receiver = Receiver::new(&mut self.back.socket, &config).tried("a receiver")?;
        while !shared.is_over.load(Ordering::Acquire) {
            if shared.lessons.load(Ordering::Acquire) > 0 {
                self.back.teach(self.server);
                shared.lessons.fetch_sub(1, Ordering::AcqRel);
            }
            let has_heard = self.listen();
            let has_answered = self.answer(&mut receiver);
            if now().duration_since(self.sent_at) >= WINDOW {
                shared.mixed.fetch_add(self.hand_on(), Ordering::AcqRel);
            }
            shared.sent.store(self.back.sent(), Ordering::Release);
            if !(has_heard || has_answered) {
                pause(REST);
            }
        }
        Ok(())
    }

    /// Takes in what players sent.
    fn listen(&mut self) -> bool {
        let mut room = [0; 2_048];
        let before = self.held.len();
        while let Ok((length, from)) = self.front.recv_from(&mut room) {
            self.players.insert(from);
            self.held.push(room[..length].to_vec());
        }
        self.held.len() > before
    }

    /// Gives everybody what the server sent.
    fn answer(&mut self, receiver: &mut Receiver) -> bool {
        let Self { front, back, players, .. } = self;
        let mut has_answered = false;
        receiver.drain(&mut back.socket, TURN, |received| {
            for datagram in received.datagrams() {
                has_answered = true;
                for player in &*players {
                    // What finds no room is lost on the way, as anywhere.
                    let _ = front.send_to(datagram.bytes, player);
                }
            }
        });
        has_answered
    }

    /// Sends what waits, in turn in any order and by length, longest first; answers how many were mixed.
    fn hand_on(&mut self) -> u64 {
        let Self { back, server, held, random, is_sorted, sent_at, .. } = self;
        *sent_at = now();
        for at in (1..held.len()).rev() {
            held.swap(at, usize::try_from(random.below(at as u64 + 1)).unwrap_or(0));
        }
        *is_sorted = !*is_sorted;
        if *is_sorted {
            held.sort_by_key(|datagram| std::cmp::Reverse(datagram.len()));
        }
        let mixed = held.windows(2).filter(|pair| are_mixed(&pair[0], &pair[1])).count();
        back.send(*server, held.iter().map(Vec::as_slice));
        held.clear();
        mixed as u64
    }
}

/// Whether they are packets of one length and of two connections.
fn are_mixed(one: &[u8], next: &[u8]) -> bool {
    const HANDSHAKE: u8 = 0x80;
    let is_packet = |datagram: &[u8]| datagram.first().is_some_and(|first| first & HANDSHAKE == 0);
    one.len() == next.len() && is_packet(one) && is_packet(next) && one.get(ID) != next.get(ID)
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
