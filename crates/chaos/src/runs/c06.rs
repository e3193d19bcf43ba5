//! C6: the server is killed and started again with its keys. Each player notices by the next packet that the new server answers.
//! Then two restarted servers receive packets that claim to come from each other: each is answered once, and the answer is the last
//! packet.

use std::time::Duration;

use drumfire::{ClientConfig, CloseReason};
use drumfire_tools::clock::{now, pause};

use super::{Setting, Testbed, WORKERS};
use crate::error::{Error, ErrorContext};
use crate::marks::Marks;
use crate::net::{SpoofingSender, v4};
use crate::players::Players;
use crate::process::{ServerProcess, ServerSpec};
use crate::relay::Relay;
use crate::traffic::millis;

/// A player notices within this time after the new server has started.
const NOTICE_GOAL: Duration = Duration::from_secs(1);

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    let (rounds, count) = (setting.size.of(3, 50, 500), setting.size.many_players());
    let mut spec = ServerSpec::local(WORKERS)?;
    let (mut noticed, mut late) = (0, 0);
    let (mut slowest, mut back) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..rounds {
        let server = spec.start()?;
        // New players each time, because one that has just reconnected waits longer before the next attempt.
        let mut players = Players::reconnecting(ClientConfig::default());
        players.add_all(&spec, 0..count)?;
        players.until_answered()?;
        players.until("all can resume", |player| player.client.resume_token(player.peer).is_some())?;
        drop(server);
        let server = spec.start()?;
        let started_at = now();
        players.until("all noticed", |player| player.noticed_at.is_some())?;
        players.until("all are back", |player| player.reconnects > 0 && player.ordered.received > 0)?;
        back = back.max(now().duration_since(started_at));
        for at in players.list.iter().map(|player| player.noticed_at) {
            let time = at.map_or(Duration::MAX, |at| at.saturating_duration_since(started_at));
            late += u64::from(time > NOTICE_GOAL);
            slowest = slowest.max(time);
        }
        noticed += players.count(|player| player.lost_by == Some(CloseReason::Reset));
        drop(server);
    }
    marks.equal("players that noticed by a Reset", noticed, (rounds * count) as u64);
    marks.equal(&format!("players that noticed later than {}", millis(NOTICE_GOAL)), late, 0);
    marks.within("the slowest player to notice", slowest, NOTICE_GOAL);
    let back = millis(back);
    marks.note(format_args!("{rounds} kills, {count} players each; all were back after {back} at most"));
    marks.part("two servers pointed at each other", |marks| forge_between_servers(setting, marks))
}

/// The server answers packets of unknown connections once per 100 ms.
const FORGE_PERIOD: Duration = Duration::from_millis(150);

/// The servers' answers arrive within this time.
const QUIET: Duration = Duration::from_secs(1);

/// Packets between the servers for each forged packet, including it.
const PACKETS_GOAL: u64 = 2;

fn forge_between_servers(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    let rounds = setting.size.of(5, 50, 500);
    let first = ServerSpec::local(1)?;
    let (same, other) = (first.with_same_keys(), ServerSpec::local(1)?);
    let mut first = RestartedServer::new(first)?;
    for (name, second) in [("other keys", other), ("the same keys", same)] {
        let mut second = RestartedServer::new(second)?;
        let before = first.counts()?;
        let sender = SpoofingSender::new()?;
        let (at_first, at_second) = (v4(first.spec.config.address)?, v4(second.spec.config.address)?);
        let mut forged = 0;
        for _ in 0..rounds {
            forged += u64::from(sender.send(at_second, at_first, &first.packet));
            forged += u64::from(sender.send(at_first, at_second, &second.packet));
            pause(FORGE_PERIOD);
        }
        pause(QUIET);
        let counts = [first.counts()?, second.counts()?];
        let [received, answers] = [0, 1].map(|at: usize| counts[0][at] + counts[1][at] - before[at]);
        pause(QUIET);
        let later = first.counts()?[0] + second.counts()?[0] - before[0];
        marks.section(name);
        marks.at_least("packets forged", forged, 2 * rounds);
        marks.equal("forged packets answered", answers, forged);
        let others = received.abs_diff(forged + answers);
        marks.equal("packets that are neither forged nor an answer", others, 0);
        let per_forged = received.div_ceil(forged.max(1));
        marks.at_most("packets for each that was forged", per_forged, PACKETS_GOAL);
        marks.equal("packets after that", later - received, 0);
    }
    Ok(())
}

/// A server that has forgotten the connection of a packet.
struct RestartedServer {
    spec: ServerSpec,
    server: ServerProcess,
    packet: Vec<u8>,
}

impl RestartedServer {
    fn new(spec: ServerSpec) -> Result<Self, Error> {
        let Testbed { mut spec, server, mut players } = Testbed::start(spec, 0, Players::default())?;
        let relay = Relay::start(spec.config.address)?;
        players.add(&spec.token_via(0, relay.address)?)?;
        players.until("the player plays", |player| player.ordered.received > 20)?;
        let packet = relay.relayed().samples.packets.pop().context("a packet")?;
        drop(server);
        // The player's last packets are lost before the server starts again.
        drop((players, relay));
        let server = spec.start()?;
        Ok(Self { spec, server, packet })
    }

    /// Returns the number of received datagrams and of sent Resets.
    fn counts(&mut self) -> Result<[u64; 2], Error> {
        let report = self.server.report()?;
        Ok([report.known_datagrams(), report.sum("/protocol/resets_sent")])
    }
}
