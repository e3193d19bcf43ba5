//! Servers and clients in virtual time, one file per subject.

mod broadcasts;
mod conditioned;
mod copies;
mod handlers;
mod reconfigure;
mod reconnect_messages;
mod restarts;
mod room;
mod troubles;
mod worlds;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use drumfire::conditioner::LinkConfig;
use drumfire::testing::{
    ClockConfig, Fault, SocketFaults, Sockets, World, WorldServer, pair, server_config, world,
};
use drumfire::tokens::{TokenKey, TokenRequest};
use drumfire::{Access, Client, ClientConfig, Error, ServerConfig, ServerKey, Workers};

use crate::server::world::Polled;
