//! Invalidates the keys of all sessions at the workers of a server or client, because a copy of the process may exist.
//!
//! The application calls this, because the crate cannot detect a copy.

use std::sync::Arc;

use drumfire_proto::Secret;

use crate::base::entropy::EntropyError;
use crate::base::error::Error;
use crate::base::sync::Pending;
use crate::worker::channel::WorkerChannel;
use crate::worker::command::Command;

/// Returns a new secret at each call. The copies of a process must have different secrets. In a simulated world they come from the seed of
/// the world.
pub(crate) type SeedSource = Box<dyn FnMut() -> Result<Secret<32>, EntropyError> + Send>;

/// Commands the workers of these links to invalidate all keys. The result is complete when all workers have done so.
pub(crate) fn request(
    links: &[Arc<WorkerChannel>],
    seed_source: &mut SeedSource,
) -> Pending<Result<(), Error>> {
    let seeds = links.iter().map(|_| seed_source()).collect::<Result<Vec<_>, _>>();
    let seeds = match seeds {
        Ok(seeds) => seeds,
        Err(error) => return Pending::ready(Err(error.into())),
    };
    let (pending, parts) = Pending::new(Ok(()), links.len());
    for (link, (seed, part)) in links.iter().zip(seeds.into_iter().zip(parts)) {
        link.send_command(Command::InvalidateKeys { seed: Box::new(seed), part });
    }
    pending
}

/// Invalidates the keys of the worker of this link, and waits until the worker has done so. Another thread must run the worker.
#[cfg(feature = "tokio")]
pub(crate) fn request_and_wait(link: &Arc<WorkerChannel>) -> Result<(), Error> {
    let mut seed_source: SeedSource = Box::new(crate::base::entropy::secret);
    let mut pending = request(std::slice::from_ref(link), &mut seed_source);
    // The wait has no limit, and a worker that ends completes its part.
    pending.wait(std::time::Duration::MAX).unwrap_or(Ok(()))
}
