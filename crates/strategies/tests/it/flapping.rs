//! That the table in the documents is what the simulation shows, and what it teaches.

use std::{fs, path::Path};

#[path = "../../examples/flapping.rs"]
mod example;

/// The four figures of the row for a setting.
fn row(table: &str, setting: &str) -> Vec<u64> {
    let start = format!("| {setting} | ");
    let rest = table.lines().find_map(|line| line.strip_prefix(&start)).unwrap();
    rest.trim_end_matches(" |").split(" | ").map(|cell| cell.parse().unwrap()).collect()
}

#[test]
fn the_table_in_the_documents_is_what_the_simulation_shows() {
    let table = example::table();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policies.md");
    let document = fs::read_to_string(&path).unwrap();
    assert!(
        document.contains(&table),
        "{} doesn't have this table; put it there if it is right:\n{table}",
        path.display()
    );
    let failing = example::failing();
    assert!(document.contains(&failing), "{} doesn't have this table either:\n{failing}", path.display());
    let failures = |setting: &str| row(&failing, setting)[0];
    let (none, hours) =
        (failures("`penalty_window` 0s"), failures("`penalty_window` 6h, `max_exclusion` 1h"));
    assert!(none > 4 * hours, "a member that has failed often is tried less often: {none} {hours}");

    let nothing = row(&table, "nothing");
    let margin = row(&table, "`margin` 130");
    assert!(nothing[0] > 1000, "without anything it goes to and fro: {nothing:?}");
    assert_eq!(margin[0], 0, "a margin above what the noise can make up: {margin:?}");
    assert_eq!(margin[2], 11, "and it still goes where it is better: {margin:?}");
}
