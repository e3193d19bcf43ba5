//! Sends datagrams as trains: those of one length in a row go to the kernel as one piece, and come to a server that way.
//!
//! What is in them is the affair of who sends them.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire::conditioner::Random;
use drumfire_socket::{FlushEnd, GroupConfig, ReuseportGroup, SendBatch, SendMode, Sender, Socket};
use drumfire_tools::clock::pause;

use crate::flood::PACKET;
use crate::stop::{Stop, Tried};

/// Datagrams and bytes that are written in one go.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 1 << 19;

/// Datagrams of a lesson that come at once: trains, and few enough for the smallest buffer.
const LESSON: usize = 192;
const LESSON_BYTES: usize = 200;
const LESSONS: usize = 16;

/// Between two of them, and between two tries of a full buffer.
const REST: Duration = Duration::from_millis(1);

/// Tries of a full buffer.
const TRIES: u32 = 1_000;

/// A socket that sends them.
pub(crate) struct Trains {
    pub(crate) socket: Socket,
    sender: Sender,
    batch: SendBatch,
    random: Random,
}

impl Trains {
    /// From a port of its own at this address.
    ///
    /// # Errors
    /// [`Stop::Needs`] where the kernel cuts no trains.
    pub(crate) fn new(address: SocketAddr) -> Result<Self, Stop> {
        let group = ReuseportGroup::bind(&GroupConfig::new((address.ip(), 0).into())).tried("a socket")?;
        let socket = group.into_sockets().pop().tried("a socket")?;
        if !socket.granted().has_gso {
            return Err(Stop::Needs("a kernel that cuts trains of datagrams".to_owned()));
        }
        let (sender, batch) = (Sender::new(SendMode::Gso), SendBatch::new(BATCH, BATCH_BYTES));
        Ok(Self { socket, sender, batch, random: Random::new(BATCH as u64) })
    }

    /// Sends these in this order.
    pub(crate) fn send<'a>(&mut self, to: SocketAddr, datagrams: impl IntoIterator<Item = &'a [u8]>) {
        for datagram in datagrams {
            if !self.batch.push(Some(to), datagram) {
                self.flush();
                // With nothing before it there is room for any datagram.
                let _ = self.batch.push(Some(to), datagram);
            }
        }
        self.flush();
    }

    /// Sends so many that name nobody, in trains, that each worker of the server sees that trains come.
    pub(crate) fn teach(&mut self, to: SocketAddr) {
        for _ in 0..LESSONS {
            let mut datagram = [0x5a; LESSON_BYTES];
            datagram[0] = PACKET;
            datagram[1..9].copy_from_slice(&self.random.bits().to_be_bytes());
            self.send(to, [&datagram[..]; LESSON]);
            pause(REST);
        }
    }

    /// Datagrams that the kernel took.
    pub(crate) fn sent(&self) -> u64 {
        self.sender.counts().datagrams
    }

    fn flush(&mut self) {
        let Self { socket, sender, batch, .. } = self;
        for _ in 0..TRIES {
            // What is given up is not among what was sent.
            if sender.flush(socket, batch, |_| {}) == FlushEnd::Sent {
                return;
            }
            pause(REST);
        }
        batch.clear();
    }
}
