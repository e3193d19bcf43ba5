//! Peers that hold the keys and violate the rules, and attackers who do not hold them.

mod acks;
mod attacks;
mod batches;
mod clocks;
mod connection_ids;
mod flipped_bits;
mod forgeries;
mod limits;
mod many_peers;
mod peers;
mod rekeys;
mod reordering;
mod replays;
mod runs;
mod strategies;
