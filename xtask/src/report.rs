//! `cargo xtask report`: one page of everything that was measured, from `target/reports/*.json` into
//! `target/reports/index.html`. Where there is a smoke run alone, in `target/reports/quick`, it stands in and is marked.
//!
//! The page asks nobody for anything: style, plots and flame graphs stand in it, and it needs no script. It measures nothing, and judges
//! nothing that a bench has not judged.

mod input;
mod page;
mod plot;
mod sections;
mod series;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::run::Stop;
use crate::workspace::Workspace;
use input::Measured;

/// A file beside the page.
struct Entry {
    /// Its name without `.json`.
    stem: String,
    /// When it was written, where the system tells.
    written: Option<SystemTime>,
    /// The same in UTC, for people.
    date: String,
    /// The flame graph beside it, `STEM-flame.svg`, where there is one.
    flame: Option<String>,
    /// What it holds, or the one line that says why it cannot be read.
    read: Result<Measured, String>,
}

/// Reads the reports and writes the page.
///
/// # Errors
/// [`Stop::Failed`] when the folder cannot be read or the page not written, and, after it was written, when a report could not
/// be read.
pub(crate) fn run() -> Result<(), Stop> {
    let folder = Workspace::load()?.target.join("reports");
    let mut found = entries(&folder.join("quick"))?;
    found.append(&mut entries(&folder)?);
    let path = folder.join("index.html");
    let text = page::render(&found).into_string();
    std::fs::write(&path, text).map_err(|why| Stop::failed(format!("{}: {why}", path.display())))?;
    println!("written to {}", path.display());
    let unread = found.values().filter_map(|entry| entry.read.as_ref().err());
    let lines: Vec<&str> = unread.map(String::as_str).collect();
    if lines.is_empty() { Ok(()) } else { Err(Stop::failed(lines.join("\n"))) }
}

/// Every report of the folder, by its name. A folder that is not there holds none.
fn entries(folder: &Path) -> Result<BTreeMap<String, Entry>, Stop> {
    std::fs::create_dir_all(folder).map_err(|why| Stop::failed(format!("{}: {why}", folder.display())))?;
    let files =
        std::fs::read_dir(folder).map_err(|why| Stop::failed(format!("{}: {why}", folder.display())))?;
    let paths = files.filter_map(|file| Some(file.ok()?.path()));
    let reports = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    Ok(reports
        .filter_map(|path| Some((path.file_stem()?.to_string_lossy().into_owned(), path)))
        .map(|(stem, path)| (stem.clone(), entry(stem, &path)))
        .collect())
}

fn entry(stem: String, path: &Path) -> Entry {
    let written = path.metadata().and_then(|metadata| metadata.modified()).ok();
    let date = written.map_or_else(|| "date unknown".to_owned(), date);
    let named = |why: String| format!("{}: {why}", path.display());
    let text = std::fs::read_to_string(path).map_err(|why| named(why.to_string()));
    let read = text.and_then(|text| Measured::read(&text).map_err(|why| named(why.to_string())));
    let flame = std::fs::read_to_string(path.with_file_name(format!("{stem}-flame.svg"))).ok();
    Entry { stem, written, date, flame, read }
}

/// A moment as `2026-11-21 23:09 UTC`.
fn date(moment: SystemTime) -> String {
    let secs = moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, of_day) = (secs / 86_400, secs % 86_400);
    // Years that begin in March have their odd day at the end (Hinnant, "chrono-compatible low-level date algorithms").
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", of_day / 3_600, of_day / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_moment_is_a_date() {
        let at = |secs| date(UNIX_EPOCH + Duration::from_secs(secs));
        assert_eq!(at(0), "1970-01-01 00:00 UTC");
        assert_eq!(at(951_827_696), "2000-02-29 12:34 UTC");
        assert_eq!(at(1_795_302_596), "2026-11-21 23:09 UTC");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_one_line_with_its_name_and_field() {
        let folder = std::env::temp_dir().join(format!("drumfire-report-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("pps.json"), r#"{ "name": 7 }"#).unwrap();
        std::fs::write(folder.join("notes.txt"), "not a report").unwrap();
        std::fs::write(folder.join("pps-flame.svg"), "<svg/>").unwrap();
        let found = entries(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["pps"]);
        assert_eq!(found["pps"].flame.as_deref(), Some("<svg/>"));
        let line = found["pps"].read.as_ref().unwrap_err();
        assert!(line.ends_with("pps.json: name: is not a text") && line.lines().count() == 1, "{line}");
    }
}
