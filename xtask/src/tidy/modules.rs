//! The modules of a crate as its source declares them, with the types that each defines and the files that each uses. Code for tests is
//! left out.
//!
//! Paths are resolved through `use`, re-exports, and globs. Macros are not expanded and types are unknown, so the call of a method is
//! not a use of the module that defines it.

use std::collections::{BTreeMap, BTreeSet};

use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Ident, Item, Lit, Token, UseTree, Visibility};

use super::{File, Violation};

/// More re-exports in a row form a loop.
const REEXPORTS_MAX: usize = 8;

/// A path in source: `crate`, `super`, or the first name, and so on.
type Names = Vec<String>;

/// A crate. Its first module is the root.
#[derive(Debug)]
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
    /// The number of names that its `pub use` items export.
    pub(super) exported_names: usize,
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

impl Crate {
    /// Reads the crate with this root file. An error is a violation in a file that is not valid Rust.
    pub(super) fn read(root: &str, files: &[File]) -> Result<Self, Violation> {
        let files = files.iter().map(|file| (file.path.as_str(), file)).collect();
        let mut reader = Reader { files, modules: Vec::new() };
        reader.add_file(0, root, folder_of(root))?;
        Ok(Self { modules: reader.modules })
    }

    /// Returns the files that a module uses an item of.
    pub(super) fn used_files(&self, module: usize) -> BTreeSet<&str> {
        let used = self.modules[module].used.iter();
        let defining = used.filter_map(|names| match self.resolve(module, names, 0)? {
            // A module may use its parent, because it is a part of it.
            Resolved::Item(defining) if defining == self.modules[module].parent => None,
            Resolved::Item(defining) => Some(self.modules[defining].file.as_str()),
            // A path through a module to an item of another module does not use the first one.
            Resolved::Module(_) => None,
        });
        defining.collect()
    }

    /// Finds the module or the item of a path. Returns `None` for paths of other crates.
    fn resolve(&self, from: usize, names: &[String], depth: usize) -> Option<Resolved> {
        let mut at = from;
        let mut is_own = false;
        for name in names {
            match name.as_str() {
                "crate" => at = 0,
                "super" => at = self.modules[at].parent,
                "self" => {}
                _ => match self.find(at, name, depth) {
                    Some(Resolved::Module(module)) => at = module,
                    // A macro defines the item.
                    None if is_own => return Some(Resolved::Item(at)),
                    other => return other,
                },
            }
            is_own = true;
        }
        Some(Resolved::Module(at))
    }

    fn find(&self, at: usize, name: &str, depth: usize) -> Option<Resolved> {
        let module = &self.modules[at];
        if depth > REEXPORTS_MAX {
            return None;
        }
        if let Some(child) = module.children.get(name) {
            return Some(Resolved::Module(*child));
        }
        if module.items.contains(name) {
            return Some(Resolved::Item(at));
        }
        if let Some(import) = module.imports.get(name) {
            return self.resolve(at, import, depth + 1);
        }
        module.globs.iter().find_map(|glob| match self.resolve(at, glob, depth + 1)? {
            Resolved::Module(module) if module != at => self.find(module, name, depth + 1),
            _ => None,
        })
    }
}

/// A module, or the module that defines an item.
enum Resolved {
    Module(usize),
    Item(usize),
}

/// The files of the project, and the modules that were read from them.
struct Reader<'a> {
    files: BTreeMap<&'a str, &'a File>,
    modules: Vec<Module>,
}

impl Reader<'_> {
    /// Adds the module of a file. Its children are in `folder`.
    fn add_file(&mut self, parent: usize, path: &str, folder: &str) -> Result<Option<usize>, Violation> {
        // A file that git does not list is generated.
        let Some(file) = self.files.get(path) else { return Ok(None) };
        let source = syn::parse_file(&file.text);
        let source = source.map_err(|why| file.violation(1, format!("is not valid Rust: {why}")))?;
        self.add(parent, path, folder, &source.items).map(Some)
    }

    fn add(&mut self, parent: usize, path: &str, folder: &str, items: &[Item]) -> Result<usize, Violation> {
        let at = self.modules.len();
        self.modules.push(Module { parent, file: path.to_owned(), ..Module::default() });
        for item in items.iter().filter(|item| !parts(item).0.iter().any(is_for_tests)) {
            let Item::Mod(module) = item else {
                self.modules[at].add(item);
                continue;
            };
            let name = module.ident.to_string();
            let inside = format!("{folder}/{name}");
            let first = self.modules.len();
            let child = match (&module.content, module.attrs.iter().find_map(other_path)) {
                (Some((_, items)), _) => Some(self.add(at, path, &inside, items)?),
                (None, None) => self.add_file(at, &format!("{inside}.rs"), &inside)?,
                (None, Some(other)) => {
                    let path = joined(folder_of(path), &other);
                    self.add_file(at, &path, folder_of(&path))?
                }
            };
            if module.attrs.iter().any(|attribute| question(attribute).starts_with("not(")) {
                self.modules[first..].iter_mut().for_each(|module| module.is_alternative = true);
            }
            self.modules[at].children.extend(child.map(|child| (name, child)));
        }
        Ok(at)
    }
}

impl Module {
    fn add(&mut self, item: &Item) {
        if let (_, Some(name), is_type) = parts(item) {
            self.items.insert(name.to_string());
            self.types.extend(is_type.then(|| name.to_string()));
        }
        let Item::Use(import) = item else { return Paths(&mut self.used).visit_item(item) };
        let imported = paths(&import.tree);
        match import.vis {
            Visibility::Inherited => Paths(&mut self.used).visit_item_use(import),
            Visibility::Public(_) => self.exported_names += imported.len(),
            Visibility::Restricted(_) => {}
        }
        for (name, names) in imported {
            match name {
                Some(name) => drop(self.imports.insert(name, names)),
                None => self.globs.push(names),
            }
        }
    }
}

struct Paths<'a>(&'a mut Vec<Names>);

impl Visit<'_> for Paths<'_> {
    fn visit_path(&mut self, path: &syn::Path) {
        if path.leading_colon.is_none() {
            self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, import: &syn::ItemUse) {
        self.0.extend(paths(&import.tree).into_iter().map(|(_, names)| names));
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
fn paths(tree: &UseTree) -> Vec<(Option<String>, Names)> {
    let named = |path: &Ident, name: &Ident| {
        let names = if path == "self" { Vec::new() } else { vec![path.to_string()] };
        vec![(Some(name.to_string()), names)]
    };
    match tree {
        UseTree::Glob(_) => vec![(None, Vec::new())],
        UseTree::Group(group) => group.items.iter().flat_map(paths).collect(),
        UseTree::Name(name) => named(&name.ident, &name.ident),
        UseTree::Rename(name) => named(&name.ident, &name.rename),
        UseTree::Path(path) => {
            let below = paths(&path.tree).into_iter().map(|(name, names)| {
                // `a::{self}` imports `a`.
                let name = name.map(|name| if name == "self" { path.ident.to_string() } else { name });
                (name, [path.ident.to_string()].into_iter().chain(names).collect())
            });
            below.collect()
        }
    }
}

/// Returns whether the item exists only in test builds.
fn is_for_tests(attribute: &Attribute) -> bool {
    let asked = question(attribute);
    asked == "test" || asked.starts_with("all(test,")
}

/// Returns the argument of a `cfg`, without spaces, or nothing for another attribute.
fn question(attribute: &Attribute) -> String {
    let list = attribute.meta.require_list().ok().filter(|list| list.path.is_ident("cfg"));
    list.map_or(String::new(), |list| list.tokens.to_string().replace(char::is_whitespace, ""))
}

/// Returns the value of `#[path = ".."]`.
fn other_path(attribute: &Attribute) -> Option<String> {
    let pair = attribute.meta.require_name_value().ok().filter(|pair| pair.path.is_ident("path"))?;
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &pair.value else { return None };
    Some(text.value())
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Returns a path that is relative to a folder, without `..` at its start.
fn joined(folder: &str, path: &str) -> String {
    let above = path.strip_prefix("../").map(|path| joined(folder_of(folder), path));
    above.unwrap_or_else(|| format!("{folder}/{path}"))
}

/// Returns the attributes of an item, its name, and whether it is a type.
fn parts(item: &Item) -> (&[Attribute], Option<&Ident>, bool) {
    match item {
        Item::Const(item) => (&item.attrs, Some(&item.ident), false),
        Item::Enum(item) => (&item.attrs, Some(&item.ident), true),
        Item::Fn(item) => (&item.attrs, Some(&item.sig.ident), false),
        Item::Impl(item) => (&item.attrs, None, false),
        Item::Macro(item) => (&item.attrs, item.ident.as_ref(), false),
        Item::Mod(item) => (&item.attrs, None, false),
        Item::Static(item) => (&item.attrs, Some(&item.ident), false),
        Item::Struct(item) => (&item.attrs, Some(&item.ident), true),
        Item::Trait(item) => (&item.attrs, Some(&item.ident), true),
        Item::Type(item) => (&item.attrs, Some(&item.ident), true),
        Item::Union(item) => (&item.attrs, Some(&item.ident), true),
        Item::Use(item) => (&item.attrs, None, false),
        _ => (&[], None, false),
    }
}
