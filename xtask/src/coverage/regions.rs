//! Regions of code that tests run: finer than lines, for an arm of a `match` is one, and so is what follows a `?`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::path_of;
use crate::run::Stop;

/// Where a region begins and ends: line and column, twice.
type Place = [u64; 4];

/// The regions of each file, and whether each was run.
pub(super) type Regions = BTreeMap<String, BTreeMap<Place, bool>>;

/// Reads what llvm-cov exports as JSON: of each function, and of each of its instances, its regions and how often they were run.
///
/// # Errors
/// [`Stop::Failed`] when it is not such a text.
pub(super) fn read(text: &str, root: &Path) -> Result<Regions, Stop> {
    let export: Value =
        serde_json::from_str(text).map_err(|why| Stop::failed(format!("the report: {why}")))?;
    let functions = export.pointer("/data/0/functions").and_then(Value::as_array);
    let functions = functions.ok_or_else(|| Stop::failed("the report has no functions"))?;
    let mut regions = Regions::new();
    for function in functions {
        let Some(path) = function["filenames"][0].as_str().map(|file| path_of(file, root)) else { continue };
        let of_file = regions.entry(path).or_default();
        for region in function["regions"].as_array().into_iter().flatten() {
            let number = |at: usize| region[at].as_u64();
            let (Some(times), Some(file), Some(kind)) = (number(4), number(5), number(7)) else {
                return Err(Stop::failed(format!("the report has a region {region}")));
            };
            // Code of the function itself, and not of a macro, nor a gap between two regions.
            if file == 0 && kind == 0 {
                let place = [0, 1, 2, 3].map(|at| number(at).unwrap_or(0));
                *of_file.entry(place).or_default() |= times > 0;
            }
        }
    }
    Ok(regions)
}

/// Where the regions begin that were not run.
pub(super) fn missed(regions: &BTreeMap<Place, bool>) -> String {
    let begin = |[line, column, ..]: &Place| format!("{line}:{column}");
    let missed = regions.iter().filter(|(_, is_run)| !**is_run).map(|(place, _)| begin(place));
    missed.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::Share;
    use super::*;

    const EXPORT: &str = r#"{"data":[{"functions":[
        {"filenames":["/x/crates/wire/src/a.rs"],"regions":[[1,1,2,3,4,0,0,0],[5,1,5,9,0,0,0,0],[9,1,9,2,0,1,0,0]]},
        {"filenames":["/x/crates/wire/src/a.rs"],"regions":[[1,1,2,3,0,0,0,0],[7,1,7,9,0,0,0,0],[8,1,8,2,0,0,0,3]]}
    ]}]}"#;

    #[test]
    fn a_region_counts_once_and_is_run_where_any_instance_runs_it() {
        let regions = read(EXPORT, Path::new("/x")).unwrap();
        let of_file = &regions["crates/wire/src/a.rs"];
        assert_eq!(Share::of(of_file), Share { count: 3, run: 1 });
        assert_eq!(missed(of_file), "5:1 7:1");
        assert!(read("{}", Path::new("/x")).is_err() && read("", Path::new("/x")).is_err());
        assert!(read(&EXPORT.replace("[7,1,7,9,0,0,0,0]", "[7]"), Path::new("/x")).is_err());
    }
}
