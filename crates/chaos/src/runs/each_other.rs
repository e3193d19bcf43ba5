//! C6, where packets go whose connection nobody knows: two servers that each had one, were killed and started again, and packets of
//! theirs that claim to come from the other server. Each is answered once, and the answer is the end of it.

use std::time::Duration;

use drumfire::ClientConfig;
use drumfire_tools::clock::pause;

use super::{PERIOD, Setting};
use crate::crowd::Crowd;
use crate::forged::{Forger, v4};
use crate::marks::Marks;
use crate::process::{Plan, ServerProcess};
use crate::stop::{Stop, Tried};
use crate::tap::Tap;

/// A connection that is not known is answered once in 100 ms.
const APART: Duration = Duration::from_millis(150);

/// Whatever the two still have to say to each other is said within this time.
const QUIET: Duration = Duration::from_secs(1);

/// Packets between the two for each that was forged, itself among them.
const GOAL: u64 = 3;

/// A server that knows nothing of the connection that this packet is of.
struct Stranger {
    plan: Plan,
    server: ServerProcess,
    packet: Vec<u8>,
}

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    let rounds = setting.size.of(5, 50, 500);
    let first = Plan::new(setting.address, 1)?;
    let (twin, other) = (first.twin()?, Plan::new(setting.address, 1)?);
    let mut first = Stranger::new(first)?;
    for (name, second) in [("other keys", other), ("the same keys", twin)] {
        let mut second = Stranger::new(second)?;
        let before = first.known()?;
        let forger = Forger::new()?;
        let (at_first, at_second) = (v4(first.plan.address())?, v4(second.plan.address())?);
        let mut forged = 0;
        for _ in 0..rounds {
            for (from, to, packet) in
                [(at_second, at_first, &first.packet), (at_first, at_second, &second.packet)]
            {
                forged += u64::from(forger.send(from, to, packet));
            }
            pause(APART);
        }
        pause(QUIET);
        let between = [first.known()?, second.known()?];
        let came = between[0].came + between[1].came - before.came;
        let answers = between[0].answers + between[1].answers - before.answers;
        pause(QUIET);
        let later = first.known()?.came + second.known()?.came - before.came;
        marks.at_least(&format!("{name}: packets forged"), forged, 2 * rounds);
        marks.equal(&format!("{name}: of them answered"), answers, forged);
        marks.equal(
            &format!("{name}: packets that are neither forged nor an answer"),
            came.abs_diff(forged + answers),
            0,
        );
        marks.at_most(
            &format!("{name}: packets for each that was forged"),
            came.div_ceil(forged.max(1)),
            GOAL,
        );
        marks.equal(&format!("{name}: packets after that"), later - came, 0);
    }
    Ok(())
}

/// What a server counted.
struct Known {
    /// Datagrams that came.
    came: u64,
    /// Resets that it sent.
    answers: u64,
}

impl Stranger {
    /// Has a player, is killed, and started again with the keys it had.
    fn new(mut plan: Plan) -> Result<Self, Stop> {
        let server = plan.start()?;
        let tap = Tap::start(plan.address())?;
        let mut crowd = Crowd::begun(&plan, 0, PERIOD, &ClientConfig::default())?;
        crowd.begin(&plan.token_at(0, tap.address)?, &ClientConfig::default())?;
        crowd.until("somebody plays", |player| player.ordered.heard > 20)?;
        let packet = tap.samples().packets.pop().tried("a packet")?;
        server.kill()?;
        // What they still say is said before there is a server again.
        drop(crowd);
        drop(tap);
        let server = plan.start()?;
        Ok(Self { plan, server, packet })
    }

    fn known(&mut self) -> Result<Known, Stop> {
        let report = self.server.report()?;
        Ok(Known { came: report.known_datagrams(), answers: report.sum("/protocol/resets_sent") })
    }
}
