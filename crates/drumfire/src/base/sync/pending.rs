//! Results that workers complete later.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{Condvar, Mutex, lock, wait_while};

/// The result of an operation that the workers of a server carry out between two passes.
///
/// The operation completes even if the result is dropped. A server with [`Workers::Inline`](crate::Workers::Inline) carries it out
/// while it is polled, so its own thread must poll it and call [`Pending::try_take`], and must not wait.
#[derive(Debug)]
#[must_use = "the operation may still run; wait for the result, or drop it explicitly"]
pub struct Pending<T> {
    completion: Arc<Completion<T>>,
}

#[derive(Debug)]
struct Completion<T> {
    state: Mutex<PendingState<T>>,
    completed: Condvar,
}

#[derive(Debug)]
struct PendingState<T> {
    /// The number of workers that have not completed their part.
    parts: usize,
    /// The result so far, until it is taken.
    result: Option<T>,
    /// The task that waits for the result.
    waker: Option<Waker>,
}

impl<T> PendingState<T> {
    fn take(&mut self) -> Option<T> {
        if self.parts == 0 { self.result.take() } else { None }
    }
}

impl<T> Pending<T> {
    /// Creates a result that is complete when this number of parts are dropped.
    pub(crate) fn new(initial: T, parts: usize) -> (Self, Vec<PendingPart<T>>) {
        let state = PendingState { parts, result: Some(initial), waker: None };
        let completion = Arc::new(Completion { state: Mutex::new(state), completed: Condvar::new() });
        let parts = (0..parts).map(|_| PendingPart(Arc::clone(&completion))).collect();
        (Self { completion }, parts)
    }

    /// Creates a result that is complete.
    pub(crate) fn ready(result: T) -> Self {
        Self::new(result, 0).0
    }

    /// Returns the result if it is complete. It is returned once; later calls return `None`.
    pub fn try_take(&mut self) -> Option<T> {
        lock(&self.completion.state).take()
    }

    /// Waits for the result, at most for `timeout`. Returns `None` if it is not complete by then; the caller can wait again.
    pub fn wait(&mut self, timeout: Duration) -> Option<T> {
        let state = lock(&self.completion.state);
        wait_while(&self.completion.completed, state, timeout, |state| state.parts > 0).take()
    }

    /// Returns the parts of the result that are complete.
    pub(crate) fn take_incomplete(&mut self) -> Option<T> {
        lock(&self.completion.state).result.take()
    }
}

/// The future of the result. It stays pending after the result was taken.
impl<T> Future for Pending<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut state = lock(&self.completion.state);
        let result = state.take();
        if result.is_none() {
            state.waker = Some(context.waker().clone());
        }
        result.map_or(Poll::Pending, Poll::Ready)
    }
}

/// The part of one worker in a result. Dropping it completes the part, so a worker that ends leaves no caller waiting.
#[derive(Debug)]
pub(crate) struct PendingPart<T>(Arc<Completion<T>>);

impl<T> PendingPart<T> {
    /// Adds to the result, unless the caller has given up.
    pub(crate) fn update(&self, change: impl FnOnce(&mut T)) {
        if let Some(result) = &mut lock(&self.0.state).result {
            change(result);
        }
    }
}

impl<T> Drop for PendingPart<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.parts -= 1;
        if state.parts > 0 {
            return;
        }
        let waker = state.waker.take();
        drop(state);
        self.0.completed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_complete_with_its_last_part_and_taken_once() {
        let (mut pending, mut parts) = Pending::new(Vec::new(), 2);
        let mut context = Context::from_waker(Waker::noop());
        parts.pop().unwrap().update(|result| result.push(1));
        assert!(pending.try_take().is_none() && Pin::new(&mut pending).poll(&mut context).is_pending());
        assert!(pending.wait(Duration::ZERO).is_none());
        parts.pop().unwrap().update(|result| result.push(2));
        assert_eq!(pending.wait(Duration::MAX), Some(vec![1, 2]));
        assert!(pending.try_take().is_none() && Pin::new(&mut pending).poll(&mut context).is_pending());
        assert_eq!(Pending::ready(7).try_take(), Some(7));
    }

    #[test]
    fn parts_of_a_result_that_was_taken_early_are_ignored() {
        let (mut pending, mut parts) = Pending::new(0, 2);
        parts.pop().unwrap().update(|result| *result += 1);
        assert_eq!(pending.take_incomplete(), Some(1));
        parts.pop().unwrap().update(|result| *result += 1);
        assert!(pending.try_take().is_none());
    }
}
