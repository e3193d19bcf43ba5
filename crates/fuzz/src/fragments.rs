//! F11: fragments of messages from a client with genuine keys, compared with the ranges of their bytes. Each consistent fragment counts, a
//! message is delivered with the bytes that were sent when its last byte has arrived, and the server's memory is bounded.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;
use std::time::Duration;

use drumfire_proto::{CloseReason, ProtocolError, limits};
use drumfire_wire::{ChannelId, Delivery, Fragment, Message, MessageId};

use crate::counted::RECEIVE_BYTES;
use crate::harness::SERVER;
use crate::input::Input;
use crate::puppet::Puppet;

/// Lengths of messages. Eight of the longest fit the credit of a connection.
const TOTALS: [u32; 8] = [1, 2, 40, 300, 1_000, 3_000, 9_000, 12_000];
/// Inconsistent fragments before the connection ends.
const STRIKES: u32 = 16;
/// The channels of the two modes.
const RELIABLE: ChannelId = ChannelId(1);
const UNRELIABLE: ChannelId = ChannelId(2);

/// Returns the byte of a message at an offset.
fn byte(message: u64, at: u32) -> u8 {
    let mixed = (u64::from(at) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ (message + 1));
    mixed.to_be_bytes()[2]
}

/// The number of messages.
const MESSAGES: u64 = 8;

/// Returns the bytes of all messages. They are made once, because making them takes longer than an input.
fn messages() -> &'static [Vec<u8>] {
    static MADE: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let longest = TOTALS[TOTALS.len() - 1];
    MADE.get_or_init(|| {
        (0..MESSAGES).map(|message| (0..longest).map(|at| byte(message, at)).collect()).collect()
    })
}

fn bytes_of(message: u64, from: usize, count: usize) -> &'static [u8] {
    &messages()[usize::try_from(message).unwrap_or(0)][from..from + count]
}

/// The bytes of a reliable message that arrived, as ranges that do not touch each other.
struct Arrived {
    total: usize,
    ranges: Vec<Range<usize>>,
}

impl Arrived {
    fn is_whole(&self) -> bool {
        self.ranges.iter().any(|range| range.len() == self.total)
    }

    /// Adds bytes, unless they begin a new range and `may_begin` is false.
    fn take(&mut self, place: &Range<usize>, may_begin: bool) {
        let touches = |range: &mut Range<usize>| range.start <= place.end && place.start <= range.end;
        let joined: Vec<_> = self.ranges.extract_if(.., touches).collect();
        if joined.is_empty() && !may_begin {
            return;
        }
        let whole = joined
            .into_iter()
            .fold(place.clone(), |whole, range| whole.start.min(range.start)..whole.end.max(range.end));
        self.ranges.push(whole);
    }
}

/// The expected effect of all fragments.
#[derive(Default)]
struct Model {
    known: BTreeMap<u64, Arrived>,
    strikes: u32,
}

impl Model {
    /// Returns the number of ranges of incomplete messages.
    fn ranges(&self) -> usize {
        self.known.values().filter(|known| !known.is_whole()).map(|known| known.ranges.len()).sum()
    }

    /// Adds a fragment of a reliable message, as PROTOCOL specifies.
    fn take(&mut self, id: u64, total: usize, place: Range<usize>) {
        let may_begin = self.ranges() < limits::PIECE_RANGES_MAX;
        match self.known.get_mut(&id) {
            Some(known) if known.is_whole() => {}
            Some(known) if known.total != total => self.strikes += 1,
            Some(known) => known.take(&place, may_begin),
            None if !may_begin => {}
            None => _ = self.known.insert(id, Arrived { total, ranges: vec![place] }),
        }
    }

    fn is_broken(&self) -> bool {
        self.strikes >= STRIKES
    }
}

/// F11: fragments of eight reliable messages and some unreliable ones, in any order, with any bounds, and some inconsistent.
pub(crate) fn reassembly(data: &[u8]) {
    let mut input = Input::new(data);
    let mut puppet = Puppet::connected(1);
    let (mut model, mut held) = (Model::default(), 0);
    // A fragment of an unreliable message names a packet, which must be one that was sent before.
    (0..8).for_each(|_| puppet.say(|writer| writer.padding(20)));
    let mut body = [0; 1_100];
    while !input.is_empty() && !model.is_broken() {
        let [what, length] = input.array();
        let (id, is_unreliable) = (u64::from(what) % MESSAGES, what & 8 != 0);
        // A message has one length, unless this fragment is inconsistent.
        let total = TOTALS[usize::from(if what & 0x80 == 0 { what % 8 } else { what >> 4 & 7 })];
        let offset = u32::from(input.u16()) % total;
        let count = (u32::from(length) * 4 + 1).min(total - offset);
        let place = offset as usize..(offset + count) as usize;
        let payload = bytes_of(id, place.start, place.len());
        let (channel, delivery, number) = if is_unreliable {
            (UNRELIABLE, Delivery::Unreliable, id)
        } else {
            model.take(id, total as usize, place);
            (RELIABLE, Delivery::ReliableUnordered { id: MessageId(id) }, 0)
        };
        let piece = Message { channel, delivery, payload };
        let mut writer = drumfire_wire::FrameWriter::new(&mut body[..]);
        writer
            .fragment(&Fragment { piece, number, total_bytes: total, offset_bytes: offset })
            .expect("a fragment fits a packet");
        let written = writer.written_bytes();
        let mut datagram = puppet.datagram(&body[..written]);
        held += puppet.hand_counted(&mut datagram, |_, _| {});
        assert!(held <= RECEIVE_BYTES, "{held} bytes held");
    }
    puppet.world.run(Duration::ZERO);
    let wanted = model.is_broken().then_some(CloseReason::Protocol(ProtocolError::PiecesDisagree));
    assert_eq!(puppet.ending(), wanted);
    let (mut reliable, mut unreliable) = (Vec::new(), Vec::new());
    for (channel, bytes) in puppet.world.messages(SERVER) {
        if channel == RELIABLE.0 { &mut reliable } else { &mut unreliable }.push(bytes);
    }
    let whole = model.known.iter().filter(|(_, known)| known.is_whole());
    let mut whole: Vec<_> = whole.map(|(id, known)| bytes_of(*id, 0, known.total)).collect();
    reliable.sort();
    whole.sort();
    assert!(reliable == whole, "{} messages arrived, {} are whole", reliable.len(), whole.len());
    for bytes in unreliable {
        assert!((0..MESSAGES).any(|id| bytes == bytes_of(id, 0, bytes.len())), "bytes that were not sent");
    }
}
