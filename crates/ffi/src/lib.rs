//! A C ABI of the drumfire client, for engines and languages that are not Rust.
//!
//! C programs include `include/drumfire.h`, which is made from this crate; C# programs take
//! `examples/unity/Drumfire.cs`. What every caller can rely on:
//!
//! - **Nobody's mistake is undefined behaviour where it can be seen.** A client is named by a handle, a number: one that was
//!   freed, is zero or was made up is answered [`DrumfireStatus::BadHandle`]. Null pointers, lengths that no memory has,
//!   unknown numbers of enumerations and texts without an end are answered too. What cannot be seen from here, a pointer to
//!   memory that is not there, stays the caller's duty.
//! - **No panic crosses the boundary.** One that happens is caught, its client is closed, and the call answers
//!   [`DrumfireStatus::Panicked`]. That takes a library that was built with `panic = "unwind"`, as it is unless somebody
//!   changes it.
//! - **A client belongs to the thread that connected it**; every other one is answered [`DrumfireStatus::WrongThread`].
//!   [`drumfire_client_free`] alone may be called from any thread, so that a finalizer can. Different clients may live on
//!   different threads.
//! - **No thread of its own.** [`drumfire_client_poll`] does the I/O; call it once per frame, and at least ten times per second.
//! - **Every call answers a [`DrumfireStatus`]**; [`drumfire_last_error`] says more about the last one that failed, for a log.
//!
//! Structures of settings that are all zero ask for what is usual, so `DrumfireConfig config = {0};` is where a C program
//! begins. A program that loads the library at run time compares [`drumfire_abi_version`] with the `DRUMFIRE_ABI_VERSION`
//! that it was compiled with.
//!
//! Not here: servers, which are written in Rust, channels of typed values, and transfers.
#![expect(unsafe_code, reason = "pointers and names that C programs see have no safe form")]

mod connect;
mod error;
mod event;
mod exports;
mod guard;
mod held;
mod options;
mod pointers;
mod reason;
mod stats;
mod status;
mod table;
mod texts;

pub use connect::{DRUMFIRE_CLIENTS_MAX, DRUMFIRE_TEXT_MAX_BYTES, DrumfireConfig};
pub use event::{DrumfireEvent, DrumfireEventKind, DrumfireOutcome};
pub use exports::{
    drumfire_client_close, drumfire_client_connect, drumfire_client_flush, drumfire_client_forget_key,
    drumfire_client_free, drumfire_client_poll, drumfire_client_rebind, drumfire_client_receive,
    drumfire_client_receive_into, drumfire_client_resume_token, drumfire_client_send,
    drumfire_client_set_channel, drumfire_client_state, drumfire_client_stats, drumfire_client_time,
};
pub use options::{
    DRUMFIRE_SEND_FLUSH, DRUMFIRE_SEND_RECEIPT, DrumfireChannelOptions, DrumfireMode, DrumfirePriority,
    DrumfireSendOptions, DrumfireWhenFull,
};
pub use reason::DrumfireReason;
pub use stats::{DrumfireState, DrumfireStats};
pub use status::DrumfireStatus;
pub use table::DrumfireClient;
pub use texts::{
    DRUMFIRE_ABI_VERSION, drumfire_abi_version, drumfire_last_error, drumfire_reason_text,
    drumfire_status_text, drumfire_version,
};
