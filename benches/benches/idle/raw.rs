//! The floor: a process that takes datagrams and sends as long ones back as each asks for, with the waits and the system calls
//! of a worker, and nothing else: no connection, no encryption.

use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use drumfire_benches::{Child, Counts, RECEIVE_BUFFER_BYTES, at_end_of_input, say, say_counts};
use drumfire_socket::{
    DrainEnd, FlushEnd, Gro, GroupConfig, Poller, Receiver, ReceiverConfig, ReuseportGroup, SendBatch,
    SendMode, Sender, Socket, Wait, Waiter,
};
use drumfire_tools::clock;

use crate::mirror::{DATAGRAM_BYTES, asked_bytes};

/// The first argument of the receiver's process.
const MODE: &str = "--idle-raw";

/// Datagrams taken in one go, at most: a worker's budget.
const BUDGET: usize = 256;

/// Starts the receiver.
pub(crate) fn start() -> Result<Child, String> {
    Child::start("the plain receiver", &[MODE])
}

/// Runs the receiver's process, if the arguments ask for it.
pub(crate) fn main(args: &[OsString]) -> Option<Result<(), String>> {
    if args != [MODE] {
        return None;
    }
    Some(run().map_err(|error| format!("the plain receiver: {error}")))
}

fn run() -> io::Result<()> {
    let config = GroupConfig::new(([127, 0, 0, 1], 0).into()).receive_buffer_bytes(RECEIVE_BUFFER_BYTES);
    let group = ReuseportGroup::bind(&config)?;
    let address = group.local_addr();
    let mut socket = group.into_sockets().pop().ok_or(io::ErrorKind::Other)?;
    let mut poller = Poller::new()?;
    poller.register(&mut socket, 0)?;
    let waker = poller.waker();
    let is_over = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_over);
    at_end_of_input(move || {
        flag.store(true, Ordering::Release);
        // Without it the process is ended from outside.
        let _ = waker.wake();
    });
    say(&address.to_string())?;
    say_counts(&serve(&mut socket, &mut poller, &is_over)?)
}

fn serve(socket: &mut Socket, poller: &mut Poller, is_over: &AtomicBool) -> io::Result<Counts> {
    let other = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
    let config = ReceiverConfig::default().gro(Gro::Off);
    let mut receiver = Receiver::new(socket, &config).map_err(|error| other(&error))?;
    let mut waiter = Waiter::new(Wait::best()).map_err(|error| other(&error))?;
    let mut sender = Sender::new(SendMode::Sendmmsg);
    let mut batch = SendBatch::new(BUDGET, BUDGET * DATAGRAM_BYTES);
    let (mut received, mut answered, mut is_more) = (0_u64, 0_u64, true);
    let zeros = [0; DATAGRAM_BYTES];
    while !is_over.load(Ordering::Acquire) {
        waiter.wait(poller, None, is_more).map_err(|fault| io::Error::other(format!("{fault:?}")))?;
        let before = received;
        let end = receiver.drain_mut(socket, BUDGET, |mut datagrams| {
            for datagram in datagrams.datagrams_mut() {
                received += 1;
                let bytes = asked_bytes(datagram.bytes).and_then(|bytes| zeros.get(..bytes));
                let Some(answer) = bytes.filter(|bytes| !bytes.is_empty()) else { continue };
                answered += u64::from(batch.push(Some(datagram.from), answer));
            }
        });
        waiter.on_pass(clock::now(), received - before);
        is_more = matches!(end, DrainEnd::BudgetSpent | DrainEnd::Starved);
        if !batch.is_empty() && sender.flush(socket, &mut batch, |_, _| {}) != FlushEnd::Sent {
            is_more = true;
        }
    }
    Ok([("received", received), ("answered", answered)].map(|(name, count)| (name.to_owned(), count)).into())
}
