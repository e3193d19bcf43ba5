//! Every promise of every mode, over many seeds of everything that links may do.

#[test]
fn sixty_seeds_of_chaos_and_calm_hold() {
    let mut delivered = 0;
    for seed in 1_000..1_060 {
        match drumfire_sim::run(seed) {
            Ok(outcome) => delivered += outcome.delivered,
            Err(failure) => panic!("{failure}"),
        }
    }
    assert!(delivered > 10_000, "{delivered}");
}
