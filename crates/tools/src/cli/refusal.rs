//! Turns what the command line library says into one line, or into the help that was asked for.
//!
//! The library's own wording, with its usage block and its several lines, is never shown for bad input.

use std::error::Error;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Stop;
use super::usage::UsageError;
use super::values::Bad;

const SEE_HELP: &str = "--help lists every flag";

pub(super) fn stop(error: &clap::Error) -> Stop {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Stop::Shown(error.to_string()),
        _ => Stop::Usage(usage(error)),
    }
}

fn usage(error: &clap::Error) -> UsageError {
    let shown = text(error, ContextKind::InvalidArg).unwrap_or_default();
    // The library shows a flag as it stands in the help, `--size <BYTES>`.
    let flag = name(&shown);
    let value = text(error, ContextKind::InvalidValue).unwrap_or_default();
    match error.kind() {
        ErrorKind::UnknownArgument => unknown(error, &shown),
        ErrorKind::ValueValidation => match error.source().and_then(|source| source.downcast_ref::<Bad>()) {
            Some(bad) => UsageError::new(flag, &bad.problem, &bad.way_out).with_value(value),
            None => UsageError::new(flag, "not a value it takes", SEE_HELP).with_value(value),
        },
        ErrorKind::InvalidValue if value.is_empty() => {
            UsageError::new(flag, "its value is missing", format!("give {shown}"))
        }
        ErrorKind::InvalidValue => {
            let choices = text(error, ContextKind::ValidValue).unwrap_or_default();
            UsageError::new(flag, "not one of its choices", format!("give {flag} {choices}"))
                .with_value(value)
        }
        ErrorKind::TooManyValues => {
            UsageError::new(flag, "it takes no value", format!("give {flag} alone")).with_value(value)
        }
        ErrorKind::MissingRequiredArgument => missing(error),
        ErrorKind::MissingSubcommand => {
            UsageError::new("the command", "it is missing", "give keygen, public, token or top")
        }
        ErrorKind::InvalidSubcommand => {
            let command = text(error, ContextKind::InvalidSubcommand).unwrap_or_default();
            UsageError::new(&command, "there is no such command", "give keygen, public, token or top")
        }
        ErrorKind::ArgumentConflict => {
            conflict(flag, &text(error, ContextKind::PriorArg).unwrap_or_default())
        }
        ErrorKind::InvalidUtf8 => UsageError::new(
            "the command line",
            "it holds bytes that are not UTF-8",
            "give flags and values in UTF-8",
        ),
        kind => UsageError::new(flag, kind.to_string(), SEE_HELP),
    }
}

/// Names every flag that is missing; of a group, whose flags are shown as `<--a <X>|--b <Y>>`, one is enough.
fn missing(error: &clap::Error) -> UsageError {
    let shown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(flags)) => flags.clone(),
        _ => Vec::new(),
    };
    let group = shown.first().and_then(|flag| flag.strip_prefix('<')?.strip_suffix('>'));
    let choices: Vec<_> = group.into_iter().flat_map(|group| group.split('|')).collect();
    if let [others @ .., last] = choices.as_slice()
        && !others.is_empty()
    {
        let way_out = format!("give {} or {last}", others.join(", "));
        return UsageError::new(&names(&choices), "one of them is needed", way_out);
    }
    let problem = if shown.len() > 1 { "they are missing" } else { "it is missing" };
    UsageError::new(&names(&shown), problem, format!("give {}", shown.join(" ")))
}

/// The name of an argument without its value and brackets.
fn name(shown: &str) -> &str {
    shown.trim_start_matches(['[', '<']).split([' ', '=', '[', ']', '>']).next().unwrap_or_default()
}

/// The names of flags without their values.
fn names(shown: &[impl AsRef<str>]) -> String {
    shown.iter().map(|flag| name(flag.as_ref())).collect::<Vec<_>>().join(", ")
}

fn conflict(flag: &str, prior: &str) -> UsageError {
    let prior = name(prior);
    if prior == flag || prior.is_empty() {
        return UsageError::new(flag, "it is there twice", "give it once");
    }
    UsageError::new(flag, format!("it cannot be given with {prior}"), "leave one of them out")
}

fn unknown(error: &clap::Error, shown: &str) -> UsageError {
    if !shown.starts_with('-') {
        return UsageError::new(shown, "it follows no flag", SEE_HELP);
    }
    let way_out = text(error, ContextKind::SuggestedArg)
        .map_or_else(|| SEE_HELP.to_owned(), |flag| format!("did you mean {flag}? {SEE_HELP}"));
    UsageError::new(shown, "there is no such flag", way_out)
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => Some(texts.join("|")),
        _ => None,
    }
}
