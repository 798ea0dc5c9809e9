//! Tables of the configuration. Each key is declared once, in the struct of its table: by its field, its type, its default
//! and the sentence that describes it, and by a [`Rule`] with all that goes beyond these. The reader, the JSON Schema,
//! `config/base.toml`, the reference, what a reload and an overlay may change, and the completions are made of that.
//!
//! ```text
//! table! {
//!     /// `[balance]`: how leaderships are spread over the nodes.
//!     pub struct BalanceConfig {
//!         /// Switchovers under way at most.
//!         pub at_most: usize = 2 => value().within(1..=100);
//!     }
//! }
//! ```

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

use super::{
    key::{ANY, Effect, Key, Of, Reach, Shape, Terms},
    layers::KIND,
    parse::Parse,
    reader::Section,
};

/// A table with declared keys. Its value before it is read has the defaults.
pub(super) trait Table {
    /// Reads what is set, and checks how it fits together.
    fn read(&mut self, section: &mut Section<'_>);

    /// The keys, with these values as their defaults.
    fn keys(&self) -> Vec<Key>;
}

impl<T: Table + Clone> Table for Arc<T> {
    fn read(&mut self, section: &mut Section<'_>) {
        Self::make_mut(self).read(section);
    }

    fn keys(&self) -> Vec<Key> {
        self.as_ref().keys()
    }
}

/// Declares a table: a struct of its own with the value of each key by default, or the keys of a struct that is declared
/// elsewhere (`for`). A key with another name than its field is behind `as`. After `check` there is a function that is called once
/// all keys are read.
macro_rules! table {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[doc = $doc:literal])* $field_vis:vis $field:ident $(as $key:ident)?: $type:ty = $default:expr => $rule:expr;)*
        }
        $(check $check:path;)?
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[doc = $doc])* $field_vis $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        $crate::config::table::table! {
            for $name { $($(#[doc = $doc])* $field $(as $key)?: $type => $rule;)* } $(check $check;)?
        }
    };
    (
        for $name:ident {
            $($(#[doc = $doc:literal])* $field:ident $(as $key:ident)?: $type:ty => $rule:expr;)*
        }
        $(check $check:path;)?
    ) => {
        impl $crate::config::table::Table for $name {
            fn read(&mut self, section: &mut $crate::config::reader::Section<'_>) {
                use $crate::config::table::{ConfigField, table};
                $(ConfigField::<$type>::read($rule, table!(@ $field $($key)?), &mut self.$field, section);)*
                $($check(self, section);)?
            }

            fn keys(&self) -> Vec<$crate::config::key::Key> {
                use $crate::config::table::{ConfigField, table};
                let mut keys = Vec::new();
                $({
                    let sentence = concat!($($doc, "\n",)*);
                    ConfigField::<$type>::describe($rule, (table!(@ $field $($key)?), sentence), &self.$field, &mut keys);
                })*
                keys
            }
        }
    };
    (@ $field:ident) => { stringify!($field) };
    (@ $field:ident $key:ident) => { stringify!($key) };
}
pub(super) use table;

/// The name of a key, and its sentence.
pub(super) type Said = (&'static str, &'static str);

/// How the value of a field is read from a key, and described.
pub(super) trait ConfigField<T> {
    /// Puts what is set over the value.
    fn read(self, key: &'static str, value: &mut T, section: &mut Section<'_>);

    /// Adds the key, with its sentence, or the keys, with this value as the default.
    fn describe(self, key: Said, value: &T, keys: &mut Vec<Key>);
}

/// Why some keys of a job need a restart of the worker.
pub(super) const UNDER_WAY: &str = "a leadership that is under way relies on it";

/// All that is declared of a key besides name, type, default and sentence.
pub(super) struct Rule<F> {
    terms: Terms,
    form: F,
}

impl<F> Rule<F> {
    fn new(form: F) -> Self {
        Self { terms: Terms::default(), form }
    }

    /// A changed value applies at once.
    pub(super) fn applied(mut self) -> Self {
        self.terms.effect = Some(Effect::Applied);
        self
    }

    /// A changed value applies at the next start of the job: the guard of a running job got the former one.
    pub(super) fn job(mut self) -> Self {
        self.terms.effect = Some(Effect::JobRestart);
        self
    }

    /// A changed value applies when the worker executes itself.
    pub(super) fn handover(mut self) -> Self {
        self.terms.effect = Some(Effect::Handover);
        self
    }

    /// A changed value needs a restart of the worker, for this reason.
    pub(super) fn worker(mut self, reason: &'static str) -> Self {
        self.terms.effect = Some(Effect::WorkerRestart);
        self.terms.reason = reason;
        self
    }

    /// Only a restart of the worker changes it: an upgrade in place is refused.
    pub(super) fn fixed(mut self) -> Self {
        self.terms.is_fixed = true;
        self
    }

    /// What an overlay may do with it, where that is not [`Reach::Program`].
    pub(super) fn overlay(mut self, reach: Reach) -> Self {
        self.terms.reach = Some(reach);
        self
    }

    /// Only tables of these kinds have it.
    pub(super) fn only(mut self, kinds: &'static [&'static str]) -> Self {
        self.terms.kinds = kinds;
        self
    }

    /// What `config/base.toml` shows as an example, behind a `#`.
    pub(super) fn example(mut self, toml: &'static str) -> Self {
        self.terms.example = Some(toml);
        self
    }

    /// What `config/base.toml` sets.
    pub(super) fn set(mut self, toml: &'static str) -> Self {
        self.terms.set = Some(toml);
        self
    }

    /// It need not be set if this key is.
    pub(super) fn unless(mut self, other: &'static str) -> Self {
        self.terms.instead = Some(other);
        self
    }

    /// An example of a name that the user chooses.
    pub(super) fn name(mut self, name: &'static str) -> Self {
        self.terms.name = name;
        self
    }

    /// Where its values come from that are not set here.
    pub(super) fn inherits(mut self, section: &'static str) -> Self {
        self.terms.inherits = Some(section);
        self
    }

    /// The kind of the table must be set.
    pub(super) fn has_kind(mut self) -> Self {
        self.terms.has_kind = true;
        self
    }

    /// It is a key of a policy that recipes without an elector use as well.
    pub(super) fn any_recipe(mut self) -> Self {
        self.terms.any_recipe = true;
        self
    }

    /// What a success means, in a table of a probe.
    pub(super) fn shows(mut self, purpose: &'static str) -> Self {
        self.terms.purpose = purpose;
        self
    }

    fn key(self, (name, sentence): Said, of: Of) -> Key {
        Key { name, sentence, terms: self.terms, of }
    }

    /// Reads the table of the key.
    fn table(&self, key: &'static str, value: &mut impl Table, section: &mut Section<'_>) {
        section.declared_table(key, &self.terms, |section| value.read(section));
    }
}

/// A value; `OPTIONAL` if it is `None` unless it is set.
pub(super) struct Leaf<T, const OPTIONAL: bool> {
    wrong: Vec<Wrong<T>>,
}

/// Why a value can't be used, if it can't.
type Wrong<T> = Box<dyn Fn(&T) -> Option<String>>;

/// A value with a default.
pub(super) fn value<T>() -> Rule<Leaf<T, false>> {
    Rule::new(Leaf { wrong: Vec::new() })
}

/// A value without a default.
pub(super) fn optional<T>() -> Rule<Leaf<T, true>> {
    Rule::new(Leaf { wrong: Vec::new() })
}

/// A value that must be set; `meaning` is its use, for the message. The field's default is never used.
pub(super) fn required<T>(meaning: &'static str) -> Rule<Leaf<T, false>> {
    let mut rule = value();
    rule.terms.required = Some(meaning);
    rule
}

/// A value whose default depends on other keys or on the host. The check of its table sets and shows it.
pub(super) fn derived<T>() -> Rule<Leaf<T, false>> {
    let mut rule = value();
    rule.terms.is_derived = true;
    rule
}

impl<T: Parse, const OPTIONAL: bool> Rule<Leaf<T, OPTIONAL>> {
    /// Both bounds are valid.
    pub(super) fn within(self, bounds: RangeInclusive<T>) -> Self
    where
        T: PartialOrd + 'static,
    {
        self.check(move |value| {
            let all = [value, bounds.start(), bounds.end()].map(Parse::show);
            let [value_text, least, most] = all.each_ref().map(|text| text.trim_matches('"'));
            let message = format!("{value_text} is out of range; {least} to {most} is valid");
            (!bounds.contains(value)).then_some(message)
        })
    }

    /// Why a value can't be used, if it can't.
    pub(super) fn check(mut self, wrong: impl Fn(&T) -> Option<String> + 'static) -> Self {
        self.form.wrong.push(Box::new(wrong));
        self
    }

    /// The value of the key, if it is set and can be used.
    fn take(&self, key: &'static str, section: &mut Section<'_>) -> Option<T> {
        let is_set = section.has(key) || self.terms.instead.is_some_and(|other| section.has(other));
        if let Some(meaning) = self.terms.required.filter(|_| !is_set) {
            return section.missing::<T>(key, meaning);
        }
        let value = section.optional(key)?;
        match self.form.wrong.iter().find_map(|wrong| wrong(&value)) {
            Some(message) => {
                section.problem(key, message);
                None
            }
            None => Some(value),
        }
    }

    fn describe_value(self, key: Said, value: Option<&T>, keys: &mut Vec<Key>) {
        let is_default = !self.terms.is_derived && self.terms.required.is_none();
        let default = value.filter(|_| is_default).map(Parse::show);
        let of = Of::Value {
            default,
            is_map: T::IS_MAP,
            #[cfg(test)]
            schema: T::schema(&mut schemars::SchemaGenerator::default()),
        };
        keys.push(self.key(key, of));
    }
}

impl<T: Parse> ConfigField<T> for Rule<Leaf<T, false>> {
    fn read(self, key: &'static str, value: &mut T, section: &mut Section<'_>) {
        if !section.takes(&self.terms) {
            return;
        }
        if let Some(set) = self.take(key, section) {
            *value = set;
        } else if !section.has(key) && !self.terms.is_derived && self.terms.required.is_none() {
            section.show_default(key, value);
        }
        section.note_kind(key, value);
    }

    fn describe(self, key: Said, value: &T, keys: &mut Vec<Key>) {
        self.describe_value(key, Some(value), keys);
    }
}

impl<T: Parse> ConfigField<Option<T>> for Rule<Leaf<T, true>> {
    fn read(self, key: &'static str, value: &mut Option<T>, section: &mut Section<'_>) {
        if section.takes(&self.terms) {
            *value = self.take(key, section).or(value.take());
        }
    }

    fn describe(self, key: Said, value: &Option<T>, keys: &mut Vec<Key>) {
        self.describe_value(key, value.as_ref(), keys);
    }
}

/// A table below this one.
pub(super) struct Inner {
    is_later: bool,
}

/// A table that is read whether it is set or not.
pub(super) fn nested() -> Rule<Inner> {
    Rule::new(Inner { is_later: false })
}

/// A table that depends on others: the check of this one reads it.
pub(super) fn later() -> Rule<Inner> {
    Rule::new(Inner { is_later: true })
}

impl<T: Table> ConfigField<T> for Rule<Inner> {
    fn read(self, key: &'static str, value: &mut T, section: &mut Section<'_>) {
        match self.form.is_later {
            true => section.know(key),
            false => self.table(key, value, section),
        }
    }

    fn describe(self, key: Said, value: &T, keys: &mut Vec<Key>) {
        keys.push(self.key(key, Of::Table { keys: value.keys(), shape: Shape::Always }));
    }
}

/// A table that becomes another type.
pub(super) struct As<K>(K);

/// A table with these defaults that becomes the field's type.
pub(super) fn nested_as<K>(keys: K) -> Rule<As<K>> {
    Rule::new(As(keys))
}

impl<K: Table + Clone + Into<T>, T> ConfigField<T> for Rule<As<K>> {
    fn read(self, key: &'static str, value: &mut T, section: &mut Section<'_>) {
        let mut read = self.form.0.clone();
        self.table(key, &mut read, section);
        *value = read.into();
    }

    fn describe(self, key: Said, _: &T, keys: &mut Vec<Key>) {
        let of = Of::Table { keys: self.form.0.keys(), shape: Shape::Always };
        keys.push(self.key(key, of));
    }
}

/// A table that is read only if it is set.
pub(super) struct Maybe<K>(K);

/// A table with these defaults, which is read only if it is set, and becomes the field's type.
pub(super) fn optional_nested<K>(keys: K) -> Rule<Maybe<K>> {
    Rule::new(Maybe(keys))
}

impl<K: Table + Clone + Into<Option<T>>, T> ConfigField<Option<T>> for Rule<Maybe<K>> {
    fn read(self, key: &'static str, value: &mut Option<T>, section: &mut Section<'_>) {
        section.know(key);
        if section.has(key) {
            let mut read = self.form.0.clone();
            self.table(key, &mut read, section);
            *value = read.into();
        }
    }

    fn describe(self, key: Said, _: &Option<T>, keys: &mut Vec<Key>) {
        let has_kind = self.terms.has_kind;
        let inside = self.form.0.keys().into_iter();
        let inside =
            inside.map(|key| if has_kind && key.name == KIND { key.with_default(None) } else { key });
        let of = Of::Table { keys: inside.collect(), shape: Shape::Optional };
        keys.push(self.key(key, of));
    }
}

/// Tables below a key, with names that the user chooses.
pub(super) struct Named<K>(K);

/// Tables with these defaults and names that the user chooses.
pub(super) fn tables<K>(keys: K) -> Rule<Named<K>> {
    Rule::new(Named(keys))
}

impl<K: Table + Clone + Into<Option<T>>, T> ConfigField<BTreeMap<String, T>> for Rule<Named<K>> {
    fn read(self, key: &'static str, value: &mut BTreeMap<String, T>, section: &mut Section<'_>) {
        section.declared_table(key, &self.terms, |section| rest(self.form.0).read(key, value, section));
    }

    fn describe(self, (name, sentence): Said, value: &BTreeMap<String, T>, keys: &mut Vec<Key>) {
        let mut named = Vec::new();
        rest(self.form.0.clone()).name(self.terms.name).describe((ANY, sentence), value, &mut named);
        keys.push(self.key((name, ""), Of::Table { keys: named, shape: Shape::Always }));
    }
}

/// Tables in an array, in their order.
pub(super) struct Each<K>(K);

/// An array of tables with these defaults.
pub(super) fn each<K>(keys: K) -> Rule<Each<K>> {
    Rule::new(Each(keys))
}

impl<K: Table + Clone + Into<T>, T> ConfigField<Vec<T>> for Rule<Each<K>> {
    fn read(self, key: &'static str, value: &mut Vec<T>, section: &mut Section<'_>) {
        *value = section.declared_tables(key, |section| {
            let mut read = self.form.0.clone();
            read.read(section);
            read.into()
        });
    }

    fn describe(self, key: Said, _: &Vec<T>, keys: &mut Vec<Key>) {
        let of = Of::Table { keys: self.form.0.keys(), shape: Shape::List };
        keys.push(self.key(key, of));
    }
}

/// The tables in this table that have no other key.
pub(super) struct Rest<K>(K);

/// All other keys of this table: tables with these defaults and names that the user chooses.
pub(super) fn rest<K>(keys: K) -> Rule<Rest<K>> {
    Rule::new(Rest(keys))
}

impl<K: Table + Clone + Into<Option<T>>, T> ConfigField<BTreeMap<String, T>> for Rule<Rest<K>> {
    fn read(self, _: &'static str, value: &mut BTreeMap<String, T>, section: &mut Section<'_>) {
        let all = section.each_table(|name, section| {
            let mut read = self.form.0.clone();
            read.read(section);
            Some((name.to_owned(), read.into()?))
        });
        value.extend(all.into_iter().flatten());
    }

    fn describe(self, (_, sentence): Said, _: &BTreeMap<String, T>, keys: &mut Vec<Key>) {
        let of = Of::Table { keys: self.form.0.keys(), shape: Shape::Optional };
        keys.push(self.key((ANY, sentence), of));
    }
}

/// Keys of this table itself.
pub(super) struct Flat;

/// The field's keys are in this table.
pub(super) fn flat() -> Rule<Flat> {
    Rule::new(Flat)
}

impl<T: Table> ConfigField<T> for Rule<Flat> {
    fn read(self, _: &'static str, value: &mut T, section: &mut Section<'_>) {
        if section.takes(&self.terms) {
            value.read(section);
        }
    }

    fn describe(self, _: Said, value: &T, keys: &mut Vec<Key>) {
        keys.extend(value.keys().into_iter().map(|key| key.under(&self.terms)));
    }
}

/// Keys of this table itself that become another type.
pub(super) struct FlatAs<K>(K);

/// Keys of this table, with these defaults, that become the field's type.
pub(super) fn flat_as<K>(keys: K) -> Rule<FlatAs<K>> {
    Rule::new(FlatAs(keys))
}

impl<K: Table + Into<T>, T> ConfigField<T> for Rule<FlatAs<K>> {
    fn read(mut self, _: &'static str, value: &mut T, section: &mut Section<'_>) {
        self.form.0.read(section);
        *value = self.form.0.into();
    }

    fn describe(self, _: Said, _: &T, keys: &mut Vec<Key>) {
        keys.extend(self.form.0.keys().into_iter().map(|key| key.under(&self.terms)));
    }
}

/// No key.
pub(super) struct Unread;

/// The field is no key: the check of its table sets it.
pub(super) fn unread() -> Unread {
    Unread
}

impl<T> ConfigField<T> for Unread {
    fn read(self, _: &'static str, _: &mut T, _: &mut Section<'_>) {}

    fn describe(self, _: Said, _: &T, _: &mut Vec<Key>) {}
}
