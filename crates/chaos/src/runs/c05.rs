//! C5: source ports change under load, and then addresses, by a router with address translation. Copies of packets from another
//! address change nothing. At last the device itself changes its network. No player reconnects, and nothing is lost.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use drumfire::ClientConfig;
use drumfire::conditioner::{Delay, LinkConfig};

use super::{Setting, Testbed, WORKERS};
use crate::error::{Error, ErrorContext};
use crate::host::{LINK, call};
use crate::marks::Marks;
use crate::players::Players;
use crate::process::{Report, ServerSpec};
use crate::relay::{Relay, Relayed};

const PLAYERS: usize = 20;

/// The time between two messages of a player, so short that some are always on their way.
const PERIOD: Duration = Duration::from_millis(2);

/// Echoes that each player receives at a port before it takes the next one.
const ECHOES: u64 = 4;

/// The server's address on the link that the device changes its own address of.
const FAR_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0x215, 0, 0, 0, 0, 0, 2));

/// Copies of packets from another address.
const COPIES: u64 = 1_000;

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    change_ports(setting, marks)?;
    play_behind_router(setting, marks)?;
    marks.part("a device that changes its network", |marks| change_network(setting, marks))
}

fn change_ports(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    let rebinds = setting.size.of(100, 1_000, 10_000);
    let spec = ServerSpec::local(WORKERS)?;
    let players = Players::new(PERIOD, ClientConfig::default());
    let mut bed = Testbed::start(spec, PLAYERS, players)?;
    let before = bed.server.report()?;
    for _ in 0..rebinds / PLAYERS {
        for half in 0..2 {
            for player in bed.players.list.iter_mut().skip(half).step_by(2) {
                player.client.rebind().context("another socket")?;
            }
            bed.until_more_echoes(ECHOES)?;
        }
    }
    bed.players.settle()?;
    let (players, after) = (&bed.players, bed.server.report()?);
    let moved = path_migrations(&after) - path_migrations(&before);
    marks.equal("players that reconnected or are gone", players.gone(), 0);
    marks.equal("reliable messages lost", players.reliable_missing(), 0);
    marks.equal("messages twice or out of order", players.wrong(), 0);
    marks.at_least("changes of the source port followed", moved, rebinds as u64);
    marks.equal("connections", after.sum("/connections"), PLAYERS as u64);
    marks.equal("new connections", after.sum("/protocol/connections_opened"), PLAYERS as u64);
    marks.equal("echoes without room", after.value("/refused"), 0);
    marks.books(&after);
    marks.note(format_args!(
        "{rebinds} changes of {PLAYERS} players; {} echoes, p99 {:?}",
        players.reliable_received(),
        players.times.round_trips.percentile(99.0),
    ));
    Ok(())
}

/// The device gets another address and loses the one before. Nothing notifies the players, whose sockets have the old address.
fn change_network(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    let moves: u16 = setting.size.of(2, 5, 20);
    let change = |verb: &str, number: u16| {
        let address = Ipv6Addr::new(0xfd00, 0x215, 0, 0, 0, 0, 1, number);
        call("ip", &format!("address {verb} {address}/64 dev {LINK} nodad")).map(drop)
    };
    setting.call_far("ip", &format!("address add {FAR_V6}/64 dev {LINK} nodad"))?;
    change("add", 0)?;
    let spec = ServerSpec::within(setting.other, FAR_V6, WORKERS)?;
    let players = Players::new(PERIOD, ClientConfig::default());
    let mut bed = Testbed::start(spec, PLAYERS, players)?;
    for number in 1..=moves {
        change("add", number)?;
        change("del", number - 1)?;
        bed.until_more_echoes(ECHOES)?;
    }
    bed.players.settle()?;
    let (players, after) = (&bed.players, bed.server.report()?);
    marks.at_least(
        "changes of the network followed",
        path_migrations(&after),
        u64::from(moves) * PLAYERS as u64,
    );
    marks.equal("players on such a device that reconnected or are gone", players.gone(), 0);
    let harmed = players.reliable_missing() + players.wrong();
    marks.equal("reliable messages of such a device lost, twice or out of order", harmed, 0);
    marks.equal(
        "new connections of such a device",
        after.sum("/protocol/connections_opened"),
        PLAYERS as u64,
    );
    marks.books(&after);
    Ok(())
}

fn path_migrations(report: &Report) -> u64 {
    report.sum("/protocol/path_migrations")
}

/// The players keep their sockets, and do not know of the moves. They are behind two relays, so that half of them move while the others
/// play.
fn play_behind_router(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    let moves: u64 = setting.size.of(10, 100, 1_000);
    let link = LinkConfig::default().delay(Delay::Constant(Duration::from_millis(2)));
    let players = Players::new(PERIOD, ClientConfig::default().conditioner(link));
    let mut bed = Testbed::start(ServerSpec::local(WORKERS)?, 0, players)?;
    let relays = [Relay::start(bed.spec.config.address)?, Relay::start(bed.spec.config.address)?];
    for (player, relay) in (0..PLAYERS).zip(relays.iter().cycle()) {
        bed.players.add(&bed.spec.token_via(player, relay.address)?)?;
    }
    bed.players.until_answered()?;
    for _ in 0..moves {
        for relay in &relays {
            relay.relayed().moves += 1;
            bed.until_more_echoes(ECHOES)?;
        }
    }
    bed.players.settle()?;
    let sum = |of: fn(&Relayed) -> u64| -> u64 { relays.iter().map(|relay| of(&relay.relayed())).sum() };
    let (moved, unroutable) = (bed.server.report()?, sum(|relayed| relayed.unroutable));
    let copy = |is_copying| relays.iter().for_each(|relay| relay.relayed().is_copying = is_copying);
    copy(true);
    bed.players.until_any("packets are copied", |_| sum(|relayed| relayed.copied) >= COPIES)?;
    copy(false);
    bed.players.settle()?;
    let (players, after) = (&bed.players, bed.server.report()?);
    let duplicates = after.sum("/protocol/dropped/duplicate") - moved.sum("/protocol/dropped/duplicate");
    let followed = path_migrations(&moved);
    marks.at_least("changes of addresses by a router followed", followed, moves * PLAYERS as u64);
    marks.at_least("packets for addresses that the router forgot", unroutable, 1);
    marks.at_least("copies from another address dropped as duplicates", duplicates, COPIES);
    marks.equal("migrations caused by copies", path_migrations(&after) - followed, 0);
    let to_copies = sum(|relayed| relayed.unroutable) - unroutable;
    marks.equal("packets sent to the source of the copies", to_copies, 0);
    marks.equal("players behind a router that reconnected or are gone", players.gone(), 0);
    let harmed = players.reliable_missing() + players.wrong();
    marks.equal("their reliable messages lost, twice or out of order", harmed, 0);
    marks.equal("their new connections", after.sum("/protocol/connections_opened"), PLAYERS as u64);
    marks.books(&after);
    Ok(())
}
