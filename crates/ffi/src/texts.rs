//! Versions, and descriptions of numbers, as C strings.

use std::ffi::{CStr, c_char};

use crate::guard;
use crate::reason::DrumfireReason;
use crate::status::DrumfireStatus;

/// The version of this interface. It increases when programs that were compiled with an older header no longer work.
pub const DRUMFIRE_ABI_VERSION: u32 = 1;

/// The version of the library.
const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => c"unknown",
};

/// Returns the `DRUMFIRE_ABI_VERSION` of the library. A program that loads the library at run time compares it with its
/// own.
// SAFETY: no other symbol starts with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_abi_version() -> u32 {
    DRUMFIRE_ABI_VERSION
}

/// Returns the version of the library, such as `0.1.0`. The text is valid forever.
// SAFETY: no other symbol starts with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Returns a description of a status. The text is valid forever.
// SAFETY: no other symbol starts with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_status_text(status: i32) -> *const c_char {
    DrumfireStatus::text_of(status).as_ptr()
}

/// Returns a description of a `DrumfireReason`. The text is valid forever.
// SAFETY: no other symbol starts with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_reason_text(reason: u32) -> *const c_char {
    DrumfireReason::text_of(reason).as_ptr()
}

/// Returns a description of the last failed call of this thread, in one line. It is empty before the first failure. The
/// text is valid until the next failed call of this thread.
// SAFETY: no other symbol starts with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_last_error() -> *const c_char {
    guard::last_error(CStr::as_ptr)
}
