//! The command lines of `receiver`, `sender`, and `drumfire`.
//!
//! Parsing opens no socket and no file. It resolves host names. For bad input a program prints an error that names the flag and
//! the accepted values, and exits with code 2.

mod keys;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::iter;

use clap::error::ErrorKind;
use clap::{ArgMatches, Parser};

use crate::error::Error;

pub use crate::traffic::Traffic;
pub use crate::values::Target;
pub use keys::{Keygen, KeysArgs, Token as TokenArgs, Top as TopArgs};
pub use receiver::ReceiverArgs;
pub use sender::SenderArgs;

/// The first argument that makes `receiver` a sender. The flags of [`SenderArgs`] follow it.
pub const SENDER_MODE: &str = "__sender";

/// Reads a command line that does not begin with the name of the program.
fn parse<P: Parser>(args: impl IntoIterator<Item = OsString>) -> Result<(P, ArgMatches), clap::Error> {
    let name = OsString::from(P::command().get_name());
    let matches = P::command().try_get_matches_from(iter::once(name).chain(args))?;
    Ok((P::from_arg_matches(&matches)?, matches))
}

impl Error {
    /// The error as one of the command line of `P`.
    fn of_command<P: Parser>(self) -> clap::Error {
        P::command().error(ErrorKind::ValueValidation, self)
    }
}
