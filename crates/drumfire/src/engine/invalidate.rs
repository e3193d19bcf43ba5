//! The end of all keys at once, at the workers of every kind of end: for a machine or a process of which there may be a copy.
//!
//! Who calls it, and when, is for whoever makes the copies: nothing in here notices one.

use std::sync::Arc;

use drumfire_proto::{Moment, Secret};

use crate::base::entropy::EntropyError;
use crate::base::sync::Notifier;
use crate::worker::channel::WorkerChannel;
use crate::worker::command::Command;
use crate::worker::drain::DrainProgress;

/// Draws what copies must not have in common. In a world it comes from the world's seed.
pub(crate) type SeedSource = Box<dyn FnMut() -> Result<Secret<32>, EntropyError> + Send>;

/// Tells the worker of this link to forget all keys, and returns when it has: for who is not its thread.
#[cfg(feature = "tokio")]
pub(crate) fn at(link: &Arc<WorkerChannel>) -> Result<(), EntropyError> {
    let mut seed_source: SeedSource = Box::new(crate::base::entropy::secret);
    command(std::slice::from_ref(link), &Arc::default(), &mut seed_source)?.wait();
    Ok(())
}

/// Tells all workers of these links to forget all keys; what it answers is ready when they have.
pub(crate) fn command(
    links: &[Arc<WorkerChannel>],
    notifier: &Arc<Notifier>,
    seed_source: &mut SeedSource,
) -> Result<Arc<DrainProgress>, EntropyError> {
    let seeds = links.iter().map(|_| seed_source()).collect::<Result<Vec<_>, _>>()?;
    let (drain, shares) = DrainProgress::new(Moment::ORIGIN, links.len(), notifier);
    for (link, (seed, share)) in links.iter().zip(seeds.into_iter().zip(shares)) {
        link.command_at_once(Command::InvalidateKeys { seed: Box::new(seed), share });
    }
    Ok(drain)
}
