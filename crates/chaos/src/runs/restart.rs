//! C6: the server is killed as the kernel kills it, and started again with the keys it had: each player learns of it by the
//! next packet that the new server answers. Then two of them, pointed at each other.

use std::time::Duration;

use drumfire::{ClientConfig, Reconnect};
use drumfire_tools::clock::now;

use super::{CROWD, PERIOD, Setting, WORKERS, each_other};
use crate::crowd::Crowd;
use crate::marks::{Marks, millis};
use crate::process::Plan;
use crate::stop::Stop;

/// A player knows within this time after the new server is there.
const GOAL: Duration = Duration::from_secs(1);

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    let (rounds, players) = (setting.size.of(3, 50, 500), setting.size.of(50, CROWD, CROWD));
    let config = ClientConfig::default().reconnect(Reconnect::Within(Duration::from_secs(30)));
    let mut plan = Plan::new(setting.address, WORKERS)?;
    let (mut told, mut late, mut slowest, mut back) = (0, 0, Duration::ZERO, Duration::ZERO);
    for _ in 0..rounds {
        let server = plan.start()?;
        // Others each time: who was just away waits longer the next time.
        let mut crowd = Crowd::connect(&plan, players, PERIOD, &config)?;
        crowd.until("all can come back", |player| player.client.resume_token().is_some())?;
        server.kill()?;
        let server = plan.start()?;
        let served_at = now();
        crowd.until("all were told", |player| player.told_at.is_some())?;
        crowd.until("all are back", |player| player.again > 0 && player.ordered.heard > 0)?;
        back = back.max(now().duration_since(served_at));
        for player in &crowd.players {
            let time = player.told_at.map_or(Duration::MAX, |at| at.saturating_duration_since(served_at));
            (told, late) = (told + u64::from(player.told_at.is_some()), late + u64::from(time > GOAL));
            slowest = slowest.max(time);
        }
        server.kill()?;
    }
    let all = (rounds * players) as u64;
    marks.equal("players told", told, all);
    marks.equal(&format!("players told later than {}", millis(GOAL)), late, 0);
    marks.within("the slowest to know", slowest, GOAL);
    marks.note(format_args!(
        "{rounds} kills, {players} players each; all were back after {} at most",
        millis(back)
    ));
    let outcome = each_other::run(setting, marks);
    marks.part("two servers pointed at each other", outcome)
}
