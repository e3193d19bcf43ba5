//! F9: two cores and the network between them, driven by a script, against a model of what each mode promises.
//!
//! The script sends, lets time pass, loses, delays, repeats and changes datagrams, moves the client, changes keys early, and
//! closes. Whatever it does, no honest end finds that the other broke the protocol, nothing comes twice or changed, and what
//! is reliable comes as long as the connection lives.

use std::time::Duration;

use allocation_counter::measure;
use drumfire_proto::{
    ClientConfig, Close, CloseCode, CloseReason, Config, Endpoint, Mode, PeerId, SendOptions,
};

use crate::counted::BOTH_BYTES;
use crate::harness::{CLEAN, CLIENT, Flying, Link, SERVER, Seen, World};
use crate::input::Input;

/// Each on a channel of its own, so that what arrives says how it was sent.
const MODES: [Mode; 6] = [
    Mode::Unreliable,
    Mode::UnreliableSequenced,
    Mode::ReliableUnordered,
    Mode::ReliableOrdered,
    Mode::ReliableSequenced,
    Mode::ReliableLatest,
];
/// Keys of values.
const KEYS: usize = 3;
/// Bytes of the number that every message begins with.
const NUMBER_BYTES: usize = 4;
/// What an endpoint takes beside its connection: its tables and queues.
const ENDPOINT_BYTES: i64 = 128 * 1_024;
/// Long enough for everything that is reliable to come over a clean link.
const CALM: Duration = Duration::from_secs(40);

/// What the script did and what must come of it.
struct Play {
    world: World,
    peers: [PeerId; 2],
    /// Lengths of what was sent, by end and mode; the place is the number.
    sent: [[Vec<usize>; 6]; 2],
    moves: u16,
    is_closed: bool,
}

fn message(mode: usize, number: usize, bytes: usize) -> Vec<u8> {
    let number = u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
    let fill = number[3] ^ u8::try_from(mode).unwrap_or(0);
    let mut message = vec![fill; bytes.max(NUMBER_BYTES)];
    message[..NUMBER_BYTES].copy_from_slice(&number);
    message
}

impl Play {
    fn new(is_restless: bool, seed: u8) -> Self {
        let config =
            if is_restless { Config::default().rekey(64, Duration::from_secs(1)) } else { Config::default() };
        let mut world = World::with(seed.into(), CLEAN, config, ClientConfig::default());
        let (client, server) = world.connected();
        Self { world, peers: [client, server], sent: Default::default(), moves: 0, is_closed: false }
    }

    fn send(&mut self, end: usize, mode: usize, bytes: usize) {
        let number = self.sent[end][mode].len();
        let message = message(mode, number, bytes);
        let options = match MODES[mode] {
            Mode::ReliableLatest => SendOptions::reliable_latest((number % KEYS) as u64),
            other => SendOptions::new(other),
        };
        let channel = u16::try_from(mode).unwrap_or(0);
        // What does not fit, or comes after the end, was not sent.
        if self.world.send(end, self.peers[end], channel, &message, options).is_ok() {
            self.sent[end][mode].push(message.len());
        }
    }

    /// One line of the script.
    fn step(&mut self, input: &mut Input<'_>) {
        let what = input.u8();
        let end = usize::from(what >> 7);
        match what % 16 {
            0..=4 => {
                let mode = usize::from(input.u8() % 6);
                let bytes = if what & 0x40 == 0 { input.u8().into() } else { input.u16() % 8_192 };
                self.send(end, mode, bytes.into());
            }
            5 | 6 => self.world.run(Duration::from_millis(input.u8().into())),
            7 => self.world.run(Duration::from_millis(input.u16().into())),
            8 => {
                let [loss, duplicate, corrupt, delay, jitter] = input.array();
                let ms = |byte: u8| Duration::from_millis(byte.into());
                self.world.link = Link {
                    loss: u64::from(loss) % 101,
                    duplicate: u64::from(duplicate) % 51,
                    corrupt: u64::from(corrupt) % 51,
                    delay: ms(delay),
                    jitter: ms(jitter),
                };
            }
            9 => self.world.link = CLEAN,
            10..=12 => self.meddle(what, input.u8()),
            13 => {
                self.moves += 1;
                self.world.client_address.set_port(20_000 + self.moves);
            }
            14 => {
                let now = self.world.now();
                self.world.ends[CLIENT].change_path(now, self.peers[CLIENT]);
            }
            _ => {
                // Seldom: after it little happens.
                if input.u8() == 0xff {
                    let close = Close { code: CloseCode::Application, application_code: 7, reason: b"" };
                    let now = self.world.now();
                    self.is_closed |= self.world.ends[end].close(now, self.peers[end], &close).is_ok();
                }
            }
        }
    }

    /// Takes a datagram that is under way, or was sent at any time, and loses, changes or repeats it.
    fn meddle(&mut self, what: u8, which: u8) {
        self.world.flush();
        if what % 16 == 12 {
            let Some((_, from, bytes)) = self.world.sent.iter().rev().nth(which.into()).cloned() else {
                return;
            };
            let address = crate::harness::address(from);
            let at = self.world.now;
            self.world.inject(at, Flying { from: address, to: 1 - from, bytes });
            return;
        }
        let under_way = self.world.flying.len().max(1);
        let Some((&key, _)) = self.world.flying.iter().nth(usize::from(which) % under_way) else { return };
        let Some(mut flying) = self.world.flying.remove(&key) else { return };
        if what % 16 == 11 {
            let at = usize::from(which) % flying.bytes.len();
            flying.bytes[at] ^= what | 1;
            let late = self.world.now.after(Duration::from_millis(which.into()));
            self.world.inject(late, flying);
        }
    }

    fn endings(&self) -> Vec<CloseReason> {
        let ended = self.world.seen.iter().flatten().filter_map(|(_, _, seen)| match seen {
            Seen::Disconnected(reason, _) => Some(*reason),
            _ => None,
        });
        ended.collect()
    }

    /// What must hold at any time, and once the link was calm for long.
    fn check(&self, is_calm: bool) {
        let endings = self.endings();
        for ending in &endings {
            let is_closed = matches!(ending, CloseReason::Local { .. } | CloseReason::Remote { .. });
            assert!(!is_closed || self.is_closed, "nobody closed: {ending:?}");
            let is_wrong = matches!(ending, CloseReason::Protocol(_) | CloseReason::KeyLimit);
            assert!(!is_wrong, "both ends keep to the protocol: {ending:?}");
        }
        for end in [CLIENT, SERVER] {
            let mut numbers: [Vec<usize>; 6] = Default::default();
            for (channel, bytes) in self.world.messages(1 - end) {
                let mode = usize::from(channel);
                let (head, _) = bytes.split_first_chunk::<NUMBER_BYTES>().expect("a number");
                let number = u32::from_be_bytes(*head) as usize;
                let length = self.sent[end][mode].get(number).copied();
                assert_eq!(Some(bytes.len()), length, "a message that was sent");
                assert!(bytes == message(mode, number, bytes.len()), "its bytes are as they were");
                numbers[mode].push(number);
            }
            for (mode, numbers) in numbers.iter().enumerate() {
                self.check_mode(end, mode, numbers, is_calm && endings.is_empty());
            }
        }
    }

    /// That what came is in order and nothing came twice; and where everything `is_over`, that what must come did.
    fn check_mode(&self, end: usize, mode: usize, numbers: &[usize], is_over: bool) {
        let count = self.sent[end][mode].len();
        let rises = |numbers: &[usize]| numbers.windows(2).all(|pair| pair[0] < pair[1]);
        let mut sorted = numbers.to_vec();
        sorted.sort_unstable();
        let what = MODES[mode];
        assert!(rises(&sorted), "{what:?}: nothing comes twice");
        match what {
            Mode::UnreliableSequenced => assert!(rises(numbers), "{what:?}: in order"),
            Mode::ReliableUnordered => assert!(!is_over || numbers.len() == count, "{what:?}: all come"),
            Mode::ReliableOrdered => {
                assert!(numbers.iter().copied().eq(0..numbers.len()), "{what:?}: in order");
                assert!(!is_over || numbers.len() == count, "{what:?}: all come");
            }
            Mode::ReliableSequenced => {
                assert!(rises(numbers), "{what:?}: in order");
                assert!(
                    !is_over || numbers.last().copied() == count.checked_sub(1),
                    "{what:?}: the last comes"
                );
            }
            Mode::ReliableLatest => {
                for key in 0..KEYS.min(count) {
                    let of_key = |number: &usize| number % KEYS == key;
                    let came: Vec<_> = numbers.iter().copied().filter(of_key).collect();
                    assert!(rises(&came), "{what:?}: in order");
                    let newest = (0..count).rev().find(of_key);
                    assert!(!is_over || came.last().copied() == newest, "{what:?}: the newest comes");
                }
            }
            // The mode that promises nothing more.
            _ => {}
        }
    }
}

/// F9.
pub(crate) fn play(data: &[u8]) {
    let mut input = Input::new(data);
    let [how, seed] = input.array();
    let mut play = Play::new(how & 1 != 0, seed);
    while !input.is_empty() {
        play.step(&mut input);
    }
    play.check(false);
    if how & 2 == 0 {
        play.world.link = CLEAN;
        play.world.run(CALM);
        play.check(true);
    }
    let [client, server] = play.world.ends;
    for end in [client, server] {
        let held = held(end);
        assert!(held <= BOTH_BYTES + ENDPOINT_BYTES, "{held} bytes held");
    }
}

/// What an endpoint holds: what comes back when it goes.
fn held(end: Endpoint) -> i64 {
    -measure(|| drop(end)).bytes_current
}
