//! The requests to a client's thread to connect, which the connection limit can refuse.

use std::collections::{HashMap, VecDeque};

use drumfire_proto::{ConnectError, PeerId};
use tokio::sync::oneshot;

use super::connection::Connection;
use crate::base::error::Error;
use crate::base::sync::{Mutex, lock};
use crate::config::connect::ConnectOptions;

/// The maximum number of requests in the queue.
const REQUESTS_MAX: usize = 65_536;

/// The sender of the result of a connect.
pub(super) type ConnectSender = oneshot::Sender<Result<Connection, Error>>;

/// The requests that the thread has not taken, and the senders of the results of connects in progress.
#[derive(Debug, Default)]
pub(super) struct Attempts(Mutex<AttemptsState>);

#[derive(Debug, Default)]
struct AttemptsState {
    /// The requests that the thread has not taken, oldest first. At most [`REQUESTS_MAX`].
    requests: VecDeque<(ConnectOptions, ConnectSender)>,
    /// The attempts without a result. The connection limit of the endpoint bounds their number.
    in_progress: HashMap<PeerId, ConnectSender>,
    /// Whether a future of an attempt may have been dropped.
    has_canceled: bool,
    /// Whether the client has shut down or its thread has ended. Further requests are refused.
    is_over: bool,
}

impl Attempts {
    /// Queues a request. The caller must wake the thread.
    ///
    /// # Errors
    ///
    /// `Closed` if the thread has ended, and `TooManyConnections` if too many requests wait.
    pub(super) fn push_request(
        &self,
        options: ConnectOptions,
        answer: ConnectSender,
    ) -> Result<(), ConnectError> {
        let mut state = lock(&self.0);
        if state.is_over {
            return Err(ConnectError::Closed);
        }
        if state.requests.len() >= REQUESTS_MAX {
            return Err(ConnectError::TooManyConnections);
        }
        state.requests.push_back((options, answer));
        Ok(())
    }

    /// Removes the oldest request from the queue.
    pub(super) fn next_request(&self) -> Option<(ConnectOptions, ConnectSender)> {
        lock(&self.0).requests.pop_front()
    }

    /// Registers an attempt that has begun, with the sender of its result.
    pub(super) fn begin(&self, peer: PeerId, answer: ConnectSender) {
        lock(&self.0).in_progress.insert(peer, answer);
    }

    /// Registers that a future was dropped. The caller must wake the thread.
    pub(super) fn cancel(&self) {
        lock(&self.0).has_canceled = true;
    }

    /// Removes and returns the attempts whose futures were dropped.
    pub(super) fn take_canceled(&self) -> Vec<PeerId> {
        let mut state = lock(&self.0);
        if !std::mem::take(&mut state.has_canceled) {
            return Vec::new();
        }
        state.in_progress.extract_if(|_, answer| answer.is_closed()).map(|(peer, _)| peer).collect()
    }

    /// Completes an attempt with its connection. If the caller has dropped its future, the connection is closed immediately.
    pub(super) fn succeed(&self, connection: Connection) {
        let answer = lock(&self.0).in_progress.remove(&connection.peer());
        if let Some(answer) = answer {
            // On failure, `send` returns the connection. Dropping its last handle closes it.
            let _ = answer.send(Ok(connection));
        }
    }

    /// Completes an attempt with an error.
    pub(super) fn fail(&self, peer: PeerId, error: ConnectError) {
        let answer = lock(&self.0).in_progress.remove(&peer);
        if let Some(answer) = answer {
            let _ = answer.send(Err(error.into()));
        }
    }

    /// Drops all requests and attempts, because the client has shut down or its thread has ended. Their futures complete with
    /// [`ConnectError::Closed`].
    pub(super) fn end(&self) {
        let mut state = lock(&self.0);
        state.is_over = true;
        let dropped = (std::mem::take(&mut state.requests), std::mem::take(&mut state.in_progress));
        drop(state);
        // Dropping a sender wakes a task, which may take the lock, so the lock is free by now.
        drop(dropped);
    }
}
