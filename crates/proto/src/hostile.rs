//! For tests only (feature `hostile`): an end that holds the keys and breaks the rules, and what a test sees of the end that must
//! not fall for it. The former seals other frames than the protocol wrote, or acknowledges what never came.

use std::collections::VecDeque;

use drumfire_crypto::{Entropy, Secret};
use drumfire_wire::varint;

/// Bodies of packets that are remembered.
const KEPT: usize = 32;

/// First bytes of frames that there are, and of some that there are not.
const KINDS: [u8; 22] = [
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x80, 0x81, 0x83, 0x85,
    0x88, 0x89, 0x8a, 0x8b, 0x9b,
];

/// What a test does to one end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tamper {
    /// From now on it seals other frames than it should, from this seed.
    BreakRules(u64),
    /// From now on its acks claim more than came.
    Claim(Claims),
    /// Nothing: a test only wants to look.
    Look,
}

/// What false acks claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claims {
    /// Everything before the newest packet, whether it came or not, as somebody does who wants to be sent more.
    Everything,
    /// Packets that were never sent.
    Unsent,
}

/// What one end of an open connection holds that a test judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inside {
    /// The number of its next packet.
    pub unused: u64,
    /// The newest packet of which it took in an ack.
    pub largest_acked: Option<u64>,
    /// Its probes that went unanswered since an ack brought something.
    pub probe_count: u32,
    /// The last packet number that it skipped, to find out who acknowledges what never came.
    pub skipped: Option<u64>,
    /// Bytes of messages that wait or were not acknowledged, charges included.
    pub send_bytes: usize,
    /// How many there may be.
    pub send_bytes_max: usize,
    /// Credit that it spent on reliable messages so far.
    pub credit_spent: u64,
    /// Credit of its peer that messages used up which came so far: never more than the peer spent.
    pub credit_used: u64,
    /// It keeps the keys of the epoch before, and will not forget them by itself.
    pub keeps_old_keys: bool,
}

/// Changes what one connection seals.
#[derive(Debug)]
pub(crate) struct Hostile {
    entropy: Entropy,
    kept: VecDeque<Vec<u8>>,
}

impl Hostile {
    pub(crate) fn new(seed: u64) -> Self {
        let (mut rest, mut bytes) = (seed, [0; 32]);
        bytes.fill_with(|| {
            rest = rest.rotate_left(8);
            rest.to_be_bytes().last().copied().unwrap_or(0)
        });
        Self { entropy: Entropy::from_seed(Secret::new(bytes)), kept: VecDeque::new() }
    }

    /// Leaves the frames of most packets as they are, and makes something else of the others.
    pub(crate) fn twist(&mut self, body: &mut [u8]) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(body.to_vec());
        match self.below(16) {
            0 => self.flip(body),
            1 => body.fill_with(|| self.byte()),
            2 => {
                let from = self.below(body.len());
                body.iter_mut().skip(from).for_each(|byte| *byte = 0);
            }
            3 => self.repeat(body),
            4 => {
                let by = self.below(body.len());
                body.rotate_left(by);
            }
            5 => self.invent(body),
            _ => {}
        }
    }

    fn flip(&mut self, body: &mut [u8]) {
        for _ in 0..=self.below(4) {
            let at = self.below(body.len());
            if let Some(byte) = body.get_mut(at) {
                *byte ^= self.byte();
            }
        }
    }

    /// The frames of an earlier packet, as far as they fit.
    fn repeat(&mut self, body: &mut [u8]) {
        let at = self.below(self.kept.len());
        let earlier = self.kept.get(at).into_iter().flatten().copied();
        body.iter_mut().zip(earlier.chain(std::iter::repeat(0))).for_each(|(byte, other)| *byte = other);
    }

    /// Frames that look like some, with numbers of every size.
    fn invent(&mut self, body: &mut [u8]) {
        let mut frames = Vec::new();
        while frames.len() < body.len() {
            let at = self.below(KINDS.len());
            frames.extend(KINDS.get(at));
            for _ in 0..self.below(6) {
                let size = u32::try_from(self.below(64)).unwrap_or(0);
                let number = u64::from_be_bytes(self.entropy.bytes()).checked_shr(size).unwrap_or(0);
                // A vector has room for every number.
                let _ = varint::encode(number, &mut frames);
            }
        }
        body.iter_mut().zip(frames).for_each(|(byte, other)| *byte = other);
    }

    fn byte(&mut self) -> u8 {
        u8::from_be_bytes(self.entropy.bytes())
    }

    fn below(&mut self, bound: usize) -> usize {
        let random = u32::from_be_bytes(self.entropy.bytes());
        usize::try_from(random).unwrap_or(0).checked_rem(bound).unwrap_or(0)
    }
}
