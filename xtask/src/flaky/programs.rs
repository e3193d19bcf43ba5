//! The test programs of a build, as cargo's messages list them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::run::{CommandLine, Stop, word};
use crate::workspace::Workspace;

/// A target whose files have one of these opens sockets, or starts programs that do. A target that has one only in its documentation
/// runs more often than necessary.
const SOCKET_WORDS: [&str; 6] = [
    "CARGO_BIN_EXE_",
    "Client::connect",
    "ReuseportGroup::bind(",
    "Server::bind(",
    "UdpSocket::bind(",
    "drumfire_server_bind(",
];

/// A test program.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// Package and target, with the kind where two targets could have one name: `drumfire-socket/it`.
    pub(super) name: String,
    /// The name of its package.
    package: String,
    /// The folder of its package, where it runs.
    pub(super) folder: PathBuf,
    executable: PathBuf,
    /// Arguments, for the tests of this task.
    arguments: Vec<String>,
    /// Whether its tests open sockets.
    pub(super) opens_sockets: bool,
}

impl Program {
    /// Returns the command that runs it as cargo does.
    pub(super) fn command(&self) -> CommandLine {
        CommandLine::new(&word(&self.executable), &self.arguments)
            .env("CARGO_MANIFEST_DIR", &word(&self.folder))
            .env("CARGO_PKG_NAME", &self.package)
    }
}

/// Returns the test programs that these messages of cargo name, in the order of their names.
///
/// # Errors
/// [`Stop::Failed`] when a message is not one that cargo documents, or there is no program.
pub(super) fn listed(workspace: &Workspace, messages: &str) -> Result<Vec<Program>, Stop> {
    let mut programs = Vec::new();
    for line in messages.lines() {
        let message: Value =
            serde_json::from_str(line).map_err(|why| Stop::failed(format!("cargo: {why}: {line}")))?;
        if message["reason"] == "compiler-artifact" && message["profile"]["test"] == true {
            programs.extend(program(workspace, &message)?);
        }
    }
    if programs.is_empty() {
        return Err(Stop::failed("cargo built no test program"));
    }
    programs.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(programs)
}

/// Returns the program of an artifact, if it is one.
fn program(workspace: &Workspace, artifact: &Value) -> Result<Option<Program>, Stop> {
    let Some(executable) = artifact["executable"].as_str() else { return Ok(None) };
    let text = |value: &Value| {
        value.as_str().map(str::to_owned).ok_or_else(|| Stop::failed(format!("cargo: what is {artifact}?")))
    };
    let (target, kind) = (text(&artifact["target"]["name"])?, text(&artifact["target"]["kind"][0])?);
    let manifest = PathBuf::from(text(&artifact["manifest_path"])?);
    let folder = manifest.parent().unwrap_or(&workspace.root).to_owned();
    let source = PathBuf::from(text(&artifact["target"]["src_path"])?);
    let package = workspace.packages.iter().find(|package| workspace.root.join(&package.folder) == folder);
    let package = package.map_or_else(|| target.clone(), |package| package.name.clone());
    let suffix = if kind == "test" { String::new() } else { format!(" {kind}") };
    Ok(Some(Program {
        name: format!("{package}/{target}{suffix}"),
        package,
        folder,
        executable: executable.into(),
        arguments: Vec::new(),
        opens_sockets: opens_sockets(&source),
    }))
}

/// Returns whether the files of a target say that it opens sockets: one file, or the folder around a `main.rs` or a `lib.rs`.
fn opens_sockets(source: &Path) -> bool {
    let has_folder = source.file_name().is_some_and(|name| name == "main.rs" || name == "lib.rs");
    match source.parent().filter(|_| has_folder) {
        Some(folder) => has_socket_word(folder),
        None => has_socket_word(source),
    }
}

/// Returns whether a file, or any file below a folder, has one of [`SOCKET_WORDS`].
fn has_socket_word(path: &Path) -> bool {
    if let Ok(entries) = fs::read_dir(path) {
        return entries.flatten().any(|entry| has_socket_word(&entry.path()));
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    SOCKET_WORDS.iter().any(|word| text.contains(word))
}

/// Programs for the tests of this task.
#[cfg(test)]
pub(super) mod samples {
    use super::Program;

    /// A shell that runs a script.
    pub(in super::super) fn shell(name: &str, script: &str, opens_sockets: bool) -> Program {
        Program {
            name: name.to_owned(),
            package: "shell".to_owned(),
            folder: ".".into(),
            executable: "sh".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            opens_sockets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(folder: &str, source: &str, kind: &str, name: &str) -> Value {
        let root = Workspace::load().unwrap().root;
        let path = |path: &str| word(&root.join(folder).join(path));
        serde_json::json!({
            "reason": "compiler-artifact",
            "manifest_path": path("Cargo.toml"),
            "target": { "name": name, "kind": [kind], "src_path": path(source) },
            "profile": { "test": true },
            "executable": "/built/it",
        })
    }

    #[test]
    fn test_programs_are_found_in_the_messages_of_cargo() {
        let workspace = Workspace::load().unwrap();
        let mut library = artifact("crates/wire", "src/lib.rs", "lib", "drumfire_wire");
        library["executable"] = Value::Null;
        let messages = [
            artifact("crates/socket", "tests/it/main.rs", "test", "it"),
            artifact("crates/proto", "tests/core/main.rs", "test", "core"),
            library,
            serde_json::json!({ "reason": "build-finished", "success": true }),
        ];
        let messages = messages.map(|message| message.to_string()).join("\n");
        let programs = listed(&workspace, &messages).unwrap();
        let found: Vec<_> = programs.iter().map(|it| (it.name.as_str(), it.opens_sockets)).collect();
        assert_eq!(found, [("drumfire-proto/core", false), ("drumfire-socket/it", true)]);
        let command = programs[1].command().to_string();
        assert!(command.contains("CARGO_PKG_NAME=drumfire-socket /built/it"), "{command}");
        assert!(listed(&workspace, "no message").is_err() && listed(&workspace, "").is_err());
    }

    #[test]
    fn targets_that_open_sockets_are_told_from_those_in_virtual_time() {
        let root = Workspace::load().unwrap().root;
        let opens = |path: &str| opens_sockets(&root.join(path));
        for path in [
            "crates/socket/tests/allocations.rs",
            "crates/socket/src/lib.rs",
            "crates/drumfire/tests/it/main.rs",
            "crates/drumfire/tests/restart/main.rs",
            "crates/drumfire/src/lib.rs",
            "crates/ffi/tests/boundary.rs",
            "crates/tools/tests/programs/main.rs",
            "examples/echo.rs",
        ] {
            assert!(opens(path), "{path}");
        }
        for path in ["proto/tests/core/main.rs", "proto/src/lib.rs", "drumfire/tests/metrics.rs"] {
            assert!(!opens(&format!("crates/{path}")), "{path}");
        }
    }
}
