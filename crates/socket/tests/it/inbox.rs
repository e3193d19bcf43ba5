//! The receiving end of a loopback test: a bound group, a receiver for each socket, and one poll for all.
//!
//! It waits for datagrams, never for time: a poll that stays silent for seconds while datagrams are owed is
//! the failure.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_socket::{
    DrainEnd, DropReason, GroupConfig, Parker, Poller, Received, Receiver, ReceiverConfig, ReuseportGroup,
    Socket,
};

/// Silence after which a datagram that was sent counts as stranded.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Inbox {
    pub(crate) address: SocketAddr,
    pub(crate) members: Vec<(Socket, Receiver)>,
    poller: Poller,
}

impl Inbox {
    pub(crate) fn bind(group: &GroupConfig, receiver: &ReceiverConfig) -> Self {
        let group = ReuseportGroup::bind(group).expect("a free port on loopback");
        let address = group.local_addr();
        let mut poller = Poller::new().expect("a poller");
        let mut members = Vec::new();
        for (index, mut socket) in group.into_sockets().into_iter().enumerate() {
            poller.register(&mut socket, index).expect("at most 64 sockets");
            let receiver = Receiver::new(&mut socket, receiver).expect("a receiver");
            members.push((socket, receiver));
        }
        Self { address, members, poller }
    }

    /// Drains every socket until `total` datagrams arrived since the inbox was made, dropped ones included.
    pub(crate) fn collect(&mut self, total: u64, mut handle: impl FnMut(usize, Received<'_>)) {
        loop {
            let mut is_blocked = true;
            for (index, (socket, receiver)) in self.members.iter_mut().enumerate() {
                let end = receiver.drain(socket, 1_024, |received| handle(index, received));
                is_blocked &= end == DrainEnd::Blocked;
            }
            let arrived = self.members.iter().map(|(_, receiver)| arrived(receiver)).sum::<u64>();
            assert!(arrived <= total, "{arrived} datagrams arrived, {total} were sent");
            if arrived == total {
                return;
            }
            if is_blocked {
                let ready = self.poller.poll(Some(DEADLINE)).expect("a poll");
                assert!(ready.readable != 0, "stalled after {arrived} of {total} datagrams");
            }
        }
    }
}

fn arrived(receiver: &Receiver) -> u64 {
    let counts = receiver.counts();
    counts.datagrams + DropReason::ALL.iter().map(|&reason| counts.dropped(reason)).sum::<u64>()
}
