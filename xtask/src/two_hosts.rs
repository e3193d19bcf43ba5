//! `cargo xtask two-hosts`: compares the books of a sender and a receiver in two network namespaces joined by a veth pair, once or for
//! every rung of a ladder of receiver threads and packet sizes.
//!
//! It measures nothing itself. Every number that it prints comes from the two programs.

mod ladder;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::netns::{Pair, Side};
use crate::run::{CommandLine, Interrupt, Running, Stop, wait_until};
use crate::workspace::Workspace;
use ladder::Rung;

/// The flags of the two programs. `{address}` is the receiver's, `{secs}` the length of the run. Only the sender needs the length,
/// because the receiver ends after its sender.
const RECEIVER: Invocation =
    Invocation { title: "receiver", side: Side::A, flags: &["--bind", "{address}", "--json", "-"] };
const SENDER: Invocation = Invocation {
    title: "sender",
    side: Side::B,
    flags: &["--to", "{address}", "--secs", "{secs}", "--json", "-"],
};
/// UDP for datagrams, TCP of the same number for the control connection.
const PORT: u16 = 9000;

/// The receiver opens its port within this time.
const START_DEADLINE: Duration = Duration::from_secs(10);
/// Both programs end within this time after the length of the run.
const END_DEADLINE: Duration = Duration::from_secs(30);

struct Invocation {
    /// The binary's name, and what its lines are marked with.
    title: &'static str,
    side: Side,
    flags: &'static [&'static str],
}

/// The flags of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct TwoHostsArgs {
    /// Run every rung of receiver threads, up to the cores, by packet sizes, in the stage raw and as fast as it goes.
    #[arg(long)]
    ladder: bool,
    /// How long the sender sends, in seconds; with `--ladder` on each rung.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    secs: u32,
    /// Flags for the receiver, after `--`.
    #[arg(last = true)]
    receiver_flags: Vec<String>,
}

/// Runs both programs and compares their books.
///
/// # Errors
/// [`Stop::Needs`] when the machine cannot make namespaces, [`Stop::Interrupted`] on Ctrl-C, [`Stop::Failed`] when a
/// program fails or the books do not agree. The namespaces are removed in every case.
pub(crate) fn run(args: &TwoHostsArgs) -> Result<(), Stop> {
    let interrupt = Interrupt::on_ctrl_c()?;
    let workspace = Workspace::load()?;
    // Before the build, so that a machine that cannot make namespaces is skipped without one.
    let pair = Pair::new()?;
    build(&workspace)?;

    let hosts = Hosts { pair, programs: workspace.target.join("release"), secs: args.secs, interrupt };
    if args.ladder {
        return hosts.climb(&args.receiver_flags);
    }
    let (received, sent) = hosts.books(&args.receiver_flags, &[])?;
    println!("{received:#}\n{sent:#}");
    let count = compare(&received, &sent).map_err(Stop::Failed)?;
    println!("books agree: {count} datagrams sent, none unexplained");
    Ok(())
}

/// Where both programs run, one run after the other.
struct Hosts {
    pair: Pair,
    programs: PathBuf,
    secs: u32,
    interrupt: Interrupt,
}

impl Hosts {
    /// Runs both programs with additional flags. Returns the receiver's book and the sender's.
    fn books(&self, receiver_flags: &[String], sender_flags: &[String]) -> Result<(Value, Value), Stop> {
        let start = |who: &Invocation, extra: &[String]| {
            let program = self.programs.join(who.title);
            let command = self.pair.inside(who.side, &program.to_string_lossy(), &who.filled_in(self.secs));
            Running::start(who.title, &extra.iter().fold(command, CommandLine::arg))
        };
        let mut receiver = start(&RECEIVER, receiver_flags)?;
        wait_until_listening(&mut receiver, &self.interrupt)?;
        let mut sender = start(&SENDER, sender_flags)?;
        let deadline = Duration::from_secs(self.secs.into()) + END_DEADLINE;
        wait_for_both(&mut receiver, &mut sender, deadline, &self.interrupt)?;
        Ok((book(&mut receiver)?, book(&mut sender)?))
    }

    /// Runs every rung and prints one table. The first whose books do not agree ends it, and the table shows those before.
    fn climb(&self, receiver_flags: &[String]) -> Result<(), Stop> {
        let mut rows = Vec::new();
        let climbed = Rung::all().into_iter().try_for_each(|rung| {
            let flags = [&rung.receiver_flags()[..], receiver_flags].concat();
            let (received, sent) = self.books(&flags, &rung.sender_flags())?;
            compare(&received, &sent).map_err(Stop::Failed)?;
            rows.push((rung, received));
            Ok(())
        });
        println!("\n{}", ladder::table(&rows));
        climbed?;
        println!("books agree in all {} runs, none unexplained", rows.len());
        Ok(())
    }
}

fn build(workspace: &Workspace) -> Result<(), Stop> {
    let args = ["build", "--release", "-p", "drumfire-tools", "--bin", RECEIVER.title, "--bin", SENDER.title];
    CommandLine::new("cargo", &args).done(&workspace.root)
}

impl Invocation {
    fn filled_in(&self, secs: u32) -> Vec<String> {
        let address = format!("{}:{PORT}", RECEIVER.side.address());
        let fill = |flag: &&str| flag.replace("{address}", &address).replace("{secs}", &secs.to_string());
        self.flags.iter().map(fill).collect()
    }
}

/// Reads the standard output of a program that has ended as JSON.
fn book(program: &mut Running) -> Result<Value, Stop> {
    let text = program.output();
    let title = program.title();
    serde_json::from_str(&text)
        .map_err(|why| Stop::failed(format!("{title}: its standard output is not JSON: {why}: {text}")))
}

/// Waits until the receiver's control port takes connections.
fn wait_until_listening(receiver: &mut Running, interrupt: &Interrupt) -> Result<(), Stop> {
    // The table of the network namespace in which that process is.
    let table = format!("/proc/{}/net/tcp", receiver.id());
    wait_until("receiver: its TCP port does not listen", START_DEADLINE, interrupt, || {
        if is_listening(&fs::read_to_string(&table).unwrap_or_default()) {
            return Ok(true);
        }
        if receiver.is_done()? {
            return Err(Stop::failed("receiver ended before it listened"));
        }
        Ok(false)
    })
}

/// Whether a `/proc/net/tcp` table has the receiver's address and port in the state LISTEN (0A), see proc(5).
fn is_listening(table: &str) -> bool {
    let address = u32::from_ne_bytes(RECEIVER.side.address().octets());
    let local = format!("{address:08X}:{PORT:04X}");
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next() == Some(local.as_str()) && fields.nth(1) == Some("0A")
    })
}

fn wait_for_both(
    receiver: &mut Running,
    sender: &mut Running,
    deadline: Duration,
    interrupt: &Interrupt,
) -> Result<(), Stop> {
    wait_until("sender or receiver still runs", deadline, interrupt, || {
        Ok(receiver.is_done()? & sender.is_done()?)
    })
}

/// The number of datagrams both books name as sent, when nothing is unexplained.
fn compare(receiver: &Value, sender: &Value) -> Result<u64, String> {
    let number = |book: &Value, title: &str, key: &str| {
        book[key].as_i64().ok_or_else(|| format!("{title}: its JSON has no whole number `{key}`"))
    };
    let unexplained = number(receiver, RECEIVER.title, "unexplained")?;
    let expected = number(receiver, RECEIVER.title, "sent")?;
    let sent = number(sender, SENDER.title, "sent")?;
    if unexplained != 0 {
        return Err(format!("receiver: {unexplained} datagrams are unexplained"));
    }
    if expected != sent {
        return Err(format!("the receiver's book says {expected} were sent, the sender's {sent}"));
    }
    u64::try_from(sent).ok().filter(|sent| *sent > 0).ok_or_else(|| "nothing was sent".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shell(title: &'static str, script: &str) -> Running {
        Running::start(title, &CommandLine::new("sh", &["-c", script])).unwrap()
    }

    #[test]
    fn books_that_agree_are_accepted() {
        let receiver = json!({ "sent": 9, "received": 7, "unexplained": 0 });
        assert_eq!(compare(&receiver, &json!({ "sent": 9 })), Ok(9));
    }

    #[test]
    fn books_that_do_not_agree_are_refused() {
        let sender = json!({ "sent": 9 });
        for (receiver, word) in [
            (json!({ "sent": 9, "unexplained": 1 }), "unexplained"),
            (json!({ "sent": 9, "unexplained": -1 }), "unexplained"),
            (json!({ "sent": 8, "unexplained": 0 }), "8"),
            (json!({ "sent": 9 }), "`unexplained`"),
            (json!({ "unexplained": 0 }), "`sent`"),
        ] {
            assert!(compare(&receiver, &sender).unwrap_err().contains(word), "{receiver}");
        }
        assert!(compare(&json!({ "sent": 0, "unexplained": 0 }), &json!({ "sent": 0 })).is_err());
        assert!(compare(&json!({ "sent": 9, "unexplained": 0 }), &json!({})).is_err());
    }

    #[test]
    fn a_table_shows_whether_the_receiver_listens() {
        let address = u32::from_ne_bytes([10, 213, 0, 1]);
        let line = |address: u32, port: u16, state: &str| {
            format!(
                "  sl  local_address rem_address   st\n   0: {address:08X}:{port:04X} 00000000:0000 {state} 0\n"
            )
        };
        assert!(is_listening(&line(address, 9000, "0A")));
        assert!(!is_listening(&line(address, 9000, "01")), "connected, not listening");
        assert!(!is_listening(&line(address, 9001, "0A")));
        assert!(!is_listening(&line(0, 9000, "0A")));
        assert!(!is_listening(""));
    }

    #[test]
    fn the_flags_name_the_receivers_address_and_the_length() {
        assert_eq!(SENDER.filled_in(7), ["--to", "10.213.0.1:9000", "--secs", "7", "--json", "-"]);
        assert_eq!(RECEIVER.filled_in(7), ["--bind", "10.213.0.1:9000", "--json", "-"]);
    }

    #[test]
    fn both_programs_are_waited_for_and_their_json_is_read() {
        let (mut a, mut b) =
            (shell("receiver", "echo '{ \"sent\": 1 }'; echo table >&2"), shell("sender", "echo 2"));
        wait_for_both(&mut a, &mut b, Duration::from_secs(60), &Interrupt::never()).unwrap();
        assert_eq!((book(&mut a).unwrap(), book(&mut b).unwrap()), (json!({ "sent": 1 }), json!(2)));
    }

    #[test]
    fn a_program_that_fails_ends_the_wait_for_the_other() {
        let (mut a, mut b) = (shell("receiver", "exit 2"), shell("sender", "exec sleep 600"));
        let ended = wait_for_both(&mut a, &mut b, Duration::from_secs(60), &Interrupt::never());
        assert!(matches!(ended, Err(Stop::Failed(why)) if why.starts_with("receiver failed")));
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let (mut a, mut b) = (shell("receiver", "exec sleep 600"), shell("sender", "exec sleep 600"));
        let ended = wait_for_both(&mut a, &mut b, Duration::ZERO, &Interrupt::never());
        assert!(matches!(ended, Err(Stop::Failed(why)) if why.contains("still runs")));
    }

    #[test]
    fn a_receiver_that_ends_before_it_listens_is_not_waited_for() {
        let ended = wait_until_listening(&mut shell("receiver", "exit 0"), &Interrupt::never());
        assert!(matches!(ended, Err(Stop::Failed(why)) if why.contains("before it listened")));
    }
}
