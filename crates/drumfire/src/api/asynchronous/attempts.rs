//! What a client's thread is asked for beside what commands say: to connect, and for tokens to come back with.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use drumfire_proto::{ConnectError, IssuedToken, PeerId};
use tokio::sync::oneshot;

use super::connection::Connection;
use crate::base::sync::{Mutex, lock};
use crate::credentials::connect_token::ConnectToken;
use crate::credentials::keys::ServerPublicKey;

/// Errands that wait for the thread, at most.
const ERRANDS_MAX: usize = 65_536;

/// Where the answer to a connect goes.
pub(super) type Answer = oneshot::Sender<Result<Connection, ConnectError>>;

/// Something to do for a client's thread.
pub(super) enum Errand {
    Connect { server: SocketAddr, key: ServerPublicKey, token: Option<Box<IssuedToken>>, answer: Answer },
    Resume { peer: PeerId, answer: oneshot::Sender<Option<ConnectToken>> },
}

/// What was asked for, and who waits for what comes of it.
#[derive(Default)]
pub(super) struct Attempts(Mutex<State>);

#[derive(Default)]
struct State {
    errands: VecDeque<Errand>,
    /// As many as there are connections at most.
    under_way: HashMap<PeerId, Answer>,
    is_over: bool,
}

impl Attempts {
    /// Puts an errand behind others; the thread has to be woken. False when there are too many, or nobody to do it.
    pub(super) fn ask(&self, errand: Errand) -> bool {
        let mut state = lock(&self.0);
        let has_room = !state.is_over && state.errands.len() < ERRANDS_MAX;
        if has_room {
            state.errands.push_back(errand);
        }
        has_room
    }

    pub(super) fn next_errand(&self) -> Option<Errand> {
        lock(&self.0).errands.pop_front()
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

    /// Nobody does errands any more. Whoever waits hears of it when his answer is dropped.
    pub(super) fn end(&self) {
        let mut state = lock(&self.0);
        state.is_over = true;
        let left = (std::mem::take(&mut state.errands), std::mem::take(&mut state.under_way));
        drop(state);
        drop(left);
    }
}

impl std::fmt::Debug for Attempts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attempts").finish_non_exhaustive()
    }
}
