//! The floor of all figures: a plain UDP server that answers each datagram with the length that it asks for.
//!
//! It waits and calls the system as a worker of drumfire does, and has no connections, no encryption, and no books per client.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drumfire_socket::{
    DrainEnd, FlushEnd, Gro, GroupConfig, Poller, Receiver, ReceiverConfig, ReuseportGroup, SendBatch,
    SendMode, Sender, Socket, Wait, Waiter,
};
use drumfire_tools::clock;

use crate::process::{Counts, on_end_of_input, print_counts, print_line};

/// The size of its largest datagram.
pub const PLAIN_BYTES_MAX: usize = 1_472;

/// A datagram begins with the length of its answer in two bytes.
const ASK_BYTES: usize = 2;

/// An answer begins with this many bytes of its datagram, where the client has its number.
const HEAD_BYTES: usize = 32;

/// Datagrams received in one pass, at most.
const BUDGET: usize = 256;

/// When the server polls its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As a worker of drumfire with the default wait.
    Worker,
    /// Once per interval, like a game with ticks.
    Every(Duration),
}

/// Returns the length of the answer that this datagram asks for. 0 asks for none.
pub fn asked_bytes(datagram: &[u8]) -> Option<usize> {
    Some(usize::from(u16::from_be_bytes(*datagram.first_chunk::<ASK_BYTES>()?)))
}

/// Prints the address, serves until the standard input ends, and prints the counts `received`, `answered`, and `refused` (answers
/// without room).
pub fn serve_plain(pace: Pace, receive_buffer_bytes: usize) -> io::Result<()> {
    let config = GroupConfig::new(([127, 0, 0, 1], 0).into()).receive_buffer_bytes(receive_buffer_bytes);
    let group = ReuseportGroup::bind(&config)?;
    let address = group.local_addr();
    let socket = group.into_sockets().pop().ok_or(io::ErrorKind::Other)?;
    let mut plain = Plain::new(socket)?;
    let waker = plain.poller.waker();
    let is_over = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_over);
    on_end_of_input(move || {
        flag.store(true, Ordering::Release);
        // If waking fails, the parent kills the process.
        let _ = waker.wake();
    });
    print_line(&address.to_string())?;
    match pace {
        Pace::Worker => plain.serve_as_worker(&is_over)?,
        Pace::Every(time) => plain.serve_every(time, &is_over),
    }
    print_counts(&plain.counts())
}

struct Plain {
    socket: Socket,
    poller: Poller,
    receiver: Receiver,
    sender: Sender,
    batch: SendBatch,
    received: u64,
    answered: u64,
    refused: u64,
}

impl Plain {
    fn new(mut socket: Socket) -> io::Result<Self> {
        let mut poller = Poller::new()?;
        poller.register(&mut socket, 0)?;
        let config = ReceiverConfig::default().gro(Gro::Off);
        let receiver = Receiver::new(&mut socket, &config);
        let receiver = receiver.map_err(|error| io::Error::other(error.to_string()))?;
        let sender = Sender::new(SendMode::Sendmmsg);
        let batch = SendBatch::new(BUDGET, BUDGET * PLAIN_BYTES_MAX);
        Ok(Self { socket, poller, receiver, sender, batch, received: 0, answered: 0, refused: 0 })
    }

    fn serve_as_worker(&mut self, is_over: &AtomicBool) -> io::Result<()> {
        let mut waiter = Waiter::new(Wait::best()).map_err(|error| io::Error::other(error.to_string()))?;
        let mut is_more = true;
        while !is_over.load(Ordering::Acquire) {
            let waited = waiter.wait(&mut self.poller, None, is_more);
            waited.map_err(|fault| io::Error::other(format!("{fault:?}")))?;
            let before = self.received;
            is_more = self.pass();
            waiter.on_pass(clock::now(), self.received - before);
        }
        Ok(())
    }

    fn serve_every(&mut self, time: Duration, is_over: &AtomicBool) {
        let mut next = clock::now();
        while !is_over.load(Ordering::Acquire) {
            while self.pass() {}
            next += time;
            let now = clock::now();
            clock::pause(next.saturating_duration_since(now));
            next = next.max(now);
        }
    }

    /// Receives and answers. Returns whether there is more to do without waiting.
    fn pass(&mut self) -> bool {
        let Self { socket, receiver, batch, received, answered, refused, .. } = self;
        let mut answer = [0; PLAIN_BYTES_MAX];
        let end = receiver.drain_mut(socket, BUDGET, |mut datagrams| {
            for datagram in datagrams.datagrams_mut() {
                *received += 1;
                let asked = asked_bytes(datagram.bytes).and_then(|bytes| answer.get_mut(..bytes));
                let Some(answer) = asked.filter(|bytes| !bytes.is_empty()) else { continue };
                let head = HEAD_BYTES.min(answer.len()).min(datagram.bytes.len());
                answer[..head].copy_from_slice(&datagram.bytes[..head]);
                let is_taken = batch.push(Some(datagram.from), answer);
                *(if is_taken { &mut *answered } else { &mut *refused }) += 1;
            }
        });
        let is_more = matches!(end, DrainEnd::BudgetSpent | DrainEnd::Starved);
        let is_sent = self.batch.is_empty()
            || self.sender.flush(&mut self.socket, &mut self.batch, |_| {}) == FlushEnd::Sent;
        is_more || !is_sent
    }

    fn counts(&self) -> Counts {
        let counts = [("received", self.received), ("answered", self.answered), ("refused", self.refused)];
        counts.map(|(name, count)| (name.to_owned(), count)).into()
    }
}
