//! All rivals, in the order of the table: what each is called, what it promises, and who serves and connects. A rival that this
//! program was built without, or that cannot be had, is here too, with the reason.

mod drumfire;
#[cfg(feature = "enet")]
mod enet;
#[cfg(feature = "quinn")]
mod frames;
#[cfg(feature = "gns")]
mod gns;
#[cfg(feature = "kcp")]
mod kcp;
#[cfg(feature = "laminar")]
mod laminar;
mod nbio;
#[cfg(feature = "quinn")]
mod quinn;
mod raw;
#[cfg(feature = "renet")]
mod renet;
#[cfg(any(feature = "kcp", feature = "quinn"))]
mod tasks;

use crate::face::{Connect, Setup, Variant};
use crate::programs::Program;

/// A server that the first datagram wakes.
const NOTIFIED: &str = "notified";

/// [`crate::face::KEEP_ALIVE`] in words.
const KEPT_ALIVE: &str = "7.5 s";

/// Datagrams that each connection of a client may have on their way in one go, where a rival brings no socket of its own.
const DATAGRAMS_EACH: usize = 32;

/// A library with some settings.
#[derive(Clone, Debug)]
pub(crate) struct Rival {
    /// In the table: what it is known by everywhere.
    pub(crate) name: &'static str,
    /// The settings of one library together, by the name that `--peers` takes.
    pub(crate) family: &'static str,
    /// That of a program is known when it is built.
    pub(crate) version: String,
    /// What protects its packets; `no` where nothing does.
    pub(crate) encrypted: &'static str,
    /// What its server waits for before it looks at its socket.
    pub(crate) wait: String,
    /// Whether its server takes trains of datagrams from the kernel: `on`, `off`, or `auto` where it finds out; `None` where it
    /// speaks no UDP or knows no trains.
    pub(crate) gro: Option<&'static str>,
    /// How often a silent connection says that it is there.
    pub(crate) keep_alive: &'static str,
    pub(crate) variant: Variant,
    pub(crate) has_reliable: bool,
    pub(crate) has_unreliable: bool,
    /// Connections that share a client's socket.
    pub(crate) per_socket: usize,
    /// Whether none do where each sends several datagrams in one go.
    pub(crate) has_trains_apart: bool,
    /// Connections that its server takes, or that fit into the memory of a small machine.
    pub(crate) connections_max: usize,
    /// Whether its server has one busy thread: more of them wait for the core because of each other.
    pub(crate) has_one_thread: bool,
    /// The same of its client.
    pub(crate) client_has_one_thread: bool,
    /// Whether it speaks UDP, so that the relay can lose what it says.
    pub(crate) is_udp: bool,
    /// Whether a message is lost with its datagram only, and never by the library's choice.
    pub(crate) loses_only_datagrams: bool,
    /// Whether it has connections that can be idle.
    pub(crate) has_connections: bool,
    pub(crate) serve: Serve,
    pub(crate) connect: Connect,
}

/// Who serves.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Serve {
    /// This program.
    Here(fn(&Setup) -> Result<(), String>),
    /// Another one.
    Program(Program),
    /// Nobody, and why.
    Missing(&'static str),
}

impl Rival {
    /// A rival with both ways of delivery and one thread, whose messages share no socket.
    fn new(name: &'static str, family: &'static str, serve: Serve, connect: Connect) -> Self {
        Self {
            name,
            family,
            version: String::new(),
            encrypted: "no",
            wait: NOTIFIED.to_owned(),
            gro: None,
            keep_alive: KEPT_ALIVE,
            variant: Variant::default(),
            has_reliable: true,
            has_unreliable: true,
            per_socket: 1,
            has_trains_apart: false,
            connections_max: usize::MAX,
            has_one_thread: true,
            client_has_one_thread: true,
            is_udp: true,
            loses_only_datagrams: false,
            has_connections: true,
            serve,
            connect,
        }
    }

    /// A rival that cannot be measured.
    fn missing(name: &'static str, family: &'static str, why: &'static str) -> Self {
        Self::new(name, family, Serve::Missing(why), |_, _, _| Err("it is missing".to_owned()))
    }

    /// Its name in figures: with its suite and what it waits for, where its name does not say so. Of a rival that was left out of
    /// the build neither is known.
    pub(crate) fn title(&self) -> String {
        if matches!(self.serve, Serve::Missing(_)) {
            return self.name.to_owned();
        }
        let suite = if self.encrypted == "no" { "not encrypted" } else { self.encrypted };
        let mut title = self.name.to_owned();
        for word in [suite, &self.wait].into_iter().filter(|word| !self.name.contains(*word)) {
            title.push_str(", ");
            title.push_str(word);
        }
        title
    }

    /// Whether its datagrams gather by a setting of its own.
    pub(crate) const fn gathers(&self) -> bool {
        self.variant.gather_us > 0
    }
}

/// All of them, the floor first.
pub(crate) fn all() -> Vec<Rival> {
    let mut all = raw::rivals();
    all.extend(drumfire::rivals());
    all.extend(enet_rivals());
    all.extend(renet_rivals());
    all.extend(quinn_rivals());
    all.extend(gns_rivals());
    all.extend(kcp_rivals());
    all.extend(laminar_rivals());
    all.extend(nbio::rivals());
    all
}

/// The rival of this name.
pub(crate) fn named(name: &str) -> Result<Rival, String> {
    all().into_iter().find(|rival| rival.name == name).ok_or_else(|| format!("{name}: not a peer"))
}

/// Defines the list of a rival that can be left out of a build.
macro_rules! optional {
    ($rivals:ident, $feature:literal, $module:ident, $name:literal $(, $needs:literal)?) => {
        fn $rivals() -> Vec<Rival> {
            #[cfg(feature = $feature)]
            let built: Option<fn() -> Vec<Rival>> = Some($module::rivals);
            #[cfg(not(feature = $feature))]
            let built: Option<fn() -> Vec<Rival>> = None;
            let why = concat!("built without feature ", $feature $(, $needs)?);
            built.map_or_else(|| vec![Rival::missing($name, $feature, why)], |rivals| rivals())
        }
    };
}

optional!(enet_rivals, "enet", enet, "ENet");
optional!(renet_rivals, "renet", renet, "renet");
optional!(quinn_rivals, "quinn", quinn, "quinn");
optional!(
    gns_rivals,
    "gns",
    gns,
    "GameNetworkingSockets",
    " (its source takes minutes to build, and the packages that the README names)"
);
optional!(kcp_rivals, "kcp", kcp, "tokio_kcp");
optional!(laminar_rivals, "laminar", laminar, "laminar");

/// A gathering time, as it stands in names.
fn gathered(micros: u64) -> String {
    if micros < 1_000 { format!("{micros} us") } else { format!("{} ms", micros / 1_000) }
}

/// The version of this package that was built in.
fn version_of(package: &str) -> String {
    let lock = include_str!("../Cargo.lock");
    let mut lines = lock.lines().skip_while(|line| *line != format!("name = \"{package}\""));
    let version = lines.nth(1).and_then(|line| line.strip_prefix("version = "));
    version.map_or_else(|| "?".to_owned(), |version| version.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rival_has_a_name_of_its_own_and_a_version_or_a_reason() {
        let all = all();
        for rival in &all {
            assert_eq!(all.iter().filter(|other| other.name == rival.name).count(), 1, "{}", rival.name);
            let is_here = matches!(rival.serve, Serve::Here(_));
            assert!(!is_here || !rival.version.is_empty() && rival.version != "?", "{}", rival.name);
            assert!(rival.per_socket > 0 && (rival.has_reliable || rival.has_unreliable));
        }
    }

    #[test]
    fn a_title_says_what_the_name_does_not() {
        let rival = |name, encrypted, wait: &str| Rival {
            encrypted,
            wait: wait.to_owned(),
            serve: Serve::Program(Program::Enet),
            ..Rival::missing(name, "", "")
        };
        assert_eq!(rival("a", "no", "notified").title(), "a, not encrypted, notified");
        assert_eq!(rival("a, AES-128", "AES-128", "tick of 1 ms").title(), "a, AES-128, tick of 1 ms");
        assert_eq!(rival("a, 1 ms", "ChaCha20", "1 ms").title(), "a, 1 ms, ChaCha20");
        assert_eq!(Rival::missing("a", "", "").title(), "a");
    }

    #[test]
    fn the_time_of_keep_alives_is_said_as_it_is() {
        assert_eq!(format!("{} s", crate::face::KEEP_ALIVE.as_secs_f64()), KEPT_ALIVE);
    }

    #[test]
    fn versions_are_those_of_the_lock_file() {
        assert_eq!(version_of("drumfire-peers"), env!("CARGO_PKG_VERSION"));
        assert_eq!(version_of("no-such-package"), "?");
    }
}
