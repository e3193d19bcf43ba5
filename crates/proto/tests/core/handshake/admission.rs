//! Admission by the shell: its information about a client, the notice to the client, and the cost of a rejection,
//! which is no more than a datagram.

use crate::handshake::tokens::{NOW, issued, key, token};
use crate::harness::{CLIENT, REFUSE_KIND, SERVER, address, identity, server_config};
use drumfire_proto::{
    Access, Claim, ClientConfig, CloseCode, CloseReason, Config, ConfirmDecision, ConnectError, Cookie,
    DropReason, Endpoint, Event, HelloHash, Inbound, IssuedToken, LiveConfig, Moment, Now, Placement,
    PlacementDecision, PlacementKey, PlayerId, Refusal, RefuseReason, Rejection, Secret, ServerConfig, Token,
    TokenAccess,
};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// The question that was asked, without its borrow.
#[derive(Debug, Clone, PartialEq)]
struct RecordedClaim {
    address: SocketAddr,
    is_address_proved: bool,
    key: Option<PlacementKey>,
    player: Option<PlayerId>,
    user_data: Vec<u8>,
}

/// Gives the stored answer, and records the question.
#[derive(Debug)]
struct Script {
    answer: PlacementDecision,
    confirmed: ConfirmDecision,
    asked: Vec<RecordedClaim>,
}

#[derive(Debug, Clone)]
struct ScriptedPlacement(Rc<RefCell<Script>>);

impl Placement for ScriptedPlacement {
    fn place(&mut self, _: Now, claim: &Claim<'_>) -> PlacementDecision {
        let mut script = self.0.borrow_mut();
        script.asked.push(RecordedClaim {
            address: claim.address,
            is_address_proved: claim.is_address_proved,
            key: claim.key,
            player: claim.token.map(|token| token.player),
            user_data: claim.user_data.to_vec(),
        });
        script.answer
    }

    fn take(&mut self, _: HelloHash) -> bool {
        false
    }

    fn confirm(&mut self, _: Now, _: HelloHash) -> ConfirmDecision {
        self.0.borrow().confirmed
    }

    fn release(&mut self, _: HelloHash) {}
}

struct World {
    client: Endpoint,
    server: Endpoint<ScriptedPlacement>,
    placement: ScriptedPlacement,
    /// The address of the client.
    from: SocketAddr,
    start: Moment,
    now: Now,
    /// Datagrams that the server sent.
    sent: Vec<Vec<u8>>,
}

impl World {
    fn new(answer: PlacementDecision, server: ServerConfig) -> Self {
        let script = Script { answer, confirmed: ConfirmDecision::Confirmed, asked: Vec::new() };
        let placement = ScriptedPlacement(Rc::new(RefCell::new(script)));
        let start = Moment::from_nanos(1_000_000_000);
        let seed = |byte| Secret::new([byte; 32]);
        Self {
            client: Endpoint::client(Config::default(), ClientConfig::many(), seed(1)).unwrap(),
            server: Endpoint::server(Config::default(), server, placement.clone(), seed(2)).unwrap(),
            placement,
            from: address(CLIENT),
            start,
            now: Now { monotonic: start, wall: NOW },
            sent: Vec::new(),
        }
    }

    fn connect(&mut self, token: Option<&IssuedToken>) {
        self.client.connect(self.now, address(SERVER), &identity(), token).unwrap();
    }

    /// Exchanges all datagrams in 20 ms. Returns whether any was in flight.
    fn round_trip(&mut self) {
        let mut memory = [0; 1_200];
        while let Some(transmit) = self.client.poll_transmit(self.now, &mut memory) {
            let bytes = &mut memory[..transmit.bytes];
            self.server.handle_datagrams(self.now, [Inbound { from: self.from.into(), bytes }]);
        }
        let mut answers = Vec::new();
        while let Some(transmit) = self.server.poll_transmit(self.now, &mut memory) {
            answers.push(memory[..transmit.bytes].to_vec());
        }
        self.now.monotonic = self.now.monotonic.after(Duration::from_millis(20));
        for mut bytes in answers {
            self.sent.push(bytes.clone());
            let from = address(SERVER).into();
            self.client.handle_datagrams(self.now, [Inbound { from, bytes: &mut bytes }]);
        }
        self.client.handle_timeout(self.now);
        self.server.handle_timeout(self.now);
        assert_eq!(self.server.stats().unexplained(), 0);
    }

    /// Connects, and returns the outcome and its delay.
    fn outcome(&mut self, token: Option<&IssuedToken>) -> (Result<(), ConnectError>, Duration) {
        self.connect(token);
        self.first_event()
    }

    /// Returns the first event of the client, and its delay.
    fn first_event(&mut self) -> (Result<(), ConnectError>, Duration) {
        for _ in 0..300 {
            self.round_trip();
            let heard = match self.client.poll_event() {
                Some(Event::Connected { .. }) => Ok(()),
                Some(Event::ConnectFailed { error, .. }) => Err(error.clone()),
                Some(other) => panic!("{other:?}"),
                None => continue,
            };
            return (heard, self.now.monotonic.since(self.start));
        }
        panic!("nothing was heard")
    }

    /// Passes a copy of a Hello to the server, and returns the response.
    fn answer_to_copy(&mut self, from: SocketAddr, hello: &[u8]) -> Vec<u8> {
        let (mut bytes, mut memory) = (hello.to_vec(), [0; 1_200]);
        self.server.handle_datagrams(self.now, [Inbound { from: from.into(), bytes: &mut bytes }]);
        let transmit = self.server.poll_transmit(self.now, &mut memory).expect("a response");
        assert_eq!(transmit.to.peer, from);
        memory[..transmit.bytes].to_vec()
    }

    fn sent_kind(&self, kind: u8) -> impl Iterator<Item = &Vec<u8>> {
        self.sent.iter().filter(move |bytes| bytes[0] == kind)
    }
}

fn by_token() -> ServerConfig {
    let since = NOW - Duration::from_secs(10);
    server_config().access(Access::Token(TokenAccess { keys: vec![key(1)], audience: 3, since }))
}

fn other_server() -> SocketAddr {
    "[2001:db8::7]:7777".parse().unwrap()
}

fn rejection() -> Rejection {
    Rejection {
        counted_as: DropReason::Declined,
        reason: RefuseReason::Redirect,
        retry_after: Some(Duration::from_millis(2_001)),
        address: Some(other_server()),
    }
}

fn refusal(heard: Result<(), ConnectError>) -> Refusal {
    match heard {
        Err(ConnectError::Refused(refusal)) => *refusal,
        other => panic!("{other:?}"),
    }
}

fn banned() -> Rejection {
    Rejection {
        counted_as: DropReason::Banned,
        reason: RefuseReason::Banned,
        retry_after: Some(Duration::from_secs(100_000)),
        address: None,
    }
}

#[test]
fn a_refusal_of_a_copied_hello_does_not_stop_its_owner() {
    let mut world = World::new(PlacementDecision::Rejected(banned()), by_token());
    world.connect(Some(&issued(&token(9))));
    // The attacker copies the first Hello, proves its own address, which is banned, and forwards the refusal.
    let (copier, mut hello) = ("203.0.113.66:6666".parse().unwrap(), [0; 1_200]);
    world.client.poll_transmit(world.now, &mut hello).unwrap();
    let retry = world.answer_to_copy(copier, &hello);
    hello[540..572].copy_from_slice(&retry[9..41]);
    let mut refuse = world.answer_to_copy(copier, &hello);
    assert_eq!(refuse[0], REFUSE_KIND);
    let from = address(SERVER).into();
    world.client.handle_datagrams(world.now, [Inbound { from, bytes: &mut refuse }]);
    world.placement.0.borrow_mut().answer = PlacementDecision::Local;
    assert_eq!(world.first_event().0, Ok(()));
}

#[test]
fn a_rejected_client_learns_why_in_two_round_trips_plus_1_s() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let answers = [
        (
            PlacementDecision::Full { retry_after: seconds(7) },
            DropReason::ServerFull,
            RefuseReason::Full,
            7,
            None,
        ),
        (PlacementDecision::Full { retry_after: None }, DropReason::ServerFull, RefuseReason::Full, 0, None),
        (PlacementDecision::Used, DropReason::TokenUsed, RefuseReason::TokenUsed, 0, None),
        (PlacementDecision::Rejected(banned()), DropReason::Banned, RefuseReason::Banned, 65_535, None),
        (
            PlacementDecision::Rejected(rejection()),
            DropReason::Declined,
            RefuseReason::Redirect,
            3,
            Some(other_server()),
        ),
    ];
    for (answer, counted_as, reason, retry_after, address) in answers {
        let mut world = World::new(answer, by_token());
        let (heard, after) = world.outcome(Some(&issued(&token(9))));
        let refusal = refusal(heard);
        assert_eq!((refusal.reason, refusal.address), (reason, address));
        assert_eq!(
            refusal.retry_after,
            Some(Duration::from_secs(retry_after)).filter(|after| !after.is_zero())
        );
        // One round trip for the cookie, and one for the answer.
        let waits = reason != RefuseReason::TokenUsed;
        assert_eq!(after, Duration::from_millis(if waits { 1_040 } else { 40 }));
        let stats = world.server.stats();
        // While the client waits for a Welcome, it sends one more Hello.
        let hellos = if waits { 2 } else { 1 };
        assert_eq!(stats.dropped(counted_as), hellos as u64, "{counted_as:?}");
        assert_eq!((stats.handshakes_computed, stats.forwarded, world.server.connection_count()), (0, 0, 0));
        assert_eq!(world.placement.0.borrow().asked.len(), hellos, "a Hello without a cookie is not decided");
        let refuse: Vec<_> = world.sent_kind(REFUSE_KIND).collect();
        assert!(refuse.len() == hellos && refuse.iter().all(|bytes| bytes.len() <= 96));
        assert!(stats.refuse_bytes + stats.retry_bytes <= stats.hello_bytes / 10, "{stats:?}");
    }
}

#[test]
fn the_admission_question_has_all_facts_of_the_hello() {
    let mut world = World::new(PlacementDecision::Local, by_token());
    world.from = "[::ffff:192.0.2.9]:4000".parse().unwrap();
    let keyed = Token { placement_key: Some(77), ..token(9) };
    assert_eq!(world.outcome(Some(&issued(&keyed))).0, Ok(()));
    world.round_trip();
    let known = RecordedClaim {
        address: "192.0.2.9:4000".parse().unwrap(),
        is_address_proved: true,
        key: Some(PlacementKey(77)),
        player: Some(PlayerId(9)),
        user_data: vec![9; 5],
    };
    assert_eq!(world.placement.0.borrow().asked, [known]);

    let mut world = World::new(PlacementDecision::Local, server_config());
    assert_eq!(world.outcome(None).0, Ok(()));
    let nothing = RecordedClaim {
        address: address(CLIENT),
        is_address_proved: true,
        key: None,
        player: None,
        user_data: Vec::new(),
    };
    assert_eq!(world.placement.0.borrow().asked, [nothing]);
}

#[test]
fn an_invalid_hello_asks_no_admission_question() {
    let mut world = World::new(PlacementDecision::Local, by_token());
    let expired = Token {
        issued_at: NOW - Duration::from_secs(9),
        expires_at: NOW - Duration::from_secs(6),
        ..token(1)
    };
    assert_eq!(world.outcome(Some(&issued(&expired))).0, Err(ConnectError::TokenExpired));
    let without_psk = IssuedToken { psk: Secret::new([0; 32]), ..issued(&token(5)) };
    assert_eq!(world.outcome(Some(&without_psk)).0, Err(ConnectError::Timeout));
    assert_eq!(
        world.outcome(None).0.map_err(|error| refusal(Err(error)).reason),
        Err(RefuseReason::TokenMissing)
    );
    assert_eq!(world.placement.0.borrow().asked, []);
}

#[test]
fn an_unproved_address_gets_no_reason_even_without_load() {
    let mut world =
        World::new(PlacementDecision::Rejected(rejection()), by_token().cookie(Cookie::UnderLoad));
    let (heard, after) = world.outcome(Some(&issued(&token(9))));
    assert_eq!(refusal(heard).address, Some(other_server()));
    assert_eq!(after, Duration::from_millis(1_040));
    let kinds: Vec<u8> = world.sent.iter().map(|bytes| bytes[0]).collect();
    assert_eq!(kinds, [0x8a, REFUSE_KIND, REFUSE_KIND], "a Retry first");
    let proved: Vec<bool> =
        world.placement.0.borrow().asked.iter().map(|asked| asked.is_address_proved).collect();
    assert_eq!(proved, [false, true, true]);
    assert_eq!(world.server.stats().handshakes_computed, 0);
}

#[test]
fn in_open_access_three_equal_refusals_are_believed() {
    let mut world = World::new(PlacementDecision::Rejected(rejection()), server_config());
    let (heard, after) = world.outcome(None);
    assert_eq!(refusal(heard).reason, RefuseReason::Redirect);
    assert!((Duration::from_secs(1)..Duration::from_millis(1_500)).contains(&after), "{after:?}");
    assert!(world.server.stats().dropped(DropReason::Declined) >= 3);
    assert_eq!((world.server.stats().handshakes_computed, world.server.connection_count()), (0, 0));
}

#[test]
fn a_full_shard_proves_its_refusal_to_a_player_with_a_token() {
    // The placement sends the player to the shard, and only the shard knows that it has no room.
    let mut world = World::new(PlacementDecision::Local, by_token());
    let mut live = LiveConfig::new(&Config::default());
    live.connections = 1;
    world.server.reconfigure(&live).unwrap();
    assert_eq!(world.outcome(Some(&issued(&token(1)))).0, Ok(()));
    let refusal = refusal(world.outcome(Some(&issued(&token(9)))).0);
    assert_eq!((refusal.reason, refusal.is_proved), (RefuseReason::Full, true));
    assert_eq!(refusal.retry_after, Some(Duration::from_secs(10)));
}

#[test]
fn an_undecided_hello_gets_no_response_and_is_repeated() {
    let mut world = World::new(PlacementDecision::Undecided, by_token());
    world.connect(Some(&issued(&token(9))));
    for _ in 0..5 {
        world.round_trip();
    }
    assert_eq!(world.sent.len(), 1, "a Retry");
    assert_eq!(world.server.stats().dropped(DropReason::HelloRepeated), 1);
    world.placement.0.borrow_mut().answer = PlacementDecision::Local;
    for _ in 0..50 {
        world.round_trip();
    }
    assert!(matches!(world.server.poll_event(), Some(Event::Connected { player: Some(PlayerId(9)), .. })));
}

#[test]
fn a_connection_denied_at_confirmation_is_closed() {
    let mut world = World::new(PlacementDecision::Local, by_token());
    world.placement.0.borrow_mut().confirmed = ConfirmDecision::Rejected;
    assert_eq!(world.outcome(Some(&issued(&token(9)))).0, Ok(()));
    for _ in 0..3 {
        world.round_trip();
    }
    let (code, application_code) = (CloseCode::Application, 0);
    assert!(matches!(world.server.poll_event(), Some(Event::Connected { .. })));
    let Some(Event::Disconnected { reason, .. }) = world.server.poll_event() else { panic!("still there") };
    assert_eq!(reason, CloseReason::Local { code, application_code });
    let Some(Event::Disconnected { reason, .. }) = world.client.poll_event() else { panic!("still there") };
    assert_eq!(reason, CloseReason::Remote { code, application_code });
}

#[test]
fn ten_thousand_rejected_hellos_retain_no_memory() {
    let mut server = by_token();
    server.retries_per_second = 1_000_000;
    // An attempt is refilled every 2 ms: nine between the first Hello and the last.
    let allowance = u64::from(server.source_handshakes_burst) + 9;
    let mut world = World::new(PlacementDecision::Rejected(rejection()), server);
    world.connect(Some(&issued(&token(9))));
    world.round_trip();
    let (mut hello, mut memory) = ([0; 1_200], [0; 1_200]);
    assert_eq!(world.client.poll_transmit(world.now, &mut hello).unwrap().bytes, 1_200);
    let mut answers = 0;
    for _ in 0..10_000 {
        let mut bytes = hello;
        world.now.monotonic = world.now.monotonic.after(Duration::from_micros(2));
        world.server.handle_datagrams(world.now, [Inbound { from: world.from.into(), bytes: &mut bytes }]);
        while let Some(transmit) = world.server.poll_transmit(world.now, &mut memory) {
            assert_eq!((memory[0], transmit.bytes <= 96), (REFUSE_KIND, true));
            answers += 1;
        }
    }
    assert_eq!(world.server.poll_timeout(), None, "no timer");
    let stats = world.server.stats();
    assert_eq!((answers, world.placement.0.borrow().asked.len() as u64), (allowance, allowance));
    assert_eq!(stats.dropped(DropReason::Declined), allowance);
    assert_eq!(stats.dropped(DropReason::SourceLimit), 10_000 - allowance);
    assert_eq!((stats.handshakes_computed, world.server.connection_count()), (0, 0));
    assert!(stats.refuse_bytes + stats.retry_bytes <= stats.hello_bytes / 10);
    assert_eq!(stats.unexplained(), 0);
}
