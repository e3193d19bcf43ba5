//! Servers and clients over real loopback sockets, one file per subject.

mod abuser;
mod admission;
mod clients;
mod close;
mod drain;
mod echo;
mod granted;
mod groups;
mod handler;
mod limits;
mod live;
mod monitor;
mod own_address;
mod rebind;
mod refusal;
mod restart;
mod settings;
mod shards;
mod spread;
mod tokens;
mod typed;
pub(crate) mod world;
