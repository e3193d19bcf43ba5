//! Whole command lines: the arguments of good ones, and the errors of bad ones.

use std::ffi::OsString;
use std::time::Duration;

use drumfire_socket::Wait;
use serde_json::json;

use super::keys::KeysArgs;
use super::receive::ReceiverArgs;
use super::*;
use crate::choices::SendMode;
use crate::cli::Load;

fn words(line: &str) -> Vec<OsString> {
    // Only an empty value needs quotes here.
    line.split_whitespace().map(|word| if word == "''" { "" } else { word }.into()).collect()
}

fn receiver(line: &str) -> Result<ReceiverArgs, Error> {
    ReceiverArgs::parse(words(line))
}

fn sender(line: &str) -> Result<SenderArgs, Error> {
    SenderArgs::parse(words(line))
}

fn drumfire(line: &str) -> Result<KeysArgs, Error> {
    cli::parse(words(line)).map(|(args, _)| args)
}

#[track_caller]
fn output_of<T>(outcome: Result<T, Error>, exit_code: u8) -> String {
    let error = outcome.err().expect("no arguments");
    assert_eq!(error.exit_code(), exit_code);
    error.to_string()
}

/// A command line without its program, the flag that the error names, and the accepted values.
type Bad<'a> = (&'a str, &'a str, &'a str);

const RECEIVER: &[Bad<'_>] = &[
    ("--thread 3", "--thread", "a similar argument exists: '--threads'"),
    ("--zzz", "--zzz", "unexpected argument"),
    ("--threads 0", "--threads <N>", "1 to 1024"),
    ("--threads 1025", "--threads <N>", "1 to 1024"),
    ("--threads -4", "--threads <N>", "1 to 1024"),
    ("--threads four", "--threads <N>", "1 to 1024"),
    ("--drain read", "--drain <WAY>", "[possible values: recv, recvmmsg]"),
    ("--gro maybe", "--gro <WHEN>", "[possible values: auto, on, off]"),
    ("--steer left", "--steer <WAY>", "[possible values: hash, tag]"),
    ("--stage close", "--stage <STAGE>", "[possible values: raw, parse, open, deliver]"),
    ("--stage open --suite none", "--suite <SUITE>", "[possible values: aes-128-gcm, chacha20-poly1305]"),
    ("--stage deliver --mode sorted", "--mode <MODE>", "[possible values: packets, unreliable, "),
    ("--suite aes-128-gcm", "--suite aes-128-gcm", "add --stage open"),
    ("--mode reliable-ordered", "--mode reliable-ordered", "add --stage deliver"),
    ("--stage open --mode packets", "--mode packets", "add --stage deliver"),
    ("--with-sender --stage open --size 59", "--size 59", "give --size 60 to 1200"),
    ("--with-sender --stage deliver --size 1201", "--size 1201", "give --size 60 to 1200"),
    ("--with-sender --stage deliver --mode unreliable --size 59", "--size 59", "give --size 60 to 1178"),
    ("--with-sender --stage deliver --mode unreliable --size 1179", "--size 1179", "give --size 60 to 1178"),
    (
        "--with-sender --stage deliver --mode reliable-latest --size 1058",
        "--size 1058",
        "give --size 60 to 1057",
    ),
    ("--wait sleep", "--wait <WAY>", "notify, gather, gather=1 to gather=10000 (microseconds), or spin"),
    ("--wait notify=3", "--wait <WAY>", "give notify"),
    ("--wait gather=0", "--wait <WAY>", "gather=1 to gather=10000"),
    ("--wait gather=10001", "--wait <WAY>", "gather=1 to gather=10000"),
    ("--wait gather=", "--wait <WAY>", "gather=1 to gather=10000"),
    ("--secs 0", "--secs <SECONDS>", "give 0.001 to 604800 seconds"),
    ("--secs 0.0009", "--secs <SECONDS>", "give 0.001 to 604800 seconds"),
    ("--secs 604801", "--secs <SECONDS>", "give 0.001 to 604800 seconds"),
    ("--secs -1", "--secs <SECONDS>", "give 0.001 to 604800 seconds"),
    ("--secs nan", "--secs <SECONDS>", "give 0.001 to 604800 seconds"),
    ("--secs 1e300", "--secs <SECONDS>", "give 0.001 to 604800 seconds"),
    ("--receive-buffer 0", "--receive-buffer <BYTES>", "1 to 1073741823"),
    ("--receive-buffer 4MiB", "--receive-buffer <BYTES>", "1 to 1073741823"),
    ("--bind 127.0.0.1", "--bind <HOST:PORT>", "give HOST:PORT, such as 127.0.0.1:9000"),
    ("--bind ::1:9000", "--bind <HOST:PORT>", "[::1]:9000"),
    ("--bind [::1]9000", "--bind <HOST:PORT>", "[::1]:9000"),
    ("--bind :9000", "--bind <HOST:PORT>", "give HOST:PORT"),
    ("--bind host:+1", "--bind <HOST:PORT>", "give HOST:PORT"),
    ("--bind http://host:80", "--bind <HOST:PORT>", "give HOST:PORT"),
    ("--bind 127.0.0.1:70000", "--bind <HOST:PORT>", "give HOST:PORT"),
    ("--metrics-address 9464", "--metrics-address <HOST:PORT>", "give HOST:PORT"),
    ("--csv ''", "--csv <FILE>", "give a file name"),
    ("--csv -", "--csv <FILE>", "only --json writes to standard output"),
    ("--plot a.png", "--plot <FILE.svg>", "ends in .svg"),
    ("--plot .svg", "--plot <FILE.svg>", "ends in .svg"),
    ("--csv a --json a", "--json a", "give --json another file"),
    ("--json a.svg --plot a.svg", "--plot a.svg", "give --plot another file"),
    ("--drain recv --gro on", "--gro on", "give --drain recvmmsg, or --gro off"),
    ("--flows 3", "--flows <N>", "--with-sender"),
    ("--sender-threads 2", "--sender-threads <N>", "--with-sender"),
    ("--send gso", "--send <MODE>", "--with-sender"),
    ("--with-sender --size 20", "--size <BYTES>", "28 to 65507"),
    ("--with-sender --rate -1", "--rate <PPS>", "0 to 1000000000"),
    ("--with-sender --flows 0", "--flows <N>", "1 to 65536"),
    ("--with-sender --flows 1 --sender-threads 2", "--sender-threads 2", "give --flows 2 or more"),
];

const SENDER: &[Bad<'_>] = &[
    ("", "--to <HOST:PORT>", "required"),
    ("--to 127.0.0.1", "--to <HOST:PORT>", "give HOST:PORT"),
    ("--to 127.0.0.1:0", "--to <HOST:PORT>", "the port that `receiver` printed"),
    ("--to host:0", "--to <HOST:PORT>", "the port that `receiver` printed"),
    ("--to 0.0.0.0:9000", "--to <HOST:PORT>", "give 127.0.0.1"),
    ("--to [::]:9000", "--to <HOST:PORT>", "give 127.0.0.1"),
    ("--to 127.0.0.1:9 --size 27", "--size <BYTES>", "28 to 65507"),
    ("--to 127.0.0.1:9 --size 65508", "--size <BYTES>", "28 to 65507"),
    ("--to 127.0.0.1:9 --flows 65537", "--flows <N>", "1 to 65536"),
    ("--to 127.0.0.1:9 --threads 0", "--threads <N>", "1 to 1024"),
    ("--to 127.0.0.1:9 --threads 65", "--threads 65", "give --flows 65 or more, or --threads 64 or fewer"),
    ("--to 127.0.0.1:9 --rate 1000000001", "--rate <PPS>", "0 to 1000000000"),
    ("--to 127.0.0.1:9 --rate fast", "--rate <PPS>", "0 to 1000000000"),
    ("--to 127.0.0.1:9 --send all", "--send <MODE>", "[possible values: single, sendmmsg, gso]"),
    ("--to 127.0.0.1:9 --secs never", "--secs <SECONDS>", "give 0.001 to 604800 seconds"),
    ("--to 127.0.0.1:9 --json ''", "--json <FILE>", "give a file name"),
    ("--to 127.0.0.1:9 --pin 1024", "--pin [<CORE>]", "0 to 1023"),
    ("--to 127.0.0.1:9 --mode unreliable", "--mode", "unexpected argument"),
];

const DRUMFIRE: &[Bad<'_>] = &[
    ("sing", "sing", "unrecognized subcommand"),
    ("keygen", "--server <FILE>|--master <FILE>|--token-key <FILE>", "required"),
    ("keygen --token-key x", "--from <FILE> --name <NAME>", "--token-key <FILE>"),
    ("keygen --token-key x --from b", "--name <NAME>", "required"),
    ("keygen --server x --key-id 0", "--key-id <N>", "1 to 4294967294"),
    ("keygen --server x --key-id 4294967295", "--key-id <N>", "1 to 4294967294"),
    ("token", "--token-key <FILE> --server <KEY> --address <IP:PORT> --player <ID>", "required"),
    ("token --server drumfire_secret_AAAA", "--server <KEY>", "invalid value"),
    ("token --address game.example:7777", "--address <IP:PORT>", "names are not resolved"),
    ("token --address 203.0.113.7:0", "--address <IP:PORT>", "such as 203.0.113.7:7777"),
    ("token --player me", "--player <ID>", "a number or a UUID"),
    ("token --life 0", "--life <SECONDS>", "1 to 600"),
    ("token --life 601", "--life <SECONDS>", "1 to 600"),
    ("token --session 0", "--session <SECONDS>", "from 1 to"),
    ("token --audience -1", "--audience <N>", "0 to 18446744073709551615"),
    ("public", "--server <FILE>", "required"),
    ("top", "PATH|--control <PATH>", "required"),
    ("top a.sock --control b.sock", "--control <PATH>", "cannot be used with"),
    ("top --control a.sock --order age", "--order <ORDER>", "give rtt, loss, queue or rate"),
];

#[test]
fn every_bad_line_names_its_flag_and_the_accepted_values() {
    let mut wrong = Vec::new();
    let mut check = |cases: &[Bad<'_>], output_of: &dyn Fn(&str) -> String| {
        for (line, flag, accepted) in cases {
            // Names of required flags are on lines of their own.
            let error = output_of(line).split_whitespace().collect::<Vec<_>>().join(" ");
            if !error.contains(flag) || !error.contains(accepted) {
                wrong.push(format!("{line}: {error}"));
            }
        }
    };
    check(RECEIVER, &|line| output_of(receiver(line), 2));
    check(SENDER, &|line| output_of(sender(line), 2));
    check(DRUMFIRE, &|line| output_of(drumfire(line), 2));
    let long = format!("token --user-data {}", "x".repeat(257));
    check(&[(&long, "--user-data", "up to 256 bytes")], &|line| output_of(drumfire(line), 2));
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn help_and_version_are_printed() {
    assert!(output_of(receiver("--help"), 0).contains("Usage: receiver"));
    assert!(output_of(sender("-h"), 0).contains("Usage: sender"));
    assert_eq!(output_of(receiver("--version"), 0), format!("receiver {}\n", env!("CARGO_PKG_VERSION")));
    assert!(output_of(drumfire("--help"), 0).contains("Usage: drumfire <COMMAND>"));
    let help = output_of(drumfire("token --help"), 0);
    assert!(help.contains("Usage: drumfire token [OPTIONS] --token-key <FILE>"));
    let help = output_of(drumfire("top --help"), 0);
    assert!(help.contains("Usage: drumfire top [OPTIONS] <PATH|--control <PATH>>"));
}

#[test]
fn every_flag_of_a_receiver_is_read() {
    let args = receiver(
        "--bind [::1]:9001 --threads 6 --drain recv --gro off --wait gather=9999 --steer hash --pin --secs 2.5 \
         --csv a.csv --json - --plot b/a.SVG --stage raw --receive-buffer 65536 --metrics-address 127.0.0.1:9464 \
         --control a.sock --tui",
    )
    .unwrap();
    assert_eq!(
        serde_json::to_value(args.flags()).unwrap(),
        json!({
            "bind": "[::1]:9001", "threads": 6, "drain": "recv", "gro": "off", "wait": "gather=9999", "steer": "hash",
            "pin": "on", "secs": 2.5, "stage": "raw", "receive_buffer": 65_536, "with_sender": "off",
        })
    );
    assert_eq!((args.plan.cores, args.tui), (crate::host::allowed_cores().unwrap_or_default(), true));
    let paths = [args.csv, args.json, args.plot, args.control].map(Option::unwrap);
    assert_eq!(paths, ["a.csv", "-", "b/a.SVG", "a.sock"].map(std::path::PathBuf::from));
    assert_eq!(args.metrics_address.unwrap().port(), 9_464);
    for (text, wait) in
        [("notify", Wait::Notify), ("gather", Wait::Gather(Wait::GATHER)), ("spin", Wait::Spin)]
    {
        assert_eq!(receiver(&format!("--wait {text}")).unwrap().plan.wait, wait);
    }
}

#[test]
fn with_sender_uses_a_free_port_and_the_flags_of_the_sender() {
    let args = receiver("--with-sender").unwrap();
    let defaults = sender("--to 127.0.0.1:9000").unwrap().traffic;
    assert_eq!((args.plan.bind.port(), args.traffic()), (0, Some(defaults)));

    let line = "--with-sender --bind 127.0.0.1:9000 --pin --secs 3 --flows 12 --size 1200 --rate 0 --send gso \
                --sender-threads 2 --threads 4";
    let args = receiver(line).unwrap();
    assert_eq!(args.plan.bind.port(), 9_000);
    let (threads, flows, size, rate, send) = (2, 12, 1_200, 0, SendMode::Gso);
    let (secs, pin) = (Duration::from_secs(3), Some(4));
    assert_eq!(args.traffic(), Some(Traffic { threads, load: Load { flows, size, rate, send }, secs, pin }));
}

#[test]
fn traffic_is_the_same_after_it_was_sent() {
    for line in [
        "--to 127.0.0.1:9000",
        "--to 127.0.0.1:9000 --threads 4 --flows 4 --size 28 --rate 0 --send sendmmsg --secs 0.001 --pin",
        "--to [::1]:65535 --flows 65536 --threads 1024 --size 65507 --rate 1000000000 --send gso --secs 604800",
        "--to [fe80::1%3]:9 --pin 1023 --secs 0.123456789",
    ] {
        let traffic = sender(line).unwrap().traffic;
        let text = serde_json::to_string(&traffic).unwrap();
        assert_eq!(serde_json::from_str::<Traffic>(&text).unwrap(), traffic, "{line}");
    }
}

#[test]
fn the_report_names_every_flag_that_matters() {
    let args =
        receiver("--with-sender --json a.json --wait gather=50 --secs 1.5 --threads 4 --drain recvmmsg");
    assert_eq!(
        serde_json::to_value(args.unwrap().flags()).unwrap(),
        json!({
            "bind": "127.0.0.1:0", "threads": 4, "drain": "recvmmsg", "gro": "auto", "wait": "gather=50",
            "steer": "tag", "pin": "off", "secs": 1.5, "stage": "parse", "receive_buffer": 4_194_304,
            "with_sender": "on", "sender_threads": 1, "flows": 64, "size": 128, "rate": 100_000, "send": "single",
        })
    );
    assert_eq!(
        serde_json::to_value(sender("--to 127.0.0.1:9 --pin 2").unwrap().flags()).unwrap(),
        json!({
            "to": "127.0.0.1:9", "threads": 1, "flows": 64, "size": 128, "rate": 100_000, "send": "single",
            "secs": 10.0, "pin": 2,
        })
    );
}

#[test]
fn a_token_and_the_two_ways_to_name_a_control_socket_are_read() {
    let key = ::drumfire::ServerKey::dev().public();
    let line = format!("token --token-key a --server {key} --address [::1]:1 --player 7 --life 600");
    let KeysArgs::Token(token) = drumfire(&line).unwrap() else { panic!("a token") };
    assert_eq!((token.player.0, token.life, token.server), (7, Duration::from_secs(600), key));
    for line in ["top a.sock", "top --control a.sock --order queue", "top --once a.sock"] {
        let KeysArgs::Top(top) = drumfire(line).unwrap() else { panic!("the view") };
        assert_eq!(top.socket().to_str(), Some("a.sock"), "{line}");
    }
}
