//! The command line of `sender`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

use crate::error::Error;
use crate::report::Flags;
use crate::traffic::Traffic;
use crate::values::{self, Target};

/// Sends numbered datagrams to a `receiver` and compares both books.
#[derive(Clone, Debug, PartialEq, Parser)]
#[command(name = "sender", version)]
pub struct SenderArgs {
    /// Where the receiver is
    #[arg(long, value_name = "HOST:PORT")]
    pub to: Target,
    #[command(flatten)]
    #[expect(missing_docs, reason = "a doc comment on a flattened field would become help text")]
    pub traffic: Traffic,
    /// Write the report as JSON; - is standard output
    #[arg(long, value_name = "FILE", value_parser = values::json_file)]
    pub json: Option<PathBuf>,
}

impl SenderArgs {
    /// Reads the command line, without the name of the program.
    ///
    /// # Errors
    ///
    /// The help or the error to print.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let (args, _) = super::parse::<Self>(args)?;
        args.traffic.check("--threads").map_err(Error::of_command::<Self>)?;
        Ok(args)
    }

    /// Returns the flags for the report, defaults included. The destination of the report is no part of the measurement.
    #[must_use]
    pub fn flags(&self) -> Flags {
        let mut flags = self.traffic.flags();
        flags.insert("to".to_owned(), self.to.text.as_str().into());
        flags
    }
}
