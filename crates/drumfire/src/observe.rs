//! Reports of a server or a client about itself: counters, metrics, log events, and surveys of its connections.

pub(crate) mod metrics;
pub(crate) mod observer;
pub(crate) mod stats;
pub(crate) mod survey;
pub(crate) mod trace;
