//! F9: two cores and the network between them, driven by a script, and compared with the promises of each mode.
//!
//! The script sends, advances the time, loses, delays, repeats, and changes datagrams, moves the client, changes keys early, and closes.
//! In every case, neither end finds that the other broke the protocol, no message arrives twice or changed, and reliable messages arrive
//! while the connection exists.

use std::time::Duration;

use allocation_counter::measure;
use drumfire::conditioner::Random;
use drumfire_proto::{
    ChannelId, ClientConfig, Close, CloseCode, CloseReason, Config, Endpoint, Mode, PeerId, SendOptions,
};

use crate::counted::BOTH_BYTES;
use crate::harness::{CLEAN, CLIENT, InFlightDatagram, Link, Seen, World};
use crate::input::Input;
use crate::traffic::Flow;

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
const KEYS: u64 = 3;
/// The memory of an endpoint's tables and queues.
const ENDPOINT_BYTES: i64 = 128 * 1_024;
/// The time in which all reliable messages arrive over a clean link.
const CALM: Duration = Duration::from_secs(40);

/// The two cores, and the actions of the script.
struct Script {
    world: World,
    peers: [PeerId; 2],
    /// The messages of each end.
    flows: [Flow; 2],
    random: Random,
    moves: u16,
    is_closed: bool,
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
        let random = Random::new(seed.into());
        Self { world, peers: [client, server], flows: Default::default(), random, moves: 0, is_closed: false }
    }

    fn send(&mut self, end: usize, channel: u8, bytes: usize) {
        let flow = &mut self.flows[end];
        let options = match MODES[usize::from(channel)] {
            Mode::ReliableLatest => SendOptions::reliable_latest(flow.sent() % KEYS),
            other => SendOptions::new(other),
        };
        let message = flow.next(options, bytes, &mut self.random);
        // A full queue or a closed connection refuses the message.
        if self.world.send(end, self.peers[end], channel.into(), &message, options).is_ok() {
            flow.on_sent(channel.into(), options, message, None);
        }
    }

    /// Executes one line of the script.
    fn step(&mut self, input: &mut Input<'_>) {
        let what = input.u8();
        let end = usize::from(what >> 7);
        match what % 16 {
            0..=4 => {
                let channel = input.u8() % 6;
                let bytes = if what & 0x40 == 0 { input.u8().into() } else { input.u16() % 8_192 };
                self.send(end, channel, bytes.into());
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
            self.world.inject(at, InFlightDatagram { from: address, to: 1 - from, bytes });
            return;
        }
        let count = self.world.in_flight.len().max(1);
        let Some((&key, _)) = self.world.in_flight.iter().nth(usize::from(which) % count) else { return };
        let Some(mut datagram) = self.world.in_flight.remove(&key) else { return };
        if what % 16 == 11 {
            let at = usize::from(which) % datagram.bytes.len();
            datagram.bytes[at] ^= what | 1;
            let late = self.world.now.after(Duration::from_millis(which.into()));
            self.world.inject(late, datagram);
        }
    }

    fn endings(&self) -> Vec<CloseReason> {
        let ended = self.world.seen.iter().flatten().filter_map(|(_, _, seen)| match seen {
            Seen::Disconnected(reason, _) => Some(*reason),
            _ => None,
        });
        ended.collect()
    }

    /// Checks messages and connections. With `is_calm`, all promised messages must have arrived.
    fn check(&mut self, is_calm: bool) {
        let endings = self.endings();
        for ending in &endings {
            let is_closed = matches!(ending, CloseReason::Local { .. } | CloseReason::Remote { .. });
            assert!(!is_closed || self.is_closed, "no end closed: {ending:?}");
            let is_wrong = matches!(ending, CloseReason::Protocol(_) | CloseReason::KeyLimit);
            assert!(!is_wrong, "both ends follow the protocol: {ending:?}");
        }
        for (end, flow) in self.flows.iter_mut().enumerate() {
            for (channel, bytes) in self.world.messages(1 - end) {
                assert_eq!(flow.on_delivered(ChannelId(channel), &bytes), Ok(()));
            }
            if is_calm && endings.is_empty() {
                assert_eq!(flow.missing(), None);
            }
        }
    }
}

/// F9: executes a script and checks both cores.
pub(crate) fn play(data: &[u8]) {
    let mut input = Input::new(data);
    let [how, seed] = input.array();
    let mut script = Script::new(how & 1 != 0, seed);
    while !input.is_empty() {
        script.step(&mut input);
    }
    let is_calm = how & 2 == 0;
    if is_calm {
        script.world.link = CLEAN;
        script.world.run(CALM);
    }
    script.check(is_calm);
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
