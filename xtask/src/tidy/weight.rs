//! How many crates of others come with `drumfire`: in its default tree, and without default features. What only tests and
//! tools bring does not count, what builds it does.
//!
//! It asks cargo for the tree of the platform it runs on.

use std::collections::BTreeSet;
use std::path::Path;

use super::Violation;
use crate::run::{CommandLine, Stop};
use crate::workspace::Package;

/// The flags of a tree, and the most crates in it.
const TREES: [(&[&str], usize); 2] = [(&[], 50), (&["--no-default-features"], 36)];

/// The crates of others in both trees, and where they are too many.
pub(super) fn check(root: &Path, packages: &[Package]) -> Result<(Vec<usize>, Vec<Violation>), Stop> {
    let (mut counts, mut violations) = (Vec::new(), Vec::new());
    let Some(package) = packages.iter().find(|package| package.name == "drumfire") else {
        return Ok((counts, violations));
    };
    for (flags, most) in TREES {
        let ask =
            ["tree", "--offline", "-p", "drumfire", "-e", "normal,build", "--prefix", "none", "--no-dedupe"];
        let tree = CommandLine::new("cargo", &[ask.as_slice(), flags].concat()).output(root)?;
        let found = others(&tree, packages);
        if found.len() > most {
            violations.push(Violation {
                path: format!("{}/Cargo.toml", package.folder),
                line: 1,
                what: format!("{} crates{}, at most {most}: {found:?}", found.len(), with(flags)),
            });
        }
        counts.push(found.len());
    }
    Ok((counts, violations))
}

fn with(flags: &[&str]) -> String {
    flags.iter().map(|flag| format!(" with {flag}")).collect()
}

/// Names and versions in a tree, without those of the workspace.
fn others(tree: &str, packages: &[Package]) -> BTreeSet<String> {
    let is_own = |line: &str| packages.iter().any(|own| line.split(' ').next() == Some(own.name.as_str()));
    let name = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    tree.lines().filter(|line| !line.is_empty() && !is_own(line)).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    #[test]
    fn a_tree_counts_each_version_of_each_crate_of_others_once() {
        let workspace = Workspace::load().expect("this workspace");
        let tree = "drumfire v0.1.0 (/x)\nbytes v1.0.0\nmio v1.0.0\nbytes v1.0.0\nbytes v2.0.0 (*)\n\nsyn v2.0.0 (proc-macro)\n";
        let found = others(tree, &workspace.packages);
        assert_eq!(Vec::from_iter(found), ["bytes v1.0.0", "bytes v2.0.0", "mio v1.0.0", "syn v2.0.0"]);
    }
}
