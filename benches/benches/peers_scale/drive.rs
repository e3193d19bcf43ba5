//! The load: each client says something ten times a second at times fixed beforehand and is answered; the books of one window.

use std::time::Duration;

use drumfire_benches::{Carried, Outstanding};
use drumfire_tools::clock;
use hdrhistogram::Histogram;

use crate::ends::Ends;
use crate::message::Head;

/// The load runs for so long before it is counted.
const WARM_UP_NS: u64 = 200_000_000;

/// What is still out at the window's end has this long to come back.
const SETTLE: Duration = Duration::from_secs(3);

/// The longest time that is told apart from longer ones: ten seconds.
const LONGEST_NS: u64 = 10_000_000_000;

/// A load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Messages per second of each client.
    pub(crate) per_second: u64,
    /// Bytes of each answer.
    pub(crate) down_bytes: u16,
    pub(crate) counted: Duration,
}

/// What came of a window: of the messages that were to leave within it.
pub(crate) struct Tally {
    pub(crate) sent: u64,
    /// With those of the warm-up.
    pub(crate) said: u64,
    /// Not taken by the connection, for want of room.
    pub(crate) refused: u64,
    pub(crate) back: u64,
    /// Of those that are back: after the window's end.
    pub(crate) late: u64,
    /// Never came back.
    pub(crate) lost: u64,
    /// From when a message was to leave to when its answer was there.
    pub(crate) latency: Histogram<u64>,
    /// How late messages left.
    pub(crate) delay: Histogram<u64>,
    /// Answers of each client.
    pub(crate) back_of: Vec<u64>,
    /// Datagrams of the window with its warm-up.
    pub(crate) carried: Carried,
    pub(crate) window: Duration,
}

/// What all clients have out, over any number of windows.
#[derive(Default)]
pub(crate) struct Drive {
    out: Vec<Outstanding>,
    /// Answers that were given up in an earlier window and came after all.
    pub(crate) stragglers: u64,
    /// Came, and were never on their way.
    pub(crate) strangers: u64,
}

fn histogram() -> Histogram<u64> {
    match Histogram::new_with_bounds(1, LONGEST_NS, 3) {
        Ok(histogram) => histogram,
        Err(error) => unreachable!("the bounds are good: {error}"),
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Drive {
    /// Runs the load once; `watch` is called when the window begins, `used` when it ends, and `beside` in each turn.
    pub(crate) fn window<E: Ends, W, U>(
        &mut self,
        ends: &mut E,
        load: Load,
        watch: impl FnOnce() -> W,
        used: impl FnOnce(&W) -> U,
        mut beside: impl FnMut() -> Result<(), String>,
    ) -> Result<(Tally, U), String> {
        let begin = clock::host_ns();
        let (start, end) = (begin + WARM_UP_NS, begin + WARM_UP_NS + nanos(load.counted));
        let mut tally = Tally::new(ends.count(), load.counted);
        let carried = ends.carried();
        let (mut watch, mut watched, mut message) = (Some(watch), None, 0);
        self.out.resize_with(ends.count(), Outstanding::default);
        loop {
            let now = clock::host_ns();
            if now >= start
                && let Some(watch) = watch.take()
            {
                watched = Some(watch());
            }
            message = self.speak(ends, load, begin, message, (start, end.min(now + 1)), &mut tally)?;
            ends.flush()?;
            self.listen(ends, (begin, start, end), &mut tally)?;
            beside()?;
            if now >= end {
                break;
            }
        }
        let used = watched.as_ref().map(used).ok_or("the window never began")?;
        let deadline = clock::now() + SETTLE;
        while self.is_any_out() && clock::now() < deadline {
            ends.flush()?;
            self.listen(ends, (begin, start, end), &mut tally)?;
        }
        tally.lost =
            self.out.iter().flat_map(Outstanding::waiting).filter(|due| *due >= start).count() as u64;
        self.out.iter_mut().for_each(Outstanding::forget);
        tally.carried = since(ends.carried(), carried);
        Ok((tally, used))
    }

    /// Goes on with a load that is not counted as long as `goes_on` says so. Who comes meanwhile says nothing yet.
    pub(crate) fn play<E: Ends>(
        &mut self,
        ends: &mut E,
        load: Load,
        mut goes_on: impl FnMut(&E) -> bool,
    ) -> Result<(), String> {
        let begin = clock::host_ns();
        let (mut tally, mut message) = (Tally::new(ends.count(), load.counted), 0);
        self.out.resize_with(ends.count(), Outstanding::default);
        while goes_on(ends) {
            let until = clock::host_ns() + 1;
            message = self.speak(ends, load, begin, message, (u64::MAX, until), &mut tally)?;
            ends.flush()?;
            self.listen(ends, (begin, u64::MAX, u64::MAX), &mut tally)?;
        }
        let deadline = clock::now() + SETTLE;
        while self.is_any_out() && clock::now() < deadline {
            ends.flush()?;
            self.listen(ends, (begin, u64::MAX, u64::MAX), &mut tally)?;
        }
        self.out.iter_mut().for_each(Outstanding::forget);
        Ok(())
    }

    /// Lets all clients say what is due before `until`, from this message on; answers the next one.
    fn speak<E: Ends>(
        &mut self,
        ends: &mut E,
        load: Load,
        begin: u64,
        mut message: u64,
        (start, until): (u64, u64),
        tally: &mut Tally,
    ) -> Result<u64, String> {
        let count = self.out.len() as u64;
        let rate = count * load.per_second;
        loop {
            let Some(after) = (message * 1_000_000_000).checked_div(rate) else { return Ok(message) };
            let due = begin + after;
            if due >= until {
                return Ok(message);
            }
            let place = u32::try_from(message % count).unwrap_or(0);
            let out = &mut self.out[place as usize];
            let (ask, number) = (load.down_bytes, out.next());
            let is_taken = ends.send(Head { ask, place, number, due })?;
            if is_taken {
                out.sent(due);
                tally.said += 1;
            }
            if due >= start {
                *(if is_taken { &mut tally.sent } else { &mut tally.refused }) += 1;
                tally.delay.saturating_record(clock::host_ns().saturating_sub(due));
            }
            message += 1;
        }
    }

    fn listen<E: Ends>(
        &mut self,
        ends: &mut E,
        (begin, start, end): (u64, u64, u64),
        tally: &mut Tally,
    ) -> Result<(), String> {
        let Self { out, stragglers, strangers } = self;
        ends.look(|head| {
            let known = head.and_then(|head| Some((head, out.get_mut(head.place as usize)?)));
            let Some((head, of_client)) = known else {
                *strangers += 1;
                return;
            };
            match of_client.take(head.number) {
                Some(due) if due == head.due => {
                    if due < start {
                        return;
                    }
                    let now = clock::host_ns();
                    tally.back += 1;
                    tally.late += u64::from(now >= end);
                    tally.latency.saturating_record(now.saturating_sub(due));
                    tally.back_of[head.place as usize] += 1;
                }
                Some(_) => *strangers += 1,
                None if head.due < begin => *stragglers += 1,
                None => *strangers += 1,
            }
        })
    }

    fn is_any_out(&self) -> bool {
        self.out.iter().any(|out| !out.is_empty())
    }
}

impl Tally {
    fn new(clients: usize, window: Duration) -> Self {
        Self {
            sent: 0,
            said: 0,
            refused: 0,
            back: 0,
            late: 0,
            lost: 0,
            latency: histogram(),
            delay: histogram(),
            back_of: vec![0; clients],
            carried: Carried::default(),
            window,
        }
    }

    /// How evenly answers came to all clients: 1 when all got as many (Jain, Chiu and Hawe 1984).
    pub(crate) fn jain_index(&self) -> Option<f64> {
        let sum: f64 = self.back_of.iter().map(|count| *count as f64).sum();
        let squares: f64 = self.back_of.iter().map(|count| (*count as f64).powi(2)).sum();
        (squares > 0.0).then(|| sum * sum / (self.back_of.len() as f64 * squares))
    }
}

fn since(now: Carried, then: Carried) -> Carried {
    Carried {
        sent: now.sent - then.sent,
        sent_bytes: now.sent_bytes - then.sent_bytes,
        received: now.received - then.received,
        received_bytes: now.received_bytes - then.received_bytes,
    }
}
