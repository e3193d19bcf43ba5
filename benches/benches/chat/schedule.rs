//! Who says what and when: the same for the same seed, whoever carries it. Each client speaks every 0.5 to 1 s, 15 to 58 bytes.
//!
//! Times are fixed beforehand: they do not wait for answers, and latency counts from them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::plan::Plan;

/// Shortest time between two messages of a client and how much longer it may be, in nanoseconds, at 100 %.
const GAP_NS: u64 = 500_000_000;

const MESSAGE_BYTES: std::ops::RangeInclusive<u64> = 15..=58;

/// Bytes of a message that say when, who and which.
const STAMP_BYTES: usize = 14;

/// The longest message.
pub(crate) const MESSAGE_MAX_BYTES: usize = 58;

/// Turns that are later than this are left out, and counted: whoever was not there did not speak.
const LATE_MAX_NS: u64 = 1_000_000_000;

/// What some clients of a run are to say.
#[derive(Debug)]
pub(crate) struct Schedule {
    due: BinaryHeap<Reverse<(u64, usize)>>,
    clients: Vec<Speaker>,
    first: u32,
    gap_ns: u64,
}

#[derive(Debug)]
struct Speaker {
    dice: Dice,
    said: u32,
}

/// A message that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Which of these clients.
    pub(crate) place: usize,
    /// When it was to be said, from the start on, in nanoseconds.
    pub(crate) at_ns: u64,
    pub(crate) stamp: Stamp,
    pub(crate) length: usize,
    /// It is too late for it.
    pub(crate) is_over: bool,
}

/// What a message says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// When it was to be said, by the host's clock.
    pub(crate) due_ns: u64,
    pub(crate) speaker: u16,
    /// Which of the speaker's, from 1; those that were left out have none.
    pub(crate) number: u32,
}

impl Schedule {
    /// For the clients of a plan from `first` on, so many.
    pub(crate) fn new(plan: Plan, first: u32, count: u32) -> Self {
        let gap_ns = GAP_NS * 100 / u64::from(plan.speed.max(1));
        let mut schedule = Self { due: BinaryHeap::new(), clients: Vec::new(), first, gap_ns };
        for place in 0..count {
            // Each draws from dice of its own, so that it does not matter who shares a socket with whom.
            let mut dice = Dice(plan.seed ^ u64::from(first + place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let at = dice.below(2 * gap_ns);
            schedule.clients.push(Speaker { dice, said: 0 });
            schedule.due.push(Reverse((at, place as usize)));
        }
        schedule
    }

    /// The next message that is due so long after `start_ns`, and was before `end_ns`, both by the host's clock.
    pub(crate) fn next(&mut self, now_ns: u64, start_ns: u64, end_ns: u64) -> Option<Turn> {
        let &Reverse((at_ns, place)) = self.due.peek()?;
        let due_ns = start_ns + at_ns;
        if due_ns > now_ns || due_ns >= end_ns {
            return None;
        }
        self.due.pop();
        let speaker = self.clients.get_mut(place)?;
        self.due.push(Reverse((at_ns + self.gap_ns + speaker.dice.below(self.gap_ns), place)));
        let (least, most) = MESSAGE_BYTES.into_inner();
        let length = usize::try_from(least + speaker.dice.below(most - least + 1)).ok()?;
        let number = speaker.said + 1;
        let stamp = Stamp { due_ns, speaker: u16::try_from(self.first as usize + place).ok()?, number };
        Some(Turn { place, at_ns, stamp, length, is_over: now_ns - due_ns > LATE_MAX_NS })
    }

    /// A message was taken: the next of this client has the next number.
    pub(crate) fn said(&mut self, place: usize) {
        if let Some(speaker) = self.clients.get_mut(place) {
            speaker.said += 1;
        }
    }
}

impl Turn {
    /// The message.
    pub(crate) fn write<'a>(&self, memory: &'a mut [u8; MESSAGE_MAX_BYTES]) -> &'a [u8] {
        memory.fill(b'~');
        memory[..8].copy_from_slice(&self.stamp.due_ns.to_be_bytes());
        memory[8..10].copy_from_slice(&self.stamp.speaker.to_be_bytes());
        memory[10..STAMP_BYTES].copy_from_slice(&self.stamp.number.to_be_bytes());
        &memory[..self.length]
    }
}

impl Stamp {
    /// What a message says of itself; nothing when it is none of these.
    pub(crate) fn read(message: &[u8]) -> Option<Self> {
        let (due, rest) = message.split_first_chunk()?;
        let (speaker, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let is_ours = message.len() <= MESSAGE_MAX_BYTES && rest.iter().all(|byte| *byte == b'~');
        is_ours.then(|| Self {
            due_ns: u64::from_be_bytes(*due),
            speaker: u16::from_be_bytes(*speaker),
            number: u32::from_be_bytes(*number),
        })
    }
}

/// Numbers that look drawn, by SplitMix64.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }
}
