//! F11: messages in pieces against a map of their bytes: every piece that agrees counts, a message is delivered when its
//! last byte is there, with the bytes that were sent, and what the server holds stays within bounds.
//!
//! The pieces come behind the packet protection, from a client with genuine keys.

use std::collections::BTreeMap;
use std::time::Duration;

use drumfire_proto::{CloseReason, ProtocolError, limits};
use drumfire_wire::{ChannelId, Delivery, Fragment, Message, MessageId};

use crate::counted::RECEIVE_BYTES;
use crate::harness::SERVER;
use crate::input::Input;
use crate::puppet::Puppet;
use crate::sealed::AUDIT_BYTES;

/// Lengths of messages. Eight of the longest stay within the credit of a connection.
const TOTALS: [u32; 8] = [1, 2, 40, 300, 1_000, 3_000, 9_000, 12_000];
/// Pieces that disagree before the connection ends.
const STRIKES: u32 = 16;
/// Channels by mode, so that what arrives says how it was sent.
const RELIABLE: ChannelId = ChannelId(1);
const LOOSE: ChannelId = ChannelId(2);

/// The byte of a message at a place.
fn byte(message: u64, at: u32) -> u8 {
    let mixed = (u64::from(at) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ (message + 1));
    mixed.to_be_bytes()[2]
}

fn bytes_of(message: u64, from: u32, count: u32) -> Vec<u8> {
    (from..from + count).map(|at| byte(message, at)).collect()
}

/// A reliable message as a map: which of its bytes came.
struct Known {
    came: Vec<bool>,
    is_whole: bool,
}

impl Known {
    fn runs(&self) -> usize {
        let begins = self.came.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        begins + usize::from(self.came.first() == Some(&true))
    }
}

/// What should have come of all pieces so far.
#[derive(Default)]
struct Model {
    known: BTreeMap<u64, Known>,
    strikes: u32,
}

impl Model {
    fn runs(&self) -> usize {
        self.known.values().filter(|known| !known.is_whole).map(Known::runs).sum()
    }

    /// Takes a piece of a reliable message, as the standard says.
    fn take(&mut self, id: u64, total: u32, offset: u32, count: u32) {
        let runs = self.runs();
        let place = offset as usize..(offset + count) as usize;
        let known = match self.known.get_mut(&id) {
            Some(known) if known.is_whole => return,
            Some(known) if known.came.len() != total as usize => {
                self.strikes += 1;
                return;
            }
            Some(known) => known,
            None if runs >= limits::PIECE_RANGES_MAX => return,
            None => {
                self.known.entry(id).or_insert(Known { came: vec![false; total as usize], is_whole: false })
            }
        };
        let (before, came) = (known.runs(), known.came.clone());
        known.came[place].fill(true);
        if known.runs() > before && runs >= limits::PIECE_RANGES_MAX {
            known.came = came;
        }
        known.is_whole = known.came.iter().all(|came| *came);
    }

    fn is_broken(&self) -> bool {
        self.strikes >= STRIKES
    }
}

/// F11: pieces of eight reliable messages and some unreliable ones, in any order, with any bounds, some that disagree.
pub(crate) fn reassembly(data: &[u8]) {
    let mut input = Input::new(data);
    let mut puppet = Puppet::connected(1);
    let (mut model, mut held) = (Model::default(), 0);
    // No piece of an unreliable message names a packet that is yet to come.
    (0..8).for_each(|_| puppet.say(|writer| writer.padding(20)));
    let mut body = [0; 1_100];
    while !input.is_empty() && !model.is_broken() {
        let [what, length] = input.array();
        let (id, is_loose) = (u64::from(what % 8), what & 8 != 0);
        // One length for a message, unless this piece is to disagree.
        let total = TOTALS[usize::from(if what & 0x80 == 0 { what % 8 } else { what >> 4 & 7 })];
        let offset = u32::from(input.u16()) % total;
        let count = (u32::from(length) * 4 + 1).min(total - offset);
        let payload = bytes_of(id, offset, count);
        let (channel, delivery, number) = if is_loose {
            (LOOSE, Delivery::Unreliable, id)
        } else {
            model.take(id, total, offset, count);
            (RELIABLE, Delivery::ReliableUnordered { id: MessageId(id) }, 0)
        };
        let piece = Message { channel, delivery, payload: &payload };
        let mut writer = drumfire_wire::FrameWriter::new(&mut body[..]);
        writer
            .fragment(&Fragment { piece, number, total_bytes: total, offset_bytes: offset })
            .expect("a piece fits a packet");
        let written = writer.written_bytes();
        let mut datagram = puppet.datagram(&body[..written]);
        held += puppet.hand_counted(&mut datagram, |_, _| {});
        assert!(held <= RECEIVE_BYTES + AUDIT_BYTES, "{held} bytes held");
    }
    puppet.world.run(Duration::ZERO);
    let wanted = model.is_broken().then_some(CloseReason::Protocol(ProtocolError::PiecesDisagree));
    assert_eq!(puppet.ending(), wanted);
    let (mut reliable, mut loose) = (Vec::new(), Vec::new());
    for (channel, bytes) in puppet.world.messages(SERVER) {
        if channel == RELIABLE.0 { &mut reliable } else { &mut loose }.push(bytes);
    }
    let whole = model.known.iter().filter(|(_, known)| known.is_whole);
    let whole = whole.map(|(id, known)| bytes_of(*id, 0, u32::try_from(known.came.len()).unwrap_or(0)));
    let mut whole: Vec<_> = whole.collect();
    reliable.sort();
    whole.sort();
    assert!(reliable == whole, "{} messages came, {} are whole", reliable.len(), whole.len());
    for bytes in loose {
        let length = u32::try_from(bytes.len()).unwrap_or(0);
        assert!((0..8).any(|id| bytes == bytes_of(id, 0, length)), "bytes that nobody sent");
    }
}
