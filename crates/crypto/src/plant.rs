//! For tests only (feature `plant`): bugs planted on purpose, to see that a simulator finds them.
//!
//! Each stands at the line where such a bug would be made, behind [`is`], which is a constant `false` without the feature: what
//! is built then holds no trace of it. At most one is planted at a time, in all that runs on a thread, so worlds on other
//! threads are as they should be. What finds them is not the business of this module.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plant {
    /// The replay window takes the newest packet once more: off by one.
    WindowOffByOne,
    /// An ack of a packet that was never sent is taken in.
    AckOfUnsent,
    /// An ack of a number that was skipped on purpose is taken in: an optimistic peer is not caught.
    AckOfSkipped,
    /// The keys of the epoch before are kept for ever.
    OldKeysKept,
    /// The memory of what is to be sent is counted in messages, not bytes.
    CapInMessages,
    /// One bad datagram ends its batch.
    BatchAborted,
    /// Packets that do not open keep a connection alive.
    JunkKeepsAlive,
    /// A connection that was idle begins again with packet number 0, under the same keys.
    NumbersReset,
    /// A path moves to where a copy of a packet came from.
    PathByCopy,
    /// A path moves without an answered challenge.
    PathUnchallenged,
    /// A token opens a session for every Hello that has it.
    TokenTwice,
    /// Ordered messages are delivered as they come.
    OrderIgnored,
    /// A reliable message is delivered as often as it comes.
    ReliableTwice,
    /// Bytes of a piece are put behind those that came before it, wherever they belong.
    PieceMisplaced,
    /// A sender is told that a reliable message was acknowledged when it has been sent.
    ReceiptOfSending,
    /// A sequenced channel delivers messages older than what it delivered.
    OlderDelivered,
    /// No probe is sent for packets of which nobody hears.
    ProbeNeverDue,
    /// What was silent for long stays silenced when it is heard again.
    SilenceForever,
    /// A cookie is good for every address.
    CookieForAll,
    /// A Reset needs no token that matches.
    ResetUnmatched,
    /// A worker whose budget ends before its socket is empty waits for an edge that will not come.
    EdgeLost,
    /// What a full socket did not take is gone.
    HeadDropped,
    /// What one worker hands to another is taken in twice.
    ForwardedTwice,
    /// A worker that begins anew tells nobody that its connections are gone.
    AnewUntold,
}

impl Plant {
    /// All of them; the first has the number 1.
    pub const ALL: [Self; 24] = [
        Self::WindowOffByOne,
        Self::AckOfUnsent,
        Self::AckOfSkipped,
        Self::OldKeysKept,
        Self::CapInMessages,
        Self::BatchAborted,
        Self::JunkKeepsAlive,
        Self::NumbersReset,
        Self::PathByCopy,
        Self::PathUnchallenged,
        Self::TokenTwice,
        Self::OrderIgnored,
        Self::ReliableTwice,
        Self::PieceMisplaced,
        Self::ReceiptOfSending,
        Self::OlderDelivered,
        Self::ProbeNeverDue,
        Self::SilenceForever,
        Self::CookieForAll,
        Self::ResetUnmatched,
        Self::EdgeLost,
        Self::HeadDropped,
        Self::ForwardedTwice,
        Self::AnewUntold,
    ];
}

#[cfg(feature = "plant")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Plant>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug in all that this thread runs from now on, or none.
#[cfg(feature = "plant")]
pub fn set(plant: Option<Plant>) {
    PLANTED.set(plant);
}

/// Whether this bug is planted here.
#[cfg(feature = "plant")]
#[must_use]
pub fn is(plant: Plant) -> bool {
    PLANTED.get() == Some(plant)
}

/// Whether this bug is planted here: none ever is.
#[cfg(not(feature = "plant"))]
#[inline(always)]
#[must_use]
pub const fn is(_plant: Plant) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "plant")]
    #[test]
    fn what_is_planted_is_there_on_its_thread_alone_until_it_is_taken_away() {
        set(Some(Plant::OrderIgnored));
        assert!(is(Plant::OrderIgnored) && !is(Plant::ReliableTwice));
        assert!(!std::thread::spawn(|| is(Plant::OrderIgnored)).join().unwrap());
        set(None);
        assert!(!is(Plant::OrderIgnored));
    }

    #[cfg(not(feature = "plant"))]
    #[test]
    fn without_the_feature_nothing_is_planted_and_the_compiler_knows() {
        const NONE: bool = is(Plant::OrderIgnored);
        assert!(!NONE && Plant::ALL.iter().all(|plant| !is(*plant)));
    }

    #[test]
    fn all_of_them_are_other_ones() {
        let distinct: std::collections::HashSet<_> = Plant::ALL.iter().collect();
        assert_eq!(distinct.len(), Plant::ALL.len());
    }
}
