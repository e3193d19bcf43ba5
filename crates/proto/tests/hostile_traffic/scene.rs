//! One seed: hostile clients that send frames from their swarms, an honest client, and the invariants after every
//! packet.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::{PeerId, limits};
use drumfire_puppet::{Connection, DrawnFrame, Handshake, Random, Sender};
use drumfire_wire::{ChannelId, Close, CloseCode, Delivery, FrameWriter};

use crate::applications::Application;
use crate::coverage::Coverage;
use crate::plan::{Phase, Reads, Sends, Setting};
use crate::seeds::{Invariant, is_checked, usual_seeds};
use crate::violation::{Violation, caught, run_all};
use crate::world::{SourceFilter, World, server_key};

/// Memory of a busy connection in addition to messages: expanded keys, the state of its path, the flight recorder, and the records of
/// packets in flight.
const BUSY_BYTES: i64 = 13 * 1_024 + 512;

/// Memory of the honest client's connection in addition to that: its messages are few and short.
const HONEST_BYTES: i64 = 12 * 1_024;

/// Charges of the honest client's messages, at most.
const HONEST_CHARGES: usize = 12 * 1_024;

/// Memory of 64 message ids in the receive window, in addition to the memory for messages. The window begins with the word of
/// the lowest missing id, and ends with that of the newest id.
const WORD_BYTES: usize = 16;

/// The maximum memory of one receive window: the words of the lowest missing id and of all ids that can be ahead of it.
const WINDOW_MAX_BYTES: usize = (16 * 1_024 / 64 + 1) * WORD_BYTES;
const _: () = assert!(limits::MESSAGE_IDS_AHEAD == 16 * 1_024, "the window has another size");

/// Growth of a connection's tables of keys and ids by one packet, which is charged afterwards.
const TABLE_BYTES: usize = 2 * 1_024;

/// Memory of a closed connection, until it is forgotten.
const CLOSING_BYTES: i64 = 2 * 1_024;

/// Connections of a hostile client in a seed, one after the other, and in a phase.
const CONNECTIONS_MAX: u32 = 32;
const PHASE_CONNECTIONS_MAX: u32 = 3;

/// The time until a closed connection is forgotten.
const LINGER: Duration = Duration::from_secs(2);

/// Packets of one seed.
const PACKETS: u64 = 1_500;

/// Hostile packets between two messages of the honest client.
const HONEST_EVERY: u64 = 8;

/// Messages of the honest client that the application has not read, at most.
const HONEST_AHEAD_MAX: u64 = 64;

/// Messages in flight to the honest client, at most.
const SERVER_AHEAD_MAX: usize = 64;

/// Bytes of frames in a packet of 1,200 bytes.
const ROOM: usize = 1_170;

/// One hostile client.
struct Hostile {
    number: u8,
    client: Connection,
    sender: Sender,
    peer: PeerId,
    address: SocketAddr,
    connections: u32,
    is_over: bool,
    /// Packets that arrive later than they were sent.
    late: Vec<Vec<u8>>,
}

/// One seed that runs.
pub(crate) struct Scene {
    setting: Setting,
    phase: Phase,
    /// Packets until the next phase begins.
    left: u64,
    /// Connections that ended within the phase.
    phase_connections: u32,
    pub(crate) world: World,
    application: Application,
    random: Random,
    hostile: Vec<Hostile>,
    /// Bytes that the server held before the hostile clients came.
    base_bytes: i64,
    /// Whether the application sends nothing to hostile clients, whatever the phase specifies.
    pub(crate) is_quiet: bool,
    pub(crate) packet: u64,
    /// Packets whose cost was counted.
    pub(crate) counted: u64,
    pub(crate) frames: Vec<DrawnFrame>,
    pub(crate) coverage: Coverage,
}

impl Scene {
    /// Sets up a seed: an honest client is connected, and so are the hostile ones.
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::of_seed(seed);
        let setting = Setting::draw(&mut random);
        let phase = Phase::draw(&mut random, &setting);
        let mut world = World::new(seed, setting.config(), SourceFilter::default());
        let mut application = Application::default();
        let honest = world.join();
        world.advance(Duration::from_millis(200));
        application.read(&mut world, true);
        application.honest = application.connected.take();
        assert!(world.honest[honest].connected_at.is_some(), "the honest client is connected");
        world.honest_sends(honest);
        world.advance(Duration::from_millis(500));
        application.read(&mut world, true);
        let base_bytes = world.held_bytes;
        let coverage = Coverage::default();
        let left = phase.packets;
        let mut scene = Self {
            setting,
            phase,
            left,
            phase_connections: 0,
            world,
            application,
            random,
            hostile: Vec::new(),
            base_bytes,
            is_quiet: false,
            packet: 0,
            counted: 0,
            frames: Vec::new(),
            coverage,
        };
        for number in 0..scene.setting.clients {
            let number = u8::try_from(number).expect("few clients");
            let hostile = scene.connect(number, 0).expect("the server takes hostile clients at first");
            scene.hostile.push(hostile);
        }
        scene
    }

    /// Connects a hostile client, for the first time or again.
    fn connect(&mut self, number: u8, connections: u32) -> Option<Hostile> {
        let port = 6_000 + u16::try_from(connections).ok()?;
        let address = SocketAddr::from(([192, 0, 2, number + 1], port));
        let client_id = self.random.bits().to_be_bytes();
        let mut handshake = Handshake::begin(&server_key(), client_id, self.random.secret());
        let retry = self.exchange(address, handshake.hello())?;
        handshake.on_retry(&retry).then_some(())?;
        let welcome = self.exchange(address, handshake.hello())?;
        let mut client = handshake.on_welcome(&welcome)?;
        let ping = client.datagram(&[1, 0, 0, 0]);
        self.world.deliver(address, ping);
        self.application.read(&mut self.world, true);
        let peer = self.application.connected.take()?;
        let swarm = &self.phase.swarms[usize::from(number)];
        let sender = Sender::new(swarm, Random::of_seed(self.random.bits()), client.peer_parameters());
        self.coverage.connections += 1;
        let connections = connections + 1;
        Some(Hostile { number, client, sender, peer, address, connections, is_over: false, late: Vec::new() })
    }

    fn exchange(&mut self, from: SocketAddr, hello: Vec<u8>) -> Option<Vec<u8>> {
        self.world.to_hostile.clear();
        self.world.deliver(from, hello);
        self.world.to_hostile.pop().map(|(_, bytes)| bytes)
    }

    /// Sends the next hostile packet, and lets the application and the honest client act.
    pub(crate) fn step(&mut self) {
        if self.left == 0 || self.phase_connections > PHASE_CONNECTIONS_MAX {
            self.next_phase();
        }
        self.left = self.left.saturating_sub(1);
        let at = self.random.index(self.hostile.len());
        if self.hostile[at].is_over {
            self.phase_connections += 1;
            self.reconnect(at);
        }
        let (mut datagram, from) = self.draw(at);
        let before = *self.world.server.stats();
        if self.random.happens(self.phase.late) {
            self.hostile[at].late.push(std::mem::take(&mut datagram));
        } else {
            let copies = if self.random.happens(self.phase.duplicated) { 2 } else { 1 };
            for _ in 0..copies {
                self.world.deliver_counted(from, datagram.clone());
                self.counted += 1;
            }
            let hostile = &mut self.hostile[at];
            if self.world.server.stats().packets_received == before.packets_received {
                hostile.sender.on_refused();
            }
        }
        if self.random.happens(5) {
            for late in std::mem::take(&mut self.hostile[at].late) {
                self.world.deliver(from, late);
            }
        }
        if self.hostile[at].sender.changes_keys() {
            self.hostile[at].client.change_keys();
        }
        self.read_responses();
        self.hostile[at].is_over |= self.world.server.stats().connections_closed > before.connections_closed;
        let peer = self.hostile[at].peer;
        if !self.is_quiet {
            Application::send(&mut self.world, peer, self.phase.sends);
        }
        self.read_responses();
        self.application_reads();
        if self.packet.is_multiple_of(HONEST_EVERY) {
            // An application that does not read blocks its clients, including honest ones.
            if self.world.honest[0].sent - self.application.received < HONEST_AHEAD_MAX {
                self.world.honest_sends(0);
            }
            let honest = &self.world.honest[0];
            if honest.expected.len() - honest.received < SERVER_AHEAD_MAX {
                let peer = self.application.honest.expect("it is connected");
                self.world.server_sends(0, peer);
            }
        }
        self.world.advance(self.phase.pace);
        self.packet += 1;
    }

    /// Draws the next packet of a hostile client, and its source.
    fn draw(&mut self, at: usize) -> (Vec<u8>, SocketAddr) {
        let hostile = &mut self.hostile[at];
        let frames = hostile.sender.draw(hostile.client.next_number(), ROOM);
        self.frames.clear();
        self.frames.extend(hostile.sender.drawn().cloned());
        self.coverage.on_frames(self.frames.iter());
        let mut from = hostile.address;
        if self.random.happens(self.phase.moved) {
            from.set_port(7_000 + u16::try_from(self.random.below(4)).unwrap_or(0));
        }
        (hostile.client.datagram(&frames), from)
    }

    /// Lets the hostile clients read what the server sent to them, or not.
    fn read_responses(&mut self) {
        for (to, bytes) in std::mem::take(&mut self.world.to_hostile) {
            let owner = self.hostile.iter_mut().find(|hostile| hostile.address.ip() == to.ip());
            if let Some(hostile) = owner.filter(|_| self.phase.listens)
                && let Some(packet) = hostile.client.open(bytes)
            {
                hostile.sender.on_packet(&packet);
            }
        }
    }

    fn application_reads(&mut self) {
        match self.phase.reads {
            Reads::Always => self.application.read(&mut self.world, true),
            Reads::Never => {}
            Reads::Sometimes(percent) => {
                if self.random.happens(percent) {
                    self.application.read(&mut self.world, true);
                }
            }
            Reads::Hoards(percent) => {
                let releases = self.random.happens(percent);
                self.application.read(&mut self.world, releases);
            }
        }
    }

    /// Disconnects all hostile clients, and connects them again with other choices.
    fn next_phase(&mut self) {
        for hostile in &mut self.hostile {
            let mut frames = [0; 16];
            let mut writer = FrameWriter::new(&mut frames[..]);
            DrawnFrame::Close { reason_bytes: 0 }.write(&mut writer).expect("there is room");
            self.world.deliver(hostile.address, hostile.client.datagram(&frames));
            // A client that retired its id is no longer received.
            let peer = hostile.peer;
            let close = Close { code: CloseCode::Application, application_code: 0, reason: b"" };
            let _ = self.world.at_server(|server, now| server.close(now, peer, &close));
            hostile.is_over = true;
        }
        self.phase = Phase::draw(&mut self.random, &self.setting);
        self.left = self.phase.packets;
        self.phase_connections = 0;
        for at in 0..self.hostile.len() {
            self.reconnect(at);
        }
    }

    /// Reconnects a hostile client whose connection is over. The application has read everything by then: unread
    /// events of ended connections are limited by the memory of events, not by that of connections.
    fn reconnect(&mut self, at: usize) {
        let (number, connections) = (self.hostile[at].number, self.hostile[at].connections);
        self.application.read(&mut self.world, true);
        self.world.advance(LINGER);
        if connections < CONNECTIONS_MAX
            && let Some(hostile) = self.connect(number, connections)
        {
            self.hostile[at] = hostile;
        }
    }

    /// Returns the choices that apply now.
    pub(crate) fn plan(&self) -> String {
        format!("{:?} {:?}", self.setting, self.phase)
    }

    /// Whether no hostile client reconnects.
    pub(crate) fn is_over(&self) -> bool {
        self.hostile.iter().all(|hostile| hostile.is_over && hostile.connections >= CONNECTIONS_MAX)
    }

    /// Returns the invariants that do not hold now.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        let unexplained = self.world.server.stats().unexplained();
        if unexplained != 0 {
            return Err(format!("{unexplained} datagrams are in no counter"));
        }
        if is_checked(Invariant::Peer)
            && let Some(noticed) = self.world.noticed.take()
        {
            return Err(noticed);
        }
        if is_checked(Invariant::Memory) { self.check_memory() } else { Ok(()) }
    }

    /// Compares the server's memory with the limits of its connections: by its own charges, and by the allocator.
    fn check_memory(&self) -> Result<(), String> {
        // Connections that are being closed hold as much as others.
        let clients = (self.world.server.connection_count() - 1).max(self.hostile.len());
        let sends = if self.phase.sends == Sends::Nothing { 0 } else { self.setting.send_bytes };
        let limit = self.setting.receive_bytes + sends;
        let ids: u64 = self.hostile.iter().map(|hostile| hostile.sender.ids_ahead()).sum();
        let ids = usize::try_from(ids).expect("few ids");
        // A window that begins and ends inside of a word has two words more than its ids fill.
        let window_bytes = (ids / 64 + 2 * clients) * WORD_BYTES;
        let most = clients * (limit + TABLE_BYTES) + window_bytes + HONEST_CHARGES;
        let charged = self.world.server.held_bytes();
        if charged > most {
            return Err(format!("{clients} clients are charged {charged} bytes, and may be charged {most}"));
        }
        let of_each = i64::try_from(limit * 11 / 10).expect("small") + BUSY_BYTES + CLOSING_BYTES;
        // A window grows by doubling, up to its limit.
        let window_bytes = (2 * window_bytes).min(clients * WINDOW_MAX_BYTES);
        let window_bytes = i64::try_from(window_bytes).expect("small");
        let most = i64::try_from(clients).expect("few") * of_each + window_bytes + HONEST_BYTES;
        let held = self.world.held_bytes - self.base_bytes;
        if held > most {
            return Err(format!("the server holds {held} bytes of {clients} clients, which may hold {most}"));
        }
        Ok(())
    }

    /// Runs to the end of the seed.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        while self.packet < PACKETS && !self.is_over() {
            self.step();
            self.check()?;
        }
        self.application.read(&mut self.world, true);
        self.world.advance(Duration::from_secs(1));
        self.application.read(&mut self.world, true);
        let (sent, received) = (self.world.honest[0].sent, self.application.received);
        if received != sent {
            self.world.record_fault(format!("{received} of {sent} messages of the honest client arrived"));
        }
        let (expected, received) = (self.world.honest[0].expected.len(), self.world.honest[0].received);
        if received != expected {
            self.world.record_fault(format!("{received} of {expected} messages came to the honest client"));
        }
        self.coverage.honest_messages += sent;
        self.check()
    }

    /// Sends packets that hold one message of 64 bytes each, from a hostile client that is not hostile yet.
    pub(crate) fn send_small_messages(&mut self, count: u64) {
        let hostile = &mut self.hostile[0];
        for _ in 0..count {
            let mut frames = [0; 80];
            let mut writer = FrameWriter::new(&mut frames[..]);
            let (channel, delivery) = (ChannelId(9), Delivery::Unreliable);
            DrawnFrame::Message { channel, delivery, bytes: 64 }.write(&mut writer).expect("there is room");
            let written = writer.written_bytes();
            let datagram = hostile.client.datagram(&frames[..written]);
            self.world.deliver_counted(hostile.address, datagram);
            self.counted += 1;
            self.application.read(&mut self.world, true);
        }
    }

    /// Adds what the seed reached.
    pub(crate) fn cover(&mut self) {
        for reason in std::mem::take(&mut self.application.closed) {
            self.coverage.on_closed(reason);
        }
        self.coverage.on_stats(self.world.server.stats());
    }
}

/// Runs one seed, and catches its panics.
fn run_seed(seed: u64, all: &mut Coverage) -> Result<(), Violation> {
    let mut scene = Scene::new(seed);
    let ended = caught(|| scene.run());
    scene.cover();
    all.merge(&scene.coverage);
    ended.map_err(|what| Violation {
        test: "hostile_traffic_stays_within_its_memory",
        seed,
        packet: scene.packet,
        what,
        frames: scene.frames.clone(),
        plan: scene.plan(),
    })
}

#[test]
fn hostile_traffic_stays_within_its_memory() {
    let seeds = usual_seeds();
    let count = seeds.end - seeds.start;
    let coverage = run_all(seeds, run_seed);
    let missing = coverage.missing();
    assert!(count < 1_000 || missing.is_empty(), "traffic that never came proves nothing: {missing:?}");
}
