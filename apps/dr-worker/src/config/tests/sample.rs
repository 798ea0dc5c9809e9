//! `config/base.toml`: made of the declared keys.

use std::fmt::Write as _;

use super::{super::key::Shape, schema::one_line, *};

const HEAD: &str = r#"#:schema ./schema.json

# Configuration that all workers share. The file of a site overrides it:
#
#   dr-worker --config base.toml --config east.toml run
#
# A later layer overrides an earlier one, key by key: defaults, each --config in the order given (a directory means
# its *.toml files, sorted), environment variables (DR_WORKER__ZOOKEEPER__ROOT is zookeeper.root), and --set.
# `dr-worker config show` prints each value with its source; `dr-worker config check` prints all errors.
# An unknown key is an error. A key behind '#' shows an example, or a default that depends on others.
# Durations have a unit: "250ms", "10s", "1m 30s". Relative paths start at the working directory.
# docs/configuration.md has longer explanations.
"#;

/// The widest line of a comment.
const WIDTH: usize = 124;

/// A comment of one paragraph.
fn comment(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), "#".to_owned());
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        if line.chars().count() + word.chars().count() >= WIDTH {
            lines += &format!("{line}\n");
            line = "#".to_owned();
        }
        line += &format!(" {word}");
    }
    if line.len() > 1 { format!("{lines}{line}\n") } else { lines }
}

/// The lines of one key that is no section.
fn of_key(key: &Key, kind: Option<&str>, is_optional: bool) -> String {
    let sentence = one_line(key.sentence);
    let fits = key.terms.kinds.is_empty() || kind.is_some_and(|kind| key.terms.kinds.contains(&kind));
    let kinds: Vec<_> = key.terms.kinds.iter().map(|kind| format!("{kind:?}")).collect();
    let only = if fits { String::new() } else { format!(" (kind {})", kinds.join(", ")) };
    let default = match &key.of {
        Of::Value { default, .. } => default.as_deref(),
        Of::Table { .. } => None,
    };
    if let (Of::Table { keys, shape: Shape::List }, None) = (&key.of, key.terms.example) {
        let inside: Vec<_> = keys.iter().map(|key| key.name).collect();
        return comment(&format!("{}: {sentence} Its keys: {}.", key.name, inside.join(", ")));
    }
    let (mark, value) = match (key.terms.set, key.terms.example, default) {
        (Some(set), ..) => ("", set),
        (None, Some(example), _) => ("# ", example),
        (None, None, Some(default)) => (if is_optional { "# " } else { "" }, default),
        (None, None, None) => return comment(&format!("{}{only}: {sentence}", key.name)),
    };
    if fits {
        return format!("{}{mark}{} = {value}\n", comment(&sentence), key.name);
    }
    comment(&format!("{}{only}: {sentence} Default: {value}", key.name))
}

/// The sections of a table, with its own keys first.
fn of_table(path: &str, sentence: &str, keys: &[Key], is_optional: bool, page: &mut String) {
    let is_section = |key: &&Key| {
        let is_table = matches!(&key.of, Of::Table { shape, .. } if *shape != Shape::List);
        is_table && key.terms.example.is_none()
    };
    let kind = keys.iter().find(|key| key.name == layers::KIND).and_then(|key| match &key.of {
        Of::Value { default, .. } => default.as_deref().map(|kind| kind.trim_matches('"')),
        Of::Table { .. } => None,
    });
    let own: Vec<_> =
        keys.iter().filter(|key| !is_section(key)).map(|key| of_key(key, kind, is_optional)).collect();
    let is_set = own.iter().flat_map(|lines| lines.lines()).any(|line| !line.starts_with('#'));
    if !own.is_empty() {
        let mark = if is_set { "" } else { "# " };
        write!(page, "\n{}{mark}[{path}]\n{}", comment(&one_line(sentence)), own.join("\n")).unwrap();
    } else if !sentence.is_empty() {
        write!(page, "\n{}", comment(&one_line(sentence))).unwrap();
    }
    for key in keys.iter().filter(is_section) {
        let Of::Table { keys, shape } = &key.of else { continue };
        let name = if key.name == ANY { key.terms.name } else { key.name };
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let is_optional = is_optional || *shape == Shape::Optional || key.terms.inherits.is_some();
        of_table(&path, key.sentence, keys, is_optional, page);
    }
}

/// The file as it should be.
fn sample_file() -> String {
    let mut page = HEAD.to_owned();
    of_table("", "", &KEYS, false, &mut page);
    page
}

#[test]
fn the_schema_and_the_sample_file_have_each_key() {
    let path = config_dir().join("base.toml");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        fs::write(&path, sample_file()).unwrap();
    }
    let is_same = base_toml() == sample_file();
    assert!(is_same, "config/base.toml: write it with: UPDATE_SCHEMA=1 cargo test -p dr-worker --lib schema");
}
