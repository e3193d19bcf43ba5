//! Text that came from outside, made fit for one line on a terminal.
//!
//! It decides about characters and length, not about what the text means.

/// The most characters of a foreign text that are shown.
const MAX_SHOWN_CHARS: usize = 300;

/// A text as one line without control characters and of bounded length.
pub(crate) fn printable(text: &str) -> String {
    let mut shown: String =
        text.chars().take(MAX_SHOWN_CHARS).map(|c| if is_visible(c) { c } else { '\u{fffd}' }).collect();
    if text.chars().nth(MAX_SHOWN_CHARS).is_some() {
        shown.push_str("...");
    }
    shown
}

/// Neither a control character nor one that breaks, hides or reverses a line on a terminal.
fn is_visible(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_moves_hides_or_colours_a_line_is_shown() {
        assert_eq!(
            printable("a\nb\r\u{1b}[31m\u{202e}c\u{7f}é"),
            "a\u{fffd}b\u{fffd}\u{fffd}[31m\u{fffd}c\u{fffd}é"
        );
    }

    #[test]
    fn a_text_is_cut_after_300_characters() {
        for (length, expected) in [(299, 299), (300, 300), (301, 303)] {
            assert_eq!(printable(&"x".repeat(length)).len(), expected);
        }
    }
}
