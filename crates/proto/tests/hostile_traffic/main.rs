//! Hostile clients with valid keys, whose traffic is drawn at random: frames, their fields, their order, and their
//! packing. The server stays within its limits, and an honest client is not affected.
//!
//! A seed is one run. A full run tries 2,000 seeds. `HOSTILE_SEEDS=N` tries the first N, and `HOSTILE_SEEDS=A..B`
//! those from A up to but not including B. `HOSTILE_ONLY=memory|peer|handshakes` checks one invariant alone, so that
//! one violation does not hide another. Time is virtual. Where valgrind is installed, it counts the instructions of
//! packets for the seeds of `HOSTILE_COUNTED_SEEDS`.

mod applications;
mod cost;
mod coverage;
mod hellos;
mod plan;
mod scene;
mod seeds;
mod violation;
mod world;
