//! A client's attempt to connect: one Hello, repeated until a genuine Welcome arrives or the time is over.
//!
//! Any other response is dropped without effect, except that a Retry for this attempt adds a cookie. The caller
//! checks the source of responses.

use drumfire_crypto::{Entropy, Initiator, IssuedToken, Mac1Key, RefuseKey, Secret};
use drumfire_wire::{
    ClientId, ClientParameters, ConnectionId, HelloDraft, HelloFields, Refusal, Refuse, RefuseReason, Retry,
    ServerParameters, SharedParameters, Suite, SuiteOffer, VERSION, Welcome, limits as wire_limits,
};

use super::{HandshakeResult, key_suite};
use crate::config::ServerIdentity;
use crate::error::ConnectError;
use crate::limiter::TokenBucket;
use crate::limits::{
    COOKIE_HELLO_INTERVAL, COOKIES_KEPT, HANDSHAKE_DEADLINE, HELLO_RESEND_FIRST, HELLO_RESEND_MAX,
    REFUSAL_DELAY, REFUSALS_BELIEVED, WELCOMES_OPENED_PER_SECOND,
};
use crate::stats::DropReason;
use crate::time::Moment;

type CookieBytes = [u8; wire_limits::COOKIE_BYTES];

/// The parameters of an attempt.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) identity: ServerIdentity,
    /// The token from the game's backend; `None` for open access.
    pub(crate) token: Option<&'a IssuedToken>,
    pub(crate) protocol_id: u64,
    pub(crate) offer: SuiteOffer,
    pub(crate) parameters: ClientParameters<'a>,
}

/// An attempt in progress.
#[derive(Debug)]
pub(crate) struct Attempt {
    initiator: Initiator,
    hello: HelloDraft,
    client_id: ClientId,
    offer: SuiteOffer,
    requested: SharedParameters,
    cookies: Vec<StoredCookie>,
    started_at: Moment,
    send_at: Moment,
    wait: std::time::Duration,
    /// The times at which the last Hello was sent, and the last one with a cookie.
    sent_at: Option<Moment>,
    cookie_sent_at: Option<Moment>,
    /// Limits the work that forged Welcomes cause.
    welcomes: TokenBucket,
    /// The key that authenticates a refusal; `None` without a token.
    refuse_key: Option<RefuseKey>,
    refused: Option<Refused>,
}

/// A refusal, and whether it is believed.
#[derive(Debug)]
struct Refused {
    refusal: Refusal,
    /// The number of times that the refusal arrived in a row.
    count: u32,
    /// The time at which the refusal is believed, unless a Welcome arrives first. Set once the refusal was authenticated or
    /// arrived often enough.
    believed_at: Option<Moment>,
}

#[derive(Debug)]
struct StoredCookie {
    cookie: CookieBytes,
    tries: u32,
}

impl Attempt {
    /// Draws the secrets of an attempt. The first Hello is due at `begin`.
    pub(crate) fn new(
        begin: Moment,
        request: &Request<'_>,
        entropy: &mut Entropy,
    ) -> Result<Self, ConnectError> {
        let client_id = ClientId(entropy.bytes());
        let fields = HelloFields {
            version: VERSION,
            protocol_id: request.protocol_id,
            client_id,
            server_key_id: request.identity.key_id,
            token_key_id: request.token.map_or(0, |token| token.key_id),
            suite_bits: request.offer.to_bits(),
        };
        let no_token = [0; wire_limits::SEALED_TOKEN_BYTES];
        let mut hello = HelloDraft::new(&fields, request.token.map_or(&no_token, |token| &token.sealed));
        let [head, cookie] = hello.prologue();
        let prologue = [head, cookie].concat();
        let psk = request.token.map_or(Secret::zeroed(), |token| token.psk.duplicate());
        let initiator = Initiator::new(
            &request.identity.public_key,
            &psk,
            &prologue,
            &request.parameters.encode(),
            entropy.secret(),
            hello.noise_message_mut(),
        )
        .map_err(|_| ConnectError::BadServerKey)?;
        let mac1 = Mac1Key::derive(&request.identity.public_key, &psk).mac(&hello.mac1_input());
        hello.set_mac1(mac1);
        Ok(Self {
            initiator,
            hello,
            client_id,
            offer: request.offer,
            requested: request.parameters.shared,
            cookies: Vec::new(),
            started_at: begin,
            send_at: begin,
            wait: HELLO_RESEND_FIRST,
            sent_at: None,
            cookie_sent_at: None,
            welcomes: TokenBucket::new(WELCOMES_OPENED_PER_SECOND, WELCOMES_OPENED_PER_SECOND),
            refuse_key: request.token.map(|token| RefuseKey::derive(&token.psk)),
            refused: None,
        })
    }

    pub(crate) const fn client_id(&self) -> ClientId {
        self.client_id
    }

    /// Returns the time at which the attempt fails.
    pub(crate) fn expires_at(&self) -> Moment {
        let deadline = self.started_at.after(HANDSHAKE_DEADLINE);
        let refused = self.refused.as_ref().and_then(|refused| refused.believed_at);
        refused.map_or(deadline, |refused| refused.min(deadline))
    }

    /// Why the attempt failed, once it has.
    pub(crate) fn failure(&self, now: Moment) -> ConnectError {
        let is_believed = |refused: &&Refused| refused.believed_at.is_some_and(|at| at <= now);
        let Some(&Refused { mut refusal, .. }) = self.refused.as_ref().filter(is_believed) else {
            return ConnectError::Timeout;
        };
        let Refusal { reason, version_min: min, version_max: max, is_proved, .. } = refusal;
        if !is_proved {
            // An attacker on the path could have written it, to send players to another server.
            refusal.address = None;
        }
        if reason == RefuseReason::TokenExpired && is_proved {
            ConnectError::TokenExpired
        } else if reason == RefuseReason::Version && !(min..=max).contains(&VERSION) {
            ConnectError::VersionMismatch { min, max }
        } else {
            ConnectError::Refused(Box::new(refusal))
        }
    }

    /// Processes a Refuse for this attempt, with its bytes. Returns whether it ends the attempt immediately, which only
    /// an authenticated judgment of the token does. Any other authenticated refusal is believed unless a Welcome
    /// follows soon. An unauthenticated one must also arrive three times.
    pub(crate) fn on_refuse(&mut self, now: Moment, refuse: &Refuse, bytes: &[u8]) -> bool {
        let refusal = Refusal { is_proved: self.is_proved(refuse, bytes), ..refuse.refusal };
        if refusal.is_proved {
            let is_final = judges_token(refusal.reason);
            if is_final || !self.refused.as_ref().is_some_and(|refused| refused.refusal.is_proved) {
                // The server judges addresses too, which the MAC does not cover. An attacker may have sent a copy of the
                // Hello from an address that the server does not admit, and then have forwarded the Refuse.
                let deadline = self.started_at.after(HANDSHAKE_DEADLINE);
                let believed_at = if is_final { now } else { now.after(REFUSAL_DELAY).min(deadline) };
                self.refused = Some(Refused { refusal, count: 1, believed_at: Some(believed_at) });
            }
            return is_final;
        }
        // Once a refusal is believed, only a Welcome changes that. A retry time in it counts down, so later refusals
        // may differ.
        if self.refused.as_ref().is_some_and(|refused| refused.believed_at.is_some()) {
            return false;
        }
        let before = self.refused.take().filter(|refused| refused.refusal == refusal);
        let new = Refused { refusal, count: 0, believed_at: None };
        let mut refused = before.unwrap_or(new);
        refused.count = refused.count.saturating_add(1);
        if refused.count >= REFUSALS_BELIEVED {
            refused.believed_at = Some(now.after(REFUSAL_DELAY));
        } else if let Some(sent_at) = self.sent_at {
            // Forged refusals that differ would otherwise cause a Hello each, also before the first cookie.
            self.send_at = self.send_at.min(sent_at.after(COOKIE_HELLO_INTERVAL).max(now));
        }
        self.refused = Some(refused);
        false
    }

    fn is_proved(&self, refuse: &Refuse, bytes: &[u8]) -> bool {
        let [.., message_1] = self.hello.mac1_input();
        self.refuse_key.as_ref().is_some_and(|key| {
            let head = bytes.get(..Refuse::MAC_OFFSET).unwrap_or_default();
            key.is_valid(head, message_1, &refuse.mac)
        })
    }

    /// Returns the time at which the next Hello is due.
    pub(crate) const fn send_at(&self) -> Moment {
        self.send_at
    }

    /// Stores the cookie of a Retry for this attempt, and brings the next Hello forward.
    pub(crate) fn on_retry(&mut self, now: Moment, retry: &Retry<'_>) -> Result<(), DropReason> {
        if self.cookies.iter().any(|stored| stored.cookie == *retry.cookie) {
            return Err(DropReason::CookieLimit);
        }
        let new = StoredCookie { cookie: *retry.cookie, tries: 0 };
        if self.cookies.len() < COOKIES_KEPT {
            self.cookies.push(new);
        } else {
            // A cookie that was tried without success makes room. Untried cookies may all be genuine.
            let tried =
                self.cookies.iter_mut().filter(|stored| stored.tries > 0).max_by_key(|stored| stored.tries);
            *tried.ok_or(DropReason::CookieLimit)? = new;
        }
        self.send_at = self.send_at.min(self.may_send_cookie_at(now));
        Ok(())
    }

    /// Opens a Welcome for this attempt. Returns the agreement, the server's id, and its reset token.
    pub(crate) fn on_welcome(
        &mut self,
        now: Moment,
        welcome: &Welcome<'_>,
    ) -> Result<(HandshakeResult, ConnectionId, [u8; 16]), DropReason> {
        if !self.welcomes.take(now) {
            return Err(DropReason::WelcomeLimit);
        }
        let mut payload = [0; Welcome::NOISE_MESSAGE_MAX_BYTES];
        let bad = DropReason::BadWelcome;
        let (bytes, secrets) =
            self.initiator.read_reply(welcome.noise_message, &mut payload).map_err(|_| bad)?;
        let parameters = ServerParameters::decode(payload.get(..bytes).ok_or(bad)?).ok_or(bad)?;
        if !self.offer.has(parameters.suite) {
            return Err(bad);
        }
        let (seal_keys, open_keys) = secrets.into_keys(key_suite(parameters.suite)).ok_or(bad)?;
        let agreement = HandshakeResult {
            seal_keys,
            open_keys,
            timeouts: self.requested.negotiate(parameters.shared),
            peer: parameters.shared,
        };
        Ok((agreement, parameters.connection_id, parameters.reset_token))
    }

    /// Writes the Hello that is due, with the least tried cookie, and schedules the next one.
    pub(crate) fn write_hello(&mut self, now: Moment, mut out: &mut [u8]) -> Option<usize> {
        let least_tried = self.cookies.iter_mut().min_by_key(|stored| stored.tries);
        if let Some(stored) = least_tried {
            stored.tries = stored.tries.saturating_add(1);
            self.hello.set_cookie(stored.cookie);
            self.cookie_sent_at = Some(now);
        }
        self.sent_at = Some(now);
        self.hello.encode(&mut out).ok()?;
        if self.cookies.iter().any(|stored| stored.tries == 0) {
            self.send_at = self.may_send_cookie_at(now);
        } else {
            self.send_at = now.after(self.wait);
            self.wait = self.wait.saturating_mul(2).min(HELLO_RESEND_MAX);
        }
        Some(wire_limits::HELLO_BYTES)
    }

    /// Returns the time at which a Hello with a new cookie may be sent. The first one does not wait for the interval.
    fn may_send_cookie_at(&self, now: Moment) -> Moment {
        self.cookie_sent_at.map_or(now, |sent_at| sent_at.after(COOKIE_HELLO_INTERVAL).max(now))
    }
}

/// Whether a server gives this reason for the token alone, and to all copies of a Hello.
const fn judges_token(reason: RefuseReason) -> bool {
    matches!(reason, RefuseReason::TokenExpired | RefuseReason::TokenForeign | RefuseReason::TokenUsed)
}

/// The suites that this end offers.
pub(crate) fn offer(has_aes_gcm: bool) -> SuiteOffer {
    let offer = SuiteOffer::mandatory();
    if has_aes_gcm { offer.with(Suite::Aes128Gcm) } else { offer }
}

const _: () = assert!(wire_limits::CLIENT_PARAMETERS_BYTES + 48 == wire_limits::NOISE_MESSAGE_1_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire_crypto::ServerKeyPair;
    use drumfire_wire::Hello;
    use std::time::Duration;

    fn ms(milliseconds: u64) -> Moment {
        Moment::from_nanos(milliseconds * 1_000_000)
    }

    fn attempt() -> Attempt {
        let keys = ServerKeyPair::from_secret(Secret::new([1; 32]));
        let shared = SharedParameters {
            datagram_max_bytes: 1_200,
            idle_timeout: Duration::from_secs(30),
            unacknowledged_timeout: Duration::from_secs(10),
            message_max_bytes: 65_536,
            credit_bytes: 196_608,
        };
        let request = Request {
            identity: ServerIdentity { public_key: *keys.public(), key_id: 0 },
            token: None,
            protocol_id: 7,
            offer: offer(false),
            parameters: ClientParameters { connection_id: None, shared, hello: b"" },
        };
        Attempt::new(ms(0), &request, &mut Entropy::from_seed(Secret::new([2; 32]))).unwrap()
    }

    fn cookie(byte: u8) -> CookieBytes {
        [byte; wire_limits::COOKIE_BYTES]
    }

    fn retry(attempt: &mut Attempt, at: u64, byte: u8) -> Result<(), DropReason> {
        let client_id = attempt.client_id();
        attempt.on_retry(ms(at), &Retry { client_id, cookie: &cookie(byte) })
    }

    /// Sends the Hellos that are due until `end`. Returns when, and the first byte of the cookie.
    fn sent_until(attempt: &mut Attempt, end: u64) -> Vec<(u64, u8)> {
        let mut sent = Vec::new();
        while attempt.send_at() <= ms(end) {
            let (at, mut out) = (attempt.send_at(), [0; 1_200]);
            assert_eq!(attempt.write_hello(at, &mut out), Some(1_200));
            sent.push((at.as_nanos() / 1_000_000, Hello::decode(&out).unwrap().cookie[0]));
        }
        sent
    }

    #[test]
    fn unanswered_hellos_repeat_after_250_ms_doubling_to_1_s() {
        let mut attempt = attempt();
        let times: Vec<_> = sent_until(&mut attempt, 5_000).into_iter().map(|(at, _)| at).collect();
        assert_eq!(times, [0, 250, 750, 1_750, 2_750, 3_750, 4_750]);
        assert_eq!(attempt.expires_at(), ms(5_000));
    }

    #[test]
    fn the_second_cookie_is_tried_100_ms_after_the_first() {
        let mut attempt = attempt();
        sent_until(&mut attempt, 0);
        for byte in 1..=3 {
            retry(&mut attempt, 40, byte).unwrap();
        }
        assert_eq!(sent_until(&mut attempt, 740), [(40, 1), (140, 2), (240, 3), (740, 1)]);
    }

    #[test]
    fn forged_refusals_cause_ten_hellos_a_second_at_most() {
        let mut attempt = attempt();
        let mut sent = sent_until(&mut attempt, 0);
        // An observer forges two refusals in turn. Each begins a new count.
        for at in 1..5_000 {
            refuse(&mut attempt, at, at % 2);
            sent.extend(sent_until(&mut attempt, at));
        }
        assert!(sent.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 100), "{sent:?}");
        assert_eq!(sent.len(), 50);
        // A Retry still brings the first Hello with a cookie forward.
        retry(&mut attempt, 5_000, 7).unwrap();
        assert_eq!(attempt.send_at(), ms(5_000));
    }

    #[test]
    fn eight_cookies_are_kept_and_only_tried_ones_replaced() {
        let mut attempt = attempt();
        sent_until(&mut attempt, 0);
        for byte in 1..=8 {
            retry(&mut attempt, 10, byte).unwrap();
        }
        assert_eq!(retry(&mut attempt, 10, 8), Err(DropReason::CookieLimit), "known");
        assert_eq!(retry(&mut attempt, 10, 9), Err(DropReason::CookieLimit), "all untried");
        assert_eq!(sent_until(&mut attempt, 10), [(10, 1)]);
        assert_eq!(retry(&mut attempt, 20, 9), Ok(()));
        assert_eq!(attempt.cookies.len(), 8);
        let sent: Vec<_> = sent_until(&mut attempt, 900).into_iter().map(|(_, byte)| byte).collect();
        assert_eq!(sent, [9, 2, 3, 4, 5, 6, 7, 8], "each once, 100 ms apart");
    }

    #[test]
    fn hellos_differ_in_nothing_but_the_cookie() {
        let mut attempt = attempt();
        let (mut first, mut second) = ([0; 1_200], [0; 1_200]);
        attempt.write_hello(ms(0), &mut first);
        retry(&mut attempt, 1, 5).unwrap();
        attempt.write_hello(ms(1), &mut second);
        assert_eq!(first[..540], second[..540]);
        assert_eq!(second[540..572], cookie(5));
        assert_eq!(first[572..], second[572..]);
    }

    /// Processes a Refuse that is authenticated by this key, or not at all.
    fn refuse_with(attempt: &mut Attempt, at: u64, refusal: Refusal, key: Option<&RefuseKey>) -> bool {
        let (client_id, mut bytes) = (attempt.client_id(), [0; wire_limits::REFUSE_MIN_BYTES]);
        let mac = [0; wire_limits::REFUSE_MAC_BYTES];
        Refuse { client_id, refusal, mac }.encode(&mut bytes.as_mut_slice()).unwrap();
        if let Some(key) = key {
            let [.., message_1] = attempt.hello.mac1_input();
            let (head, mac) = bytes.split_at_mut(Refuse::MAC_OFFSET);
            mac.copy_from_slice(&key.mac(head, message_1));
        }
        attempt.on_refuse(ms(at), &Refuse::decode(&bytes).unwrap(), &bytes)
    }

    fn refusal(reason: RefuseReason) -> Refusal {
        let (version_min, version_max, is_proved) = (VERSION, VERSION, true);
        Refusal { reason, version_min, version_max, retry_after: None, address: None, is_proved }
    }

    /// An attempt with a token, and the key that authenticates its refusals.
    fn attempt_with_key() -> (Attempt, RefuseKey) {
        let (mut attempt, psk) = (attempt(), Secret::new([6; 32]));
        attempt.refuse_key = Some(RefuseKey::derive(&psk));
        (attempt, RefuseKey::derive(&psk))
    }

    #[test]
    fn only_a_proved_refusal_may_redirect() {
        for has_mac in [false, true] {
            let (mut attempt, key) = attempt_with_key();
            let address = Some("192.0.2.9:7777".parse().unwrap());
            let refusal = Refusal { address, ..refusal(RefuseReason::Redirect) };
            for _ in 0..REFUSALS_BELIEVED {
                assert!(!refuse_with(&mut attempt, 10, refusal, Some(&key).filter(|_| has_mac)));
            }
            let reported = Refusal { address: address.filter(|_| has_mac), is_proved: has_mac, ..refusal };
            assert_eq!(attempt.failure(attempt.expires_at()), ConnectError::Refused(Box::new(reported)));
        }
    }

    #[test]
    fn a_proved_refusal_waits_for_a_welcome_except_about_tokens() {
        for reason in [RefuseReason::TokenExpired, RefuseReason::TokenForeign, RefuseReason::TokenUsed] {
            let (mut attempt, key) = attempt_with_key();
            assert!(refuse_with(&mut attempt, 10, refusal(reason), Some(&key)), "{reason:?}");
            assert_eq!(attempt.expires_at(), ms(10));
        }
        for reason in
            [RefuseReason::Banned, RefuseReason::Full, RefuseReason::Redirect, RefuseReason::Other(99)]
        {
            let (mut attempt, key) = attempt_with_key();
            for at in [10, 500] {
                assert!(!refuse_with(&mut attempt, at, refusal(reason), Some(&key)), "{reason:?}");
            }
            assert_eq!(attempt.expires_at(), ms(1_010), "the first one counts");
            let refused = ConnectError::Refused(Box::new(refusal(reason)));
            assert_eq!(attempt.failure(ms(1_010)), refused);
            assert!(sent_until(&mut attempt, 1_000).len() >= 3, "Hellos go on");
        }
        let (mut attempt, key) = attempt_with_key();
        refuse_with(&mut attempt, 4_900, refusal(RefuseReason::Banned), Some(&key));
        let refused = ConnectError::Refused(Box::new(refusal(RefuseReason::Banned)));
        assert_eq!((attempt.expires_at(), attempt.failure(ms(5_000))), (ms(5_000), refused));
    }

    #[test]
    fn an_unproved_refusal_of_a_token_is_reported_as_unproved() {
        let (mut attempt, _) = attempt_with_key();
        for _ in 0..REFUSALS_BELIEVED {
            refuse_with(&mut attempt, 10, refusal(RefuseReason::TokenExpired), None);
        }
        let reported = Refusal { is_proved: false, ..refusal(RefuseReason::TokenExpired) };
        assert_eq!(attempt.failure(ms(1_010)), ConnectError::Refused(Box::new(reported)));
    }

    #[test]
    fn an_invalid_welcome_does_not_change_the_attempt() {
        let mut attempt = attempt();
        let client_id = attempt.client_id();
        for bytes in [48, 83, 300] {
            let noise_message = vec![7; bytes];
            let welcome = Welcome { client_id, noise_message: &noise_message };
            assert!(matches!(attempt.on_welcome(ms(0), &welcome), Err(DropReason::BadWelcome)));
        }
        assert_eq!(sent_until(&mut attempt, 0).len(), 1);
    }

    #[test]
    fn forged_welcomes_cost_at_most_1000_key_agreements_a_second() {
        let mut attempt = attempt();
        let client_id = attempt.client_id();
        let mut opened_count = |microseconds: std::ops::Range<u64>| {
            let reasons = microseconds.map(|at| {
                let welcome = Welcome { client_id, noise_message: &[7; 48] };
                attempt.on_welcome(Moment::from_nanos(at * 1_000), &welcome).err()
            });
            reasons.filter(|reason| *reason != Some(DropReason::WelcomeLimit)).count()
        };
        assert_eq!(opened_count(0..1_500), 1_001);
        assert_eq!(opened_count(1_500..11_500), 10);
    }

    /// Processes an unauthenticated Refuse with this retry time in seconds.
    fn refuse(attempt: &mut Attempt, at: u64, seconds: u64) -> bool {
        let retry_after = Some(Duration::from_secs(seconds));
        refuse_with(attempt, at, Refusal { retry_after, ..refusal(RefuseReason::Full) }, None)
    }

    #[test]
    fn three_equal_refusals_are_believed_after_a_second() {
        let mut attempt = attempt();
        for (at, seconds) in [(100, 60), (200, 60), (300, 59), (400, 60), (500, 60)] {
            assert!(!refuse(&mut attempt, at, seconds));
            assert_eq!(attempt.expires_at(), ms(5_000), "not three in a row");
        }
        refuse(&mut attempt, 600, 60);
        for (at, seconds) in [(700, 59), (1_500, 58)] {
            refuse(&mut attempt, at, seconds);
            assert_eq!(attempt.expires_at(), ms(1_600));
        }
        assert_eq!(attempt.failure(ms(1_599)), ConnectError::Timeout);
        let ConnectError::Refused(refusal) = attempt.failure(ms(1_600)) else { panic!("not refused") };
        assert_eq!(refusal.retry_after, Some(Duration::from_secs(60)));
    }
}
