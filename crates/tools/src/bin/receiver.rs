//! `receiver`: N threads share one UDP port and account for every datagram. `receiver --help` lists the flags.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    drumfire_tools::program::receiver(std::env::args_os())
}
