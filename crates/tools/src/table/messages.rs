//! The messages of a report as people read them: their books as a sum, and what delivering them took.

use super::Align::{Left, Right};
use super::{TextTable, line, share_of, signed_thousands, thousands};
use crate::report::{Messages, Report, UNEXPLAINED};

/// The section of the messages; nothing where there are none.
pub(super) fn section(report: &Report) -> String {
    let Some(messages) = &report.messages else { return String::new() };
    let Messages { mode, offered, books, resent, packets_lost, answers, acks_alone, .. } = messages;
    let share = |count: f64| share_of(count, books.sent);
    let mut table = TextTable::new(&[("", Left), ("", Right), ("", Right)]).indented(2);
    table.row(["  sent".to_owned(), thousands(books.sent), share(books.sent as f64)]);
    table.row(["= delivered".to_owned(), thousands(books.received), share(books.received as f64)]);
    for (name, count) in &books.drops {
        table.row([format!("+ {name}"), thousands(*count), share(*count as f64)]);
    }
    let remainder = books.unexplained();
    table.row([format!("+ {UNEXPLAINED}"), signed_thousands(remainder), share(remainder as f64)]);
    let mut out =
        line("messages", &format!("{mode}: {}; the promise was kept", mode.promise())) + &table.render();
    if let Some(offered) = offered {
        let taken = share_of(books.sent as f64, *offered);
        out += &line(
            "offered",
            &format!("{} messages by the schedule, {taken} of them sent", thousands(*offered)),
        );
    }
    let took = format!(
        "{} messages sent again, {} packets found lost, {} datagrams sent back, {} of them acks alone",
        thousands(*resent),
        thousands(*packets_lost),
        thousands(*answers),
        thousands(*acks_alone)
    );
    out + &line("delivery", &took)
}
