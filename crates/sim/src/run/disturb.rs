//! What goes wrong in a run as its scenario has it: with addresses, paths, clocks and workers.
//!
//! What may follow of it is written down with the client; whether it did is looked at elsewhere.

use std::net::SocketAddr;

use drumfire::conditioner::LinkConfig;
use drumfire::testing::{ClockConfig, World};
use drumfire::{ChannelId, SendError, SendOptions};

use super::Run;
use crate::client::{Client, Stage};
use crate::scenario::{Side, WrongClock};
use crate::swarm::{Excused, PANIC_PAYLOAD};

/// By then both ends have given up, and their applications know of it, or neither will, in ticks of an hour.
const EXCUSED_TICKS: u64 = 160;

impl Run<'_> {
    /// Addresses change, and holes come and go.
    pub(super) fn disturb(&mut self, tick: u64) -> Result<(), String> {
        let is_hour = self.scenario.is_hour;
        // Of whom a server hears only by their addresses has to be told apart, and so both are there.
        let is_there = |at: usize| {
            let client = &self.clients[at];
            client.at_client == Stage::Connected && client.at_server == Stage::Connected
        };
        if let Some((from, one)) = self.swap
            && tick >= from
            && is_there(one)
            && is_there(one + 1)
        {
            self.swap = None;
            self.world.swap_addresses(one, one + 1);
            self.note_address(one);
            self.note_address(one + 1);
            self.rebound += 2;
        }
        for at in 0..self.plans.len() {
            let plan = &self.plans[at];
            if plan.vanishes == Some(tick) {
                cut(&mut self.world, at, &plan.up)?;
                (self.clients[at].is_closed, self.clients[at].has_vanished) = (true, true);
            }
            // The place of a client must become free, and a puppet whose attempt to connect failed would go on trying.
            let is_lost =
                self.clients[at].at_client == Stage::Failed && self.clients[at].at_server == Stage::Before;
            if is_lost || plan.closing.is_some_and(|closing| closing.tick <= tick) {
                self.hostile.silence(at);
            }
            let has_moved = plan.rebind_ticks > 0 && (tick + 1).is_multiple_of(plan.rebind_ticks);
            if let Some(hole) = plan.hole.as_ref().filter(|hole| !hole.ticks.is_empty()) {
                // Those of short scenarios are over long before anybody gives up.
                if is_hour && hole.ticks.start == tick && plan.has_long_hole() {
                    self.clients[at].excuse_until(hole.ticks.end + EXCUSED_TICKS);
                }
                let through = |link: &LinkConfig| {
                    if tick == hole.ticks.start {
                        Some(link.clone().datagram_max_bytes(hole.datagram_max_bytes))
                    } else {
                        (tick == hole.ticks.end).then(|| link.clone())
                    }
                };
                let ways = [Side::Client, Side::Server].map(|from| hole.from.is_none_or(|only| only == from));
                if let Some(up) = through(&plan.up).filter(|_| ways[0]) {
                    self.world.set_up(at, &up).map_err(|error| error.to_string())?;
                }
                if let Some(down) = through(&plan.down).filter(|_| ways[1]) {
                    self.world.set_down(at, &down).map_err(|error| error.to_string())?;
                }
            }
            if has_moved {
                let before = self.world.client_address(at);
                self.world.rebind(at, SocketAddr::new(before.ip(), before.port() + 1));
                self.note_address(at);
                self.rebound += 1;
                // A server with something under way gives up before a quiet client shows it where it is now.
                if is_hour {
                    self.clients[at].excuse_until(tick + EXCUSED_TICKS);
                }
            }
        }
        Ok(())
    }

    /// Workers have their troubles.
    pub(super) fn trouble(&mut self, tick: u64) {
        let Some(swarm) = &self.scenario.swarm else { return };
        let is_there =
            |(_, client): &(usize, &Client)| client.at_server == Stage::Connected && !client.is_hostile;
        let peers: Vec<_> = self.clients.iter().enumerate().filter(is_there).collect();
        let peers: Vec<_> = peers.iter().filter_map(|(at, client)| Some((*at, client.peer?))).collect();
        for excused in self.doer.act(swarm, tick, &mut self.world, &mut self.random, &peers) {
            if let Excused::Panics(at) = excused {
                self.send_panic(at);
            }
            self.excuse(excused);
        }
    }

    /// A client sends what makes the code of its connection panic at the server.
    fn send_panic(&mut self, at: usize) {
        let options = SendOptions::reliable_unordered();
        // A connection that is over at the client ends without the panic.
        if self.world.clients[at].send(ChannelId(0), PANIC_PAYLOAD, options) == Err(SendError::Full) {
            self.clients[at].up.on_refused();
        }
    }

    /// These connections may end from now on.
    pub(super) fn excuse(&mut self, excused: Excused) {
        for (at, client) in self.clients.iter_mut().enumerate() {
            client.may_end |= match excused {
                Excused::Worker(worker) => client.peer.is_none_or(|peer| peer.worker() == worker),
                Excused::Panics(one) => one == at,
                Excused::Everybody => true,
            };
        }
    }

    /// Clocks go wrong, and right again.
    pub(super) fn set_clocks(&mut self, tick: u64) {
        let due = |clock: &Option<WrongClock>| {
            let clock = (*clock)?;
            let WrongClock { tick: from, ticks, config } = clock;
            let config =
                if tick == from { Some(config) } else { (tick == from + ticks).then(ClockConfig::default) };
            config.map(|config| (config, tick == from && clock.ends_connections()))
        };
        if let Some((config, is_jump)) = due(&self.scenario.clock) {
            self.world.set_server_clock(&config);
            if is_jump {
                self.doer.covered.jumps += 1;
                self.excuse(Excused::Everybody);
            }
        }
        for (at, plan) in self.plans.iter().enumerate() {
            if let Some((config, is_jump)) = due(&plan.clock) {
                self.world.set_client_clock(at, &config);
                self.doer.covered.jumps += u64::from(is_jump);
                self.clients[at].may_end |= is_jump;
            }
        }
    }
}

/// Nothing goes through any more between a client and the server, whatever else their links do.
pub(super) fn cut(world: &mut World, at: usize, link: &LinkConfig) -> Result<(), String> {
    let cut = link.clone().datagram_max_bytes(1);
    world.set_up(at, &cut).and_then(|()| world.set_down(at, &cut)).map_err(|error| error.to_string())
}
