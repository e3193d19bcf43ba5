//! The books of messages that one client sends and all receive. Each message has a place from the schedule to the last receiver.
//!
//! Both ends count by name. This module only compares the counts.

use drumfire_tools::report::{Accounting, GIVEN_UP, IN_LOST_DATAGRAMS, RECEIVE_MEMORY};

use crate::books::{close, count};
use crate::process::Counts;

/// The name of the counter that is wrong when connections ended.
pub const CONNECTIONS_ENDED: &str = "connections that ended";

/// Datagrams that the kernel may drop together and count as one: a train to one socket.
const PER_DROP: u64 = 64;

/// Messages in one datagram, at most. Each has 15 bytes and a header of one byte.
const PER_DATAGRAM: u64 = 1_472 / 16;

/// Closes the books of a run on one host, in which no connection ended: all `members` must receive each offered message. `drops` is
/// the number of datagrams that the kernel dropped at all sockets.
///
/// A server that counts `datagrams sent` also has its books of datagrams closed.
pub fn close_fanout(
    server: &Counts,
    clients: &Counts,
    members: u64,
    drops: u64,
    is_reliable: bool,
) -> Result<Accounting, String> {
    let (at, of) = (|name: &str| count(server, name), |name: &str| count(clients, name));
    let (given_up, overflowed) = (at("messages given up"), of("unreliable overflows"));
    let lost_to_server = of("sent").saturating_sub(at("received"));
    let lost = at("messages sealed").saturating_sub(of("received") + overflowed);
    let exactly = |name, found, goal| (name, found, goal..=goal);
    let at_most = |name, found, max| (name, found, 0..=max);
    let mut bounds = vec![
        exactly(CONNECTIONS_ENDED, of("ended") + at("ended"), 0),
        exactly("unexpected", of("unexpected"), 0),
        exactly("panics", at("panics"), 0),
        exactly("unexplained", at("unexplained"), 0),
        exactly("clients unexplained", of("unexplained"), 0),
        exactly("undelivered", at("undelivered"), 0),
        at_most("received", at("received"), of("sent")),
        exactly("not broadcast", at("not_broadcast") + at("broadcasts"), at("received")),
        exactly(
            "messages sealed",
            at("messages sealed") + given_up + at("missed"),
            at("broadcasts") * members,
        ),
        at_most("messages received", of("received") + overflowed, at("messages sealed")),
    ];
    if server.contains_key("datagrams sent") {
        // The server may send datagrams between its last counts and its end.
        let dropped_by_kernel = at("socket sent").saturating_sub(of("socket received"));
        let dropped = clients.iter().filter(|(name, _)| name.starts_with("dropped: "));
        let dropped: u64 = dropped.map(|(_, count)| count).sum();
        let unread = dropped_by_kernel + dropped + at("not sent");
        bounds.extend([
            exactly("messages delivered", of("messages delivered"), of("received")),
            exactly("socket sent", at("socket sent") + at("not sent"), at("datagrams sent")),
            at_most("kernel_receive_queue", dropped_by_kernel, drops.saturating_mul(PER_DROP)),
            at_most("lost", lost, unread.saturating_mul(PER_DATAGRAM)),
            at_most(
                "lost to the server",
                lost_to_server,
                of("socket sent").saturating_sub(at("socket received")),
            ),
        ]);
    }
    if is_reliable {
        bounds.extend([
            exactly("lost to the server", lost_to_server, 0),
            exactly("lost", lost, 0),
            exactly("reordered", of("reordered"), 0),
            at_most("gaps", of("gaps"), at("missed")),
        ]);
    }
    close(bounds)?;
    Ok(Accounting::new((of("sent") + of("skipped")) * members, of("received"))
        .dropped("skipped_by_clients", of("skipped") * members)
        .dropped("lost_to_server", lost_to_server * members)
        .dropped("not_broadcast", at("not_broadcast") * members)
        .dropped("missed", at("missed"))
        .dropped(GIVEN_UP, given_up)
        .dropped(IN_LOST_DATAGRAMS, lost)
        .dropped(RECEIVE_MEMORY, overflowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten messages were offered, eight sent, all of them broadcast to five members, and one copy was missed. Of 39 sealed copies 30 were
    /// received, one overflowed, and eight were lost.
    fn run() -> (Counts, Counts) {
        let server = [
            ("received", 8),
            ("broadcasts", 8),
            ("missed", 1),
            ("messages sealed", 39),
            ("datagrams sent", 7),
            ("socket sent", 6),
            ("not sent", 1),
            ("socket received", 9),
        ];
        let clients = [
            ("skipped", 2),
            ("sent", 8),
            ("received", 30),
            ("unreliable overflows", 1),
            ("messages delivered", 30),
            ("socket sent", 9),
            ("socket received", 5),
        ];
        let named = |(name, count): (&str, u64)| (name.to_owned(), count);
        (server.map(named).into(), clients.map(named).into())
    }

    #[test]
    fn each_message_has_one_place() {
        let (server, clients) = run();
        let books = close_fanout(&server, &clients, 5, 1, false).expect("they close");
        assert_eq!((books.sent, books.received, books.dropped_count()), (50, 30, 20));
        assert_eq!(books.drops["skipped_by_clients"], 10, "a skipped message is lost to all five");
        assert_eq!((books.drops["missed"], books.drops[IN_LOST_DATAGRAMS]), (1, 8));
        assert!(books.close());
    }

    #[test]
    fn each_counter_that_is_off_is_named() {
        let cases = [
            (1, "sent", "received", 7),
            (1, "received", "messages received", 40),
            (1, "messages delivered", "messages delivered", 31),
            (1, "unexpected", "unexpected", 1),
            (1, "ended", CONNECTIONS_ENDED, 1),
            (0, "ended", CONNECTIONS_ENDED, 1),
            (0, "received", "received", 9),
            (0, "broadcasts", "not broadcast", 7),
            (0, "messages sealed", "messages sealed", 38),
            (0, "missed", "messages sealed", 0),
            (0, "datagrams sent", "socket sent", 8),
            (0, "panics", "panics", 1),
            (0, "unexplained", "unexplained", 1),
        ];
        for (end, counter, named, value) in cases {
            let (mut server, mut clients) = run();
            [&mut server, &mut clients][end].insert(counter.to_owned(), value);
            let line = close_fanout(&server, &clients, 5, 1, false).expect_err(counter);
            assert!(line.contains(&format!("CLOSE: {named} is")), "{counter}: {line}");
        }
    }

    #[test]
    fn a_loss_needs_a_counted_drop_and_is_never_reliable() {
        let (mut server, mut clients) = run();
        let line = close_fanout(&server, &clients, 5, 0, false).expect_err("the kernel counted no drop");
        assert!(line.contains("kernel_receive_queue is 1"), "{line}");
        let line = close_fanout(&server, &clients, 5, 1, true).expect_err("it must not lose any");
        assert!(line.contains("lost is 8"), "{line}");
        server.extend([
            ("datagrams sent".to_owned(), 5),
            ("socket sent".to_owned(), 5),
            ("not sent".to_owned(), 0),
        ]);
        let line = close_fanout(&server, &clients, 5, 0, false).expect_err("every datagram arrived");
        assert!(line.contains("lost is 8, and must be 0"), "{line}");
        clients.extend([("received".to_owned(), 38), ("messages delivered".to_owned(), 38)]);
        assert!(close_fanout(&server, &clients, 5, 0, true).is_ok());
        clients.insert("reordered".to_owned(), 1);
        assert!(
            close_fanout(&server, &clients, 5, 0, true).is_err_and(|line| line.contains("reordered is 1"))
        );
    }
}
