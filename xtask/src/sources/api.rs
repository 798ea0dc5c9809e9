//! What a module offers to other crates: one line for each item, whichever file it is in.

use std::collections::BTreeSet;

use quote::ToTokens;
use syn::{Attribute, Generics, Ident, ImplItem, Item, TraitItem, Visibility};

/// Attributes that change what others can do with an item.
const KEPT: [&str; 3] = ["cfg", "derive", "non_exhaustive"];

/// What stands between tokens as they are printed, and as people write them.
const SPACES: [(&str, &str); 20] = [
    (" :: ", "::"),
    (":: ", "::"),
    (" ,", ","),
    (" ;", ";"),
    (" : ", ": "),
    ("& ", "&"),
    (" <", "<"),
    ("< ", "<"),
    (" >", ">"),
    (" (", "("),
    ("( ", "("),
    (" )", ")"),
    ("# ", "#"),
    ("[ ", "["),
    (" ]", "]"),
    (" !", "!"),
    ("->(", "-> ("),
    (",)", ")"),
    ("(mut ", "("),
    (", mut ", ", "),
];

/// The public items of one module, without the modules in it.
#[derive(Debug, Default)]
pub(super) struct Api {
    /// Types and traits.
    names: BTreeSet<String>,
    /// With the type or trait that each belongs to, if it belongs to one.
    lines: Vec<(String, String)>,
}

impl Api {
    pub(super) fn add(&mut self, item: &Item) {
        match item {
            Item::Struct(item) if is_public(&item.vis) => {
                self.define(&item.attrs, "struct", &item.ident, &item.generics);
                for (at, field) in item.fields.iter().enumerate().filter(|(_, field)| is_public(&field.vis)) {
                    let name = field.ident.as_ref().map_or_else(|| at.to_string(), ToString::to_string);
                    let line = format!("{}.{name}: {}", item.ident, plain(&field.ty));
                    self.line(&item.ident, &field.attrs, &line);
                }
            }
            Item::Enum(item) if is_public(&item.vis) => {
                self.define(&item.attrs, "enum", &item.ident, &item.generics);
                for variant in &item.variants {
                    let fields = variant.fields.iter().map(|field| {
                        let name = field.ident.as_ref().map(|name| format!("{name}: "));
                        name.unwrap_or_default() + &plain(&field.ty)
                    });
                    let fields = fields.collect::<Vec<_>>().join(", ");
                    let line = format!("{}::{}({fields})", item.ident, variant.ident);
                    self.line(&item.ident, &variant.attrs, &line.replace("()", ""));
                }
            }
            Item::Trait(item) if is_public(&item.vis) => {
                self.define(&item.attrs, "trait", &item.ident, &item.generics);
                for part in &item.items {
                    let (attrs, line) = match part {
                        TraitItem::Fn(part) if part.default.is_some() => {
                            (&part.attrs, plain(&part.sig) + " { .. }")
                        }
                        TraitItem::Fn(part) => (&part.attrs, plain(&part.sig)),
                        TraitItem::Type(part) => (&part.attrs, format!("type {}", part.ident)),
                        _ => continue,
                    };
                    self.line(&item.ident, attrs, &format!("{}: {line}", item.ident));
                }
            }
            Item::Type(item) if is_public(&item.vis) => {
                self.define(&item.attrs, "type", &item.ident, &item.generics);
            }
            Item::Fn(item) if is_public(&item.vis) => self.push("", &item.attrs, &plain(&item.sig)),
            Item::Const(item) if is_public(&item.vis) => {
                self.push("", &item.attrs, &format!("const {}: {}", item.ident, plain(&item.ty)));
            }
            Item::Impl(item) => self.of_impl(item),
            _ => {}
        }
    }

    fn of_impl(&mut self, item: &syn::ItemImpl) {
        let syn::Type::Path(path) = &*item.self_ty else { return };
        let Some(owner) = path.path.segments.last().map(|segment| &segment.ident) else { return };
        let of = plain(&item.self_ty);
        if let Some((_, of_trait, _)) = &item.trait_ {
            return self.line(owner, &item.attrs, &format!("impl {} for {of}", plain(of_trait)));
        }
        for part in &item.items {
            let (attrs, line) = match part {
                ImplItem::Fn(part) if is_public(&part.vis) => (&part.attrs, plain(&part.sig)),
                ImplItem::Const(part) if is_public(&part.vis) => {
                    (&part.attrs, format!("const {}: {}", part.ident, plain(&part.ty)))
                }
                _ => continue,
            };
            self.line(owner, attrs, &format!("{of}: {line}"));
        }
    }

    fn define(&mut self, attrs: &[Attribute], kind: &str, name: &Ident, generics: &Generics) {
        self.names.insert(name.to_string());
        self.line(name, attrs, &format!("{kind} {name}{}", plain(generics)));
    }

    fn line(&mut self, owner: &Ident, attrs: &[Attribute], line: &str) {
        self.push(&owner.to_string(), attrs, line);
    }

    fn push(&mut self, owner: &str, attrs: &[Attribute], line: &str) {
        if !attrs.iter().any(super::module::is_test_only) {
            let kept = attrs.iter().filter(|attr| KEPT.iter().any(|name| attr.path().is_ident(name)));
            let kept: String = kept.map(|attr| format!(" {}", plain(attr))).collect();
            self.lines.push((owner.to_owned(), format!("{line}{kept}")));
        }
    }

    /// The lines of all modules of a crate, without those of types that are not public.
    pub(super) fn lines<'a>(all: impl Iterator<Item = &'a Self> + Clone) -> BTreeSet<&'a str> {
        let names: BTreeSet<&String> = all.clone().flat_map(|api| &api.names).collect();
        let lines = all.flat_map(|api| &api.lines);
        let offered = lines.filter(|(owner, _)| owner.is_empty() || names.contains(owner));
        offered.map(|(_, line)| line.as_str()).collect()
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn plain(tokens: &impl ToTokens) -> String {
    let text = tokens.to_token_stream().to_string();
    SPACES.iter().fold(text, |text, (printed, written)| text.replace(printed, written))
}
