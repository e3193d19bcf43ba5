//! An end that performs an honest handshake, and later breaks the rules under its own keys, in one way that is drawn from a seed.
//!
//! It owns no socket and no clock: its owner passes the datagrams of the other end to it and calls it for each turn. It
//! has one connection in its life.

use std::collections::VecDeque;

use drumfire_crypto::{Secret, ServerKeyPair};
use drumfire_wire::{AckRange, FrameWriter, Hello, varint};

use crate::connection::Connection;
use crate::frame::{DrawnFrame, range};
use crate::handshake::{Handshake, accept_hello, server_parameters};
use crate::random::Random;
use crate::sender::Sender;
use crate::swarm::{AckChoice, Swarm};

/// Turns between two Hellos.
const HELLO_TURNS: u64 = 4;

/// The maximum number of turns in which a connected end keeps to the rules.
const HONEST_TURNS_MAX: u64 = 40;

/// The maximum number of packets in a turn.
const PACKETS_MAX: u64 = 3;

/// The maximum length in bytes of the frames of a packet: with the header and the tag, the packet fits every path.
const FRAMES_MAX_BYTES: usize = 1_150;

/// The minimum length in bytes of the frames of a packet to a client, which has no connection id (PROTOCOL 6.1,
/// "Header").
const FRAMES_MIN_BYTES: usize = 7;

/// The furthest number beyond the newest packet that false acks claim.
const UNSENT_MAX: u64 = 1 << 10;

/// The way in which an end breaks the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strategy {
    /// It seals changed frames.
    Mutate,
    /// It acknowledges all numbers up to the newest, also those of lost packets and those that were skipped.
    AckEverything,
    /// It acknowledges packets that were never sent.
    AckUnsent,
    /// It acknowledges nothing.
    AckNothing,
    /// It retires connection ids that it continues to use, and issues ids without end.
    Ids,
    /// It sends random bytes, sealed and unsealed.
    Junk,
    /// It sends the frames of a [`Sender`].
    Drawn,
}

const STRATEGIES: [Strategy; 8] = [
    Strategy::Mutate,
    Strategy::AckEverything,
    // Twice as often, because it shows only on a connection that sent hundreds of packets.
    Strategy::AckEverything,
    Strategy::AckUnsent,
    Strategy::AckNothing,
    Strategy::Ids,
    Strategy::Junk,
    Strategy::Drawn,
];

/// A hostile end.
pub struct HostileEnd {
    phase: Phase,
    strategy: Strategy,
    random: Random,
    mutator: FrameMutator,
    turns: u64,
    honest_turns: u64,
}

enum Phase {
    /// A client that waits for its Welcome.
    Connecting(Box<Handshake>),
    /// A server that waits for a Hello.
    Listening(Box<ServerKeyPair>),
    Connected(Box<Connected>),
}

struct Connected {
    connection: Connection,
    sender: Sender,
    /// The Welcome of a server, for a client that did not receive it.
    welcome: Option<Vec<u8>>,
}

impl HostileEnd {
    /// Returns a client of the server that has this public key.
    ///
    /// # Panics
    ///
    /// Panics if the public key is one of the few that are not valid.
    #[must_use]
    pub fn client(server_key: &[u8; 32], seed: u64) -> Self {
        let mut random = Random::of_seed(seed);
        let handshake = Handshake::begin(server_key, random.bits().to_be_bytes(), random.secret());
        Self::new(Phase::Connecting(Box::new(handshake)), random)
    }

    /// Returns a server with this secret key, for one client.
    #[must_use]
    pub fn server(secret_key: [u8; 32], seed: u64) -> Self {
        let keys = ServerKeyPair::from_secret(Secret::new(secret_key));
        Self::new(Phase::Listening(Box::new(keys)), Random::of_seed(seed))
    }

    fn new(phase: Phase, mut random: Random) -> Self {
        let strategy = random.pick(&STRATEGIES);
        let honest_turns = random.below(HONEST_TURNS_MAX);
        Self { phase, strategy, random, mutator: FrameMutator::default(), turns: 0, honest_turns }
    }

    /// Handles a datagram of the other end. Returns the reply of the handshake, if the datagram has one.
    pub fn on_datagram(&mut self, datagram: Vec<u8>) -> Option<Vec<u8>> {
        match &mut self.phase {
            Phase::Connecting(handshake) => {
                if handshake.on_retry(&datagram) {
                    return Some(handshake.hello());
                }
                let connection = handshake.on_welcome(&datagram)?;
                self.connect(connection, None);
                None
            }
            Phase::Listening(keys) => {
                let hello = Hello::decode(&datagram).ok()?;
                let parameters = server_parameters(self.random.bits().to_be_bytes());
                let ephemeral = Secret::new(self.random.secret());
                let (connection, welcome) =
                    accept_hello(keys, &hello, &parameters, &ephemeral, |_| {}).ok()?;
                self.connect(connection, Some(welcome.clone()));
                Some(welcome)
            }
            Phase::Connected(connected) => {
                // A client that did not receive the Welcome repeats its Hello.
                if Hello::decode(&datagram).is_ok() {
                    return connected.welcome.clone();
                }
                let packet = connected.connection.open(datagram)?;
                connected.sender.on_packet(&packet);
                None
            }
        }
    }

    fn connect(&mut self, connection: Connection, welcome: Option<Vec<u8>>) {
        let swarm = Swarm::draw(&mut self.random);
        let sender = Sender::new(&swarm, self.random.clone(), connection.peer_parameters());
        self.turns = 0;
        self.phase = Phase::Connected(Box::new(Connected { connection, sender, welcome }));
    }

    /// Returns the datagrams of the next turn.
    pub fn turn(&mut self) -> Vec<Vec<u8>> {
        let turn = self.turns;
        self.turns += 1;
        let connected = match &mut self.phase {
            Phase::Connecting(handshake) if turn.is_multiple_of(HELLO_TURNS) => {
                return vec![handshake.hello()];
            }
            Phase::Connecting(_) | Phase::Listening(_) => return Vec::new(),
            Phase::Connected(connected) => connected,
        };
        if turn < self.honest_turns {
            return vec![connected.honest()];
        }
        let (random, mutator) = (&mut self.random, &mut self.mutator);
        let count = 1 + random.below(PACKETS_MAX);
        let mut packet = || match self.strategy {
            Strategy::Mutate => {
                let mut frames =
                    if random.happens(50) { connected.draw() } else { frames(&connected.answers()) };
                mutator.apply(random, &mut frames);
                connected.connection.datagram(&frames)
            }
            Strategy::AckEverything => connected.false_ack(|newest| range(0, newest)),
            Strategy::AckUnsent => {
                let ahead = 1 + random.below(UNSENT_MAX);
                connected.false_ack(|newest| range(newest + ahead, newest + ahead))
            }
            Strategy::AckNothing => connected.seal(&[DrawnFrame::Ping]),
            Strategy::Ids => {
                let id = random.below(9);
                let frame = match random.below(3) {
                    0 => DrawnFrame::NewConnectionId(self.turns + id),
                    _ => DrawnFrame::RetireConnectionId(id),
                };
                let mut frames = connected.answers();
                frames.push(frame);
                connected.seal(&frames)
            }
            Strategy::Junk => {
                let bytes = random.index(FRAMES_MAX_BYTES).max(FRAMES_MIN_BYTES);
                let junk: Vec<u8> = (0..bytes).map(|_| random.bits().to_be_bytes()[0]).collect();
                if random.happens(50) { connected.connection.datagram(&junk) } else { junk }
            }
            Strategy::Drawn => {
                let frames = connected.draw();
                let datagram = connected.connection.datagram(&frames);
                if connected.sender.changes_keys() {
                    connected.connection.change_keys();
                }
                datagram
            }
        };
        (0..count).map(|_| packet()).collect()
    }
}

impl Connected {
    /// Returns a packet that keeps to the rules.
    fn honest(&mut self) -> Vec<u8> {
        let mut frames = self.answers();
        frames.push(DrawnFrame::Ping);
        self.seal(&frames)
    }

    /// Returns a packet whose ack claims a range of numbers, given the newest number that arrived.
    fn false_ack(&mut self, claim: impl FnOnce(u64) -> AckRange) -> Vec<u8> {
        let mut frames = self.answers();
        if let Some(DrawnFrame::Ack { ranges, .. }) = frames.first_mut()
            && let Some(newest) = ranges.first().map(|newest| newest.largest().0)
        {
            *ranges = vec![claim(newest)];
        }
        // The other end answers each packet, and soon reaches a number that it skips.
        frames.push(DrawnFrame::AckRequest);
        self.seal(&frames)
    }

    /// Returns the frames that keep the connection open and the other end sending: an ack, if any packet arrived, and
    /// the replies.
    fn answers(&mut self) -> Vec<DrawnFrame> {
        let mut frames: Vec<_> = self.sender.ack(AckChoice::All).into_iter().collect();
        frames.extend(self.sender.take_challenge().map(DrawnFrame::PathResponse));
        frames.push(DrawnFrame::Credit(self.sender.credit_for_received()));
        frames
    }

    /// Draws frames, as far as the state of the connection is known.
    fn draw(&mut self) -> Vec<u8> {
        self.sender.draw(self.connection.next_number(), FRAMES_MAX_BYTES)
    }

    fn seal(&mut self, drawn: &[DrawnFrame]) -> Vec<u8> {
        self.connection.datagram(&frames(drawn))
    }
}

/// Writes frames, with padding up to the shortest length.
fn frames(drawn: &[DrawnFrame]) -> Vec<u8> {
    let mut memory = vec![0; FRAMES_MAX_BYTES];
    let mut writer = FrameWriter::new(&mut memory[..]);
    for frame in drawn {
        // A frame without room is left out.
        let _ = frame.write(&mut writer);
    }
    let written = writer.written_bytes().max(FRAMES_MIN_BYTES);
    memory.truncate(written);
    memory
}

/// Frames of packets that are remembered.
const KEPT: usize = 32;

/// First bytes of frames that exist, and of some that do not.
const KINDS: [u8; 22] = [
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x80, 0x81, 0x83, 0x85,
    0x88, 0x89, 0x8a, 0x8b, 0x9b,
];

/// Changes the frames of one connection before they are sealed, so that the other end opens and must handle invalid
/// frames.
#[derive(Debug, Default)]
struct FrameMutator {
    kept: VecDeque<Vec<u8>>,
}

impl FrameMutator {
    /// Leaves the frames of most packets as they are, and changes those of the others.
    fn apply(&mut self, random: &mut Random, frames: &mut [u8]) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_ends_connect_and_survive_each_other() {
        let secret = [1; 32];
        let public = *ServerKeyPair::from_secret(Secret::new(secret)).public();
        let mut strategies = Vec::new();
        for seed in 0..64 {
            let mut ends = [HostileEnd::client(&public, seed), HostileEnd::server(secret, !seed)];
            for _ in 0..200 {
                for (from, to) in [(0, 1), (1, 0)] {
                    for datagram in ends[from].turn() {
                        if let Some(answer) = ends[to].on_datagram(datagram) {
                            ends[from].on_datagram(answer);
                        }
                    }
                }
            }
            assert!(ends.iter().all(|end| matches!(end.phase, Phase::Connected(_))), "seed {seed}");
            strategies.extend(ends.map(|end| end.strategy));
        }
        assert!(STRATEGIES.iter().all(|strategy| strategies.contains(strategy)), "{strategies:?}");
    }
}
