//! The workers of a server or a client, the threads that run them, and the application's side of them.

pub(crate) mod app_side;
pub(crate) mod client_worker;
pub(crate) mod control;
pub(crate) mod invalidate;
pub(crate) mod peer_state;
pub(crate) mod port_monitor;
pub(crate) mod server_core;
pub(crate) mod steering;
pub(crate) mod threads;
