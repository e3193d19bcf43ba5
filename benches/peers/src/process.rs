//! The processes of a round: a server, a client and, where the load asks for one, a relay between them, told apart by a hidden
//! first argument. Each pins itself to its core before it starts any thread.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use drumfire_benches::traffic::run_client;
use drumfire_benches::{Child, ending, pin_to};
use drumfire_tools::host;

use crate::face::Setup;
use crate::load::Load;
use crate::programs;
use crate::relay;
use crate::rivals::{Rival, Serve, named};

/// The first argument of the server's process.
const SERVER_MODE: &str = "--peers-server";

/// The first argument of the client's process.
const CLIENT_MODE: &str = "--peers-client";

/// The first argument of the relay's process.
const RELAY_MODE: &str = "--peers-relay";

/// Open files of a client that has a socket for each connection.
const OPEN_FILES: u64 = 8_192;

/// What a client is asked to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) load: Load,
    pub(crate) connections: usize,
    /// The load runs for so long before it is counted.
    pub(crate) warm_up: Duration,
    pub(crate) counted: Duration,
}

/// Starts a server on this core.
pub(crate) fn start_server(rival: &Rival, setup: &Setup, core: usize) -> Result<Child, String> {
    let (core, answer) = (core.to_string(), setup.answer_bytes.to_string());
    Child::start("the server", &[SERVER_MODE, rival.name, delivery(setup), &answer, &core])
}

/// Starts a client of the server at `address`, on this core.
pub(crate) fn start_client(
    rival: &Rival,
    setup: &Setup,
    asked: &Asked,
    address: &str,
    core: usize,
) -> Result<Child, String> {
    let Asked { load, connections, warm_up, counted } = asked;
    let [core, connections, warm_up, counted] = [
        core.to_string(),
        connections.to_string(),
        warm_up.as_millis().to_string(),
        counted.as_millis().to_string(),
    ];
    let args = [
        CLIENT_MODE,
        rival.name,
        delivery(setup),
        load.name,
        &connections,
        &warm_up,
        &counted,
        &core,
        address,
    ];
    Child::start("the client", &args)
}

/// Starts the relay to the server at `address`, on this core.
pub(crate) fn start_relay(address: &str, core: usize) -> Result<Child, String> {
    Child::start("the relay", &[RELAY_MODE, address, &core.to_string()])
}

/// Runs a process of a round, if the arguments ask for one; the program's name is not among them.
pub(crate) fn main(args: &[OsString]) -> Option<ExitCode> {
    let args: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let done = match args.as_slice() {
        [SERVER_MODE, rival, delivery, answer, core] => serve(rival, delivery, answer, core),
        [CLIENT_MODE, rest @ ..] => connect(rest),
        [RELAY_MODE, address, core] => relayed(address, core),
        _ => return None,
    };
    Some(ending(done))
}

const fn delivery(setup: &Setup) -> &'static str {
    if setup.is_reliable { "reliable" } else { "unreliable" }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text}: not a number"))
}

fn raise_open_files() {
    // Where fewer are allowed, a socket that cannot be opened says so.
    let _ = host::raise_open_files(OPEN_FILES);
}

fn setup(rival: &Rival, delivery: &str, answer_bytes: usize) -> Setup {
    Setup { variant: rival.variant, is_reliable: delivery == "reliable", answer_bytes }
}

fn serve(rival: &str, delivery: &str, answer: &str, core: &str) -> Result<(), String> {
    pin_to(core)?;
    raise_open_files();
    let rival = named(rival)?;
    let setup = setup(&rival, delivery, number(answer)?);
    match rival.serve {
        Serve::Here(serve) => serve(&setup),
        Serve::Program(program) => Err(programs::become_server(program, &setup)),
        Serve::Missing(why) => Err(why.to_owned()),
    }
}

fn connect(args: &[&str]) -> Result<(), String> {
    let [rival, delivery, load, connections, warm_up, counted, core, address] = args else {
        return Err("not what a client is asked".to_owned());
    };
    pin_to(core)?;
    raise_open_files();
    let rival = named(rival)?;
    let load = Load::named(load).ok_or("not a load")?;
    let setup = setup(&rival, delivery, load.answer_bytes);
    let address = address.parse().map_err(|_| "not an address".to_owned())?;
    let per_socket = if load.has_trains && rival.has_trains_apart { 1 } else { rival.per_socket };
    let play = load.play(number(connections)?, per_socket, !setup.is_reliable);
    let connect = |count| (rival.connect)(address, count, &setup);
    let time = |millis: &str| number(millis).map(Duration::from_millis);
    run_client(play, (time(warm_up)?, time(counted)?), connect)
}

fn relayed(address: &str, core: &str) -> Result<(), String> {
    pin_to(core)?;
    raise_open_files();
    relay::run(address.parse().map_err(|_| "not an address".to_owned())?)
}
