//! The faults of a run: addresses, paths, clocks, and workers, as the scenario planned them. Each fault that may end connections is
//! recorded with its clients.

use std::net::SocketAddr;

use drumfire::conditioner::LinkConfig;
use drumfire::testing::{ClockConfig, World};
use drumfire::{ChannelId, Message, PeerId, SendError, SendOptions};

use super::ScenarioRun;
use crate::checks::AddressClass;
use crate::client::{Client, ConnectionState};
use crate::random::{between, index};
use crate::scenario::{ClockFault, Side};
use crate::stats::Counts;
use crate::workers::{HAS_PANIC_POINT, PANIC_PAYLOAD, STALL_SURVIVED, WorkerEvent, WorkerFault};

/// In an hour, both ends of a connection that a fault ends know it within this many ticks.
const END_NOTICED_TICKS: u64 = 160;

impl ScenarioRun<'_> {
    /// Changes addresses, and begins and ends outages.
    pub(super) fn disturb(&mut self, tick: u64) -> Result<(), String> {
        let is_hour = self.scenario.is_hour;
        // The check needs to know the client at each address, so both must be connected.
        let is_connected = |at: usize| {
            let client = &self.clients[at];
            client.at_client == ConnectionState::Connected && client.at_server == ConnectionState::Connected
        };
        if let Some((from, first)) = self.swap
            && tick >= from
            && is_connected(first)
            && is_connected(first + 1)
        {
            self.swap = None;
            self.world.swap_addresses(first, first + 1);
            self.note_address(first);
            self.note_address(first + 1);
            self.counts.add(Counts::REBOUND, 2);
        }
        for at in 0..self.clients.len() {
            let client = &mut self.clients[at];
            let plan = &client.plan;
            if plan.vanishes == Some(tick) {
                cut(&mut self.world, at, &plan.up)?;
                (client.is_closed, client.has_vanished) = (true, true);
            }
            // A puppet whose attempt to connect failed would keep trying, and would never be replaced.
            let has_failed = client.at_client == ConnectionState::Failed
                && client.at_server == ConnectionState::Connecting;
            if has_failed || client.plan.closing.is_some_and(|closing| closing.tick <= tick) {
                client.silence();
            }
            // An outage of a short scenario is shorter than every timeout.
            if let Some(end) = client.plan.long_outage_end(tick).filter(|_| is_hour) {
                client.allow_end_until(end + END_NOTICED_TICKS);
            }
            let plan = &client.plan;
            let moves = plan.rebind_ticks > 0 && (tick + 1).is_multiple_of(plan.rebind_ticks);
            if let Some(outage) = plan.outage.as_ref().filter(|outage| !outage.ticks.is_empty()) {
                let changed = |link: &LinkConfig| {
                    if tick == outage.ticks.start {
                        Some(link.clone().datagram_max_bytes(outage.datagram_max_bytes))
                    } else {
                        (tick == outage.ticks.end).then(|| link.clone())
                    }
                };
                let ways =
                    [Side::Client, Side::Server].map(|from| outage.from.is_none_or(|only| only == from));
                if let Some(up) = changed(&plan.up).filter(|_| ways[0]) {
                    self.world.set_uplink(at, &up).map_err(|error| error.to_string())?;
                }
                if let Some(down) = changed(&plan.down).filter(|_| ways[1]) {
                    self.world.set_downlink(at, &down).map_err(|error| error.to_string())?;
                }
            }
            if moves {
                let before = self.world.client_address(at);
                self.world.rebind(at, SocketAddr::new(before.ip(), before.port() + 1));
                self.note_address(at);
                self.counts.add(Counts::REBOUND, 1);
                // A server with unacknowledged packets may time out before an idle client sends from its new address.
                if is_hour {
                    self.clients[at].allow_end_until(tick + END_NOTICED_TICKS);
                }
            }
        }
        Ok(())
    }

    /// Injects the workers' faults.
    pub(super) fn inject_faults(&mut self, tick: u64) {
        let Some(plan) = &self.scenario.workers else { return };
        for event in plan.events.iter().filter(|event| event.tick == tick) {
            self.inject(*event, plan.sockets.is_steered);
        }
        if let Some((_, deadline)) = plan.drain.filter(|(begin, _)| *begin == tick) {
            self.faults.shutdown = Some(self.world.server.control().shut_down(deadline));
            self.allow_end(None);
        }
        let to = self.world.server.local_addr();
        for _ in 0..plan.odd_length_count {
            let is_empty = self.random.below(2) == 0;
            let bytes = if is_empty { 0 } else { between(&mut self.random, 1_501, 9_000) };
            self.world.inject(AddressClass::Junk.address(&mut self.random), to, vec![0x80; bytes]);
        }
        if plan.flood_ticks > 0 && tick.is_multiple_of(plan.flood_ticks) {
            let from = AddressClass::Junk.address(&mut self.random);
            for _ in 0..between::<u32>(&mut self.random, 1_000, 2_100) {
                self.world.inject(from, to, vec![0x80; 40]);
            }
        }
    }

    fn inject(&mut self, WorkerEvent { worker, fault, .. }: WorkerEvent, is_steered: bool) {
        let injected = &mut self.faults.injected[worker];
        match fault {
            WorkerFault::Stall(duration) => {
                injected.stalls += 1;
                self.world.stall_worker(worker, duration);
                let until = self.world.elapsed() + duration;
                self.faults.stalled_until = self.faults.stalled_until.max(until);
                if duration > STALL_SURVIVED {
                    // Without steering, packets of all connections wait for this worker.
                    self.allow_end(is_steered.then_some(worker));
                }
            }
            WorkerFault::Panics(panics) => {
                injected.panics += u64::from(panics);
                self.world.inject_panics(worker, panics);
            }
            WorkerFault::Restart => {
                injected.restarts += 1;
                self.world.restart_worker(worker);
            }
            WorkerFault::PanicOfPeer => self.send_panic(),
        }
    }

    /// Lets a client send the message that makes the code of its connection panic, if the core has that point.
    fn send_panic(&mut self) {
        if !HAS_PANIC_POINT {
            return;
        }
        let is_honest =
            |client: &Client| client.at_server == ConnectionState::Connected && client.hostile.is_none();
        let clients = self.clients.iter().enumerate().filter(|(_, client)| is_honest(client));
        let peers: Vec<_> = clients.filter_map(|(at, client)| Some((at, client.peer?))).collect();
        let Some((at, peer)) = peers.get(index(&mut self.random, peers.len())) else { return };
        self.faults.injected[peer.worker()].connection_panics += 1;
        let (client, end) = (&mut self.clients[*at], &mut self.world.clients[*at]);
        client.may_end = true;
        // A connection that is over for the client ends without the panic.
        let Some(to) = end.peers().next() else { return };
        let message = Message::new(ChannelId(0), PANIC_PAYLOAD, SendOptions::reliable_unordered());
        if end.send(to, message) == Err(SendError::Full) {
            client.up.on_refused();
        }
    }

    /// Permits the connections of a worker to end, and clients that are not connected yet. Without a worker, permits that to all.
    pub(super) fn allow_end(&mut self, worker: Option<usize>) {
        for client in &mut self.clients {
            let server = client.peer.map(PeerId::worker);
            client.may_end |= worker.is_none() || server.is_none() || server == worker;
        }
    }

    /// Sets clocks wrong, and right again.
    pub(super) fn set_clocks(&mut self, tick: u64) {
        let due = |clock: &Option<ClockFault>| {
            let clock = (*clock)?;
            let ClockFault { tick: from, ticks, config } = clock;
            let config =
                if tick == from { Some(config) } else { (tick == from + ticks).then(ClockConfig::default) };
            config.map(|config| (config, tick == from && clock.ends_connections()))
        };
        if let Some((config, is_jump)) = due(&self.scenario.clock) {
            self.world.set_server_clock(&config);
            if is_jump {
                self.counts.add("jumps by a year", 1);
                self.allow_end(None);
            }
        }
        for (at, client) in self.clients.iter_mut().enumerate() {
            if let Some((config, is_jump)) = due(&client.plan.clock) {
                self.world.set_client_clock(at, &config);
                self.counts.add("jumps by a year", is_jump.into());
                client.may_end |= is_jump;
            }
        }
    }
}

/// Cuts both links of a client: no datagram has at most one byte.
pub(super) fn cut(world: &mut World, at: usize, link: &LinkConfig) -> Result<(), String> {
    let cut = link.clone().datagram_max_bytes(1);
    world.set_uplink(at, &cut).and_then(|()| world.set_downlink(at, &cut)).map_err(|error| error.to_string())
}
