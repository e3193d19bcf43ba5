//! The application's own decision about who is let in: what it is told, and what it may answer.
//!
//! Not here: when it is asked, and what becomes of the answer.

use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::{Claim, PlayerId, RefuseReason};

/// Somebody who wants to come in and passed every other check.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Applicant<'a> {
    /// Where it asks from, an IPv4 address always as such.
    pub address: SocketAddr,
    /// Whether it has proved that it is there: always, save with [`Cookie::UnderLoad`](crate::Cookie::UnderLoad) while
    /// the server is calm. Then anybody may have written the address. Who is refused so has to prove it, and is asked
    /// about once more.
    pub is_address_proved: bool,
    /// Who it is, as its token says; `None` in open access.
    pub player: Option<ApplicantPlayer<'a>>,
    /// The key of the worker that its token wants, as [`TokenRequest::placement_key`](crate::TokenRequest::placement_key) set
    /// it; `None` for any worker.
    pub placement_key: Option<u64>,
}

/// Who an [`Applicant`] is, as its token says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApplicantPlayer<'a> {
    /// By which the game's backend knows the player.
    pub id: PlayerId,
    /// What the backend put into the token, up to 256 bytes.
    pub user_data: &'a [u8],
}

/// Which worker takes a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The one with the fewest connections.
    #[default]
    LeastLoaded,
    /// The one of this key: all connections of one key are with one worker, and those of a room can be.
    Key(u64),
}

/// What the application says about an [`Applicant`]. Durations reach the client in whole seconds, rounded up, of at most
/// 65,535.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Let in, where its token wants it, or else at the worker with the fewest connections.
    #[default]
    Accept,
    /// Let in there, whatever its token wants.
    AcceptAt(Placement),
    /// Not let in.
    Refuse {
        /// Why; [`RefuseReason::Full`] and [`RefuseReason::Banned`] are made for it.
        reason: RefuseReason,
        /// When it may try again; `None` for not at all.
        retry_after: Option<Duration>,
    },
    /// Not let in here, but there. Clients with tokens are told the address; in open access nothing proves who said it, so that
    /// they hear the reason alone.
    TryThere {
        /// The other server.
        address: SocketAddr,
        /// When to try; `None` for at once.
        retry_after: Option<Duration>,
    },
}

/// A function that decides. Clones are the same function.
#[derive(Clone)]
pub struct AcceptHook(Arc<dyn Fn(&Applicant<'_>) -> Verdict + Send + Sync>);

impl AcceptHook {
    /// The hook that asks this function, on the worker that got the Hello. The players of that worker wait until it returns. One
    /// source can cause at most 20 calls a second per worker in open access, and 500 with tokens, whatever the function returns.
    pub fn new(hook: impl Fn(&Applicant<'_>) -> Verdict + Send + Sync + 'static) -> Self {
        Self(Arc::new(hook))
    }

    /// The verdict; `None` when the function panicked.
    pub(super) fn ask(&self, claim: &Claim<'_>) -> Option<Verdict> {
        let user_data = claim.user_data;
        let applicant = Applicant {
            address: claim.address,
            is_address_proved: claim.is_address_proved,
            player: claim.token.map(|token| ApplicantPlayer { id: token.player, user_data }),
            placement_key: claim.key.map(|key| key.0),
        };
        // What the function keeps is its own affair; nothing of ours is behind this guard.
        catch_unwind(AssertUnwindSafe(|| (self.0)(&applicant))).ok()
    }
}

impl fmt::Debug for AcceptHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AcceptHook")
    }
}
