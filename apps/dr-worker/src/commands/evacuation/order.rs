//! In which order jobs move: what others depend on moves first. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// The jobs that each job follows, of those that move.
pub(crate) type Follows = BTreeMap<String, BTreeSet<String>>;

/// What each of these jobs follows among the others. A job that depends on one that does not move follows what that one
/// follows.
///
/// # Errors
/// The jobs that follow one another in a circle.
pub(crate) fn follows(moving: &BTreeSet<String>, after: &Follows) -> Result<Follows, Vec<String>> {
    let mut found = Follows::new();
    for job in moving {
        let (mut seen, mut next) = (BTreeSet::new(), vec![job]);
        let mut direct = BTreeSet::new();
        while let Some(at) = next.pop() {
            for other in after.get(at).into_iter().flatten() {
                if moving.contains(other) {
                    direct.insert(other.clone());
                } else if seen.insert(other) {
                    next.push(other);
                }
            }
        }
        found.insert(job.clone(), direct);
    }
    layers(&found)?;
    Ok(found)
}

/// The layers: each job is in the first one after all that it follows.
///
/// # Errors
/// The jobs that follow one another in a circle.
pub(crate) fn layers(follows: &Follows) -> Result<Vec<Vec<String>>, Vec<String>> {
    let mut left: BTreeMap<_, _> = follows.iter().collect();
    let (mut layers, mut placed) = (Vec::new(), BTreeSet::new());
    while !left.is_empty() {
        let is_free = |after: &BTreeSet<String>| after.iter().all(|other| placed.contains(other));
        let layer: Vec<String> =
            left.iter().filter(|(_, after)| is_free(after)).map(|(job, _)| (*job).clone()).collect();
        if layer.is_empty() {
            return Err(left.into_keys().cloned().collect());
        }
        left.retain(|job, _| !layer.contains(job));
        placed.extend(layer.iter().cloned());
        layers.push(layer);
    }
    Ok(layers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &[&str])]) -> Follows {
        let set = |jobs: &[&str]| jobs.iter().map(|job| (*job).to_owned()).collect();
        edges.iter().map(|(job, after)| ((*job).to_owned(), set(after))).collect()
    }

    fn layered(edges: &[(&str, &[&str])], moving: &[&str]) -> Result<Vec<Vec<String>>, Vec<String>> {
        let moving = moving.iter().map(|job| (*job).to_owned()).collect();
        layers(&follows(&moving, &graph(edges))?)
    }

    #[test]
    fn what_others_depend_on_moves_first() {
        let edges: &[(&str, &[&str])] = &[("proxy", &["app", "auth"]), ("app", &["db"]), ("auth", &["db"])];
        let all = layered(edges, &["proxy", "app", "auth", "db"]).unwrap();
        assert_eq!(all, [vec!["db"], vec!["app", "auth"], vec!["proxy"]]);
        assert_eq!(
            layered(edges, &["proxy", "db"]).unwrap(),
            [["db"], ["proxy"]],
            "across what does not move"
        );
        assert_eq!(layered(&[], &["a", "b"]).unwrap(), [["a", "b"]]);
    }

    #[test]
    fn a_circle_is_named() {
        let edges: &[(&str, &[&str])] =
            &[("a", &["b"]), ("b", &["c"]), ("c", &["a"]), ("d", &["a"]), ("e", &[])];
        assert_eq!(layered(edges, &["a", "b", "c", "d", "e"]).unwrap_err(), ["a", "b", "c", "d"]);
        assert_eq!(layered(edges, &["a", "c"]).unwrap_err(), ["a", "c"]);
    }
}
