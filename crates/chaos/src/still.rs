//! How long a core of this machine stands still though somebody wants it: a guest whose cores are all busy is stopped by its host
//! for milliseconds, and no timer in it goes off meanwhile.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use drumfire_tools::clock::{now, pause};
use drumfire_tools::host::{CpuTicks, cpu_ticks, current_thread_id, pin_current_thread};
use drumfire_tools::report::STEAL_LIMIT;

use crate::marks::millis;
use crate::stop::{Stop, Tried};
use crate::system::{self, Precedence};

/// A thread on a core beside others that notes how late it wakes. It comes before every other thread there, so that where it is late
/// nothing ran.
pub(crate) struct Witness {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Duration, Stop>>,
    /// Of all cores, when it began.
    ticks: Option<CpuTicks>,
}

/// What it saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stillness {
    /// For how long nothing ran on its core, at most.
    longest: Duration,
    /// The share of the time of all cores that the host gave to others, where it says so.
    stolen: f64,
}

/// A core that the machine keeps for so long makes timers late that nobody else would.
const LONG: Duration = Duration::from_millis(10);

impl Stillness {
    /// Whether what was late meanwhile was late because of the machine.
    pub(crate) fn is_too_much(self) -> bool {
        self.longest >= LONG || self.stolen > STEAL_LIMIT
    }
}

impl fmt::Display for Stillness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (longest, stolen) = (millis(self.longest), 100.0 * self.stolen);
        write!(
            f,
            "nothing ran on the core of the server for {longest}, and the host took {stolen:.1} % of all cores"
        )
    }
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
        let witness = Self { is_over, thread, ticks: cpu_ticks() };
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

    /// What it saw until now.
    pub(crate) fn end(self) -> Result<Stillness, Stop> {
        let stolen = cpu_ticks().zip(self.ticks).and_then(|(now, then)| now.steal_share_since(&then));
        self.is_over.store(true, Ordering::Release);
        let longest = self.thread.join().map_err(|_| Stop::failed("a thread", "panicked"))??;
        Ok(Stillness { longest, stolen: stolen.unwrap_or(0.0) })
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
        let Stillness { longest, .. } = witness.end().expect("threads of our own");
        assert!(longest > Duration::ZERO && longest < Duration::from_secs(10), "{longest:?}");
    }

    #[test]
    fn a_core_that_is_kept_for_long_or_given_to_others_is_too_much() {
        let seen = |longest, stolen| Stillness { longest, stolen }.is_too_much();
        assert!(!seen(LONG - Duration::from_nanos(1), STEAL_LIMIT));
        assert!(seen(LONG, 0.0) && seen(Duration::ZERO, STEAL_LIMIT + 0.001));
    }

    #[test]
    fn a_core_that_is_not_there_has_no_witness() {
        let started = Witness::start(usize::MAX, Duration::from_millis(1)).and_then(Witness::end);
        assert!(matches!(started, Err(Stop::Failed(_))), "{:?}", started.err());
    }
}
