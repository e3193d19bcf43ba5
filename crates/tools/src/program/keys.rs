//! `drumfire keygen`, `drumfire public` and `drumfire token`.
//!
//! A key file is created with permissions for its owner only. An existing file is never overwritten.

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::str::FromStr;

use drumfire::ServerKey;
use drumfire::error::KeyTextError;
use drumfire::tokens::{TokenKey, TokenMasterKey, TokenRequest};

use super::write_stdout;
use crate::cli::{Keygen, KeysArgs, TokenArgs};
use crate::error::Error;

pub(super) fn run(args: KeysArgs) -> Result<(), Error> {
    match args {
        KeysArgs::Keygen(keygen) => generate(&keygen),
        KeysArgs::Public { server } => print_line(&read::<ServerKey>("--server", &server)?.public()),
        KeysArgs::Token(token) => issue(&token),
        KeysArgs::Top(top) => super::view::run(&top),
    }
}

fn generate(keygen: &Keygen) -> Result<(), Error> {
    let Keygen { server, master, token_key, from, name, key_id } = keygen;
    if let Some(path) = server {
        let key = ServerKey::generate().map_err(Error::run)?;
        write("--server", path, &key.to_text())?;
        print_line(&key.public())?;
    }
    if let Some(path) = master {
        write("--master", path, &TokenMasterKey::generate().map_err(Error::run)?.to_text())?;
    }
    if let (Some(path), Some(from), Some(name)) = (token_key, from, name) {
        let master: TokenMasterKey = read("--from", from)?;
        write("--token-key", path, &master.token_key(*key_id, name).map_err(Error::run)?.to_text())?;
    }
    Ok(())
}

fn issue(token: &TokenArgs) -> Result<(), Error> {
    let key: TokenKey = read("--token-key", &token.token_key)?;
    let mut request = TokenRequest::new(token.player, token.address, token.server)
        .protocol_id(token.protocol_id)
        .audience(token.audience)
        .lifetime(token.life)
        .user_data(token.user_data.as_bytes());
    request.session = token.session;
    request.placement_key = token.placement_key;
    print_line(&request.issue(&key).map_err(Error::run)?.to_text())
}

fn read<K: FromStr<Err = KeyTextError>>(flag: &str, path: &Path) -> Result<K, Error> {
    let subject = format!("{flag} {}", path.display());
    let about = |problem: String, advice: &str| Error::usage(&subject, problem, advice);
    let text = fs::read_to_string(path).map_err(|error| {
        let problem = match error.kind() {
            io::ErrorKind::NotFound => "there is no such file".to_owned(),
            io::ErrorKind::InvalidData => "it is not text".to_owned(),
            _ => format!("it cannot be read ({error})"),
        };
        about(problem, "give a file that `drumfire keygen` wrote")
    })?;
    text.parse().map_err(|error: KeyTextError| {
        about(error.to_string(), "give the right file, or make one with `drumfire keygen`")
    })
}

fn write(flag: &str, path: &Path, text: &str) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let subject = format!("{flag} {}", path.display());
            Error::usage(&subject, "the file exists, and a key is never overwritten", "give another name")
        }
        _ => Error::for_file(flag, path, &error),
    })?;
    let written = writeln!(file, "{text}").and_then(|()| file.sync_all());
    written.map_err(|error| Error::for_file(flag, path, &error))
}

fn print_line(what: &dyn Display) -> Result<(), Error> {
    write_stdout(&format!("{what}\n"))
}
