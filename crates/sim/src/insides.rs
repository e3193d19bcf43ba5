//! What only a look into the ends shows (feature `hostile`): some of them are made to break the rules or to change their keys
//! often, and what the others hold must still be what it may be.
//!
//! What an end does that others can see is judged elsewhere.

use std::time::Duration;

use drumfire::PeerId;
use drumfire::testing::{Claims, Inside, Tamper, World};

use crate::client::{Client, Stage};
use crate::scenario::{Lie, Plan, Side};

/// More than become due in a tick.
const MANY_PROBES: u32 = 6;

/// Half the shortest time between two probes (PROTOCOL 9.3, "Probe timeout and loss detection"), because clocks may be fast.
const PROBES_APART: Duration = Duration::from_millis(12);

/// Ends that are to break the rules begin to, once they are connected.
pub(crate) fn turn_hostile(world: &mut World, seed: u64, plans: &[Plan], clients: &mut [Client]) {
    for (at, (client, plan)) in clients.iter_mut().zip(plans).enumerate() {
        let is_connected = client.at_client == Stage::Connected && client.at_server == Stage::Connected;
        let (Some(side), Some(peer), true) = (plan.hostile, client.peer, is_connected && !client.is_hostile)
        else {
            continue;
        };
        let tamper = match plan.lie {
            Some(Lie::Everything) => Tamper::Claim(Claims::Everything),
            Some(Lie::Unsent) => Tamper::Claim(Claims::Unsent),
            None => Tamper::BreakRules(seed ^ ((at as u64) << 48)),
        };
        match side {
            Side::Client => world.tamper_with_client(at, tamper),
            Side::Server => world.tamper_with_server(peer, tamper),
        };
        client.is_hostile = true;
        if plan.lie == Some(Lie::Everything) {
            let victim = look(world, at, peer, other(side));
            client.lied_to_from = victim.map(|inside| (other(side), inside.unused));
        }
    }
}

/// What was seen of the probes of one end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probed {
    peer: PeerId,
    largest_acked: Option<u64>,
    count: u32,
    at: Duration,
}

/// Says what an end holds that it may not. Within an hour ends fall idle, and forget which numbers they skipped: whoever claims
/// those gains nothing by then.
pub(crate) fn check(world: &mut World, clients: &mut [Client], is_hour: bool) -> Result<(), String> {
    let now = world.elapsed();
    for (at, client) in clients.iter_mut().enumerate() {
        let Some(peer) = client.peer else { continue };
        let ends = [Side::Client, Side::Server].map(|side| (side, look(world, at, peer, side)));
        for ((side, inside), probed) in ends.iter().zip(&mut client.probed) {
            let Some(inside) = inside else { continue };
            let lied_to_from = client.lied_to_from.filter(|(victim, _)| victim == side && !is_hour);
            of_end(inside, lied_to_from.map(|(_, from)| from))
                .and_then(|()| if is_hour { Ok(()) } else { answered(inside, peer, now, probed) })
                .map_err(|reason| format!("client {at}, inside the {side:?}: {reason}"))?;
        }
        if let [(_, Some(one)), (_, Some(other))] = ends
            && !client.is_hostile
        {
            credit(&one, &other)
                .and_then(|()| credit(&other, &one))
                .map_err(|reason| format!("client {at}: {reason}"))?;
        }
    }
    Ok(())
}

/// Looks at one end; from packet number `lied_to_from` on its peer claims that everything came.
fn of_end(inside: &Inside, lied_to_from: Option<u64>) -> Result<(), String> {
    if inside.largest_acked.is_some_and(|acked| acked >= inside.unused) {
        return Err(format!("an ack of what was never sent was taken in: {inside:?}"));
    }
    if let (Some(from), Some(skipped)) = (lied_to_from, inside.skipped)
        && skipped >= from
        && inside.largest_acked.is_some_and(|acked| acked > skipped)
    {
        return Err(format!("an ack of what was skipped was taken in: {inside:?}"));
    }
    if inside.send_bytes > inside.send_bytes_max {
        return Err(format!("more waits to be sent than there may be: {inside:?}"));
    }
    if inside.keeps_old_keys {
        return Err("the keys of the epoch before are kept for ever".to_owned());
    }
    Ok(())
}

/// An ack that brings something answers all probes; what is counted after it became due since.
fn answered(inside: &Inside, peer: PeerId, now: Duration, probed: &mut Option<Probed>) -> Result<(), String> {
    let &Inside { largest_acked, probe_count: count, .. } = inside;
    match probed.replace(Probed { peer, largest_acked, count, at: now }) {
        Some(before)
            if before.peer == peer
                && before.largest_acked < largest_acked
                && before.count >= MANY_PROBES
                && before.count <= count
                && now.saturating_sub(before.at) < PROBES_APART * count =>
        {
            Err(format!("an ack of {largest_acked:?} came, and {count} probes still count as unanswered"))
        }
        _ => Ok(()),
    }
}

/// Nothing comes that was not paid for.
fn credit(sender: &Inside, receiver: &Inside) -> Result<(), String> {
    if receiver.credit_used > sender.credit_spent {
        let (used, spent) = (receiver.credit_used, sender.credit_spent);
        return Err(format!("messages used {used} bytes of credit, and their sender spent {spent}"));
    }
    Ok(())
}

fn look(world: &mut World, at: usize, peer: PeerId, side: Side) -> Option<Inside> {
    match side {
        Side::Client => world.tamper_with_client(at, Tamper::Look),
        Side::Server => world.tamper_with_server(peer, Tamper::Look),
    }
}

const fn other(side: Side) -> Side {
    match side {
        Side::Client => Side::Server,
        Side::Server => Side::Client,
    }
}
