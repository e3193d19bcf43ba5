//! A test of sockets whose descriptor was really closed under them. It stands here because nothing else may close one that is
//! in use.

use std::os::fd::AsRawFd;

use crate::{Drain, DrainEnd, Fault, GroupConfig, Parker, Poller, Receiver, ReceiverConfig, ReuseportGroup};

/// Closes the descriptor under a socket, as a part of the process does that mistakes its number for one of its own.
fn close_under(udp: &mio::net::UdpSocket) {
    // SAFETY: nothing is read or written; whoever uses the socket gets an error from then on, which is what is tested.
    assert_eq!(unsafe { libc::close(udp.as_raw_fd()) }, 0);
}

const NAME: &str =
    "sys::linux::lost::a_socket_whose_descriptor_somebody_closed_goes_on_and_closes_nobody_elses";

/// Set where this test has a process of its own: in another, tests beside it might be given the number that it closes.
const ALONE: &str = "DRUMFIRE_TEST_ALONE";

#[test]
fn a_socket_whose_descriptor_somebody_closed_goes_on_and_closes_nobody_elses() {
    if std::env::var_os(ALONE).is_some() {
        return lose_and_reopen();
    }
    let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
    let output = alone.args(["--exact", NAME, "--test-threads=1"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn lose_and_reopen() {
    let config = GroupConfig::new("127.0.0.1:0".parse().unwrap()).sockets(2);
    let group = ReuseportGroup::bind(&config).unwrap();
    let (address, mut sockets) = (group.local_addr(), group.into_sockets());
    // The other one is not asked, so that whatever comes is for the first.
    drop(sockets.pop());
    let socket = &mut sockets[0];
    let mut poller = Poller::new().unwrap();
    poller.register(socket, 0).unwrap();
    let config = ReceiverConfig::default().drain(Drain::Recvmmsg);
    let mut receiver = Receiver::new(socket, &config).unwrap();
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for round in 1..=10 {
        sender.send_to(b"before", address).unwrap();
        close_under(socket.source());
        // By turns the number is free, and somebody else's: the file lives on whatever the socket does.
        let other = (round % 2 == 0).then(|| std::fs::File::open("/proc/self/status").unwrap());
        let end = receiver.drain(socket, 16, |_| {});
        assert!(matches!(end, DrainEnd::Closed(Fault::BadDescriptor | Fault::NotSocket)), "{end:?}");
        poller.reopen(socket, 0).unwrap();
        sender.send_to(b"after", address).unwrap();
        while receiver.counts().datagrams < 2 * round {
            let ready = poller.poll(Some(std::time::Duration::from_secs(60))).unwrap();
            assert_eq!(ready.readable, 1);
            receiver.drain(socket, 16, |_| {});
        }
        assert!(other.is_none_or(|file| file.metadata().is_ok()));
    }
}
