//! What a client's thread is asked for beside what commands say: to connect, and for tokens to come back with.

use std::collections::{HashMap, VecDeque};

use drumfire_proto::{ConnectError, PeerId};
use tokio::sync::oneshot;

use super::connection::Connection;
use crate::base::sync::{Mutex, lock};
use crate::config::connect::ConnectOptions;
use crate::credentials::connect_token::ConnectToken;

/// The most requests that wait for the thread.
const REQUESTS_MAX: usize = 65_536;

/// The sender of the result of a connect.
pub(super) type Answer = oneshot::Sender<Result<Connection, ConnectError>>;

/// A request to a client's thread.
pub(super) enum DriverRequest {
    Connect { options: Box<ConnectOptions>, answer: Answer },
    Resume { peer: PeerId, answer: oneshot::Sender<Option<ConnectToken>> },
}

/// What was asked for, and who waits for what comes of it.
#[derive(Default)]
pub(super) struct Attempts(Mutex<State>);

#[derive(Default)]
struct State {
    requests: VecDeque<DriverRequest>,
    /// As many as there are connections at most.
    under_way: HashMap<PeerId, Answer>,
    is_over: bool,
}

impl Attempts {
    /// Queues a request. The caller must wake the thread. Returns false if there are too many, or if the thread has ended.
    pub(super) fn ask(&self, request: DriverRequest) -> bool {
        let mut state = lock(&self.0);
        let has_room = !state.is_over && state.requests.len() < REQUESTS_MAX;
        if has_room {
            state.requests.push_back(request);
        }
        has_room
    }

    pub(super) fn next_request(&self) -> Option<DriverRequest> {
        lock(&self.0).requests.pop_front()
    }

    /// An attempt has begun.
    pub(super) fn begin(&self, peer: PeerId, answer: Answer) {
        lock(&self.0).under_way.insert(peer, answer);
    }

    /// An attempt came to a connection; where nobody waits for it any more, that is closed at once.
    pub(super) fn succeed(&self, connection: Connection) {
        let answer = lock(&self.0).under_way.remove(&connection.peer());
        if let Some(answer) = answer {
            let _ = answer.send(Ok(connection));
        }
    }

    /// An attempt came to nothing.
    pub(super) fn fail(&self, peer: PeerId, error: ConnectError) {
        let answer = lock(&self.0).under_way.remove(&peer);
        if let Some(answer) = answer {
            let _ = answer.send(Err(error));
        }
    }

    /// Drops all requests, because the thread has ended. Their futures fail.
    pub(super) fn end(&self) {
        let mut state = lock(&self.0);
        state.is_over = true;
        let left = (std::mem::take(&mut state.requests), std::mem::take(&mut state.under_way));
        drop(state);
        drop(left);
    }
}

impl std::fmt::Debug for Attempts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attempts").finish_non_exhaustive()
    }
}
