//! Versions, and what numbers mean, as texts that C programs can print.

use std::ffi::{CStr, c_char};

use crate::guard;
use crate::reason::DrumfireReason;
use crate::status::DrumfireStatus;

/// The version of this interface: it grows when a program that was compiled with an older header cannot go on with the library.
pub const DRUMFIRE_ABI_VERSION: u32 = 1;

/// The version of the library.
const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => c"unknown",
};

/// The library's `DRUMFIRE_ABI_VERSION`. A program that loads the library at run time compares it with its own.
// SAFETY: nothing else has names that begin with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_abi_version() -> u32 {
    DRUMFIRE_ABI_VERSION
}

/// The version of the library, `0.1.0`. It stays for ever.
// SAFETY: nothing else has names that begin with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_version() -> *const c_char {
    VERSION.as_ptr()
}

/// One line on a status. It stays for ever.
// SAFETY: nothing else has names that begin with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_status_text(status: i32) -> *const c_char {
    DrumfireStatus::text_of(status).as_ptr()
}

/// One line on a `DrumfireReason`. It stays for ever.
// SAFETY: nothing else has names that begin with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_reason_text(reason: u32) -> *const c_char {
    DrumfireReason::text_of(reason).as_ptr()
}

/// What the last call of this thread that failed had to say, in one line; empty before the first. It stays until the next call
/// of this thread that fails.
// SAFETY: nothing else has names that begin with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_last_error() -> *const c_char {
    guard::last_error(CStr::as_ptr)
}
