//! The wire format through its public face: one file per subject, one program.
//!
//! Deliberately without keys, sockets or time; unit tests with each type's edges stand beside the code.

mod datagrams;
mod economy;
mod errors;
mod frames;
mod generators;
mod handshake;
mod mutants;
mod samples;
mod soundness;
mod standard;
