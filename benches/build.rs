//! Passes the compiler and its flags to the benches, for their reports.

use std::process::Command;

fn main() {
    let given = |name: &str| std::env::var(name).unwrap_or_default();
    // Cargo puts this between two flags.
    let flags = given("CARGO_ENCODED_RUSTFLAGS").replace('\u{1f}', " ");
    let rustc = Command::new(given("RUSTC")).arg("--version").output().ok();
    let rustc = rustc.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    let rustc = if rustc.is_empty() { "rustc unknown" } else { rustc.trim() };
    // Cargo does not pass this setting to build scripts. The environment may have it.
    let lto = ["CARGO_PROFILE_BENCH_LTO", "CARGO_PROFILE_RELEASE_LTO"].map(given);
    let lto = lto.iter().find(|lto| !lto.is_empty()).map_or("by default", String::as_str);
    println!("cargo::rustc-env=DRUMFIRE_RUSTC={rustc}");
    println!("cargo::rustc-env=DRUMFIRE_RUSTFLAGS={flags}");
    println!("cargo::rustc-env=DRUMFIRE_OPT_LEVEL={}", given("OPT_LEVEL"));
    println!("cargo::rustc-env=DRUMFIRE_LTO={lto}");
    println!("cargo::rerun-if-env-changed=CARGO_PROFILE_BENCH_LTO");
    println!("cargo::rerun-if-env-changed=CARGO_PROFILE_RELEASE_LTO");
    println!("cargo::rerun-if-changed=build.rs");
}
