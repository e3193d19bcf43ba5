//! The modules of a crate as its source declares them, with the types that each defines and the files that each uses. Code for tests is
//! left out.
//!
//! Paths are resolved through `use`, re-exports, and globs. Macros are not expanded and types are unknown, so the call of a method is
//! not a use of the module that defines it.

use std::collections::{BTreeMap, BTreeSet};

use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, File as Source, Item, Meta, Token, UseTree, Visibility};

use super::{File, Violation};
use crate::workspace::Package;

/// More re-exports in a row form a loop.
const REEXPORTS_MAX: usize = 8;

/// A path in source: `crate`, `super`, or the first name, and so on.
type Names = Vec<String>;

/// A crate. Its first module is the root.
#[derive(Debug, Default)]
pub(super) struct Crate {
    pub(super) modules: Vec<Module>,
}

/// A module, in its own file or inside another one.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// The path of its file below the project's root.
    pub(super) file: String,
    /// The structs, enums, traits, unions, and type aliases that it defines outside of functions.
    pub(super) types: Vec<String>,
    /// Whether a `cfg(not(..))` guards it or a module around it. Then it is the alternative to another module.
    pub(super) is_alternative: bool,
    parent: usize,
    children: BTreeMap<String, usize>,
    /// The names of all items that it defines, types included.
    items: BTreeSet<String>,
    /// The names that it imports or re-exports, with the path of each.
    imports: BTreeMap<String, Names>,
    globs: Vec<Names>,
    /// The paths in its code and in its private imports. A re-export alone is not a use.
    used: Vec<Names>,
}

/// Reads the crates of a package except its tests. Files that git does not list are left out.
pub(super) fn crates(package: &Package, files: &[File]) -> Result<Vec<Crate>, Violation> {
    let targets = package.targets.iter().filter(|target| !["test", "custom-build"].contains(&target.kind()));
    targets.map(|target| Crate::read(&target.source, files)).collect()
}

impl Crate {
    /// Reads the crate with this root file. An error is a violation in a file that is not valid Rust.
    pub(super) fn read(root: &str, files: &[File]) -> Result<Self, Violation> {
        let files: BTreeMap<&str, &File> = files.iter().map(|file| (file.path.as_str(), file)).collect();
        let mut read = Self::default();
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        read.add_file(0, root, folder, &files)?;
        Ok(read)
    }

    /// Adds the module of a file. Its children are in `folder`.
    fn add_file(
        &mut self,
        parent: usize,
        path: &str,
        folder: &str,
        files: &BTreeMap<&str, &File>,
    ) -> Result<Option<usize>, Violation> {
        // A file that git does not list is generated.
        let Some(file) = files.get(path) else { return Ok(None) };
        let source: Source = syn::parse_str(&file.text)
            .map_err(|why| file.violation(1, format!("is not valid Rust: {why}")))?;
        self.add(parent, path, folder, &source.items, files).map(Some)
    }

    fn add(
        &mut self,
        parent: usize,
        path: &str,
        folder: &str,
        items: &[Item],
        files: &BTreeMap<&str, &File>,
    ) -> Result<usize, Violation> {
        let at = self.modules.len();
        self.modules.push(Module { parent, file: path.to_owned(), ..Module::default() });
        for item in items.iter().filter(|item| !attributes(item).iter().any(is_for_tests)) {
            let Item::Mod(module) = item else {
                self.modules[at].add(item);
                continue;
            };
            let name = module.ident.to_string();
            let inside = format!("{folder}/{name}");
            let first = self.modules.len();
            let child = match (&module.content, module.attrs.iter().find_map(other_path)) {
                (Some((_, items)), _) => Some(self.add(at, path, &inside, items, files)?),
                (None, None) => self.add_file(at, &format!("{inside}.rs"), &inside, files)?,
                (None, Some(other)) => {
                    let own_folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                    let path = joined(own_folder, &other);
                    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
                    self.add_file(at, &path, &folder, files)?
                }
            };
            if module.attrs.iter().any(is_negated) {
                self.modules[first..].iter_mut().for_each(|module| module.is_alternative = true);
            }
            self.modules[at].children.extend(child.map(|child| (name, child)));
        }
        Ok(at)
    }

    /// Returns the files that a module uses an item of.
    pub(super) fn used_files(&self, module: usize) -> BTreeSet<&str> {
        let used = self.modules[module].used.iter();
        let defining = used.filter_map(|names| match self.resolve(module, names, 0)? {
            // A module may use its parent, because it is a part of it.
            Found::Item(defining) if defining == self.modules[module].parent => None,
            Found::Item(defining) => Some(self.modules[defining].file.as_str()),
            // A path through a module to an item of another module does not use the first one.
            Found::Module(_) => None,
        });
        defining.collect()
    }

    /// Finds the module or the item of a path. Returns `None` for paths of other crates.
    fn resolve(&self, from: usize, names: &[String], depth: usize) -> Option<Found> {
        let mut at = from;
        let mut is_own = false;
        for name in names {
            match name.as_str() {
                "crate" => at = 0,
                "super" => at = self.modules[at].parent,
                "self" => {}
                _ => match self.find(at, name, depth) {
                    Some(Found::Module(module)) => at = module,
                    // A macro defines the item.
                    None if is_own => return Some(Found::Item(at)),
                    other => return other,
                },
            }
            is_own = true;
        }
        Some(Found::Module(at))
    }

    fn find(&self, at: usize, name: &str, depth: usize) -> Option<Found> {
        let module = &self.modules[at];
        if depth > REEXPORTS_MAX {
            return None;
        }
        if let Some(child) = module.children.get(name) {
            return Some(Found::Module(*child));
        }
        if module.items.contains(name) {
            return Some(Found::Item(at));
        }
        if let Some(import) = module.imports.get(name) {
            return self.resolve(at, import, depth + 1);
        }
        module.globs.iter().find_map(|glob| match self.resolve(at, glob, depth + 1)? {
            Found::Module(module) if module != at => self.find(module, name, depth + 1),
            _ => None,
        })
    }
}

/// A module, or the module that defines an item.
enum Found {
    Module(usize),
    Item(usize),
}

impl Module {
    fn add(&mut self, item: &Item) {
        let defined = match item {
            Item::Use(import) => {
                let mut imported = Vec::new();
                flatten(&import.tree, &mut Vec::new(), &mut imported);
                if matches!(import.vis, Visibility::Inherited) {
                    self.used.extend(imported.iter().map(|(_, names)| names.clone()));
                }
                for (name, names) in imported {
                    match name {
                        Some(name) => drop(self.imports.insert(name, names)),
                        None => self.globs.push(names),
                    }
                }
                return;
            }
            Item::Struct(item) => Some((&item.ident, true)),
            Item::Enum(item) => Some((&item.ident, true)),
            Item::Trait(item) => Some((&item.ident, true)),
            Item::Type(item) => Some((&item.ident, true)),
            Item::Union(item) => Some((&item.ident, true)),
            Item::Const(item) => Some((&item.ident, false)),
            Item::Static(item) => Some((&item.ident, false)),
            Item::Fn(item) => Some((&item.sig.ident, false)),
            Item::Macro(item) => item.ident.as_ref().map(|name| (name, false)),
            _ => None,
        };
        if let Some((name, is_type)) = defined {
            self.items.insert(name.to_string());
            self.types.extend(is_type.then(|| name.to_string()));
        }
        Paths { used: &mut self.used }.visit_item(item);
    }
}

/// Collects the paths in code.
struct Paths<'a> {
    used: &'a mut Vec<Names>,
}

impl Visit<'_> for Paths<'_> {
    fn visit_path(&mut self, path: &syn::Path) {
        if path.leading_colon.is_none() {
            self.used.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, import: &syn::ItemUse) {
        let mut imported = Vec::new();
        flatten(&import.tree, &mut Vec::new(), &mut imported);
        self.used.extend(imported.into_iter().map(|(_, names)| names));
    }

    fn visit_macro(&mut self, call: &syn::Macro) {
        visit::visit_macro(self, call);
        // The arguments of most macros are expressions. Others are not read.
        let arguments = Punctuated::<Expr, Token![,]>::parse_terminated.parse2(call.tokens.clone());
        arguments.iter().flatten().for_each(|argument| self.visit_expr(argument));
    }

    fn visit_impl_item_fn(&mut self, function: &syn::ImplItemFn) {
        if !function.attrs.iter().any(is_for_tests) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_attribute(&mut self, _: &Attribute) {}
}

/// Splits an import into its paths, each with its local name. A glob has none.
fn flatten(tree: &UseTree, before: &mut Names, imported: &mut Vec<(Option<String>, Names)>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, imported);
            before.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, imported)),
        UseTree::Glob(_) => imported.push((None, before.clone())),
        UseTree::Name(name) if name.ident == "self" => {
            imported.push((before.last().cloned(), before.clone()));
        }
        UseTree::Name(name) => imported.push((Some(name.ident.to_string()), with(before, &name.ident))),
        UseTree::Rename(name) => {
            let names = if name.ident == "self" { before.clone() } else { with(before, &name.ident) };
            imported.push((Some(name.rename.to_string()), names));
        }
    }
}

fn with(before: &[String], last: &syn::Ident) -> Names {
    before.iter().cloned().chain([last.to_string()]).collect()
}

/// Returns whether the item exists only in test builds.
fn is_for_tests(attribute: &Attribute) -> bool {
    question(attribute).is_some_and(|asked| asked == "test" || asked.starts_with("all(test,"))
}

fn is_negated(attribute: &Attribute) -> bool {
    question(attribute).is_some_and(|asked| asked.starts_with("not("))
}

/// Returns the argument of a `cfg`, without spaces.
fn question(attribute: &Attribute) -> Option<String> {
    let Meta::List(list) = &attribute.meta else { return None };
    list.path.is_ident("cfg").then(|| list.tokens.to_string().split_whitespace().collect())
}

/// Returns the value of `#[path = ".."]`.
fn other_path(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    match &pair.value {
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) if pair.path.is_ident("path") => {
            Some(text.value())
        }
        _ => None,
    }
}

/// Returns a path that is relative to a folder, without `..` in it.
fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the files that the module of the first file uses, in a crate of these files.
    fn used(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> = files.iter().map(|(path, text)| File::new(path, text)).collect();
        let read = Crate::read("src/lib.rs", &files).unwrap();
        let module = read.modules.iter().position(|module| module.file == files[0].path).unwrap();
        read.used_files(module).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn an_import_uses_the_file_that_defines_the_item() {
        let root = ("src/lib.rs", "mod a; mod b; pub use b::*; pub use b::inner::Deep as D;");
        let b = ("src/b.rs", "pub mod inner; pub struct B; pub fn b() {}");
        let inner = ("src/b/inner.rs", "pub struct Deep;");
        let of_a = |text| used(&[("src/a.rs", text), root, b, inner]);
        for text in
            ["use crate::b::B;", "use crate::{B};", "use super::B as C;", "fn f() { use super::b::b; }"]
        {
            assert_eq!(of_a(text), ["src/b.rs"], "{text}");
        }
        for text in
            ["use crate::D;", "use crate::b::{self, inner::*}; struct A(Deep);", "fn f(_: crate::D) {}"]
        {
            assert_eq!(of_a(text), ["src/b/inner.rs"], "{text}");
        }
        assert_eq!(of_a("use crate::b; fn f() { assert!(b::b() == 1, \"{}\", 2); }"), ["src/b.rs"]);
    }

    #[test]
    fn declarations_and_the_code_of_tests_are_not_imports() {
        let b = ("src/b.rs", "pub struct B;");
        for text in [
            "mod b; pub use b::B; pub(crate) use std::fmt;",
            "mod b; use b::Gone as _; #[cfg(test)] use b::B; #[cfg(all(test, unix))] mod tests { use super::b::B; }",
            "mod b; struct A; impl A { #[cfg(test)] fn f(_: b::B) {} }",
        ] {
            let found = used(&[("src/lib.rs", text), b]);
            assert!(found.is_empty() || text.contains("Gone"), "{text}: {found:?}");
        }
        assert_eq!(used(&[("src/lib.rs", "mod b; pub use b::B; fn f(_: B) {}"), b]), ["src/b.rs"]);
        assert_eq!(used(&[b, ("src/lib.rs", "mod b; struct A;")]), [""; 0]);
    }

    #[test]
    fn a_module_may_use_its_parent() {
        let root = ("src/lib.rs", "mod a; struct Root;");
        let a = ("src/a.rs", "mod inner; struct A;");
        let of_inner = |text| used(&[("src/a/inner.rs", text), root, a]);
        assert_eq!(of_inner("use super::A;"), [""; 0]);
        assert_eq!(of_inner("use crate::Root;"), ["src/lib.rs"]);
    }

    #[test]
    fn a_path_attribute_is_followed() {
        let root = ("src/lib.rs", "#[path = \"../x/b.rs\"] mod b; fn f() { b::c::C }");
        assert_eq!(used(&[root, ("x/b.rs", "mod c;"), ("x/c.rs", "struct C;")]), ["x/c.rs"]);
    }
}
