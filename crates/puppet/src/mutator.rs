//! Changes the frames of packets before they are sealed: the other end opens them and must cope with their content.

use std::collections::VecDeque;

use drumfire_wire::varint;

use crate::random::Random;

/// Frames of packets that are remembered.
const KEPT: usize = 32;

/// First bytes of frames that exist, and of some that do not.
const KINDS: [u8; 22] = [
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x80, 0x81, 0x83, 0x85,
    0x88, 0x89, 0x8a, 0x8b, 0x9b,
];

/// Changes the frames of one connection.
#[derive(Debug, Default)]
pub(crate) struct FrameMutator {
    kept: VecDeque<Vec<u8>>,
}

impl FrameMutator {
    /// Leaves the frames of most packets as they are, and changes those of the others.
    pub(crate) fn apply(&mut self, random: &mut Random, frames: &mut [u8]) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(frames.to_vec());
        match random.below(16) {
            0 => flip(random, frames),
            1 => frames.fill_with(|| byte(random)),
            2 => {
                let from = random.index(frames.len());
                frames[from..].fill(0);
            }
            3 => {
                let earlier = self.kept[random.index(self.kept.len())].iter().copied();
                let padded = earlier.chain(std::iter::repeat(0));
                frames.iter_mut().zip(padded).for_each(|(byte, other)| *byte = other);
            }
            4 => {
                let by = random.index(frames.len());
                frames.rotate_left(by);
            }
            5 => invent(random, frames),
            _ => {}
        }
    }
}

fn flip(random: &mut Random, frames: &mut [u8]) {
    for _ in 0..=random.below(4) {
        let at = random.index(frames.len());
        frames[at] ^= byte(random);
    }
}

/// Writes bytes that begin like frames, with numbers of every size.
fn invent(random: &mut Random, frames: &mut [u8]) {
    let mut invented = Vec::new();
    while invented.len() < frames.len() {
        invented.push(random.pick(&KINDS));
        for _ in 0..random.below(6) {
            let number = random.bits() >> random.below(64);
            // Numbers of more than 62 bits have no encoding, and are left out.
            let _ = varint::encode(number, &mut invented);
        }
    }
    frames.copy_from_slice(&invented[..frames.len()]);
}

fn byte(random: &mut Random) -> u8 {
    random.bits().to_be_bytes()[0]
}
