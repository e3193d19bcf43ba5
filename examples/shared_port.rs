//! Three threads share one UDP port. A tag inside each datagram selects the thread that receives it.
//!
//! `cargo run --release --example shared_port`
//!
//! Each thread owns a socket, waits, and counts the datagrams that it receives. A real server would parse and decrypt
//! them.
#![forbid(unsafe_code)]

use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::time::Duration;

use drumfire_socket::{
    GroupConfig, Poller, Receiver, ReceiverConfig, ReuseportGroup, Socket, SteeringFilter, Wait, WaitEnd,
    Waiter,
};

const THREADS: usize = 3;
/// The number of datagrams of all threads. Each share fits a default receive buffer, so none is lost when a thread is
/// late.
const DATAGRAMS: usize = 300;

/// The tag is in bytes 1 and 2. The kernel's hash distributes datagrams that are too short for it.
const TAG_OFFSET: usize = 1;
const MIN_BYTES: usize = 28;

/// A thread stops after this time without a datagram.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    match run() {
        Ok(counts) => {
            for (thread, count) in counts.iter().enumerate() {
                println!("thread {thread} received {count} of {DATAGRAMS} datagrams");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Vec<usize>, Box<dyn Error>> {
    // A constant odd number is enough here. A server draws it at random, so that an attacker cannot target one thread.
    let filter = SteeringFilter::new(TAG_OFFSET, MIN_BYTES, 0x9E37_79B1, THREADS)?;
    let config = GroupConfig::new("127.0.0.1:0".parse()?).sockets(THREADS).steering(filter);
    let group = ReuseportGroup::bind(&config)?;
    let address = group.local_addr();
    // The sockets stay open until all threads are done. When one closes, the kernel moves the last one to its index,
    // and the filter would select the wrong socket.
    let mut sockets = group.into_sockets();
    std::thread::scope(|scope| {
        let threads: Vec<_> = sockets
            .iter_mut()
            .map(|socket| scope.spawn(move || count(socket, DATAGRAMS / THREADS)))
            .collect();
        send(address, &filter)?;
        threads.into_iter().map(|thread| Ok(thread.join().map_err(|_| "a thread panicked")??)).collect()
    })
}

/// Receives until `expected` datagrams arrived or the socket is idle.
fn count(socket: &mut Socket, expected: usize) -> std::io::Result<usize> {
    let mut poller = Poller::new()?;
    poller.register(socket, 0)?;
    let mut receiver = Receiver::new(socket, &ReceiverConfig::default())?;
    let mut waiter = Waiter::new(Wait::Notify)?;
    let mut received = 0;
    let mut is_more_waiting = false;
    while received < expected {
        let woken =
            waiter.wait(&mut poller, Some(IDLE_TIMEOUT), is_more_waiting).map_err(std::io::Error::other)?;
        if let WaitEnd::Polled(ready) = woken
            && ready.readable == 0
            && !is_more_waiting
        {
            break;
        }
        let end = receiver.drain(socket, 1_024, |batch| received += batch.datagrams().count());
        is_more_waiting = end.is_more_waiting();
    }
    Ok(received)
}

/// Sends each thread its share, with tags that the filter maps to the thread.
fn send(to: SocketAddr, filter: &SteeringFilter) -> Result<(), Box<dyn Error>> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let tag_of =
        |thread| (0..=u16::MAX).find(|tag| filter.socket_of_tag(*tag) == thread).ok_or("no tag for a thread");
    let tags = (0..THREADS).map(tag_of).collect::<Result<Vec<u16>, _>>()?;
    let mut datagram = [0x08; MIN_BYTES];
    for tag in tags.iter().cycle().take(DATAGRAMS) {
        datagram[TAG_OFFSET..TAG_OFFSET + 2].copy_from_slice(&tag.to_be_bytes());
        socket.send_to(&datagram, to)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_thread_receives_a_third() {
        assert_eq!(super::run().expect("counts"), [100; 3]);
    }
}
