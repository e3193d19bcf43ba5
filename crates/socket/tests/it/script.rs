//! A socket that answers a script: datagrams and faults in the order written, then would-block for ever.
//!
//! It only receives; what a script means is the test's business.

use std::collections::VecDeque;
use std::net::SocketAddr;

use drumfire_socket::{Fault, Io, Outgoing, RecvBatch, SendMode};

/// What the socket holds next.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Message(Vec<u8>),
    Fault(Fault),
}

/// The fake; a fault is answered by the call after the one that took the datagrams in front of it.
pub(crate) struct Script {
    pub(crate) steps: VecDeque<Step>,
    /// What each call was offered, in messages.
    pub(crate) limits: Vec<usize>,
    is_emptied_by_short_batch: bool,
}

impl Script {
    pub(crate) fn new(steps: impl IntoIterator<Item = Step>, is_emptied_by_short_batch: bool) -> Self {
        Self { steps: steps.into_iter().collect(), limits: Vec::new(), is_emptied_by_short_batch }
    }
}

/// A datagram that carries its number.
pub(crate) fn numbered(number: u32) -> Step {
    Step::Message(number.to_be_bytes().to_vec())
}

/// The number a datagram carries.
pub(crate) fn number_of(datagram: &[u8]) -> u32 {
    u32::from_be_bytes(datagram.try_into().expect("a datagram of four bytes"))
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
