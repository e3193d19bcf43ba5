//! How models are tried, by whichever tool this is built for, and what they sleep by.
//!
//! A model is small enough for every interleaving, and time stands still in it: whoever is not woken hangs, and both tools say so.
//! Models of what only its own module sees stand there.

mod parts;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{Condvar, Mutex, lock, wait_while};
use crate::base::wake::Wake;
use crate::worker::channel::WorkerChannel;

/// Nobody waits by time in a model.
pub(crate) const EVER: Duration = Duration::MAX;

/// Tries every interleaving, and says how many those were.
#[cfg(loom)]
pub(crate) fn check(model: impl Fn() + Send + Sync + 'static) {
    println!("counted: {}", tried(loom::model::Builder::new(), model));
}

/// Tries every interleaving in which threads are interrupted twice at most, for models of which there are too many, and says
/// how many those were. Each of these has a smaller one beside it that is tried in all.
#[cfg(loom)]
pub(crate) fn check_in_part(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    println!("counted in part: {}", tried(builder, model));
}

#[cfg(loom)]
fn tried(builder: loom::model::Builder, model: impl Fn() + Send + Sync + 'static) -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};

    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    count.load(Ordering::Relaxed)
}

/// There are not too many models for chance.
#[cfg(shuttle)]
pub(crate) fn check_in_part(model: impl Fn() + Send + Sync + 'static) {
    check(model);
}

/// Tries as many interleavings as `DRUMFIRE_SCHEDULES` says, and says how many it were: one half uniformly at random, the other by
/// random priorities that change twice, which finds what needs one thread to be slow for long. What fails prints its schedule,
/// which `shuttle::replay` takes.
#[cfg(shuttle)]
pub(crate) fn check(model: impl Fn() + Send + Sync + 'static) {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    use shuttle::{Config, Runner};

    /// The same ones each time, unless `SHUTTLE_RANDOM_SEED` says others, as each night does (`cargo xtask loom --seed`).
    const SEED: u64 = 0;
    /// How many times a thread falls behind, and one more.
    const DEPTH: usize = 3;
    const STACK_BYTES: usize = 256 * 1_024;

    let asked = std::env::var("DRUMFIRE_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000);
    let by_priority = asked / 2;
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    // Weak orders are the other tool's.
    config.silence_warnings = true;
    let model = Arc::new(model);
    let (once, again) = (Arc::clone(&model), model);
    let uniform = RandomScheduler::new_from_seed(SEED, asked - by_priority);
    let count = Runner::new(uniform, config.clone()).run(move || once());
    let slow = PctScheduler::new_from_seed(SEED, DEPTH, by_priority);
    println!("counted: {}", count + Runner::new(slow, config).run(move || again()));
}

/// What a thread sleeps by, as a poll does: one wake-up that it was given before is enough to go on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alarm(Arc<(Mutex<bool>, Condvar)>);

impl Alarm {
    pub(crate) fn wait(&self) {
        let (is_woken, condition) = &*self.0;
        *wait_while(condition, lock(is_woken), EVER, |is_woken| !*is_woken) = false;
    }
}

impl Wake for Alarm {
    fn wake(&self) {
        let (is_woken, condition) = &*self.0;
        *lock(is_woken) = true;
        condition.notify_one();
    }
}

impl std::task::Wake for Alarm {
    fn wake(self: Arc<Self>) {
        Wake::wake(&*self);
    }
}

/// A link whose worker sleeps by the alarm.
pub(crate) fn link() -> (Arc<WorkerChannel>, Alarm) {
    let (link, alarm) = (WorkerChannel::new(Arc::default()), Alarm::default());
    link.set_waker(alarm.clone());
    (Arc::new(link), alarm)
}

/// Runs a task on this thread, which sleeps while it waits.
pub(crate) fn run<T>(task: impl Future<Output = T>) -> T {
    let mut task = std::pin::pin!(task);
    let alarm = Alarm::default();
    let waker = Waker::from(Arc::new(alarm.clone()));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(answer) = task.as_mut().poll(&mut context) {
            return answer;
        }
        alarm.wait();
    }
}
