//! `cargo xtask agones`: one round with the example `agones` and the SDK server that Agones puts into every pod, in its local mode.
//!
//! This proves that the real interface accepts the calls. The example's own tests check their order.

use std::time::Duration;

use crate::example::{self, Example};
use crate::run::{CommandLine, Running, Stop, is_installed, wait_for};
use crate::workspace::Workspace;

const AGONES: &str = "agones";
const SDK_SERVER: &str = "sdk-server";
const SDK_NEEDED: &str = "Agones' sdk-server on the PATH: \
    git clone --depth 1 https://github.com/googleforgames/agones && cd agones && go build -mod=vendor -o ~/bin/ ./cmd/sdk-server";
/// The lines of a server whose calls Agones accepted, in order.
const LINES: [&str; 3] = ["Agones: ready", "players came", "Agones: shutdown"];
/// A round takes two seconds on an idle machine.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) fn run(workspace: &Workspace) -> Result<(), Stop> {
    if !is_installed(SDK_SERVER) {
        return Err(Stop::Needs(SDK_NEEDED.to_owned()));
    }
    example::build(AGONES)?;
    let [server, client] = Example::on_loopback(workspace, AGONES)?.commands();
    let [http, grpc] = [example::free_address()?.port(), example::free_address()?.port()];

    let sdk = CommandLine::new(SDK_SERVER, &["--local", "--address=127.0.0.1"]);
    let sdk = sdk.args(&[format!("--http-port={http}"), format!("--grpc-port={grpc}")]);
    let mut sdk = Running::start("sdk", &sdk)?;
    let mut server = Running::start("server", &server.env("AGONES_SDK_HTTP_PORT", http.to_string()))?;
    let mut client = Running::start("client", &client)?;
    // The round is over when the client has left. Then the server ends too.
    wait_for("the round is not over", DEADLINE, || {
        if sdk.is_done()? {
            return Err(Stop::failed("the SDK server ended before the round"));
        }
        Ok((client.is_done()? && server.is_done()?).then_some(()))
    })?;
    let output = server.output();
    print!("{}{output}", client.output());
    check_lines(&output)
}

fn check_lines(output: &str) -> Result<(), Stop> {
    let mut lines = output.lines();
    let missing = LINES.into_iter().find(|part| !lines.any(|line| line.contains(part)));
    missing.map_or(Ok(()), |part| Err(Stop::failed(format!("the server did not print `{part}` in order"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_server_are_complete_and_in_order() {
        let good = "Agones: ready\nAgones: this server is Ready\n1 players came; over\nAgones: shutdown\n";
        assert!(check_lines(good).is_ok());
        for bad in
            ["", "Agones: ready\n2 players came\n", "Agones: shutdown\nAgones: ready\n1 players came\n"]
        {
            assert!(matches!(check_lines(bad), Err(Stop::Failed(why)) if why.contains('`')), "{bad}");
        }
    }
}
