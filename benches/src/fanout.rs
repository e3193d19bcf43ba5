//! The books of messages that one says and all hear: from the schedule to the last ear every message has a place.
//!
//! It counts nothing: both ends tell their counts by name.

use crate::books::count;
use crate::process::Counts;

/// Datagrams that may be dropped together and be one drop in the kernel's account: a train to one socket.
const PER_DROP: u64 = 64;

/// Messages that one datagram carries at most: of 15 bytes each with a header of one.
const PER_DATAGRAM: u64 = 1_472 / 16;

/// Where the messages of a run went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fanout {
    /// Messages that the schedule asked for.
    pub offered: u64,
    /// Of those, left out or not taken at the clients.
    pub not_said: u64,
    /// Of those said, lost on their way to the server.
    pub lost_up: u64,
    /// Of those received, not broadcast for want of room.
    pub not_broadcast: u64,
    /// Deliveries that the broadcasts owed.
    pub owed: u64,
    /// Of those, for which a member had no room.
    pub missed: u64,
    /// Of those taken, given up before they were in a packet.
    pub given_up: u64,
    /// Of those in packets, in datagrams that did not arrive.
    pub lost: u64,
    /// Of those in packets, for which the client's connection had no memory.
    pub overflowed: u64,
    /// Deliveries.
    pub heard: u64,
    /// Datagrams of the server that the kernel dropped.
    pub kernel_receive_queue: u64,
}

impl Fanout {
    /// Deliveries that never came to be, wherever the message or the copy of it went, for so many members.
    #[must_use]
    pub const fn dropped(&self, members: u64) -> u64 {
        let unheard = (self.lost_up + self.not_broadcast) * members;
        unheard + self.missed + self.given_up + self.lost + self.overflowed
    }
}

/// Closes the books of a run on one host; `drops` are the datagrams that the kernel says it dropped of all sockets.
///
/// A transport with datagrams tells `written` (datagrams), and its books are closed too.
///
/// # Errors
///
/// One line that names the counter that is off, and by how much.
pub fn close_fanout(
    server: &Counts,
    clients: &Counts,
    drops: u64,
    is_reliable: bool,
) -> Result<Fanout, String> {
    let (at, of) = (|name: &str| count(server, name), |name: &str| count(clients, name));
    for (name, found) in [
        ("left", of("left")),
        ("server left", at("server left")),
        ("strangers", of("strangers")),
        ("panics", at("panics")),
        ("unexplained", at("unexplained")),
        ("bots unexplained", of("bots unexplained")),
        ("undelivered", at("undelivered")),
    ] {
        must_be(name, found, 0)?;
    }
    let not_said = of("skipped") + of("refused");
    must_be("said", of("said"), less("offered", of("offered"), not_said)?)?;
    let lost_up = less("received", of("said"), at("received"))?;
    let not_broadcast = less("broadcasts", at("received"), at("broadcasts"))?;
    must_be("not broadcast", at("not broadcast"), not_broadcast)?;
    let accepted = less("missed", at("owed"), at("missed"))?;
    must_be("sealed", at("sealed"), less("given up", accepted, at("given up"))?)?;
    let overflowed = of("bots overflows");
    let lost = less("heard", at("sealed"), of("heard") + overflowed)?;
    let mut books = Fanout {
        offered: of("offered"),
        not_said,
        lost_up,
        not_broadcast,
        owed: at("owed"),
        missed: at("missed"),
        given_up: at("given up"),
        lost,
        overflowed,
        heard: of("heard"),
        kernel_receive_queue: 0,
    };
    if server.contains_key("written") {
        must_be("bots delivered", of("bots delivered"), of("heard"))?;
        must_be("sent", at("sent"), less("not sent", at("written"), at("not sent"))?)?;
        // Something may have left between the server's books and its end.
        books.kernel_receive_queue = at("sent").saturating_sub(of("bots received"));
        at_most("kernel_receive_queue", books.kernel_receive_queue, drops.saturating_mul(PER_DROP))?;
        let gone = books.kernel_receive_queue + of("bots dropped") + at("not sent");
        at_most("heard", lost, gone.saturating_mul(PER_DATAGRAM))?;
        at_most("received", lost_up, of("bots sent").saturating_sub(at("socket received")))?;
    }
    if is_reliable {
        for (name, found) in [("received", lost_up), ("heard", lost), ("behind", of("behind"))] {
            must_be(name, found, 0)?;
        }
        at_most("gaps", of("gaps"), books.missed)?;
    }
    Ok(books)
}

fn less(name: &str, all: u64, part: u64) -> Result<u64, String> {
    all.checked_sub(part).ok_or_else(|| off(name, part, &format!("at most {all}")))
}

fn must_be(name: &str, found: u64, goal: u64) -> Result<(), String> {
    if found == goal { Ok(()) } else { Err(off(name, found, &goal.to_string())) }
}

fn at_most(name: &str, found: u64, most: u64) -> Result<(), String> {
    if found <= most { Ok(()) } else { Err(off(name, found, &format!("at most {most}"))) }
}

fn off(name: &str, found: u64, goal: &str) -> String {
    format!("BOOKS DO NOT CLOSE: {name} is {found}, and must be {goal}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten offered, eight said, all broadcast to five, one missed; of 39 sealed 30 heard, one overflowed, eight lost.
    fn run() -> (Counts, Counts) {
        let server = [
            ("received", 8),
            ("broadcasts", 8),
            ("owed", 40),
            ("missed", 1),
            ("sealed", 39),
            ("written", 7),
            ("sent", 6),
            ("not sent", 1),
            ("socket received", 9),
        ];
        let clients = [
            ("offered", 10),
            ("skipped", 1),
            ("refused", 1),
            ("said", 8),
            ("heard", 30),
            ("bots overflows", 1),
            ("bots delivered", 30),
            ("bots sent", 9),
            ("bots received", 5),
            ("gaps", 9),
        ];
        let named = |(name, count): (&str, u64)| (name.to_owned(), count);
        (server.map(named).into(), clients.map(named).into())
    }

    #[test]
    fn messages_that_have_a_place_are_found_there() {
        let (server, clients) = run();
        let books = close_fanout(&server, &clients, 1, false).expect("they close");
        assert_eq!((books.owed, books.missed, books.lost, books.overflowed, books.heard), (40, 1, 8, 1, 30));
        assert_eq!((books.offered, books.not_said, books.kernel_receive_queue), (10, 2, 1));
    }

    #[test]
    fn a_delivery_that_nobody_heard_is_dropped_wherever_it_went() {
        let (server, clients) = run();
        let books = close_fanout(&server, &clients, 1, false).expect("they close");
        assert_eq!(books.dropped(5), 10, "one missed, eight in lost datagrams, one without memory");
        let up = Fanout { lost_up: 2, not_broadcast: 1, ..books };
        assert_eq!(up.dropped(5), 25, "one that nobody broadcasts is lost to all five");
    }

    #[test]
    fn each_counter_that_is_off_is_named() {
        let cases = [
            ("said", "said", 7),
            ("offered", "said", 11),
            ("heard", "heard", 40),
            ("bots delivered", "bots delivered", 31),
            ("strangers", "strangers", 1),
            ("left", "left", 1),
        ];
        for (counter, named, value) in cases {
            let (server, mut clients) = run();
            clients.insert(counter.to_owned(), value);
            let line = close_fanout(&server, &clients, 1, false).expect_err(counter);
            assert!(line.contains(&format!("CLOSE: {named} is")), "{counter}: {line}");
        }
        let cases = [
            ("received", "received", 9),
            ("broadcasts", "not broadcast", 7),
            ("sealed", "sealed", 38),
            ("owed", "sealed", 41),
            ("missed", "sealed", 0),
            ("written", "sent", 8),
            ("panics", "panics", 1),
            ("unexplained", "unexplained", 1),
        ];
        for (counter, named, value) in cases {
            let (mut server, clients) = run();
            server.insert(counter.to_owned(), value);
            let line = close_fanout(&server, &clients, 1, false).expect_err(counter);
            assert!(line.contains(&format!("CLOSE: {named} is")), "{counter}: {line}");
        }
    }

    #[test]
    fn what_is_lost_needs_a_drop_that_somebody_counted_and_is_never_reliable() {
        let (mut server, mut clients) = run();
        let line = close_fanout(&server, &clients, 0, false).expect_err("the kernel knows of no drop");
        assert!(line.contains("kernel_receive_queue is 1"), "{line}");
        let line = close_fanout(&server, &clients, 1, true).expect_err("it must not lose any");
        assert!(line.contains("heard is 8"), "{line}");
        server.extend([("written".to_owned(), 5), ("sent".to_owned(), 5), ("not sent".to_owned(), 0)]);
        let line = close_fanout(&server, &clients, 0, false).expect_err("every datagram arrived");
        assert!(line.contains("heard is 8, and must be at most 0"), "{line}");
        clients.extend([("heard".to_owned(), 38), ("bots delivered".to_owned(), 38), ("gaps".to_owned(), 1)]);
        assert!(close_fanout(&server, &clients, 0, true).is_ok());
        clients.insert("gaps".to_owned(), 2);
        assert!(close_fanout(&server, &clients, 0, true).is_err_and(|line| line.contains("gaps is 2")));
    }
}
