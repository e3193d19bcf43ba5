//! Whole command lines: what the good ones mean, and that every bad one gets its line.
//!
//! The resolver is a table, so that no test asks the network.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use serde_json::json;

use super::*;
use drumfire_socket::Wait;

use crate::choices::{Drain, Gro, Mode, SendMode, Stage, Steer, Suite};
use crate::receiver::Plan;

fn known_hosts(text: &str) -> io::Result<Vec<SocketAddr>> {
    match text.strip_prefix("arena:") {
        Some(port) => Ok(vec![format!("10.0.0.7:{port}").parse().unwrap()]),
        None => Err(io::Error::other("failed to lookup address information: Name or service not known")),
    }
}

fn words(line: &str) -> Vec<OsString> {
    // Nobody needs a quote except for the empty value.
    line.split(' ')
        .filter(|word| !word.is_empty())
        .map(|word| if word == "''" { "" } else { word }.into())
        .collect()
}

fn receiver(line: &str) -> Result<ReceiverArgs, Stop> {
    ReceiverArgs::parse_with(words(line), &known_hosts)
}

fn sender(line: &str) -> Result<SenderArgs, Stop> {
    SenderArgs::parse_with(words(line), &known_hosts)
}

/// The line that a refused command line shows.
fn line_of<T>(outcome: Result<T, Stop>) -> String {
    match outcome {
        Err(Stop::Usage(error)) => format!("error: {error}"),
        Err(Stop::Shown(text)) => panic!("showed {text}"),
        Ok(_) => panic!("was accepted"),
    }
}

fn assert_refused(command: &str, line: &str, start: &str, way_out: &str) {
    assert!(!line.contains(['\n', '\r']), "{command}: more than one line: {line:?}");
    assert!(line.starts_with(&format!("error: {start}: ")), "{command}: {line}");
    let (_, advice) = line.split_once("; ").unwrap_or_else(|| panic!("{command}: no way out in {line}"));
    assert!(advice.contains(way_out), "{command}: {line}");
    assert!(!line.contains("Usage"), "{command}: {line}");
}

#[test]
fn every_bad_receiver_line_names_its_flag_and_the_way_out() {
    for (flags, start, way_out) in [
        ("--thread 3", "--thread", "did you mean --threads? --help lists every flag"),
        ("--zzz", "--zzz", "--help lists every flag"),
        ("-x", "-x", "--help lists every flag"),
        ("spare", "spare", "--help lists every flag"),
        ("--threads", "--threads", "give --threads <N>"),
        ("--threads 0", "--threads 0", "give --threads 1 to 1024"),
        ("--threads 1025", "--threads 1025", "give --threads 1 to 1024"),
        ("--threads -4", "--threads -4", "give --threads 1 to 1024"),
        ("--threads four", "--threads four", "give --threads 1 to 1024"),
        ("--threads=", "--threads \"\"", "give --threads 1 to 1024"),
        ("--threads 2 --threads 3", "--threads", "give it once"),
        ("--pin --pin", "--pin", "give it once"),
        ("--pin=3", "--pin 3", "give --pin alone"),
        ("--drain", "--drain", "give --drain <WAY>"),
        ("--drain read", "--drain read", "give --drain recv|recvmmsg"),
        ("--gro maybe", "--gro maybe", "give --gro auto|on|off"),
        ("--steer left", "--steer left", "give --steer hash|tag"),
        ("--stage close", "--stage close", "give --stage raw|parse|open|deliver"),
        ("--stage open --suite none", "--suite none", "give --suite aes-128-gcm|chacha20-poly1305"),
        ("--suite aes-128-gcm", "--suite aes-128-gcm", "add --stage open"),
        ("--with-sender --stage open --size 59", "--size 59", "give --size 60 to 1200"),
        ("--wait", "--wait", "give --wait <WAY>"),
        ("--wait sleep", "--wait sleep", "give --wait notify, gather"),
        ("--wait gather=0", "--wait gather=0", "gather=1 to gather=10000"),
        ("--wait gather=10001", "--wait gather=10001", "gather=1 to gather=10000"),
        ("--secs 0", "--secs 0", "give --secs 0.001 to 604800"),
        ("--secs -1", "--secs -1", "give --secs 0.001 to 604800"),
        ("--secs soon", "--secs soon", "give --secs 0.001 to 604800"),
        ("--receive-buffer 0", "--receive-buffer 0", "give --receive-buffer 1 to 1073741823"),
        ("--receive-buffer 4MiB", "--receive-buffer 4MiB", "(bytes)"),
        ("--bind", "--bind", "give --bind <HOST:PORT>"),
        ("--bind 127.0.0.1", "--bind 127.0.0.1", "give --bind HOST:PORT"),
        ("--bind ::1:9000", "--bind ::1:9000", "give --bind [::1]:9000"),
        ("--bind 127.0.0.1:70000", "--bind 127.0.0.1:70000", "give --bind HOST:PORT"),
        ("--bind nowhere:9000", "--bind nowhere:9000", "give --bind an address such as 127.0.0.1:9000"),
        ("--metrics-address", "--metrics-address", "give --metrics-address <HOST:PORT>"),
        ("--metrics-address 9464", "--metrics-address 9464", "give --metrics-address HOST:PORT"),
        (
            "--metrics-address nowhere:1",
            "--metrics-address nowhere:1",
            "give --metrics-address an address such as",
        ),
        ("--csv", "--csv", "give --csv <FILE>"),
        ("--csv ''", "--csv \"\"", "give --csv a file name"),
        ("--csv -", "--csv -", "give --csv a file name"),
        ("--plot a.png", "--plot a.png", "ends in .svg"),
        ("--csv a --json a", "--json a", "give --json another file"),
        ("--json a.svg --plot a.svg", "--plot a.svg", "give --plot another file"),
        ("--drain recv --gro on", "--gro on", "give --drain recvmmsg, or --gro off"),
        ("--flows 3", "--flows", "add --with-sender"),
        ("--size 128", "--size", "add --with-sender"),
        ("--rate 5", "--rate", "add --with-sender"),
        ("--send gso", "--send", "add --with-sender"),
        ("--sender-threads 2", "--sender-threads", "add --with-sender, or give --sender-threads to `sender`"),
        ("--with-sender --size 20", "--size 20", "give --size 28 to 65507"),
        ("--with-sender --flows 1 --sender-threads 2", "--sender-threads 2", "give --flows 2 or more"),
        ("--to 127.0.0.1:9000", "--to", "--help lists every flag"),
        ("--with-sender yes", "yes", "--help lists every flag"),
    ] {
        assert_refused(flags, &line_of(receiver(flags)), start, way_out);
    }
}

#[test]
fn every_bad_sender_line_names_its_flag_and_the_way_out() {
    for (flags, start, way_out) in [
        ("", "--to", "give --to <HOST:PORT>"),
        ("--to", "--to", "give --to <HOST:PORT>"),
        ("--to nowhere:9000", "--to nowhere:9000", "give --to an address such as 127.0.0.1:9000"),
        ("--to arena", "--to arena", "give --to HOST:PORT"),
        ("--to arena:0", "--to arena:0", "give --to the port that `receiver` printed"),
        ("--to 0.0.0.0:9000", "--to 0.0.0.0:9000", "give --to 127.0.0.1"),
        ("--to arena:9 --size 27", "--size 27", "give --size 28 to 65507"),
        ("--to arena:9 --size 65508", "--size 65508", "give --size 28 to 65507"),
        ("--to arena:9 --size -1", "--size -1", "give --size 28 to 65507"),
        ("--to arena:9 --flows 0", "--flows 0", "give --flows 1 to 65536"),
        ("--to arena:9 --flows 65537", "--flows 65537", "give --flows 1 to 65536"),
        ("--to arena:9 --threads 0", "--threads 0", "give --threads 1 to 1024"),
        ("--to arena:9 --threads 65", "--threads 65", "give --flows 65 or more, or --threads 64 or fewer"),
        ("--to arena:9 --rate -1", "--rate -1", "give --rate 0 to 1000000000 (0 = as fast as possible)"),
        ("--to arena:9 --rate 1000000001", "--rate 1000000001", "give --rate 0 to 1000000000"),
        ("--to arena:9 --rate fast", "--rate fast", "give --rate 0 to 1000000000"),
        ("--to arena:9 --send all", "--send all", "give --send single|sendmmsg|gso"),
        ("--to arena:9 --sned gso", "--sned", "did you mean --send?"),
        ("--to arena:9 --secs 0", "--secs 0", "give --secs 0.001 to 604800"),
        ("--to arena:9 --json", "--json", "give --json <FILE>"),
        ("--to arena:9 --json ''", "--json \"\"", "give --json a file name"),
        ("--to arena:9 --pin 1024", "--pin 1024", "give --pin 0 to 1023"),
        ("--to arena:9 --pin x", "--pin x", "give --pin 0 to 1023"),
        ("--to arena:9 --to arena:10", "--to", "give it once"),
        ("--to arena:9 --with-sender", "--with-sender", "--help lists every flag"),
        ("--to arena:9 extra", "extra", "--help lists every flag"),
    ] {
        assert_refused(flags, &line_of(sender(flags)), start, way_out);
    }
}

#[test]
fn a_value_with_line_breaks_or_foreign_bytes_still_gets_one_line() {
    for value in ["a\nb:9000", "--a\nb", "\u{1b}[2J", "a\r:1"] {
        let line = line_of(SenderArgs::parse_with(["--to".into(), value.into()], &known_hosts));
        assert!(!line.contains(char::is_control), "{line:?}");
    }
    let foreign = OsString::from_vec(vec![0xff, 0xfe]);
    let line = line_of(SenderArgs::parse_with(["--to".into(), foreign.clone()], &known_hosts));
    assert!(line.contains("UTF-8") && !line.contains('\n'), "{line}");
    let line = line_of(ReceiverArgs::parse_with([foreign], &known_hosts));
    assert!(!line.contains('\n'), "{line}");
}

#[test]
fn help_and_version_are_shown_and_succeed() {
    for (outcome, name) in
        [(receiver("--help").map(|_| ()), "receiver"), (sender("--help").map(|_| ()), "sender")]
    {
        let Err(Stop::Shown(text)) = outcome else { panic!("{name} --help was not shown") };
        assert!(text.contains(&format!("Usage: {name}")), "{text}");
        assert!(text.contains("--threads <N>"), "{text}");
    }
    let Err(Stop::Shown(text)) = receiver("--version") else { panic!("--version was not shown") };
    assert_eq!(text, format!("receiver {}\n", env!("CARGO_PKG_VERSION")));
    assert!(matches!(sender("-V"), Err(Stop::Shown(_))));
    assert!(matches!(sender("-h"), Err(Stop::Shown(_))));
}

#[test]
fn a_receiver_without_flags_listens_on_the_loopback_until_stopped() {
    let expected = ReceiverArgs {
        bind: BindAddress { text: "127.0.0.1:9000".to_owned(), address: "127.0.0.1:9000".parse().unwrap() },
        threads: Plan::DEFAULT_THREADS,
        drain: Drain::best(),
        gro: Gro::Auto,
        wait: Wait::best(),
        steer: Steer::Tag,
        pin: false,
        secs: None,
        csv: None,
        json: None,
        plot: None,
        stage: Stage::Parse,
        suite: Suite::best(),
        mode: Mode::Packets,
        receive_buffer_bytes: 4 * 1024 * 1024,
        metrics_address: None,
        control: None,
        has_view: false,
        with_sender: None,
    };
    assert_eq!(receiver(""), Ok(expected));
}

#[test]
fn every_flag_of_a_receiver_arrives() {
    let line = "--bind arena:9001 --threads 6 --drain recv --gro off --wait spin --steer hash --pin --secs 2.5 \
                --csv a.csv --json - --plot a.svg --stage raw --receive-buffer 65536 --metrics-address arena:9464";
    let expected = ReceiverArgs {
        bind: BindAddress { text: "arena:9001".to_owned(), address: "10.0.0.7:9001".parse().unwrap() },
        threads: 6,
        drain: Drain::Recv,
        gro: Gro::Off,
        wait: Wait::Spin,
        steer: Steer::Hash,
        pin: true,
        secs: Some(Duration::from_millis(2_500)),
        csv: Some("a.csv".into()),
        json: Some(Output::Stdout),
        plot: Some("a.svg".into()),
        stage: Stage::Raw,
        suite: Suite::best(),
        mode: Mode::Packets,
        receive_buffer_bytes: 65_536,
        metrics_address: Some(BindAddress {
            text: "arena:9464".to_owned(),
            address: "10.0.0.7:9464".parse().unwrap(),
        }),
        control: None,
        has_view: false,
        with_sender: None,
    };
    assert_eq!(receiver(line), Ok(expected));
}

#[test]
fn with_sender_takes_a_free_port_and_the_flags_of_the_sender() {
    let args = receiver("--with-sender").unwrap();
    let traffic = Traffic {
        threads: 1,
        flows: 64,
        size: 128,
        rate: 100_000,
        send: SendMode::Single,
        secs: Duration::from_secs(10),
        pin: None,
    };
    assert_eq!(args.bind.address.port(), 0);
    assert_eq!(args.secs, Some(Duration::from_secs(10)));
    assert_eq!(args.with_sender, Some(traffic.clone()));

    let line = "--with-sender --bind 127.0.0.1:9000 --pin --secs 3 --flows 12 --size 1200 --rate 0 --send gso \
                --sender-threads 2 --threads 4";
    let args = receiver(line).unwrap();
    assert_eq!(args.bind.address.port(), 9_000);
    let expected = Traffic {
        threads: 2,
        flows: 12,
        size: 1_200,
        rate: 0,
        send: SendMode::Gso,
        secs: Duration::from_secs(3),
        pin: Some(4),
    };
    assert_eq!(args.with_sender, Some(expected));
}

#[test]
fn a_sender_beside_the_receiver_is_sent_to_where_that_is_bound() {
    let args = receiver("--with-sender --bind 0.0.0.0:0").unwrap();
    let beside = args.sender("0.0.0.0:4321".parse().unwrap()).unwrap();
    assert_eq!(beside.to, Target::from("127.0.0.1:4321".parse::<SocketAddr>().unwrap()));
    assert_eq!(Some(beside.traffic), args.with_sender);
    assert_eq!(receiver("").unwrap().sender("0.0.0.0:4321".parse().unwrap()), None);
}

#[test]
fn a_sender_with_only_its_target_has_the_documented_defaults() {
    let args = sender("--to arena:9000").unwrap();
    assert_eq!(
        args.to,
        Target { text: "arena:9000".to_owned(), addresses: vec!["10.0.0.7:9000".parse().unwrap()] }
    );
    assert_eq!(Some(args.traffic), receiver("--with-sender").unwrap().with_sender);
    assert_eq!(args.json, None);
}

#[test]
fn flags_written_for_a_sender_are_read_back_to_the_same_arguments() {
    for line in [
        "--to arena:9000",
        "--to 127.0.0.1:9000 --threads 4 --flows 4 --size 28 --rate 0 --send sendmmsg --secs 0.001 --pin",
        "--to [::1]:65535 --flows 65536 --threads 1024 --size 65507 --rate 1000000000 --send gso --secs 604800",
        "--to [fe80::1%3]:9 --pin 1023 --secs 0.123456789 --json -",
        "--to arena:1 --json a=b,c.json --pin=7",
    ] {
        let args = sender(line).unwrap();
        assert_eq!(SenderArgs::parse_with(args.to_flags(), &known_hosts), Ok(args), "{line}");
    }
    let beside =
        receiver("--with-sender --pin --threads 1024").unwrap().sender("[::]:77".parse().unwrap()).unwrap();
    assert_eq!(SenderArgs::parse_with(beside.to_flags(), &known_hosts), Ok(beside));
}

#[test]
fn the_report_names_every_flag_that_matters() {
    let args =
        receiver("--with-sender --json a.json --wait gather=50 --secs 1.5 --threads 4 --drain recvmmsg")
            .unwrap();
    assert_eq!(
        serde_json::Value::from(args.flags()),
        json!({
            "bind": "127.0.0.1:0", "threads": 4, "drain": "recvmmsg", "gro": "auto", "wait": "gather=50",
            "steer": "tag", "pin": false, "secs": 1.5, "stage": "parse", "suite": null, "mode": null,
            "receive_buffer": 4_194_304,
            "with_sender": true, "sender_threads": 1, "flows": 64, "size": 128, "rate": 100_000, "send": "single",
        })
    );
    assert_eq!(
        serde_json::Value::from(sender("--to arena:9 --pin 2").unwrap().flags()),
        json!({
            "to": "arena:9", "threads": 1, "flows": 64, "size": 128, "rate": 100_000, "send": "single", "secs": 10.0,
            "pin": 2,
        })
    );
    assert!(!receiver("").unwrap().flags().contains_key("flows"));
}

#[test]
fn bad_input_ends_with_code_2_and_help_with_0() {
    assert_eq!(receiver("--threads 0").unwrap_err().exit_code(), 2);
    assert_eq!(sender("").unwrap_err().exit_code(), 2);
    assert_eq!(receiver("--version").unwrap_err().exit_code(), 0);
    assert_eq!(sender("--help").unwrap_err().exit_code(), 0);
}
