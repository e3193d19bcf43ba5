//! The command line of `drumfire`: keys, tokens, and the view of a running server.
//!
//! What is in a key file is read by the program, not here.

use std::ffi::OsString;
use std::iter;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand};
use drumfire::{PlayerId, ServerPublicKey, SurveyOrder};

use super::values::Bad;
use super::{Stop, refusal};

/// What `drumfire` was asked to do.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum KeysArgs {
    /// Makes a new key and writes it to a file that nobody else can read
    Keygen(Keygen),
    /// Prints the public key that belongs to a server's key file
    Public {
        /// The server's key file
        #[arg(long, value_name = "FILE")]
        server: PathBuf,
    },
    /// Issues a connect token and prints it
    Token(Token),
    /// Shows a running server, and closes, bans and traces its connections
    Top(Top),
}

/// Which server is shown, and how.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(group = ArgGroup::new("socket").args(["path", "control"]).required(true))]
pub struct Top {
    /// The server's control socket
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// The server's control socket, as a flag
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Which connections come first: rtt, loss, queue or rate
    #[arg(long, value_name = "ORDER", default_value = "rtt", value_parser = order)]
    pub order: SurveyOrder,
    /// Print what two looks a second apart showed, as text, and end
    #[arg(long)]
    pub once: bool,
    /// Use no colours; so does a NO_COLOR that is set
    #[arg(long)]
    pub no_color: bool,
}

/// Which key is made, and where it goes.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(group = ArgGroup::new("key").args(["server", "master", "token_key"]).required(true).multiple(true))]
pub struct Keygen {
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
    /// Tells keys of one server apart: count up to rotate
    #[arg(long, value_name = "N", default_value = "1", value_parser = key_id, allow_negative_numbers = true)]
    pub key_id: u32,
}

/// What stands in a token.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The server's token key file
    #[arg(long, value_name = "FILE")]
    pub token_key: PathBuf,
    /// The server's public key
    #[arg(long, value_name = "KEY", value_parser = public_key)]
    pub server: ServerPublicKey,
    /// Where the server is
    #[arg(long, value_name = "IP:PORT", value_parser = address)]
    pub address: SocketAddr,
    /// Whom to let in: a number, or a UUID
    #[arg(long, value_name = "ID", value_parser = player, allow_negative_numbers = true)]
    pub player: PlayerId,
    /// The game and its build, as the server has it
    #[arg(long, value_name = "N", default_value = "0", value_parser = number::<u64>, allow_negative_numbers = true)]
    pub protocol_id: u64,
    /// The match or instance, as the server has it
    #[arg(long, value_name = "N", default_value = "0", value_parser = number::<u64>, allow_negative_numbers = true)]
    pub audience: u64,
    /// How long the token is good, 1 to 600 seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = life, allow_negative_numbers = true)]
    pub life: Duration,
    /// How long the session may last
    #[arg(long, value_name = "SECONDS", value_parser = session, allow_negative_numbers = true)]
    pub session: Option<Duration>,
    /// Players with the same key share a worker
    #[arg(long, value_name = "N", value_parser = number::<u64>, allow_negative_numbers = true)]
    pub placement_key: Option<u64>,
    /// What the server is to know of the player, up to 256 bytes
    #[arg(long, value_name = "TEXT", default_value = "", value_parser = user_data, hide_default_value = true)]
    pub user_data: String,
}

/// Keys and tokens for drumfire servers, and a view of running ones.
#[derive(Debug, Parser)]
#[command(name = "drumfire", version, arg_required_else_help = true)]
struct Flags {
    #[command(subcommand)]
    what: KeysArgs,
}

impl KeysArgs {
    /// Reads the command line, without the program's name.
    ///
    /// # Errors
    ///
    /// [`Stop`] with the help or the one line to show.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, Stop> {
        // The library puts the program's name into each command's usage line only where it is the first argument.
        let args = iter::once(OsString::from("drumfire")).chain(args);
        Ok(Flags::try_parse_from(args).map_err(|error| refusal::stop(&error))?.what)
    }
}

impl Top {
    /// The path of the control socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        // The parser requires one of both.
        self.path.clone().or_else(|| self.control.clone()).unwrap_or_default()
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, Bad> {
    text.parse().map_err(|_| Bad::new("not a whole number of 64 bits", "give 0 to 18446744073709551615"))
}

fn order(text: &str) -> Result<SurveyOrder, Bad> {
    Ok(match text {
        "rtt" => SurveyOrder::RoundTrip,
        "loss" => SurveyOrder::Loss,
        "queue" => SurveyOrder::Queue,
        "rate" => SurveyOrder::Rate,
        _ => return Err(Bad::new("not one of its choices", "give --order rtt, loss, queue or rate")),
    })
}

fn key_id(text: &str) -> Result<u32, Bad> {
    let id = text.parse().ok().filter(|id| (1..u32::MAX).contains(id));
    id.ok_or_else(|| Bad::new("not a key id", "give --key-id 1 to 4294967294"))
}

fn public_key(text: &str) -> Result<ServerPublicKey, Bad> {
    let way_out = "give the line that `drumfire public` prints";
    text.parse().map_err(|error: drumfire::KeyTextError| Bad::new(error.to_string(), way_out))
}

fn address(text: &str) -> Result<SocketAddr, Bad> {
    let bad = |problem| Bad::new(problem, "give an address that players can reach, such as 203.0.113.7:7777");
    let address: SocketAddr =
        text.parse().map_err(|_| bad("a token carries an IP address and a port, never a name"))?;
    if address.port() == 0 || address.ip().is_unspecified() {
        return Err(bad("nobody can connect there"));
    }
    Ok(address)
}

/// A number, or the 32 hexadecimal digits of a UUID.
fn player(text: &str) -> Result<PlayerId, Bad> {
    let digits = text.replace('-', "");
    let is_uuid = digits.len() == 32 && (text.len() == 32 || text.len() == 36) && !text.starts_with('-');
    let id = if is_uuid { u128::from_str_radix(&digits, 16).ok() } else { text.parse().ok() };
    id.map(PlayerId).ok_or_else(|| Bad::new("not a player's id", "give --player a number or a UUID"))
}

fn life(text: &str) -> Result<Duration, Bad> {
    let seconds = text.parse().ok().filter(|seconds| (1..=600).contains(seconds));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| Bad::new("a token is good for 1 s to 10 min", "give --life 1 to 600"))
}

fn session(text: &str) -> Result<Duration, Bad> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0);
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| Bad::new("not a number of seconds above 0", "give --session 3600, or leave it out"))
}

fn user_data(text: &str) -> Result<String, Bad> {
    if text.len() > 256 {
        return Err(Bad::new(format!("it has {} bytes", text.len()), "give --user-data up to 256 bytes"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn players_are_numbers_or_uuids() {
        let id = |text| player(text).map(|player| player.0);
        assert_eq!(id("42"), Ok(42));
        assert_eq!(id("340282366920938463463374607431768211455"), Ok(u128::MAX));
        assert_eq!(id("00000000-0000-0000-0000-00000000002a"), Ok(42));
        assert_eq!(id("0000000000000000000000000000002a"), Ok(42));
        for bad in [
            "",
            "-1",
            "x",
            "340282366920938463463374607431768211456",
            "0000-2a",
            "g0000000000000000000000000000000",
        ] {
            assert!(id(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_order_of_the_view_is_named() {
        let parse = |order: &str| {
            let args = ["top", "--control", "a.sock", "--order", order];
            let args = KeysArgs::parse(args.map(OsString::from)).map_err(|stop| format!("{stop:?}"))?;
            let KeysArgs::Top(top) = args else { panic!("the view") };
            Ok::<_, String>(top.order)
        };
        assert_eq!(parse("queue"), Ok(SurveyOrder::Queue));
        assert!(parse("ping").unwrap_err().contains("give --order rtt, loss, queue or rate"));
    }

    fn parse(line: &str) -> Result<KeysArgs, Stop> {
        KeysArgs::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn the_view_takes_its_socket_as_an_argument_or_a_flag() {
        for line in ["top a.sock", "top --control a.sock", "top --once a.sock"] {
            let KeysArgs::Top(top) = parse(line).unwrap() else { panic!("the view") };
            assert_eq!(top.socket(), PathBuf::from("a.sock"), "{line}");
        }
    }

    #[test]
    fn help_names_the_whole_command() {
        for (line, usage) in [
            ("", "Usage: drumfire <COMMAND>"),
            ("--help", "Usage: drumfire <COMMAND>"),
            (
                "keygen --help",
                "Usage: drumfire keygen [OPTIONS] <--server <FILE>|--master <FILE>|--token-key <FILE>>",
            ),
            (
                "token --help",
                "Usage: drumfire token [OPTIONS] --token-key <FILE> --server <KEY> --address <IP:PORT> --player <ID>",
            ),
            ("top --help", "Usage: drumfire top [OPTIONS] <PATH|--control <PATH>>"),
        ] {
            let Err(Stop::Shown(text)) = parse(line) else { panic!("no help for {line:?}") };
            assert!(text.contains(usage), "{line}: {text}");
        }
    }

    #[test]
    fn bad_command_lines_name_all_that_is_missing() {
        for (line, said) in [
            (
                "keygen",
                "--server, --master, --token-key: one of them is needed; give --server <FILE>, --master <FILE> or --token-key <FILE>",
            ),
            ("keygen --token-key x", "--from, --name: they are missing; give --from <FILE> --name <NAME>"),
            ("keygen --token-key x --from b", "--name: it is missing; give --name <NAME>"),
            (
                "token",
                "--token-key, --server, --address, --player: they are missing; \
                 give --token-key <FILE> --server <KEY> --address <IP:PORT> --player <ID>",
            ),
            ("public", "--server: it is missing; give --server <FILE>"),
            ("top", "PATH, --control: one of them is needed; give PATH or --control <PATH>"),
            ("top a.sock --control b.sock", "PATH: it cannot be given with --control; leave one of them out"),
            ("top a.sock b.sock", "b.sock: it follows no flag; --help lists every flag"),
            ("top --once --once a.sock", "--once: it is there twice; give it once"),
            (
                "token --address game.example:7777",
                "--address game.example:7777: a token carries an IP address and a port, never a name; \
                 give an address that players can reach, such as 203.0.113.7:7777",
            ),
        ] {
            let Err(Stop::Usage(error)) = parse(line) else { panic!("accepted: {line}") };
            assert_eq!(error.to_string(), said, "{line}");
        }
    }

    #[test]
    fn the_command_line_of_a_token_is_read() {
        let key = drumfire::ServerKey::dev().public();
        let args = format!("token --token-key a --server {key} --address [::1]:1 --player 7 --life 600");
        let args = args.split(' ').map(OsString::from);
        let KeysArgs::Token(token) = KeysArgs::parse(args).unwrap() else { panic!("a token") };
        assert_eq!((token.player, token.life, token.server), (PlayerId(7), Duration::from_secs(600), key));
    }
}
