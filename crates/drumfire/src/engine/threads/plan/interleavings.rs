//! Models of shards that move between threads while the number of threads changes and while all threads end. No shard is lost, and no
//! thread sleeps with a shard that belongs to another thread.

use std::convert::Infallible;
use std::sync::{Arc, PoisonError};

use super::{PlanStep, ShardPlan, ThreadShard, ThreadSlot};
use crate::base::sync::models::{Alarm, check, check_in_part};
use crate::base::sync::{Mutex, WakeFlag, lock, thread};
use crate::base::wake::Wake as _;

/// The replacement of a shard: it has a waker for its thread, and no work.
struct Load {
    index: usize,
    alarm: Alarm,
}

impl ThreadShard for Load {
    type Waker = Alarm;

    fn index(&self) -> usize {
        self.index
    }

    fn is_over(&self) -> bool {
        false
    }

    fn waker(&self) -> Arc<Alarm> {
        Arc::new(self.alarm.clone())
    }
}

/// The end of a thread: its index, its loads, and whether the plan ended it.
type End = (usize, Vec<usize>, bool);

/// The threads of a model.
#[derive(Clone)]
struct ThreadPool {
    plan: Arc<Mutex<ShardPlan<Load>>>,
    /// A thread with this number of loads ends by itself.
    enough: usize,
    /// The ends of all threads. The tools need not observe this lock, because the values are read only after the threads have ended or
    /// have woken `end`.
    ends: Arc<std::sync::Mutex<Vec<End>>>,
    end: Alarm,
}

impl ThreadPool {
    /// Creates this number of threads with one load each.
    fn new(loads: usize, enough: usize) -> Self {
        let plan = Arc::new(Mutex::new(ShardPlan::new(loads, loads)));
        let pool = Self { plan, enough, ends: Arc::default(), end: Alarm::default() };
        for index in 0..loads {
            pool.spawn_thread(&mut lock(&pool.plan), index, vec![Load { index, alarm: Alarm::default() }]);
        }
        pool
    }

    /// Starts a thread as the pool does, under the lock of the plan.
    fn spawn_thread(&self, plan: &mut ShardPlan<Load>, me: usize, loads: Vec<Load>) {
        let (pool, call) = (self.clone(), Arc::new(WakeFlag::default()));
        call.set();
        let (of_thread, waker, driven) = (Arc::clone(&call), loads.first().map(Load::waker), loads.len());
        let handle = thread::spawn(move || pool.drive(me, &of_thread, loads));
        if let Some(before) = plan.fill(me, ThreadSlot::new(call, handle, waker, driven)) {
            before.join().unwrap();
        }
    }

    /// Runs the loop of a thread of the pool, without any work between two checks of its flag.
    fn drive(&self, me: usize, call: &WakeFlag, mut loads: Vec<Load>) {
        let mut is_ended = false;
        while !is_ended && loads.len() < self.enough {
            if call.is_set() && call.take() {
                let next = lock(&self.plan).settle(me, &mut loads, |_| {});
                is_ended = next == PlanStep::End;
                continue;
            }
            match loads.first() {
                Some(load) => load.alarm.wait(),
                None => thread::park(),
            }
        }
        let ended = (me, loads.iter().map(Load::index).collect(), is_ended);
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).push(ended);
        self.end.wake();
    }

    fn spread(&self, threads: usize) {
        let spawn_thread = |plan: &mut ShardPlan<Load>, me| -> Result<(), Infallible> {
            self.spawn_thread(plan, me, Vec::new());
            Ok(())
        };
        let Ok(()) = lock(&self.plan).spread(threads, spawn_thread);
    }

    fn stop(&self) {
        let handles = lock(&self.plan).stop();
        handles.into_iter().for_each(|handle| handle.join().unwrap());
    }

    /// Returns the ends of all threads, sorted by index.
    fn ends(&self) -> Vec<End> {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ends.sort_unstable();
        ends
    }

    /// Checks that each load ended at one thread, and that the plan ended the threads with loads.
    fn assert_whole(&self) {
        let ends = self.ends();
        let mut loads: Vec<usize> = ends.iter().flat_map(|(_, loads, _)| loads.clone()).collect();
        loads.sort_unstable();
        assert_eq!(loads, [0, 1], "{ends:?}");
        assert!(ends.iter().all(|(_, loads, is_ended)| loads.is_empty() || *is_ended), "{ends:?}");
    }
}

/// The smallest model: a thread that was called before it started, and the thread to which its shard moves.
#[test]
fn interleavings_of_a_moving_shard_reach_its_new_thread() {
    check(|| {
        let plan = Arc::new(Mutex::new(ShardPlan::new(2, 2)));
        let pool = ThreadPool { plan, enough: 2, ends: Arc::default(), end: Alarm::default() };
        let [here, there] = [0, 1].map(|index| {
            let load = Load { index, alarm: Alarm::default() };
            let (call, waker) = (Arc::new(WakeFlag::default()), Some(load.waker()));
            // The plan neither unparks nor joins these threads, so it needs no handles.
            let post = ThreadSlot {
                call: Arc::clone(&call),
                handle: None,
                arrivals: Vec::new(),
                waker,
                driven: 1,
                is_over: false,
            };
            lock(&pool.plan).fill(index, post);
            (call, vec![load])
        });
        pool.spread(1);
        let of_other = pool.clone();
        let other = thread::spawn(move || of_other.drive(1, &there.0, there.1));
        pool.drive(0, &here.0, here.1);
        other.join().unwrap();
        assert_eq!(pool.ends(), [(0, vec![0, 1], false), (1, vec![], true)]);
    });
}

#[test]
fn interleavings_of_a_move_complete_it_without_help() {
    check_in_part(|| {
        let pool = ThreadPool::new(2, 2);
        pool.spread(1);
        while pool.ends().len() < 2 {
            pool.end.wait();
        }
        assert_eq!(pool.ends(), [(0, vec![0, 1], false), (1, vec![], true)]);
    });
}

#[test]
fn interleavings_of_a_move_and_the_end_lose_no_shard() {
    check_in_part(|| {
        let pool = ThreadPool::new(2, usize::MAX);
        pool.spread(1);
        pool.stop();
        pool.assert_whole();
    });
}

#[test]
fn interleavings_of_an_overtaken_move_lose_no_shard() {
    check_in_part(|| {
        let pool = ThreadPool::new(2, usize::MAX);
        pool.spread(1);
        pool.spread(2);
        pool.stop();
        pool.assert_whole();
    });
}
