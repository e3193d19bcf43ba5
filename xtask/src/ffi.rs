//! `cargo xtask ffi`: the programs in C and C# that stand beside the C interface, compiled without a warning and run against the
//! server of the example `echo`.
//!
//! The C program runs twice: with the shared library, and with the static one under the address sanitizer, which finds leaks
//! too. C++ and C# are tried where there is a compiler. What single calls answer is tested in `crates/ffi`.

use std::path::PathBuf;
use std::time::Duration;

use crate::example;
use crate::run::{CommandLine, Interrupt, Stop, word};
use crate::running::Running;
use crate::workspace::Workspace;

const PACKAGE: &str = "drumfire-ffi";
const EXAMPLE: &str = "echo";
/// A client ends within a second or two, on a machine that is busy within this time.
const CLIENT_DEADLINE: Duration = Duration::from_secs(60);
/// What a C compiler is told of the language and of what it should complain of.
const C: [&str; 4] = ["-std=c99", "-Wall", "-Wextra", "-Werror"];
/// The same for what C++ programs see of it.
const CPP: [&str; 6] = ["-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-xc++"];
const SANITIZE: [&str; 3] = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
/// What the static library needs of the system.
const SYSTEM: [&str; 3] = ["-pthread", "-ldl", "-lm"];

/// Compiles and runs everything.
///
/// # Errors
/// [`Stop::Interrupted`] on Ctrl-C, [`Stop::Failed`] when something does not compile, or a client does not get its answers.
pub(crate) fn run() -> Result<(), Stop> {
    let interrupt = Interrupt::on_ctrl_c()?;
    let workspace = Workspace::load()?;
    CommandLine::new("cargo", &["build", "--release", "-p", PACKAGE]).done(&workspace.root)?;
    example::build(&workspace, EXAMPLE)?;

    let here = Place::of(&workspace)?;
    let mut clients = vec![("C", here.shared()?), ("C, static, sanitized", here.sanitized()?)];
    here.cpp()?;
    clients.extend(here.mono()?.map(|client| ("C#", client)));
    for (name, client) in clients {
        let (mut server, address, public) = example::serve(&workspace, EXAMPLE)?;
        let mut client = Running::start("client", &client.arg(address.to_string()).arg(public))?;
        example::wait_for_client(&mut client, &mut server, CLIENT_DEADLINE, &interrupt)?;
        print!("{name}: {}", client.output());
    }
    Ok(())
}

/// Where everything is.
struct Place {
    root: PathBuf,
    /// The package's folder.
    package: PathBuf,
    /// Of the libraries.
    libraries: PathBuf,
    /// For the programs.
    programs: PathBuf,
}

impl Place {
    fn of(workspace: &Workspace) -> Result<Self, Stop> {
        let place = Self {
            root: workspace.root.clone(),
            package: workspace.root.join("crates/ffi"),
            libraries: workspace.target.join("release"),
            programs: workspace.target.join("ffi"),
        };
        let made = std::fs::create_dir_all(&place.programs);
        made.map_err(|why| Stop::failed(format!("{}: {why}", place.programs.display())))?;
        Ok(place)
    }

    /// The C program over the shared library.
    fn shared(&self) -> Result<CommandLine, Stop> {
        let libraries = word(&self.libraries);
        let link = ["-L", &libraries, "-ldrumfire_ffi", &format!("-Wl,-rpath,{libraries}")];
        self.c("echo_client", &[], &link)
    }

    /// The C program with the library inside, under the sanitizers.
    fn sanitized(&self) -> Result<CommandLine, Stop> {
        let library = word(&self.libraries.join("libdrumfire_ffi.a"));
        let link = [&[library.as_str()][..], &SYSTEM].concat();
        self.c("echo_client_sanitized", &SANITIZE, &link)
    }

    fn c(&self, name: &str, flags: &[&str], link: &[&str]) -> Result<CommandLine, Stop> {
        let (include, program) = (word(&self.package.join("include")), word(&self.programs.join(name)));
        let source = word(&self.package.join("examples/c/echo_client.c"));
        let args = [&C[..], flags, &["-I", &include, &source, "-o", &program], link].concat();
        CommandLine::new("cc", &args).done(&self.root)?;
        Ok(CommandLine::new(&program, &[""; 0]))
    }

    /// The header as C++ reads it, where there is a compiler for that.
    fn cpp(&self) -> Result<(), Stop> {
        let header = word(&self.package.join("include/drumfire.h"));
        if self.has("c++") {
            return CommandLine::new("c++", &[&CPP[..], &[&header]].concat()).done(&self.root);
        }
        println!("C++: not tried, there is no c++");
        Ok(())
    }

    /// The C# program, where there is mono.
    fn mono(&self) -> Result<Option<CommandLine>, Stop> {
        if !self.has("mcs") || !self.has("mono") {
            println!("C#: not tried, there is no mono (Debian: mono-mcs, mono-runtime)");
            return Ok(None);
        }
        let program = word(&self.programs.join("EchoClient.exe"));
        let sources = ["Drumfire.cs", "EchoClient.cs"];
        let sources = sources.map(|name| word(&self.package.join("examples/unity").join(name)));
        let out = format!("-out:{program}");
        let args = ["-warnaserror", "-langversion:7", &out, &sources[0], &sources[1]];
        CommandLine::new("mcs", &args).done(&self.root)?;
        let run = CommandLine::new("mono", &[program]);
        Ok(Some(run.env("LD_LIBRARY_PATH", &word(&self.libraries))))
    }

    fn has(&self, program: &str) -> bool {
        CommandLine::new(program, &["--version"]).output(&self.root).is_ok()
    }
}
