//! Hostile ends: each is a puppet that replaces a client, or the server for one client.
//!
//! The world's client with that index has no links. Its puppet receives the datagrams of the other end, and its own
//! datagrams are injected into the other end's receive queue. Both directions have links like those of any client. A
//! puppet reads and sends in its turns, of which a tick has few. Other modules check the other end.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire::Error;
use drumfire::conditioner::{Link, Random};
use drumfire::testing::{Datagram, World};

use crate::client::Client;
use crate::scenario::{Plan, Side, server_key};

/// The source and the destination of a datagram.
type Addresses = (SocketAddr, SocketAddr);

/// A puppet and its links.
pub(crate) struct HostileEnd {
    side: Side,
    puppet: drumfire_puppet::HostileEnd,
    inward: Link,
    outward: Link<Addresses>,
    /// Whether the end is silent for good.
    pub(crate) is_silent: bool,
}

impl HostileEnd {
    /// Returns the hostile end of a new client, if its plan has one.
    pub(crate) fn begin(plan: &Plan, random: &mut Random) -> Result<Option<Self>, Error> {
        let Some(side) = plan.hostile else { return Ok(None) };
        let (seed, key) = (random.bits(), server_key());
        let (puppet, inward, outward) = match side {
            Side::Client => {
                (drumfire_puppet::HostileEnd::client(&key.public().to_bytes(), seed), &plan.down, &plan.up)
            }
            Side::Server => (drumfire_puppet::HostileEnd::server(key.to_bytes(), seed), &plan.up, &plan.down),
        };
        let inward = Link::new(inward.clone(), random.bits())?;
        let outward = Link::new(outward.clone(), random.bits())?;
        Ok(Some(Self { side, puppet, inward, outward, is_silent: false }))
    }

    /// Reads the datagrams that have arrived, and sends the answers and the datagrams of a turn.
    fn turn(&mut self, now: Duration, send: impl Fn(Vec<u8>, &mut Link<Addresses>)) {
        while let Some(((), datagram)) = self.inward.poll(now) {
            if let Some(answer) = self.puppet.on_datagram(datagram) {
                send(answer, &mut self.outward);
            }
        }
        self.puppet.turn().into_iter().for_each(|datagram| send(datagram, &mut self.outward));
    }
}

/// Gives each puppet its turn. Returns all datagrams that were sent since the last call, before any link.
pub(crate) fn act(clients: &mut [Client], world: &mut World) -> Vec<Datagram> {
    let mut seen = world.take_captured();
    let mut sent = Vec::new();
    let (now, server) = (world.elapsed(), world.server.local_addr());
    for (at, client) in clients.iter_mut().enumerate() {
        let Some(end) = &mut client.hostile else { continue };
        let client = world.client_address(at);
        let (own, other) = match end.side {
            Side::Client => (client, server),
            Side::Server => (server, client),
        };
        if !end.is_silent {
            for datagram in seen.iter().filter(|datagram| (datagram.from, datagram.to) == (other, own)) {
                end.inward.push(now, (), &datagram.bytes);
            }
            end.turn(now, |bytes, link| link.push(now, (own, other), &bytes));
            let arrived = std::iter::from_fn(|| end.outward.poll(now));
            sent.extend(arrived.map(|((from, to), bytes)| Datagram { from, to, bytes }));
        }
        if end.side == Side::Client {
            // The world's client in this place has no links, so an attacker must not see its datagrams either.
            seen.retain(|datagram| datagram.from != own);
        }
    }
    for Datagram { from, to, bytes } in &sent {
        world.inject(*from, *to, bytes.clone());
    }
    seen.extend(sent);
    seen
}
