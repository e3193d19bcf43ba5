//! Checks with programs of other projects: `cargo xtask interop` (Python), `ffi` (C, C++, C#), `bevy`, and `agones`.
//!
//! A check without its program is skipped. The tests of the crates judge single calls.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::example::{self, Example};
use crate::files::make_empty;
use crate::run::{CommandLine, Running, Stop, is_installed, wait_until, word};
use crate::workspace::Workspace;

/// The example whose server Python, C, and C# clients connect to.
const SERVER: &str = "echo";
/// The Python client holds a hundred sessions. Each takes a quarter of a second on an idle machine.
const SESSIONS_DEADLINE: Duration = Duration::from_secs(330);
/// A client in C or C#, and a round with Agones, take two seconds on an idle machine.
const CLIENT_DEADLINE: Duration = Duration::from_secs(60);

const C: [&str; 4] = ["-std=c99", "-Wall", "-Wextra", "-Werror"];
const CPP: [&str; 6] = ["-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-xc++"];
/// The sanitizers, and the system libraries that the static library needs.
const SANITIZED: [&str; 6] =
    ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-pthread", "-ldl", "-lm"];

/// Format, lints, tests, documentation, and the example of the Bevy plugin.
const BEVY: [&str; 6] = [
    "fmt --check",
    "clippy --locked --offline --all-targets --all-features -- -D warnings",
    "clippy --locked --offline --no-default-features -- -D warnings",
    "test --locked --offline",
    "RUSTDOCFLAGS=-Dwarnings doc --locked --offline --no-deps",
    "run --locked --offline --quiet --example headless",
];
/// The example ends after at most two thousand frames of 10 ms. The first step also builds Bevy.
const BEVY_DEADLINE: Duration = Duration::from_secs(1_800);

/// The example for Agones, and Agones' own SDK server.
const AGONES: &str = "agones";
const SDK_SERVER: &str = "sdk-server";
const SDK_NEEDED: &str = "Agones' sdk-server on the PATH: \
    git clone --depth 1 https://github.com/googleforgames/agones && cd agones && go build -mod=vendor -o ~/bin/ ./cmd/sdk-server";
/// The lines of a server whose calls Agones accepted, in order.
const AGONES_LINES: [&str; 3] = ["Agones: ready", "players came", "Agones: shutdown"];

/// Runs the second implementation of the standard, which is in Python: it checks the test vectors, sends malformed datagrams to a
/// server, and holds sessions with it.
pub(crate) fn interop(workspace: &Workspace) -> Result<(), Stop> {
    let root = &workspace.root;
    let scripts = root.join("xtask/interop");
    let vectors = root.join("crates/wire/vectors");
    let python = python(workspace, &scripts)?;
    let script = |name: &str| CommandLine::new(&python, &[word(&scripts.join(name))]);
    script("vectors.py").arg(&vectors).env("PYTHONWARNINGS", "ignore").done()?;

    example::build(SERVER)?;
    for client in [script("malformed.py").arg(vectors.join("malformed.json")), script("client.py")] {
        let client = client.env("PYTHONWARNINGS", "ignore");
        print!("{}", run_client(workspace, client, SESSIONS_DEADLINE)?);
    }
    Ok(())
}

/// Runs another client against a server of its own, with the arguments of the example's client, and returns its output.
fn run_client(workspace: &Workspace, client: CommandLine, deadline: Duration) -> Result<String, Stop> {
    let example = Example::on_loopback(workspace, SERVER)?;
    let [server, _] = example.commands();
    example::run_both(&server, &client.args(&example.args[1][1..]), deadline)
}

/// Returns the Python of a virtual environment with the packages that the scripts need.
fn python(workspace: &Workspace, scripts: &Path) -> Result<PathBuf, Stop> {
    let folder = workspace.target.join("interop");
    let python = folder.join("bin/python");
    let make = CommandLine::new("python3", &["-m", "venv"]).arg(&folder);
    make.needed("python3 with its venv module")?;
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
    let install = CommandLine::new(&python, &install).arg(scripts.join("requirements.txt"));
    install.needed("a Python package index")?;
    Ok(python)
}

/// Compiles the programs next to the C interface without a warning and runs them against a server. The C program runs twice: with the
/// shared library, and with the static library under sanitizers, which also find leaks. C++ and C# run where a compiler is installed.
pub(crate) fn ffi(workspace: &Workspace) -> Result<(), Stop> {
    let root = &workspace.root;
    // Together with an example, so that the features are those of `cargo test --workspace`.
    CommandLine::cargo(&format!("build --lib --example {SERVER}")).done()?;

    let (package, programs) = (root.join("crates/ffi"), workspace.target.join("ffi"));
    let (libraries, header) = (word(&workspace.target.join("debug")), package.join("include/drumfire.h"));
    make_empty(&programs)?;
    let c = |name: &str, flags: &[&str]| {
        let program = programs.join(name);
        let cc = CommandLine::new("cc", &C).arg("-I").arg(package.join("include")).arg("-o").arg(&program);
        cc.arg(package.join("examples/c/echo_client.c")).args(flags).done()?;
        Ok::<_, Stop>(CommandLine::new(program, &[""; 0]))
    };
    let shared = ["-L", &libraries, "-ldrumfire_ffi", &format!("-Wl,-rpath,{libraries}")];
    let archive = format!("{libraries}/libdrumfire_ffi.a");
    let sanitized = [&[archive.as_str()][..], &SANITIZED].concat();
    let mut clients =
        vec![("C", c("echo_client", &shared)?), ("C, static, sanitized", c("echo_sanitized", &sanitized)?)];
    if is_installed("c++") {
        CommandLine::new("c++", &CPP).arg(&header).done()?;
    } else {
        println!("C++: skipped, there is no c++");
    }
    if is_installed("mcs") && is_installed("mono") {
        let (program, sources) = (programs.join("EchoClient.exe"), package.join("examples/unity"));
        let mcs = CommandLine::new("mcs", &["-warnaserror", "-langversion:7"]);
        let mcs = mcs.arg(format!("-out:{}", program.display()));
        mcs.arg(sources.join("Drumfire.cs")).arg(sources.join("EchoClient.cs")).done()?;
        clients.push(("C#", CommandLine::new("mono", &[word(&program)]).env("LD_LIBRARY_PATH", &libraries)));
    } else {
        println!("C#: skipped, there is no mono (on Debian: apt-get install mono-mcs mono-runtime)");
    }
    for (name, client) in clients {
        print!("{name}: {}", run_client(workspace, client, CLIENT_DEADLINE)?);
    }
    Ok(())
}

/// Checks the Bevy plugin, which is a workspace of its own. It is not part of `cargo xtask ci`, because Bevy's crates take minutes to
/// build.
pub(crate) fn bevy(workspace: &Workspace) -> Result<(), Stop> {
    let (folder, target) = (workspace.root.join("crates/bevy"), workspace.target.join("bevy"));
    let cargo = |args: &str| CommandLine::cargo(args).env("CARGO_TARGET_DIR", &target).in_folder(&folder);
    cargo("fetch --locked").needed("a package registry for Bevy's crates")?;
    BEVY.iter().try_for_each(|args| cargo(args).done_within(BEVY_DEADLINE))
}

/// Plays one round with the example `agones` and the SDK server that Agones puts into every pod, in its local mode. This proves that the
/// real interface accepts the calls. The example's own tests check their order.
pub(crate) fn agones(workspace: &Workspace) -> Result<(), Stop> {
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
    wait_until("the round is not over", CLIENT_DEADLINE, || {
        if sdk.is_done()? {
            return Err(Stop::failed("the SDK server ended before the round"));
        }
        Ok(client.is_done()? && server.is_done()?)
    })?;
    let output = server.output();
    print!("{}{output}", client.output());
    check_agones_lines(&output)
}

fn check_agones_lines(output: &str) -> Result<(), Stop> {
    let mut lines = output.lines();
    let missing = AGONES_LINES.into_iter().find(|part| !lines.any(|line| line.contains(part)));
    missing.map_or(Ok(()), |part| Err(Stop::failed(format!("the server did not print `{part}` in order"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_agones_are_complete_and_in_order() {
        let good = "Agones: ready\nAgones: this server is Ready\n1 players came; over\nAgones: shutdown\n";
        assert!(check_agones_lines(good).is_ok());
        for bad in
            ["", "Agones: ready\n2 players came\n", "Agones: shutdown\nAgones: ready\n1 players came\n"]
        {
            assert!(matches!(check_agones_lines(bad), Err(Stop::Failed(why)) if why.contains('`')), "{bad}");
        }
    }
}
