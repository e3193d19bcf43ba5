//! What figures hang on beside the machine: the interface that all load goes over, the room that sockets get, and how this
//! program was built. Where the system does not tell, a part is left out.

use std::fs;

/// The interface of all load.
const LOOPBACK: &str = "/sys/class/net/lo/queues";

/// What a socket's buffers are, and what they may become.
const BUFFERS: [&str; 4] = ["rmem_default", "rmem_max", "wmem_default", "wmem_max"];

/// The interface with its queues and the buffers of sockets in bytes.
#[must_use]
pub(crate) fn network() -> String {
    let queues = fs::read_dir(LOOPBACK).ok().map(|queues| {
        queues_of(queues.flatten().map(|queue| queue.file_name().to_string_lossy().into_owned()))
    });
    let buffers = BUFFERS.into_iter().filter_map(|name| {
        let bytes = fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok()?;
        Some(format!("{name} {}", bytes.trim()))
    });
    let parts = ["interface lo".to_owned()].into_iter().chain(queues).chain(buffers);
    parts.collect::<Vec<_>>().join(", ")
}

fn queues_of(names: impl Iterator<Item = String>) -> String {
    let (mut receive, mut send) = (0, 0);
    for name in names {
        receive += u32::from(name.starts_with("rx-"));
        send += u32::from(name.starts_with("tx-"));
    }
    format!("{receive} receive and {send} send queue(s)")
}

/// The compiler and its flags.
#[must_use]
pub(crate) fn build() -> String {
    let flags = env!("DRUMFIRE_RUSTFLAGS");
    let flags = if flags.is_empty() { "none" } else { flags };
    let (rustc, level) = (env!("DRUMFIRE_RUSTC"), env!("DRUMFIRE_OPT_LEVEL"));
    format!("{rustc}, opt-level {level}, lto {}, RUSTFLAGS {flags}", env!("DRUMFIRE_LTO"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_counted_by_their_direction() {
        let names = ["rx-0", "tx-0", "tx-1", "other"].map(str::to_owned);
        assert_eq!(queues_of(names.into_iter()), "1 receive and 2 send queue(s)");
    }

    #[test]
    fn the_build_names_its_compiler_and_its_flags() {
        let build = build();
        assert!(build.starts_with("rustc ") && build.contains(", RUSTFLAGS "), "{build}");
        assert!(network().starts_with("interface lo"));
    }
}
