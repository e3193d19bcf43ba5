//! The async interface over real loopback sockets, one file per subject.

mod cancel;
mod clients;
mod echo;
mod ends;
mod flow;
mod groups;
mod links;
mod receipts;
mod reconnect;
mod world;
