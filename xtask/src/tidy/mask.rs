//! Rust source with comments and literals blanked, so that a check finds code and never what a text speaks of.
//!
//! A small lexer for exactly that: line and nested block comments, strings, raw strings, byte and C strings, characters.
//! It knows no other token.

/// The source with every byte of a comment or literal replaced by a space, newlines kept.
pub(super) fn code(source: &str) -> String {
    let mut out = Vec::with_capacity(source.len());
    let mut rest = source.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        match blank_length(rest, &out) {
            Some(length) => {
                let (blanked, after) = rest.split_at(length.min(rest.len()));
                out.extend(blanked.iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
                rest = after;
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The length of the comment or literal that starts here, if one does. May reach past the end when it is not closed.
fn blank_length(rest: &[u8], before: &[u8]) -> Option<usize> {
    match rest {
        [b'/', b'/', ..] => Some(rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())),
        [b'/', b'*', ..] => Some(block_comment(rest)),
        [b'"', ..] => Some(quoted(rest, b'"')),
        [b'r', b'"' | b'#', ..] if starts_token(before) => raw_string(rest),
        [b'\'', b'\\', ..] => Some(quoted(rest, b'\'')),
        [b'\'', ..] => character(rest),
        _ => None,
    }
}

/// Whether what follows is not the middle of an identifier; the prefixes of byte and C strings are none.
fn starts_token(before: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    match before {
        [.., earlier, b'b' | b'c'] => !is_part(earlier),
        [b'b' | b'c'] | [] => true,
        [.., last] => !is_part(last),
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(pair) = rest.get(at..at + 2) {
        match pair {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// From the opening quote to behind the closing one, stepping over escapes.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while let Some(byte) = rest.get(at) {
        match *byte {
            b'\\' => at += 2,
            found if found == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// From the `r` to behind the closing quote and hashes; `None` for a raw identifier.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    let opening = hashes + 2;
    if rest.get(opening - 1) != Some(&b'"') {
        return None;
    }
    let closing: Vec<u8> = [b'"'].into_iter().chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = &rest[opening..];
    let end = body.windows(closing.len()).position(|window| window == closing);
    Some(end.map_or(rest.len(), |end| opening + end + closing.len()))
}

/// A character literal without escape, or `None` for a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    let scalar = 1 + rest.iter().skip(2).take_while(|byte| **byte & 0xC0 == 0x80).count();
    (rest.get(1 + scalar) == Some(&b'\'')).then_some(scalar + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of a source, its blanks dropped.
    fn left(source: &str) -> String {
        code(source).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_are_blanked() {
        assert_eq!(left("a // b\nc /* d /* e */ f */ g"), "a c g");
        assert_eq!(left("a /* never closed"), "a");
        assert_eq!(left("//! x\n/// y\nb"), "b");
    }

    #[test]
    fn strings_are_blanked() {
        assert_eq!(left(r#"a("b \" c", d)"#), "a( , d)");
        assert_eq!(left(r##"a(r"b\", r#"c"d"#, br#"e"#, b"f", e)"##), "a( , , b , b , e)");
        assert_eq!(left("a \"never closed"), "a");
        assert_eq!(left(r#"a "\\" b"#), "a b");
    }

    #[test]
    fn characters_are_blanked_and_lifetimes_are_not() {
        assert_eq!(left(r"('a', '\'', '\u{41}', 'é', '\\')"), "( , , , , )");
        assert_eq!(left("fn f<'a>(x: &'a str) -> &'a str"), "fn f<'a>(x: &'a str) -> &'a str");
        assert_eq!(left("'\"' x '\"'"), "x");
    }

    #[test]
    fn identifiers_that_look_like_prefixes_are_code() {
        assert_eq!(left("r#type for r in bar"), "r#type for r in bar");
        assert_eq!(left("attr\"x\""), "attr");
    }

    #[test]
    fn lines_keep_their_numbers_and_lengths() {
        let source = "a \"b\nc\" d\n/* e\nf */ g\n";
        let lengths = |text: &str| text.lines().map(str::len).collect::<Vec<_>>();
        assert_eq!(lengths(&code(source)), lengths(source));
    }
}
