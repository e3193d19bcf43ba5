//! A C interface to the drumfire client, for engines and languages other than Rust.
//!
//! C programs include `include/drumfire.h`, which cbindgen generates from this crate. C# programs use
//! `examples/unity/Drumfire.cs`.
//!
//! # Contract
//!
//! - **Invalid arguments are reported where they can be detected.** Null pointers, lengths that exceed the address space, unknown
//!   enumeration values, and texts without a NUL byte return an error. A handle is a number: a handle that was freed, is zero, or
//!   was never issued returns [`DrumfireStatus::BadHandle`]. A pointer to invalid memory cannot be detected; the caller must not
//!   pass one.
//! - **No panic crosses the interface.** A panic is caught, its client is closed, and the call returns
//!   [`DrumfireStatus::Panicked`]. This requires a library that was built with `panic = "unwind"`, the default.
//! - **A client belongs to the thread that connected it.** Calls from other threads return [`DrumfireStatus::WrongThread`]. Only
//!   [`drumfire_client_free`] may be called from any thread, so that a finalizer can call it. Different clients may live on
//!   different threads.
//! - **The library starts no threads.** [`drumfire_client_poll`] does the I/O. Call it once per frame, and at least ten times per
//!   second.
//! - **Every call returns a [`DrumfireStatus`].** [`drumfire_last_error`] describes the last failed call of the thread.
//!
//! Zero selects the default of each field in a structure of settings, so a C program can start with
//! `DrumfireConfig config = {0};`. A program that loads the library at run time compares [`drumfire_abi_version`] with the
//! `DRUMFIRE_ABI_VERSION` of its header.
//!
//! This crate covers the client. It has no servers, typed channels, or transfers.
#![expect(unsafe_code, reason = "a C interface needs raw pointers and unmangled symbols")]

mod client;
mod connect;
mod error;
mod event;
mod exports;
mod guard;
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
