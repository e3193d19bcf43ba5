//! Ctrl-C and kills: every program ends by itself, with its report or with one error line.

use crate::process::{Program, receiver, sender, waiting_receiver};
use crate::report::{Report, SEVERAL};
use crate::two_processes::assert_agree;

/// A run that is longer than a test waits, so it has to be interrupted.
const FOREVER: &str = "--secs 3600 --rate 2000 --json -";

/// A receiver and a sender that are in the middle of a run.
fn running() -> (Program, Program) {
    let (mut receiver, address) = waiting_receiver(&format!("--threads {SEVERAL} --json -"));
    let sender = sender(address, FOREVER);
    receiver.error_line_with("pps");
    (receiver, sender)
}

#[test]
fn ctrl_c_ends_a_receiver_without_a_sender() {
    let (receiver, _) = waiting_receiver("");
    receiver.interrupt();
    let ended = receiver.end().with_code(1);
    assert!(ended.only_error_line().contains("no sender came"), "{ended:#?}");
}

#[test]
fn ctrl_c_ends_a_run_with_its_report() {
    let mut program = receiver(&format!("--with-sender --threads {SEVERAL} {FOREVER}"));
    program.error_line_with("pps");
    program.interrupt_group();
    Report::of(&program.end().with_code(0));
}

#[test]
fn ctrl_c_for_either_program_ends_both_with_their_books() {
    for is_receiver in [true, false] {
        let (receiver, sender) = running();
        if is_receiver { &receiver } else { &sender }.interrupt();
        assert_agree(&receiver.end().with_code(0), &sender.end().with_code(0));
    }
}

#[test]
fn ctrl_c_ends_a_sender_without_a_receiver() {
    // The kernel accepts connections, but no program reads them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sender = sender(silent.local_addr().unwrap(), FOREVER);
    let (_held, _) = silent.accept().unwrap();
    sender.interrupt();
    let ended = sender.end().with_code(1);
    assert!(ended.only_error_line().contains("stopped before anything was sent"), "{ended:#?}");
}

#[test]
fn a_sender_that_is_killed_leaves_the_receiver_with_one_line() {
    let (receiver, sender) = running();
    sender.kill();
    let ended = receiver.end().with_code(1);
    assert_eq!(ended.stdout, [""; 0]);
    assert!(ended.error_line().contains("closed the control connection before `finished`"), "{ended:#?}");
}

#[test]
fn a_receiver_that_is_killed_leaves_the_sender_with_one_line() {
    let (receiver, sender) = running();
    receiver.kill();
    let ended = sender.end().with_code(1);
    assert!(ended.only_error_line().contains("closed the control connection"), "{ended:#?}");
    assert_eq!(ended.stdout, [""; 0]);
}
