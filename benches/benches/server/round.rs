//! One round of echoes against a server process: the connections, one window, the books, and the report.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_benches::traffic::{Generator, Shape, Traffic, client_counts};
use drumfire_benches::{
    Child, ClientSettings, ClientSocket, Counts, DropWatch, EchoRound, Window, close_books, count, settle,
};
use drumfire_tools::report::{IN_LOST_DATAGRAMS, Report};

/// The name of messages for which an end had no room.
const NO_ROOM: &str = "no_room";

const MESSAGE_BYTES: usize = 128;

/// Messages that are lost with one drop of the kernel, at most: a train of 64 datagrams that are full of messages.
const PER_DROP: u64 = 64 * 1_472 / MESSAGE_BYTES as u64;

/// Connections per socket, at most.
const PER_SOCKET: usize = 64;

/// The load runs this long before it is counted.
const WARM_UP: Duration = Duration::from_millis(250);

/// Unreliable messages over this number of connections.
pub(crate) const fn load(shape: Shape, connections: usize) -> Traffic {
    Traffic { per_client: PER_SOCKET, ..Traffic::echo(shape, connections, MESSAGE_BYTES) }
}

/// A round that ran. The connections are still open.
pub(crate) struct Round {
    sockets: Vec<ClientSocket>,
    pub(crate) echo: EchoRound,
    dropped: DropWatch,
}

impl Round {
    /// Connects to a server and runs the load. `poll` is called between two polls with the window, after the warm-up, and the time.
    pub(crate) fn run(
        load: Traffic,
        counted: Duration,
        (server, address): (&Child, SocketAddr),
        poll: impl FnMut(Option<Window>, u64) -> Result<(), String>,
    ) -> Result<Self, String> {
        let dropped = DropWatch::begin();
        let sockets = ClientSocket::connect_all(&ClientSettings::new(address), load.connections, PER_SOCKET)?;
        let mut generator = Generator::over(load, sockets);
        let mut echo = generator.round(server, (WARM_UP, counted), poll)?;
        echo.counts = generator.settle()?;
        Ok(Self { sockets: generator.into_clients(), echo, dropped })
    }

    /// Ends the server, closes the books, and makes the report. `others_sent` are datagrams of further clients.
    ///
    /// A round is void when this process waited for a core, or when a server with one busy thread did.
    pub(crate) fn finish(
        &mut self,
        server: Child,
        others_sent: u64,
        has_one_thread: bool,
    ) -> Result<(Report, Counts), String> {
        settle();
        let drops = self.dropped.count();
        let served = server.finish_counts()?;
        let counts = &self.echo.counts;
        let sent = count(&client_counts(&mut self.sockets), "socket sent");
        close_books(sent + others_sent, &served, drops)?;
        let no_room = (count(&served, "refused") + count(&served, "undelivered")).min(counts.lost);
        let by_kernel = (counts.lost - no_room).min(drops * PER_DROP);
        let lost = [(NO_ROOM, no_room), (IN_LOST_DATAGRAMS, by_kernel)];
        Ok((self.echo.report([has_one_thread, true], &lost)?, served))
    }
}
