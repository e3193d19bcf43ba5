//! What is sealed in a token, byte by byte. Every token is as long as any other: the rest is zero.
//!
//! ```text
//!  0  1 kind          1 16 token id     17 16 player        33 32 psk             65   8 audience
//! 73  8 issued       81  8 expires      89  8 session ends  97  1 has placement   98   8 placement key
//! 106 2 user data's length             108  256 user data  364 108 zero
//! ```

use std::time::Duration;

use super::{BODY_BYTES, PlayerId, TOKEN_LIFE_MAX, Token, TokenId, TokenKind, USER_DATA_MAX_BYTES};
use crate::secret::Secret;

const CONNECT: u8 = 1;
const RESUME: u8 = 2;

/// `None` when the token cannot be.
pub(super) fn encode(token: &Token, body: &mut [u8; BODY_BYTES]) -> Option<()> {
    let user_data_bytes = u16::try_from(token.user_data.len()).ok()?;
    if !is_possible(token) {
        return None;
    }
    let mut rest = &mut body[..];
    let kind = match token.kind {
        TokenKind::Connect => CONNECT,
        TokenKind::Resume => RESUME,
    };
    let session_ends = token.session_ends_at.map_or(0, |end| end.as_secs());
    let has_placement = u8::from(token.placement_key.is_some());
    let fields: [&[u8]; 12] = [
        &[kind],
        &token.id.0,
        &token.player.0.to_be_bytes(),
        token.psk.expose(),
        &token.audience.to_be_bytes(),
        &token.issued_at.as_secs().to_be_bytes(),
        &token.expires_at.as_secs().to_be_bytes(),
        &session_ends.to_be_bytes(),
        &[has_placement],
        &token.placement_key.unwrap_or(0).to_be_bytes(),
        &user_data_bytes.to_be_bytes(),
        &token.user_data,
    ];
    for field in fields {
        let (place, after) = rest.split_at_mut_checked(field.len())?;
        place.copy_from_slice(field);
        rest = after;
    }
    rest.fill(0);
    Some(())
}

/// `None` when what is in it cannot be.
pub(super) fn decode(body: &[u8; BODY_BYTES]) -> Option<Token> {
    let mut fields = Fields(body);
    let kind = match fields.take::<1>()? {
        [CONNECT] => TokenKind::Connect,
        [RESUME] => TokenKind::Resume,
        _ => return None,
    };
    let id = TokenId(fields.take()?);
    let player = PlayerId(u128::from_be_bytes(fields.take()?));
    let psk = Secret::new(fields.take()?);
    let audience = u64::from_be_bytes(fields.take()?);
    let issued_at = fields.time()?;
    let expires_at = fields.time()?;
    let session_ends_at = Some(fields.time()?).filter(|end| !end.is_zero());
    let has_placement = fields.take::<1>()?;
    let key = u64::from_be_bytes(fields.take()?);
    let placement_key = match has_placement {
        [0] => None,
        [1] => Some(key),
        _ => return None,
    };
    let user_data_bytes = u16::from_be_bytes(fields.take()?);
    let user_data = fields.0.get(..usize::from(user_data_bytes))?.into();
    let token = Token {
        kind,
        id,
        player,
        psk,
        audience,
        issued_at,
        expires_at,
        session_ends_at,
        placement_key,
        user_data,
    };
    is_possible(&token).then_some(token)
}

fn is_possible(token: &Token) -> bool {
    let life = token.expires_at.as_secs().checked_sub(token.issued_at.as_secs());
    let has_life = life.is_some_and(|seconds| (1..=TOKEN_LIFE_MAX.as_secs()).contains(&seconds));
    has_life && token.user_data.len() <= USER_DATA_MAX_BYTES
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn time(&mut self) -> Option<Duration> {
        Some(Duration::from_secs(u64::from_be_bytes(self.take()?)))
    }
}
