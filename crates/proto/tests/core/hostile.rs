//! Peers that hold the keys and violate the rules, and attackers who do not hold them.

mod acks;
mod attacks;
mod batches;
mod clocks;
mod connection_ids;
mod crowd;
mod flipped_bits;
mod forgeries;
mod limits;
mod peers;
mod rekeys;
mod reordering;
mod replays;
mod runs;
mod strategies;
