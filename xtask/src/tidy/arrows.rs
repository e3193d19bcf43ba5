//! Which crate of the workspace may use which: the arrows of the architecture, checked so that a layer cannot leak.
//!
//! Dependencies of every kind count, tests and build scripts too. Crates from outside are not its business.

use super::Violation;
use crate::workspace::Package;

/// The extent of tests, which every crate may use.
const TRIES: &str = "crates/tries";
/// Each crate's folder and the folders it may use. A crate that is not here may not exist.
const CRATES: [(&str, &[&str]); 12] = [
    (TRIES, &[]),
    ("crates/wire", &[]),
    ("crates/crypto", &[]),
    ("crates/socket", &[]),
    // A client for tests: it must not share a mistake with the core.
    ("crates/puppet", &["crates/wire", "crates/crypto"]),
    ("crates/proto", &["crates/wire", "crates/crypto", "crates/puppet"]),
    ("crates/drumfire", &["crates/proto", "crates/socket"]),
    ("crates/ffi", &["crates/drumfire"]),
    ("crates/sim", &["crates/drumfire", "crates/proto", "crates/puppet"]),
    (
        "crates/fuzz",
        &[
            "crates/wire",
            "crates/crypto",
            "crates/socket",
            "crates/puppet",
            "crates/proto",
            "crates/drumfire",
        ],
    ),
    (
        "crates/tools",
        &[
            "crates/wire",
            "crates/crypto",
            "crates/socket",
            "crates/puppet",
            "crates/proto",
            "crates/drumfire",
        ],
    ),
    ("crates/chaos", &["crates/socket", "crates/drumfire", "crates/tools"]),
];
/// Packages beside them that may use any crate.
const FREE: [&str; 3] = ["benches", "examples", "xtask"];
/// Crates that are for this workspace only.
const UNPUBLISHED: [&str; 6] =
    ["crates/chaos", "crates/fuzz", "crates/puppet", "crates/sim", "crates/tools", TRIES];

pub(super) fn check(packages: &[Package]) -> Vec<Violation> {
    packages.iter().flat_map(of_package).collect()
}

fn of_package(package: &Package) -> Vec<Violation> {
    let folder = package.folder.as_str();
    let violation = |what| Violation { path: format!("{folder}/Cargo.toml"), line: 1, what };
    if FREE.contains(&folder) {
        return Vec::new();
    }
    let Some((_, allowed)) = CRATES.iter().find(|(known, _)| *known == folder) else {
        return vec![violation("the architecture knows no such package".to_owned())];
    };
    let stray = package.uses.iter().filter(|used| *used != TRIES && !allowed.contains(&used.as_str()));
    let mut violations: Vec<Violation> = stray.map(|used| violation(format!("may not use {used}"))).collect();
    let name = match folder.trim_start_matches("crates/") {
        "drumfire" => "drumfire".to_owned(),
        other => format!("drumfire-{other}"),
    };
    if package.name != name {
        violations
            .push(violation(format!("its package is named {}, by its folder it is {name}", package.name)));
    }
    if UNPUBLISHED.contains(&folder) && package.is_published {
        violations.push(violation("is for this workspace only: say `publish = false`".to_owned()));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::samples;
    use serde_json::json;

    fn found(folder: &str, uses: &[&str]) -> Vec<String> {
        let mut package = samples::package(folder, &[], &[], uses);
        if folder == "crates/drumfire" {
            package["name"] = json!("drumfire");
        }
        if UNPUBLISHED.contains(&folder) {
            package["publish"] = json!([]);
        }
        check(&samples::workspace(&[package]).packages).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_arrows_of_the_picture_are_fine() {
        for (folder, allowed) in CRATES {
            assert_eq!(found(folder, allowed), [""; 0], "{folder}");
        }
        for folder in FREE {
            assert_eq!(found(folder, &["crates/sim", "crates/wire", "crates/tools"]), [""; 0], "{folder}");
        }
    }

    #[test]
    fn an_arrow_outside_the_picture_is_refused() {
        for (folder, used) in [
            ("crates/wire", "crates/crypto"),
            ("crates/crypto", "crates/wire"),
            ("crates/socket", "crates/wire"),
            ("crates/proto", "crates/socket"),
            ("crates/drumfire", "crates/wire"),
            ("crates/drumfire", "crates/sim"),
            ("crates/ffi", "crates/proto"),
            ("crates/sim", "crates/socket"),
            ("crates/fuzz", "crates/sim"),
            ("crates/tools", "crates/sim"),
        ] {
            assert_eq!(found(folder, &[used]), [format!("{folder}/Cargo.toml:1: may not use {used}")]);
        }
    }

    #[test]
    fn a_crate_that_nobody_drew_is_refused() {
        assert_eq!(found("crates/util", &[]).len(), 1);
    }

    #[test]
    fn a_crate_is_named_after_its_folder() {
        let mut package = samples::package("crates/wire", &[], &[], &[]);
        package["name"] = json!("wire");
        assert_eq!(check(&samples::workspace(&[package]).packages).len(), 1);
    }

    #[test]
    fn what_only_tests_and_measures_is_not_published() {
        for folder in UNPUBLISHED {
            let package = samples::package(folder, &[], &[], &[]);
            assert_eq!(check(&samples::workspace(&[package]).packages).len(), 1, "{folder}");
        }
    }
}
