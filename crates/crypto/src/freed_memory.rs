//! Checks that 10,000 sessions leave no key in freed memory.
//!
//! Expanded keys of the accelerated provider, and the state of the Noise implementation and the hash functions, are known gaps.
//! The test does not search for them. On systems without `/proc/self`, the test prints a note and passes.

#[path = "../tests/common/heap.rs"]
mod heap;

use crate::keys::{EpochKeys, OpenKeys, SealKeys};
use crate::opener::Opener;
use crate::sealer::Sealer;
use crate::secret::Secret;
use crate::suite::Suite;
use crate::test_support::TestRandom;

use heap::Pieces;

const SESSIONS: usize = 10_000;

#[test]
fn ten_thousand_sessions_leave_no_key_in_freed_memory() {
    let mut pieces = Pieces::default();
    let add_epoch = |pieces: &mut Pieces, keys: &EpochKeys| {
        keys.secrets().into_iter().for_each(|secret| pieces.add(secret));
    };
    let mut random = TestRandom(17);
    let mut sessions = Vec::with_capacity(SESSIONS);
    for _ in 0..SESSIONS {
        let chain = Secret::new(random.bytes());
        pieces.add(chain.expose());
        let seals = SealKeys::first(&chain, Suite::ChaCha20Poly1305).unwrap();
        let opens = OpenKeys::first(&chain, Suite::ChaCha20Poly1305).unwrap();
        add_epoch(&mut pieces, opens.epoch_keys());
        let next = opens.next_epoch();
        add_epoch(&mut pieces, next.epoch_keys());
        let mut session = Box::new((Sealer::new(seals), Opener::new(opens), next));
        session.0.step_to_next_epoch();
        session.1.step_to_next_epoch();
        sessions.push(session);
    }
    let Some(alive) = pieces.found() else {
        println!("this system does not let a process read its memory as a file");
        return;
    };
    // Each session has keys of four epochs: two in the opener, one in the sealer, and one in `next`.
    assert!(alive >= SESSIONS * 4, "the search found only {alive} pieces of keys that are in use");
    // A block above the freed memory keeps the allocator from returning that memory to the system.
    let top_block = Box::new([1_u8; 64]);
    drop(sessions);
    assert_eq!(pieces.found(), Some(0), "of {} pieces", pieces.len());
    drop(top_block);
}
