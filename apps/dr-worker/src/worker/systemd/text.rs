//! The line that the service manager shows as the worker's status.

use election_core::{internals::text::stripped, status::Role};

/// The longest line, in bytes.
pub(super) const LONGEST: usize = 400;

/// In this order they are shown: the important ones first, because the line has an end.
const ROLES: [(Role, &str); 6] = [
    (Role::Leader, "leads"),
    (Role::TakingOver, "takes over"),
    (Role::SteppingDown, "hands over"),
    (Role::Excluded, "is excluded from"),
    (Role::Standby, "is standby for"),
    (Role::Joining, "joins"),
];

/// The role of each job, such as `leads orders (term 7); is standby for bills, mail and 3 more`.
pub(super) fn roles(jobs: &[(&str, Role, u64)]) -> String {
    let mut text = String::new();
    let present = ROLES.iter().filter(|(role, _)| jobs.iter().any(|(_, of, _)| of == role)).count();
    for (role, verb) in ROLES {
        let names: Vec<String> = jobs
            .iter()
            .filter(|(_, of, _)| *of == role)
            .map(|(name, _, term)| match role {
                Role::Leader => format!("{name} (term {term})"),
                _ => (*name).to_owned(),
            })
            .collect();
        if !names.is_empty() {
            let separator = if text.is_empty() { "" } else { "; " };
            let rest = (LONGEST / present.max(1)).saturating_sub(verb.len() + separator.len() + 1);
            text.push_str(&format!("{separator}{verb} {}", listed(&names, rest)));
        }
    }
    line(&text)
}

/// As many names as the length permits, and the number of the others.
fn listed(names: &[String], longest: usize) -> String {
    const MORE: usize = " and 100000 more".len();
    let mut text = String::new();
    for (index, name) in names.iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        let is_last = index + 1 == names.len();
        let room = if is_last { longest } else { longest.saturating_sub(MORE) };
        if text.len() + separator.len() + name.len() > room {
            let left = names.len() - index;
            let jobs = if left == 1 { "job" } else { "jobs" };
            return if index == 0 { format!("{left} {jobs}") } else { format!("{text} and {left} more") };
        }
        text.push_str(separator);
        text.push_str(name);
    }
    text
}

/// One line of a bounded length: the protocol ends a value with the line.
pub(super) fn line(text: &str) -> String {
    cut(text, LONGEST)
}

/// One line of at most `longest` bytes.
pub(super) fn cut(text: &str, longest: usize) -> String {
    let mut line = stripped(text).into_owned();
    if line.len() > longest {
        let end = (0..=longest.saturating_sub(3)).rev().find(|end| line.is_char_boundary(*end)).unwrap_or(0);
        line.truncate(end);
        line.push_str("...");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_is_shown_with_its_role() {
        let jobs = [
            ("bills", Role::Standby, 3),
            ("orders", Role::Leader, 7),
            ("mail", Role::Joining, 0),
            ("news", Role::Standby, 1),
        ];
        assert_eq!(roles(&jobs), "leads orders (term 7); is standby for bills, news; joins mail");
        assert_eq!(roles(&[]), "");
    }

    #[test]
    fn the_line_has_an_end_and_names_the_leaderships_first() {
        let names: Vec<String> = (0..1000).map(|number| format!("job-{number}")).collect();
        let all_roles = ROLES.map(|(role, _)| role);
        let of = |role: &dyn Fn(usize) -> Role| {
            let jobs: Vec<_> = names
                .iter()
                .enumerate()
                .map(|(index, name)| (name.as_str(), role(index), u64::MAX))
                .collect();
            roles(&jobs)
        };
        let mixed = of(&|index| all_roles[index % all_roles.len()]);
        assert!(mixed.len() <= LONGEST, "{}: {mixed}", mixed.len());
        assert!(mixed.starts_with("leads job-0 (term"), "{mixed}");
        let one = of(&|index| if index == 500 { Role::Leader } else { Role::Standby });
        assert!(
            one.starts_with(&format!("leads job-500 (term {}); is standby for job-0, ", u64::MAX)),
            "{one}"
        );
        assert!(one.ends_with(" more"), "{one}");
        let long = "x".repeat(LONGEST);
        assert_eq!(roles(&[(long.as_str(), Role::Standby, 1)]), "is standby for 1 job");
    }

    #[test]
    fn a_text_of_any_length_becomes_a_line() {
        assert_eq!(line("a\nb\tc"), "a b c");
        let long = line(&"ä".repeat(LONGEST));
        assert!(long.len() <= LONGEST && long.ends_with("ä..."), "{long}");
    }
}
