//! C2: a network that loses a fifth of all packets, delays them by 50 to 150 ms, and duplicates and corrupts some. Reliable messages
//! arrive once, and soon.

use std::time::Duration;

use drumfire::ClientConfig;
use drumfire::conditioner::{Delay, LinkConfig, Loss};

use super::{Setting, Testbed, WORKERS};
use crate::error::Error;
use crate::marks::Marks;
use crate::players::Players;
use crate::process::ServerSpec;
use crate::traffic::millis;

const PLAYERS: usize = 20;

/// 99 % of the server's reliable messages arrive within this time.
const GOAL: Duration = Duration::from_millis(1_500);

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    let time = setting.size.secs(8, 60, 600);
    let delay = Delay::Uniform { min: Duration::from_millis(50), max: Duration::from_millis(150) };
    let link = LinkConfig::default()
        .loss(Loss::Random(0.2))
        .delay(delay)
        .duplicate(0.05, Duration::from_millis(100))
        .corrupt(0.01);
    let spec = ServerSpec { down: 1, ..setting.far_server(WORKERS)? };
    // With this loss a handshake may fail, and the player tries again. A connection must not end.
    let players = Players::reconnecting(ClientConfig::default().conditioner(link));
    let mut bed = Testbed::start(spec, PLAYERS, players)?;
    bed.players.reset();
    bed.players.play(time);
    let report = bed.until_acknowledged()?;
    let players = &mut bed.players;
    players.settle()?;
    let received = players.down_received();
    marks.equal("players gone", players.gone(), 0);
    marks.equal("reliable messages lost on the way up and back", players.reliable_missing(), 0);
    marks.equal("reliable messages of the server that arrived", received, report.of_players("sent"));
    marks.equal("messages twice or out of order", players.wrong(), 0);
    marks.within(
        "p99 of the server's reliable messages, one way",
        players.times.one_way.percentile(99.0),
        GOAL,
    );
    marks.at_least("packets lost by the link", players.sum_of_links(|link| link.lost), 100);
    marks.at_least("packets corrupted by the link", players.sum_of_links(|link| link.corrupted), 10);
    marks.at_least("packets duplicated by the link", players.sum_of_links(|link| link.duplicated), 10);
    marks.books(&report);
    marks.note(format_args!(
        "{received} messages down, p50 {}, p90 {}, and {} echoes; the server found {} corrupted packets",
        millis(players.times.one_way.percentile(50.0)),
        millis(players.times.one_way.percentile(90.0)),
        players.reliable_received(),
        report.sum("/protocol/dropped/forged"),
    ));
    Ok(())
}
