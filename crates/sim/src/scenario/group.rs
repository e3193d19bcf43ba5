//! What a server says to groups of its clients.

use drumfire::conditioner::Random;

use crate::dice::fraction;

/// Groups there are.
pub(crate) const GROUPS: usize = 2;

/// In an hour, where many hear it, so much less is said.
const RATE_OF_AN_HOUR: f64 = 0.02;

/// What is said to groups during the chaos, and how their members change.
#[derive(Clone, Copy, Debug)]
pub struct GroupPlan {
    /// How likely something is said to one of them before a client's turn.
    pub rate: f64,
    /// Fraction of that which is reliable.
    pub reliable: f64,
    /// Bytes of the largest message.
    pub message_max_bytes: usize,
    /// How likely a client joins or leaves one in a tick.
    pub turnover: f64,
}

impl GroupPlan {
    /// Of every second scenario.
    pub(super) fn draw(seed: u64) -> Option<Self> {
        let mut random = Random::part(seed, 7);
        let most = [8, 64, 400, 3_000];
        (random.below(2) == 0).then(|| Self {
            rate: fraction(&mut random, 0.2),
            reliable: random.fraction(),
            message_max_bytes: most[usize::try_from(random.below(4)).unwrap_or(0)],
            turnover: fraction(&mut random, 0.2),
        })
    }

    pub(super) fn of_an_hour(seed: u64) -> Option<Self> {
        Self::draw(seed).map(|plan| Self { rate: plan.rate * RATE_OF_AN_HOUR, ..plan })
    }
}
