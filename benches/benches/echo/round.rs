//! One round: a server process, its connections, one window of traffic, the books, and the report.

use std::path::Path;
use std::time::Duration;

use drumfire_benches::traffic::{Generator, Polling, Shape, Traffic, client_counts};
use drumfire_benches::{
    Cores, DropWatch, EchoRound, Outcome, PER_SOCKET, Spread, UsageWatch, Values, close, close_books, count,
    resident_bytes,
};
use drumfire_tools::report::KERNEL_RECEIVE_QUEUE;

use crate::subject::Subject;

/// Messages that are not back this long after the window count as undelivered.
const SETTLE: Duration = Duration::from_secs(1);

/// Messages that no drop explains are awaited for this long after the window.
const LATE_TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes of a message.
const BYTES: usize = 1_024;

const MIB: f64 = 1_048_576.0;

/// The quantiles of the times of messages, by the names of their values.
const TIMES: [(&str, f64); 8] = [
    ("Min", 0.0),
    ("TP50", 0.5),
    ("TP75", 0.75),
    ("TP90", 0.9),
    ("TP95", 0.95),
    ("TP99", 0.99),
    ("TP99.9", 0.999),
    ("Max", 1.0),
];

/// The traffic of nbio's benchmark for a subject.
fn traffic(subject: Subject, connections: usize, shape: Shape) -> Traffic {
    Traffic {
        per_client: PER_SOCKET,
        may_lose: subject == Subject::Raw,
        polling: Polling::RoundRobin,
        settle: Duration::ZERO,
        ..Traffic::echo(shape, connections, BYTES)
    }
}

/// Samples the server once per second of a window.
struct Sampler {
    server: u32,
    /// The end of the present second, and the usage of the server in it.
    second: Option<(u64, UsageWatch)>,
    /// The server's share of a core in each second, in percent.
    cpu_percent: Vec<f64>,
    /// The server's memory at each sample, in MiB.
    memory_mib: Vec<f64>,
}

impl Sampler {
    fn sample(&mut self, now: u64) -> Result<(), String> {
        if self.second.is_some_and(|(end, _)| now < end) {
            return Ok(());
        }
        if let Some((_, watch)) = self.second {
            self.cpu_percent.push(watch.used()?.server.core_share() * 100.0);
        }
        self.second = Some((now + 1_000_000_000, UsageWatch::begin(self.server, std::process::id())));
        self.memory_mib.extend(resident_bytes(self.server).map(|bytes| bytes as f64 / MIB));
        Ok(())
    }

    /// The columns of CPU and memory, each with minimum, mean, and maximum.
    fn values(&self, cpu: f64) -> [(&'static str, f64); 6] {
        let (percent, mib) = (Spread::of(self.cpu_percent.clone()), Spread::of(self.memory_mib.clone()));
        let mean = self.memory_mib.iter().sum::<f64>() / self.memory_mib.len().max(1) as f64;
        [
            ("CPU Min", percent.map_or(cpu, |percent| percent.min)),
            ("CPU Avg", cpu),
            ("CPU Max", percent.map_or(cpu, |percent| percent.max)),
            ("MEM Min", mib.map_or(0.0, |mib| mib.min)),
            ("MEM Avg", mean),
            ("MEM Max", mib.map_or(0.0, |mib| mib.max)),
        ]
    }
}

/// Runs a round and returns its report with the further values that its tables show.
pub(crate) fn run(
    subject: Subject,
    (connections, shape): (u32, Shape),
    window: (Duration, Duration),
    cores: Cores,
    nbio: Option<&Path>,
) -> Result<Outcome, String> {
    let dropped = DropWatch::begin();
    let server = subject.start(connections, cores, nbio)?;
    let address = server.address()?;
    let traffic = traffic(subject, connections as usize, shape);
    let mut generator = Generator::over(traffic, subject.connect(address, traffic)?);
    let mut sampler =
        Sampler { server: server.id(), second: None, cpu_percent: Vec::new(), memory_mib: Vec::new() };
    let mut round = generator.round(&server, window, |window, now| match window {
        Some(_) => sampler.sample(now),
        None => Ok(()),
    })?;
    let undelivered = generator.await_outstanding(SETTLE)?;
    // A message that the kernel did not drop may be late on a busy machine, and is not lost.
    if subject != Subject::Raw || dropped.count() == 0 {
        generator.await_outstanding(LATE_TIMEOUT)?;
    }
    round.counts = generator.settle()?;
    let mut values = Values::from(sampler.values(round.usage.server.core_share() * 100.0));
    let (served, drops) = (server.finish_counts()?, dropped.count());
    round.counts.check(&served, subject == Subject::Raw)?;
    close([
        ("refused at the client", round.counts.refused, 0..=0),
        ("refused at the server", count(&served, "refused"), 0..=0),
    ])?;
    if served.contains_key("socket received") {
        close_books(count(&client_counts(generator.clients()), "socket sent"), &served, drops)?;
    }
    values.extend(round.values());
    values.extend(message_values(&round, undelivered));
    let latency = generator.recorder().latency();
    values.insert("Avg", latency.mean() / 1e3);
    values.extend(TIMES.map(|(name, share)| (name, latency.value_at_quantile(share) as f64 / 1e3)));
    let lost = [(KERNEL_RECEIVE_QUEUE, round.counts.lost.min(drops))];
    Ok((round.report([subject != Subject::Nbio, true], &lost)?, values))
}

/// The columns of messages.
fn message_values(round: &EchoRound, undelivered: u64) -> Values {
    let EchoRound { traffic, counts, usage, window } = round;
    let seconds = window.length().as_secs_f64();
    let (tps, cpu) = (counts.echoed as f64 / seconds, usage.server.core_share() * 100.0);
    let mib = |messages: u64| (messages * BYTES as u64) as f64 / MIB;
    let mut values = Values::from([
        ("TPS", tps),
        ("EER", tps / cpu),
        ("EchoEER", tps / cpu),
        ("Recv/s", tps),
        ("Usage", seconds),
        ("Duration", seconds),
        ("Total", (counts.echoed + counts.lost) as f64),
        ("Success", counts.echoed as f64),
        ("Packet Recv", counts.echoed as f64),
        ("Failed", counts.lost as f64),
        ("Conns", traffic.connections as f64),
        ("Concurrency", traffic.connections as f64),
        ("Payload", BYTES as f64),
        ("client's CPU", usage.load.core_share() * 100.0),
        ("undelivered", undelivered as f64),
        ("Packet Sent", counts.sent as f64),
        ("Bytes Sent", mib(counts.sent)),
        ("Bytes Recv", mib(counts.echoed)),
    ]);
    if let Shape::Open { rate } = traffic.shape {
        let answered = counts.sent.saturating_sub(undelivered) as f64;
        values.extend([
            ("Offered", counts.offered() as f64),
            ("skipped because full", (counts.no_room + counts.refused) as f64),
            ("skipped because late", counts.overdue as f64),
            ("answered", answered / counts.offered().max(1) as f64),
            ("SendRate", rate as f64),
        ]);
    }
    values
}
