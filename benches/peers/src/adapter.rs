//! The adapter of a library: facts for the tables, a server that echoes, and the connections of a client. All libraries are listed
//! here, including those that cannot be built, with the reason.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use drumfire_benches::roles::print_address;
use drumfire_benches::traffic::Client;
use drumfire_benches::{Counts, InputLines, RECEIVE_BUFFER_BYTES, Served};

use crate::libraries;

/// The interval in which a server that waits checks whether it has to stop.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The keep-alive interval of drumfire. All libraries get it where the interval is a setting.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_millis(7_500);

/// The longest message, and the longest answer.
pub(crate) const MESSAGE_MAX_BYTES: usize = 1_024;

/// Channels of a connection, where a library has channels.
pub(crate) const CHANNELS: u8 = 4;

/// Datagrams of each connection that a client sends in one call, where the library brings no socket of its own.
pub(crate) const DATAGRAMS_EACH: usize = 32;

/// The settings of a server and its client in a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Setup {
    /// The time in microseconds for which datagrams gather before they are received, or 0 for the library's own way to wait.
    pub(crate) gather_us: u64,
    /// Whether the cipher is ChaCha20-Poly1305 instead of AES-GCM.
    pub(crate) is_chacha: bool,
    /// Whether messages arrive once and in order, or may be lost.
    pub(crate) is_reliable: bool,
    /// Bytes of an answer, or 0 for the length of the message.
    pub(crate) answer_bytes: usize,
}

/// Makes the connections of a client, which share a socket.
pub(crate) type Connect = fn(SocketAddr, usize, &Setup) -> Result<Box<dyn Client>, String>;

/// A library with some settings.
#[derive(Clone, Debug)]
pub(crate) struct Library {
    pub(crate) name: &'static str,
    /// The name of the library without settings.
    pub(crate) family: &'static str,
    pub(crate) version: String,
    /// The cipher, or `no`.
    pub(crate) encrypted: &'static str,
    /// The event for which its server waits before it reads its socket.
    pub(crate) wait: String,
    pub(crate) keep_alive: &'static str,
    pub(crate) setup: Setup,
    pub(crate) has_reliable: bool,
    pub(crate) has_unreliable: bool,
    /// Connections that share a socket of a client.
    pub(crate) per_socket: usize,
    /// Whether each connection has its own socket in loads with trains.
    pub(crate) has_trains_apart: bool,
    /// Connections that its server takes, or that fit into the memory of a small machine.
    pub(crate) connections_max: usize,
    /// Whether its server and its client have one busy thread each. Several threads wait for each other on one core.
    pub(crate) has_one_thread: bool,
    /// Whether a message is lost only with its datagram, and never by a decision of the library.
    pub(crate) loses_only_datagrams: bool,
    /// Whether it has connections, which can be idle.
    pub(crate) has_connections: bool,
    /// Builds the server, where it is a program in another language, and returns its version.
    pub(crate) build: Option<fn() -> Result<String, String>>,
    /// Binds a server, prints its address, and sends every message back until the standard input ends. Returns the counts of [`Served`],
    /// and further ones. A server in another language replaces this process, and returns only its failure.
    pub(crate) serve: fn(&Setup) -> Result<Counts, String>,
    pub(crate) connect: Connect,
    /// The reason why it cannot be measured.
    pub(crate) missing: Option<String>,
}

impl Library {
    /// A library with both ways of delivery, one thread, and a socket per connection.
    pub(crate) fn new(
        name: &'static str,
        family: &'static str,
        serve: fn(&Setup) -> Result<Counts, String>,
        connect: Connect,
    ) -> Self {
        Self {
            name,
            family,
            version: String::new(),
            encrypted: "no",
            wait: "notified".to_owned(),
            keep_alive: "7.5 s",
            setup: Setup::default(),
            has_reliable: true,
            has_unreliable: true,
            per_socket: 1,
            has_trains_apart: false,
            connections_max: usize::MAX,
            has_one_thread: true,
            loses_only_datagrams: false,
            has_connections: true,
            build: None,
            serve,
            connect,
            missing: None,
        }
    }

    /// The name in figures: with the cipher and the wait, where the name does not contain them. A library that was left out of the
    /// build has neither.
    pub(crate) fn title(&self) -> String {
        if self.missing.is_some() && self.version.is_empty() && self.build.is_none() {
            return self.name.to_owned();
        }
        let cipher = if self.encrypted == "no" { "not encrypted" } else { self.encrypted };
        let mut title = self.name.to_owned();
        for word in [cipher, &self.wait].into_iter().filter(|word| !self.name.contains(*word)) {
            title.push_str(", ");
            title.push_str(word);
        }
        title
    }
}

/// GameNetworkingSockets, which can be left out of the build.
#[cfg(feature = "gns")]
fn gns() -> Vec<Library> {
    libraries::gns::libraries()
}

/// GameNetworkingSockets, which was left out of the build.
#[cfg(not(feature = "gns"))]
fn gns() -> Vec<Library> {
    fn fail<T>() -> Result<T, String> {
        Err("not built".to_owned())
    }
    let missing = Some("built without feature gns; see the README for what it needs".to_owned());
    let name = "GameNetworkingSockets";
    vec![Library { missing, ..Library::new(name, "gns", |_| fail(), |_, _, _| fail()) }]
}

/// All libraries in the order of the tables. Programs are not built yet.
pub(crate) fn all() -> Vec<Library> {
    [
        libraries::raw::libraries(),
        libraries::drumfire::libraries(),
        libraries::enet::libraries(),
        libraries::renet::libraries(),
        libraries::quinn::libraries(),
        gns(),
        libraries::kcp::libraries(),
    ]
    .concat()
}

/// All libraries. Programs are built by the first call.
pub(crate) fn built() -> &'static [Library] {
    static LIBRARIES: OnceLock<Vec<Library>> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let mut libraries = all();
        for library in &mut libraries {
            match library.build.map(|build| build()) {
                Some(Ok(version)) => library.version = version,
                Some(Err(line)) => library.missing = Some(line),
                None => {}
            }
        }
        libraries
    })
}

/// Returns the path of a server in another language, next to this executable.
pub(crate) fn program(name: &str) -> Result<PathBuf, String> {
    let here = std::env::current_exe().map_err(line)?;
    let folder = here.with_file_name("peers-programs");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder.join(name))
}

/// The gathering time in names.
pub(crate) fn gathered(micros: u64) -> String {
    if micros < 1_000 { format!("{micros} us") } else { format!("{} ms", micros / 1_000) }
}

/// The version of this package in the build.
pub(crate) fn version_of(package: &str) -> String {
    let lock = include_str!("../Cargo.lock");
    let mut lines = lock.lines().skip_while(|line| *line != format!("name = \"{package}\""));
    let version = lines.nth(1).and_then(|line| line.strip_prefix("version = "));
    version.map_or_else(|| "?".to_owned(), |version| version.trim_matches('"').to_owned())
}

/// Binds a socket with a large receive buffer on the loopback.
pub(crate) fn bind() -> Result<UdpSocket, String> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(line)?;
    socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES).map_err(line)?;
    Ok(socket)
}

/// Prints the address of a server, and repeats its pass until the standard input ends.
pub(crate) fn serve_in_loop(
    address: SocketAddr,
    mut pass: impl FnMut(&Served) -> Result<(), String>,
) -> Result<Counts, String> {
    let (input, served) = (InputLines::read(), Served::default());
    print_address(address)?;
    while !input.has_ended() {
        pass(&served)?;
    }
    Ok(served.counts())
}

/// Makes an error a line.
pub(crate) fn line(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_library_has_its_own_name_and_a_version() {
        let all = all();
        for library in &all {
            assert_eq!(all.iter().filter(|other| other.name == library.name).count(), 1, "{}", library.name);
            let is_here = library.build.is_none() && library.missing.is_none();
            assert!(!is_here || !library.version.is_empty() && library.version != "?", "{}", library.name);
            assert_eq!(
                library.keep_alive == "7.5 s",
                !library.keep_alive.contains("own"),
                "{}",
                library.name
            );
        }
        assert_eq!(format!("{} s", KEEP_ALIVE.as_secs_f64()), "7.5 s");
    }
}
