//! Admission control: limits for new connections, the accept hook of the application, bans, and the gate.
//!
//! All workers of a server share it. The decision is made once per handshake, after the token of the client was checked and before any key
//! is computed.

pub(crate) mod bans;
pub(crate) mod hook;
pub(crate) mod load;
pub(crate) mod registry;
mod sources;

pub use bans::{BANS_MAX, Ban};
pub use hook::{AcceptHook, Applicant, ApplicantPlayer, Placement, Verdict};

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drumfire_proto::limits::FULL_RETRY_AFTER;
use drumfire_proto::{Claim, DropReason, Moment, Now, PlacementDecision, PlayerId, RefuseReason, Rejection};

use crate::base::error::Error;
use crate::base::setters::setters;
use bans::Bans;
use load::LoadMeter;
use sources::SourceLimits;

/// The longest time that a refusal can carry.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(u16::MAX as u64);

/// Beyond this load, the answers of a worker begin to be late, because datagrams of a burst wait for those before them.
const BUSY_MAX_PERCENT: u8 = 90;

/// The admission settings of a [`crate::Server`], in addition to [`crate::Access`].
///
/// ```
/// # use std::time::Duration;
/// # use drumfire::*;
/// # use drumfire::admission::*;
/// # let address = "127.0.0.1:0".parse().unwrap();
/// let mut admission = AdmissionConfig::default();
/// admission.retry_after = Duration::from_millis(1);
/// let config = ServerConfig::new(address, ServerKey::dev(), Access::Open).admission(admission);
/// let refused = Server::bind(config);
/// assert!(matches!(refused, Err(Error::Setting { field: "admission.retry_after", .. })));
/// ```
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
#[non_exhaustive]
pub struct AdmissionConfig {
    /// The hook that decides about each client that passed all other checks: see [`crate::ServerConfig::accept`]. By default there
    /// is no hook.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub accept: Option<AcceptHook>,
    /// The number of connections, including half-open ones, that one IPv4 address or one IPv6 /64 can have at a time. At least 1. `None`,
    /// the default, is no limit, because a school or a mobile network can share one address. The rate of attempts of a source is limited in
    /// any case. Set a limit for open access, where a connection needs no token. Loopback addresses are exempt.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub connections_per_source: Option<u32>,
    /// A worker that was busy for a greater share of the last second accepts no new connections: 1 to 100 percent, 90 by default; 100 is no
    /// limit. Existing connections stay. A worker is busy with datagrams, timers, and commands. The application's own thread does not
    /// count. On Linux, time in which a thread waits for a core does not count. Other platforms do not report this time, so it counts as
    /// busy.
    pub busy_max_percent: u8,
    /// The time after which a client can try again when there is no room: 1 s to 65,535 s, 10 s by default.
    #[cfg_attr(feature = "serde", serde(with = "drumfire_socket::duration_text"))]
    pub retry_after: Duration,
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self {
            accept: None,
            connections_per_source: None,
            busy_max_percent: BUSY_MAX_PERCENT,
            retry_after: FULL_RETRY_AFTER,
        }
    }
}

impl AdmissionConfig {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let setting = |field, problem| Err(Error::setting(field, problem));
        if self.connections_per_source == Some(0) {
            return setting("admission.connections_per_source", "must be at least 1, or None for no limit");
        }
        if !(1..=100).contains(&self.busy_max_percent) {
            return setting("admission.busy_max_percent", "must be 1 to 100");
        }
        if !(Duration::from_secs(1)..=RETRY_AFTER_MAX).contains(&self.retry_after) {
            return setting("admission.retry_after", "must be 1 s to 65,535 s");
        }
        Ok(())
    }
}

setters! {
    AdmissionConfig:
    /// Sets the hook that decides about each client that passed all other checks.
    accept(hook: AcceptHook) = Some(hook);

    /// Sets the number of connections of one source.
    connections_per_source(connections: u32) = Some(connections);

    /// Sets the load in percent beyond which a worker accepts no new connections.
    busy_max_percent(percent: u8) = percent;

    /// Sets the time after which a client can try again when there is no room.
    retry_after(duration: Duration) = duration;
}

/// Whether a server accepts new connections at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Gate {
    #[default]
    Open,
    /// Refused clients are redirected to the address, or receive the reason "full" without one.
    Closed(Option<SocketAddr>),
}

/// The admission control that all workers of a server share.
#[derive(Debug, Default)]
pub(crate) struct AdmissionControl {
    config: AdmissionConfig,
    bans: Bans,
    gate: Mutex<Gate>,
    /// The load of each worker.
    load_meters: Vec<Arc<LoadMeter>>,
}

impl AdmissionControl {
    /// Returns the admission control of a server whose workers have these loads.
    pub(crate) fn new(config: &AdmissionConfig, load_meters: Vec<Arc<LoadMeter>>) -> Arc<Self> {
        Arc::new(Self { config: config.clone(), bans: Bans::default(), gate: Mutex::default(), load_meters })
    }

    /// Returns whether this worker has time for another connection.
    pub(crate) fn has_headroom(&self, now: Moment, worker: u16) -> bool {
        let meter = self.load_meters.get(usize::from(worker));
        meter.is_none_or(|meter| meter.percent(now) <= self.config.busy_max_percent)
    }

    /// Returns whether this worker has ended. The other workers continue without it.
    pub(crate) fn has_ended(&self, worker: u16) -> bool {
        self.load_meters.get(usize::from(worker)).is_some_and(|meter| meter.has_ended())
    }

    pub(crate) fn bans(&self) -> &Bans {
        &self.bans
    }

    pub(crate) fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counts of connections by source, which are all 0.
    pub(crate) fn sources(&self) -> SourceLimits {
        SourceLimits::new(self.config.connections_per_source)
    }

    /// Checks the gate and the bans, before the hook of the application is called.
    pub(crate) fn check_gate_and_bans(&self, now: Now, claim: &Claim<'_>) -> Result<(), Rejection> {
        self.check_gate()?;
        let player = claim.token.map(|token| token.player);
        match self.bans.remaining(now.monotonic, claim.address.ip(), player) {
            None => Ok(()),
            Some(left) => Err(Rejection {
                counted_as: DropReason::Banned,
                reason: RefuseReason::Banned,
                retry_after: Some(left).filter(|left| *left <= RETRY_AFTER_MAX),
                address: None,
            }),
        }
    }

    fn check_gate(&self) -> Result<(), Rejection> {
        let Gate::Closed(redirect) = *self.gate() else { return Ok(()) };
        let later = self.try_later(DropReason::NotAdmitting);
        Err(match redirect {
            None => later,
            address => Rejection { reason: RefuseReason::Redirect, retry_after: None, address, ..later },
        })
    }

    /// Returns whether a client was banned after it was admitted.
    pub(crate) fn is_unwelcome(&self, now: Moment, address: IpAddr, player: Option<PlayerId>) -> bool {
        self.bans.remaining(now, address, player).is_some()
    }

    /// Returns the decision for a Hello when no worker has room.
    pub(crate) fn full(&self) -> PlacementDecision {
        PlacementDecision::Full { retry_after: Some(self.config.retry_after) }
    }

    /// Calls the application's hook, if there is one. Returns the key of the worker that it chooses, if any. The caller must not
    /// hold a lock, because the hook can take long and can panic.
    pub(crate) fn call_hook(&self, claim: &Claim<'_>) -> Result<Option<u64>, Rejection> {
        let key = claim.key.map(|key| key.0);
        let Some(hook) = &self.config.accept else { return Ok(key) };
        let Some(verdict) = hook.call(claim) else { return Err(self.try_later(DropReason::AcceptPanicked)) };
        let counted_as = DropReason::Declined;
        match verdict {
            Verdict::Accept => Ok(key),
            Verdict::AcceptAt(Placement::LeastLoaded) => Ok(None),
            Verdict::AcceptAt(Placement::Key(key)) => Ok(Some(key)),
            Verdict::Refuse { reason, retry_after } => {
                Err(Rejection { counted_as, reason, retry_after, address: None })
            }
            Verdict::Redirect { address, retry_after } => {
                let reason = RefuseReason::Redirect;
                Err(Rejection { counted_as, reason, retry_after, address: Some(address) })
            }
        }
    }

    /// Returns the rejection of a client that can try again later.
    pub(crate) fn try_later(&self, counted_as: DropReason) -> Rejection {
        let retry_after = Some(self.config.retry_after);
        Rejection { counted_as, reason: RefuseReason::Full, retry_after, address: None }
    }
}

#[cfg(test)]
mod tests {
    use super::bans::Ban;
    use super::*;

    fn field(config: &AdmissionConfig) -> Option<&'static str> {
        match config.check() {
            Ok(()) => None,
            Err(Error::Setting { field, .. }) => Some(field),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn every_bound_is_named_and_exact() {
        let ok = AdmissionConfig::default;
        assert_eq!(field(&ok()), None);
        assert_eq!(field(&ok().connections_per_source(0)), Some("admission.connections_per_source"));
        assert_eq!(field(&ok().connections_per_source(1)), None);
        for (percent, fits) in [(0, false), (1, true), (100, true), (101, false)] {
            let wrong = (!fits).then_some("admission.busy_max_percent");
            assert_eq!(field(&ok().busy_max_percent(percent)), wrong, "{percent}");
        }
        let second = Duration::from_secs(1);
        for (after, fits) in [
            (second - Duration::from_nanos(1), false),
            (second, true),
            (65_535 * second, true),
            (65_535 * second + Duration::from_nanos(1), false),
        ] {
            let wrong = (!fits).then_some("admission.retry_after");
            assert_eq!(field(&ok().retry_after(after)), wrong, "{after:?}");
        }
    }

    /// Some addresses of each source, in several forms.
    const SOURCES: [&[&str]; 21] = [
        &["192.0.2.1", "::ffff:192.0.2.1", "::ffff:c000:201"],
        &["192.0.2.2", "::ffff:192.0.2.2"],
        &["192.0.3.1", "::ffff:192.0.3.1"],
        &["192.0.0.1", "::ffff:192.0.0.1"],
        &["1.2.0.192", "::ffff:1.2.0.192"],
        &["10.0.0.1", "::ffff:10.0.0.1"],
        &["100.64.0.1", "::ffff:100.64.0.1"],
        &["169.254.1.1", "::ffff:169.254.1.1"],
        &["255.255.255.254", "::ffff:255.255.255.254"],
        &["::2", "::192.0.2.1", "::fffe:192.0.2.1", "::ffff:0:192.0.2.1", "::8000:0:0:1"],
        &["64:ff9b::192.0.2.1", "64:ff9b::192.0.2.2", "64:ff9b::"],
        &["2002:c000:201::1", "2002:c000:201::2"],
        &["0:0:0:1:0:ffff:192.0.2.1", "0:0:0:1::", "0:0:0:1::1"],
        &["2001:db8:1:2::1", "2001:db8:1:2::2", "2001:db8:1:2:8000::1", "2001:db8:1:2:ffff:ffff:ffff:ffff"],
        &["2001:db8:1:3::1", "2001:db8:1:3::2", "2001:db8:1:3:ffff::"],
        &["2001:db8:1:82::1", "2001:db8:1:82:ffff::"],
        &["2001:db8:1:8002::1", "2001:db8:1:8002::2", "2001:db8:1:8002:1::1"],
        &["a001:db8:1:2::1", "a001:db8:1:2::2", "a001:db8:1:2:2::1"],
        &["fe80::1", "fe80::2", "fe80::ffff:c000:201", "fe80::8000:0:0:1"],
        &["fe80:0:0:1::1", "fe80:0:0:1::2", "fe80:0:0:1:1::"],
        &["fd00::1", "fd00::ffff:192.0.2.1", "fd00::", "fd00:0:0:0:1::", "fd00::7", "fd00::8"],
    ];

    #[test]
    fn limits_and_bans_agree_about_the_source_of_an_address() {
        let now = Moment::ORIGIN;
        let numbered =
            (0..).zip(SOURCES).flat_map(|(source, texts)| texts.iter().map(move |text| (source, text)));
        let addresses: Vec<(u8, IpAddr)> =
            numbered.map(|(source, text)| (source, text.parse().unwrap())).collect();
        assert!(addresses.len() >= 60, "{}", addresses.len());
        for &(source, own) in &addresses {
            let (bans, mut sources) = (Bans::default(), SourceLimits::new(Some(1)));
            bans.add(now, Ban::Address(own), Duration::from_secs(60)).unwrap();
            assert!(sources.add(own, true));
            for &(other_source, other) in &addresses {
                let is_same = source == other_source;
                assert_eq!(
                    bans.remaining(now, other, None).is_some(),
                    is_same,
                    "{own} is banned, and {other}"
                );
                let is_admitted = sources.add(other, true);
                assert_eq!(is_admitted, !is_same, "{own} is there, and {other}");
                if is_admitted {
                    sources.remove(other, true);
                }
            }
        }
    }
}
