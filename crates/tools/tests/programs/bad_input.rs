//! Bad input through the real programs: one line that names the flag and the way out, and exit code 2.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::process::{Folder, Program, RECEIVER, SENDER};

/// The one line that these arguments get.
#[track_caller]
fn refusal(command: &mut Command) -> String {
    let ended = Program::start(command).end().with_code(2);
    assert_eq!(ended.stdout, [""; 0], "{ended:#?}");
    ended.only_error_line().to_owned()
}

#[track_caller]
fn assert_refused(program: &str, flags: &str, start: &str, way_out: &str) {
    let line = refusal(Command::new(program).args(flags.split_whitespace()));
    assert!(line.starts_with(&format!("error: {start}: ")), "{flags}: {line}");
    let (_, advice) = line.split_once("; ").unwrap_or_else(|| panic!("{flags}: no way out in {line}"));
    assert!(advice.contains(way_out), "{flags}: {line}");
}

#[test]
fn every_bad_flag_of_the_receiver_gets_its_line() {
    for (flags, start, way_out) in [
        ("--thread 3", "--thread", "did you mean --threads?"),
        ("--zzz", "--zzz", "--help"),
        ("stray", "stray", "--help"),
        ("--threads 0", "--threads 0", "give --threads 1 to 1024"),
        ("--threads 1025", "--threads 1025", "give --threads 1 to 1024"),
        ("--drain fast", "--drain fast", "recv|recvmmsg"),
        ("--gro maybe", "--gro maybe", "auto|on|off"),
        ("--drain recv --gro on", "--gro on", "--gro off"),
        ("--wait gather=0", "--wait gather=0", "gather=1"),
        ("--steer left", "--steer left", "hash|tag"),
        ("--stage close", "--stage close", "raw|parse|open|deliver"),
        ("--mode reliable-ordered", "--mode reliable-ordered", "add --stage deliver"),
        ("--stage open --mode packets", "--mode packets", "add --stage deliver"),
        ("--stage deliver --mode sorted", "--mode sorted", "packets|unreliable|unreliable-sequenced|"),
        ("--with-sender --stage deliver --mode unreliable --size 59", "--size 59", "give --size 60 to 1178"),
        (
            "--with-sender --stage deliver --mode unreliable --size 1179",
            "--size 1179",
            "give --size 60 to 1178",
        ),
        (
            "--with-sender --stage deliver --mode reliable-latest --size 1058",
            "--size 1058",
            "give --size 60 to 1057",
        ),
        ("--secs 0", "--secs 0", "give --secs 0.001 to 604800"),
        ("--with-sender --size 27", "--size 27", "give --size 28 to 65507"),
        ("--with-sender --size 65508", "--size 65508", "give --size 28 to 65507"),
        ("--with-sender --rate -1", "--rate -1", "give --rate 0"),
        ("--with-sender --send all", "--send all", "single|sendmmsg|gso"),
        ("--with-sender --flows 0", "--flows 0", "give --flows 1 to 65536"),
        ("--size 128", "--size", "add --with-sender"),
        ("--bind 127.0.0.1", "--bind 127.0.0.1", "give --bind HOST:PORT"),
        ("--bind ::1:9000", "--bind ::1:9000", "give --bind [::1]:9000"),
        // TEST-NET-1: no host has it.
        ("--bind 192.0.2.1:0", "--bind 192.0.2.1:0", "give one of its own"),
        ("--metrics-address 9464", "--metrics-address 9464", "give --metrics-address HOST:PORT"),
        (
            "--bind 127.0.0.1:0 --metrics-address 192.0.2.1:9464",
            "--metrics-address 192.0.2.1:9464",
            "give one of its own",
        ),
        ("--plot a.png", "--plot a.png", ".svg"),
        ("--csv -", "--csv -", "a file name"),
    ] {
        assert_refused(RECEIVER, flags, start, way_out);
    }
}

#[test]
fn every_bad_flag_of_the_sender_gets_its_line() {
    for (flags, start, way_out) in [
        ("", "--to", "give --to <HOST:PORT>"),
        ("--to 127.0.0.1:0", "--to 127.0.0.1:0", "the port that `receiver` printed"),
        ("--to 127.0.0.1:9 --size 27", "--size 27", "give --size 28 to 65507"),
        ("--to 127.0.0.1:9 --size 65508", "--size 65508", "give --size 28 to 65507"),
        ("--to 127.0.0.1:9 --mode unreliable", "--mode", "--help"),
        ("--to 127.0.0.1:9 --threads 0", "--threads 0", "give --threads 1 to 1024"),
        ("--to 127.0.0.1:9 --threads 65", "--threads 65", "give --flows 65"),
        ("--to 127.0.0.1:9 --sned gso", "--sned", "did you mean --send?"),
        ("--to 127.0.0.1:9 --secs never", "--secs never", "give --secs"),
    ] {
        assert_refused(SENDER, flags, start, way_out);
    }
}

#[test]
fn a_host_that_no_resolver_knows_gets_its_line() {
    // Longer than a name may be, so that no resolver asks the network.
    let host = format!("{}.invalid:9000", "a".repeat(64));
    assert_refused(RECEIVER, &format!("--bind {host}"), &format!("--bind {host}"), "give --bind an address");
    assert_refused(SENDER, &format!("--to {host}"), &format!("--to {host}"), "give --to an address");
}

#[test]
fn a_port_that_is_in_use_names_the_flag_whether_udp_or_tcp_has_it() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [udp.local_addr().unwrap(), tcp.local_addr().unwrap()] {
        assert_in_use(address);
    }
}

fn assert_in_use(address: SocketAddr) {
    for flags in [format!("--bind {address}"), format!("--bind {address} --with-sender --threads 1")] {
        let start = format!("--bind {address}: the port is in use");
        let line = refusal(Command::new(RECEIVER).args(flags.split(' ')));
        assert_eq!(line, format!("error: {start}; choose another port, or 0 for a free one"));
    }
}

#[test]
fn a_file_that_cannot_be_made_costs_no_run() {
    let folder = Folder::new("unwritable");
    let missing = folder.file("no/such/folder/a.svg");
    for flag in ["--json", "--csv", "--plot"] {
        assert_refused(
            RECEIVER,
            &format!("--with-sender --secs 3600 {flag} {missing}"),
            &format!("{flag} {missing}"),
            "in a folder that exists",
        );
    }
    assert_refused(
        SENDER,
        &format!("--to 127.0.0.1:9 --json {}", folder.path().display()),
        &format!("--json {}", folder.path().display()),
        "in a folder",
    );
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
#[test]
fn more_threads_than_descriptors_can_be_had_name_the_flag() {
    for threads in [20, 100] {
        let script = format!("ulimit -n 64; exec \"$0\" --bind 127.0.0.1:0 --threads {threads}");
        let line = refusal(Command::new("sh").args(["-c", &script, RECEIVER]));
        assert!(line.starts_with(&format!("error: --threads {threads}: each thread takes")), "{line}");
        assert!(line.contains("give fewer threads, or raise the limit with `ulimit -n"), "{line}");
    }
}

#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
#[test]
fn what_the_platform_has_not_names_the_flag() {
    for (flags, start, way_out) in [
        ("--threads 2", "--threads 2", "give --threads 1"),
        ("--drain recvmmsg", "--drain", "use recv"),
        ("--wait gather", "--wait", "use notify"),
    ] {
        assert_refused(RECEIVER, &format!("--bind 127.0.0.1:0 {flags}"), start, way_out);
    }
}

/// A command run by somebody without privileges: whoever runs the tests, or nobody instead of the superuser.
fn unprivileged(program: &str, folder: &Folder) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let copy = folder.file("program");
    // Copied by a process of its own: a descriptor open for writing that another test's start happened to
    // inherit would keep the copy from being run.
    assert!(Command::new("cp").args([program, &copy]).status().unwrap().success());
    let mut command = Command::new(copy);
    command.uid(65_534).gid(65_534).current_dir("/");
    command
}

/// The first port that everybody may bind; 1,024 where the system does not tell.
fn first_free_port() -> u16 {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1_024)
}

#[test]
fn a_port_without_the_permission_for_it_names_the_flag() {
    if first_free_port() <= 1 {
        // This system lets everybody bind every port.
        return;
    }
    let folder = Folder::new("unprivileged");
    let line = refusal(unprivileged(RECEIVER, &folder).args(["--bind", "127.0.0.1:1"]));
    assert!(line.starts_with("error: --bind 127.0.0.1:1: ports below 1024 need privilege; choose"), "{line}");
}

#[test]
fn a_file_without_the_permission_for_it_names_the_flag() {
    let folder = Folder::new("forbidden");
    let file = folder.file("a.csv");
    std::fs::write(&file, "").unwrap();
    let mut permissions = std::fs::metadata(&file).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&file, permissions).unwrap();
    let line = refusal(unprivileged(RECEIVER, &folder).args(["--with-sender", "--csv", &file]));
    assert!(
        line.starts_with(&format!("error: --csv {file}: no permission to write there; give --csv")),
        "{line}"
    );
}

#[test]
fn more_flows_than_sockets_can_be_had_name_the_flag_once() {
    for script in [
        "ulimit -n 64; exec \"$0\" --with-sender --threads 1 --flows 100",
        "ulimit -n 64; exec \"$0\" --with-sender --threads 1 --flows 1000 --sender-threads 4",
    ] {
        let line = refusal(Command::new("sh").args(["-c", script, RECEIVER]));
        assert!(line.starts_with("error: --flows 100") && line.contains("ulimit -n"), "{line}");
    }
}
