//! Admission of clients: checks a Hello's token and first MAC, before any Diffie-Hellman.
//!
//! `used_tokens` decides whether the token was used before.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_crypto::token::{NO_TOKEN_KEY_ID, RESUME_KEY_ID};
use drumfire_crypto::{
    Entropy, Mac1Key, PlayerId, RefuseKey, Secret, Token, TokenError, TokenId, TokenKey, TokenKind,
};
use drumfire_wire::{Hello, RefuseReason};

use super::half_open::HelloSource;
use crate::access::{Access, TokenAccess};
use crate::control::SealedResume;
use crate::limits::{FULL_RETRY_AFTER, RESUME_LIFETIME};
use crate::placement::{Claim, HelloHash, PlacementKey, Rejection};
use crate::stats::DropReason;
use crate::time::Moment;
use crate::used_tokens::TokenClaim;

/// Checks whether the sender of a Hello may connect.
#[derive(Debug)]
pub(crate) struct Admission {
    public_key: [u8; 32],
    rule: Rule,
}

#[derive(Debug)]
enum Rule {
    Open(Mac1Key),
    Token { access: TokenAccess, resume: TokenKey },
}

/// A Hello that passed the check.
#[derive(Debug)]
pub(crate) struct AdmittedHello {
    pub(crate) hello: HelloHash,
    /// `None` in open access.
    pub(crate) token: Option<TokenClaim>,
    pub(crate) psk: Secret<32>,
    /// The rights that the token grants the player; `None` in open access.
    pub(crate) grant: Option<Box<TokenGrant>>,
}

impl AdmittedHello {
    /// Describes this Hello for the placement.
    pub(crate) fn claim(&self, sender: HelloSource) -> Claim<'_> {
        let HelloSource { route, is_proved } = sender;
        let grant = self.grant.as_deref();
        Claim {
            hello: self.hello,
            address: route.canonical(),
            is_address_proved: is_proved,
            key: grant.and_then(|grant| grant.placement_key).map(PlacementKey),
            token: self.token,
            user_data: grant.map_or(&[], |grant| &grant.user_data),
        }
    }

    /// The key that authenticates a refusal; `None` in open access.
    pub(crate) fn refuse_key(&self) -> Option<RefuseKey> {
        self.token.map(|_| RefuseKey::derive(&self.psk))
    }
}

/// The rights that a token grants its player, for the lifetime of the connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TokenGrant {
    pub(crate) player: PlayerId,
    pub(crate) user_data: Box<[u8]>,
    /// The time at which the session must end, as time since the Unix epoch.
    pub(crate) session_ends_at: Option<Duration>,
    /// The same on the connection's clock, set when the connection is confirmed.
    pub(crate) ends_at: Option<Moment>,
    /// The time at which the client gets its next resume token.
    pub(crate) renew_at: Moment,
    pub(crate) placement_key: Option<u64>,
}

/// A Hello that did not pass the check.
#[derive(Debug)]
pub(crate) struct DeniedHello {
    pub(crate) reason: DropReason,
    /// The notice to the client; `None` for no notice.
    pub(crate) notice: Option<DenialNotice>,
    /// The key that authenticates the notice; `None` when the token could not be opened.
    pub(crate) key: Option<RefuseKey>,
}

/// The reason for a denial that the client receives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DenialNotice {
    pub(crate) reason: RefuseReason,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) address: Option<SocketAddr>,
}

impl From<DropReason> for DeniedHello {
    fn from(reason: DropReason) -> Self {
        let notice = notice_of(reason).map(|reason| {
            let retry_after = (reason == RefuseReason::Full).then_some(FULL_RETRY_AFTER);
            DenialNotice { reason, retry_after, address: None }
        });
        Self { reason, notice, key: None }
    }
}

impl From<Rejection> for DeniedHello {
    fn from(rejection: Rejection) -> Self {
        let Rejection { counted_as, reason, retry_after, address } = rejection;
        Self { reason: counted_as, notice: Some(DenialNotice { reason, retry_after, address }), key: None }
    }
}

/// The reason for a dropped Hello that its client may know.
const fn notice_of(reason: DropReason) -> Option<RefuseReason> {
    match reason {
        DropReason::WrongVersion => Some(RefuseReason::Version),
        DropReason::WrongProtocol => Some(RefuseReason::Protocol),
        DropReason::ServerFull | DropReason::MemoryFull | DropReason::NoConnectionId => {
            Some(RefuseReason::Full)
        }
        DropReason::TokenExpired => Some(RefuseReason::TokenExpired),
        DropReason::TokenUsed => Some(RefuseReason::TokenUsed),
        DropReason::UnexpectedToken => Some(RefuseReason::TokenUnexpected),
        DropReason::TokenMissing => Some(RefuseReason::TokenMissing),
        DropReason::TokenForeign => Some(RefuseReason::TokenForeign),
        DropReason::TokenMalformed => Some(RefuseReason::TokenUnreadable),
        _ => None,
    }
}

impl Admission {
    pub(crate) fn new(access: Access, public_key: [u8; 32], resume: TokenKey) -> Self {
        let rule = match access {
            Access::Open => Rule::Open(Mac1Key::derive(&public_key, &Secret::zeroed())),
            Access::Token(access) => Rule::Token { access, resume },
        };
        Self { public_key, rule }
    }

    /// Replaces the token keys and the audience, where tokens are required. Tokens that were issued before the server
    /// started stay refused.
    pub(crate) fn set_keys(&mut self, next: &Access) {
        if let (Rule::Token { access, .. }, Access::Token(next)) = (&mut self.rule, next) {
            access.keys = next.keys.iter().map(TokenKey::duplicate).collect();
            access.audience = next.audience;
        }
    }

    /// Seals a token with which the player of this grant can come back. `None` in open access, or when the session
    /// ends too soon. The token's id is the Hello that made the session, by which `UsedTokens` finds the newest
    /// session.
    pub(crate) fn resume_token(
        &self,
        wall: Duration,
        session: HelloHash,
        grant: &TokenGrant,
        protocol_id: u64,
        entropy: &mut Entropy,
    ) -> Option<SealedResume> {
        let Rule::Token { access, resume } = &self.rule else { return None };
        let issued_at = Duration::from_secs(wall.as_secs());
        let latest = issued_at.saturating_add(RESUME_LIFETIME);
        let expires_at = grant.session_ends_at.map_or(latest, |ends| ends.min(latest));
        let token = Token {
            kind: TokenKind::Resume,
            id: TokenId(session.0),
            player: grant.player,
            psk: entropy.secret(),
            audience: access.audience,
            issued_at,
            expires_at,
            session_ends_at: grant.session_ends_at,
            placement_key: grant.placement_key,
            user_data: grant.user_data.clone(),
        };
        let sealed = resume.seal(&token, protocol_id, entropy.bytes()).ok()?;
        let lifetime_seconds = u16::try_from(expires_at.saturating_sub(issued_at).as_secs()).ok()?;
        Some(SealedResume { lifetime_seconds, psk: token.psk, sealed })
    }

    /// Checks the token and the first MAC at the time `wall` since the Unix epoch.
    pub(crate) fn check(&self, wall: Duration, hello: &Hello<'_>) -> Result<AdmittedHello, DeniedHello> {
        let has_token = hello.fields.token_key_id != NO_TOKEN_KEY_ID;
        if !has_token && hello.token.iter().any(|byte| *byte != 0) {
            // mac1 does not cover the section, and one cookie must not be valid for many Hellos. No client sends such
            // a Hello, so the sender gets no reason.
            return Err(DeniedHello { notice: None, ..DropReason::TokenMalformed.into() });
        }
        let (access, resume) = match &self.rule {
            Rule::Open(mac1) => {
                if has_token {
                    return Err(DropReason::UnexpectedToken.into());
                }
                let hello = proved(mac1, hello)?;
                return Ok(AdmittedHello { hello, token: None, psk: Secret::zeroed(), grant: None });
            }
            Rule::Token { access, resume } => (access, resume),
        };
        let token = open(access, resume, hello)?;
        let since = if token.kind == TokenKind::Connect { access.since } else { Duration::ZERO };
        let verdict = match token.check(wall, access.audience) {
            Ok(()) if token.issued_at.as_secs() < since.as_secs() => Err(DropReason::TokenExpired),
            // The session is over before it begins.
            Ok(()) if token.session_ends_at.is_some_and(|ends| ends <= wall) => Err(DropReason::TokenExpired),
            verdict => verdict.map_err(named),
        };
        verdict.map_err(|reason| DeniedHello {
            key: Some(RefuseKey::derive(&token.psk)),
            ..DeniedHello::from(reason)
        })?;
        let hello = proved(&Mac1Key::derive(&self.public_key, &token.psk), hello)?;
        let claim = TokenClaim {
            kind: token.kind,
            token: token.id,
            player: token.player,
            issued_at: token.issued_at,
            expires_at: token.expires_at,
        };
        let grant = TokenGrant {
            player: token.player,
            user_data: token.user_data,
            session_ends_at: token.session_ends_at,
            ends_at: None,
            renew_at: Moment::ORIGIN,
            placement_key: token.placement_key,
        };
        Ok(AdmittedHello { hello, token: Some(claim), psk: token.psk, grant: Some(Box::new(grant)) })
    }
}

/// Opens the token of a Hello. A key id that the server does not have and a token that does not open give the same
/// response, so that an attacker cannot find out which keys exist.
fn open(access: &TokenAccess, resume: &TokenKey, hello: &Hello<'_>) -> Result<Token, DeniedHello> {
    let fields = &hello.fields;
    let (key, kind) = match fields.token_key_id {
        NO_TOKEN_KEY_ID => return Err(DropReason::TokenMissing.into()),
        RESUME_KEY_ID => (Some(resume), TokenKind::Resume),
        id => (access.keys.iter().find(|key| key.id() == id), TokenKind::Connect),
    };
    let unreadable = |reason: DropReason| {
        let notice = DenialNotice { reason: RefuseReason::TokenUnreadable, retry_after: None, address: None };
        DeniedHello { notice: Some(notice), ..reason.into() }
    };
    let key = key.ok_or_else(|| unreadable(DropReason::TokenForeign))?;
    let token = key.open(hello.token, fields.protocol_id).map_err(|error| unreadable(named(error)))?;
    if token.kind == kind { Ok(token) } else { Err(DropReason::TokenMalformed.into()) }
}

/// Checks the first MAC, which identifies the Hello from then on. It covers everything except the cookie and the
/// token, which is either authenticated or empty.
fn proved(mac1: &Mac1Key, hello: &Hello<'_>) -> Result<HelloHash, DropReason> {
    if mac1.is_valid(&hello.mac1_input(), hello.mac1) {
        Ok(HelloHash(*hello.mac1))
    } else {
        Err(DropReason::BadMac1)
    }
}

const fn named(error: TokenError) -> DropReason {
    match error {
        TokenError::Foreign => DropReason::TokenForeign,
        TokenError::Expired => DropReason::TokenExpired,
        TokenError::Malformed => DropReason::TokenMalformed,
    }
}
