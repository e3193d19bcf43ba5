//! Bad input through the real programs: an error that names the flag and the accepted values, and exit code 2.
//!
//! The unit tests of the command line cover every flag. These tests cover the exit code, the streams, and errors of the system.

use std::net::{TcpListener, UdpSocket};
use std::process::Command;

use tempfile::tempdir;

#[cfg(not(feature = "top"))]
use crate::process::DRUMFIRE;
use crate::process::{Program, RECEIVER, SENDER, file, start};
use crate::report::IS_NATIVE;

/// Checks that a program prints one error that names these texts, and nothing else, and ends with code 2. An error of the system is
/// one line. An error of the command line also points to the help.
#[track_caller]
pub(crate) fn assert_refused(program: Program, texts: &[&str]) {
    let ended = program.end().with_code(2);
    assert_eq!(ended.stdout, [""; 0], "{ended:#?}");
    let error = ended.usage_error();
    assert!(texts.iter().all(|text| error.contains(text)), "{error}");
    assert!(ended.stderr.len() == 1 || error.contains("try '--help'"), "{ended:#?}");
}

/// A receiver that may open 64 files.
fn with_few_files(flags: &str) -> Program {
    let line = format!("ulimit -n 64; exec \"$0\" --bind 127.0.0.1:0 {flags}");
    Program::start(Command::new("sh").args(["-c", &line, RECEIVER]))
}

#[test]
fn bad_input_ends_either_program_with_code_2() {
    // A label longer than 63 bytes, which no resolver sends to the network.
    let unknown = format!("{}.invalid:9000", "a".repeat(64));
    let folder = tempdir().unwrap();
    let (path, missing) = (folder.path().display(), file(&folder, "no/such/folder/a.svg"));
    let metrics = "--metrics-address 192.0.2.1:9464";
    for (program, flags, flag, advice) in [
        (RECEIVER, "--threads 0", "--threads <N>", "1 to 1024"),
        // No host has this address, which is reserved for documentation (RFC 5737).
        (RECEIVER, "--bind 192.0.2.1:0", "--bind 192.0.2.1:0", "give one of its own"),
        (RECEIVER, &format!("--bind 127.0.0.1:0 {metrics}"), metrics, "give one of its own"),
        (RECEIVER, &format!("--bind {unknown}"), "--bind", "give an address"),
        (SENDER, &format!("--to {unknown}"), "--to", "give an address"),
        (RECEIVER, &format!("--with-sender --json {missing}"), "--json", "in a folder that exists"),
        (RECEIVER, &format!("--with-sender --csv {missing}"), "--csv", "in a folder that exists"),
        (RECEIVER, &format!("--with-sender --plot {missing}"), "--plot", "in a folder that exists"),
        (SENDER, &format!("--to 127.0.0.1:9 --json {path}"), &format!("--json {path}"), "in a folder"),
    ] {
        assert_refused(start(program, flags), &[flag, advice]);
    }
}

#[test]
fn a_port_in_use_by_udp_or_tcp_names_the_flag() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [udp.local_addr().unwrap(), tcp.local_addr().unwrap()] {
        for flags in ["", "--with-sender --threads 1"] {
            let line = format!(
                "error: --bind {address}: the port is in use; choose another port, or 0 for a free one"
            );
            assert_refused(start(RECEIVER, &format!("--bind {address} {flags}")), &[&line]);
        }
    }
}

#[test]
fn more_threads_or_flows_than_descriptors_name_the_flag_once() {
    for (flags, start) in [
        ("--threads 20", "error: --threads 20: each thread takes"),
        ("--threads 100", "error: --threads 100: each thread takes"),
        ("--with-sender --threads 1 --flows 100", "error: --flows 100: each flow takes"),
        ("--with-sender --threads 1 --flows 1000 --sender-threads 4", "error: --flows 1000: each flow takes"),
    ] {
        // Other platforms refuse several threads for another reason.
        if IS_NATIVE || flags.starts_with("--with-sender") {
            assert_refused(with_few_files(flags), &[start, "raise the limit with `ulimit -n"]);
        }
    }
}

#[cfg(not(feature = "top"))]
#[test]
fn a_build_without_the_view_names_the_feature() {
    for (program, flags) in [(DRUMFIRE, "top --control x"), (RECEIVER, "--tui")] {
        let texts = ["this build has no live view; build it with `cargo build", "--features top"];
        assert_refused(start(program, flags), &texts);
    }
}

#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
#[test]
fn a_setting_that_the_platform_lacks_names_the_flag() {
    for (flags, flag, way_out) in [
        ("--threads 2", "--threads 2", "give --threads 1"),
        ("--drain recvmmsg", "--drain", "use recv"),
        ("--wait gather", "--wait", "use notify"),
    ] {
        assert_refused(start(RECEIVER, &format!("--bind 127.0.0.1:0 {flags}")), &[flag, way_out]);
    }
}
