//! F7, F8, and F11: a server that receives packets sealed with genuine keys. For every content, it closes the connection with a reason or
//! continues, within its memory limits.
//!
//! Fragments of messages are compared with the ranges of their bytes. Each consistent fragment counts. A message is delivered with the bytes
//! that were sent when its last byte has arrived.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;
use std::time::Duration;

use drumfire_proto::{CloseReason, ProtocolError, SendOptions, limits};
use drumfire_puppet::encoded;
use drumfire_wire::{ChannelId, Delivery, Fragment, Frame, FrameWriter, Frames, Message, MessageId};

use crate::counted::{BOTH_BYTES, RECEIVE_BYTES};
use crate::harness::SERVER;
use crate::input::Input;
use crate::puppet::Puppet;

/// The maximum length in bytes of the frames in a packet.
const FRAMES_MAX_BYTES: usize = 1_100;

/// F7: one packet, after a change of keys or without one.
pub(crate) fn packet(data: &[u8]) {
    let mut input = Input::new(data);
    let how = input.u8();
    let frames = input.bytes(FRAMES_MAX_BYTES);
    let mut puppet = Puppet::connected(1);
    if how & 1 != 0 {
        puppet.change_keys();
    }
    if how & 2 != 0 {
        puppet.server_sends(3);
    }
    puppet.send_bytes(frames);
    let ending = puppet.ending();
    assert!(is_named(ending), "{ending:?}");
    let retires = Frames::new(frames).flatten().any(|frame| matches!(frame, Frame::RetireConnectionId(_)));
    if ending.is_none() && !retires {
        assert!(answers(&mut puppet), "an open connection answers");
    }
}

/// Returns whether a peer with the keys can cause this end of a connection.
pub(crate) const fn is_named(ending: Option<CloseReason>) -> bool {
    matches!(ending, None | Some(CloseReason::Protocol(_) | CloseReason::Remote { .. }))
}

/// Returns whether the server acknowledges a packet that requests an ack.
fn answers(puppet: &mut Puppet) -> bool {
    puppet.take_packets();
    puppet.send_frames(|writer| writer.ack_request().and_then(|()| writer.padding(8)));
    puppet.world.run(Duration::from_millis(100));
    let heard = puppet.take_packets();
    heard.iter().any(|(_, frames)| Frames::new(frames).flatten().any(|frame| matches!(frame, Frame::Ack(_))))
}

/// F8: many packets, while the server's application sends, and takes no events. The server holds no more than a connection may.
pub(crate) fn packets(data: &[u8]) {
    let mut input = Input::new(data);
    let mut puppet = Puppet::connected(1);
    let peer = puppet.world.peers(SERVER)[0];
    let mut held = 0;
    while !input.is_empty() {
        let how = input.u8();
        if how & 1 != 0 {
            let pause = Duration::from_millis(u64::from(input.u8()));
            puppet.world.now = puppet.world.now.after(pause);
        }
        if how & 2 != 0 {
            puppet.change_keys();
        }
        let frames = if how & 4 == 0 { usize::from(input.u8()) } else { FRAMES_MAX_BYTES };
        let mut datagram = puppet.datagram(input.bytes(frames));
        held += puppet.deliver_counted(&mut datagram, |server, now| {
            if how & 8 != 0 {
                let payload = bytes::Bytes::from_static(&[7; 1_000]);
                let options = if how & 16 == 0 {
                    SendOptions::reliable_unordered()
                } else {
                    SendOptions::unreliable_sequenced()
                };
                // A full queue or a closed connection refuses the message.
                let message = drumfire_proto::Message::new(RELIABLE, payload, options);
                let _ = server.send(now, peer, message);
            }
        });
        assert!(held <= BOTH_BYTES, "{held} bytes held");
    }
    puppet.world.run(Duration::ZERO);
    let ending = puppet.ending();
    let is_out_of_time = matches!(ending, Some(CloseReason::IdleTimeout | CloseReason::Unacknowledged));
    assert!(is_named(ending) || is_out_of_time, "{ending:?}");
}

/// The lengths of messages. Eight of the longest fit the credit of a connection.
const TOTALS: [u32; 8] = [1, 2, 40, 300, 1_000, 3_000, 9_000, 12_000];
/// Inconsistent fragments before the connection ends.
const CONTRADICTIONS_MAX: u32 = 16;
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
struct ReceivedRanges {
    total: usize,
    ranges: Vec<Range<usize>>,
}

impl ReceivedRanges {
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
    known: BTreeMap<u64, ReceivedRanges>,
    contradictions: u32,
}

impl Model {
    /// Returns the number of ranges of incomplete messages.
    fn ranges(&self) -> usize {
        self.known.values().filter(|known| !known.is_whole()).map(|known| known.ranges.len()).sum()
    }

    /// Adds a fragment of a reliable message, as PROTOCOL specifies.
    fn take(&mut self, id: u64, total: usize, place: Range<usize>) {
        let may_begin = self.ranges() < limits::FRAGMENT_RANGES_MAX;
        match self.known.get_mut(&id) {
            Some(known) if known.is_whole() => {}
            Some(known) if known.total != total => self.contradictions += 1,
            Some(known) => known.take(&place, may_begin),
            None if !may_begin => {}
            None => _ = self.known.insert(id, ReceivedRanges { total, ranges: vec![place] }),
        }
    }

    fn is_broken(&self) -> bool {
        self.contradictions >= CONTRADICTIONS_MAX
    }
}

/// F11: fragments of eight reliable messages and some unreliable ones, in any order, with any bounds, and some inconsistent.
pub(crate) fn reassembly(data: &[u8]) {
    let mut input = Input::new(data);
    let mut puppet = Puppet::connected(1);
    let (mut model, mut held) = (Model::default(), 0);
    // A fragment of an unreliable message names a packet, which must be one that was sent before.
    (0..8).for_each(|_| puppet.send_frames(|writer| writer.padding(20)));
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
        let message = Message { channel, delivery, payload };
        let fragment = Fragment { message, number, total_bytes: total, offset_bytes: offset };
        let mut datagram = puppet.datagram(&encoded(|frames| FrameWriter::new(frames).fragment(&fragment)));
        held += puppet.deliver_counted(&mut datagram, |_, _| {});
        assert!(held <= RECEIVE_BYTES, "{held} bytes held");
    }
    puppet.world.run(Duration::ZERO);
    let wanted = model.is_broken().then_some(CloseReason::Protocol(ProtocolError::FragmentMismatch));
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
