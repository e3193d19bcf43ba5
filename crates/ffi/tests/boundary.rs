//! Calls the C interface as C programs do: with a server on loopback, and with invalid arguments.
#![expect(unsafe_code, reason = "the tests call functions of a C interface")]

use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::time::Duration;

use drumfire::tokens::{TokenAccess, TokenMasterKey, TokenRequest};
use drumfire::{Access, Event, Message, PlayerId, Server, ServerConfig, ServerKey, Workers};
use drumfire_ffi::*;

const OK: DrumfireStatus = DrumfireStatus::Ok;
/// The maximum number of 1 ms turns of a loop that waits for an event.
const TURNS: u32 = 10_000;

fn server(key: ServerKey, access: Access) -> Server {
    let config = ServerConfig::new("127.0.0.1:0".parse().unwrap(), key, access);
    Server::bind(config.workers(Workers::Inline)).unwrap()
}

fn dev_server() -> Server {
    server(ServerKey::dev(), Access::Open)
}

fn settings() -> DrumfireConfig {
    DrumfireConfig {
        server: null(),
        server_key: null(),
        token: null(),
        dev: 0,
        reconnect_within_ms: 0,
        idle_timeout_ms: 0,
        unacknowledged_timeout_ms: 0,
        protocol_id: 0,
        send_memory_bytes: 0,
        receive_memory_bytes: 0,
        message_max_bytes: 0,
        receive_buffer_bytes: 0,
        hello: null(),
    }
}

fn connect(config: &DrumfireConfig) -> Result<DrumfireClient, DrumfireStatus> {
    let mut client = MaybeUninit::new(DrumfireClient(0));
    // SAFETY: the texts of all callers in this file end with a NUL byte
    let status = unsafe { drumfire_client_connect(Some(config), Some(&mut client)) };
    // SAFETY: it was initialized with a handle
    let client = unsafe { client.assume_init() };
    assert_eq!(status == OK, client != DrumfireClient(0));
    if status == OK { Ok(client) } else { Err(status) }
}

fn connect_dev(server: &Server) -> DrumfireClient {
    let address = CString::new(server.local_addr().to_string()).unwrap();
    connect(&DrumfireConfig { server: address.as_ptr(), dev: 1, ..settings() }).unwrap()
}

fn send(client: DrumfireClient, bytes: &[u8], options: DrumfireSendOptions) -> (DrumfireStatus, u64) {
    let mut receipt = MaybeUninit::new(u64::MAX);
    let (start, count) = (bytes.as_ptr(), bytes.len());
    // SAFETY: the pointer and the length come from a slice
    let status = unsafe { drumfire_client_send(client, 7, start, count, Some(&options), Some(&mut receipt)) };
    // SAFETY: it was initialized with a number
    (status, unsafe { receipt.assume_init() })
}

fn mode(mode: DrumfireMode) -> DrumfireSendOptions {
    DrumfireSendOptions { mode: mode as u32, ..DrumfireSendOptions::default() }
}

/// Returns the status and the next event, with its bytes copied into a buffer of `room` bytes.
fn receive_into(client: DrumfireClient, room: usize) -> (DrumfireStatus, DrumfireEvent, Vec<u8>) {
    let (mut event, mut buffer) = (MaybeUninit::zeroed(), vec![0; room]);
    let to = if room == 0 { null_mut() } else { buffer.as_mut_ptr() };
    // SAFETY: the buffer has `room` bytes, and an event with all bytes zero is valid
    let (status, event) = unsafe {
        let status = drumfire_client_receive_into(client, Some(&mut event), to, room);
        (status, event.assume_init())
    };
    if status == OK {
        buffer.truncate(event.bytes_count);
        assert_eq!(event.bytes.is_null(), event.bytes_count == 0);
    }
    (status, event, buffer)
}

/// Returns the next event and a copy of its borrowed bytes.
fn receive(client: DrumfireClient) -> (DrumfireEvent, Vec<u8>) {
    let mut event = MaybeUninit::uninit();
    assert_eq!(drumfire_client_receive(client, Some(&mut event)), OK);
    // SAFETY: the call wrote the event, and its bytes are valid until the next call
    unsafe {
        let event = event.assume_init();
        let borrowed = event.bytes_count != 0;
        let bytes = if borrowed { std::slice::from_raw_parts(event.bytes, event.bytes_count) } else { &[] };
        (event, bytes.to_vec())
    }
}

fn close(client: DrumfireClient, code: u32, text: &CStr) -> DrumfireStatus {
    // SAFETY: the text ends with a NUL byte
    unsafe { drumfire_client_close(client, code, text.as_ptr()) }
}

fn state(client: DrumfireClient) -> DrumfireState {
    let mut state = MaybeUninit::uninit();
    assert_eq!(drumfire_client_state(client, Some(&mut state)), OK);
    // SAFETY: the call wrote the state
    unsafe { state.assume_init() }
}

fn to_string(text: *const c_char) -> String {
    // SAFETY: every text of the library ends with a NUL byte
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn last_error() -> String {
    to_string(drumfire_last_error())
}

/// Polls both sides until the client has an event of this kind. Passes the server's events to `on_server_event`.
fn poll_until(
    client: DrumfireClient,
    server: &mut Server,
    kind: DrumfireEventKind,
    mut on_server_event: impl FnMut(&mut Server, Event),
) -> (DrumfireEvent, Vec<u8>) {
    for _ in 0..TURNS {
        server.poll(Duration::from_millis(1));
        let events: Vec<Event> = server.events().collect();
        events.into_iter().for_each(|event| on_server_event(server, event));
        server.flush();
        assert_eq!(drumfire_client_poll(client, 1), OK);
        loop {
            let (event, bytes) = receive(client);
            if event.kind == kind {
                return (event, bytes);
            }
            if event.kind == DrumfireEventKind::None {
                break;
            }
        }
    }
    panic!("no {kind:?}");
}

/// Polls the server until `select` returns a value for one of its events.
fn server_event<T>(server: &mut Server, mut select: impl FnMut(Event) -> Option<T>) -> T {
    for _ in 0..TURNS {
        server.poll(Duration::from_millis(1));
        if let Some(found) = server.events().find_map(&mut select) {
            return found;
        }
    }
    panic!("the server has no such event");
}

fn echo(server: &mut Server, event: Event) {
    if let Event::Message { peer, channel, payload } = event {
        server.send(peer, Message::reliable_ordered(channel, payload)).unwrap();
    }
}

#[test]
fn the_server_receives_the_hello() {
    let mut server = dev_server();
    let address = CString::new(server.local_addr().to_string()).unwrap();
    let config = DrumfireConfig { server: address.as_ptr(), dev: 1, hello: c"zed".as_ptr(), ..settings() };
    let client = connect(&config).unwrap();
    let hello = (0..TURNS).find_map(|_| {
        assert_eq!(drumfire_client_poll(client, 1), OK);
        server.poll(Duration::ZERO);
        server.events().find_map(|event| match event {
            Event::Connected { info, .. } => Some(info.hello),
            _ => None,
        })
    });
    assert_eq!(hello.unwrap(), "zed");
    assert_eq!(drumfire_client_free(client), OK);
}

#[test]
fn a_message_is_echoed_and_the_end_is_reported_once() {
    let mut server = dev_server();
    let client = connect_dev(&server);
    let receipted =
        DrumfireSendOptions { flags: DRUMFIRE_SEND_RECEIPT, ..mode(DrumfireMode::ReliableOrdered) };
    let (status, receipt) = send(client, b"hello", receipted);
    assert!(status == OK && receipt != 0);
    poll_until(client, &mut server, DrumfireEventKind::Connected, echo);
    assert_eq!(state(client), DrumfireState::Connected);

    let (event, bytes) = poll_until(client, &mut server, DrumfireEventKind::Message, echo);
    assert_eq!((event.channel, bytes.as_slice()), (7, &b"hello"[..]));
    assert_eq!(send(client, b"", mode(DrumfireMode::Unreliable)), (OK, 0));
    assert_eq!(drumfire_client_flush(client), OK);
    let (event, bytes) = poll_until(client, &mut server, DrumfireEventKind::Message, echo);
    assert!(bytes.is_empty() && event.bytes.is_null());

    let (_, second) = send(client, b"again", receipted);
    let (event, _) = poll_until(client, &mut server, DrumfireEventKind::Receipt, echo);
    assert_eq!((event.receipt, event.outcome), (second, DrumfireOutcome::Acknowledged));

    assert_eq!(close(client, 42, c"bye"), OK);
    let kinds = (0..TURNS).map(|_| {
        assert_eq!(drumfire_client_poll(client, 1), OK);
        let (status, event, _) = receive_into(client, 2);
        if status == DrumfireStatus::BufferTooSmall && event.kind != DrumfireEventKind::Disconnected {
            receive(client);
        }
        (status, event.kind)
    });
    let has_no_room = (DrumfireStatus::BufferTooSmall, DrumfireEventKind::Disconnected);
    assert!(kinds.into_iter().any(|kind| kind == has_no_room));
    assert_eq!(state(client), DrumfireState::Connected, "the event was not taken");
    let text = server_event(&mut server, |event| match event {
        Event::Disconnected { closed, .. } => Some(closed.text),
        _ => None,
    });
    assert_eq!(text, "bye");
    let (event, bytes) = poll_until(client, &mut server, DrumfireEventKind::Disconnected, echo);
    assert_eq!((event.reason, event.code), (DrumfireReason::ClosedByClient, 42));
    assert_eq!((bytes.as_slice(), state(client)), (&b"bye"[..], DrumfireState::Closed));
    assert_eq!(receive(client).0.kind, DrumfireEventKind::None);
    assert_eq!(send(client, b"late", receipted).0, DrumfireStatus::Closed);
    assert_eq!(close(client, 0, c""), DrumfireStatus::Closed);
    assert_eq!(drumfire_client_free(client), OK);
}

#[test]
fn an_event_that_does_not_fit_has_a_size_and_comes_again() {
    let mut server = dev_server();
    let client = connect_dev(&server);
    let ordered = mode(DrumfireMode::ReliableOrdered);
    poll_until(client, &mut server, DrumfireEventKind::Connected, echo);
    for message in [&[1; 300][..], &[2; 5]] {
        assert_eq!(send(client, message, ordered).0, OK);
    }
    let mut echoed = 0;
    for _ in 0..TURNS {
        server.poll(Duration::from_millis(1));
        let events: Vec<Event> = server.events().collect();
        echoed += events.iter().filter(|event| matches!(event, Event::Message { .. })).count();
        events.into_iter().for_each(|event| echo(&mut server, event));
        server.flush();
        // A poll keeps an event that did not fit in the first place.
        assert_eq!(drumfire_client_poll(client, 1), OK);
        let (status, event, _) = receive_into(client, 299);
        if status == DrumfireStatus::BufferTooSmall && echoed == 2 {
            assert_eq!((event.kind, event.bytes_count), (DrumfireEventKind::Message, 300));
            break;
        }
    }
    assert!(last_error().contains("299") && last_error().contains("300"), "{}", last_error());
    assert_eq!(drumfire_client_poll(client, 0), OK);
    assert_eq!(receive_into(client, 0).0, DrumfireStatus::BufferTooSmall);
    let mut event = MaybeUninit::uninit();
    // SAFETY: a null buffer is reported before it is written to
    let status = unsafe { drumfire_client_receive_into(client, Some(&mut event), null_mut(), 8) };
    assert_eq!(status, DrumfireStatus::NullPointer);
    assert_eq!(receive_into(client, 300).2, [1; 300]);
    let second = poll_until(client, &mut server, DrumfireEventKind::Message, echo);
    assert_eq!(second.1, [2; 5]);
    assert_eq!(drumfire_client_free(client), OK);
}

#[test]
fn every_call_refuses_invalid_handles() {
    let server = dev_server();
    let freed = connect_dev(&server);
    assert_eq!(drumfire_client_free(freed), OK);
    assert_eq!(drumfire_client_free(freed), DrumfireStatus::BadHandle, "freed twice");
    let alive = connect_dev(&server);
    assert_ne!(alive, freed);
    for client in
        [freed, DrumfireClient(0), DrumfireClient(1), DrumfireClient(u64::MAX), DrumfireClient(alive.0 + 1)]
    {
        let statuses = [
            drumfire_client_poll(client, 0),
            drumfire_client_receive(client, Some(&mut MaybeUninit::uninit())),
            receive_into(client, 1).0,
            send(client, b"x", mode(DrumfireMode::Unreliable)).0,
            drumfire_client_flush(client),
            drumfire_client_set_channel(client, 0, Some(&DrumfireChannelOptions::default())),
            drumfire_client_forget_key(client, 0, 0),
            drumfire_client_state(client, Some(&mut MaybeUninit::uninit())),
            drumfire_client_stats(client, Some(&mut MaybeUninit::uninit())),
            drumfire_client_time(client, Some(&mut MaybeUninit::uninit())),
            resume_token(client, 10).0,
            drumfire_client_rebind(client),
            close(client, 0, c""),
            drumfire_client_free(client),
        ];
        assert_eq!(statuses, [DrumfireStatus::BadHandle; 14], "{client:?}");
    }
    assert!(last_error().contains("no client has this handle"), "{}", last_error());
    assert_eq!(drumfire_client_free(alive), OK);
}

#[test]
fn a_client_belongs_to_its_thread_and_any_thread_frees_it() {
    let server = dev_server();
    let client = connect_dev(&server);
    let elsewhere = std::thread::spawn(move || {
        let polled = drumfire_client_poll(client, 0);
        (polled, last_error(), send(client, b"x", mode(DrumfireMode::Unreliable)).0)
    });
    let (polled, error, sent) = elsewhere.join().unwrap();
    assert_eq!([polled, sent], [DrumfireStatus::WrongThread; 2]);
    assert!(error.contains("thread"), "{error}");
    assert_eq!(drumfire_client_poll(client, 0), OK, "the client still works on its own thread");
    assert_eq!(std::thread::spawn(move || drumfire_client_free(client)).join().unwrap(), OK);
    assert_eq!(drumfire_client_poll(client, 0), DrumfireStatus::BadHandle);
}

#[test]
fn null_pointers_and_impossible_lengths_are_refused() {
    let server = dev_server();
    let client = connect_dev(&server);
    let options = mode(DrumfireMode::ReliableOrdered);
    // SAFETY: null pointers are reported before they are read
    let statuses = unsafe {
        [
            drumfire_client_connect(None, Some(&mut MaybeUninit::uninit())),
            drumfire_client_connect(Some(&settings()), None),
            drumfire_client_send(client, 0, null(), 1, Some(&options), None),
            drumfire_client_send(client, 0, null(), 0, None, None),
        ]
    };
    assert_eq!(statuses, [DrumfireStatus::NullPointer; 4]);
    let byte = [0_u8];
    // SAFETY: the length is checked before a byte is read
    let status = unsafe { drumfire_client_send(client, 0, byte.as_ptr(), usize::MAX, Some(&options), None) };
    assert_eq!(status, DrumfireStatus::TooLarge);
    let statuses = [
        drumfire_client_receive(client, None),
        drumfire_client_state(client, None),
        drumfire_client_stats(client, None),
        drumfire_client_time(client, None),
        drumfire_client_set_channel(client, 0, None),
    ];
    assert_eq!(statuses, [DrumfireStatus::NullPointer; 5]);
    assert_eq!(last_error(), "options is null");
    // SAFETY: the text and the receipt may be null, and so may the bytes of an empty message
    unsafe {
        assert_eq!(drumfire_client_send(client, 0, null(), 0, Some(&options), None), OK);
        assert_eq!(drumfire_client_close(client, 0, null()), OK);
    }
    assert_eq!(drumfire_client_free(client), OK);
}

#[test]
fn invalid_texts_are_errors_that_name_the_problem() {
    let address = c"127.0.0.1:7777";
    let public = CString::new(ServerKey::dev().public().to_string()).unwrap();
    let secret = CString::new(ServerKey::dev().to_text()).unwrap();
    let too_long = CString::new(vec![b'a'; DRUMFIRE_TEXT_MAX_BYTES + 1]).unwrap();
    let longest = CString::new(vec![b'a'; DRUMFIRE_TEXT_MAX_BYTES]).unwrap();
    let not_utf8 = CString::new([b'1', 0xff]).unwrap();
    let try_connect = |config| (connect(&config), last_error());
    let with = |server: &CStr, key: &CStr| {
        try_connect(DrumfireConfig { server: server.as_ptr(), server_key: key.as_ptr(), ..settings() })
    };
    let token = |token: &CStr| try_connect(DrumfireConfig { token: token.as_ptr(), ..settings() });
    for (got, status, words) in [
        (with(c"example.org:7777", &public), DrumfireStatus::BadAddress, "example.org"),
        (with(c"127.0.0.1", &public), DrumfireStatus::BadAddress, "127.0.0.1"),
        (with(c"127.0.0.1:0", &public), DrumfireStatus::BadAddress, "port 0"),
        (with(&too_long, &public), DrumfireStatus::TextTooLong, "4096"),
        (with(&longest, &public), DrumfireStatus::BadAddress, "aaa"),
        (with(&not_utf8, &public), DrumfireStatus::BadText, "server"),
        (with(address, c"drumfire_public_short"), DrumfireStatus::BadKey, "cut or changed"),
        (with(address, &secret), DrumfireStatus::BadKey, "is needed"),
        (token(c"drumfire_connect_short"), DrumfireStatus::BadToken, "cut or changed"),
        (token(&public), DrumfireStatus::BadToken, "is needed"),
        (try_connect(settings()), DrumfireStatus::BadArgument, "which server"),
    ] {
        let (got, error) = got;
        assert_eq!(got, Err(status), "{words}");
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let (address, key) = (c"127.0.0.1:7777", CString::new(ServerKey::dev().public().to_string()).unwrap());
    let dev = || DrumfireConfig { server: address.as_ptr(), dev: 1, ..settings() };
    let long = CString::new("x".repeat(257)).unwrap();
    for bad in [
        DrumfireConfig { server_key: key.as_ptr(), ..dev() },
        DrumfireConfig { token: key.as_ptr(), ..dev() },
        DrumfireConfig { server: address.as_ptr(), ..settings() },
        DrumfireConfig { idle_timeout_ms: 999, ..dev() },
        DrumfireConfig { reconnect_within_ms: 999, ..dev() },
        DrumfireConfig { send_memory_bytes: 1, ..dev() },
        DrumfireConfig { message_max_bytes: usize::MAX, ..dev() },
        DrumfireConfig { receive_buffer_bytes: 1, ..dev() },
        DrumfireConfig { hello: long.as_ptr(), ..dev() },
    ] {
        assert_eq!(connect(&bad), Err(DrumfireStatus::BadArgument), "{bad:?}");
    }
    assert!(last_error().contains("hello: must be at most 256 bytes"), "{}", last_error());
}

#[test]
fn messages_and_texts_that_are_too_long_are_refused() {
    let server = dev_server();
    let client = connect_dev(&server);
    for (bytes, mode_of) in [
        (17 << 20, DrumfireMode::ReliableOrdered),
        (65_537, DrumfireMode::ReliableOrdered),
        (16_385, DrumfireMode::Unreliable),
        (1_025, DrumfireMode::ReliableLatest),
    ] {
        assert_eq!(send(client, &vec![0; bytes], mode(mode_of)).0, DrumfireStatus::TooLarge, "{bytes}");
    }
    let unknown = DrumfireSendOptions { mode: 99, ..DrumfireSendOptions::default() };
    assert_eq!(send(client, b"x", unknown).0, DrumfireStatus::BadArgument);
    assert_eq!(last_error(), "mode: 99 is not a valid value");
    let mut queued = 0;
    while send(client, &[0; 60_000], mode(DrumfireMode::ReliableOrdered)).0 == OK {
        queued += 1;
    }
    assert_eq!(
        (queued, send(client, &[0; 60_000], mode(DrumfireMode::ReliableOrdered)).0),
        (17, DrumfireStatus::Full)
    );
    let long = CString::new([b'a'; 129]).unwrap();
    assert_eq!(close(client, 0, &long), DrumfireStatus::TextTooLong);
    assert_eq!(close(client, 0, c"enough"), OK);
    assert_eq!(drumfire_client_free(client), OK);
}

fn resume_token(client: DrumfireClient, room: usize) -> (DrumfireStatus, usize, Vec<u8>) {
    let (mut needed, mut buffer) = (MaybeUninit::new(0), vec![b'?'; room]);
    let to = buffer.as_mut_ptr().cast();
    // SAFETY: the buffer has `room` bytes, and the number was initialized
    unsafe {
        let status = drumfire_client_resume_token(client, to, room, Some(&mut needed));
        (status, needed.assume_init(), buffer)
    }
}

#[test]
fn a_player_connects_by_token_and_again_by_resume_token() {
    let (key, master) = (ServerKey::generate().unwrap(), TokenMasterKey::generate().unwrap());
    let (public, token_key) = (key.public(), master.token_key(1, "here").unwrap());
    let mut server = server(key, Access::Token(TokenAccess::new(token_key.clone())));
    let request = TokenRequest::new(PlayerId(42), server.local_addr(), public);
    let token = CString::new(request.issue(&token_key).unwrap().to_text()).unwrap();
    let connect_by = |token: &CStr, protocol_id| {
        connect(&DrumfireConfig { token: token.as_ptr(), protocol_id, ..settings() })
    };
    assert_eq!(connect_by(&token, 9), Err(DrumfireStatus::BadToken));
    assert!(last_error().contains("protocol_id"), "{}", last_error());
    let client = connect_by(&token, 0).unwrap();
    assert_eq!(resume_token(client, 0).0, DrumfireStatus::NoResumeToken);
    poll_until(client, &mut server, DrumfireEventKind::Connected, |_, _| {});
    let mut needed = 0;
    for _ in 0..TURNS {
        server.poll(Duration::from_millis(1));
        server.events().for_each(drop);
        assert_eq!(drumfire_client_poll(client, 1), OK);
        let (status, bytes, _) = resume_token(client, 1);
        if status != DrumfireStatus::NoResumeToken {
            assert_eq!(status, DrumfireStatus::BufferTooSmall);
            needed = bytes;
            break;
        }
    }
    assert!(needed > 100, "{needed}");
    assert_eq!(resume_token(client, needed - 1).2, vec![b'?'; needed - 1], "nothing is written");
    let (status, _, text) = resume_token(client, needed);
    let resume = CString::from_vec_with_nul(text).unwrap();
    assert_eq!(status, OK);
    assert_eq!(drumfire_client_free(client), OK);

    let client = connect_by(&resume, 0).unwrap();
    poll_until(client, &mut server, DrumfireEventKind::Connected, |_, _| {});
    // `poll_until` drops the server's events, but the server reports this connection only after the client's first
    // packet.
    let player = server_event(&mut server, |event| match event {
        Event::Connected { info, .. } => info.player,
        _ => None,
    });
    assert_eq!(player, PlayerId(42));
    assert_eq!(drumfire_client_free(client), OK);
}

#[test]
fn stats_include_the_path_after_it_was_measured() {
    let mut server = dev_server();
    let client = connect_dev(&server);
    let stats = || {
        let mut stats = MaybeUninit::uninit();
        assert_eq!(drumfire_client_stats(client, Some(&mut stats)), OK);
        // SAFETY: the call wrote the stats
        unsafe { stats.assume_init() }
    };
    assert_eq!(stats().has_path, 0);
    for number in 0_u32..3 {
        assert_eq!(send(client, &number.to_ne_bytes(), mode(DrumfireMode::ReliableOrdered)).0, OK);
        poll_until(client, &mut server, DrumfireEventKind::Message, echo);
    }
    let mut last = stats();
    for _ in 0..TURNS {
        server.poll(Duration::from_millis(1));
        server.events().for_each(drop);
        assert_eq!(drumfire_client_poll(client, 1), OK);
        assert_eq!(receive(client).0.kind, DrumfireEventKind::None, "measurements are not events");
        last = stats();
        if last.has_path == 1 && last.clock_error_ns != 0 {
            break;
        }
    }
    assert!(last.messages_delivered == 3 && last.messages_sent >= 3, "{last:?}");
    assert!(last.round_trip_us > 0 && last.recent_packets_sent > 0 && last.clock_error_ns > 0, "{last:?}");
    let mut now = MaybeUninit::new(0);
    assert_eq!(drumfire_client_time(client, Some(&mut now)), OK);
    // SAFETY: it was initialized with a number
    assert!(unsafe { now.assume_init() } >= last.taken_at_ns);
    assert_eq!(drumfire_client_rebind(client), OK);
    assert_eq!(drumfire_client_forget_key(client, 0, 1), OK);
    assert_eq!(send(client, b"new socket", mode(DrumfireMode::ReliableOrdered)).0, OK);
    assert_eq!(poll_until(client, &mut server, DrumfireEventKind::Message, echo).1, b"new socket");
    assert_eq!(drumfire_client_free(client), OK);
}

#[test]
fn a_missing_server_and_versions_have_descriptions() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = CString::new(silent.local_addr().unwrap().to_string()).unwrap();
    let client = connect(&DrumfireConfig { server: address.as_ptr(), dev: 1, ..settings() }).unwrap();
    assert_eq!(drumfire_client_poll(client, 30_000), OK);
    let (event, text) = receive(client);
    assert_eq!((event.kind, event.reason), (DrumfireEventKind::ConnectFailed, DrumfireReason::NoAnswer));
    assert!(String::from_utf8(text).unwrap().contains("did not answer"));
    assert!(to_string(drumfire_reason_text(event.reason as u32)).contains("did not answer"));
    assert_eq!(drumfire_client_free(client), OK);
    assert_eq!(to_string(drumfire_version()), env!("CARGO_PKG_VERSION"));
    assert_eq!(drumfire_abi_version(), DRUMFIRE_ABI_VERSION);
}
