//! A tap between one player and the server: hands datagrams on, and keeps what the player sent as samples for a flood.
//!
//! It reads no more of a datagram than whether it belongs to a handshake.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::stop::{Stop, Tried};

/// Packets that are kept.
const PACKETS_MAX: usize = 1_000;

/// How long the tap waits before it looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Set in the first byte of all that belongs to a handshake.
const HANDSHAKE_BIT: u8 = 0x80;

/// What was seen on the way to the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// The first datagram of all, a Hello without a cookie.
    pub(crate) hello: Vec<u8>,
    /// Packets of the connection, oldest first.
    pub(crate) packets: Vec<Vec<u8>>,
}

/// A tap that works until it is dropped.
pub(crate) struct Tap {
    pub(crate) address: SocketAddr,
    samples: Arc<Mutex<Samples>>,
    to_server: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Tap {
    /// Before the server.
    pub(crate) fn start(server: SocketAddr) -> Result<Self, Stop> {
        let socket = UdpSocket::bind((server.ip(), 0)).tried("a socket")?;
        socket.set_read_timeout(Some(LOOK_EVERY)).tried("a socket that looks up")?;
        let address = socket.local_addr().tried("an address")?;
        let (samples, to_server) = (Arc::<Mutex<Samples>>::default(), Arc::<AtomicU64>::default());
        let is_over = Arc::<AtomicBool>::default();
        let work =
            Work { socket, server, player: None, samples: samples.clone(), to_server: to_server.clone() };
        let end = Arc::clone(&is_over);
        let thread = Some(std::thread::spawn(move || work.go_on_until(&end)));
        Ok(Self { address, samples, to_server, is_over, thread })
    }

    /// What was seen so far.
    pub(crate) fn samples(&self) -> Samples {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on packets are kept anew.
    pub(crate) fn forget_packets(&self) {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).packets.clear();
    }

    /// Datagrams handed to the server.
    pub(crate) fn to_server(&self) -> u64 {
        self.to_server.load(Ordering::Acquire)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // A tap that panicked hands on nothing more, as one that ended.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

struct Work {
    socket: UdpSocket,
    server: SocketAddr,
    player: Option<SocketAddr>,
    samples: Arc<Mutex<Samples>>,
    to_server: Arc<AtomicU64>,
}

impl Work {
    fn go_on_until(mut self, is_over: &AtomicBool) {
        let mut bytes = [0; 2_048];
        while !is_over.load(Ordering::Acquire) {
            match self.socket.recv_from(&mut bytes) {
                Ok((length, from)) => self.hand_on(&bytes[..length], from),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return,
            }
        }
    }

    fn hand_on(&mut self, datagram: &[u8], from: SocketAddr) {
        let to = if from == self.server {
            self.player
        } else {
            self.player = Some(from);
            self.keep(datagram);
            Some(self.server)
        };
        // What finds no room is lost on the way, as anywhere.
        let is_sent = to.is_some_and(|to| self.socket.send_to(datagram, to).is_ok());
        if is_sent && to == Some(self.server) {
            self.to_server.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn keep(&self, datagram: &[u8]) {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let is_handshake = datagram.first().is_some_and(|first| first & HANDSHAKE_BIT != 0);
        if is_handshake && samples.hello.is_empty() {
            samples.hello = datagram.to_vec();
        } else if !is_handshake && samples.packets.len() < PACKETS_MAX {
            samples.packets.push(datagram.to_vec());
        }
    }
}
