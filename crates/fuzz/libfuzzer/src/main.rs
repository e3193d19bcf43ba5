//! libFuzzer for one target, whose name is in an environment variable, so that one build serves all targets. `cargo xtask fuzz` builds
//! and runs it.
#![no_main]

use std::sync::OnceLock;

use drumfire_fuzz::{Target, target_of};
use libfuzzer_sys::fuzz_target;

/// The variable that names the target.
const VARIABLE: &str = "DRUMFIRE_FUZZ_TARGET";

static TARGET: OnceLock<&'static Target> = OnceLock::new();

fuzz_target!(
    init: {
        let name = std::env::var(VARIABLE).unwrap_or_default();
        let target = target_of(&name).unwrap_or_else(|| panic!("{VARIABLE} is `{name}`, which is no target"));
        TARGET.set(target).expect("it is named once");
    },
    |data: &[u8]| {
        if let Some(target) = TARGET.get() {
            (target.run)(data);
        }
    }
);
