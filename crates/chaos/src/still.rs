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
use crate::system;
use crate::times::Times;

/// A thread on a core beside others that notes how late it wakes. It comes before every other thread of the system, real-time ones
/// aside, so that where it is late nothing ran there.
pub(crate) struct Witness {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Times, Stop>>,
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
            Ok(name) => system::call("chrt", &format!("--fifo --pid 1 {name}")),
            // It says itself why it is over.
            Err(_) => Ok(String::new()),
        };
        match put_first {
            Ok(_) => Ok(witness),
            Err(why) => witness.end().and(Err(why)),
        }
    }

    /// How late it was, each time.
    pub(crate) fn end(self) -> Result<Times, Stop> {
        self.is_over.store(true, Ordering::Release);
        self.thread.join().map_err(|_| Stop::failed("a thread", "panicked"))?
    }
}

fn watch(core: usize, sleep: Duration, is_over: &AtomicBool, name: &Sender<u32>) -> Result<Times, Stop> {
    pin_current_thread(core).tried("a core")?;
    let mut late = Times::new()?;
    name.send(current_thread_id().tried("the name of a thread")?).tried("somebody who listens")?;
    while !is_over.load(Ordering::Acquire) {
        let before = now();
        pause(sleep);
        late.note(now().duration_since(before).saturating_sub(sleep));
    }
    Ok(late)
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
            Err(Stop::Needs(_)) => return,
            Err(why) => panic!("{why:?}"),
        };
        pause(Duration::from_millis(20));
        let longest = witness.end().expect("threads of our own").percentile(100.0);
        assert!(longest > Duration::ZERO && longest < Duration::from_secs(10), "{longest:?}");
    }

    #[test]
    fn a_core_that_is_not_there_has_no_witness() {
        let started = Witness::start(usize::MAX, Duration::from_millis(1)).and_then(Witness::end);
        assert!(matches!(started, Err(Stop::Failed(_))), "{:?}", started.err());
    }
}
