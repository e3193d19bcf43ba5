//! Keys and tokens through the real program: files, base64, and error lines.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use drumfire::tokens::{TokenAccess, TokenKey};
use drumfire::{
    Access, Client, ClientConfig, ConnectToken, Event, PlayerId, Server, ServerConfig, ServerKey,
};
use tempfile::{TempDir, tempdir};

use crate::process::{DRUMFIRE, Ended, Program};

fn run(folder: &TempDir, args: &str) -> Ended {
    Program::start(Command::new(DRUMFIRE).current_dir(folder.path()).args(args.split_whitespace())).end()
}

fn line(folder: &TempDir, args: &str) -> String {
    let ended = run(folder, args).with_code(0);
    assert_eq!(ended.stdout.len(), 1, "{ended:#?}");
    ended.stdout[0].clone()
}

/// Returns a folder with a server's key, its token key, and the backend's master key, and the public key.
fn keys() -> (TempDir, String) {
    let folder = tempdir().unwrap();
    let public = line(&folder, "keygen --server server.key");
    assert_eq!(run(&folder, "keygen --master backend.key").with_code(0).stdout, [""; 0]);
    let derive = "keygen --token-key eu.key --from backend.key --name eu-1";
    assert_eq!(run(&folder, derive).with_code(0).stdout, [""; 0]);
    (folder, public)
}

#[test]
fn a_player_connects_with_keys_and_a_token() {
    let (folder, public) = keys();
    assert_eq!(line(&folder, "public --server server.key"), public);
    let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let key: ServerKey = text("server.key").parse().unwrap();
    let token_key: TokenKey = text("eu.key").parse().unwrap();
    let access = Access::Token(TokenAccess::new(token_key).audience(5));
    let config = ServerConfig::new("127.0.0.1:0".parse().unwrap(), key, access).protocol_id(9);
    let mut server = Server::bind(config).unwrap();
    let player = "--player 42 --protocol-id 9 --audience 5 --user-data knight";
    let address = server.local_addr();
    let issue = format!("token --token-key eu.key --server {public} --address {address} {player}");
    let token: ConnectToken = line(&folder, &issue).parse().unwrap();
    let mut client = Client::new(ClientConfig::default().protocol_id(9)).unwrap();
    client.connect(&token).unwrap();
    let connected = (0..10_000).find_map(|_| {
        client.poll(Duration::from_millis(1));
        server.poll(Duration::ZERO);
        server.next_event()
    });
    let Some(Event::Connected { info, .. }) = connected else { panic!("{connected:?}") };
    assert_eq!((info.player, &info.user_data[..]), (Some(PlayerId(42)), &b"knight"[..]));
}

#[test]
fn key_files_are_private_and_never_overwritten() {
    let (folder, _) = keys();
    for name in ["server.key", "backend.key", "eu.key"] {
        let path = folder.path().join(name);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
        let before = fs::read(&path).unwrap();
        let ended = run(&folder, &format!("keygen --server {name}")).with_code(2);
        assert!(ended.only_error_line().contains("never overwritten; give another name"), "{ended:#?}");
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}

#[test]
fn a_bad_key_file_gets_one_line_with_its_flag() {
    let (folder, _) = keys();
    fs::write(folder.path().join("cut.key"), "drumfire_secret_AAAA").unwrap();
    for (args, flag, advice) in [
        ("keygen --token-key a --from b --name c", "--from b", "drumfire keygen"),
        ("keygen --token-key a --from server.key --name c", "--from server.key", "give the right file"),
        ("keygen --server no/such/folder.key", "--server no/such/folder.key", "a folder that exists"),
        ("public --server missing.key", "--server missing.key", "drumfire keygen"),
        ("public --server cut.key", "--server cut.key", "give the right file"),
        ("public --server eu.key", "--server eu.key", "give the right file"),
        ("token", "--token-key <FILE> --server <KEY>", "required"),
    ] {
        let ended = run(&folder, args).with_code(2);
        let error = ended.usage_error();
        assert!(error.contains(flag) && error.contains(advice), "{args}: {error}");
    }
}
