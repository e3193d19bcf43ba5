//! The server's side: judges Hellos, cheapest check first, and answers those that pass.
//!
//! Nothing is kept for a Hello before its cookie has proved its address. Who owns the connection, and what is
//! remembered of it, is decided by the endpoint; whom a token lets in, by `admission`.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_crypto::cookie::{COOKIE_BYTES, CookieScope};
use drumfire_crypto::{Cookies, Entropy, Responder, Secret, ServerKeyPair, TokenKey};
use drumfire_wire::{
    ClientParameters, ConnectionId, Hello, Refusal, Refuse, ServerParameters, SharedParameters, Suite,
    VERSION, Welcome, limits as wire_limits,
};

use super::admission::{Admission, Admitted, Denied, Grant, Told};
use super::load::Load;
use super::{Agreement, key_suite};
use crate::access::Access;
use crate::config::{Config, Cookie, ServerConfig};
use crate::control::SealedResume;
use crate::ids::FoldBuild;
use crate::limiter::{Sources, TokenBucket};
use crate::placement::HelloHash;
use crate::resets::Resets;
use crate::stats::DropReason;
use crate::time::Moment;

/// A Retry is at most a tenth of the Hello it answers, a Welcome at most as long.
const _: () = assert!(wire_limits::RETRY_MIN_BYTES * 10 <= wire_limits::HELLO_BYTES);
const _: () = assert!(wire_limits::WELCOME_MAX_BYTES <= wire_limits::HELLO_BYTES);

/// The verdict on the fields and the cookie of a Hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The cookie proves nothing, and must.
    Retry,
    /// The cookie proves nothing, which will do while the server is calm.
    Unproved,
    /// The sender is at its address.
    Proved,
    /// The sender is at its address, and speaks another version or protocol.
    Mismatch(DropReason),
}

/// A whole Refuse.
pub(crate) type RefuseBytes = [u8; wire_limits::REFUSE_MIN_BYTES];

/// What the server makes of a Hello that passed everything.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) agreement: Agreement,
    pub(crate) remote_id: Option<ConnectionId>,
    /// The whole Welcome.
    pub(crate) welcome: Box<[u8]>,
}

/// Judges and answers Hellos.
#[derive(Debug)]
pub(crate) struct Greeter {
    keys: ServerKeyPair,
    key_id: u32,
    admission: Admission,
    cookies: Cookies,
    load: Load,
    sources: Sources,
    handshakes: TokenBucket,
    retries: TokenBucket,
    resets: Resets,
    half_open_count: u32,
    half_open_max: u32,
    protocol_id: u64,
    has_aes_gcm: bool,
    shared: SharedParameters,
}

impl Greeter {
    pub(crate) fn new(
        config: &Config,
        server: ServerConfig,
        shared: SharedParameters,
        hash: FoldBuild,
    ) -> Self {
        let resume = TokenKey::resume(&server.persistent, &server.server_id);
        Self {
            admission: Admission::new(server.access, *server.keys.public(), resume),
            keys: server.keys,
            key_id: server.key_id,
            cookies: Cookies::new(server.process_key),
            load: Load::new(server.cookie),
            sources: Sources::new(
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

    /// Takes what holds for Hellos from now on.
    pub(crate) fn reconfigure(&mut self, shared: SharedParameters, cookie: Cookie, access: &Access) {
        self.shared = shared;
        self.load.set_cookie(cookie);
        self.admission.set_keys(access);
    }

    /// The checks that cost next to nothing, the cookie, and the versions of protocol and game, in this order.
    pub(crate) fn judge(
        &mut self,
        now: Moment,
        source: SocketAddr,
        hello: &Hello<'_>,
    ) -> Result<Judgement, DropReason> {
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
            (true, None) => Ok(Judgement::Proved),
            (true, Some(reason)) => Ok(Judgement::Mismatch(reason)),
            (false, None) if !self.load.wants_cookie(now, self.half_open_count) => Ok(Judgement::Unproved),
            (false, _) => Ok(Judgement::Retry),
        }
    }

    /// The cookie by which this client proves its address, unless enough answers were sent.
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

    /// The Refuse that tells a client, which has proved its address, why it is dropped; `None` for nothing, also when
    /// enough answers were sent.
    pub(crate) fn refuse(&mut self, now: Moment, hello: &Hello<'_>, denied: &Denied) -> Option<RefuseBytes> {
        let Told { reason, retry_after, address } = denied.told?;
        if !self.retries.take(now) {
            return None;
        }
        let retry_after = retry_after.map(whole_seconds);
        let refusal = Refusal { reason, version_min: VERSION, version_max: VERSION, retry_after, address };
        let mut bytes = [0; wire_limits::REFUSE_MIN_BYTES];
        let mac = [0; wire_limits::REFUSE_MAC_BYTES];
        Refuse { client_id: hello.fields.client_id, refusal, mac }.encode(&mut bytes.as_mut_slice()).ok()?;
        let (head, mac) = bytes.split_last_chunk_mut()?;
        if let Some(key) = &denied.key {
            *mac = key.mac(head, hello.noise_message);
        }
        Some(bytes)
    }

    /// Whether a packet with an id that no connection has is answered with a Reset; the caller then must.
    pub(crate) fn may_reset(&mut self, now: Moment, id: ConnectionId) -> bool {
        self.resets.take(now, id)
    }

    /// Charges an attempt, before anything is done for it that costs more than its cookie did. It stays charged whatever comes
    /// of it. Without a cookie there is no source to charge: then the attempt counts as load, which ends at a cookie.
    pub(crate) fn charge(&mut self, now: Moment, source: Option<SocketAddr>) -> Result<(), DropReason> {
        self.load.on_attempt(now);
        if source.is_some_and(|source| !self.sources.take_attempt(now, source)) {
            return Err(DropReason::SourceLimit);
        }
        Ok(())
    }

    /// Counts an attempt that arrived at another shard, which charged it.
    pub(crate) fn on_forwarded(&mut self, now: Moment) {
        self.load.on_attempt(now);
    }

    /// Returns why no handshake may begin now, by everything that is counted; `source` is an address that is proved.
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

    /// Checks token and first MAC at this time since 1970.
    pub(crate) fn admit(&self, wall: Duration, hello: &Hello<'_>) -> Result<Admitted, Denied> {
        self.admission.judge(wall, hello)
    }

    /// Returns the token with which the player of this session can come back.
    pub(crate) fn resume_token(
        &self,
        wall: Duration,
        session: HelloHash,
        grant: &Grant,
        entropy: &mut Entropy,
    ) -> Option<SealedResume> {
        self.admission.resume_token(wall, session, grant, self.protocol_id, entropy)
    }

    /// Computes the Diffie-Hellman and the Welcome. Charges the handshake to the shard and to `source`, an address that is
    /// proved, whatever comes of it.
    pub(crate) fn answer(
        &mut self,
        now: Moment,
        source: Option<SocketAddr>,
        hello: &Hello<'_>,
        psk: &Secret<32>,
        (local_id, reset_token): (ConnectionId, [u8; 16]),
        entropy: &mut Entropy,
    ) -> Result<Answer, DropReason> {
        self.handshakes.take(now);
        if let Some(source) = source {
            self.sources.on_handshake(now, source);
        }
        let [head, cookie] = hello.prologue();
        let prologue = [head, cookie].concat();
        let mut payload = [0; ClientParameters::PAYLOAD_BYTES];
        let (responder, _) =
            Responder::read(&self.keys, psk, &prologue, hello.noise_message, &entropy.secret(), &mut payload)
                .map_err(|_| DropReason::BadNoise)?;
        let client = ClientParameters::decode(&payload).ok_or(DropReason::BadParameters)?;
        let offer = hello.fields.offered_suites().ok_or(DropReason::BadOffer)?;
        let has_aes_gcm = self.has_aes_gcm && offer.has(Suite::Aes128Gcm);
        let suite = if has_aes_gcm { Suite::Aes128Gcm } else { Suite::ChaCha20Poly1305 };
        let shared = self.shared.agreed_with(client.shared);
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
        let (seals, opens) = secrets.into_keys(key_suite(suite)).ok_or(DropReason::BadOffer)?;
        let agreement = Agreement { seals, opens, timeouts: shared, peer: client.shared };
        Ok(Answer { agreement, remote_id: client.connection_id, welcome: welcome.into() })
    }

    /// Counts a connection that became half-open, and whose it is, if its address is proved: who writes the address of
    /// another into a Hello must not use up what is the other's.
    pub(crate) fn begin_half_open(&mut self, source: Option<SocketAddr>) {
        self.half_open_count = self.half_open_count.saturating_add(1);
        if let Some(source) = source {
            self.sources.begin(source);
        }
    }

    /// Counts the end of a half-open connection, good or bad.
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

/// What a cookie is made over.
const fn scope<'a>(source: SocketAddr, hello: &Hello<'a>) -> CookieScope<'a> {
    CookieScope { source, client_id: hello.fields.client_id.0, mac1: hello.mac1 }
}

/// What a Refuse can say of a duration: whole seconds, and never none where there is some.
fn whole_seconds(duration: Duration) -> Duration {
    let rounding = u64::from(duration.subsec_nanos() > 0);
    Duration::from_secs(duration.as_secs().saturating_add(rounding).clamp(1, u16::MAX.into()))
}
