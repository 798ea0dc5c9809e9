use election_core::strategy::{Ground, MemberRecord, Round};

use serde::Deserialize;

use super::said_by;
use crate::{
    stage::{Comparison, Filter, Stage, Standing},
    words,
};

/// Soft classes by an attribute of the member: `prefer` goes before `neutral`, the default, and `avoid` comes last. As
/// a filter it refuses `never`.
/// Any other word counts as `avoid`: it has a meaning, and refusing mistyped members could leave none.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Class {
    attribute: String,
}

impl Default for Class {
    /// By the attribute `class`.
    fn default() -> Self {
        Self::by("class")
    }
}

impl Stage for Class {
    const NAME: &'static str = "class";
}

impl Class {
    /// The known words.
    pub const WORDS: [&'static str; 4] = ["prefer", "neutral", "avoid", "never"];

    /// By the attribute of this name.
    pub fn by(attribute: impl Into<String>) -> Self {
        Self { attribute: attribute.into() }
    }

    /// Its class, or another word.
    fn word<'a>(&self, candidate: &'a MemberRecord) -> &'a str {
        match candidate.attributes.get(&self.attribute).map(|text| text.trim()) {
            None | Some("") => "neutral",
            Some(word) => word,
        }
    }
}

impl Filter for Class {
    fn refuse(&self, candidate: &MemberRecord, _: &Round<'_>) -> Option<String> {
        (self.word(candidate) == "never").then(|| format!("its {} is never", self.attribute))
    }

    fn ground(&self, candidate: &MemberRecord) -> Ground {
        said_by(candidate, &self.attribute)
    }
}

impl Comparison for Class {
    fn grade(&self, candidate: &MemberRecord, _: &Round<'_>) -> i64 {
        match self.word(candidate) {
            "prefer" => 0,
            "neutral" => 1,
            "never" => 3,
            _ => 2,
        }
    }

    fn reason(&self, candidate: &MemberRecord, _: Standing, _: &Round<'_>) -> String {
        let (attribute, word) = (&self.attribute, self.word(candidate));
        if Self::WORDS.contains(&word) {
            return format!("{attribute} is {word}");
        }
        // One phrase among others that are joined by commas.
        let text = words::quote(word).replace(',', "");
        format!("{attribute} is {text:?} which is not a class and counts as avoid")
    }

    fn speaks_when_tied(&self, candidate: &MemberRecord, _: &Round<'_>) -> bool {
        !matches!(self.word(candidate), "prefer" | "neutral" | "never")
    }
}

#[cfg(test)]
mod tests {
    use election_core::strategy::Strategy as _;

    use super::*;
    use crate::{
        Pipeline,
        testing::{View, member, order, with_attributes},
    };

    fn of(id: &str, sequence: u32, class: &str) -> MemberRecord {
        with_attributes(id, "east", sequence, [("class", class)])
    }

    #[test]
    fn prefer_then_neutral_then_avoid_and_who_says_nothing_is_neutral() {
        let view = View::of([
            of("a", 1, "avoid"),
            of("b", 2, "neutral"),
            of("c", 3, " prefer "),
            member("d", "east", 4),
            of("e", 5, "nevr, ever"),
        ]);
        assert_eq!(
            order(&Pipeline::new().compare(Class::default()), &view),
            [
                "c: class is prefer",
                "b: class is neutral; first by member id",
                "d: class is neutral; second by member id",
                "a: class is avoid; first by member id",
                "e: class is \"nevr ever\" which is not a class and counts as avoid; second by member id",
            ]
        );
    }

    #[test]
    fn only_never_is_put_out() {
        let refuse = |member: &MemberRecord| Class::default().refuse(member, &View::default().round());
        assert_eq!(refuse(&of("a", 1, "never")).as_deref(), Some("its class is never"));
        for word in ["prefer", "neutral", "avoid", "nevr", ""] {
            assert_eq!(refuse(&of("a", 1, word)), None, "{word}");
        }
        assert_eq!(refuse(&member("a", "east", 1)), None);
    }

    #[test]
    fn a_word_that_is_measured_is_no_order() {
        let mut member = of("a", 1, "never");
        let class = Pipeline::new().filter(Class::default());
        let ground = |member: &MemberRecord| {
            class.rank(&View::of([member.clone()]).round()).refused.first().map(|refused| refused.ground)
        };
        assert_eq!(ground(&member), Some(Ground::Order));
        member.measured.insert("lag".to_owned());
        assert_eq!(ground(&member), Some(Ground::Order));
        member.measured.insert("class".to_owned());
        assert_eq!(ground(&member), Some(Ground::State));
    }

    #[test]
    fn it_goes_by_the_attribute_that_it_is_told() {
        let named = with_attributes("a", "east", 1, [("class", "never"), ("role", "neutral")]);
        assert_eq!(Class::by("role").refuse(&named, &View::default().round()), None);
    }

    #[test]
    fn where_all_are_alike_only_what_is_worse_is_said() {
        let class = Pipeline::new().compare(Class::default());
        assert_eq!(order(&class, &View::of([of("a", 1, "prefer")])), ["a: the only candidate"]);
        assert_eq!(
            order(&class, &View::of([of("a", 1, "avoid")])),
            ["a: the only candidate; class is avoid"]
        );
    }
}
