//! A whole strategy as the last step of a pipeline, instead of the member id.

use std::{collections::BTreeMap, sync::Arc};

use election_core::strategy::{Ballot, Compared, MemberRecord, Ranked, Ranking, Refused, Round, Strategy};

use crate::words;

/// A strategy that orders the candidates that the stages before it found equal.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    pub(crate) name: &'static str,
    pub(crate) strategy: Arc<dyn Strategy>,
}

/// Its answer, with each candidate in one of both parts, whatever it answered.
#[derive(Default)]
pub(crate) struct Answer {
    order: BTreeMap<Ballot, (usize, Ranked)>,
    /// Whether it reports for any candidate the comparisons behind its reasons.
    compares: bool,
    pub(crate) refused: Vec<Refused>,
    pub(crate) worth_waiting: Option<String>,
}

impl Whole {
    /// Asks it about the candidates that passed every filter, as if there were no others.
    pub(crate) fn ask(&self, electable: &[&MemberRecord], round: &Round<'_>) -> Answer {
        let candidates: Vec<_> = electable.iter().copied().cloned().collect();
        let passed = |ballot: &&Ballot| candidates.iter().any(|candidate| candidate.ballot == **ballot);
        let incumbent = round.incumbent.filter(passed);
        let round =
            round.clone().with(|round| (round.candidates, round.incumbent) = (&candidates, incumbent));
        let Ranking { order, refused, worth_waiting, .. } = self.strategy.rank(&round);
        let compares = order.iter().any(|ranked| !ranked.compared.is_empty());
        let mut answer = Answer { compares, worth_waiting, ..Answer::default() };
        for candidate in &candidates {
            let is_of = |ballot: &Ballot| *ballot == candidate.ballot;
            if let Some(refused) = refused.iter().find(|refused| is_of(&refused.named.ballot)) {
                let mut refused = refused.clone();
                refused.named = candidate.named();
                answer.refused.push(refused);
            } else if let Some(at) = order.iter().position(|ranked| is_of(&ranked.named.ballot)) {
                answer.order.insert(candidate.ballot.clone(), (at, order[at].clone()));
            } else {
                let reason = "the strategy does not rank it";
                answer.refused.push(Refused::new(candidate.named(), self.name, reason));
            }
        }
        answer
    }
}

impl Answer {
    /// The number of a candidate in the order, counted from 0; `None` if it is refused.
    pub(crate) fn rank_of(&self, candidate: &MemberRecord) -> Option<usize> {
        self.order.get(&candidate.ballot).map(|(rank, _)| *rank)
    }

    /// The reasons of a candidate's rank, and the comparisons behind them. `before` is the number of reasons that it
    /// has already, `number` that of comparisons.
    pub(crate) fn reasons(
        &self,
        by: &Whole,
        candidate: &MemberRecord,
        before: usize,
        number: usize,
    ) -> (Vec<String>, Vec<Compared>) {
        let Some((rank, ranked)) = self.order.get(&candidate.ballot) else { return Default::default() };
        let mut reasons = ranked.reasons.clone();
        if reasons.is_empty() {
            reasons.push(format!("{} by {}", words::ordinal(*rank), by.name));
        }
        let own = ranked.compared.iter();
        let mut compared: Vec<_> =
            own.map(|of| Compared::new(of.stage, number + of.number, of.grade, before + of.reason)).collect();
        if !self.compares {
            let grade = i64::try_from(*rank).unwrap_or(i64::MAX);
            compared.push(Compared::new(by.name, number, grade, before));
        }
        (reasons, compared)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use election_core::strategy::Cause;

    use super::*;
    use crate::{
        Pipeline,
        stages::{Incumbent, Limit, SameSite},
        testing::{View, member, order, refused, sites, unhealthy, with_attributes, with_priority},
    };

    /// Orders by the ids backwards, refuses one id, forgets another, and names a member that is not there.
    #[derive(Debug)]
    struct Backwards;

    impl Strategy for Backwards {
        fn rank(&self, round: &Round<'_>) -> Ranking {
            let mut all: Vec<_> =
                round.candidates.iter().filter(|c| c.member.as_str() != "forgotten").collect();
            all.sort_by(|a, b| b.member.cmp(&a.member));
            let (out, fit): (Vec<_>, Vec<_>) = all.into_iter().partition(|c| c.member.as_str() == "refused");
            let refuse = |c: &MemberRecord| Refused::new(c.named(), "taste", "not this one");
            let stranger = member("stranger", "east", 99).named();
            let mut order = vec![Ranked::new(stranger, Vec::new())];
            order.extend(fit.into_iter().flat_map(|c| {
                let leads = round.incumbent == Some(&c.ballot);
                let reasons = if leads { vec!["leads".to_owned()] } else { Vec::new() };
                let ranked = Ranked::new(c.named(), reasons);
                [ranked.clone(), ranked]
            }));
            Ranking::new(order, out.into_iter().map(refuse).collect())
                .with_worth_waiting(Some("another one".to_owned()))
        }

        fn remark(&self, _: &BTreeMap<String, String>, _: Cause) -> Option<String> {
            Some("backwards".to_owned())
        }
    }

    fn backwards(pipeline: Pipeline) -> Pipeline {
        pipeline.ranked_by("backwards", Arc::new(Backwards))
    }

    #[test]
    fn whom_a_mandatory_filter_puts_out_the_strategy_never_sees() {
        let strategy = backwards(Pipeline::new());
        let mut view = View::of([
            member("a", "east", 1),
            unhealthy("b", "east", 2, "no disk"),
            with_priority("c", "east", 3, 0),
            member("d", "west", 4),
        ]);
        view.control.drained = sites(["west"]);
        assert_eq!(order(&strategy, &view), ["a: the only candidate; second by backwards"]);
        assert_eq!(
            refused(&strategy, &view),
            [
                "b (healthy): unhealthy: no disk",
                "c (priority): priority 0: never leads unless an operator names it",
                "d (site-open): site west is drained"
            ]
        );
        // Nor is a leader that is out named to it as the incumbent.
        let view = view.led_by("d");
        assert!(!order(&strategy, &view).concat().contains("leads"));
    }

    #[test]
    fn each_candidate_is_in_the_order_or_refused_once_whatever_the_strategy_answers() {
        let strategy = backwards(Pipeline::new());
        let ids = ["a", "forgotten", "b", "refused"];
        let view = View::of(ids.iter().zip(1..).map(|(id, number)| member(id, "east", number)));
        assert_eq!(order(&strategy, &view), ["b: second by backwards", "a: fourth by backwards"]);
        assert_eq!(
            refused(&strategy, &view),
            ["forgotten (backwards): the strategy does not rank it", "refused (taste): not this one"]
        );
        let ranking = strategy.rank(&view.round());
        let decider = ranking.order[0].ahead_of(&ranking.order[1]).unwrap();
        assert_eq!((decider.stage, decider.first), ("backwards", "second by backwards"));
        assert_eq!(ranking.worth_waiting.as_deref(), Some("another one"));
        assert_eq!(strategy.remark(&BTreeMap::new(), Cause::LeaderLost).as_deref(), Some("backwards"));
        let alone = View::of([member("refused", "east", 1)]);
        assert_eq!(strategy.rank(&alone.round()).worth_waiting, None, "no candidate can lead");
    }

    #[test]
    fn comparisons_before_it_go_first_and_a_loss_goes_last() {
        let strategy = backwards(Pipeline::new().filter(Limit::new("lag", 10.0)).compare(SameSite));
        let lags = |id, site, number, lag| with_attributes(id, site, number, [("lag", lag)]);
        let members = [
            lags("a", "east", 1, "0"),
            lags("b", "west", 2, "0"),
            lags("c", "east", 3, "11"),
            lags("d", "east", 4, "1"),
        ];
        let mut view = View::of(members).after_loss_of("a");
        view.accepts_loss = true;
        let first = |line: &String| line.split(':').next().unwrap_or_default().to_owned();
        let who: Vec<_> = order(&strategy, &view).iter().map(first).collect();
        assert_eq!(who, ["d", "b", "c"]);
        view.accepts_loss = false;
        assert_eq!(refused(&strategy, &view), ["c (limit): lag is 11 and the limit is 10"]);
        let ranking = strategy.rank(&view.round());
        let decider = ranking.order[0].ahead_of(&ranking.order[1]).unwrap();
        assert_eq!(decider.stage, "same-site");
    }

    #[test]
    fn comparisons_of_its_own_are_told_apart_from_those_before() {
        let inner: Arc<dyn Strategy> = Arc::new(Pipeline::bare().compare(Incumbent));
        let strategy = Pipeline::new().compare(SameSite).ranked_by("inner", inner);
        let view = View::of([member("a", "east", 1), member("b", "east", 2), member("c", "west", 3)])
            .led_by("b")
            .because(Cause::BetterCandidate);
        let ranking = strategy.rank(&view.round());
        let ids: Vec<_> = ranking.order.iter().map(|ranked| ranked.named.member.as_str()).collect();
        assert_eq!(ids, ["b", "a", "c"]);
        assert_eq!(ranking.order[0].ahead_of(&ranking.order[1]).unwrap().stage, "incumbent");
        assert_eq!(ranking.order[1].ahead_of(&ranking.order[2]).unwrap().stage, "same-site");
    }
}
