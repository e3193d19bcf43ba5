//! The rule for when a Hello must carry a cookie: always, or only while a shard is under load (PROTOCOL 5.3, "The
//! server's part").

use crate::config::Cookie;
use crate::limiter::TokenBucket;
use crate::limits::{LOAD_HALF_OPEN, LOAD_HANDSHAKES_PER_SECOND, LOAD_STICKY};
use crate::time::Moment;

/// The load of a shard by handshakes.
#[derive(Debug)]
pub(crate) struct Load {
    cookie: Cookie,
    /// The rate of attempts up to which the shard is not under load.
    attempts: TokenBucket,
    /// Until when cookies are required because of load.
    required_until: Moment,
}

impl Load {
    pub(crate) fn new(cookie: Cookie) -> Self {
        Self {
            cookie,
            attempts: TokenBucket::new(LOAD_HANDSHAKES_PER_SECOND, LOAD_HANDSHAKES_PER_SECOND),
            required_until: Moment::ORIGIN,
        }
    }

    pub(crate) const fn set_cookie(&mut self, cookie: Cookie) {
        self.cookie = cookie;
    }

    /// Whether an address must prove itself now.
    pub(crate) fn requires_cookie(&mut self, now: Moment, half_open_count: u32) -> bool {
        if self.cookie == Cookie::Always {
            return true;
        }
        if half_open_count >= LOAD_HALF_OPEN || !self.attempts.has(now) {
            self.required_until = now.after(LOAD_STICKY);
        }
        now < self.required_until
    }

    /// Counts an attempt, before anything of its Hello is checked that costs more than a cookie.
    pub(crate) fn on_attempt(&mut self, now: Moment) {
        self.attempts.take(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Moment {
        Moment::from_nanos(milliseconds * 1_000_000)
    }

    #[test]
    fn cookies_can_be_required_always() {
        assert!(Load::new(Cookie::Always).requires_cookie(ms(5_000), 0));
    }

    #[test]
    fn the_65th_attempt_in_a_second_needs_a_cookie() {
        let mut load = Load::new(Cookie::UnderLoad);
        for _ in 0..64 {
            assert!(!load.requires_cookie(ms(5_000), 0));
            load.on_attempt(ms(5_000));
        }
        assert!(load.requires_cookie(ms(5_000), 0));
        assert!(load.requires_cookie(ms(5_999), 0), "sticky");
        assert!(!load.requires_cookie(ms(6_000), 0));
    }

    #[test]
    fn cookies_stay_required_while_the_load_lasts() {
        let mut load = Load::new(Cookie::UnderLoad);
        let required = (0..5_000).filter(|at| {
            let is_required = load.requires_cookie(ms(*at), 0);
            load.on_attempt(ms(*at));
            is_required
        });
        assert!((4_900..4_936).contains(&required.count()), "all but the first few");
        assert!(load.requires_cookie(ms(5_998), 0));
        assert!(!load.requires_cookie(ms(6_000), 0));
    }

    #[test]
    fn the_128th_half_open_connection_requires_cookies() {
        let mut load = Load::new(Cookie::UnderLoad);
        assert!(!load.requires_cookie(ms(5_000), 127));
        assert!(load.requires_cookie(ms(5_000), 128));
        assert!(load.requires_cookie(ms(5_999), 0));
        assert!(!load.requires_cookie(ms(6_000), 0));
    }
}
