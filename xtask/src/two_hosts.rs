//! `cargo xtask two-hosts`: compares the books of a sender and a receiver in two network namespaces joined by a veth pair.
//!
//! It measures nothing. Every number that it prints comes from the two programs.

use std::time::Duration;

use serde_json::Value;

use crate::netns::{Pair, Side};
use crate::run::{CommandLine, Running, Stop, wait_for, word};
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

#[derive(Debug, clap::Args)]
pub(crate) struct TwoHostsArgs {
    /// The time for which the sender sends, in seconds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    secs: u32,
    /// Flags for the sender, as one argument.
    #[arg(long, value_name = "FLAGS", default_value = "", allow_hyphen_values = true)]
    sender: String,
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
    let address = format!("{}:{PORT}", SIDE.address());
    let start = |title: &'static str, side: Side, flags: &[&str]| {
        let command = pair.inside(side, &word(&workspace.target.join("release").join(title)), flags);
        Running::start(title, &command.args(&["--json", "-"]))
    };
    let receiver_flags: Vec<&str> = args.receiver_flags.iter().map(String::as_str).collect();
    let mut receiver = start(RECEIVER, SIDE, &[&["--bind", &address], &receiver_flags[..]].concat())?;
    wait_until_listening(&pair, &mut receiver)?;
    // The receiver ends after its sender, so only the sender has a length.
    let seconds = args.secs.to_string();
    let sender_flags: Vec<&str> = args.sender.split_whitespace().collect();
    let sender_flags = [&["--to", &address, "--secs", &seconds], &sender_flags[..]].concat();
    let mut sender = start(SENDER, Side::B, &sender_flags)?;
    let deadline = Duration::from_secs(args.secs.into()) + END_DEADLINE;
    let are_done = || Ok((receiver.is_done()? & sender.is_done()?).then_some(()));
    wait_for("sender or receiver still runs", deadline, are_done)?;
    let (received, sent) = (report(RECEIVER, &mut receiver)?, report(SENDER, &mut sender)?);
    println!("{received:#}\n{sent:#}");
    let count = compare(&received, &sent)?;
    println!("books agree: {count} datagrams sent, none unexplained");
    Ok(())
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
}
