//! Plain text for people: numbers with separators, wrapped lines and small aligned tables.
//!
//! Everything that leaves here is printable ASCII, so that a report pasted into a mail or a commit message
//! stays readable and no name from elsewhere can move a terminal's cursor. It knows nothing of reports,
//! colours or the width of a terminal: [`LINE_WIDTH`] is all there is.

/// The widest line a report prints, in characters.
pub const LINE_WIDTH: usize = 100;

/// Where a column's cells stand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Align {
    /// Names and sentences.
    Left,
    /// Numbers, so that their digits line up.
    Right,
}

/// A table with a heading, as wide as its widest cells and no wider.
///
/// A row may have fewer cells than there are headings (the rest stays blank) or more (the surplus gets
/// columns without a heading, aligned to the right).
#[derive(Clone, Debug)]
pub struct TextTable {
    headings: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
    indent: usize,
}

impl TextTable {
    /// A table without rows.
    #[must_use]
    pub fn new(headings: &[(&str, Align)]) -> Self {
        let headings = headings.iter().map(|(title, align)| (plain_ascii(title), *align)).collect();
        Self { headings, rows: Vec::new(), indent: 0 }
    }

    /// Moves the whole table `columns` characters to the right.
    #[must_use]
    pub fn indented(mut self, columns: usize) -> Self {
        self.indent = columns;
        self
    }

    /// Adds a row below the others.
    pub fn row<C: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(|cell| plain_ascii(cell.as_ref())).collect());
    }

    /// The table's lines, each ended by a line feed and without blanks at its end.
    #[must_use]
    pub fn render(&self) -> String {
        let headings: Vec<String> = self.headings.iter().map(|(title, _)| title.clone()).collect();
        let widths = self.widths(&headings);
        let has_headings = headings.iter().any(|title| !title.is_empty());
        let mut out = String::new();
        for cells in has_headings.then_some(&headings).into_iter().chain(&self.rows) {
            self.push_row(&mut out, cells, &widths);
        }
        out
    }

    fn widths(&self, headings: &[String]) -> Vec<usize> {
        let rows = || self.rows.iter().map(Vec::as_slice).chain([headings]);
        let columns = rows().map(<[String]>::len).max().unwrap_or(0);
        let width = |column| rows().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
        (0..columns).map(width).collect()
    }

    fn push_row(&self, out: &mut String, cells: &[String], widths: &[usize]) {
        let mut line = " ".repeat(self.indent);
        for (column, &width) in widths.iter().enumerate() {
            let cell = cells.get(column).map_or("", String::as_str);
            if column > 0 {
                line.push_str("  ");
            }
            match self.headings.get(column).map_or(Align::Right, |(_, align)| *align) {
                Align::Left => line.push_str(&format!("{cell:<width$}")),
                Align::Right => line.push_str(&format!("{cell:>width$}")),
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

/// A number with a comma after every three digits: `1,234,567`.
#[must_use]
pub fn thousands(number: u64) -> String {
    grouped(&number.to_string())
}

/// A number that may be negative, grouped like [`thousands`].
#[must_use]
pub fn signed_thousands(number: i64) -> String {
    grouped(&number.to_string())
}

/// A rate rounded to a whole number and grouped like [`thousands`]; a dash when it is not a number.
#[must_use]
pub fn rounded(number: f64) -> String {
    if number.is_finite() { grouped(&format!("{number:.0}")) } else { "-".to_owned() }
}

/// A count with at most five characters below 10^18: `999`, `1.25k`, `84.1k`, `584k`, `1.04M`.
#[must_use]
pub fn abbreviated(number: u64) -> String {
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

/// The text with every character that is not printable ASCII replaced by a question mark.
#[must_use]
pub fn plain_ascii(text: &str) -> String {
    text.chars().map(|c| if c == ' ' || c.is_ascii_graphic() { c } else { '?' }).collect()
}

/// A label and the words that belong to it, wrapped to [`LINE_WIDTH`] and hung below one another.
///
/// The words start in the same column on every line; `label_width` is that column, in characters. A longer
/// label moves them all. A word too long for a line of its own is cut into pieces.
#[must_use]
pub fn paragraph(label: &str, label_width: usize, text: &str) -> String {
    let label = plain_ascii(label);
    let column = label_width.max(label.len() + 1);
    let mut out = String::new();
    for (index, line) in wrapped(text, LINE_WIDTH.saturating_sub(column)).iter().enumerate() {
        let label = if index == 0 { label.as_str() } else { "" };
        out.push_str(format!("{label:<column$}{line}").trim_end());
        out.push('\n');
    }
    out
}

/// Plain ASCII lines of at most `room` characters (at least one), broken between words where that is possible.
#[must_use]
pub fn wrapped(text: &str, room: usize) -> Vec<String> {
    let room = room.max(1);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in plain_ascii(text).split(' ').filter(|word| !word.is_empty()) {
        for piece in pieces(word, room) {
            if !line.is_empty() && line.len() + 1 + piece.len() > room {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(&piece);
        }
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

fn pieces(word: &str, room: usize) -> Vec<String> {
    let characters: Vec<char> = word.chars().collect();
    characters.chunks(room).map(|piece| piece.iter().collect()).collect()
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
    }

    #[test]
    fn a_negative_number_keeps_its_sign_outside_the_groups() {
        assert_eq!(signed_thousands(-100), "-100");
        assert_eq!(signed_thousands(-1_000), "-1,000");
        assert_eq!(signed_thousands(i64::MIN), "-9,223,372,036,854,775,808");
    }

    #[test]
    fn a_rate_is_rounded_and_no_number_is_a_dash() {
        assert_eq!(rounded(249_999.6), "250,000");
        assert_eq!(rounded(f64::NAN), "-");
        assert_eq!(rounded(f64::INFINITY), "-");
    }

    #[test]
    fn an_abbreviation_never_takes_more_than_five_characters() {
        let mut number: u64 = 1;
        while number < 1_000_000_000_000_000_000 {
            for n in [number - 1, number, number + 1, number / 1_000 * 9_994, number * 10 - 1] {
                let text = abbreviated(n);
                assert!(text.len() <= 5, "{n} became {text}");
            }
            number *= 10;
        }
    }

    #[test]
    fn an_abbreviation_changes_its_unit_where_rounding_would_reach_a_thousand() {
        let cases = [
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
        ];
        for (number, text) in cases {
            assert_eq!(abbreviated(number), text);
        }
    }

    #[test]
    fn what_is_not_printable_becomes_a_question_mark() {
        assert_eq!(plain_ascii("a\u{1b}[31mb\tc\u{e9} d"), "a?[31mb?c? d");
    }

    #[test]
    fn a_line_holds_exactly_the_room_it_is_given() {
        assert_eq!(wrapped("ab cd", 4), ["ab", "cd"]);
        assert_eq!(wrapped("ab cd", 5), ["ab cd"]);
        assert_eq!(wrapped("ab cd", 6), ["ab cd"]);
    }

    #[test]
    fn a_word_longer_than_the_line_is_cut() {
        assert_eq!(wrapped("x abcdefg y", 3), ["x", "abc", "def", "g y"]);
        assert_eq!(wrapped("", 3), [""]);
        assert_eq!(wrapped("ab", 0), ["a", "b"]);
    }

    #[test]
    fn a_paragraph_hangs_below_its_first_word_within_the_line_width() {
        let text = paragraph("flags", 10, &"word ".repeat(60));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() > 1);
        assert!(lines[0].starts_with("flags     word"));
        assert!(lines[1].starts_with("          word"));
        assert!(lines.iter().all(|line| line.len() <= LINE_WIDTH), "{text}");
    }

    #[test]
    fn a_label_wider_than_its_column_moves_the_words() {
        assert_eq!(paragraph("a label", 4, "words"), "a label words\n");
        assert_eq!(paragraph("abc", 4, "words"), "abc words\n");
    }

    #[test]
    fn numbers_stand_to_the_right_and_names_to_the_left() {
        let mut table = TextTable::new(&[("name", Align::Left), ("pps", Align::Right)]).indented(1);
        table.row(["a", "1,000"]);
        table.row(["longer", "7"]);
        assert_eq!(table.render(), " name      pps\n a       1,000\n longer      7\n");
    }

    #[test]
    fn a_short_row_stays_blank_and_a_long_row_gets_a_column() {
        let mut table = TextTable::new(&[("a", Align::Left), ("b", Align::Right)]);
        table.row(["1"]);
        table.row(["1", "2", "3"]);
        assert_eq!(table.render(), "a  b\n1\n1  2  3\n");
    }

    #[test]
    fn a_table_without_headings_prints_its_rows_alone() {
        let mut table = TextTable::new(&[("", Align::Left), ("", Align::Right)]);
        table.row(["x", "10"]);
        table.row(["y", "9"]);
        assert_eq!(table.render(), "x  10\ny   9\n");
    }
}
