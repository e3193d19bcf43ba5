//! F9: two cores and the network between them, driven by a script, and compared with the promises of each mode.
//!
//! The script sends, advances the time, loses, delays, repeats, and changes datagrams, moves the client, changes keys early, and closes.
//! In every case, neither end finds that the other broke the protocol, no message arrives twice or changed, and reliable messages arrive
//! while the connection exists.

use std::time::Duration;

use allocation_counter::measure;
use drumfire_proto::{
    ClientConfig, Close, CloseCode, CloseReason, Config, Endpoint, Mode, PeerId, SendOptions,
};

use crate::counted::BOTH_BYTES;
use crate::harness::{CLEAN, CLIENT, Flying, Link, SERVER, Seen, World};
use crate::input::Input;

/// The mode of each channel.
const MODES: [Mode; 6] = [
    Mode::Unreliable,
    Mode::UnreliableSequenced,
    Mode::ReliableUnordered,
    Mode::ReliableOrdered,
    Mode::ReliableSequenced,
    Mode::ReliableLatest,
];
/// The number of keys of values.
const KEYS: usize = 3;
/// The bytes of the number at the start of each message.
const NUMBER_BYTES: usize = 4;
/// The memory of an endpoint's tables and queues.
const ENDPOINT_BYTES: i64 = 128 * 1_024;
/// The time in which all reliable messages arrive over a clean link.
const CALM: Duration = Duration::from_secs(40);

/// The two cores, and what the script did.
struct Script {
    world: World,
    peers: [PeerId; 2],
    /// The lengths of sent messages, by end and mode. The index is the number.
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

impl Script {
    fn new(changes_keys_often: bool, seed: u8) -> Self {
        let config = if changes_keys_often {
            Config::default().rekey(64, Duration::from_secs(1))
        } else {
            Config::default()
        };
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
        // A full queue or a closed connection refuses the message.
        if self.world.send(end, self.peers[end], channel, &message, options).is_ok() {
            self.sent[end][mode].push(message.len());
        }
    }

    /// Executes one line of the script.
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
            10..=12 => self.disturb_datagram(what, input.u8()),
            13 => {
                self.moves += 1;
                self.world.client_address.set_port(20_000 + self.moves);
            }
            14 => {
                let now = self.world.now();
                self.world.ends[CLIENT].change_path(now, self.peers[CLIENT]);
            }
            _ => {
                // Rarely, because little happens afterwards.
                if input.u8() == 0xff {
                    let close = Close { code: CloseCode::Application, application_code: 7, reason: b"" };
                    let now = self.world.now();
                    self.is_closed |= self.world.ends[end].close(now, self.peers[end], &close).is_ok();
                }
            }
        }
    }

    /// Loses or changes a datagram on its way, or repeats one that was sent at any time.
    fn disturb_datagram(&mut self, what: u8, which: u8) {
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
        let flying = self.world.flying.len().max(1);
        let Some((&key, _)) = self.world.flying.iter().nth(usize::from(which) % flying) else { return };
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

    /// Checks what must hold at any time, and with `is_calm` what must hold after a calm time.
    fn check(&self, is_calm: bool) {
        let endings = self.endings();
        for ending in &endings {
            let is_closed = matches!(ending, CloseReason::Local { .. } | CloseReason::Remote { .. });
            assert!(!is_closed || self.is_closed, "no end closed: {ending:?}");
            let is_wrong = matches!(ending, CloseReason::Protocol(_) | CloseReason::KeyLimit);
            assert!(!is_wrong, "both ends follow the protocol: {ending:?}");
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
        assert!(rises(&sorted), "{what:?}: no message twice");
        match what {
            Mode::UnreliableSequenced => assert!(rises(numbers), "{what:?}: in order"),
            Mode::ReliableUnordered => assert!(!is_over || numbers.len() == count, "{what:?}: all messages"),
            Mode::ReliableOrdered => {
                assert!(numbers.iter().copied().eq(0..numbers.len()), "{what:?}: in order");
                assert!(!is_over || numbers.len() == count, "{what:?}: all messages");
            }
            Mode::ReliableSequenced => {
                assert!(rises(numbers), "{what:?}: in order");
                assert!(
                    !is_over || numbers.last().copied() == count.checked_sub(1),
                    "{what:?}: the last message"
                );
            }
            Mode::ReliableLatest => {
                for key in 0..KEYS.min(count) {
                    let of_key = |number: &usize| number % KEYS == key;
                    let came: Vec<_> = numbers.iter().copied().filter(of_key).collect();
                    assert!(rises(&came), "{what:?}: in order");
                    let newest = (0..count).rev().find(of_key);
                    assert!(!is_over || came.last().copied() == newest, "{what:?}: the newest value");
                }
            }
            // Unreliable messages have no further promise.
            _ => {}
        }
    }
}

/// F9.
pub(crate) fn play(data: &[u8]) {
    let mut input = Input::new(data);
    let [how, seed] = input.array();
    let mut script = Script::new(how & 1 != 0, seed);
    while !input.is_empty() {
        script.step(&mut input);
    }
    script.check(false);
    if how & 2 == 0 {
        script.world.link = CLEAN;
        script.world.run(CALM);
        script.check(true);
    }
    let [client, server] = script.world.ends;
    for end in [client, server] {
        let held = held(end);
        assert!(held <= BOTH_BYTES + ENDPOINT_BYTES, "{held} bytes held");
    }
}

/// Returns the memory that an endpoint holds.
fn held(end: Endpoint) -> i64 {
    -measure(|| drop(end)).bytes_current
}
