//! C7: the server ends without haste while it sends and its players play: of each reliable message it said it knows in the end
//! that it was acknowledged or that it was not, and what was acknowledged is there, once.

use std::time::Duration;

use drumfire::ClientConfig;
use drumfire_tools::clock::now;
use serde_json::Value;

use super::{PERIOD, Setting, WORKERS};
use crate::crowd::Crowd;
use crate::ledger::MESSAGE_BYTES;
use crate::marks::{Marks, millis};
use crate::process::Plan;
use crate::stop::{Stop, Tried};

const PLAYERS: usize = 20;

/// Players that nobody looks after when the server ends: theirs is what stays undelivered.
const ASLEEP: usize = 2;

/// Messages of the server for each player in 10 ms.
const DOWN: u64 = 8;

/// How long the server may take, and how much longer than that.
const DEADLINE: Duration = Duration::from_millis(500);
const SLACK: Duration = Duration::from_millis(100);

/// Bytes that a message is charged beside its own.
const CHARGE_BYTES: u64 = 64;

/// What all drains came to.
#[derive(Default)]
struct Sums {
    said: u64,
    acknowledged: u64,
    reported: u64,
    undelivered: u64,
    acknowledged_and_not_there: u64,
    wrong: u64,
    failed: u64,
    slowest: Duration,
}

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    let rounds = setting.size.of(3, 100, 1_000);
    let mut sums = Sums::default();
    for _ in 0..rounds {
        drain_once(setting, &mut sums)?;
    }
    marks.at_least("reliable messages said", sums.said, rounds * 100);
    marks.equal("acknowledged or reported", sums.acknowledged + sums.reported, sums.said);
    marks.equal("undelivered by the server's list", sums.undelivered, sums.reported);
    marks.at_least("undelivered to who was asleep", sums.undelivered, rounds);
    marks.equal("acknowledged and not there", sums.acknowledged_and_not_there, 0);
    marks.equal("twice or out of order", sums.wrong, 0);
    marks.equal("servers that did not end well", sums.failed, 0);
    marks.within("the slowest end", sums.slowest, DEADLINE + SLACK);
    marks.note(format_args!(
        "{rounds} ends, deadline {}, {} acknowledged",
        millis(DEADLINE),
        sums.acknowledged
    ));
    Ok(())
}

fn drain_once(setting: &Setting, sums: &mut Sums) -> Result<(), Stop> {
    let mut plan = Plan::new(setting.address, WORKERS)?.flag("--down", DOWN);
    let mut server = plan.start()?;
    let mut crowd = Crowd::connect(&plan, PLAYERS, PERIOD, &ClientConfig::default())?;
    crowd.go_on(Duration::from_millis(100));
    // Who falls asleep has acknowledged its echoes: what stays undelivered is what the server said of its own.
    crowd.settle()?;
    crowd.rest(Duration::from_millis(100));
    for player in crowd.players.iter_mut().take(ASLEEP) {
        player.is_asleep = true;
    }
    crowd.go_on(Duration::from_millis(50));
    let told_at = now();
    server.tell(&format!("drain {}", DEADLINE.as_millis()))?;
    let server = std::thread::spawn(move || {
        let answer = server.answer();
        let status = server.wait(Duration::from_secs(10));
        (answer, status, now())
    });
    crowd.until("all heard of the end", |player| player.is_asleep || player.gone.is_some())?;
    let Ok((answer, status, ended_at)) = server.join() else {
        return Err(Stop::failed("a thread", "it panicked"));
    };
    let book = answer?;
    sums.failed += u64::from(!status?.success());
    sums.slowest = sums.slowest.max(ended_at.duration_since(told_at));
    sums.wrong += crowd.wrong();
    add_book(sums, &book, &crowd)
}

/// Adds what the server wrote down, beside what the players heard.
fn add_book(sums: &mut Sums, book: &Value, crowd: &Crowd) -> Result<(), Stop> {
    for (player, account) in book["players"].as_object().tried("accounts")? {
        let count = |name: &str| account[name].as_u64().tried(name);
        let at: usize = player.parse().tried("a player")?;
        let heard = crowd.players.get(at).tried("a player")?.down.heard;
        let acknowledged = count("acknowledged")?;
        sums.said += count("said")?;
        sums.acknowledged += acknowledged;
        sums.reported += count("lost")?;
        // They are heard in order, so that the first so many are there.
        sums.acknowledged_and_not_there += acknowledged.saturating_sub(heard);
    }
    let bytes = book["undelivered_bytes"].as_array().tried("a list")?;
    let bytes: u64 = bytes.iter().filter_map(Value::as_u64).sum();
    sums.undelivered += bytes / (MESSAGE_BYTES as u64 + CHARGE_BYTES);
    Ok(())
}
