//! The load ladder: clients connect in batches while the others send, over as many plain datagrams of the same length.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use drumfire_benches::traffic::{Client, Generator};
use drumfire_benches::{
    Arm, Bench, Carried, Child, Cores, Crowd, Goal, PLAIN_BYTES_MAX, asked_bytes, count, counts_text,
    interleave,
};

use crate::format;
use crate::server::{PLAIN, TICK};
use crate::world::{BATCH, MESSAGE_BYTES, PER_SECOND, Round, World, keep_alive, traffic};

/// Bytes of each answer.
pub(crate) const DOWN_BYTES: [u16; 3] = [64, 256, 1_024];

/// Clients. The last step belongs to a full run.
const STEPS: [u32; 6] = [500, 1_000, 2_000, 4_000, 8_000, 16_000];

/// Clients per plain socket, as many as share a socket of drumfire.
const PER_PLAIN_SOCKET: usize = 125;

/// A plain datagram begins with the length of its answer, and the number of its message follows.
const NUMBER_AT: std::ops::Range<usize> = 2..10;

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let cores = bench.pin_load()?;
    let (steps, rates, counted): (&[u32], &[u32], _) = bench.extent().pick(
        (&STEPS[..1], &[1_000], Duration::from_millis(300)),
        (&STEPS[..5], &[1_000], Duration::from_millis(500)),
        (&STEPS[..], &[1_000, 100], Duration::from_secs(2)),
    );
    let mut steps = steps.to_vec();
    if let Some(most) = bench.number("--clients") {
        steps = STEPS.into_iter().filter(|step| *step < most).chain([most]).collect();
    }
    for &rate in rates {
        Ladder::start(rate, steps[steps.len() - 1], cores)?.climb(bench, &steps, counted)?;
    }
    Ok(())
}

/// Both servers of a ladder.
struct Ladder {
    rate: u32,
    slots: u32,
    world: World,
    plain: Child,
    plain_address: SocketAddr,
}

impl Ladder {
    fn start(rate: u32, slots: u32, cores: Cores) -> Result<Self, String> {
        println!("  {slots} slots, {rate} Hz, {PER_SECOND} messages/s of each client on 4 channels, 32 B up");
        let world = World::start((TICK, rate), slots, Some(cores.server), PER_SECOND)?;
        let plain = Child::role(PLAIN, Some(cores.server), &[&rate.to_string(), &slots.to_string()])?;
        let plain_address = plain.address()?;
        Ok(Self { rate, slots, world, plain, plain_address })
    }

    fn climb(mut self, bench: &mut Bench, steps: &[u32], counted: Duration) -> Result<(), String> {
        for &clients in steps {
            self.step(bench, clients, counted)?;
        }
        self.refuse(bench, bench.extent().pick(BATCH / 10, BATCH, BATCH))?;
        let ended: u64 = self.world.load.clients().iter().map(Crowd::ended).sum();
        let served = self.world.close()?;
        let plain = self.plain.finish_counts()?;
        println!("  plain     {}", counts_text(&plain));
        let left = count(&served, "left") + ended;
        let name = format!("ladder: {} Hz: clients that were dropped", self.rate);
        bench.results.figure(name, Some(left as f64), "", Goal::AtMost(0.0), "");
        match (left, count(&plain, "refused")) {
            (0, 0) => Ok(()),
            (left, refused) => Err(format!("{left} clients were dropped, {refused} plain answers refused")),
        }
    }

    /// Connects clients until there are as many as this, and measures them.
    fn step(&mut self, bench: &mut Bench, clients: u32, counted: Duration) -> Result<(), String> {
        let mut batches = Vec::new();
        while self.world.clients() < clients {
            let batch = self.world.connect_batch(BATCH.min(clients - self.world.clients()))?;
            batch.check()?;
            batches.push(batch);
        }
        format::batches(bench, self.rate, clients, &batches);
        let plain = PlainClients::connect(self.plain_address, clients as usize)?;
        let plain_traffic = traffic(clients as usize, clients as usize, PER_SECOND, NUMBER_AT.len());
        let plain_load = RefCell::new(Generator::over(plain_traffic, vec![plain]));
        let (world, carried) = (RefCell::new(&mut self.world), Cell::new(Carried::default()));
        let mut arms = Vec::new();
        for down_bytes in DOWN_BYTES {
            let (world, plain_load, carried) = (&world, &plain_load, &carried);
            let (plain, answer_bytes) = (&self.plain, usize::from(down_bytes));
            let round = Round { answer_bytes, counted, has_one_thread: true };
            arms.push(Arm::with_values(format!("{clients} clients, {down_bytes} B down"), move || {
                let world = &mut **world.borrow_mut();
                world.answer_with(answer_bytes)?;
                let (before, sent) = (world.carried(), world.load.totals().sent);
                let (report, mut values) =
                    round.run(&world.server, &mut world.load, || Some(0), |_| Ok(()))?;
                let datagrams = world.carried().since(before);
                let messages = (world.load.totals().sent - sent).max(1) as f64;
                values.insert("datagrams/message", (datagrams.sent + datagrams.received) as f64 / messages);
                carried.set(datagrams);
                Ok((report, values))
            }));
            arms.push(Arm::with_values(format!("{clients} plain, {down_bytes} B down"), move || {
                let plain_load = &mut *plain_load.borrow_mut();
                plain_load.clients().iter_mut().for_each(|client| client.imitate(carried.get()));
                round.run(plain, plain_load, || Some(0), keep_alive(|| world.borrow_mut().load.receive()))
            }));
        }
        let plan = bench.plan();
        let measured = interleave(arms, plan.warm_up, plan.rounds, plan.may_void)?;
        format::step(bench, (self.slots, self.rate, clients), &measured)
    }

    /// Connects a batch for which there is no room. Each client must be refused because the server is full.
    fn refuse(&mut self, bench: &mut Bench, count: u32) -> Result<(), String> {
        let Self { rate, slots, world, .. } = self;
        let batch = world.connect_batch(count)?;
        let told = batch.failed.get("refused: Full").copied().unwrap_or(0);
        println!("  beyond the limit of {slots} clients: {batch}");
        let name = format!("ladder: {rate} Hz: told that the server is full, of {count} beyond {slots}");
        bench.results.figure(name, Some(told as f64), "", Goal::AtLeast(f64::from(count)), "");
        if told == u64::from(count) { Ok(()) } else { Err(format!("{count} beyond the limit: {batch}")) }
    }
}

/// Plain sockets for as many clients, with datagrams as long as those of drumfire on average.
struct PlainClients {
    sockets: Vec<UdpSocket>,
    up_bytes: usize,
    down_bytes: u16,
}

impl PlainClients {
    fn connect(server: SocketAddr, count: usize) -> Result<Self, String> {
        let socket = |_| -> std::io::Result<UdpSocket> {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.connect(server)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let sockets = (0..count.div_ceil(PER_PLAIN_SOCKET)).map(socket).collect::<Result<_, _>>();
        let sockets = sockets.map_err(|error| format!("plain sockets: {error}"))?;
        Ok(Self { sockets, up_bytes: 0, down_bytes: 0 })
    }

    /// Sends datagrams of the average lengths of these from now on.
    fn imitate(&mut self, carried: Carried) {
        let mean = |bytes: u64, count: u64| {
            usize::try_from(bytes / count.max(1)).unwrap_or(0).clamp(MESSAGE_BYTES, PLAIN_BYTES_MAX)
        };
        self.up_bytes = mean(carried.sent_bytes, carried.sent);
        self.down_bytes = u16::try_from(mean(carried.received_bytes, carried.received)).unwrap_or(u16::MAX);
    }
}

impl Client for PlainClients {
    fn is_ready(&self) -> bool {
        true
    }

    fn receive(&mut self, _: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        let mut buffer = [0; PLAIN_BYTES_MAX];
        for socket in &self.sockets {
            loop {
                match socket.recv(&mut buffer) {
                    Ok(bytes)
                        if bytes == usize::from(self.down_bytes) && asked_bytes(&buffer) == Some(bytes) =>
                    {
                        let number = &buffer[NUMBER_AT];
                        let connection = number.first_chunk().map_or(0, |number| u64::from_be_bytes(*number));
                        take(drumfire_benches::numbered::connection_of(connection), number);
                    }
                    Ok(_) => take(usize::MAX, &[]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(format!("a plain socket: {error}")),
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, _: u64, connection: usize, _: u8, message: &[u8]) -> Result<bool, String> {
        let mut datagram = [0; PLAIN_BYTES_MAX];
        datagram[..NUMBER_AT.start].copy_from_slice(&self.down_bytes.to_be_bytes());
        datagram[NUMBER_AT].copy_from_slice(&message[..NUMBER_AT.len()]);
        match self.sockets[connection / PER_PLAIN_SOCKET].send(&datagram[..self.up_bytes]) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(format!("a plain socket: {error}")),
        }
    }

    fn flush(&mut self, _: u64) -> Result<(), String> {
        Ok(())
    }
}
