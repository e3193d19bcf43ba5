//! Makes text from outside safe to print as one line on a terminal.

/// The maximum number of characters that are kept.
const MAX_CHARS: usize = 300;

/// Replaces characters that control a terminal, and cuts the text after [`MAX_CHARS`] characters.
pub(crate) fn printable(text: &str) -> String {
    let mut shown: String =
        text.chars().take(MAX_CHARS).map(|c| if is_visible(c) { c } else { '\u{fffd}' }).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        shown.push_str("...");
    }
    shown
}

/// Returns whether a character neither controls a terminal nor breaks, hides, or reverses a line.
fn is_visible(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced() {
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
