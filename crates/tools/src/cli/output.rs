//! Where results go: a file, or standard output for `--json -`.
//!
//! Parsing opens nothing; [`create_file`] is called once the run is about to start, so that ten seconds of
//! measuring are not lost to a folder that does not exist.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::usage::UsageError;
use super::values::Bad;

/// Where a JSON report goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output, where it is then the only thing.
    Stdout,
    /// A file, replaced when it exists.
    File(PathBuf),
}

/// Creates or empties the file of a flag.
///
/// # Errors
///
/// The line to show when it cannot be written.
pub fn create_file(flag: &str, path: &Path) -> Result<File, UsageError> {
    File::create(path).map_err(|error| UsageError::for_file(flag, path, &error))
}

pub(super) fn json(text: &str) -> Result<Output, Bad> {
    if text == "-" {
        return Ok(Output::Stdout);
    }
    named("--json", text).map(Output::File)
}

pub(super) fn csv(text: &str) -> Result<PathBuf, Bad> {
    if text == "-" {
        return Err(Bad::new("only --json can go to standard output", "give --csv a file name"));
    }
    named("--csv", text)
}

pub(super) fn plot(text: &str) -> Result<PathBuf, Bad> {
    let path = named("--plot", text)?;
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg")) {
        return Ok(path);
    }
    Err(Bad::new("the plot is drawn as SVG", "give --plot a file name that ends in .svg"))
}

fn named(flag: &str, text: &str) -> Result<PathBuf, Bad> {
    if text.is_empty() {
        return Err(Bad::new("the file name is empty", format!("give {flag} a file name")));
    }
    Ok(PathBuf::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_goes_to_standard_output() {
        assert_eq!(json("-"), Ok(Output::Stdout));
        assert_eq!(json("a.json"), Ok(Output::File("a.json".into())));
        assert!(csv("-").is_err());
        assert!(plot("-").is_err());
    }

    #[test]
    fn a_plot_is_an_svg_file() {
        for (text, is_good) in [
            ("a.svg", true),
            ("b/c.SVG", true),
            ("a.png", false),
            ("svg", false),
            (".svg", false),
            ("", false),
        ] {
            assert_eq!(plot(text).is_ok(), is_good, "{text}");
        }
    }

    #[test]
    fn a_file_in_a_folder_that_is_missing_is_a_usage_error() {
        let error = create_file("--csv", Path::new("no such folder/a.csv")).unwrap_err();
        assert!(error.to_string().contains("its folder does not exist"), "{error}");
        let error = create_file("--csv", Path::new("/")).unwrap_err();
        assert!(error.to_string().contains("that is a folder"), "{error}");
    }
}
