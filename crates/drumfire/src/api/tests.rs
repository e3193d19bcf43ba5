//! Tests that every public error prints its text in `Debug` too, which is what `fn main() -> Result<(), Box<dyn std::error::Error>>` shows.

use std::io;
use std::path::Path;

use bytes::Bytes;

use crate::message::transfer::TransferError;
use crate::tokens::{IssueError, KeyIdError};
use crate::typed::ChannelError;
use crate::{CloseReason, Closed, ConnectError, Error, PeerId, SendError, ServerKey};

/// At least one value of each public error type, with the name of the type.
fn errors() -> Vec<(&'static str, Box<dyn std::error::Error>)> {
    let address = "127.0.0.1:7777".parse().unwrap();
    let key_text = "drumfire_public_x".parse::<ServerKey>().err().unwrap();
    let closed = Closed { reason: CloseReason::IdleTimeout, text: Bytes::new(), reconnect_error: None };
    vec![
        ("Error", Box::new(Error::AddressInUse { address })),
        ("ChannelError", Box::new(ChannelError::Decode(SendError::Full))),
        ("Closed", Box::new(closed)),
        ("ConnectError", Box::new(ConnectError::Timeout)),
        ("Error", Box::new(Error::Connect(ConnectError::Timeout))),
        ("IssueError", Box::new(IssueError::Bounds)),
        ("KeyIdError", Box::new(KeyIdError)),
        ("KeyTextError", Box::new(key_text)),
        ("PeerIdTextError", Box::new("".parse::<PeerId>().err().unwrap())),
        ("SendError", Box::new(SendError::Full)),
        ("TransferError", Box::new(TransferError::NotNextChunk)),
        #[cfg(feature = "postcard")]
        (
            "PostcardError",
            Box::new(crate::typed::Codec::<u8>::decode(&crate::typed::Postcard, &[]).err().unwrap()),
        ),
    ]
}

#[test]
fn debug_of_every_error_is_its_text() {
    for (name, error) in errors() {
        assert!(error.to_string().contains(' '), "{name}: {error}");
        assert_eq!(format!("{error:?}"), error.to_string(), "{name}");
        assert_eq!(format!("{error:#?}"), error.to_string(), "{name}");
    }
    let nested = Error::Io(io::Error::other("no descriptors"));
    assert_eq!(format!("{:?}", Some(nested)), "Some(no descriptors)");
}

/// Finds the names in `impl ... Error for NAME` below a folder.
fn implementors(folder: &Path, into: &mut Vec<String>) {
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            implementors(&path, into);
            continue;
        }
        let source = std::fs::read_to_string(&path).unwrap();
        for line in source.lines().map(str::trim_start).filter(|line| line.starts_with("impl")) {
            if let Some((_, name)) =
                line.split_once("Error for ").filter(|(before, _)| !before.contains("From<"))
            {
                into.push(name.split(|letter: char| !letter.is_alphanumeric()).next().unwrap().to_owned());
            }
        }
    }
}

#[test]
fn no_error_type_is_missing_from_the_list() {
    let mut found = Vec::new();
    implementors(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert!(found.len() >= 8, "{found:?}");
    let names: Vec<_> = errors().into_iter().map(|(name, _)| name).collect();
    for name in found {
        let is_built = name != "PostcardError" || cfg!(feature = "postcard");
        assert!(!is_built || names.contains(&name.as_str()), "{name}");
    }
}

#[test]
fn reasons_for_reconnecting_are_readable() {
    use crate::ReconnectReason;

    let ended = ReconnectReason::Ended(Box::new(Closed::new(CloseReason::Unacknowledged, Bytes::new())));
    assert_eq!(ended.to_string(), "the connection is over: the peer acknowledged nothing for too long");
    let failed = ReconnectReason::Failed(ConnectError::Timeout);
    assert_eq!(
        failed.to_string(),
        "the attempt failed: the server did not answer: check that it is running, its address, and its public key"
    );
}

#[test]
fn the_peers_close_text_is_part_of_the_end() {
    let reason = CloseReason::Remote { code: crate::error::CloseCode::Application, application_code: 3 };
    let closed =
        Closed { reason, text: "not a command".into(), reconnect_error: Some(ConnectError::Timeout) };
    for part in ["not a command", "reconnecting failed: the server did not answer"] {
        assert!(closed.to_string().contains(part), "{closed}");
    }
}
