//! Seeds that a judge once failed for what was no fault of any end: they hold. Without ends that break the rules there is no such
//! judge.
#![cfg(feature = "hostile")]

#[track_caller]
fn assert_holds(seed: u64) {
    if let Err(failure) = drumfire_sim::run(seed) {
        panic!("{failure}");
    }
}

#[test]
fn a_server_that_breaks_the_rules_may_show_its_client_the_challenge_of_who_copies_packets() {
    assert_holds(65_895);
}

#[test]
fn where_half_a_second_passes_between_two_looks_many_probes_become_due_after_an_ack() {
    assert_holds(92_415);
}
