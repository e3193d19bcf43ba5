//! How much the tests try that try many inputs, seeds, or connections.
//!
//! A test states its full extent, as its name promises it. A run takes a hundredth of that, so that `cargo test` ends in minutes; the
//! nightly run sets `DRUMFIRE_FULL=1` for all of it.
#![forbid(unsafe_code)]

/// Returns `full` when `DRUMFIRE_FULL=1` is set, and otherwise a hundredth of it, at least 1.
#[must_use]
pub fn tries(full: u32) -> u32 {
    let is_full = std::env::var_os("DRUMFIRE_FULL").is_some_and(|value| value == "1");
    if is_full { full } else { (full / 100).max(1) }
}
