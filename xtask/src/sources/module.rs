//! What one file of Rust declares, imports and names, without its tests.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, UseTree, Visibility};

#[cfg(test)]
use super::api::Api;

/// A path in the source, such as `crate::engine::Event`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
}

/// An import: the name that it binds, and what it binds it to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Import {
    pub(crate) name: String,
    pub(crate) target: Named,
    /// `pub`, `pub(crate)`, `pub(super)`: it can be there for other modules alone.
    pub(crate) is_exported: bool,
    /// `pub`.
    pub(crate) is_public: bool,
}

/// One module.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// The modules that are declared in it; those with a body are in the list.
    pub(crate) children: BTreeMap<String, Option<Module>>,
    pub(crate) definitions: BTreeSet<String>,
    pub(crate) imports: Vec<Import>,
    /// Every path outside imports.
    pub(crate) paths: Vec<Named>,
    /// Items and fields that are declared `pub`. The lint `unreachable_pub` keeps them reachable from outside.
    pub(crate) public: usize,
    /// What it offers to other crates.
    #[cfg(test)]
    pub(super) api: Api,
    /// Modules that are declared `pub`.
    pub(super) public_children: BTreeSet<String>,
    /// Lines that are neither blank, nor a comment, nor of a test.
    pub(crate) code_lines: usize,
    /// The first and last lines of what is there for tests only.
    tests: Vec<(usize, usize)>,
    /// How many items with a body enclose what is visited: their inner items are no definitions of the module.
    depth: usize,
}

impl Module {
    /// # Errors
    /// That the text is not Rust.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let file = syn::parse_file(text)?;
        let mut module = Self::default();
        module.visit_file(&file);
        let is_of_test =
            |line: usize| module.tests.iter().any(|(first, last)| (*first..=*last).contains(&line));
        let is_code = |line: &str| !line.is_empty() && !line.starts_with("//");
        let lines = text.lines().zip(1..).filter(|(line, at)| is_code(line.trim()) && !is_of_test(*at));
        module.code_lines = lines.count();
        Ok(module)
    }

    fn import(&mut self, tree: &UseTree, prefix: &[String], visibility: &Visibility) {
        let (ident, name) = match tree {
            UseTree::Path(path) => {
                let prefix: Vec<String> = prefix.iter().cloned().chain([path.ident.to_string()]).collect();
                return self.import(&path.tree, &prefix, visibility);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(tree, prefix, visibility));
            }
            UseTree::Glob(_) => (None, "*".to_owned()),
            UseTree::Name(name) => (Some(&name.ident), name.ident.to_string()),
            UseTree::Rename(rename) => (Some(&rename.ident), rename.rename.to_string()),
        };
        let last = ident.filter(|ident| *ident != "self" || prefix.is_empty()).map(Ident::to_string);
        let path: Vec<String> = prefix.iter().cloned().chain(last).collect();
        let name = if name == "self" { path.last().cloned().unwrap_or_default() } else { name };
        let line = tree.span().start().line;
        let is_exported = !matches!(visibility, Visibility::Inherited);
        let is_public = matches!(visibility, Visibility::Public(_));
        self.imports.push(Import { name, target: Named { path, line }, is_exported, is_public });
    }

    /// Names of others, and modules, that it exports to everybody.
    pub(crate) fn exports(&self) -> usize {
        self.imports.iter().filter(|import| import.is_public).count() + self.public_children.len()
    }

    /// The paths among the arguments of a macro, which has no syntax of its own.
    fn paths_in_tokens(&mut self, tokens: TokenStream) {
        let mut path: Option<Named> = None;
        let mut colons = 0;
        let mut after_dot = false;
        for token in tokens {
            match &token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(_) if after_dot => {}
                TokenTree::Ident(ident) => match &mut path {
                    Some(path) if colons == 2 => path.path.push(ident.to_string()),
                    _ => {
                        let named = Named { path: vec![ident.to_string()], line: ident.span().start().line };
                        self.paths.extend(path.replace(named));
                    }
                },
                _ => self.paths.extend(path.take()),
            }
            if let TokenTree::Group(group) = &token {
                self.paths_in_tokens(group.stream());
            }
            if !matches!(&token, TokenTree::Punct(punct) if punct.as_char() == ':') {
                colons = 0;
            }
            after_dot = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '.');
        }
        self.paths.extend(path);
    }

    /// The paths that serde takes as text: `#[serde(with = "super::text")]`.
    fn paths_in_strings(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.paths_in_strings(group.stream()),
                TokenTree::Literal(literal) => {
                    let text = literal.to_string();
                    let text = text.trim_matches('"');
                    if ["crate::", "super::", "self::"].iter().any(|start| text.starts_with(start)) {
                        let path = text.split("::").map(str::to_owned).collect();
                        self.paths.push(Named { path, line: literal.span().start().line });
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether something is there for tests only; remembers its lines then.
    fn is_of_tests(&mut self, attributes: &[Attribute], whole: proc_macro2::Span) -> bool {
        let is = attributes.iter().any(is_test_only);
        if is {
            self.tests.push((whole.start().line, whole.end().line));
        }
        is
    }
}

impl Visit<'_> for Module {
    fn visit_item(&mut self, item: &syn::Item) {
        use syn::Item;

        if self.is_of_tests(attributes(item), item.span()) {
            return;
        }
        let name = match item {
            Item::Use(import) => return self.import(&import.tree, &[], &import.vis),
            Item::Mod(child) => {
                let body = child.content.as_ref().map(|(_, items)| {
                    let mut body = Self::default();
                    items.iter().for_each(|item| body.visit_item(item));
                    self.tests.append(&mut body.tests);
                    body
                });
                self.children.insert(child.ident.to_string(), body);
                if matches!(child.vis, Visibility::Public(_)) {
                    self.public_children.insert(child.ident.to_string());
                }
                return;
            }
            Item::Struct(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Union(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            Item::Type(item) => Some(&item.ident),
            Item::Fn(item) => Some(&item.sig.ident),
            Item::Const(item) => Some(&item.ident),
            Item::Static(item) => Some(&item.ident),
            _ => None,
        };
        if self.depth == 0 {
            self.definitions.extend(name.map(Ident::to_string));
            #[cfg(test)]
            self.api.add(item);
        }
        self.depth += 1;
        visit::visit_item(self, item);
        self.depth -= 1;
    }

    fn visit_visibility(&mut self, visibility: &Visibility) {
        self.public += usize::from(matches!(visibility, Visibility::Public(_)));
    }

    fn visit_impl_item_fn(&mut self, item: &syn::ImplItemFn) {
        if !self.is_of_tests(&item.attrs, item.span()) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_impl_item_const(&mut self, item: &syn::ImplItemConst) {
        if !self.is_of_tests(&item.attrs, item.span()) {
            visit::visit_impl_item_const(self, item);
        }
    }

    fn visit_field(&mut self, field: &syn::Field) {
        if !self.is_of_tests(&field.attrs, field.span()) {
            visit::visit_field(self, field);
        }
    }

    fn visit_variant(&mut self, variant: &syn::Variant) {
        if !self.is_of_tests(&variant.attrs, variant.span()) {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_local(&mut self, local: &syn::Local) {
        if !self.is_of_tests(&local.attrs, local.span()) {
            visit::visit_local(self, local);
        }
    }

    fn visit_field_value(&mut self, value: &syn::FieldValue) {
        if !self.is_of_tests(&value.attrs, value.span()) {
            visit::visit_field_value(self, value);
        }
    }

    fn visit_path(&mut self, path: &syn::Path) {
        if path.leading_colon.is_none() {
            let steps = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.paths.push(Named { path: steps, line: path.span().start().line });
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &syn::Macro) {
        visit::visit_macro(self, call);
        self.paths_in_tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            self.paths_in_strings(list.tokens.clone());
        }
    }
}

/// `cfg(test)`, `cfg(all(test, ..))`, `test`.
pub(super) fn is_test_only(attribute: &Attribute) -> bool {
    let is_test = |path: &syn::Path| path.is_ident("test");
    match &attribute.meta {
        syn::Meta::Path(path) => is_test(path),
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let text: String = list.tokens.to_string().split_whitespace().collect();
            text == "test" || text.starts_with("all(test,")
        }
        _ => false,
    }
}

fn attributes(item: &syn::Item) -> &[Attribute] {
    use syn::Item;

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

    fn parse(text: &str) -> Module {
        Module::parse(text).unwrap()
    }

    fn paths(module: &Module) -> Vec<String> {
        module.paths.iter().map(|named| named.path.join("::")).filter(|path| path.contains("::")).collect()
    }

    #[test]
    fn imports_are_trees() {
        let module = parse("pub use a::{self, b::{C as D, E}, f::*};\nuse super::G;");
        let imports = module.imports.iter().map(|import| {
            let exported = if import.is_exported { "pub " } else { "" };
            format!("{exported}{} = {}:{}", import.name, import.target.path.join("::"), import.target.line)
        });
        let expected =
            ["pub a = a:1", "pub D = a::b::C:1", "pub E = a::b::E:1", "pub * = a::f:1", "G = super::G:2"];
        assert_eq!(imports.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn tests_comments_and_strings_are_left_out() {
        let module = parse(
            "/// [`crate::a::A`]
            fn f() { let x = \"crate::b::B\"; }
            #[cfg(test)] use crate::c::C;
            #[cfg(test)] #[allow(unused)] const fn g() -> crate::d::D { loop {} }
            #[cfg(all(test, unix))] mod tests { use crate::e::E; }
            #[cfg(test)] const X: Y = Y { z: crate::f::F };
            #[serde(with = \"super::g::G\")] struct H { i: crate::j::J, #[cfg(test)] k: crate::k::K, l: u8 }
            fn m() { format!(\"{}\", crate::n::N) }",
        );
        assert_eq!(paths(&module), ["super::g::G", "crate::j::J", "crate::n::N"]);
        assert!(module.imports.is_empty() && module.children.is_empty());
    }

    #[test]
    fn public_items_exports_and_lines_of_code_are_counted() {
        let module = parse(
            "pub struct A { pub b: std::vec::Vec<u8>, pub(crate) c: u8, d: u8 }
            impl A { pub const fn e() {} fn f(g: fn()) {} }
            impl B for A { fn h() {} }
            pub(super) fn i() {}
            pub use j::J;
            pub mod k {}",
        );
        assert_eq!(module.public, 3);
        assert_eq!(module.exports(), 2);
        assert_eq!(module.code_lines, 6);
        assert_eq!(module.definitions.into_iter().collect::<Vec<_>>(), ["A", "i"]);
    }
}
