//! The life of a connection: keys, paths, timeouts, statistics, and its end.

mod closing;
mod paths;
mod rates;
mod recorder;
mod recovery;
mod rekey;
mod send_errors;
mod stats;
mod timeouts;
mod trains;
