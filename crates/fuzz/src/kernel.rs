//! F14 and F15: the kernel's decisions: the socket of a datagram, and the control messages and bytes of a received message. The socket
//! crate's tests compare them with a real kernel.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
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
// The socket crate keeps its parser private.
#[path = "../../socket/src/sys/linux/control/parse.rs"]
mod parse;

/// F14: the kernel's program and the Rust function select the same socket for every payload, and for a packet the socket that its
/// connection id names.
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
    let index = bpf::run(&filter.program(), payload).expect("the kernel accepts the program") as usize;
    assert_eq!(Some(index).filter(|index| *index < filter.sockets()), filter.socket_of(payload));
    if let Ok(header) = TransportHeader::decode(payload, ConnectionIdLength::Eight)
        && let Some(id) = header.connection_id
    {
        check_id(id);
        let socket = usize::from(secret.socket_for(id.routing_tag(), sockets));
        assert_eq!(filter.socket_of_tag(id.routing_tag().0), socket);
        assert!(!is_ours || filter.socket_of(payload) == Some(socket), "the id's socket receives the packet");
    }
}

/// Checks that an id consists of its parts, and that one of the 2^24 checks is right.
fn check_id(id: ConnectionId) {
    let [t0, t1, random @ ..] = id.checked_part();
    let tag = RoutingTag(u16::from_be_bytes([t0, t1]));
    assert_eq!((ConnectionId::new(tag, random, id.check()), id.routing_tag()), (id, tag));
    let keys = IdKeys::derive(&Secret::new([4; 32]), b"eu-1");
    let right = keys.check(&id.checked_part());
    assert_eq!(keys.is_valid(&id.checked_part(), id.check()), right == id.check());
    assert!(keys.is_valid(&id.checked_part(), right));
}

/// A message of the kernel, and its stride.
type KernelMessage = (Vec<u8>, Option<usize>);

/// Messages that have not been received yet.
struct Queue(VecDeque<KernelMessage>);

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

/// The received datagrams, in order, and the number of dropped ones by reason.
#[derive(Debug, Default, PartialEq, Eq)]
struct Received<'a> {
    datagrams: Vec<&'a [u8]>,
    drops: [u64; DropReason::ALL.len()],
}

impl<'a> Received<'a> {
    /// Returns the expected result, for a read of `read_bytes` and datagrams of at most `datagram_bytes`.
    fn of(messages: &'a [KernelMessage], read_bytes: usize, datagram_bytes: usize) -> Self {
        let mut taken = Self::default();
        for (message, stride) in messages {
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
            // An empty message is one datagram.
            taken.drops[reason as usize] += datagrams.len().max(1) as u64;
        }
        taken
    }
}

/// F15: any bytes as control messages, and trains of any stride. A message is split into datagrams by its stride, and each datagram
/// that is dropped is counted by its reason.
pub(crate) fn received(data: &[u8]) {
    let mut input = Input::new(data);
    let (length, gro) = (usize::from(input.u8()), input.u8() & 1 == 0);
    check_control(input.bytes(length));
    let mut queue = Queue(VecDeque::new());
    while !input.is_empty() {
        let (stride, bytes) = (usize::from(input.u16()), usize::from(input.u16()) % 4_096);
        let fill = input.u8();
        let message = (0..bytes).map(|at| fill ^ at.to_le_bytes()[0]).collect();
        queue.0.push_back((message, Some(stride).filter(|stride| *stride != 0)));
    }
    let config = ReceiverConfig::default().gro(if gro { Gro::On } else { Gro::Off });
    let sent: Vec<KernelMessage> = queue.0.iter().cloned().collect();
    let Ok(mut receiver) = Receiver::new(&mut queue, &config) else { return };
    let mut got = Vec::new();
    while !queue.0.is_empty() {
        receiver.drain(&mut queue, 1_024, |batch| {
            got.extend(batch.datagrams().map(|datagram| datagram.bytes.to_vec()));
        });
    }
    let counts = receiver.counts();
    assert_eq!(counts.datagrams, got.len() as u64, "every received datagram is counted");
    // Without trains, a read has one byte more than a datagram, which detects longer ones.
    let read_bytes = if gro { MESSAGE_MAX_BYTES } else { config.max_datagram_bytes + 1 };
    let taken = Received {
        datagrams: got.iter().map(Vec::as_slice).collect(),
        drops: DropReason::ALL.map(|reason| counts.dropped(reason)),
    };
    assert_eq!(taken, Received::of(&sent, read_bytes, config.max_datagram_bytes));
}

/// Asserts that the socket crate's parser and the second reading agree.
fn check_control(control: &[u8]) {
    let facts = parse::parse(control);
    assert_eq!((facts.segment_bytes, facts.local), expected(control), "{control:?}");
}

/// The bytes of a control message's header: length, level, and kind.
const HEAD_BYTES: usize = 16;

/// The numbers of `linux/in.h`, `linux/in6.h` and `linux/udp.h`.
const GRO: (i32, i32) = (17, 104);
const ADDRESS_V4: (i32, i32) = (0, 8);
const ADDRESS_V6: (i32, i32) = (41, 50);

/// Returns the stride and the local address that control messages state, read as `cmsg(3)` describes, with the numbers of a
/// 64-bit Linux.
fn expected(mut control: &[u8]) -> (usize, Option<IpAddr>) {
    let (mut stride, mut local) = (0, None);
    while let (Some(length), Some(level), Some(kind)) =
        (control.first_chunk::<8>(), control.get(8..12), control.get(12..16))
    {
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, i32::from_ne_bytes);
        let length = usize::try_from(u64::from_ne_bytes(*length)).unwrap_or(usize::MAX);
        let Some(body) = control.get(HEAD_BYTES..length) else { break };
        match (number(level), number(kind)) {
            GRO => stride = body.get(..4).map_or(0, |bytes| usize::try_from(number(bytes)).unwrap_or(0)),
            // The interface index, the address that the datagram reached, and the destination in its header.
            ADDRESS_V4 => {
                let address = body.get(..12).and_then(|info| info.get(4..8)?.first_chunk::<4>());
                local = address.map(|bytes| IpAddr::from(*bytes));
            }
            ADDRESS_V6 => {
                let address = body.get(..20).and_then(<[u8]>::first_chunk::<16>);
                // A multicast destination is no address of the host.
                local = address.map(|bytes| IpAddr::from(*bytes)).filter(|address| !address.is_multicast());
            }
            _ => {}
        }
        control = control.get(length.next_multiple_of(8)..).unwrap_or_default();
    }
    (stride, local)
}

/// The longest message of the kernel.
const MESSAGE_MAX_BYTES: usize = 65_535;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_datagram_is_received_or_dropped_for_one_reason() {
        // A datagram, a train with a short end, an empty one, two that are too long, and a truncated one.
        let messages = [(3, None), (5, Some(2)), (0, None), (11, None), (25, Some(11)), (40, Some(12))]
            .map(|(bytes, stride)| (vec![7; bytes], stride));
        let Received { datagrams, drops } = Received::of(&messages, 30, 10);
        assert_eq!(datagrams.iter().map(|datagram| datagram.len()).collect::<Vec<_>>(), [3, 2, 2, 1]);
        let dropped = |reason: DropReason| drops[reason as usize];
        assert_eq!(DropReason::ALL.map(dropped), [1, 3, 4, 0], "{:?}", DropReason::ALL);
    }
}
