//! The error of a build without the live view.

use std::process::Command;

use crate::process::{DRUMFIRE, Program, RECEIVER};

#[test]
fn a_build_without_the_view_names_the_feature() {
    for (program, args) in [(DRUMFIRE, &["top", "--control", "x"][..]), (RECEIVER, &["--tui"])] {
        let ended = Program::start(Command::new(program).args(args)).end().with_code(2);
        let line = ended.only_error_line();
        assert!(line.contains("this build has no live view; build it with `cargo build"), "{line}");
        assert!(line.contains("--features top"), "{line}");
    }
}
