//! The flags: how much is done, which loads, which peers.

use std::ffi::OsString;

use drumfire_benches::Extent;

use crate::load::Load;
use crate::rivals;

/// As a reader types it to have the same rivals.
pub(crate) const COMMAND: &str = if cfg!(feature = "gns") {
    "cargo run --release --manifest-path benches/peers/Cargo.toml --features gns"
} else {
    "cargo run --release --manifest-path benches/peers/Cargo.toml"
};

/// Loads of a smoke run.
const QUICK: [&str; 1] = ["C"];

/// Loads that only `--full` and `--only` run: their like is among the others.
const FULL_ONLY: [&str; 2] = ["B-lossy", "D-lossy"];

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) extent: Extent,
    loads: Vec<String>,
    peers: Vec<String>,
}

impl Flags {
    /// Whether this load is to run.
    pub(crate) fn wants_load(&self, load: &Load) -> bool {
        if !self.loads.is_empty() {
            return self.loads.iter().any(|name| name == load.name);
        }
        match self.extent {
            Extent::Quick => QUICK.contains(&load.name),
            Extent::Default => !FULL_ONLY.contains(&load.name),
            Extent::Full => true,
        }
    }

    /// Whether this family's rivals are to run. The floor always is.
    pub(crate) fn wants_peer(&self, family: &str) -> bool {
        self.peers.is_empty() || family == "raw" || self.peers.iter().any(|name| name == family)
    }

    /// The loads that were chosen, for the name of the report, to which peers add their own; nothing when all run.
    pub(crate) fn part(&self) -> Option<String> {
        (!self.loads.is_empty()).then(|| self.loads.join("-"))
    }
}

/// Reads the flags, the program's name not among them.
///
/// # Errors
///
/// One line that names the flag and the way out.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Flags, String> {
    let mut families: Vec<&str> = rivals::all().iter().map(|rival| rival.family).collect();
    families.dedup();
    let loads = Load::ALL.map(|load| load.name);
    let mut flags = Flags { extent: Extent::Default, loads: Vec::new(), peers: Vec::new() };
    let mut args = args.into_iter().map(|arg| arg.to_string_lossy().into_owned()).peekable();
    while let Some(arg) = args.next() {
        let (list, known) = match arg.as_str() {
            "--quick" => {
                flags.extent = Extent::Quick;
                continue;
            }
            "--full" => {
                flags.extent = Extent::Full;
                continue;
            }
            "--only" => (&mut flags.loads, &loads[..]),
            "--peers" => (&mut flags.peers, &families[..]),
            other => {
                return Err(format!(
                    "{other}: not a flag of this bench; give --quick, --full, --only LOAD... or --peers NAME..."
                ));
            }
        };
        while let Some(name) = args.next_if(|name| !name.starts_with("--")) {
            if !known.contains(&name.as_str()) {
                return Err(format!("{arg}: takes some of {}", known.join(", ")));
            }
            list.push(name);
        }
        if list.is_empty() {
            return Err(format!("{arg}: takes some of {}", known.join(", ")));
        }
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(args: &[&str]) -> Result<Flags, String> {
        parse(args.iter().map(OsString::from))
    }

    #[test]
    fn loads_and_peers_are_chosen_by_their_names() {
        let some = flags(&["--only", "A", "F", "--peers", "enet", "--quick"]).expect("good flags");
        let loads: Vec<&str> =
            Load::ALL.iter().filter(|load| some.wants_load(load)).map(|load| load.name).collect();
        assert_eq!((loads, some.extent), (vec!["A", "F"], Extent::Quick));
        assert!(some.wants_peer("enet") && some.wants_peer("raw") && !some.wants_peer("quinn"));
        assert_eq!(some.part().as_deref(), Some("A-F"));
        let all = flags(&[]).expect("good flags");
        assert!(all.wants_peer("quinn") && all.part().is_none());
    }

    #[test]
    fn a_bad_flag_gets_a_line_that_says_what_to_give() {
        for bad in [&["--fast"][..], &["--only"], &["--only", "Z"], &["--peers", "nobody"], &["A"]] {
            let line = flags(bad).expect_err("refused");
            assert!(line.contains("--only") || line.contains("takes some of"), "{line}");
        }
    }
}
