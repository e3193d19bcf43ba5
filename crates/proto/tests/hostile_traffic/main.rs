//! Hostile clients with keys of their own, whose traffic is drawn at random: frames, their fields, their order, and their
//! packing. Whatever they do, the server stays within its limits, and an honest client notices nothing.
//!
//! A seed stands for one run. A full run tries 2,000 seeds. `HOSTILE_SEEDS=N` tries the first N,
//! `HOSTILE_SEEDS=A..B` those from A up to and without B. `HOSTILE_ONLY=memory|peer|handshakes` keeps one
//! invariant alone, so that one violation does not hide another. Time is virtual. Where valgrind is installed, it counts the
//! instructions of packets, for the seeds of `HOSTILE_COUNTED_SEEDS`.

mod applications;
mod cost;
mod coverage;
mod hellos;
mod plan;
mod scene;
mod seeds;
mod violation;
mod world;
