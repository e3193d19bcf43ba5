//! `sender`: sends numbered datagrams to a `receiver` and compares both books. `sender --help` lists the flags.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    drumfire_tools::program::sender(std::env::args_os())
}
