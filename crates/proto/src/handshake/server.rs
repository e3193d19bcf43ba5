//! The server's part of the handshake: checks Hellos, cheapest check first, and responds to those that pass.
//!
//! The server keeps no state for a Hello before its cookie has proved its address. The endpoint decides which shard
//! owns the connection and what is remembered of it. `admission` decides which tokens are accepted.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_crypto::cookie::{COOKIE_BYTES, CookieScope};
use drumfire_crypto::{Cookies, Entropy, Responder, Secret, ServerKeyPair, TokenKey};
use drumfire_wire::{
    ClientParameters, ConnectionId, Hello, Refusal, Refuse, ServerParameters, SharedParameters, Suite,
    VERSION, Welcome, limits as wire_limits,
};

use super::admission::{Admission, AdmittedHello, DenialNotice, DeniedHello, TokenGrant};
use super::load::Load;
use super::{HandshakeResult, key_suite};
use crate::access::Access;
use crate::config::{Config, Cookie, ServerConfig};
use crate::control::SealedResume;
use crate::ids::KeyedBuildHasher;
use crate::limiter::{SourceLimits, TokenBucket};
use crate::placement::HelloHash;
use crate::resets::Resets;
use crate::stats::DropReason;
use crate::time::Moment;

/// A Retry is at most a tenth of the Hello that it answers, and a Welcome at most as long as the Hello.
const _: () = assert!(wire_limits::RETRY_MIN_BYTES * 10 <= wire_limits::HELLO_BYTES);
const _: () = assert!(wire_limits::WELCOME_MAX_BYTES <= wire_limits::HELLO_BYTES);

/// The verdict on the fields and the cookie of a Hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CookieVerdict {
    /// The cookie is not valid, and the server requires one.
    Retry,
    /// The cookie is not valid, and the server does not require one because it is not under load.
    Unproved,
    /// The sender receives datagrams at its address.
    Proved,
    /// The sender receives datagrams at its address, but uses another version or protocol.
    Mismatch(DropReason),
}

/// An encoded Refuse.
pub(crate) type RefuseBytes = [u8; wire_limits::REFUSE_MIN_BYTES];

/// The server's response to a Hello that passed all checks.
#[derive(Debug)]
pub(crate) struct HandshakeResponse {
    pub(crate) agreement: HandshakeResult,
    pub(crate) remote_id: Option<ConnectionId>,
    /// The encoded Welcome.
    pub(crate) welcome: Box<[u8]>,
    pub(crate) application_hello: Box<[u8]>,
}

/// Checks and answers Hellos.
#[derive(Debug)]
pub(crate) struct HandshakeResponder {
    keys: ServerKeyPair,
    key_id: u32,
    admission: Admission,
    cookies: Cookies,
    load: Load,
    sources: SourceLimits,
    handshakes: TokenBucket,
    retries: TokenBucket,
    resets: Resets,
    half_open_count: u32,
    half_open_max: u32,
    protocol_id: u64,
    has_aes_gcm: bool,
    shared: SharedParameters,
}

impl HandshakeResponder {
    pub(crate) fn new(
        config: &Config,
        server: ServerConfig,
        shared: SharedParameters,
        hash: KeyedBuildHasher,
    ) -> Self {
        let resume = TokenKey::resume(&server.persistent, &server.server_id);
        Self {
            admission: Admission::new(server.access, *server.keys.public(), resume),
            keys: server.keys,
            key_id: server.key_id,
            cookies: Cookies::new(server.process_key),
            load: Load::new(server.cookie),
            sources: SourceLimits::new(
                hash,
                server.source_handshakes_per_second,
                server.source_handshakes_burst,
                server.half_open_per_source,
            ),
            handshakes: TokenBucket::new(server.handshakes_per_second, server.handshakes_per_second),
            retries: TokenBucket::new(server.retries_per_second, server.retries_per_second.div_ceil(10)),
            resets: Resets::new(hash),
            half_open_count: 0,
            half_open_max: server.half_open,
            protocol_id: config.protocol_id,
            has_aes_gcm: config.has_aes_gcm,
            shared,
        }
    }

    /// Changes the settings for Hellos from now on.
    pub(crate) fn reconfigure(&mut self, shared: SharedParameters, cookie: Cookie, access: &Access) {
        self.shared = shared;
        self.load.set_cookie(cookie);
        self.admission.set_keys(access);
    }

    /// Checks the plain fields, the cookie, and the versions of the protocol and the game, in order of cost.
    pub(crate) fn check_hello(
        &mut self,
        now: Moment,
        source: SocketAddr,
        hello: &Hello<'_>,
    ) -> Result<CookieVerdict, DropReason> {
        let fields = &hello.fields;
        let mismatch = if fields.version != VERSION {
            Some(DropReason::WrongVersion)
        } else if fields.protocol_id != self.protocol_id {
            Some(DropReason::WrongProtocol)
        } else {
            self.check_fields(hello)?;
            None
        };
        let is_proved = match hello.cookie.split_first_chunk::<COOKIE_BYTES>() {
            Some((cookie, rest)) => {
                rest.iter().all(|byte| *byte == 0)
                    && self.cookies.is_valid(now.seconds(), &scope(source, hello), cookie)
            }
            None => false,
        };
        match (is_proved, mismatch) {
            (true, None) => Ok(CookieVerdict::Proved),
            (true, Some(reason)) => Ok(CookieVerdict::Mismatch(reason)),
            (false, None) if !self.load.requires_cookie(now, self.half_open_count) => {
                Ok(CookieVerdict::Unproved)
            }
            (false, _) => Ok(CookieVerdict::Retry),
        }
    }

    /// Returns the cookie by which this client proves its address, unless the limit of responses is reached.
    pub(crate) fn retry(
        &mut self,
        now: Moment,
        source: SocketAddr,
        hello: &Hello<'_>,
    ) -> Result<[u8; wire_limits::COOKIE_BYTES], DropReason> {
        if !self.retries.take(now) {
            return Err(DropReason::RetryLimit);
        }
        let mut cookie = [0; wire_limits::COOKIE_BYTES];
        for (byte, made) in cookie.iter_mut().zip(self.cookies.make(now.seconds(), &scope(source, hello))) {
            *byte = made;
        }
        Ok(cookie)
    }

    /// Returns the Refuse that gives a client with a proved address the reason for its denial. `None` when the client
    /// gets no reason, or when the limit of responses is reached.
    pub(crate) fn refuse(
        &mut self,
        now: Moment,
        hello: &Hello<'_>,
        denied: &DeniedHello,
    ) -> Option<RefuseBytes> {
        let DenialNotice { reason, retry_after, address } = denied.notice?;
        if !self.retries.take(now) {
            return None;
        }
        let retry_after = retry_after.map(whole_seconds);
        let (version_min, version_max, is_proved) = (VERSION, VERSION, false);
        let refusal = Refusal { reason, version_min, version_max, retry_after, address, is_proved };
        let mut bytes = [0; wire_limits::REFUSE_MIN_BYTES];
        let mac = [0; wire_limits::REFUSE_MAC_BYTES];
        Refuse { client_id: hello.fields.client_id, refusal, mac }.encode(&mut bytes.as_mut_slice()).ok()?;
        let (head, mac) = bytes.split_last_chunk_mut()?;
        if let Some(key) = &denied.key {
            *mac = key.mac(head, hello.noise_message);
        }
        Some(bytes)
    }

    /// Returns whether a packet with an unknown id may be answered with a Reset, in which case the caller must send
    /// it.
    pub(crate) fn may_reset(&mut self, now: Moment, id: ConnectionId) -> bool {
        self.resets.take(now, id)
    }

    /// Charges an attempt before any work is done for it that costs more than its cookie did. The charge stays,
    /// whatever the outcome. Without a cookie there is no source to charge. Then the attempt counts as load, and
    /// enough load requires cookies.
    pub(crate) fn charge(&mut self, now: Moment, source: Option<SocketAddr>) -> Result<(), DropReason> {
        self.load.on_attempt(now);
        if source.is_some_and(|source| !self.sources.take_attempt(now, source)) {
            return Err(DropReason::SourceLimit);
        }
        Ok(())
    }

    /// Counts an attempt that arrived at another shard and was charged there.
    pub(crate) fn on_forwarded(&mut self, now: Moment) {
        self.load.on_attempt(now);
    }

    /// Returns an error when a limit forbids another handshake now. `source` is a proved address.
    pub(crate) fn check_limits(&mut self, now: Moment, source: Option<SocketAddr>) -> Result<(), DropReason> {
        if source.is_some_and(|source| !self.sources.may_begin(now, source)) {
            return Err(DropReason::SourceLimit);
        }
        if self.half_open_count >= self.half_open_max {
            return Err(DropReason::HalfOpenLimit);
        }
        if !self.handshakes.has(now) {
            return Err(DropReason::HandshakeLimit);
        }
        Ok(())
    }

    /// Checks the token and the first MAC at the time `wall` since the Unix epoch.
    pub(crate) fn admit(&self, wall: Duration, hello: &Hello<'_>) -> Result<AdmittedHello, DeniedHello> {
        self.admission.check(wall, hello)
    }

    /// Returns the token with which the player of this session can come back.
    pub(crate) fn resume_token(
        &self,
        wall: Duration,
        session: HelloHash,
        grant: &TokenGrant,
        entropy: &mut Entropy,
    ) -> Option<SealedResume> {
        self.admission.resume_token(wall, session, grant, self.protocol_id, entropy)
    }

    /// Computes the Diffie-Hellman and the Welcome. Charges the handshake to the shard and to `source`, a proved
    /// address, whatever the outcome.
    pub(crate) fn answer(
        &mut self,
        now: Moment,
        source: Option<SocketAddr>,
        hello: &Hello<'_>,
        psk: &Secret<32>,
        (local_id, reset_token): (ConnectionId, [u8; 16]),
        entropy: &mut Entropy,
    ) -> Result<HandshakeResponse, DropReason> {
        self.handshakes.take(now);
        if let Some(source) = source {
            self.sources.on_handshake(now, source);
        }
        let [head, cookie] = hello.prologue();
        let prologue = [head, cookie].concat();
        let mut payload = [0; wire_limits::CLIENT_PARAMETERS_BYTES];
        let (responder, _) =
            Responder::read(&self.keys, psk, &prologue, hello.noise_message, &entropy.secret(), &mut payload)
                .map_err(|_| DropReason::BadNoise)?;
        let client = ClientParameters::decode(&payload).ok_or(DropReason::BadParameters)?;
        let offer = hello.fields.offered_suites().ok_or(DropReason::BadOffer)?;
        let has_aes_gcm = self.has_aes_gcm && offer.has(Suite::Aes128Gcm);
        let suite = if has_aes_gcm { Suite::Aes128Gcm } else { Suite::ChaCha20Poly1305 };
        let shared = self.shared.negotiate(client.shared);
        let parameters = ServerParameters { connection_id: local_id, reset_token, suite, shared };
        let mut sealed = [0; wire_limits::SERVER_PARAMETERS_BYTES];
        parameters.encode(&mut sealed.as_mut_slice()).map_err(|_| DropReason::BadNoise)?;
        let mut message_2 =
            [0; wire_limits::SERVER_PARAMETERS_BYTES.saturating_add(wire_limits::NOISE_OVERHEAD_BYTES)];
        let (_, secrets) = responder.reply(&sealed, &mut message_2).map_err(|_| DropReason::BadNoise)?;
        let mut welcome = Vec::new();
        Welcome { client_id: hello.fields.client_id, noise_message: &message_2 }
            .encode(&mut welcome)
            .map_err(|_| DropReason::BadNoise)?;
        let (seal_keys, open_keys) = secrets.into_keys(key_suite(suite)).ok_or(DropReason::BadOffer)?;
        let agreement = HandshakeResult { seal_keys, open_keys, timeouts: shared, peer: client.shared };
        let (remote_id, application_hello) = (client.connection_id, client.hello.into());
        Ok(HandshakeResponse { agreement, remote_id, welcome: welcome.into(), application_hello })
    }

    /// The number of half-open connections.
    pub(crate) const fn half_open_count(&self) -> u32 {
        self.half_open_count
    }

    /// Counts a new half-open connection, and charges it to its source if that is proved. A client that forges the
    /// address of another in a Hello must not use up the other's limit.
    pub(crate) fn begin_half_open(&mut self, source: Option<SocketAddr>) {
        self.half_open_count = self.half_open_count.saturating_add(1);
        if let Some(source) = source {
            self.sources.begin(source);
        }
    }

    /// Counts the end of a half-open connection, whatever the outcome.
    pub(crate) fn end_half_open(&mut self, source: Option<SocketAddr>) {
        self.half_open_count = self.half_open_count.saturating_sub(1);
        if let Some(source) = source {
            self.sources.end(source);
        }
    }

    fn check_fields(&self, hello: &Hello<'_>) -> Result<(), DropReason> {
        let fields = &hello.fields;
        if fields.server_key_id != self.key_id {
            return Err(DropReason::UnknownServerKey);
        }
        if fields.offered_suites().is_none() {
            return Err(DropReason::BadOffer);
        }
        Ok(())
    }
}

/// The values that a cookie authenticates.
const fn scope<'a>(source: SocketAddr, hello: &Hello<'a>) -> CookieScope<'a> {
    CookieScope { source, client_id: hello.fields.client_id.0, mac1: hello.mac1 }
}

/// Rounds a duration up to whole seconds, the unit of a Refuse, and to at least one.
fn whole_seconds(duration: Duration) -> Duration {
    let rounding = u64::from(duration.subsec_nanos() > 0);
    Duration::from_secs(duration.as_secs().saturating_add(rounding).clamp(1, u16::MAX.into()))
}
