//! Baselines for the figures of benches: a C receiver, and the cipher alone.

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use drumfire_crypto::{Initiator, Opener, Responder, Sealer, Secret, ServerKeyPair, Suite, TAG_BYTES};
use drumfire_tools::cli::Traffic;
use drumfire_tools::clock;
use drumfire_tools::control::{self, ControlPort, Welcome};
use drumfire_tools::datagram::RouteId;
use drumfire_tools::error::Error;
use drumfire_tools::host::{self, ProcessClock};
use drumfire_tools::report::{Accounting, KERNEL_RECEIVE_QUEUE, Report, ThreadReport};
use drumfire_tools::sender;

use crate::memory::BATCH;
use crate::process::{Child, Counts, arguments, named_counts, output_of};

const C_SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/c/epoll_recvfrom.c");

/// The time within which the sender connects, starts, and finishes.
const SENDER_WITHIN: Duration = Duration::from_secs(60);

/// The interval in which the control connection is polled.
const POLL: Duration = Duration::from_millis(20);

/// The role of [`send`].
pub const SENDER: &str = "sender";

/// Starts a sender in a process of its own, so that every receiver has the same one. The receiver has this address.
pub fn start_sender(to: SocketAddr, traffic: &Traffic) -> Result<Child, String> {
    Child::role(SENDER, None, &(to, traffic))
}

/// Sends traffic to a receiver and compares books with it.
pub fn send(args: &str) -> Result<Counts, String> {
    let (to, traffic) = arguments(args)?;
    let report = sender::run(&[to], &traffic, &|| false).map_err(|error| error.to_string())?;
    Ok(named_counts([("sent", report.books.sent)]))
}

/// A compiled C program that receives with epoll and recvfrom. It runs in a process of its own and gets the same traffic as a receiver.
pub struct CLoop {
    program: PathBuf,
}

impl CLoop {
    /// Compiles the program into `folder` with the compiler of the system.
    pub fn compile(folder: &Path) -> Result<Self, String> {
        let program = folder.join("epoll_recvfrom");
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let mut compile = Command::new(compiler);
        compile.args(["-O2", "-Wall", "-Werror", "-o"]).arg(&program).arg(C_SOURCE);
        output_of(&mut compile).map_err(|line| format!("the C loop is missing from the table: {line}"))?;
        Ok(Self { program })
    }

    /// Runs the program on `core` with this traffic. This process handles the control connection of the sender.
    pub fn run(&self, core: usize, buffer_bytes: usize, traffic: &Traffic) -> Result<Report, String> {
        let arguments = [core.to_string(), buffer_bytes.to_string()];
        let receiver =
            Child::start_program("the C loop", &self.program, &arguments.each_ref().map(String::as_str))?;
        let port: u16 = receiver.line()?.trim().parse().map_err(|_| "the C loop printed no port")?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut port = ControlPort::bind(address).map_err(|error| format!("the control port: {error}"))?;
        let sender = start_sender(address, traffic)?;
        let keep_waiting = clock::within(SENDER_WITHIN);
        let mut end = loop {
            match port.next_sender(clock::now(), &mut |_| {}) {
                Some(end) => break end,
                None if keep_waiting() => clock::pause(POLL),
                None => return Err("the sender did not connect".to_owned()),
            }
        };
        let fail = |error: Error| error.to_string();
        end.welcome(Welcome {
            version: control::VERSION,
            ids: vec![RouteId::default(); end.hello.traffic.load.flows as usize],
            sealed: None,
        })
        .map_err(fail)?;
        end.wait_for_start(&keep_waiting).map_err(fail)?;
        let before = ProcessClock::sample(receiver.id());
        let finished = end.wait_for_finish(keep_waiting).map_err(fail)?.ok_or("the sender sent no totals")?;
        // The window is by the sender's clock, because its message arrives a little after its last datagram.
        let window = Duration::from_nanos(finished.elapsed_ns);
        clock::pause(POLL);
        let cpu = ProcessClock::sample(receiver.id()).zip(before).map(|(now, then)| now.since(&then));
        let last = receiver.finish()?;
        let mut numbers = last.split_whitespace().map_while(|number| number.parse::<u64>().ok());
        let (Some(received), Some(drops)) = (numbers.next(), numbers.next()) else {
            return Err(format!("the C loop printed {last:?}"));
        };
        let books = Accounting::new(finished.sent, received).dropped(KERNEL_RECEIVE_QUEUE, drops);
        end.close(&finished, &Report { books: books.clone(), ..Report::default() }).map_err(fail)?;
        sender.finish()?;
        let thread = ThreadReport { received, kernel_drops: Some(drops), ..ThreadReport::default() };
        let report = Report {
            name: "C epoll + recvfrom".to_owned(),
            machine: host::machine(),
            window_s: window.as_secs_f64(),
            books,
            threads: vec![thread.with_cpu(cpu.map(|cpu| cpu.cpu_time()))],
            ..Report::default()
        };
        let mut report = report.derived();
        report.sender_cpu_s = Some(finished.cpu_ns as f64 / 1e9);
        report.run_delay_share = cpu.and_then(|cpu| cpu.run_delay_share(window));
        Ok(report)
    }
}

/// The size of every packet.
const PACKET_BYTES: usize = 128;

/// Bytes of a packet that are not sealed: type, connection id, and number.
const HEADER_BYTES: usize = 1 + 8 + 4;

/// The cipher alone: packets of 128 B sealed and opened with the keys of a handshake. No header is read, and no connection is looked up.
pub struct OpenAlone {
    sealer: Sealer,
    opener: Opener,
    packets: Vec<[u8; PACKET_BYTES]>,
}

impl OpenAlone {
    /// Makes keys for this suite.
    ///
    /// # Panics
    ///
    /// When this build lacks the suite.
    pub fn new(suite: Suite) -> Self {
        let keys = ServerKeyPair::from_secret(Secret::new([1; 32]));
        let (mut first, mut second) = ([0; 48], [0; 48]);
        let (no_psk, ephemeral) = (Secret::zeroed(), Secret::new([2; 32]));
        let mut client =
            Initiator::new(keys.public(), &no_psk, b"", b"", ephemeral, &mut first).expect("a key");
        let (server, _) = Responder::read(&keys, &no_psk, b"", &first, &Secret::new([3; 32]), &mut [])
            .expect("the client's message");
        let (_, of_server) = server.reply(b"", &mut second).expect("room");
        let (_, of_client) = client.read_reply(&second, &mut []).expect("the server's message");
        let (seals, _) = of_client.into_keys(suite).expect("a suite of this build");
        let (_, opens) = of_server.into_keys(suite).expect("a suite of this build");
        let (mut sealer, mut opener) = (Sealer::new(seals), Opener::new(opens));
        sealer.keep_expanded();
        opener.keep_expanded();
        Self { sealer, opener, packets: vec![[7; PACKET_BYTES]; BATCH] }
    }

    /// Seals `count` packets and opens them, batch by batch. `measured` is called for each batch with the function that opens it.
    ///
    /// # Panics
    ///
    /// When packet numbers run out, which takes years.
    pub fn run(&mut self, count: u64, mut measured: impl FnMut(&mut dyn FnMut())) {
        let mut left = count;
        while left > 0 {
            let batch = usize::try_from(left).unwrap_or(BATCH).min(BATCH);
            let packets = self.packets.get_mut(..batch).unwrap_or_default();
            let first = self.sealer.next_number().expect("numbers are left");
            for packet in packets.iter_mut() {
                let (header, sealed) = packet.split_at_mut(HEADER_BYTES);
                let (body, tag) = sealed.split_last_chunk_mut::<TAG_BYTES>().expect("room for a tag");
                self.sealer.seal(header, body, tag).expect("numbers are left");
            }
            let opener = &mut self.opener;
            measured(&mut || {
                for (number, packet) in (first..).zip(packets.iter_mut()) {
                    let (header, sealed) = packet.split_at_mut(HEADER_BYTES);
                    black_box(opener.open(number, false, header, sealed).expect("a genuine packet").body);
                }
            });
            left -= batch as u64;
        }
    }
}
