//! The application's hook for admission, its input, and its verdicts.
//!
//! [`AdmissionControl`](super::AdmissionControl) decides when the hook is called, and applies the verdict.

use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::{Claim, PlayerId, RefuseReason};

/// A client that asks for a connection and passed every other check.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Applicant<'a> {
    /// The address of the client. An IPv4 address is never mapped to IPv6.
    pub address: SocketAddr,
    /// Whether the client has proved its address. False only with [`Cookie::UnderLoad`](crate::config::Cookie::UnderLoad) while the server
    /// is not under load. The address may then be forged. If such a client is refused, it has to prove its address, and the hook is called
    /// once more.
    pub is_address_proved: bool,
    /// The player of the token. `None` in open access.
    pub player: Option<ApplicantPlayer<'a>>,
    /// The placement key, as [`TokenRequest::placement_key`](crate::tokens::TokenRequest::placement_key) set it in the token. `None` for
    /// any worker.
    pub placement_key: Option<u64>,
}

/// The player of the token of an [`Applicant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApplicantPlayer<'a> {
    /// The id of the player in the game's backend.
    pub id: PlayerId,
    /// The data that the backend put into the token, up to 256 bytes.
    pub user_data: &'a [u8],
}

/// The worker of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The worker with the fewest connections.
    #[default]
    LeastLoaded,
    /// The worker of this key. All connections with one key have the same worker, for example those of a room.
    Key(u64),
}

/// The application's decision about an [`Applicant`]. The client receives durations in whole seconds, rounded up, and at most
/// 65,535.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Accepts the client at the worker of its token, or else at the worker with the fewest connections.
    #[default]
    Accept,
    /// Accepts the client at this worker, and ignores the placement key of its token.
    AcceptAt(Placement),
    /// Refuses the client. For a second the client asks again before it gives up, and the hook is called each time.
    Refuse {
        /// The reason, usually [`RefuseReason::Full`] or [`RefuseReason::Banned`].
        reason: RefuseReason,
        /// The time after which the client can try again. `None` if it should not.
        retry_after: Option<Duration>,
    },
    /// Redirects the client to another server. Only a client with a token receives the address. In open access the refusal is not
    /// authenticated, so the client receives the reason alone.
    Redirect {
        /// The other server.
        address: SocketAddr,
        /// The time after which the client should connect there. `None` for immediately.
        retry_after: Option<Duration>,
    },
}

/// The function that decides about admission. Clones share it.
#[derive(Clone)]
pub struct AcceptHook(Arc<dyn Fn(&Applicant<'_>) -> Verdict + Send + Sync>);

impl AcceptHook {
    /// Creates a hook that calls this function on the worker that received the Hello. The connections of that worker wait until it
    /// returns. One source can cause at most 20 calls per second and worker in open access, and 500 with tokens, whatever the
    /// function returns.
    pub fn new(hook: impl Fn(&Applicant<'_>) -> Verdict + Send + Sync + 'static) -> Self {
        Self(Arc::new(hook))
    }

    /// Returns the verdict, or `None` if the function panicked.
    pub(super) fn call(&self, claim: &Claim<'_>) -> Option<Verdict> {
        let user_data = claim.user_data;
        let applicant = Applicant {
            address: claim.address,
            is_address_proved: claim.is_address_proved,
            player: claim.token.map(|token| ApplicantPlayer { id: token.player, user_data }),
            placement_key: claim.key.map(|key| key.0),
        };
        // After a panic, only state of the function itself can be inconsistent.
        catch_unwind(AssertUnwindSafe(|| (self.0)(&applicant))).ok()
    }
}

impl fmt::Debug for AcceptHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AcceptHook")
    }
}
