//! Servers and clients over real loopback sockets, one file per subject.

mod abuser;
mod admission;
mod clients;
mod close;
mod conditioner;
mod control;
mod echo;
#[cfg(unix)]
mod foreign_loop;
mod granted;
mod groups;
mod handler;
mod limits;
mod live;
pub(crate) mod own_address;
mod rebind;
mod refusal;
mod restart;
mod settings;
mod shards;
mod shutdown;
mod spread;
mod tokens;
mod typed;
pub(crate) mod world;
