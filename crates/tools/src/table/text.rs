//! Plain text: numbers with separators, wrapped lines, and small tables.
//!
//! All output is printable ASCII, so that a report survives a mail or a commit message, and foreign text cannot control a
//! terminal.

use std::collections::BTreeMap;

pub use comfy_table::CellAlignment as Align;
use comfy_table::{ContentArrangement, Table, presets};

/// The maximum width of a line in a report, in characters.
pub const LINE_WIDTH: usize = 100;

/// A table without borders. Columns are two spaces apart.
///
/// A row may have fewer cells than there are headings. Additional cells get columns without a heading, aligned to the right.
#[derive(Clone, Debug)]
pub struct TextTable {
    table: Table,
    alignments: Vec<Align>,
    indent: usize,
}

impl TextTable {
    /// Makes a table without rows.
    pub fn new(headings: &[(&str, Align)]) -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        if headings.iter().any(|(title, _)| !title.is_empty()) {
            table.set_header(headings.iter().map(|(title, _)| plain_ascii(title)));
        }
        Self { table, alignments: headings.iter().map(|(_, align)| *align).collect(), indent: 0 }
    }

    /// Indents the whole table by this number of spaces.
    #[must_use]
    pub fn indented(mut self, columns: usize) -> Self {
        self.indent = columns;
        self
    }

    /// Adds a row below the others.
    pub fn row<C: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.table.add_row(cells.into_iter().map(|cell| plain_ascii(cell.as_ref())));
    }

    /// Returns the lines of the table, each with a line feed and without spaces at its end.
    pub fn render(&self) -> String {
        let mut table = self.table.clone();
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            column.set_cell_alignment(self.alignments.get(index).copied().unwrap_or(Align::Right));
        }
        let indent = " ".repeat(self.indent);
        table.lines().fold(String::new(), |text, line| text + format!("{indent}{line}").trim_end() + "\n")
    }
}

/// A number with a comma after every three digits: `1,234,567`.
pub fn thousands(number: u64) -> String {
    grouped(&number.to_string())
}

/// A signed number, grouped like [`thousands`].
pub(crate) fn signed_thousands(number: i64) -> String {
    grouped(&number.to_string())
}

/// Counts by name; `None` if there are none.
pub(crate) fn named(counts: &BTreeMap<String, u64>) -> Option<String> {
    let counts: Vec<String> =
        counts.iter().map(|(name, count)| format!("{name} {}", thousands(*count))).collect();
    (!counts.is_empty()).then(|| counts.join(", "))
}

/// A rate rounded to a whole number and grouped like [`thousands`]; a dash if it is not finite.
pub fn rounded(number: f64) -> String {
    if number.is_finite() { grouped(&format!("{number:.0}")) } else { "-".to_owned() }
}

/// A count with at most five characters below 10^18: `999`, `1.25k`, `84.1k`, `584k`, `1.04M`.
pub(crate) fn abbreviated(number: u64) -> String {
    let mut value = number as f64;
    let mut unit = "";
    for next in ["k", "M", "G", "T", "P"] {
        // 999.5 and not 1000: what rounds up to a thousand belongs to the next unit.
        if value < 999.5 {
            break;
        }
        unit = next;
        value /= 1_000.0;
    }
    match value {
        _ if unit.is_empty() => number.to_string(),
        v if v < 9.995 => format!("{v:.2}{unit}"),
        v if v < 99.95 => format!("{v:.1}{unit}"),
        v => format!("{v:.0}{unit}"),
    }
}

/// Replaces every character that is not printable ASCII by a question mark.
pub(crate) fn plain_ascii(text: &str) -> String {
    text.chars().map(|c| if c == ' ' || c.is_ascii_graphic() { c } else { '?' }).collect()
}

/// The column at which the text of a labelled line starts.
const LABEL_WIDTH: usize = 10;

/// A label and a text, wrapped to [`LINE_WIDTH`].
///
/// The text starts in column [`LABEL_WIDTH`] on every line, or further right if the label is longer.
pub(crate) fn paragraph(label: &str, text: &str) -> String {
    let label = plain_ascii(label);
    let column = LABEL_WIDTH.max(label.len() + 1);
    let mut out = String::new();
    for (index, line) in wrapped(text, LINE_WIDTH.saturating_sub(column)).iter().enumerate() {
        let label = if index == 0 { label.as_str() } else { "" };
        out.push_str(format!("{label:<column$}{line}").trim_end());
        out.push('\n');
    }
    out
}

/// Wraps a text between words to lines of at most `room` characters. Longer words are split.
pub(crate) fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(u16::try_from(room).unwrap_or(u16::MAX)).add_row([plain_ascii(text)]);
    for column in table.column_iter_mut() {
        column.set_padding((0, 0));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

fn grouped(number: &str) -> String {
    let (sign, digits) = number.strip_prefix('-').map_or(("", number), |digits| ("-", digits));
    let mut out = sign.to_owned();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_comes_after_every_three_digits() {
        let cases =
            [(0, "0"), (999, "999"), (1_000, "1,000"), (999_999, "999,999"), (1_000_000, "1,000,000")];
        for (number, text) in cases {
            assert_eq!(thousands(number), text);
        }
        assert_eq!(thousands(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!((signed_thousands(-100), signed_thousands(-1_000)), ("-100".into(), "-1,000".into()));
        assert_eq!((rounded(249_999.6), rounded(f64::NAN)), ("250,000".into(), "-".into()));
    }

    #[test]
    fn an_abbreviation_has_at_most_five_characters() {
        for (number, text) in [
            (999, "999"),
            (1_000, "1.00k"),
            (1_254, "1.25k"),
            (9_994, "9.99k"),
            (9_996, "10.0k"),
            (84_149, "84.1k"),
            (583_666, "584k"),
            (999_499, "999k"),
            (999_500, "1.00M"),
            (1_037_000, "1.04M"),
        ] {
            assert_eq!(abbreviated(number), text);
        }
        assert!((0..18).all(|exponent| abbreviated(10_u64.pow(exponent) * 10 - 1).len() <= 5));
    }

    #[test]
    fn a_line_holds_exactly_the_room_it_is_given() {
        assert_eq!(
            (wrapped("ab cd", 4), wrapped("ab cd", 5)),
            (vec!["ab".into(), "cd".into()], vec!["ab cd".into()])
        );
        assert_eq!(plain_ascii("a\u{1b}[31mb\tc\u{e9} d"), "a?[31mb?c? d");
    }

    #[test]
    fn numbers_are_aligned_right_and_names_left() {
        let mut table = TextTable::new(&[("name", Align::Left), ("pps", Align::Right)]).indented(1);
        table.row(["a", "1,000"]);
        table.row(["longer"]);
        table.row(["b", "7", "3"]);
        assert_eq!(table.render(), " name      pps\n a       1,000\n longer\n b           7  3\n");
        let mut table = TextTable::new(&[("", Align::Left), ("", Align::Right)]);
        table.row(["x", "10"]);
        assert_eq!(table.render(), "x  10\n", "no row of empty headings");
    }
}
