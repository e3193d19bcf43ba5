//! The books of messages that one client sends and all receive. Each message has a place from the schedule to the last receiver.
//!
//! Both ends count by name. This module only compares the counts.

use crate::books::{close, count};
use crate::process::Counts;

/// Datagrams that the kernel may drop together and count as one: a train to one socket.
const PER_DROP: u64 = 64;

/// Messages in one datagram, at most. Each has 15 bytes and a header of one byte.
const PER_DATAGRAM: u64 = 1_472 / 16;

/// Where the messages of a run went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fanout {
    /// Messages that the schedule asked for.
    pub offered: u64,
    /// Offered messages that were left out or refused at the clients.
    pub not_said: u64,
    /// Sent messages that were lost on their way to the server.
    pub lost_up: u64,
    /// Received messages that were not broadcast for want of room.
    pub not_broadcast: u64,
    /// Deliveries that the broadcasts owed.
    pub owed: u64,
    /// Owed deliveries for which a member had no room.
    pub missed: u64,
    /// Accepted deliveries that were given up before they were in a packet.
    pub given_up: u64,
    /// Deliveries in datagrams that did not arrive.
    pub lost: u64,
    /// Deliveries that arrived and for which the client's connection had no memory.
    pub overflowed: u64,
    /// Deliveries that the clients received.
    pub heard: u64,
    /// Datagrams of the server that the kernel dropped.
    pub kernel_receive_queue: u64,
}

impl Fanout {
    /// Deliveries to this number of members that never happened, wherever the message was lost.
    pub const fn dropped(&self, members: u64) -> u64 {
        let unheard = (self.lost_up + self.not_broadcast) * members;
        unheard + self.missed + self.given_up + self.lost + self.overflowed
    }
}

/// Closes the books of a run on one host. `drops` is the number of datagrams that the kernel dropped at all sockets.
///
/// A server that counts `datagrams sent` also has its books of datagrams closed.
pub fn close_fanout(
    server: &Counts,
    clients: &Counts,
    drops: u64,
    is_reliable: bool,
) -> Result<Fanout, String> {
    let (at, of) = (|name: &str| count(server, name), |name: &str| count(clients, name));
    let not_said = of("skipped") + of("refused");
    let (given_up, overflowed) = (at("messages given up"), of("unreliable overflows"));
    let mut books = Fanout {
        offered: of("offered"),
        not_said,
        lost_up: of("said").saturating_sub(at("received")),
        not_broadcast: at("not broadcast"),
        owed: at("owed"),
        missed: at("missed"),
        given_up,
        lost: at("messages sealed").saturating_sub(of("heard") + overflowed),
        overflowed,
        heard: of("heard"),
        kernel_receive_queue: 0,
    };
    let exactly = |name, found, goal| (name, found, goal..=goal);
    let at_most = |name, found, most| (name, found, 0..=most);
    let mut bounds = vec![
        exactly("left", of("left"), 0),
        exactly("server left", at("server left"), 0),
        exactly("strangers", of("strangers"), 0),
        exactly("panics", at("panics"), 0),
        exactly("unexplained", at("unexplained"), 0),
        exactly("clients unexplained", of("unexplained"), 0),
        exactly("undelivered", at("undelivered"), 0),
        exactly("said", of("said") + not_said, of("offered")),
        at_most("received", at("received"), of("said")),
        exactly("not broadcast", at("not broadcast") + at("broadcasts"), at("received")),
        exactly("messages sealed", at("messages sealed") + given_up + at("missed"), at("owed")),
        at_most("heard", of("heard") + overflowed, at("messages sealed")),
    ];
    if server.contains_key("datagrams sent") {
        // The server may send datagrams between its last counts and its end.
        books.kernel_receive_queue = at("socket sent").saturating_sub(of("socket received"));
        let dropped = clients.iter().filter(|(name, _)| name.starts_with("dropped: "));
        let dropped: u64 = dropped.map(|(_, count)| count).sum();
        let unread = books.kernel_receive_queue + dropped + at("not sent");
        bounds.extend([
            exactly("messages delivered", of("messages delivered"), of("heard")),
            exactly("socket sent", at("socket sent") + at("not sent"), at("datagrams sent")),
            at_most("kernel_receive_queue", books.kernel_receive_queue, drops.saturating_mul(PER_DROP)),
            at_most("lost", books.lost, unread.saturating_mul(PER_DATAGRAM)),
            at_most(
                "lost on the way up",
                books.lost_up,
                of("socket sent").saturating_sub(at("socket received")),
            ),
        ]);
    }
    if is_reliable {
        bounds.extend([
            exactly("lost on the way up", books.lost_up, 0),
            exactly("lost", books.lost, 0),
            exactly("behind", of("behind"), 0),
            at_most("gaps", of("gaps"), books.missed),
        ]);
    }
    close(bounds)?;
    Ok(books)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten messages were offered, eight said, all of them broadcast to five members, and one copy was missed. Of 39 sealed copies 30 were
    /// heard, one overflowed, and eight were lost.
    fn run() -> (Counts, Counts) {
        let server = [
            ("received", 8),
            ("broadcasts", 8),
            ("owed", 40),
            ("missed", 1),
            ("messages sealed", 39),
            ("datagrams sent", 7),
            ("socket sent", 6),
            ("not sent", 1),
            ("socket received", 9),
        ];
        let clients = [
            ("offered", 10),
            ("skipped", 1),
            ("refused", 1),
            ("said", 8),
            ("heard", 30),
            ("unreliable overflows", 1),
            ("messages delivered", 30),
            ("socket sent", 9),
            ("socket received", 5),
            ("gaps", 9),
        ];
        let named = |(name, count): (&str, u64)| (name.to_owned(), count);
        (server.map(named).into(), clients.map(named).into())
    }

    #[test]
    fn each_message_has_one_place() {
        let (server, clients) = run();
        let books = close_fanout(&server, &clients, 1, false).expect("they close");
        assert_eq!((books.owed, books.missed, books.lost, books.overflowed, books.heard), (40, 1, 8, 1, 30));
        assert_eq!((books.offered, books.not_said, books.kernel_receive_queue), (10, 2, 1));
    }

    #[test]
    fn a_delivery_that_was_not_heard_is_dropped() {
        let (server, clients) = run();
        let books = close_fanout(&server, &clients, 1, false).expect("they close");
        assert_eq!(books.dropped(5), 10, "one missed, eight in lost datagrams, one without memory");
        let up = Fanout { lost_up: 2, not_broadcast: 1, ..books };
        assert_eq!(up.dropped(5), 25, "a message that is not broadcast is lost to all five");
    }

    #[test]
    fn each_counter_that_is_off_is_named() {
        let cases = [
            (1, "said", "said", 7),
            (1, "offered", "said", 11),
            (1, "heard", "heard", 40),
            (1, "messages delivered", "messages delivered", 31),
            (1, "strangers", "strangers", 1),
            (1, "left", "left", 1),
            (0, "received", "received", 9),
            (0, "broadcasts", "not broadcast", 7),
            (0, "messages sealed", "messages sealed", 38),
            (0, "owed", "messages sealed", 41),
            (0, "missed", "messages sealed", 0),
            (0, "datagrams sent", "socket sent", 8),
            (0, "panics", "panics", 1),
            (0, "unexplained", "unexplained", 1),
        ];
        for (end, counter, named, value) in cases {
            let (mut server, mut clients) = run();
            [&mut server, &mut clients][end].insert(counter.to_owned(), value);
            let line = close_fanout(&server, &clients, 1, false).expect_err(counter);
            assert!(line.contains(&format!("CLOSE: {named} is")), "{counter}: {line}");
        }
    }

    #[test]
    fn a_loss_needs_a_counted_drop_and_is_never_reliable() {
        let (mut server, mut clients) = run();
        let line = close_fanout(&server, &clients, 0, false).expect_err("the kernel counted no drop");
        assert!(line.contains("kernel_receive_queue is 1"), "{line}");
        let line = close_fanout(&server, &clients, 1, true).expect_err("it must not lose any");
        assert!(line.contains("lost is 8"), "{line}");
        server.extend([
            ("datagrams sent".to_owned(), 5),
            ("socket sent".to_owned(), 5),
            ("not sent".to_owned(), 0),
        ]);
        let line = close_fanout(&server, &clients, 0, false).expect_err("every datagram arrived");
        assert!(line.contains("lost is 8, and must be 0"), "{line}");
        clients.extend([
            ("heard".to_owned(), 38),
            ("messages delivered".to_owned(), 38),
            ("gaps".to_owned(), 1),
        ]);
        assert!(close_fanout(&server, &clients, 0, true).is_ok());
        clients.insert("gaps".to_owned(), 2);
        assert!(close_fanout(&server, &clients, 0, true).is_err_and(|line| line.contains("gaps is 2")));
    }
}
