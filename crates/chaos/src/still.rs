//! How long a core of this machine stands still though somebody wants it: a guest whose cores are all busy is stopped by its host
//! for milliseconds, and no timer in it goes off meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use drumfire_tools::clock::{now, pause};
use drumfire_tools::host::{current_thread_id, pin_current_thread};

use crate::stop::{Stop, Tried};
use crate::system::{self, Precedence};

/// A thread on a core beside others that notes how late it wakes. It comes before every other thread there, so that where it is late
/// nothing ran.
pub(crate) struct Witness {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Duration, Stop>>,
}

impl Witness {
    /// One that sleeps for this long each time.
    ///
    /// # Errors
    /// [`Stop::Needs`] where no thread may come before others, [`Stop::Failed`] where it cannot be kept on the core.
    pub(crate) fn start(core: usize, sleep: Duration) -> Result<Self, Stop> {
        let is_over = Arc::<AtomicBool>::default();
        let seen = Arc::clone(&is_over);
        let (sender, names) = channel();
        let thread = thread::spawn(move || watch(core, sleep, &seen, &sender));
        let witness = Self { is_over, thread };
        let put_first = match names.recv() {
            Ok(name) => system::put_first(name, Precedence::Witness),
            // It says itself why it is over.
            Err(_) => Ok(()),
        };
        match put_first {
            Ok(()) => Ok(witness),
            Err(why) => witness.end().and(Err(why)),
        }
    }

    /// How late it was at most.
    pub(crate) fn end(self) -> Result<Duration, Stop> {
        self.is_over.store(true, Ordering::Release);
        self.thread.join().map_err(|_| Stop::failed("a thread", "panicked"))?
    }
}

fn watch(core: usize, sleep: Duration, is_over: &AtomicBool, name: &Sender<u32>) -> Result<Duration, Stop> {
    pin_current_thread(core).tried("a core")?;
    let mut latest = Duration::ZERO;
    name.send(current_thread_id().tried("the name of a thread")?).tried("somebody who listens")?;
    while !is_over.load(Ordering::Acquire) {
        let before = now();
        pause(sleep);
        latest = latest.max(now().duration_since(before).saturating_sub(sleep));
    }
    Ok(latest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_witness_is_late_for_some_time_and_not_for_all_of_it() {
        let Some(&[core, ..]) = drumfire_tools::host::allowed_cores().as_deref() else { return };
        let witness = match Witness::start(core, Duration::from_millis(1)) {
            Ok(witness) => witness,
            // As where tests run without privileges.
            Err(Stop::Needs(what)) => return eprintln!("skipped: needs {what}"),
            Err(why) => panic!("{why:?}"),
        };
        pause(Duration::from_millis(20));
        let longest = witness.end().expect("threads of our own");
        assert!(longest > Duration::ZERO && longest < Duration::from_secs(10), "{longest:?}");
    }

    #[test]
    fn a_core_that_is_not_there_has_no_witness() {
        let started = Witness::start(usize::MAX, Duration::from_millis(1)).and_then(Witness::end);
        assert!(matches!(started, Err(Stop::Failed(_))), "{:?}", started.err());
    }
}
