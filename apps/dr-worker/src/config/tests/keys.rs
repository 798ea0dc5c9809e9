//! The declared keys, one by one.

use schemars::Schema;

use super::{
    super::{
        change::steps,
        key::{Shape, find},
    },
    *,
};

/// Calls `each` with each value: the key in full, what is declared of it, its default and its schema. Where the user chooses
/// a name there is an example.
pub(super) fn each_value<'k>(
    keys: &'k [Key],
    path: &str,
    each: &mut impl FnMut(&str, &'k Key, Option<&'k str>, &'k Schema),
) {
    for key in keys {
        let name = if key.name == ANY { key.terms.name } else { key.name };
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match &key.of {
            Of::Table { keys, shape: Shape::List } => each_value(keys, &format!("{path}[0]"), each),
            Of::Table { keys, .. } => each_value(keys, &path, each),
            Of::Value { default, schema, .. } => each(&path, key, default.as_deref(), schema),
        }
    }
}

/// Every key in full.
pub(super) fn all_keys() -> Vec<String> {
    let mut all = Vec::new();
    each_value(&KEYS, "", &mut |path, _, _, _| all.push(path.to_owned()));
    all
}

#[test]
fn each_key_says_what_a_change_takes_and_has_a_sentence() {
    each_value(&KEYS, "", &mut |path, key, _, _| {
        let found = find(&KEYS, &steps(path)).unwrap();
        assert!(
            found.effect.is_some(),
            "{path}: add applied(), job() or worker() to its rule, or to that of its table"
        );
        assert!(!key.sentence.trim().is_empty(), "{path}: describe it above its field");
    });
    assert!(all_keys().len() > 200);
}

/// The declared default is the one that the reader shows.
#[test]
fn a_key_that_is_not_set_has_its_declared_default() {
    let config = Given::file(SMALL).load().unwrap();
    let mut compared = 0;
    each_value(&KEYS, "", &mut |path, _, default, _| {
        let shown = config.shown().iter().find(|shown| shown.key == path && shown.origin == Origin::BuiltIn);
        if let Some((shown, default)) = shown.zip(default) {
            assert_eq!(shown.value, default, "{path}");
            compared += 1;
        }
    });
    assert!(compared > 60, "only {compared} keys have a default");
}
