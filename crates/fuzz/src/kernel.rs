//! F14 and F15: what the kernel decides and writes for a server: which socket a datagram goes to, and what a received
//! message's control messages and its bytes are.
//!
//! The kernel itself takes no part; the socket crate's tests ask it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::num::NonZeroU16;

use drumfire_crypto::{IdKeys, Secret};
use drumfire_socket::{
    DropReason, Fault, Gro, Instruction, Io, Outgoing, Receiver, ReceiverConfig, RecvBatch, SendMode,
    SteeringFilter,
};
use drumfire_wire::{ConnectionId, ConnectionIdLength, RoutingTag, SteeringSecret, TransportHeader, limits};

use crate::input::Input;

#[path = "../../socket/tests/common/bpf.rs"]
mod bpf;
mod control;

/// F14: the program for the kernel and the function in Rust send every payload to the same socket, and a packet to the
/// socket that its connection id names.
pub(crate) fn steering(data: &[u8]) {
    let mut input = Input::new(data);
    let secret = SteeringSecret::from_bits(u32::from_be_bytes(input.array()));
    let sockets = NonZeroU16::new(input.u16() % 1_024 + 1).unwrap_or(NonZeroU16::MIN);
    let is_ours = input.u8() & 1 == 0;
    let (offset, least) = if is_ours {
        (limits::ROUTING_TAG_OFFSET, limits::TRANSPORT_MIN_BYTES)
    } else {
        (input.u16().into(), input.u16().into())
    };
    let payload = input.rest();
    let Ok(filter) = SteeringFilter::new(offset, least, secret.to_bits(), sockets.get().into()) else {
        let is_possible = offset + 2 <= least && least <= limits::DATAGRAM_MAX_BYTES;
        return assert!(!is_possible, "a filter for {offset}, {least} was refused");
    };
    let index = bpf::run(&filter.program(), payload).expect("the kernel takes the program") as usize;
    assert_eq!(Some(index).filter(|index| *index < filter.sockets()), filter.socket_of(payload));
    if let Ok(header) = TransportHeader::decode(payload, ConnectionIdLength::Eight)
        && let Some(id) = header.connection_id
    {
        check_id(id);
        let socket = usize::from(secret.socket_for(id.routing_tag(), sockets));
        assert_eq!(filter.socket_of_tag(id.routing_tag().0), socket);
        assert!(!is_ours || filter.socket_of(payload) == Some(socket), "the id's socket gets the packet");
    }
}

/// An id is its parts, and its check is right for one of its 2^24 values.
fn check_id(id: ConnectionId) {
    let [t0, t1, random @ ..] = id.checked_part();
    let tag = RoutingTag(u16::from_be_bytes([t0, t1]));
    assert_eq!((ConnectionId::new(tag, random, id.check()), id.routing_tag()), (id, tag));
    let keys = IdKeys::derive(&Secret::new([4; 32]), b"eu-1");
    let right = keys.check(&id.checked_part());
    assert_eq!(keys.is_valid(&id.checked_part(), id.check()), right == id.check());
    assert!(keys.is_valid(&id.checked_part(), right));
}

/// A message as the kernel hands it over, and the stride it named.
type Handed = (Vec<u8>, Option<usize>);

/// Messages that wait to be received.
struct Queue(VecDeque<Handed>);

impl Io for Queue {
    fn recv(&mut self, batch: &mut RecvBatch) -> Result<(), Fault> {
        let from = SocketAddr::from(([192, 0, 2, 1], 9));
        while let Some((bytes, stride)) = self.0.front() {
            if !batch.put(from, bytes, *stride) {
                break;
            }
            self.0.pop_front();
        }
        if batch.filled() == 0 { Err(Fault::WouldBlock) } else { Ok(()) }
    }

    fn send(&mut self, _: &mut Outgoing<'_>, _: SendMode) -> Result<usize, Fault> {
        Err(Fault::Other)
    }

    fn is_emptied_by_short_batch(&self) -> bool {
        true
    }

    fn enable_gro(&mut self) -> bool {
        true
    }
}

/// What becomes of messages: the datagrams that are handed on, in order, and how many are dropped for each reason.
#[derive(Debug, Default, PartialEq, Eq)]
struct Taken<'a> {
    datagrams: Vec<&'a [u8]>,
    drops: [u64; DropReason::ALL.len()],
}

impl<'a> Taken<'a> {
    /// What has to become of these, where a read takes so many bytes at once and a datagram may have so many.
    fn of(handed: &'a [Handed], read_bytes: usize, datagram_bytes: usize) -> Self {
        let mut taken = Self::default();
        for (message, stride) in handed {
            let read = &message[..message.len().min(read_bytes)];
            let stride = stride.unwrap_or(message.len()).max(1);
            let datagrams = read.chunks(stride);
            let reason = if message.len() > read_bytes {
                DropReason::Truncated
            } else if message.is_empty() {
                DropReason::Empty
            } else if stride.min(message.len()) > datagram_bytes {
                DropReason::Overlong
            } else {
                taken.datagrams.extend(datagrams);
                continue;
            };
            // One of no bytes is one too.
            taken.drops[reason as usize] += datagrams.len().max(1) as u64;
        }
        taken
    }
}

/// F15: any bytes where the kernel writes control messages, and trains of any stride. A stride that can be splits a message
/// into datagrams that are its bytes in order; each that is not taken is counted by its name.
pub(crate) fn received(data: &[u8]) {
    let mut input = Input::new(data);
    let (length, gro) = (usize::from(input.u8()), input.u8() & 1 == 0);
    control::check(input.bytes(length));
    let mut queue = Queue(VecDeque::new());
    while !input.is_empty() {
        let (stride, bytes) = (usize::from(input.u16()), usize::from(input.u16()) % 4_096);
        let fill = input.u8();
        let message = (0..bytes).map(|at| fill ^ at.to_le_bytes()[0]).collect();
        queue.0.push_back((message, Some(stride).filter(|stride| *stride != 0)));
    }
    let config = ReceiverConfig::default().gro(if gro { Gro::On } else { Gro::Off });
    let sent: Vec<Handed> = queue.0.iter().cloned().collect();
    let Ok(mut receiver) = Receiver::new(&mut queue, &config) else { return };
    let mut got = Vec::new();
    while !queue.0.is_empty() {
        receiver.drain(&mut queue, 1_024, |batch| {
            got.extend(batch.datagrams().map(|datagram| datagram.bytes.to_vec()));
        });
    }
    let counts = receiver.counts();
    assert_eq!(counts.datagrams, got.len() as u64, "every datagram that was taken is counted");
    // Without trains, one byte more than a datagram may have tells that it has more.
    let read_bytes = if gro { MESSAGE_MAX_BYTES } else { config.max_datagram_bytes + 1 };
    let taken = Taken {
        datagrams: got.iter().map(Vec::as_slice).collect(),
        drops: DropReason::ALL.map(|reason| counts.dropped(reason)),
    };
    assert_eq!(taken, Taken::of(&sent, read_bytes, config.max_datagram_bytes));
}

/// The longest message that the kernel hands over.
const MESSAGE_MAX_BYTES: usize = 65_535;

#[cfg(test)]
mod tests {
    use super::*;

    /// Of each kind one: a datagram, a train with a short end, nothing, one and a train of what is too long, one that was cut.
    fn handed() -> Vec<Handed> {
        let of = |bytes, stride| (vec![7; bytes], stride);
        vec![of(3, None), of(5, Some(2)), of(0, None), of(11, None), of(25, Some(11)), of(40, Some(12))]
    }

    #[test]
    fn each_datagram_of_each_message_is_taken_or_dropped_for_one_reason() {
        let handed = handed();
        let Taken { datagrams, drops } = Taken::of(&handed, 30, 10);
        assert_eq!(datagrams.iter().map(|datagram| datagram.len()).collect::<Vec<_>>(), [3, 2, 2, 1]);
        let dropped = |reason: DropReason| drops[reason as usize];
        assert_eq!(DropReason::ALL.map(dropped), [1, 3, 4, 0], "{:?}", DropReason::ALL);
    }

    #[test]
    fn a_splitter_that_loses_something_or_gives_it_another_name_is_found() {
        let handed = handed();
        let right = Taken::of(&handed, 30, 10);
        let whole = || Taken { datagrams: right.datagrams.clone(), drops: right.drops };
        assert_eq!(whole(), right);
        assert_ne!(Taken::default(), right, "it loses all");
        for at in 0..right.datagrams.len() {
            let mut wrong = whole();
            wrong.datagrams.remove(at);
            assert_ne!(wrong, right, "it loses one");
        }
        for at in 0..right.drops.len() {
            let mut wrong = whole();
            wrong.drops[at] += 1;
            assert_ne!(wrong, right, "it drops one more");
            wrong.drops.rotate_left(1);
            assert_ne!(wrong, right, "it gives another name");
        }
    }
}
