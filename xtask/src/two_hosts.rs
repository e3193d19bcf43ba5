//! `cargo xtask two-hosts`: compares the books of a sender and a receiver in two network namespaces joined by a veth pair. With
//! `--ladder` it does so for each number of receiver threads and each packet size.
//!
//! It measures nothing. Every number that it prints comes from the two programs.

use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::Duration;

use serde_json::Value;

use crate::netns::{Pair, Side};
use crate::run::{CommandLine, Running, Stop, table, wait_for, word};
use crate::workspace::Workspace;

const RECEIVER: &str = "receiver";
const SENDER: &str = "sender";
/// The side of the receiver, and its port: UDP for datagrams, TCP for the control connection.
const SIDE: Side = Side::A;
const PORT: u16 = 9000;

/// The receiver opens its port within this time.
const START_DEADLINE: Duration = Duration::from_secs(10);
/// Both programs end within this time after the length of the run.
const END_DEADLINE: Duration = Duration::from_secs(30);

/// The steps of the ladder. Steps with more threads than cores are left out: they would only show that threads share cores.
const THREADS: [usize; 5] = [1, 2, 4, 8, 16];
const SIZES: [usize; 4] = [32, 128, 512, 1_200];
const COLUMNS: [&str; 9] =
    ["threads", "bytes", "sent", "received", "received/s", "busiest/mean", "CPU ns", "drops", "limited by"];

#[derive(Debug, clap::Args)]
pub(crate) struct TwoHostsArgs {
    /// Run each number of receiver threads, up to the number of cores, with each packet size, in the stage raw and without a rate.
    #[arg(long)]
    ladder: bool,
    /// The time for which the sender sends, in seconds; with `--ladder` for each step.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    secs: u32,
    /// Flags for the receiver, after `--`.
    #[arg(last = true)]
    receiver_flags: Vec<String>,
}

pub(crate) fn run(workspace: &Workspace, args: &TwoHostsArgs) -> Result<(), Stop> {
    // Before the build, so that a machine that cannot make namespaces is skipped without one.
    let pair = Pair::new()?;
    // The features of the README's first command, which builds most of it.
    let build = format!("build --release --bin {RECEIVER} --bin {SENDER}");
    CommandLine::cargo(&build).done()?;
    let hosts = Hosts { pair, programs: workspace.target.join("release"), secs: args.secs };
    if args.ladder {
        return hosts.run_ladder(&args.receiver_flags);
    }
    let (received, sent) = hosts.run_once(&args.receiver_flags, &[])?;
    println!("{received:#}\n{sent:#}");
    let count = compare(&received, &sent)?;
    println!("books agree: {count} datagrams sent, none unexplained");
    Ok(())
}

struct Hosts {
    pair: Pair,
    programs: PathBuf,
    secs: u32,
}

impl Hosts {
    /// Runs both programs with additional flags. Returns the receiver's report and the sender's.
    fn run_once(&self, receiver_flags: &[String], sender_flags: &[String]) -> Result<(Value, Value), Stop> {
        let address = format!("{}:{PORT}", SIDE.address());
        let start = |title: &'static str, side: Side, flags: &[&str], more: &[String]| {
            let command = self.pair.inside(side, &word(&self.programs.join(title)), flags);
            Running::start(title, &command.args(&["--json", "-"]).args(more))
        };
        let mut receiver = start(RECEIVER, SIDE, &["--bind", &address], receiver_flags)?;
        wait_until_listening(&self.pair, &mut receiver)?;
        // The receiver ends after its sender, so only the sender has a length.
        let flags = ["--to", &address, "--secs", &self.secs.to_string()];
        let mut sender = start(SENDER, Side::B, &flags, sender_flags)?;
        let deadline = Duration::from_secs(self.secs.into()) + END_DEADLINE;
        wait_for("sender or receiver still runs", deadline, || {
            Ok((receiver.is_done()? & sender.is_done()?).then_some(()))
        })?;
        Ok((report(RECEIVER, &mut receiver)?, report(SENDER, &mut sender)?))
    }

    /// Runs all steps and prints one table. The first step whose books do not agree ends the ladder.
    fn run_ladder(&self, receiver_flags: &[String]) -> Result<(), Stop> {
        let mut table = table(&COLUMNS);
        let cores = available_parallelism().map_or(1, usize::from);
        let outcome = steps(cores).try_for_each(|(threads, size)| {
            let [threads, size] = [threads, size].map(|number| number.to_string());
            let sender = ["--threads", &threads, "--size", &size, "--rate", "0"].map(str::to_owned);
            let receiver = ["--stage", "raw", "--threads", &threads].map(str::to_owned);
            let (received, sent) = self.run_once(&[&receiver[..], receiver_flags].concat(), &sender)?;
            compare(&received, &sent)?;
            table.add_row(row(threads, size, &received));
            Ok::<_, Stop>(())
        });
        println!("\n{table}");
        outcome?;
        println!("books agree in all {} runs, none unexplained", table.row_count());
        Ok(())
    }
}

/// Returns the threads and the packet size of each step.
fn steps(cores: usize) -> impl Iterator<Item = (usize, usize)> {
    let threads = THREADS.into_iter().filter(move |threads| *threads <= cores);
    threads.flat_map(|threads| SIZES.map(|size| (threads, size)))
}

fn row(threads: String, size: String, received: &Value) -> [String; COLUMNS.len()] {
    let number = |key: &str, digits: usize| {
        received[key].as_f64().map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
    };
    let drops = received["drops"].as_object().into_iter().flatten();
    let drops = drops.filter(|(_, count)| count.as_u64() != Some(0));
    let drops: Vec<String> = drops.map(|(place, count)| format!("{place} {count}")).collect();
    [
        threads,
        size,
        number("sent", 0),
        number("received", 0),
        number("pps", 0),
        number("spread_max_over_mean", 2),
        number("cpu_ns_per_packet", 0),
        if drops.is_empty() { "none".to_owned() } else { drops.join(", ") },
        received["limited_by"].as_str().unwrap_or("-").to_owned(),
    ]
}

fn report(title: &str, program: &mut Running) -> Result<Value, Stop> {
    let text = program.output();
    serde_json::from_str(&text)
        .map_err(|why| Stop::failed(format!("{title}: its standard output is not JSON: {why}: {text}")))
}

/// Waits until the receiver's control port accepts connections.
fn wait_until_listening(pair: &Pair, receiver: &mut Running) -> Result<(), Stop> {
    let sockets = ["--no-header", "--listening", "--tcp", "--numeric", "sport", "=", &format!(":{PORT}")];
    let sockets = pair.inside(SIDE, "ss", &sockets);
    wait_for("receiver: its TCP port does not listen", START_DEADLINE, || {
        if receiver.is_done()? {
            return Err(Stop::failed("receiver ended before it listened"));
        }
        Ok((!sockets.output()?.is_empty()).then_some(()))
    })
}

/// Returns the number of datagrams that both books have as sent, when none is unexplained.
fn compare(receiver: &Value, sender: &Value) -> Result<u64, String> {
    let number = |report: &Value, title: &str, key: &str| {
        report[key].as_i64().ok_or_else(|| format!("{title}: its JSON has no whole number `{key}`"))
    };
    let unexplained = number(receiver, RECEIVER, "unexplained")?;
    let expected = number(receiver, RECEIVER, "sent")?;
    let sent = number(sender, SENDER, "sent")?;
    if unexplained != 0 {
        return Err(format!("receiver: {unexplained} datagrams are unexplained"));
    }
    if expected != sent {
        return Err(format!("the receiver's book has {expected} sent datagrams, the sender's {sent}"));
    }
    u64::try_from(sent).ok().filter(|sent| *sent > 0).ok_or_else(|| "nothing was sent".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_books_that_agree_are_accepted() {
        let (receiver, sender) =
            (json!({ "sent": 9, "received": 7, "unexplained": 0 }), json!({ "sent": 9 }));
        assert_eq!(compare(&receiver, &sender), Ok(9));
        for (receiver, word) in [
            (json!({ "sent": 9, "unexplained": 1 }), "unexplained"),
            (json!({ "sent": 8, "unexplained": 0 }), "8"),
            (json!({ "sent": 9 }), "`unexplained`"),
            (json!({ "unexplained": 0 }), "`sent`"),
        ] {
            assert!(compare(&receiver, &sender).unwrap_err().contains(word), "{receiver}");
        }
        assert!(compare(&json!({ "sent": 0, "unexplained": 0 }), &json!({ "sent": 0 })).is_err());
        assert!(compare(&receiver, &json!({})).is_err());
    }

    #[test]
    fn the_ladder_has_a_row_for_each_size_and_number_of_threads() {
        assert_eq!(steps(6).collect::<Vec<_>>()[..5], [(1, 32), (1, 128), (1, 512), (1, 1_200), (2, 32)]);
        assert_eq!((steps(6).last(), steps(1_000).count()), (Some((4, 1_200)), THREADS.len() * SIZES.len()));
        let received = json!({
            "sent": 30, "received": 20, "pps": 10.4, "spread_max_over_mean": 1.333, "cpu_ns_per_packet": null,
            "drops": { "kernel_receive_queue": 10, "wire_or_nic": 0 }, "limited_by": "sender",
        });
        let row = row("2".to_owned(), "32".to_owned(), &received);
        assert_eq!(row, ["2", "32", "30", "20", "10", "1.33", "-", "kernel_receive_queue 10", "sender"]);
    }
}
