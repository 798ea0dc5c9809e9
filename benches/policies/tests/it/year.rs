//! A year in the world; the figures of the document are those of the program.

use std::{fs, path::Path};

use policy_world::{DAY, HOUR, incident::Incident, policy::Rules, world::World, year};

fn rules(settings: &[&str]) -> Rules {
    let settings = [r#"sites=["east", "west"]"#].iter().chain(settings);
    Rules::of(settings.map(ToString::to_string)).unwrap()
}

#[test]
fn a_year_has_no_two_leaders_and_can_be_repeated() {
    let (once, again) =
        (year::live(&rules(&[]), 7, false).unwrap(), year::live(&rules(&[]), 7, false).unwrap());
    assert_eq!(once, again);
    assert_eq!(once.doubles, 0);
    assert!(once.moves > 50, "a year in which hardly anything happened: {once:?}");
    assert!(once.vacant_ms < 6 * HOUR, "{once:?}");
}

/// The count of two leaders at once can be other than 0: `keep` discards such a year.
#[test]
fn a_leader_that_is_kept_acts_beside_the_next_one() {
    let doubles = |settings: &[&str]| {
        let mut world = World::new(rules(settings), &["east-1", "east-2", "west-1"], false).unwrap();
        for (at, what) in [(0, "start all"), (HOUR, "cut off east"), (2 * HOUR, "reconnect east")] {
            world.plan(at, Incident::read(what).unwrap());
        }
        world.run_until(DAY);
        world.account().sum().doubles
    };
    assert_eq!(doubles(&[]), 0);
    assert_eq!(doubles(&[r#"on_pause="keep""#]), 1);
}

/// All figures take minutes, so only those of the defaults are compared: most changes of the engine affect them. `cargo
/// run --release -p policy-world -- --write` writes all of them again.
#[test]
fn the_documents_have_the_tables_that_the_program_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/weeks.md");
    let document = fs::read_to_string(&path).unwrap();
    assert!(
        document.contains(&year::kinds()),
        "{} has other incidents than\n{}",
        path.display(),
        year::kinds()
    );
    let defaults = year::defaults().unwrap();
    assert!(document.contains(&defaults), "{} does not say\n{defaults}", path.display());
    for row in year::rows() {
        assert!(document.contains(&format!("\n| {row} | ")), "{} has no row {row}", path.display());
    }
}
