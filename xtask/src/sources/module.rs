//! What one file of Rust declares, imports and names, without its tests.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

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
    /// The fields of each struct with named fields.
    pub(crate) fields: BTreeMap<String, usize>,
    /// The functions in `impl NAME` blocks, by the name.
    pub(crate) methods: BTreeMap<String, usize>,
}

impl Module {
    /// # Errors
    /// That the text is not Rust.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let tokens: TokenStream = text.parse().map_err(|error| anyhow::anyhow!("{error}"))?;
        let mut module = Self::default();
        module.scan(tokens, true);
        Ok(module)
    }

    /// `items`: whether names that are declared here belong to the module, and not to a function or an `impl`.
    fn scan(&mut self, tokens: TokenStream, items: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let (mut at, mut exported) = (0, false);
        while let Some(token) = tokens.get(at) {
            let rest = &tokens[at..];
            let mut still_exported = false;
            at += match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => match attribute(rest) {
                    Some((content, length)) if is_test_only(&content) => {
                        length + item_length(&rest[length..])
                    }
                    Some((content, length)) => {
                        self.paths_in_strings(content);
                        length
                    }
                    None => 1,
                },
                // A field, a method, a lifetime: no path begins with it.
                TokenTree::Punct(punct) if ['.', '\''].contains(&punct.as_char()) => match rest.get(1) {
                    Some(TokenTree::Ident(_)) => 2,
                    _ => 1,
                },
                // The rest of a path with generics, or one of another crate.
                TokenTree::Punct(_) if is_separator(rest) => {
                    2 + path(&rest[2..]).map_or(0, |(_, length)| length)
                }
                TokenTree::Ident(ident) => match ident.to_string().as_str() {
                    "pub" => {
                        still_exported = true;
                        self.visibility(rest)
                    }
                    "use" => self.import(rest, exported),
                    "mod" => self.child(rest),
                    "impl" => self.implementation(rest),
                    keyword @ ("struct" | "enum" | "trait" | "type" | "fn" | "const" | "static") => {
                        self.definition(keyword, rest, items)
                    }
                    _ => match path(rest) {
                        Some((path, length)) => {
                            self.paths.push(Named { path, line: ident.span().start().line });
                            length
                        }
                        None => 1,
                    },
                },
                TokenTree::Group(group) => {
                    self.scan(group.stream(), false);
                    1
                }
                _ => 1,
            };
            exported = still_exported;
        }
    }

    /// `pub`, `pub(..)`: its length.
    fn visibility(&mut self, tokens: &[TokenTree]) -> usize {
        if is_group(tokens.get(1), Delimiter::Parenthesis) {
            return 2;
        }
        let next = tokens.get(1).map(ToString::to_string).unwrap_or_default();
        self.public += usize::from(!["use", "mod"].contains(&next.as_str()));
        1
    }

    fn import(&mut self, tokens: &[TokenTree], is_exported: bool) -> usize {
        let length = until_semicolon(tokens);
        self.tree(&tokens[1..length], &[], is_exported);
        length
    }

    /// One tree of an import, which begins below the prefix.
    fn tree(&mut self, tokens: &[TokenTree], prefix: &[String], is_exported: bool) {
        let Some((steps, length)) = path(tokens) else {
            if let Some(TokenTree::Group(group)) =
                tokens.iter().find(|token| matches!(token, TokenTree::Group(_)))
            {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                for tree in inner.split(|token| is_punct(Some(token), ',')) {
                    self.tree(tree, prefix, is_exported);
                }
            }
            return;
        };
        let full: Vec<String> = prefix.iter().chain(&steps).cloned().collect();
        let rest = &tokens[length..];
        if is_separator(rest) && !is_punct(rest.get(2), '*') {
            return self.tree(&rest[2..], &full, is_exported);
        }
        let line = tokens[0].span().start().line;
        let itself = full.len() > 1 && full.last().is_some_and(|last| last == "self");
        let path = if itself { full[..full.len() - 1].to_vec() } else { full };
        let renamed = rest.get(1).filter(|_| matches!(rest.first(), Some(TokenTree::Ident(_))));
        let name = match renamed {
            Some(name) => name.to_string(),
            None if is_separator(rest) => "*".to_owned(),
            None => path.last().cloned().unwrap_or_default(),
        };
        self.imports.push(Import { name, target: Named { path, line }, is_exported });
    }

    fn child(&mut self, tokens: &[TokenTree]) -> usize {
        let name = tokens.get(1).map(ToString::to_string).unwrap_or_default();
        let body = match tokens.get(2) {
            Some(TokenTree::Group(group)) => {
                let mut child = Self::default();
                child.scan(group.stream(), true);
                Some(child)
            }
            _ => None,
        };
        self.children.insert(name, body);
        3
    }

    fn definition(&mut self, keyword: &str, tokens: &[TokenTree], items: bool) -> usize {
        let Some(TokenTree::Ident(name)) = tokens.get(1) else { return 1 };
        let name = name.to_string();
        // `const fn`, `fn` in a type.
        if name == "fn" {
            return 1;
        }
        if keyword == "struct"
            && let Some(TokenTree::Group(body)) =
                tokens[..item_length(tokens)].iter().find(|token| is_group(Some(token), Delimiter::Brace))
        {
            self.fields.insert(name.clone(), fields(body.stream()));
        }
        if items {
            self.definitions.insert(name);
        }
        2
    }

    /// `impl .. {`: counts its functions, and leaves the rest to the scan.
    fn implementation(&mut self, tokens: &[TokenTree]) -> usize {
        let length = item_length(tokens);
        let header = &tokens[1..length.max(1)];
        if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) = (header.first(), header.get(1))
        {
            let functions = body.stream().into_iter().filter(|token| token.to_string() == "fn").count();
            *self.methods.entry(name.to_string()).or_default() += functions;
        }
        1
    }

    /// The paths that serde takes as text: `#[serde(with = "super::text")]`.
    fn paths_in_strings(&mut self, content: TokenStream) {
        for token in content {
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
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn is_group(token: Option<&TokenTree>, wanted: Delimiter) -> bool {
    matches!(token, Some(TokenTree::Group(group)) if group.delimiter() == wanted)
}

/// Whether `::` is next.
fn is_separator(tokens: &[TokenTree]) -> bool {
    is_punct(tokens.first(), ':') && is_punct(tokens.get(1), ':')
}

/// `a::b::c`, and how many tokens it has.
fn path(tokens: &[TokenTree]) -> Option<(Vec<String>, usize)> {
    let Some(TokenTree::Ident(first)) = tokens.first() else { return None };
    let (mut path, mut length) = (vec![first.to_string()], 1);
    while is_separator(&tokens[length..]) {
        let Some(TokenTree::Ident(next)) = tokens.get(length + 2) else { break };
        path.push(next.to_string());
        length += 3;
    }
    Some((path, length))
}

/// What is in `#[..]` or `#![..]`, and how many tokens that has.
fn attribute(tokens: &[TokenTree]) -> Option<(TokenStream, usize)> {
    let at = if is_punct(tokens.get(1), '!') { 2 } else { 1 };
    match tokens.get(at) {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket => {
            Some((group.stream(), at + 1))
        }
        _ => None,
    }
}

/// `cfg(test)`, `cfg(all(test, ..))`, `test`.
fn is_test_only(attribute: &TokenStream) -> bool {
    let text: String = attribute.to_string().split_whitespace().collect();
    text == "test" || text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

fn until_semicolon(tokens: &[TokenTree]) -> usize {
    tokens.iter().position(|token| is_punct(Some(token), ';')).map_or(tokens.len(), |at| at + 1)
}

/// How many tokens the item, field, variant or statement has that begins here, its attributes included.
fn item_length(tokens: &[TokenTree]) -> usize {
    let mut start = 0;
    while is_punct(tokens.get(start), '#')
        && let Some((_, length)) = attribute(&tokens[start..])
    {
        start += length;
    }
    let to_semicolon = ["use", "const", "static", "type", "let"];
    let with_body = ["fn", "mod", "impl", "struct", "enum", "trait"];
    let keyword = tokens[start..].iter().map(ToString::to_string).find(|text| {
        to_semicolon.contains(&text.as_str())
            || with_body.contains(&text.as_str())
            || [",", ";"].contains(&text.as_str())
    });
    let is_const_fn = tokens[start..]
        .windows(2)
        .take(6)
        .any(|two| two[0].to_string() == "const" && two[1].to_string() == "fn");
    let keyword = keyword.unwrap_or_default();
    let ends = |token: &TokenTree| {
        if to_semicolon.contains(&keyword.as_str()) && !is_const_fn {
            is_punct(Some(token), ';')
        } else if is_const_fn || with_body.contains(&keyword.as_str()) {
            is_punct(Some(token), ';') || is_group(Some(token), Delimiter::Brace)
        } else {
            is_punct(Some(token), ',') || is_punct(Some(token), ';')
        }
    };
    tokens[start..].iter().position(ends).map_or(tokens.len(), |at| start + at + 1)
}

/// The named fields between the braces of a struct: each has one colon that is no part of `::` outside of brackets.
fn fields(body: TokenStream) -> usize {
    let tokens: Vec<TokenTree> = body.into_iter().collect();
    let (mut at, mut fields) = (0, 0);
    while at < tokens.len() {
        if is_separator(&tokens[at..]) {
            at += 2;
            continue;
        }
        fields += usize::from(is_punct(tokens.get(at), ':'));
        at += 1;
    }
    fields
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
    fn public_items_and_fields_fields_and_methods_are_counted() {
        let module = parse(
            "pub struct A { pub b: std::vec::Vec<u8>, pub(crate) c: u8, d: u8 }
            impl A { pub const fn e() {} fn f(g: fn()) {} }
            impl B for A { fn h() {} }
            pub(super) fn i() {}
            pub use j::J;
            pub mod k {}",
        );
        assert_eq!(module.public, 3);
        assert_eq!(module.fields["A"], 3);
        assert_eq!(module.methods["A"], 2);
        assert_eq!(module.definitions.into_iter().collect::<Vec<_>>(), ["A", "i"]);
    }
}
