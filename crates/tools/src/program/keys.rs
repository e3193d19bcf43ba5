//! `drumfire`: keys, tokens, and the view of a running server.
//!
//! The commands read their key files, not the parser. A key file is created with permissions for its owner only. An existing file is
//! never overwritten.

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser};
use drumfire::control::SurveyOrder;
use drumfire::error::KeyTextError;
use drumfire::tokens::{TokenKey, TokenMasterKey, TokenRequest};
use drumfire::{PlayerId, ServerKey, ServerPublicKey};

use super::write_stdout;
use crate::error::Error;
use crate::values::{number, seconds};

/// Keys and tokens for drumfire servers, and a view of running ones.
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(name = "drumfire", version, arg_required_else_help = true)]
pub(crate) enum KeysArgs {
    /// Makes a new key and writes it to a file that only its owner can read
    Keygen(Keygen),
    /// Prints the public key that belongs to a server's key file
    Public {
        /// The server's key file
        #[arg(long, value_name = "FILE")]
        server: PathBuf,
    },
    /// Issues a connect token and prints it
    Token(Token),
    /// Shows a running server, and closes, bans, and traces its connections
    Top(Top),
}

/// The flags of `drumfire top`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(group = ArgGroup::new("socket").args(["path", "control"]).required(true))]
pub(crate) struct Top {
    /// The server's control socket
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// The server's control socket, as a flag
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Which connections come first: rtt, loss, queue or rate
    #[arg(long, value_name = "ORDER", default_value = "rtt", value_parser = order)]
    pub order: SurveyOrder,
    /// Print the rates of one second as text, and end
    #[arg(long)]
    pub once: bool,
    /// Use no colors; a NO_COLOR in the environment does the same
    #[arg(long)]
    pub no_color: bool,
}

/// The flags of `drumfire keygen`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(group = ArgGroup::new("key").args(["server", "master", "token_key"]).required(true).multiple(true))]
pub(crate) struct Keygen {
    /// A server's secret key; its public key is printed
    #[arg(long, value_name = "FILE")]
    pub server: Option<PathBuf>,
    /// The master key of a backend, from which the token keys of its servers are derived
    #[arg(long, value_name = "FILE")]
    pub master: Option<PathBuf>,
    /// A server's token key; needs --from and --name
    #[arg(long, value_name = "FILE", requires = "from", requires = "name")]
    pub token_key: Option<PathBuf>,
    /// The master key file to derive from
    #[arg(long, value_name = "FILE", requires = "token_key")]
    pub from: Option<PathBuf>,
    /// The backend's name for the server
    #[arg(long, value_name = "NAME", requires = "token_key")]
    pub name: Option<String>,
    /// Distinguishes keys of one server: count up to rotate
    #[arg(long, value_name = "N", default_value = "1", value_parser = number(1..=u32::MAX - 1))]
    pub key_id: u32,
}

/// The flags of `drumfire token`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// The server's token key file
    #[arg(long, value_name = "FILE")]
    pub token_key: PathBuf,
    /// The server's public key, as `drumfire public` prints it
    #[arg(long, value_name = "KEY")]
    pub server: ServerPublicKey,
    /// The server's address as players reach it
    #[arg(long, value_name = "IP:PORT", value_parser = address)]
    pub address: SocketAddr,
    /// The player, as a number or a UUID
    #[arg(long, value_name = "ID", value_parser = player)]
    pub player: PlayerId,
    /// The game and its build, as the server has it
    #[arg(long, value_name = "N", default_value = "0", value_parser = number(0..=u64::MAX))]
    pub protocol_id: u64,
    /// The match or instance, as the server has it
    #[arg(long, value_name = "N", default_value = "0", value_parser = number(0..=u64::MAX))]
    pub audience: u64,
    /// How long the token is valid, 1 to 600 seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds(1..=600))]
    pub life: Duration,
    /// How long the session may last
    #[arg(long, value_name = "SECONDS", value_parser = seconds(1..=u64::MAX))]
    pub session: Option<Duration>,
    /// Players with the same key share a worker
    #[arg(long, value_name = "N", value_parser = number(0..=u64::MAX))]
    pub placement_key: Option<u64>,
    /// Data about the player for the server, up to 256 bytes
    #[arg(long, value_name = "TEXT", default_value = "", value_parser = user_data, hide_default_value = true)]
    pub user_data: String,
}

#[cfg(any(test, feature = "top"))]
impl Top {
    /// The path of the control socket.
    pub(crate) fn socket(&self) -> PathBuf {
        // The parser requires one of the two.
        self.path.clone().or_else(|| self.control.clone()).unwrap_or_default()
    }
}

fn order(text: &str) -> Result<SurveyOrder, String> {
    Ok(match text {
        "rtt" => SurveyOrder::RoundTrip,
        "loss" => SurveyOrder::Loss,
        "queue" => SurveyOrder::Queue,
        "rate" => SurveyOrder::Rate,
        _ => return Err("give rtt, loss, queue or rate".to_owned()),
    })
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let reachable = |address: &SocketAddr| address.port() != 0 && !address.ip().is_unspecified();
    text.parse().ok().filter(reachable).ok_or_else(|| {
        "give an IP address and a port that players can reach, such as 203.0.113.7:7777; names are not resolved"
            .to_owned()
    })
}

/// Parses a number, or the 32 hexadecimal digits of a UUID.
fn player(text: &str) -> Result<PlayerId, String> {
    let digits = text.replace('-', "");
    let is_uuid = digits.len() == 32 && (text.len() == 32 || text.len() == 36) && !text.starts_with('-');
    let id = if is_uuid { u128::from_str_radix(&digits, 16).ok() } else { text.parse().ok() };
    id.map(PlayerId).ok_or_else(|| "give a number or a UUID".to_owned())
}

fn user_data(text: &str) -> Result<String, String> {
    if text.len() > 256 {
        return Err(format!("it has {} bytes; give up to 256 bytes", text.len()));
    }
    Ok(text.to_owned())
}

pub(super) fn run(args: KeysArgs) -> Result<(), Error> {
    match args {
        KeysArgs::Keygen(keygen) => generate(&keygen),
        KeysArgs::Public { server } => print_line(&read::<ServerKey>("--server", &server)?.public()),
        KeysArgs::Token(token) => issue(&token),
        KeysArgs::Top(top) => crate::top::run(&top),
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

fn issue(token: &Token) -> Result<(), Error> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn players_are_numbers_or_uuids() {
        let id = |text| player(text).map(|player| player.0).ok();
        assert_eq!(id("42"), Some(42));
        assert_eq!(id("340282366920938463463374607431768211455"), Some(u128::MAX));
        assert_eq!(id("00000000-0000-0000-0000-00000000002a"), Some(42));
        assert_eq!(id("0000000000000000000000000000002a"), Some(42));
        for bad in ["", "-1", "x", "340282366920938463463374607431768211456", "0000-2a"] {
            assert_eq!(id(bad), None, "{bad}");
        }
        assert_eq!(id("g0000000000000000000000000000000"), None);
    }
}
