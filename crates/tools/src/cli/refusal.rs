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
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Stop::Shown(error.to_string()),
        _ => Stop::Usage(usage(error)),
    }
}

fn usage(error: &clap::Error) -> UsageError {
    let shown = text(error, ContextKind::InvalidArg).unwrap_or_default();
    // The library shows a flag as it stands in the help, `--size <BYTES>`.
    let flag = shown.split([' ', '=', '[']).next().unwrap_or_default();
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
        ErrorKind::MissingRequiredArgument => {
            UsageError::new(flag, "it is missing, and nothing works without it", format!("give {shown}"))
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            UsageError::new("the command", "it is missing", "give keygen, public, token or top")
        }
        ErrorKind::InvalidSubcommand => {
            let command = text(error, ContextKind::InvalidSubcommand).unwrap_or_default();
            UsageError::new(&command, "there is no such command", "give keygen, public, token or top")
        }
        ErrorKind::ArgumentConflict => UsageError::new(flag, "it is there twice", "give it once"),
        ErrorKind::InvalidUtf8 => UsageError::new(
            "the command line",
            "it holds bytes that are not UTF-8",
            "give flags and values in UTF-8",
        ),
        kind => UsageError::new(flag, kind.to_string(), SEE_HELP),
    }
}

fn unknown(error: &clap::Error, shown: &str) -> UsageError {
    if !shown.starts_with('-') {
        return UsageError::new(shown, "every value follows a flag", SEE_HELP);
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
