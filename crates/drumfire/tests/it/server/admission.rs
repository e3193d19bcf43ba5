//! The admission of clients and their placement, on real sockets and several workers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::tokens::{has_connected, join, world_with};
use super::world::{World, config, now};
use drumfire::admission::{AdmissionConfig, Ban, Placement, Verdict};
use drumfire::error::{Refusal, RefuseReason};
use drumfire::stats::DropReason;
use drumfire::{ConnectError, Error, Event, PlayerId, Workers};

/// A worker that computes all the time has more than this share of a core on any machine that runs tests.
const BUSY_PERCENT: u8 = 1;

/// The time after which an idle worker does not count as busy any more, with a margin.
const RETRY_AFTER: Duration = Duration::from_millis(2_500);

/// Returns the refusal that this client received.
fn refusal(world: &World, client: usize) -> Refusal {
    match world.heard[client].as_slice() {
        [Event::ConnectFailed { error: ConnectError::Refused(refusal), .. }] => **refusal,
        heard => panic!("{heard:?}"),
    }
}

fn all_heard(world: &mut World) {
    world.until("all were answered", |world| world.heard.iter().all(|heard| !heard.is_empty()));
}

#[test]
fn the_hook_sees_the_player_and_decides_about_admission() {
    for workers in [Workers::Inline, Workers::Count(4)] {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&asked);
        let there = "192.0.2.7:7777".parse().expect("an address");
        let (mut world, backend) = world_with(workers, |config| {
            config.accept(move |applicant| {
                let player = applicant.player.expect("a token says who");
                assert!(applicant.address.ip().is_loopback() && applicant.is_address_proved);
                notes.lock().expect("whole").push((player.id, player.user_data.to_vec()));
                match player.id.0 % 3 {
                    0 => Verdict::Accept,
                    1 => Verdict::Redirect { address: there, retry_after: None },
                    _ => {
                        let retry_after = Some(Duration::from_millis(1_500));
                        Verdict::Refuse { reason: RefuseReason::Banned, retry_after }
                    }
                }
            })
        });
        for player in 0..12 {
            let token = backend.token(&world, player);
            join(&mut world, &token);
        }
        all_heard(&mut world);
        for client in 0..12 {
            match client % 3 {
                0 => assert!(has_connected(&world.heard[client])),
                1 => assert_eq!(refusal(&world, client).address, Some(there)),
                _ => {
                    let Refusal { reason, retry_after, address, .. } = refusal(&world, client);
                    assert_eq!((reason, address), (RefuseReason::Banned, None));
                    assert_eq!(retry_after, Some(Duration::from_secs(2)));
                }
            }
        }
        // A client repeats its Hello until it has an answer. A player who was refused holds no place, so the hook decides again.
        let calls = || {
            let mut calls = asked.lock().expect("whole").clone();
            calls.sort_unstable();
            calls
        };
        let mut players = calls();
        assert_eq!(
            players.iter().filter(|(player, _)| player.0 % 3 == 0).count(),
            4,
            "the hook decides once about each accepted player: {players:?}"
        );
        players.dedup();
        let expected = (0..12_u128).map(|player| (PlayerId(player), player.to_be_bytes().to_vec()));
        assert!(players.iter().cloned().eq(expected), "{players:?}");
        world.until("each refusal is counted", |world| {
            world.server.control().stats().dropped(DropReason::Declined) == calls().len() as u64 - 4
        });
    }
}

#[test]
fn in_open_access_the_hook_chooses_the_worker() {
    let by_room =
        |room| move |_: &drumfire::admission::Applicant<'_>| Verdict::AcceptAt(Placement::Key(room));
    let mut world = World::connected(config(Workers::Count(4)).accept(by_room(9)), 12);
    let connections = |world: &World| {
        let stats = world.server.control().stats();
        let mut connections: Vec<_> = stats.workers.iter().map(|worker| worker.connections).collect();
        connections.sort_unstable();
        connections
    };
    world.until("all are in one place", |world| connections(world).last() == Some(&12));
}

#[test]
fn a_hook_that_panics_refuses_one_client() {
    for workers in [Workers::Inline, Workers::Count(2)] {
        let (mut world, backend) = world_with(workers, |config| {
            config.accept(|applicant| {
                let player = applicant.player.map_or(0, |player| player.id.0);
                assert!(player != 2, "the hook panics on purpose");
                Verdict::Accept
            })
        });
        for player in 1..=3 {
            let token = backend.token(&world, player);
            join(&mut world, &token);
        }
        all_heard(&mut world);
        assert!(has_connected(&world.heard[0]) && has_connected(&world.heard[2]));
        let Refusal { reason, retry_after, .. } = refusal(&world, 1);
        assert_eq!((reason, retry_after), (RefuseReason::Full, Some(Duration::from_secs(10))));
        world.until("it is counted", |world| {
            world.server.control().stats().dropped(DropReason::AcceptPanicked) >= 1 && world.peers.len() == 2
        });
        assert!(
            world
                .server
                .control()
                .stats()
                .workers
                .iter()
                .all(|worker| (worker.panics, worker.restarts) == (0, 0))
        );
    }
}

#[test]
fn a_banned_peer_is_refused_by_every_worker() {
    for workers in [Workers::Inline, Workers::Count(4)] {
        let mut world = World::connected(config(workers), 1);
        let (peer, hour) = (world.peers[0], Duration::from_secs(3_600));
        let control = world.server.control();
        let close_and_ban = |world: &mut World, text: &str| {
            let (mut pending, mut result) = (control.close_and_ban(peer, 1, text, hour), None);
            world.until("the worker has answered", |_| {
                result = pending.try_take();
                result.is_some()
            });
            result.expect("an answer")
        };
        let ban = close_and_ban(&mut world, "cheats").expect("it is there");
        assert!(matches!(ban, Ban::Address(address) if address.is_loopback()), "{ban:?}");
        world.until("it is gone", |world| world.peers.is_empty());
        let error = close_and_ban(&mut world, "again").expect_err("it is gone");
        assert!(matches!(error, Error::UnknownPeer), "{error}");
        for _ in 0..6 {
            world.join();
        }
        all_heard(&mut world);
        for client in 1..7 {
            assert_eq!(refusal(&world, client).reason, RefuseReason::Banned);
        }
        assert!(control.unban(ban) && !control.unban(ban));
        world.join();
        world.until("it may come again", |world| world.peers.len() == 1);
    }
}

#[test]
fn behind_a_closed_gate_only_new_clients_are_refused() {
    for workers in [Workers::Inline, Workers::Count(4)] {
        let (mut world, backend) = world_with(workers, |config| config);
        let (control, there) = (world.server.control(), "192.0.2.8:7777".parse().expect("an address"));
        assert!(control.is_gate_open());
        let come = |world: &mut World, players: std::ops::Range<u128>| {
            for player in players {
                let token = backend.token(world, player);
                join(world, &token);
            }
            all_heard(world);
        };
        come(&mut world, 0..4);
        control.close_gate(None);
        assert!(!world.server.control().is_gate_open());
        come(&mut world, 4..8);
        control.close_gate(Some(there));
        come(&mut world, 8..12);
        control.open_gate();
        come(&mut world, 12..16);
        for client in 0..16 {
            match client / 4 {
                1 => {
                    let Refusal { reason, retry_after, address, .. } = refusal(&world, client);
                    assert_eq!((reason, address), (RefuseReason::Full, None));
                    assert_eq!(retry_after, Some(Duration::from_secs(10)));
                }
                2 => {
                    let Refusal { reason, retry_after, address, .. } = refusal(&world, client);
                    assert_eq!((reason, retry_after), (RefuseReason::Redirect, None));
                    assert_eq!(address, Some(there));
                }
                _ => assert!(matches!(world.heard[client][..], [Event::Connected { .. }])),
            }
        }
        world.until("all that came are there", |world| {
            world.peers.len() == 8 && world.server.control().stats().dropped(DropReason::NotAdmitting) >= 8
        });
    }
}

#[test]
fn an_overloaded_worker_refuses_clients_and_keeps_its_players() {
    for workers in [Workers::Inline, Workers::Count(1)] {
        let admission = AdmissionConfig::default().busy_max_percent(BUSY_PERCENT);
        let is_slow = Arc::new(AtomicBool::new(true));
        let hook_is_slow = Arc::clone(&is_slow);
        let (mut world, backend) = world_with(workers, |config| {
            config.admission(admission).accept(move |_| {
                // A worker is measured once per second.
                let until = now() + Duration::from_millis(1_200);
                while hook_is_slow.load(Ordering::Relaxed) && now() < until {}
                Verdict::Accept
            })
        });
        let next = |world: &mut World| {
            let token = backend.token(world, world.heard.len() as u128);
            join(world, &token);
            all_heard(world);
            has_connected(world.heard.last().expect("some"))
        };
        // The second client is refused. On a slow machine it can arrive so late that it is accepted, and a later one is refused.
        while next(&mut world) {}
        is_slow.store(false, Ordering::Relaxed);
        let sent_away = world.heard.len() - 1;
        let Refusal { reason, retry_after, .. } = refusal(&world, sent_away);
        assert_eq!((reason, retry_after), (RefuseReason::Full, Some(Duration::from_secs(10))));
        world.until("it is counted", |world| {
            world.server.control().stats().dropped(DropReason::Overloaded) >= 1
        });
        loop {
            let then = now() + RETRY_AFTER;
            world.until("the next may come", |_| now() >= then);
            if next(&mut world) {
                break;
            }
        }
        assert!(world.heard[..sent_away].iter().all(|heard| matches!(heard[..], [Event::Connected { .. }])));
    }
}
