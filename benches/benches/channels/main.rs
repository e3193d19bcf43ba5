//! The cost of many channels for a server with a thousand ticks per second: `cargo bench --bench channels`.
//!
//! | part | what is measured |
//! | --- | --- |
//! | `ticks` | time per tick by peers and channels created |
//! | `updates` | share of a core for 300 players with 64 channels each and losses |
//! | `burst` | the time until the last values of 500 keys arrive after a burst of losses |
//! | `unused` | memory of channels that are no longer used |
//! | `players` | share of a core and lateness of ticks over real sockets, with a server process |
//! | `soak` | growth of memory over hours of virtual time, or `--soak HOURS` of them |
//!
//! All parts but `players` have virtual time and datagrams in memory, with real endpoints at both ends. One client holds all
//! connections, and only the server's share of each tick is timed: receiving acks, timers, sending, and sealing (AES-128-GCM). System
//! calls are not part of it. A test of the core shows that a tick visits no channel without messages. Memory that grows in `soak` fails
//! the bench.
#![forbid(unsafe_code)]

mod keys;
mod players;
mod soak;
mod ticks;
mod world;

use std::process::ExitCode;

use drumfire_benches::{Program, part};

fn main() -> ExitCode {
    let parts = [
        part("ticks", ticks::measure),
        part("updates", ticks::updates),
        part("burst", keys::burst),
        part("unused", ticks::unused),
        part("players", players::measure),
        part("soak", soak::measure),
    ];
    let program = Program {
        roles: &[(players::SERVER, players::serve)],
        number: Some("soak"),
        prepare: |bench| {
            let words = format!("{} for losses, {} for keys that change", world::SEED, keys::SEED);
            bench.results.seeded(&words);
        },
        ..Program::new("channels", &parts)
    };
    program.main()
}
