//! Three threads share one UDP port, and a tag inside each datagram says which of them gets it.
//!
//! `cargo run --release --example shared_port`
//!
//! Each thread owns a socket, waits, drains it and answers nothing: it only counts. A real server would parse,
//! decrypt and deliver in the place where this one counts.
#![forbid(unsafe_code)]

use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use drumfire_socket::{
    GroupConfig, Poller, Receiver, ReceiverConfig, ReuseportGroup, Socket, SteeringFilter, Wait, Waiter,
    Woken,
};

const THREADS: usize = 3;
/// Few enough that every share fits a default receive buffer, however late its thread gets a core.
const DATAGRAMS: usize = 300;

/// The tag stands at bytes 1 and 2; shorter datagrams take the kernel's hash.
const TAG_OFFSET: usize = 1;
const MIN_BYTES: usize = 28;

/// A thread gives up when nothing comes for this long.
const PATIENCE: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn Error>> {
    let counts = run()?;
    for (thread, count) in counts.iter().enumerate() {
        println!("thread {thread} received {count} of {DATAGRAMS} datagrams");
    }
    Ok(())
}

fn run() -> Result<Vec<usize>, Box<dyn Error>> {
    // Any odd number will do here; a server draws it at random, so that nobody can aim at a thread.
    let filter = SteeringFilter::new(TAG_OFFSET, MIN_BYTES, 0x9E37_79B1, THREADS)?;
    let config = GroupConfig::new("127.0.0.1:0".parse()?).sockets(THREADS).steering(filter);
    let group = ReuseportGroup::bind(&config)?;
    let address = group.local_addr();
    // They stay here until every thread is done: when one closes, the last takes its place, and tags would lead
    // elsewhere.
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

/// Receives until `expected` datagrams came or nothing more does.
fn count(socket: &mut Socket, expected: usize) -> std::io::Result<usize> {
    let mut poller = Poller::new()?;
    poller.register(socket, 0)?;
    let mut receiver = Receiver::new(socket, &ReceiverConfig::default())?;
    let mut waiter = Waiter::new(Wait::Notify)?;
    let mut received = 0;
    let mut is_more_waiting = false;
    while received < expected {
        let woken =
            waiter.wait(&mut poller, Some(PATIENCE), is_more_waiting).map_err(std::io::Error::other)?;
        if let Woken::Polled(ready) = woken
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

/// Sends every thread its share, choosing tags that the filter maps to it.
fn send(to: SocketAddr, filter: &SteeringFilter) -> Result<(), Box<dyn Error>> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let tag_of =
        |thread| (0..=u16::MAX).find(|tag| filter.socket_of_tag(*tag) == thread).ok_or("no such tag");
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
    fn every_thread_gets_its_third() {
        assert_eq!(super::run().expect("a run on the loopback"), [100; 3]);
    }
}
