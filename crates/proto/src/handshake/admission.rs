//! Whom a server lets in: judges a Hello's token and first MAC, before any Diffie-Hellman.
//!
//! Whether the token was used before is not its question; `ledger` knows.

use std::time::Duration;

use drumfire_crypto::token::RESUME_KEY_ID;
use drumfire_crypto::{
    Entropy, Mac1Key, PlayerId, RefuseKey, Secret, Token, TokenError, TokenId, TokenKey, TokenKind,
};
use drumfire_wire::Hello;

use crate::access::{Access, TokenAccess};
use crate::control::SealedResume;
use crate::ledger::TokenClaim;
use crate::limits::RESUME_LIFE;
use crate::placement::{Claim, HelloHash, PlacementKey};
use crate::stats::DropReason;
use crate::time::Moment;

/// Judges Hellos by who may connect.
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

/// A Hello that may come in.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) claim: Claim,
    pub(crate) psk: Secret<32>,
    /// What its token says of the player; `None` in open access.
    pub(crate) grant: Option<Box<Grant>>,
}

/// What a token grants its player, for as long as the connection lives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) player: PlayerId,
    pub(crate) user_data: Box<[u8]>,
    /// When the session must end, since 1970.
    pub(crate) session_ends_at: Option<Duration>,
    /// The same on the connection's own clock, from when it is confirmed.
    pub(crate) ends_at: Option<Moment>,
    /// When the client is due another resume token.
    pub(crate) renew_at: Moment,
    pub(crate) placement_key: Option<u64>,
}

/// A Hello that may not.
#[derive(Debug)]
pub(crate) struct Denied {
    pub(crate) reason: DropReason,
    /// By which the client knows that its server said so; `None` when its token could not be read.
    pub(crate) key: Option<RefuseKey>,
}

impl From<DropReason> for Denied {
    fn from(reason: DropReason) -> Self {
        Self { reason, key: None }
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

    /// Seals a token with which the player of this grant can come back; `None` in open access, and when the session
    /// ends too soon.
    pub(crate) fn resume_token(
        &self,
        wall: Duration,
        grant: &Grant,
        protocol_id: u64,
        entropy: &mut Entropy,
    ) -> Option<SealedResume> {
        let Rule::Token { access, resume } = &self.rule else { return None };
        let issued_at = Duration::from_secs(wall.as_secs());
        let latest = issued_at.saturating_add(RESUME_LIFE);
        let expires_at = grant.session_ends_at.map_or(latest, |ends| ends.min(latest));
        let token = Token {
            kind: TokenKind::Resume,
            id: TokenId(entropy.bytes()),
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
        let life_seconds = u16::try_from(expires_at.saturating_sub(issued_at).as_secs()).ok()?;
        Some(SealedResume { life_seconds, psk: token.psk, sealed })
    }

    /// Judges token and first MAC at this time since 1970.
    pub(crate) fn judge(&self, wall: Duration, hello: &Hello<'_>) -> Result<Admitted, Denied> {
        let (access, resume) = match &self.rule {
            Rule::Open(mac1) => {
                if hello.fields.token_key_id != 0 {
                    return Err(DropReason::UnexpectedToken.into());
                }
                let claim = Claim { hello: proved(mac1, hello)?, key: None, token: None };
                return Ok(Admitted { claim, psk: Secret::zeroed(), grant: None });
            }
            Rule::Token { access, resume } => (access, resume),
        };
        let token = open(access, resume, hello)?;
        let since = if token.kind == TokenKind::Connect { access.since } else { Duration::ZERO };
        let verdict = match token.check(wall, access.audience) {
            Ok(()) if token.issued_at.as_secs() < since.as_secs() => Err(DropReason::TokenExpired),
            verdict => verdict.map_err(named),
        };
        verdict.map_err(|reason| Denied { reason, key: Some(RefuseKey::derive(&token.psk)) })?;
        let hello = proved(&Mac1Key::derive(&self.public_key, &token.psk), hello)?;
        let claim = Claim {
            hello,
            key: token.placement_key.map(PlacementKey),
            token: Some(TokenClaim { token: token.id, player: token.player, expires_at: token.expires_at }),
        };
        let grant = Grant {
            player: token.player,
            user_data: token.user_data,
            session_ends_at: token.session_ends_at,
            ends_at: None,
            renew_at: Moment::ORIGIN,
            placement_key: token.placement_key,
        };
        Ok(Admitted { claim, psk: token.psk, grant: Some(Box::new(grant)) })
    }
}

fn open(access: &TokenAccess, resume: &TokenKey, hello: &Hello<'_>) -> Result<Token, DropReason> {
    let fields = &hello.fields;
    let (key, kind) = match fields.token_key_id {
        0 => return Err(DropReason::TokenMissing),
        RESUME_KEY_ID => (Some(resume), TokenKind::Resume),
        id => (access.keys.iter().find(|key| key.id() == id), TokenKind::Connect),
    };
    let key = key.ok_or(DropReason::TokenForeign)?;
    let token = key.open(hello.token, fields.protocol_id).map_err(named)?;
    if token.kind == kind { Ok(token) } else { Err(DropReason::TokenMalformed) }
}

/// The first MAC, which is then the Hello's name, for it covers all of it but the cookie.
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
