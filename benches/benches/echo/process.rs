//! The two processes of a round: a server and a client, told apart by a hidden first argument.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use drumfire_benches::traffic::run_client;
use drumfire_benches::{Child, PlainDatagrams, Players, ending, pin_to};

use crate::load::{DATAGRAMS_EACH, Load};
use crate::peer::Peer;
use crate::{encrypted, raw};

/// The first argument of the server's process.
const SERVER_MODE: &str = "--echo-server";

/// The first argument of the client's process.
const CLIENT_MODE: &str = "--echo-client";

/// The load runs for so long before it is counted.
const WARM_UP: Duration = Duration::from_millis(250);

/// Starts a server on this core.
pub(crate) fn start_server(peer: Peer, core: usize) -> Result<Child, String> {
    Child::start("the server", &[SERVER_MODE, &peer.name(), &core.to_string()])
}

/// Starts a client of the server at `address`, on this core.
pub(crate) fn start_client(
    peer: Peer,
    load: Load,
    counted: Duration,
    address: &str,
    core: usize,
) -> Result<Child, String> {
    let (millis, core) = (counted.as_millis().to_string(), core.to_string());
    Child::start("the client", &[CLIENT_MODE, &peer.name(), &core, load.name(), &millis, address])
}

/// Runs a process of a round, if the arguments ask for one; the program's name is not among them.
pub(crate) fn main(args: &[OsString]) -> Option<ExitCode> {
    let args: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        [SERVER_MODE, peer, core] => serve(peer, core),
        [CLIENT_MODE, peer, core, load, millis, address] => connect(peer, core, load, millis, address),
        _ => return None,
    };
    Some(ending(done))
}

fn serve(peer: &str, core: &str) -> Result<(), String> {
    pin_to(core)?;
    let served = match Peer::named(peer).ok_or("not a peer")? {
        Peer::Raw => raw::serve().map_err(|error| format!("the raw server: {error}"))?,
        Peer::Drumfire(staffing, delivery, _) => encrypted::serve(staffing, delivery)?,
    };
    served.say().map_err(|error| error.to_string())
}

fn connect(peer: &str, core: &str, load: &str, millis: &str, address: &str) -> Result<(), String> {
    pin_to(core)?;
    let address = address.parse().map_err(|_| "not an address".to_owned())?;
    let load = Load::named(load).ok_or("not a load")?;
    let counted = Duration::from_millis(millis.parse().map_err(|_| "not a time".to_owned())?);
    match Peer::named(peer).ok_or("not a peer")? {
        Peer::Raw => {
            let connect = |_| PlainDatagrams::connect(address, DATAGRAMS_EACH);
            run_client(load.play(), (WARM_UP, counted), connect)
        }
        Peer::Drumfire(_, delivery, suite) => {
            let joining = encrypted::joining(delivery, suite);
            let connect = |count| Players::connect(address, count, &joining);
            run_client(load.play(), (WARM_UP, counted), connect)
        }
    }
}
