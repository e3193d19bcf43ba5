//! The flags of a bench: how long it may take and which part of it runs.

use std::ffi::OsString;

/// How much a bench does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A smoke run of at most 20 seconds: every part once, figures mean little.
    Quick,
    /// The figures, in minutes.
    Default,
    /// Everything.
    Full,
}

impl Extent {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Default => "default",
            Self::Full => "full",
        }
    }
}

/// What a bench was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How much.
    pub extent: Extent,
    /// The one part to run; `None` = all.
    pub only: Option<String>,
}

impl Options {
    /// Whether this part is to run.
    #[must_use]
    pub fn wants(&self, part: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == part)
    }
}

/// What this program was asked for, as it was typed, without what cargo itself adds.
#[must_use]
pub(crate) fn given() -> Vec<String> {
    typed(std::env::args_os().skip(1))
}

fn typed(args: impl IntoIterator<Item = OsString>) -> Vec<String> {
    let args = args.into_iter().map(|arg| arg.to_string_lossy().into_owned());
    args.filter(|arg| arg != "--bench").collect()
}

/// What arguments ask for beside the extent and the part, as the part of a file's name: `clients-64`; empty where they ask for
/// nothing else.
pub(crate) fn beside_extent_and_part(args: &[String]) -> String {
    let mut is_of_both = false;
    let mut words = Vec::new();
    for arg in args {
        if arg.starts_with("--") {
            is_of_both = ["--quick", "--full", "--only"].contains(&arg.as_str());
        }
        if !is_of_both {
            words.push(
                arg.trim_start_matches('-').replace(|letter: char| !letter.is_ascii_alphanumeric(), "-"),
            );
        }
    }
    words.join("-")
}

/// Takes a flag of one bench and its number out of the arguments, before the others are read.
///
/// # Errors
///
/// One line that names the flag and the way out.
pub fn take_number(args: &mut Vec<OsString>, flag: &str) -> Result<Option<u32>, String> {
    let Some(at) = args.iter().position(|arg| arg == flag) else { return Ok(None) };
    let number = args.get(at + 1).and_then(|value| value.to_str()?.parse().ok()).filter(|number| *number > 0);
    let number = number.ok_or_else(|| format!("{flag}: takes a number of at least 1"))?;
    args.drain(at..at + 2);
    Ok(Some(number))
}

/// Reads the flags, the program's name not among them. `parts` are the names `--only` takes.
///
/// # Errors
///
/// One line that names the flag and the way out.
pub fn parse(args: impl IntoIterator<Item = OsString>, parts: &[&str]) -> Result<Options, String> {
    let mut options = Options { extent: Extent::Default, only: None };
    let mut args = args.into_iter().map(|arg| arg.to_string_lossy().into_owned());
    while let Some(arg) = args.next() {
        match arg.as_str() {
            // What cargo itself adds.
            "--bench" => {}
            "--quick" => options.extent = Extent::Quick,
            "--full" => options.extent = Extent::Full,
            "--only" => match args.next().filter(|part| parts.contains(&part.as_str())) {
                Some(part) => options.only = Some(part),
                None => return Err(format!("--only: takes one of {}", parts.join(", "))),
            },
            other => {
                return Err(format!(
                    "{other}: not a flag of this bench; give --quick, --full or --only PART"
                ));
            }
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(args: &[&str]) -> Result<Options, String> {
        parse(args.iter().map(OsString::from), &["drain", "trains"])
    }

    #[test]
    fn a_bench_runs_whole_unless_told_otherwise() {
        assert_eq!(options(&["--bench"]), Ok(Options { extent: Extent::Default, only: None }));
        assert_eq!(options(&["--quick"]).map(|options| options.extent), Ok(Extent::Quick));
        let one = options(&["--full", "--only", "drain"]).expect("good flags");
        assert!(one.extent == Extent::Full && one.wants("drain") && !one.wants("trains"));
    }

    #[test]
    fn a_bad_flag_gets_a_line_that_says_what_to_give() {
        for bad in [&["--fast"][..], &["--only"], &["--only", "nothing"], &["drain"]] {
            let line = options(bad).expect_err("refused");
            assert!(line.contains("--only") && line.lines().count() == 1, "{line}");
        }
    }

    #[test]
    fn what_was_typed_is_kept_and_what_is_not_the_whole_has_a_name() {
        let typed = |args: &[&str]| typed(args.iter().map(OsString::from));
        let args = typed(&["--clients", "64", "--only", "echo", "join", "--full", "--at", "a/b", "--bench"]);
        assert_eq!(args, ["--clients", "64", "--only", "echo", "join", "--full", "--at", "a/b"]);
        assert_eq!(beside_extent_and_part(&args), "clients-64-at-a-b");
        assert_eq!(beside_extent_and_part(&typed(&["--quick", "--bench", "--only", "echo"])), "");
    }

    #[test]
    fn a_number_is_taken_with_its_flag() {
        let mut args: Vec<OsString> = ["--quick", "--clients", "300", "--bench"].map(OsString::from).into();
        assert_eq!(take_number(&mut args, "--workers"), Ok(None));
        assert_eq!(take_number(&mut args, "--clients"), Ok(Some(300)));
        assert_eq!(args, ["--quick", "--bench"]);
        for bad in [&["--clients"][..], &["--clients", "0"], &["--clients", "many"]] {
            let mut args: Vec<OsString> = bad.iter().map(OsString::from).collect();
            let line = take_number(&mut args, "--clients").expect_err("refused");
            assert!(line.contains("--clients"), "{line}");
        }
    }
}
