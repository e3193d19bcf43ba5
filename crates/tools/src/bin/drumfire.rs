//! `drumfire`: makes keys, issues tokens, and shows a running server. `drumfire --help` lists the commands.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    drumfire_tools::program::drumfire(std::env::args_os())
}
