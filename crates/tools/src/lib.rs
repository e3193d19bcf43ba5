//! The parts of drumfire's `receiver`, `sender` and `drumfire` (keys and tokens): threads that receive, threads that send, the control
//! connection between the two, and the books and reports that come of it.
//!
//! The three binaries are thin; the benches use the same parts. Nothing here is meant for a game server: depend
//! on `drumfire-socket` for sockets.
#![forbid(unsafe_code)]

pub mod choices;
pub mod cli;
pub mod clock;
pub mod control;
pub mod csv;
pub mod datagram;
pub mod flows;
pub mod host;
pub mod limits;
pub mod plot;
pub mod program;
pub mod receiver;
pub mod report;
pub mod scrape;
pub mod sender;
pub mod table;
mod text;
#[cfg(feature = "top")]
pub mod top;
