//! `cargo xtask two-hosts`: compares the reports of a sender and a receiver in two network namespaces joined by a veth
//! pair.
//!
//! It measures nothing. Every number that it prints comes from the two programs.

use std::time::Duration;

use serde_json::Value;

use crate::netns::{Pair, Side};
use crate::run::{CommandLine, Running, Stop, wait_for};
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
    CommandLine::cargo(&format!("build --release --bin {RECEIVER} --bin {SENDER}")).done()?;
    let address = format!("{}:{PORT}", SIDE.address());
    let start = |title: &str, side: Side, flags: &[&str]| {
        let command =
            pair.inside(side, &workspace.target.join("release").join(title).display().to_string(), flags);
        Running::start(command.args(&["--json", "-"]))
    };
    let receiver_flags: Vec<&str> = args.receiver_flags.iter().map(String::as_str).collect();
    let mut receiver = start(RECEIVER, SIDE, &[&["--bind", &address], &receiver_flags[..]].concat())?;
    // The sender connects only once to the receiver's control port.
    let sockets = ["--no-header", "--listening", "--tcp", "--numeric", "sport", "=", &format!(":{PORT}")];
    let sockets = pair.inside(SIDE, "ss", &sockets);
    wait_for("the receiver does not listen on its TCP port", START_DEADLINE, || {
        if receiver.is_done()? {
            return Err(Stop::failed("the receiver ended before it listened on its TCP port"));
        }
        Ok((!sockets.output()?.is_empty()).then_some(()))
    })?;
    // The receiver ends after its sender, so only the sender has a length.
    let seconds = args.secs.to_string();
    let sender_flags: Vec<&str> = args.sender.split_whitespace().collect();
    let sender_flags = [&["--to", &address, "--secs", &seconds], &sender_flags[..]].concat();
    let mut sender = start(SENDER, Side::B, &sender_flags)?;
    let deadline = Duration::from_secs(args.secs.into()) + END_DEADLINE;
    let are_done = || Ok((receiver.is_done()? & sender.is_done()?).then_some(()));
    wait_for("the sender or the receiver still runs", deadline, are_done)?;
    let (received, sent) = (receiver.output(), sender.output());
    println!("{received}\n{sent}");
    let count = compare(&received, &sent)?;
    println!("the reports agree: {count} datagrams were sent, and each is explained");
    Ok(())
}

/// Returns a number in the report of a program.
fn number(title: &str, report: &str, field: &str) -> Result<i64, String> {
    let value: Value = serde_json::from_str(report).unwrap_or_default();
    value[field].as_i64().ok_or_else(|| format!("{title}: no `{field}` in its standard output: {report}"))
}

/// Returns the number of datagrams that both reports have as sent, when none is unexplained.
fn compare(receiver: &str, sender: &str) -> Result<i64, String> {
    let unexplained = number(RECEIVER, receiver, "unexplained")?;
    // The sender announces it to the receiver.
    let (expected, sent) = (number(RECEIVER, receiver, "sent")?, number(SENDER, sender, "sent")?);
    if unexplained == 0 && expected == sent && sent > 0 {
        return Ok(sent);
    }
    let receiver = format!("the receiver reports {expected} sent and {unexplained} unexplained datagrams");
    Err(format!("{receiver}, the sender reports {sent} sent ones"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reports_with_equal_counts_are_accepted() {
        let receiver =
            |sent, unexplained| format!(r#"{{"sent":{sent},"unexplained":{unexplained},"pps":1.5}}"#);
        let (good, sender) = (receiver(9, 0), r#"{"sent":9,"flows":1}"#);
        assert_eq!(compare(&good, sender), Ok(9));
        for bad in [&receiver(9, 1), &receiver(9, -1), &receiver(8, 0), sender, "{}", ""] {
            assert!(compare(bad, sender).is_err(), "{bad}");
        }
        assert!(compare(&good, r#"{"sent":8}"#).is_err() && compare(&good, "{}").is_err());
        assert!(compare(&receiver(0, 0), r#"{"sent":0}"#).is_err(), "nothing was sent");
    }
}
