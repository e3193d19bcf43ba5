//! Tests of the wire format through the public API of the crate. The unit tests of each type are in its module.

mod datagrams;
mod errors;
mod frames;
mod mutants;
mod samples;
mod soundness;
mod standard;
