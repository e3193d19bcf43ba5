//! Settings that are read, settings that are refused and their errors, and the written form.

use std::path::PathBuf;
use std::time::Duration;

use drumfire_proto::{Congestion, Cookie};
use drumfire_socket::Wait;

use crate::base::error::Error;
use crate::config::client::ClientConfig;
use crate::config::server::{Access, ServerConfig};
use crate::config::threads::Workers;
use crate::credentials::keys::ServerKey;
use crate::credentials::tokens::{TokenKey, TokenMasterKey};

const LOCAL: &str = "address = \"127.0.0.1:7777\"\naccess = \"open\"\n";

fn key() -> ServerKey {
    ServerKey::from_bytes([0x5C; 32])
}

fn token_key(id: u32) -> TokenKey {
    TokenMasterKey::from_bytes([0xA3; 32]).token_key(id, "a").unwrap()
}

/// Reads server settings, with the line of a key put in front.
fn server(settings: &str) -> Result<ServerConfig, String> {
    let text = format!("key = \"{}\"\n{settings}", key().to_text());
    toml::from_str(&text).map_err(|error| error.to_string())
}

fn client(settings: &str) -> Result<ClientConfig, String> {
    toml::from_str(settings).map_err(|error| error.to_string())
}

/// A file that is removed when the value is dropped.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, text: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("drumfire-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn three_settings_suffice_for_a_server() {
    let config = server(LOCAL).unwrap();
    let defaults = ServerConfig::new("127.0.0.1:7777".parse().unwrap(), key(), Access::Open);
    assert_eq!(format!("{config:?}"), format!("{defaults:?}"));
    assert_eq!(config.key.public(), key().public());
    assert!(config.check().is_ok());
    assert_eq!(format!("{:?}", client("").unwrap()), format!("{:?}", ClientConfig::default()));
}

#[test]
fn every_setting_is_read() {
    let config = server(
        r#"
        address = "[::1]:1"
        cookie = "under_load"
        server_id = "eu-1"
        workers = { count = 3 }
        wait = { gather = "250us" }
        protocol_id = "0xFFFFFFFFFFFFFFFF"
        connections = 7
        send_memory_bytes = 8192
        receive_memory_bytes = 16384
        worker_memory_bytes = 1048576
        message_max_bytes = 2000
        congestion = { fixed = { bytes_per_second = 1250000 } }
        idle_timeout = "5s"
        unacknowledged_timeout = "1500ms"
        receive_buffer_bytes = 4194304
        access = "open"
        [admission]
        retry_after = "3s"
        "#,
    )
    .unwrap();
    assert_eq!(config.address, "[::1]:1".parse().unwrap());
    assert_eq!((config.cookie, config.server_id.as_str()), (Cookie::UnderLoad, "eu-1"));
    assert_eq!(config.workers, Workers::Count(3));
    assert_eq!(config.wait, Wait::Gather(Duration::from_micros(250)));
    assert_eq!((config.protocol_id, config.connections), (u64::MAX, 7));
    assert_eq!((config.send_memory_bytes, config.receive_memory_bytes), (8_192, 16_384));
    assert_eq!(config.worker_memory_bytes, 1_048_576);
    assert_eq!(config.message_max_bytes, Some(2_000));
    assert_eq!(config.congestion, Congestion::Fixed { bytes_per_second: 1_250_000 });
    assert_eq!(config.idle_timeout, Duration::from_secs(5));
    assert_eq!(config.unacknowledged_timeout, Duration::from_millis(1_500));
    assert_eq!(config.receive_buffer_bytes, Some(4_194_304));
    assert_eq!(config.admission.retry_after, Duration::from_secs(3));
}

#[test]
fn every_word_of_a_choice_is_read() {
    let read = |line: &str| server(&format!("{LOCAL}{line}")).unwrap();
    assert_eq!(read("workers = \"inline\"").workers, Workers::Inline);
    assert_eq!(read("workers = \"auto\"").workers, Workers::Auto);
    assert_eq!(read("wait = \"notify\"").wait, Wait::Notify);
    assert_eq!(read("wait = \"spin\"").wait, Wait::Spin);
    assert_eq!(read("").wait, Wait::best());
    let shards = read("workers = { shards = { sockets = 4, threads = 2 } }").workers;
    assert_eq!(shards, Workers::Shards { sockets: 4, threads: 2 });
    assert_eq!(read("cookie = \"always\"").cookie, Cookie::Always);
    assert_eq!(read("congestion = \"delay\"").congestion, Congestion::Delay);
    assert_eq!(read("congestion = \"cubic\"").congestion, Congestion::Cubic);
    assert_eq!(read("protocol_id = 9223372036854775807").protocol_id, u64::MAX / 2);
    assert_eq!(read("protocol_id = \"18446744073709551615\"").protocol_id, u64::MAX);
}

#[test]
fn the_longest_message_depends_on_the_memory_unless_set() {
    let small = "send_memory_bytes = 8192";
    assert_eq!(server(&format!("{LOCAL}{small}")).unwrap().core(1).message_max_bytes, 2_048);
    assert_eq!(client(small).unwrap().core().message_max_bytes, 2_048);
    // An explicit value is never changed. `check` refuses it instead.
    let named = server(&format!("{LOCAL}{small}\nmessage_max_bytes = 2049")).unwrap();
    assert_eq!(named.message_max_bytes, Some(2_049));
    assert!(matches!(named.check(), Err(Error::Setting { field: "message_max_bytes", .. })));
    assert_eq!(client(&format!("message_max_bytes = 2049\n{small}")).unwrap().message_max_bytes, Some(2_049));
}

#[test]
fn unknown_missing_and_mistyped_settings_are_refused_by_name() {
    for (settings, expected) in [
        ("adress = \"127.0.0.1:1\"", "4 | adress = \"127.0.0.1:1\""),
        ("adress = \"127.0.0.1:1\"", "unknown field `adress`, expected one of `address`"),
        ("idle_timeout = 30", "idle_timeout = 30"),
        ("idle_timeout = \"30\"", "a whole number and its unit, as in \"30s\" or \"500ms\""),
        ("idle_timeout = \"half an hour\"", "a whole number and its unit"),
        ("wait = \"never\"", "must be \"notify\", \"spin\", or { gather = \"130us\" }"),
        ("wait = \"best\"", "without it, the best one of the platform is used"),
        ("wait = { gather = \"130us\", spin = true }", "wait = { gather = \"130us\", spin = true }"),
        ("wait = { sleep = \"130us\" }", "must be \"notify\", \"spin\", or { gather = \"130us\" }"),
        ("wait = {}", "must be \"notify\", \"spin\", or { gather = \"130us\" }"),
        ("cookie = \"sometimes\"", "expected `always` or `under_load`"),
        ("cookie = 1", "cookie = 1"),
        (
            "congestion = \"bbr\"",
            "must be \"delay\", \"cubic\", or { fixed = { bytes_per_second = 1250000 } }",
        ),
        ("congestion = { fixed = { bytes_per_second = -1 } }", "must be \"delay\", \"cubic\", or { fixed"),
        ("workers = \"all\"", "must be \"inline\", \"auto\", { count = 4 }, or { shards"),
        ("workers = { count = 65536 }", "with numbers up to 1024"),
        ("workers = 4", "must be \"inline\", \"auto\", { count = 4 }, or { shards"),
        ("workers = -1", "must be \"inline\", \"auto\", { count = 4 }, or { shards"),
        ("conditioner = { loss = 0.1 }", "must be { random = 0.01 } or { bursts"),
        ("connections = 4294967296", "4294967296"),
        ("protocol_id = -1", "a whole number"),
        ("protocol_id = \"0xG\"", "a whole number"),
        ("[admission]\naccept = true", "unknown field `accept`"),
        ("[admission]\nretry_after = 10", "retry_after = 10"),
        ("key_file = \"a.key\"", "key_file: there is a key too"),
    ] {
        let error = server(&format!("{LOCAL}{settings}")).expect_err(settings);
        assert!(error.contains(expected), "{settings} gives: {error}");
    }
    for (settings, expected) in [
        ("address = \"127.0.0.1:1\"", "access: is missing: say \"open\""),
        ("access = \"open\"", "address: is missing: say where to bind"),
        ("access = \"open\"\naddress = \"localhost\"", "address = \"localhost\""),
        ("access = \"everybody\"\naddress = \"127.0.0.1:1\"", "\"open\", or the table `token`"),
        ("address = \"127.0.0.1:1\"\n[access.token]", "access.token: names no key"),
        ("address = \"127.0.0.1:1\"\n[access.tokens]", "must be \"open\", or the table `token`"),
        ("address = \"127.0.0.1:1\"\n[access.token]\nid = 1", "unknown field `id`"),
    ] {
        let error = server(settings).expect_err(settings);
        assert!(error.contains(expected), "{settings} gives: {error}");
    }
    let no_key = toml::from_str::<ServerConfig>(LOCAL).unwrap_err().to_string();
    assert!(no_key.contains("key_file: is missing"), "{no_key}");
    let twice =
        serde_json::from_str::<ClientConfig>(r#"{ "protocol_id": 1, "protocol_id": 2 }"#).unwrap_err();
    assert!(twice.to_string().contains("duplicate field `protocol_id`"), "{twice}");
    assert!(client("workers = 1").unwrap_err().contains("unknown field `workers`"));
}

#[test]
fn keys_are_read_from_files_and_invalid_files_are_named() {
    let named = |path: &std::path::Path| {
        let text = format!("{LOCAL}key_file = {:?}", path.display().to_string());
        toml::from_str::<ServerConfig>(&text).map_err(|error| error.to_string())
    };
    let good = Temporary::new("good.key", format!("{}\n", key().to_text()).as_bytes());
    assert_eq!(named(&good.0).unwrap().key.public(), key().public());
    let public = Temporary::new("public.key", key().public().to_string().as_bytes());
    assert!(named(&public.0).unwrap_err().contains("a server's secret key is needed"));
    let binary = Temporary::new("binary.key", &[0xFF; 32]);
    let full = Temporary::new("full.key", &[b' '; 4_097]);
    let almost = Temporary::new("almost.key", &[b' '; 4_096]);
    assert!(named(&full.0).unwrap_err().contains("longer than any key"));
    assert!(named(&almost.0).unwrap_err().contains("which begins with drumfire_secret_"));
    for path in [&binary.0, &full.0, &std::env::temp_dir(), &PathBuf::from("/no/such/file")] {
        let error = named(path).expect_err("no key");
        assert!(error.contains(&format!("key_file: {}: ", path.display())), "{error}");
    }
}

#[test]
fn token_keys_are_read_from_files_and_texts() {
    let file = Temporary::new("token.key", token_key(2).to_text().as_bytes());
    let settings = format!(
        "address = \"0.0.0.0:0\"\n[access.token]\naudience = 77\nkeys = [{:?}]\nkey_files = [{:?}]",
        token_key(1).to_text(),
        file.0.display().to_string(),
    );
    let config = server(&settings).unwrap();
    let Access::Token(access) = &config.access else { panic!("{config:?}") };
    let keys: Vec<String> = access.keys.iter().map(TokenKey::to_text).collect();
    assert_eq!(keys, [token_key(1).to_text(), token_key(2).to_text()]);
    assert_eq!(access.audience, 77);
    assert!(config.check().is_ok());
}

#[test]
fn no_error_shows_a_damaged_or_misplaced_secret() {
    let (secret, token) = (key().to_text(), token_key(1).to_text());
    let damaged = |text: &str| text[..text.len() - 1].to_owned();
    let has_secret = |error: &str| error.contains(&secret[20..40]) || error.contains(&token[20..40]);
    for text in [
        format!("key = {:?}\n{LOCAL}", damaged(&secret)),
        format!("key = {token:?}\n{LOCAL}"),
        format!(
            "key = {secret:?}\naddress = \"127.0.0.1:1\"\n[access.token]\nkeys = [{:?}]",
            damaged(&token)
        ),
        format!("key = {secret:?}\naddress = \"127.0.0.1:1\"\n[access.token]\nkeys = [{secret:?}]"),
        format!("key = {secret:?}"),
        format!("key = {secret:?}\nadress = 1"),
        format!("key = {secret:?}\naddress = \"127.0.0.1:1\"\n[access]\nkeys = [{token:?}]"),
    ] {
        let error = toml::from_str::<ServerConfig>(&text).unwrap_err().to_string();
        assert!(!has_secret(&error), "{error}");
    }
    for text in [
        format!(r#"{{ "key": {:?}, "address": "127.0.0.1:1", "access": "open" }}"#, damaged(&secret)),
        format!(r#"{{ "key": {secret:?}, "address": "127.0.0.1:1", "access": {token:?} }}"#),
        format!(r#"{{ "key": {secret:?}, "access": {{ "token": [{token:?}] }} }}"#),
        format!(r#"{{ "key": {secret:?}, "access": {{ "keys": [{token:?}] }} }}"#),
    ] {
        let error = serde_json::from_str::<ServerConfig>(&text).unwrap_err().to_string();
        assert!(!has_secret(&error), "{error}");
    }
}

/// Returns the names of a struct's fields, from the first level of its pretty `Debug` output.
fn fields(debug: &str) -> Vec<String> {
    let lines = debug.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     "));
    lines.filter_map(|line| line.trim().split_once(':')).map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn every_field_is_read_and_all_but_the_secret_ones_are_written() {
    let config = server(LOCAL).unwrap().receive_buffer_bytes(8_192).message_max_bytes(9_000);
    let config = config.conditioner(crate::conditioner::LinkConfig::lte());
    let written = toml::to_string(&config).unwrap();
    let table: toml::Table = written.parse().unwrap();
    let names = fields(&format!("{config:#?}"));
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert_eq!(table.contains_key(&name), name != "key", "{name} in\n{written}");
    }
    let config = ClientConfig::default()
        .receive_buffer_bytes(8_192)
        .message_max_bytes(9_000)
        .address("[::]:0".parse().unwrap());
    let config = config.conditioner(crate::conditioner::LinkConfig::lte());
    let table: toml::Table = toml::to_string(&config).unwrap().parse().unwrap();
    for name in fields(&format!("{config:#?}")) {
        assert!(table.contains_key(&name), "{name}");
    }
}

#[test]
fn written_settings_can_be_read_and_contain_no_secret() {
    for settings in [
        "access = \"open\"",
        "workers = { count = 5 }\nwait = \"spin\"\nprotocol_id = \"18446744073709551615\"\naccess = \"open\"",
        "wait = { gather = \"1us\" }\ncongestion = { fixed = { bytes_per_second = 1200 } }\nidle_timeout = \"1m\"\naccess = \"open\"",
        "cookie = \"under_load\"\ncongestion = \"cubic\"\nreceive_buffer_bytes = 4096\naccess = \"open\"",
    ] {
        let config = server(&format!("address = \"127.0.0.1:7777\"\n{settings}")).unwrap();
        let written = toml::to_string(&config).unwrap();
        assert!(!written.contains("drumfire_"), "{written}");
        assert_eq!(format!("{:?}", server(&written).unwrap()), format!("{config:?}"));
        let json = serde_json::to_string(&config).unwrap();
        assert!(!json.contains("drumfire_"), "{json}");
    }
    let config = client(
        "idle_timeout = \"1500ms\"\nprotocol_id = 3\ncongestion = \"cubic\"\nreconnect = { within = \"90s\" }
         connections = 7\naddress = \"127.0.0.1:0\"\nreceive_buffer_bytes = 65536",
    )
    .unwrap();
    assert_eq!((config.receive_buffer_bytes, config.connections), (Some(65_536), 7));
    assert_eq!(config.address, Some("127.0.0.1:0".parse().unwrap()));
    assert_eq!(config.reconnect, crate::Reconnect::Within(Duration::from_secs(90)));
    let written = toml::to_string(&config).unwrap();
    assert_eq!(format!("{:?}", client(&written).unwrap()), format!("{config:?}"));
    let keys = format!(
        "address = \"0.0.0.0:1\"\n[access.token]\naudience = 5\nkeys = [{:?}]",
        token_key(1).to_text()
    );
    let written = toml::to_string(&server(&keys).unwrap()).unwrap();
    assert!(written.contains("[access.token]\naudience = 5") && !written.contains("drumfire_"), "{written}");
}

/// Returns the documented file line by line through `lines`, with an inline key instead of the key file.
fn documented(lines: impl Fn(&str) -> String) -> String {
    let text = include_str!("../../../docs/server.toml");
    let lines: Vec<String> = text.lines().map(lines).collect();
    lines.join("\n").replace("key_file = \"server.key\"", &format!("key = {:?}", key().to_text()))
}

#[test]
fn the_documented_file_has_the_defaults() {
    let config: ServerConfig = toml::from_str(&documented(str::to_owned)).unwrap();
    let defaults = server("address = \"127.0.0.1:7777\"\naccess = \"open\"").unwrap();
    assert_eq!(format!("{config:?}"), format!("{defaults:?}"));
    assert!(config.check().is_ok());
}

#[test]
fn the_documented_file_names_every_setting() {
    // Settings without a default are comments in the file. They are read too.
    let commented = |line: &str| {
        let name = line.strip_prefix("# ");
        let is_setting = |line: &&str| {
            let names = [
                "wait = ",
                "message_max_bytes = ",
                "receive_buffer_bytes = ",
                "connections_per_source = ",
                "conditioner = ",
            ];
            names.iter().any(|name| line.starts_with(name))
        };
        name.filter(is_setting).unwrap_or(line).to_owned()
    };
    let text = documented(commented);
    let config: ServerConfig = toml::from_str(&text).unwrap();
    assert!(config.check().is_ok() && config.receive_buffer_bytes.is_some());
    assert!(config.admission.connections_per_source.is_some());
    let table: toml::Table = text.parse().unwrap();
    for name in fields(&format!("{config:#?}")) {
        assert!(table.contains_key(&name), "{name}");
    }
    let token = "#   [access.token]\n#   key_files = [\"token.key\"]   # up to 8 while keys are rotated";
    assert!(include_str!("../../../docs/server.toml").contains(token));
}

mod links {
    use super::*;
    use crate::conditioner::{Delay, LinkConfig, Loss, Rate};

    fn link(settings: &str) -> Result<LinkConfig, String> {
        client(settings).map(|config| config.conditioner.expect("it is set"))
    }

    #[test]
    fn a_link_is_a_preset_or_a_table() {
        for name in LinkConfig::PRESET_NAMES {
            assert_eq!(link(&format!("conditioner = {name:?}")), Ok(LinkConfig::preset(name).unwrap()));
            let expected = link("conditioner = \"modem\"").unwrap_err();
            assert!(expected.contains(&format!("{name:?}")) && expected.contains("modem"), "{expected}");
        }
        assert_eq!(link("[conditioner]"), Ok(LinkConfig::default()));
        let table = link(
            r#"
            [conditioner]
            loss = { bursts = { begin = 0.01, end = 0.2, inside = 0.7, outside = 0 } }
            delay = { normal = { mean = "30ms", deviation = "5ms" } }
            duplicate = 0.1
            duplicate_delay = "1ms"
            reorder = 1
            reorder_delay = "2ms"
            corrupt = 0.3
            rate = { bytes_per_second = 1000, queue_bytes = 2000 }
            datagram_max_bytes = 1300
            memory_bytes = 70000
            "#,
        );
        let ms = Duration::from_millis;
        let wanted = LinkConfig::default()
            .loss(Loss::Bursts { begin: 0.01, end: 0.2, inside: 0.7, outside: 0.0 })
            .delay(Delay::Normal { mean: ms(30), deviation: ms(5) })
            .duplicate(0.1, ms(1))
            .reorder(1.0, ms(2))
            .corrupt(0.3)
            .rate(1_000, 2_000)
            .datagram_max_bytes(1_300)
            .memory_bytes(70_000);
        assert_eq!(table, Ok(wanted));
        let uniform = Delay::Uniform { min: ms(20), max: ms(40) };
        for (settings, config) in [
            ("loss = { random = 0 }", LinkConfig::default()),
            ("loss = { random = 0.5 }", LinkConfig::default().loss(Loss::Random(0.5))),
            ("delay = { constant = \"30ms\" }", LinkConfig::default().delay(Delay::Constant(ms(30)))),
            (
                "delay = { uniform = { min = \"20ms\", max = \"40ms\" } }",
                LinkConfig::default().delay(uniform),
            ),
        ] {
            assert_eq!(link(&format!("[conditioner]\n{settings}")), Ok(config));
        }
    }

    #[test]
    fn links_are_written_as_they_are_read() {
        let rate = Some(Rate { bytes_per_second: 1, queue_bytes: 2 });
        let mut all = LinkConfig::bad_wifi().datagram_max_bytes(1_300);
        all.rate = rate;
        for config in [LinkConfig::default(), LinkConfig::satellite(), all] {
            let config = ClientConfig::default().conditioner(config);
            let written = toml::to_string(&config).unwrap();
            assert_eq!(client(&written).unwrap().conditioner, config.conditioner, "{written}");
            let json = serde_json::to_string(&config).unwrap();
            let read: ClientConfig = serde_json::from_str(&json).unwrap();
            assert_eq!(read.conditioner, config.conditioner, "{json}");
        }
        let server = server(&format!("{LOCAL}conditioner = \"lte\"")).unwrap();
        assert_eq!(server.conditioner, Some(LinkConfig::lte()));
        assert!(toml::to_string(&server).unwrap().contains("[conditioner]"));
    }

    #[test]
    fn wrong_links_are_refused_by_name() {
        for (settings, expected) in [
            ("conditioner = 3", "conditioner = 3"),
            ("conditioner = \"modem\"", "conditioner = \"modem\""),
            ("[conditioner]\nlost = 0.1", "unknown field `lost`, expected one of `loss`"),
            ("[conditioner]\nloss = \"much\"", "must be { random = 0.01 } or { bursts"),
            ("[conditioner]\ndelay = { constant = 30 }", "a whole number and its unit"),
            (
                "[conditioner]\ndelay = { exact = \"30ms\" }",
                "expected one of `constant`, `uniform`, `normal`",
            ),
            ("[conditioner]\nrate = { bytes = 1 }", "unknown field `bytes`"),
        ] {
            let error = client(settings).expect_err(settings);
            assert!(error.contains(expected), "{settings} gives: {error}");
        }
        let half = client("[conditioner]\nrate = { bytes_per_second = 1, queue_bytes = 0 }").unwrap();
        let error = half.check().unwrap_err().to_string();
        assert_eq!(error, "conditioner: rate: must have a queue of 1 byte at least");
    }
}
