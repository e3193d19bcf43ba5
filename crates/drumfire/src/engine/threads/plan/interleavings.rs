//! Models of shards that move between threads while their number changes and while all end: none is lost, and none left asleep
//! where it does not belong.

use std::convert::Infallible;
use std::sync::{Arc, PoisonError};

use super::{Moves, Next, Post, Rota};
use crate::base::sync::models::{Alarm, check, check_in_part};
use crate::base::sync::{Call, Mutex, lock, thread};
use crate::base::wake::Wake as _;

/// In place of a shard: what its thread sleeps by, and nothing to do.
struct Load {
    index: usize,
    alarm: Alarm,
}

impl Moves for Load {
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

/// What a thread had in the end: its place, the loads, and the goodbye if it was to say one.
type End = (usize, Vec<usize>, Option<u32>);

/// Threads of a model.
#[derive(Clone)]
struct Crew {
    rota: Arc<Mutex<Rota<Load>>>,
    /// A thread that has so many loads ends without being asked to.
    enough: usize,
    /// No tool has to see these, for they are looked at when the threads are gone or have said so.
    ends: Arc<std::sync::Mutex<Vec<End>>>,
    end: Alarm,
}

impl Crew {
    /// As many threads as loads.
    fn new(loads: usize, enough: usize) -> Self {
        let rota = Arc::new(Mutex::new(Rota::new(loads, loads)));
        let crew = Self { rota, enough, ends: Arc::default(), end: Alarm::default() };
        for index in 0..loads {
            crew.hire(&mut lock(&crew.rota), index, vec![Load { index, alarm: Alarm::default() }]);
        }
        crew
    }

    /// As the roster does, with its lock.
    fn hire(&self, rota: &mut Rota<Load>, me: usize, loads: Vec<Load>) {
        let (crew, call) = (self.clone(), Arc::new(Call::default()));
        call.set();
        let (of_thread, waker, driven) = (Arc::clone(&call), loads.first().map(Load::waker), loads.len());
        let handle = thread::spawn(move || crew.drive(me, &of_thread, loads));
        if let Some(before) = rota.fill(me, Post::new(call, handle, waker, driven)) {
            before.join().unwrap();
        }
    }

    /// As a thread of the roster does, with nothing to do between two looks.
    fn drive(&self, me: usize, call: &Call, mut loads: Vec<Load>) {
        let mut goodbye = None;
        while goodbye.is_none() && loads.len() < self.enough {
            if call.is_set() && call.take() {
                let next = lock(&self.rota).settle(me, &mut loads, |_| {});
                goodbye = if let Next::End(code) = next { Some(code) } else { None };
                continue;
            }
            match loads.first() {
                Some(load) => load.alarm.wait(),
                None => thread::park(),
            }
        }
        let ended = (me, loads.iter().map(Load::index).collect(), goodbye);
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).push(ended);
        self.end.wake();
    }

    fn spread(&self, threads: usize) {
        let hire = |rota: &mut Rota<Load>, me| -> Result<(), Infallible> {
            self.hire(rota, me, Vec::new());
            Ok(())
        };
        let Ok(()) = lock(&self.rota).spread(threads, hire);
    }

    fn stop(&self, goodbye: u32) {
        let handles = lock(&self.rota).stop(goodbye);
        handles.into_iter().for_each(|handle| handle.join().unwrap());
    }

    /// How all threads ended, by place.
    fn ends(&self) -> Vec<End> {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ends.sort_unstable();
        ends
    }

    /// Each load was with one thread, and said goodbye there if there was one to say.
    fn assert_whole(&self, goodbye: u32) {
        let ends = self.ends();
        let mut loads: Vec<usize> = ends.iter().flat_map(|(_, loads, _)| loads.clone()).collect();
        loads.sort_unstable();
        assert_eq!(loads, [0, 1], "{ends:?}");
        assert!(ends.iter().all(|(_, loads, said)| loads.is_empty() || *said == Some(goodbye)), "{ends:?}");
    }
}

/// The smallest: a thread that was called before it began, and the one that its shard belongs to.
#[test]
fn interleavings_of_a_shard_on_its_way_give_it_to_the_thread_it_belongs_to() {
    check(|| {
        let rota = Arc::new(Mutex::new(Rota::new(2, 2)));
        let crew = Crew { rota, enough: 2, ends: Arc::default(), end: Alarm::default() };
        let [here, there] = [0, 1].map(|index| {
            let load = Load { index, alarm: Alarm::default() };
            let (call, waker) = (Arc::new(Call::default()), Some(load.waker()));
            // Neither is parked, nor is joined by anybody else.
            let post = Post {
                call: Arc::clone(&call),
                handle: None,
                arrivals: Vec::new(),
                waker,
                driven: 1,
                is_over: false,
            };
            lock(&crew.rota).fill(index, post);
            (call, vec![load])
        });
        crew.spread(1);
        let of_other = crew.clone();
        let other = thread::spawn(move || of_other.drive(1, &there.0, there.1));
        crew.drive(0, &here.0, here.1);
        other.join().unwrap();
        assert_eq!(crew.ends(), [(0, vec![0, 1], None), (1, vec![], Some(0))]);
    });
}

#[test]
fn interleavings_of_a_move_lead_it_to_its_end_though_nobody_helps() {
    check_in_part(|| {
        let crew = Crew::new(2, 2);
        crew.spread(1);
        while crew.ends().len() < 2 {
            crew.end.wait();
        }
        assert_eq!(crew.ends(), [(0, vec![0, 1], None), (1, vec![], Some(0))]);
    });
}

#[test]
fn interleavings_of_a_move_and_the_end_leave_every_shard_with_one_thread() {
    check_in_part(|| {
        let crew = Crew::new(2, usize::MAX);
        crew.spread(1);
        crew.stop(7);
        crew.assert_whole(7);
    });
}

#[test]
fn interleavings_of_a_move_that_is_overtaken_lose_no_shard() {
    check_in_part(|| {
        let crew = Crew::new(2, usize::MAX);
        crew.spread(1);
        crew.spread(2);
        crew.stop(7);
        crew.assert_whole(7);
    });
}
