//! What the page expects: each report, what it is about, and the command that writes it.
//!
//! Reports that are not here are shown too, after these.

/// One report that is expected.
pub(super) struct Section {
    /// Its file's name without `.json`.
    pub(super) stem: &'static str,
    pub(super) title: &'static str,
    pub(super) about: &'static str,
    pub(super) command: &'static str,
}

const fn bench(
    stem: &'static str,
    title: &'static str,
    about: &'static str,
    command: &'static str,
) -> Section {
    Section { stem, title, about, command }
}

/// In the order of the page: the reference scenarios, rivals, then the rest.
pub(super) const SECTIONS: [Section; 16] = [
    bench(
        "receiver",
        "Receiver",
        "Each thread's packet rate, second by second (GN, \"Receiving\").",
        "cargo run --release --bin receiver -- --with-sender --threads 2 --secs 10 --json target/reports/receiver.json",
    ),
    bench(
        "pps",
        "Packets per second",
        "Drains, trains, the pipeline stage by stage, steering, and the ladder of sizes (GN, \"Receiving\").",
        "cargo bench --bench pps",
    ),
    bench(
        "peers_scale",
        "Many peers",
        "Idle slots, the load ladder, connects in batches, fairness (the ENet list, 2008).",
        "cargo bench --bench peers_scale",
    ),
    bench(
        "channels",
        "Many channels",
        "Peers by channels created by channels active, per tick (LiteNetLib #411).",
        "cargo bench --bench channels",
    ),
    bench(
        "chat",
        "Chat, all to all",
        "Fan-out to 1,024 clients beside the TCP original's method (WolfMUD journal).",
        "cargo bench --bench chat",
    ),
    bench(
        "echo",
        "Echo",
        "A message there and back beside a raw UDP echo in the same run, and the suite of nbio.",
        "cargo bench --bench echo",
    ),
    bench(
        "peers",
        "Rivals",
        "The same echoes against other libraries, CPU of the server for each message.",
        "cargo run --release --manifest-path benches/peers/Cargo.toml --features gns",
    ),
    bench(
        "pipeline",
        "Own code",
        "The receiving side in memory, without sockets.",
        "cargo bench --bench pipeline",
    ),
    bench(
        "counts",
        "Instructions",
        "Instructions of each stage, counted by valgrind; `cargo xtask bench --gate` holds them to a baseline.",
        "cargo bench --bench counts",
    ),
    bench("acks", "Acks", "What an ack costs the end that hears it.", "cargo bench --bench acks"),
    bench("reassembly", "Reassembly", "Large messages from their pieces.", "cargo bench --bench reassembly"),
    bench("faces", "Faces", "Handler, tick, and a hand-over to another thread.", "cargo bench --bench faces"),
    bench(
        "neighbours",
        "Neighbours",
        "What others have of a stalled consumer, by the policy of a full queue, and of one who floods.",
        "cargo bench --bench neighbours",
    ),
    bench(
        "load",
        "A full server",
        "As many clients as it has room for, and one more.",
        "cargo bench --bench load",
    ),
    bench("idle", "Idle clients", "Connected clients that say nothing.", "cargo bench --bench idle"),
    bench("threads", "Threads come and go", "While clients play.", "cargo bench --bench threads"),
];

/// Places in [`SECTIONS`] of this report, or the place after all for one that is not expected. A part's report, such as
/// `pps-drain`, stands behind its whole.
pub(super) fn place(stem: &str) -> usize {
    let whole = stem.split('-').next().unwrap_or(stem);
    SECTIONS.iter().position(|section| section.stem == whole).unwrap_or(SECTIONS.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_stands_with_its_whole_and_a_stranger_at_the_end() {
        assert_eq!(place("echo-F"), place("echo"));
        assert_eq!(SECTIONS[place("echo")].stem, "echo");
        assert_eq!(place("other"), SECTIONS.len());
    }
}
