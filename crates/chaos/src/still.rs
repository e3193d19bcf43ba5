//! How long a core of this machine stands still though a thread has it for itself: a guest whose cores are all busy is stopped
//! by its host for milliseconds, and no timer in it goes off meanwhile.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use drumfire_tools::clock::{now, pause};
use drumfire_tools::host::pin_current_thread;

use crate::stop::{Stop, Tried};
use crate::times::Times;

/// What keeps the other core busy is sent in pieces of this size.
const MESSAGE: [u8; 100] = [0; 100];

/// How long a witness sleeps each time.
const SLEEP: Duration = Duration::from_millis(1);

/// How late timers that are due every `period` would be on `core`, but for one in a thousand, if nothing else ran there, while
/// another core sends datagrams as fast as it can.
///
/// # Errors
/// Where a thread cannot be kept on its core, or nothing can be sent.
pub(crate) fn stands_still(
    core: usize,
    other: usize,
    period: Duration,
    time: Duration,
) -> Result<Duration, Stop> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let busy = scope.spawn(|| keep_busy(other, &is_over));
        let gaps = scope.spawn(|| {
            let gaps = watch(core, period, time);
            is_over.store(true, Ordering::Release);
            gaps
        });
        let gaps = gaps.join().map_err(|_| Stop::failed("a thread", "panicked"))?;
        busy.join().map_err(|_| Stop::failed("a thread", "panicked"))??;
        Ok(gaps?.percentile(99.9))
    })
}

/// A thread that sleeps on a core beside others and notes how late it was at most. Whoever keeps a core busy gives it away at the
/// kernel's next tick, after 4 ms or sooner: where it is later by far, nobody had the core.
pub(crate) struct Witness {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Witness {
    pub(crate) fn start(core: usize) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let seen = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            // Where it cannot be there it has seen nothing.
            let is_there = pin_current_thread(core).is_ok();
            let mut latest = Duration::ZERO;
            while is_there && !seen.load(Ordering::Acquire) {
                let before = now();
                pause(SLEEP);
                latest = latest.max(now().duration_since(before).saturating_sub(SLEEP));
            }
            latest
        });
        Self { is_over, thread }
    }

    /// How late it was at most.
    pub(crate) fn end(self) -> Duration {
        self.is_over.store(true, Ordering::Release);
        self.thread.join().unwrap_or_default()
    }
}

/// The longest time in each period in which this thread, which never rests, did not run.
fn watch(core: usize, period: Duration, time: Duration) -> Result<Times, Stop> {
    pin_current_thread(core).tried("a core")?;
    let mut gaps = Times::new()?;
    let start = now();
    let (mut before, mut period_from, mut longest) = (start, start, Duration::ZERO);
    while before.duration_since(start) < time {
        let at = now();
        longest = longest.max(at.duration_since(before));
        before = at;
        if at.duration_since(period_from) >= period {
            gaps.note(longest);
            (period_from, longest) = (at, Duration::ZERO);
        }
    }
    Ok(gaps)
}

/// Sends to a socket that nobody reads.
fn keep_busy(core: usize, is_over: &AtomicBool) -> Result<(), Stop> {
    pin_current_thread(core).tried("a core")?;
    let [from, to] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0"));
    let (from, to) = (from.tried("a socket")?, to.tried("a socket")?);
    let to = to.local_addr().tried("an address")?;
    while !is_over.load(Ordering::Acquire) {
        from.send_to(&MESSAGE, to).tried("a datagram")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_is_looked_at_stands_still_for_some_time_and_not_for_all_of_it() {
        let Some(&[core, other, ..]) = drumfire_tools::host::allowed_cores().as_deref() else { return };
        let (period, time) = (Duration::from_millis(1), Duration::from_millis(50));
        let still = stands_still(core, other, period, time).expect("threads of our own");
        assert!(still > Duration::ZERO && still < Duration::from_secs(10), "{still:?}");
    }
}
