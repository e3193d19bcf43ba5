//! The command lines of `receiver`, `sender`, and `drumfire`.
//!
//! Parsing opens no socket and no file. It resolves host names. For bad input a program prints an error that names the flag and
//! the accepted values, and exits with code 2.

mod keys;
mod receiver;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::iter;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Parser};

use crate::error::Error;
use crate::report::{Flags, flags_of};
use crate::values::{self, Target};

pub use crate::traffic::Traffic;
pub(crate) use keys::{Keygen, KeysArgs, Token as TokenArgs, Top as TopArgs};
pub(crate) use receiver::ReceiverArgs;

/// Reads a command line that does not begin with the name of the program.
fn parse<P: Parser>(args: impl IntoIterator<Item = OsString>) -> Result<(P, ArgMatches), clap::Error> {
    let command = P::command().mut_args(take_negative_numbers);
    let command = command.mut_subcommands(|command| command.mut_args(take_negative_numbers));
    let name = OsString::from(command.get_name());
    let matches = command.try_get_matches_from(iter::once(name).chain(args))?;
    Ok((P::from_arg_matches(&matches)?, matches))
}

/// Lets `--threads -4` be an error about the value of `--threads`, not about an unknown flag.
fn take_negative_numbers(arg: Arg) -> Arg {
    let has_value = arg.get_action().takes_values();
    arg.allow_negative_numbers(has_value)
}

impl Error {
    /// The error as one of the command line of `P`.
    fn of_command<P: Parser>(self) -> clap::Error {
        P::command().error(ErrorKind::ValueValidation, self)
    }
}

/// Sends numbered datagrams to a `receiver` and compares both books.
#[derive(Clone, Debug, PartialEq, Parser)]
#[command(name = "sender", version)]
pub(crate) struct SenderArgs {
    /// Where the receiver is
    #[arg(long, value_name = "HOST:PORT")]
    pub to: Target,
    #[command(flatten)]
    pub traffic: Traffic,
    /// Write the report as JSON; - is standard output
    #[arg(long, value_name = "FILE", value_parser = values::json_file)]
    pub json: Option<PathBuf>,
}

impl SenderArgs {
    /// Reads the command line, without the name of the program.
    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let (args, _) = parse::<Self>(args)?;
        args.traffic.check("--threads").map_err(Error::of_command::<Self>)?;
        Ok(args)
    }

    /// Returns the flags for the report, defaults included. The destination of the report is no part of the measurement.
    pub(crate) fn flags(&self) -> Flags {
        let mut flags = flags_of(&self.traffic);
        flags.insert("to".to_owned(), self.to.text.as_str().into());
        flags
    }
}
