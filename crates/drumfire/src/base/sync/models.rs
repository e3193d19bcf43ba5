//! The runner for models of threads, with `loom` or `shuttle`, and the functions with which models sleep.
//!
//! Time does not pass in a model. A thread that is never woken therefore hangs, and both tools report the deadlock. Models of
//! private items are in the module of the item.

mod parts;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{Condvar, Mutex, lock, wait_while};
use crate::base::wake::Wake;
use crate::worker::channel::WorkerChannel;
use crate::worker::channel::tests::LIMITS;

/// The timeout of every wait in a model, where time does not pass.
pub(crate) const FOREVER: Duration = Duration::MAX;

/// Runs a model in every interleaving, and prints their number.
#[cfg(loom)]
pub(crate) fn check(model: impl Fn() + Send + Sync + 'static) {
    println!("counted: {}", explore(loom::model::Builder::new(), model));
}

/// Runs a model in every interleaving with at most two preemptions, and prints their number.
///
/// Only for models with too many interleavings. A smaller model of the same code runs with [`check`].
#[cfg(loom)]
pub(crate) fn check_in_part(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    println!("counted in part: {}", explore(builder, model));
}

#[cfg(loom)]
fn explore(builder: loom::model::Builder, model: impl Fn() + Send + Sync + 'static) -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};

    let count = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&count);
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    });
    count.load(Ordering::Relaxed)
}

/// Runs a model as [`check`] does. Random schedules need no bound on preemptions.
#[cfg(shuttle)]
pub(crate) fn check_in_part(model: impl Fn() + Send + Sync + 'static) {
    check(model);
}

/// Runs a model in `DRUMFIRE_SCHEDULES` random interleavings (1,000 if unset), and prints their number.
///
/// Half of the schedules are uniformly random. The other half use random thread priorities that change twice. They find bugs
/// that need one thread to be slow for long. A failure prints its schedule for `shuttle::replay`.
#[cfg(shuttle)]
pub(crate) fn check(model: impl Fn() + Send + Sync + 'static) {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    use shuttle::{Config, Runner};

    /// The seed unless `SHUTTLE_RANDOM_SEED` is set. The nightly run sets it with `cargo xtask loom --seed`.
    const SEED: u64 = 0;
    /// The number of priority changes, plus 1.
    const DEPTH: usize = 3;
    const STACK_BYTES: usize = 256 * 1_024;

    let schedules =
        std::env::var("DRUMFIRE_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000);
    let by_priority = schedules / 2;
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    // `shuttle` warns that it does not model weak memory orders. `loom` covers these.
    config.silence_warnings = true;
    let model = Arc::new(model);
    let (first_model, second_model) = (Arc::clone(&model), model);
    let uniform = RandomScheduler::new_from_seed(SEED, schedules - by_priority);
    let count = Runner::new(uniform, config.clone()).run(move || first_model());
    let by_priority_scheduler = PctScheduler::new_from_seed(SEED, DEPTH, by_priority);
    println!("counted: {}", count + Runner::new(by_priority_scheduler, config).run(move || second_model()));
}

/// A wake-up for a sleeping thread, like that of a socket poll: a wake-up before the wait ends it immediately.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alarm(Arc<(Mutex<bool>, Condvar)>);

impl Alarm {
    /// Sleeps until a wake-up, and consumes it.
    pub(crate) fn wait(&self) {
        let (is_woken, condition) = &*self.0;
        *wait_while(condition, lock(is_woken), FOREVER, |is_woken| !*is_woken) = false;
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

/// Returns a worker channel, and the alarm that wakes its worker.
pub(crate) fn link() -> (Arc<WorkerChannel>, Alarm) {
    let (link, alarm) = (WorkerChannel::new(Arc::default(), LIMITS), Alarm::default());
    link.set_waker(alarm.clone());
    (Arc::new(link), alarm)
}

/// Runs a task to completion on this thread, which sleeps while the task waits.
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
