//! Interleaved rounds of all arms of a load: each arm once, then each again. The first round warms up and does not count; a round
//! that the machine disturbed is repeated. An arm that cannot be run is left out from then on, with its line kept.

use std::collections::HashMap;
use std::time::Duration;

use drumfire_benches::traffic::Shape;
use drumfire_benches::{Cores, Measured};

use crate::effort::Effort;
use crate::face::Setup;
use crate::load::Load;
use crate::process::Asked;
use crate::rivals::{Rival, Serve};
use crate::round::{self, Beside};

/// How often rounds of one arm that the machine disturbed are repeated, so that a busy machine cannot hold up the bench.
const MAX_REPEATS: u32 = 10;

/// Why rivals cannot be run, by their names.
pub(crate) type Missing = HashMap<&'static str, String>;

/// A rival with one way of delivery, and what came of it.
pub(crate) struct Row {
    pub(crate) rival: Rival,
    pub(crate) setup: Setup,
    pub(crate) connections: usize,
    pub(crate) measured: Measured,
    pub(crate) beside: Vec<Beside>,
    pub(crate) state: State,
}

/// How far an arm came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// All its rounds were run.
    Measured,
    /// It cannot be had here, or has no part in this load.
    Missing(String),
    /// It failed, or its books do not close.
    Failed(String),
}

impl Row {
    /// Its name in tables and reports.
    pub(crate) fn name(&self) -> String {
        arm_name(self.rival.name, self.setup.is_reliable)
    }

    /// The name of the reports of its rounds: those of an arm that failed later are marked, since they are no result.
    pub(crate) fn name_of_runs(&self) -> String {
        let mark = if matches!(self.state, State::Failed(_)) { ", failed later" } else { "" };
        format!("{}{mark}", self.name())
    }

    /// Why nothing came of it; `None` where it was measured.
    pub(crate) fn why_not(&self) -> Option<String> {
        match &self.state {
            State::Measured => None,
            State::Missing(why) => Some(format!("missing: {why}")),
            State::Failed(line) => Some(format!("failed after {} rounds: {line}", self.beside.len())),
        }
    }

    /// What all its rounds take when none is void; nothing where it has none.
    pub(crate) fn time(&self, load: Load, effort: &Effort) -> Duration {
        match self.state {
            State::Measured => effort.time(load, self.connections, !self.setup.is_reliable),
            State::Missing(_) | State::Failed(_) => Duration::ZERO,
        }
    }

    fn new(load: Load, rival: &Rival, is_reliable: bool, connections_max: usize) -> Self {
        let setup = Setup { variant: rival.variant, is_reliable, answer_bytes: load.answer_bytes };
        let name = arm_name(rival.name, is_reliable);
        Self {
            rival: rival.clone(),
            setup,
            connections: load.connections.min(rival.connections_max).min(connections_max),
            measured: Measured { name, ..Measured::default() },
            beside: Vec::new(),
            state: part_in(load, rival),
        }
    }

    /// Runs it once, or again when the machine disturbed it.
    fn round(&mut self, cores: Cores, load: Load, effort: &Effort, counts: bool) -> Result<(), String> {
        let Effort { warm_up, counted, .. } = *effort;
        let asked = Asked { load, connections: self.connections, warm_up, counted };
        loop {
            let (report, beside) = round::run(cores, &self.rival, &self.setup, &asked)?;
            report.check().map_err(|error| error.to_string())?;
            if counts && effort.may_void && report.is_void() {
                if self.measured.voided < MAX_REPEATS {
                    self.measured.voided += 1;
                    continue;
                }
                self.measured.is_busy = true;
            }
            if counts {
                self.measured.rounds.push(report);
                self.beside.push(beside);
            }
            return Ok(());
        }
    }
}

fn arm_name(rival: &str, is_reliable: bool) -> String {
    format!("{rival}, {}", if is_reliable { "reliable" } else { "unreliable" })
}

/// Whether a rival can have a part in a load, before anything is run.
fn part_in(load: Load, rival: &Rival) -> State {
    match rival.serve {
        Serve::Missing(why) => State::Missing(why.to_owned()),
        _ if load.is_relayed && !rival.is_udp => {
            State::Missing("not through the relay: it speaks TCP".to_owned())
        }
        Serve::Here(_) | Serve::Program(_) => State::Measured,
    }
}

/// Whether a rival's settings are of interest in a load: gathering is for schedules, and only connections can be idle.
fn suits(load: Load, rival: &Rival) -> bool {
    match load.shape {
        Shape::Open { .. } => !load.is_relayed || !rival.gathers(),
        Shape::Closed { .. } => !rival.gathers(),
        Shape::Idle => !rival.gathers() && rival.has_connections,
    }
}

/// The rows of a load, nothing being measured yet.
pub(crate) fn rows(load: Load, rivals: &[Rival], connections_max: usize, missing: &Missing) -> Vec<Row> {
    let mut rows = Vec::new();
    for rival in rivals.iter().filter(|rival| suits(load, rival)) {
        // What may be lost is measured alone where that is the load, or the rival has nothing else; else the other is.
        let has_reliable = rival.has_reliable && !(load.is_unreliable_only && rival.has_unreliable);
        let is_missing = matches!(rival.serve, Serve::Missing(_));
        for (is_reliable, has) in
            [(true, has_reliable), (false, rival.has_unreliable && !(is_missing && has_reliable))]
        {
            if has {
                let mut row = Row::new(load, rival, is_reliable, connections_max);
                if let (State::Measured, Some(why)) = (&row.state, missing.get(rival.name)) {
                    row.state = State::Missing(why.clone());
                }
                rows.push(row);
            }
        }
    }
    rows
}

/// Measures them.
pub(crate) fn measure(cores: Cores, load: Load, rows: &mut [Row], effort: &Effort) {
    for round in 0..effort.warm_ups + effort.rounds {
        for row in rows.iter_mut().filter(|row| row.state == State::Measured) {
            if let Err(line) = row.round(cores, load, effort, round >= effort.warm_ups) {
                eprintln!("{}: {}: {line}", load.name, row.name());
                row.state = State::Failed(line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::all;
    use drumfire_benches::Extent;

    #[test]
    fn every_rival_stands_in_every_load_that_it_has_a_part_in() {
        let rivals = all();
        for load in Load::ALL {
            let rows = rows(load, &rivals, usize::MAX, &Missing::new());
            for family in ["drumfire", "enet", "quinn", "renet", "gns", "kcp", "laminar", "nbio"] {
                assert!(rows.iter().any(|row| row.rival.family == family), "{}: {family}", load.name);
            }
            let tcp = rows.iter().find(|row| row.rival.family == "nbio").expect("found above");
            assert_eq!(matches!(tcp.state, State::Missing(_)), load.is_relayed, "{}", load.name);
        }
    }

    #[test]
    fn a_rival_that_cannot_be_built_stands_there_with_the_reason_and_takes_no_time() {
        let load = Load::named("C").expect("a load");
        let missing = Missing::from([("nbio, WebSocket", "no Go toolchain".to_owned())]);
        let rows = rows(load, &all(), usize::MAX, &missing);
        let row = rows.iter().find(|row| row.rival.family == "nbio").expect("it is there");
        assert_eq!(row.why_not().as_deref(), Some("missing: no Go toolchain"));
        let effort = Effort::of(Extent::Default, load);
        assert!(row.time(load, &effort).is_zero() && !rows[0].time(load, &effort).is_zero());
    }

    #[test]
    fn the_rounds_of_an_arm_that_failed_later_are_marked() {
        let load = Load::named("C").expect("a load");
        let mut row = rows(load, &all(), usize::MAX, &Missing::new()).remove(0);
        assert_eq!((row.name_of_runs(), row.why_not()), (row.name(), None));
        row.state = State::Failed("it broke".to_owned());
        assert_eq!(row.name_of_runs(), format!("{}, failed later", row.name()));
        assert_eq!(row.why_not().as_deref(), Some("failed after 0 rounds: it broke"));
    }
}
