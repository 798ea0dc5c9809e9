//! The weeks of `docs/weeks.md` have the results of the engine.
//!
//! `UPDATE_TRANSCRIPTS=1 cargo test -p policy-world --test it weeks` writes the results again. Review the difference, and
//! the explanations beside it.

use std::{fs, path::Path};

use policy_world::script;

#[test]
fn the_weeks_are_what_the_engine_makes_of_them() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/weeks.md");
    let expected = fs::read_to_string(&path).unwrap();
    let got = script::replay(&expected).unwrap();
    if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        fs::write(&path, &got).unwrap();
    } else if got != expected {
        let same = expected.lines().zip(got.lines()).take_while(|(a, b)| a == b).count();
        let rest = |text: &str| text.lines().skip(same).take(8).collect::<Vec<_>>().join("\n");
        panic!("from line {} expected\n{}\nbut got\n{}", same + 1, rest(&expected), rest(&got));
    }
    assert!(!got.contains("TWO LEADERS"), "two leaders at once");
    assert!(got.matches("never two leaders").count() >= 6, "a week without a result");
}
