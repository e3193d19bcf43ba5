//! Fixtures: the receiving end of a loopback test, a socket that follows a script, and bursts for two threads.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drumfire_socket::{
    DrainEnd, Fault, GroupConfig, Io, Outgoing, Parker, Poller, Received, Receiver, ReceiverConfig,
    RecvBatch, ReuseportGroup, SendMode, Socket,
};

/// Whether this is not the portable implementation.
pub(crate) const IS_NATIVE: bool = cfg!(all(target_os = "linux", not(feature = "portable")));

/// The time without any datagram after which a test fails.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A bound group with a receiver for each socket and one poll for all of them.
///
/// It waits for datagrams and never for a time. The test fails if the poll stays silent while datagrams are missing.
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

    /// Drains every socket until `total` datagrams have arrived since the inbox was created, including dropped ones.
    pub(crate) fn collect(&mut self, total: u64, mut handle: impl FnMut(usize, Received<'_>)) {
        loop {
            let mut is_blocked = true;
            for (index, (socket, receiver)) in self.members.iter_mut().enumerate() {
                let end = receiver.drain(socket, 1_024, |received| handle(index, received));
                is_blocked &= end == DrainEnd::Blocked;
            }
            let counts = self.members.iter().map(|(_, receiver)| receiver.counts());
            let arrived = counts.map(|counts| counts.datagrams + counts.dropped_total()).sum::<u64>();
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

/// A step of a [`Script`].
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Message(Vec<u8>),
    Fault(Fault),
}

/// A socket that returns the datagrams and faults of a script in order, and then would-block. It cannot send.
///
/// A fault comes in a call of its own, after the call that returned the datagrams before it.
pub(crate) struct Script {
    pub(crate) steps: VecDeque<Step>,
    /// The number of messages that each call was offered.
    pub(crate) limits: Vec<usize>,
    is_emptied_by_short_batch: bool,
}

impl Script {
    pub(crate) fn new(steps: impl IntoIterator<Item = Step>, is_emptied_by_short_batch: bool) -> Self {
        Self { steps: steps.into_iter().collect(), limits: Vec::new(), is_emptied_by_short_batch }
    }
}

impl Io for Script {
    fn recv(&mut self, batch: &mut RecvBatch) -> Result<(), Fault> {
        let from = SocketAddr::from(([127, 0, 0, 1], 9));
        self.limits.push(batch.limit());
        while let Some(Step::Message(bytes)) = self.steps.front() {
            if !batch.put(from, bytes, None) {
                break;
            }
            self.steps.pop_front();
        }
        if batch.filled() > 0 {
            return Ok(());
        }
        match self.steps.pop_front() {
            Some(Step::Fault(fault)) => Err(fault),
            _ => Err(Fault::WouldBlock),
        }
    }

    fn send(&mut self, _: &mut Outgoing<'_>, _: SendMode) -> Result<usize, Fault> {
        Err(Fault::Other)
    }

    fn is_emptied_by_short_batch(&self) -> bool {
        self.is_emptied_by_short_batch
    }

    fn enable_gro(&mut self) -> bool {
        false
    }
}

/// Returns a datagram that carries its number.
pub(crate) fn numbered(number: u32) -> Step {
    Step::Message(number.to_be_bytes().to_vec())
}

/// Returns the number that a datagram carries.
pub(crate) fn number_of(datagram: &[u8]) -> u32 {
    u32::from_be_bytes(datagram.try_into().expect("a datagram of four bytes"))
}

/// Returns a pseudorandom number below 2^31 for each number.
pub(crate) fn mix(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33
}

/// Returns the number of datagrams in a burst: 1 to 40, and at most 4 in most bursts.
pub(crate) fn burst(number: u64) -> u64 {
    let mixed = mix(number);
    if mixed.is_multiple_of(16) { 1 + mixed / 16 % 40 } else { 1 + mixed / 16 % 4 }
}

/// Sets a flag when it is dropped, so that the other thread ends even if this one panics.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
