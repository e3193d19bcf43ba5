//! Rules for prose: words that the project avoids, sentences without a named subject, and sentences that are too long.
//! They apply to comments in lines of their own in Rust and TOML, and to Markdown, without code, link targets, and text
//! between backticks.
//!
//! The rules check phrases and lengths, not grammar. A reviewer judges whether a text is clear. In TOML, where comments
//! also contain tables and templates, only the phrases are checked.

use regex::Captures;

use super::{File, ProjectRules, Violation, matches};
use crate::files::regex;

/// Authors aim for at most 25 words. A sentence with more than this number is always a fault.
const SENTENCE_WORDS_MAX: usize = 30;

struct Word<'a> {
    line: usize,
    text: &'a str,
    /// The word in lower case, without punctuation around it.
    plain: String,
}

pub(super) fn check(rules: &ProjectRules, files: &[File]) -> Vec<Violation> {
    let is_written = |file: &&File| {
        let is_sample = file.path.ends_with("tidy-samples.toml");
        !is_sample && [".rs", ".md", ".toml"].iter().any(|ending| file.path.ends_with(ending))
    };
    let written = files.iter().filter(is_written);
    written.flat_map(|file| faults(rules, file)).collect()
}

fn faults(rules: &ProjectRules, file: &File) -> Vec<Violation> {
    let (prose, mut found) = (prose(file), one_word_docs(file));
    let mut paragraph: Vec<Word<'_>> = Vec::new();
    for (line, text) in (1..).zip(prose.lines()) {
        let starts = text.trim_start();
        let is_apart = starts.starts_with(['#', '|']) || file.path.ends_with(".toml");
        let item = item(starts);
        if is_apart || starts.is_empty() || item.is_some() {
            check_sentences(rules, file, &paragraph, &mut found);
            paragraph.clear();
        }
        let words = item.unwrap_or(starts).split_whitespace().map(|text| Word {
            line,
            text,
            plain: plain(text).to_lowercase(),
        });
        if is_apart {
            check_phrases(rules, file, &words.collect::<Vec<_>>(), &mut found);
        } else {
            paragraph.extend(words);
        }
    }
    check_sentences(rules, file, &paragraph, &mut found);
    found
}

/// Finds docs of one word. They do not explain the unit, the range, or the meaning.
fn one_word_docs(file: &File) -> Vec<Violation> {
    let (docs, word) = (regex(r"(?m)(?:^[ \t]*///[^\n]*\n)+"), regex(r"^\s*/// *[^\W\d_]+\.\n$"));
    let found = matches(&docs, &file.text).filter(|(_, docs)| file.is_rust() && word.is_match(docs));
    let what = "docs of one word: write a sentence with the meaning";
    found.map(|(line, _)| file.violation(line, what)).collect()
}

/// Returns the prose of a file without code and targets of links, line by line. Lines of code are empty, and separate paragraphs.
fn prose(file: &File) -> String {
    let mark = if file.is_rust() { "//" } else { "#" };
    let comment = |line: &'_ str| {
        line.trim_start().strip_prefix(mark).map(|rest| rest.trim_start_matches(['/', '!']).to_owned())
    };
    let text = if file.path.ends_with(".md") {
        file.text.clone()
    } else {
        file.text.lines().map(|line| comment(line).unwrap_or_default()).collect::<Vec<_>>().join("\n")
    };
    // A span of code may continue in the next line of its paragraph.
    let code = [r"(?ms)^[ \t]*```.*?(?:^[ \t]*```[^\n]*|\z)", r"`(?:[^`\n]|\n[ \t]*[^`\s])*(?:\n[ \t]*)?`?"];
    let [blocks, spans] = code.map(regex);
    let lines = |found: &Captures<'_>| found[0].chars().filter(|c| *c == '\n').collect::<String>();
    let text = blocks.replace_all(&text, lines);
    let text = spans.replace_all(&text, |found: &Captures<'_>| format!("`{}", lines(found)));
    regex(r"\]\([^)\n]*\)?").replace_all(&text, "](").into_owned()
}

/// Returns the text of a list item.
fn item(text: &str) -> Option<&str> {
    let number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let marked =
        if number.len() < text.len() { number.strip_prefix('.') } else { text.strip_prefix(['-', '*']) };
    marked?.strip_prefix(' ')
}

fn check_sentences(rules: &ProjectRules, file: &File, paragraph: &[Word<'_>], found: &mut Vec<Violation>) {
    check_phrases(rules, file, paragraph, found);
    for sentence in paragraph.split_inclusive(|word| ends_sentence(word.text)) {
        // A link or a quotation at the start is a name.
        let is_exempt =
            sentence[0].text.starts_with(['[', '"']) || sentence[sentence.len() - 1].text.contains('?');
        let start = rules.starts.iter().find(|(phrase, _)| !is_exempt && is_at(sentence, phrase));
        if let Some((_, instead)) = start {
            let first = &sentence[0];
            let what = format!("a sentence starts with \"{}\": {instead}", plain(first.text));
            found.push(file.violation(first.line, what));
        }
        let length =
            sentence.iter().filter(|word| word.text.contains(|c: char| c.is_alphanumeric() || c == '`'));
        let length = length.count();
        if length > SENTENCE_WORDS_MAX {
            let what = format!("a sentence of {length} words, at most {SENTENCE_WORDS_MAX}: write two");
            found.push(file.violation(sentence[0].line, what));
        }
    }
}

fn check_phrases(rules: &ProjectRules, file: &File, words: &[Word<'_>], found: &mut Vec<Violation>) {
    for at in 0..words.len() {
        for (phrase, instead) in rules.avoided.iter().filter(|(phrase, _)| is_at(&words[at..], phrase)) {
            let length = phrase.split(' ').filter(|slot| !slot.starts_with('!')).count();
            let written: Vec<&str> = words[at..at + length].iter().map(|word| plain(word.text)).collect();
            let what = format!("avoid \"{}\": {instead}", written.join(" "));
            found.push(file.violation(words[at].line, what));
        }
    }
}

/// Returns whether the words begin with the phrase, without punctuation inside it.
fn is_at(words: &[Word<'_>], phrase: &str) -> bool {
    let is_word = |word: &Word<'_>, slot: &str| slot.split('|').any(|own| word.plain == own);
    phrase.split(' ').enumerate().all(|(at, slot)| match (words.get(at), slot.strip_prefix('!')) {
        (word, Some(excluded)) => !word.is_some_and(|word| is_word(word, excluded)),
        (Some(word), None) => {
            let is_joined = at == 0 || !words[at - 1].text.ends_with([',', ';', ':', '.', '!', '?', ')']);
            is_joined && is_word(word, slot)
        }
        (None, None) => false,
    })
}

/// Returns the word without punctuation around it.
fn plain(word: &str) -> &str {
    word.trim_matches(|c: char| !c.is_alphanumeric() && c != '`')
}

fn ends_sentence(word: &str) -> bool {
    let end = word.trim_end_matches(['"', ')', '*', '_']);
    end.ends_with(['.', '!', '?']) && !["e.g.", "i.e.", "vs.", "etc."].contains(&end) && !end.ends_with("..")
}
