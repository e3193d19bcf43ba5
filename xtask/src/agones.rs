//! `cargo xtask agones`: a server of a fleet, the example `agones`, plays one round beside the SDK server that Agones itself puts
//! into every pod, here in its local mode and on the loopback.
//!
//! That program is taken from the PATH and not built here. Whether the order of the calls is right the example's own tests say;
//! this says that the real interface takes them.

use std::fs;
use std::time::Duration;

use crate::example;
use crate::run::{CommandLine, Interrupt, Stop};
use crate::running::Running;
use crate::workspace::Workspace;

const EXAMPLE: &str = "agones";
/// Agones' own server of the SDK.
const SDK_SERVER: &str = "sdk-server";
const SDK_NEEDED: &str = "Agones' sdk-server on the PATH: \
    git clone --depth 1 https://github.com/googleforgames/agones && cd agones && go build -mod=vendor -o ~/bin/ ./cmd/sdk-server";
/// A round takes a second; the server waits half a minute for the SDK.
const END_DEADLINE: Duration = Duration::from_secs(60);
/// What the server prints, in this order, when Agones took what it said.
const SAID: [&str; 3] = ["Agones: ready", "players came", "Agones: shutdown"];

/// Plays the round.
///
/// # Errors
/// [`Stop::Needs`] without the SDK server, [`Stop::Interrupted`] on Ctrl-C, [`Stop::Failed`] when one of the programs fails or
/// the server did not say all it should.
pub(crate) fn run() -> Result<(), Stop> {
    let interrupt = Interrupt::on_ctrl_c()?;
    let workspace = Workspace::load()?;
    if !is_on_path(SDK_SERVER) {
        return Err(Stop::Needs(SDK_NEEDED.to_owned()));
    }
    example::build(&workspace, EXAMPLE)?;
    let [server, client] = example::commands_at(&workspace, EXAMPLE, example::free_address()?)?;
    let [http, grpc] = [example::free_address()?.port(), example::free_address()?.port()];

    let ports = [format!("--http-port={http}"), format!("--grpc-port={grpc}")];
    let sdk = CommandLine::new(SDK_SERVER, &["--local", "--address=127.0.0.1"]);
    let mut sdk = Running::start("sdk", &ports.into_iter().fold(sdk, CommandLine::arg))?;
    let program = workspace.target.join("release/examples").join(EXAMPLE);
    let program = program.to_string_lossy();
    let server = CommandLine::new(&program, &server).env("AGONES_SDK_HTTP_PORT", &http.to_string());
    let mut server = Running::start("server", &server)?;
    let mut client = Running::start("client", &CommandLine::new(&program, &client))?;
    // The round is over when the client has left, and then the server ends too.
    example::wait_until("the round is not over", END_DEADLINE, &interrupt, || {
        if sdk.is_done()? {
            return Err(Stop::failed("the SDK server ended before the round"));
        }
        Ok(client.is_done()? && server.is_done()?)
    })?;
    let said = server.output();
    print!("{}{said}", client.output());
    says_all(&said)
}

/// Whether a program of this name is in a folder of the PATH.
fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| fs::metadata(folder.join(program)).is_ok_and(|it| it.is_file()))
}

/// Whether all of it was said, in its order.
fn says_all(said: &str) -> Result<(), Stop> {
    let mut lines = said.lines();
    let missing = SAID.into_iter().find(|what| !lines.any(|line| line.contains(what)));
    missing.map_or(Ok(()), |what| Err(Stop::failed(format!("the server did not say `{what}` in its turn"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_on_the_path_and_no_program_of_a_name_that_nobody_has() {
        assert!(is_on_path("sh"));
        assert!(!is_on_path("no-such-program"));
    }

    #[test]
    fn what_was_said_must_be_whole_and_in_order() {
        let good = "Agones: ready\nAgones: this server is Ready\n1 players came; over\nAgones: shutdown\n";
        assert!(says_all(good).is_ok());
        for bad in
            ["", "Agones: ready\n2 players came\n", "Agones: shutdown\nAgones: ready\n1 players came\n"]
        {
            assert!(matches!(says_all(bad), Err(Stop::Failed(why)) if why.contains('`')), "{bad}");
        }
    }
}
