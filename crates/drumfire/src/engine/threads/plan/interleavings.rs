//! Models of shards that move between threads while the number of threads changes and while all threads end. No shard is lost, and no
//! thread sleeps with a shard that belongs to another thread.

use std::convert::Infallible;
use std::sync::{Arc, PoisonError};

use super::{PlanStep, ShardPlan, ThreadShard, ThreadSlot};
use crate::base::sync::models::{Alarm, check, check_in_part};
use crate::base::sync::{Mutex, WakeFlag, lock, thread};
use crate::base::wake::Wake as _;

/// A shard of a model. It has a waker for its thread, and no work.
struct MockShard {
    index: usize,
    alarm: Alarm,
}

impl ThreadShard for MockShard {
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

/// The end of a thread: its index, its shards, and whether the plan ended it.
type ThreadEnd = (usize, Vec<usize>, bool);

/// The threads of a model.
#[derive(Clone)]
struct ThreadPool {
    plan: Arc<Mutex<ShardPlan<MockShard>>>,
    /// A thread with this number of shards ends by itself.
    shard_limit: usize,
    /// The ends of all threads. The tools need not observe this lock, because the values are read only after the threads have ended or
    /// have woken `end`.
    ends: Arc<std::sync::Mutex<Vec<ThreadEnd>>>,
    end: Alarm,
}

impl ThreadPool {
    /// Creates this number of threads with one shard each.
    fn new(shards: usize, shard_limit: usize) -> Self {
        let plan = Arc::new(Mutex::new(ShardPlan::new(shards, shards)));
        let pool = Self { plan, shard_limit, ends: Arc::default(), end: Alarm::default() };
        for index in 0..shards {
            pool.spawn_thread(
                &mut lock(&pool.plan),
                index,
                vec![MockShard { index, alarm: Alarm::default() }],
            );
        }
        pool
    }

    /// Starts a thread as the pool does, under the lock of the plan.
    fn spawn_thread(&self, plan: &mut ShardPlan<MockShard>, thread_index: usize, shards: Vec<MockShard>) {
        let (pool, update_flag) = (self.clone(), Arc::new(WakeFlag::default()));
        update_flag.set();
        let (of_thread, waker, shard_count) =
            (Arc::clone(&update_flag), shards.first().map(MockShard::waker), shards.len());
        let handle = thread::spawn(move || pool.drive(thread_index, &of_thread, shards));
        if let Some(before) =
            plan.fill(thread_index, ThreadSlot::new(update_flag, handle, waker, shard_count))
        {
            before.join().unwrap();
        }
    }

    /// Runs the loop of a thread of the pool, without any work between two checks of its flag.
    fn drive(&self, thread_index: usize, update_flag: &WakeFlag, mut shards: Vec<MockShard>) {
        let mut is_ended = false;
        while !is_ended && shards.len() < self.shard_limit {
            if update_flag.is_set() && update_flag.take() {
                let next = lock(&self.plan).update_shards(thread_index, &mut shards, &mut Vec::new(), |_| {});
                is_ended = next == PlanStep::End;
                continue;
            }
            match shards.first() {
                Some(shard) => shard.alarm.wait(),
                None => thread::park(),
            }
        }
        let ended = (thread_index, shards.iter().map(MockShard::index).collect(), is_ended);
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).push(ended);
        self.end.wake();
    }

    fn spread(&self, threads: usize) {
        let spawn_thread = |plan: &mut ShardPlan<MockShard>, thread_index| -> Result<(), Infallible> {
            self.spawn_thread(plan, thread_index, Vec::new());
            Ok(())
        };
        let Ok(()) = lock(&self.plan).spread(threads, spawn_thread);
    }

    fn stop(&self) {
        let handles = lock(&self.plan).stop();
        handles.into_iter().for_each(|handle| handle.join().unwrap());
    }

    /// Returns the ends of all threads, sorted by index.
    fn ends(&self) -> Vec<ThreadEnd> {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ends.sort_unstable();
        ends
    }

    /// Checks that each shard ended at one thread, and that the plan ended the threads with shards.
    fn assert_whole(&self) {
        let ends = self.ends();
        let mut shards: Vec<usize> = ends.iter().flat_map(|(_, shards, _)| shards.clone()).collect();
        shards.sort_unstable();
        assert_eq!(shards, [0, 1], "{ends:?}");
        assert!(ends.iter().all(|(_, shards, is_ended)| shards.is_empty() || *is_ended), "{ends:?}");
    }
}

/// The smallest model: a thread that was called before it started, and the thread to which its shard moves.
#[test]
fn interleavings_of_a_moving_shard_reach_its_new_thread() {
    check(|| {
        let plan = Arc::new(Mutex::new(ShardPlan::new(2, 2)));
        let pool = ThreadPool { plan, shard_limit: 2, ends: Arc::default(), end: Alarm::default() };
        let [first, second] = [0, 1].map(|index| {
            let shard = MockShard { index, alarm: Alarm::default() };
            let (update_flag, waker) = (Arc::new(WakeFlag::default()), Some(shard.waker()));
            // The plan neither unparks nor joins these threads, so it needs no handles.
            let slot = ThreadSlot {
                update_flag: Arc::clone(&update_flag),
                handle: None,
                arrivals: Vec::new(),
                waker,
                shard_count: 1,
                is_over: false,
            };
            lock(&pool.plan).fill(index, slot);
            (update_flag, vec![shard])
        });
        pool.spread(1);
        let of_other = pool.clone();
        let other = thread::spawn(move || of_other.drive(1, &second.0, second.1));
        pool.drive(0, &first.0, first.1);
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
fn interleavings_of_a_move_and_its_reversal_lose_no_shard() {
    check_in_part(|| {
        let pool = ThreadPool::new(2, usize::MAX);
        pool.spread(1);
        pool.spread(2);
        pool.stop();
        pool.assert_whole();
    });
}
