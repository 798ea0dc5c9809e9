//! Which of a job's processes run: the order of their starts and stops, what follows the end of one, and how long each stop may
//! take. Pure: what the processes are doing goes in, the next step comes out.
//!
//! ```text
//!   start    1 ─ready─▶ 2 ─ready─▶ 3 ─ready─▶ the job is ready
//!   stop     3 ─gone─▶ 2 ─gone─▶ 1 ─gone─▶ the job is gone
//!   an end   stops the processes that its rule names, in that order, and starts them after a pause
//! ```

use std::time::Duration;

use crate::config::OnExit;

/// What a process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// No process of it exists.
    Nothing,
    /// It is not ready yet.
    Starting,
    /// It is ready, or has done its work.
    Serving,
    /// It was asked to end.
    Stopping,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineupStep {
    /// Nothing, until something changes.
    Wait,
    /// Nothing before the lineup [resumes](Lineup::resume): what is not to run has ended.
    Pause,
    /// Start this process.
    Start(usize),
    /// Stop this process.
    Stop(usize),
}

/// The processes of a job, in the order of their start.
#[derive(Debug)]
pub(super) struct Lineup {
    rules: Vec<OnExit>,
    /// Which of them are to run.
    wanted: Vec<bool>,
    is_over: bool,
}

impl Lineup {
    pub(super) fn new(rules: Vec<OnExit>) -> Self {
        let wanted = vec![true; rules.len()];
        Self { rules, wanted, is_over: false }
    }

    /// The rules from now on.
    pub(super) fn set_rules(&mut self, rules: Vec<OnExit>) {
        self.rules = rules;
    }

    /// Whether this process is to run.
    pub(super) fn wants(&self, at: usize) -> bool {
        self.wanted.get(at).is_some_and(|wanted| *wanted)
    }

    /// Whether all of them are to run.
    pub(super) fn wants_all(&self) -> bool {
        self.wanted.iter().all(|wanted| *wanted)
    }

    /// A process that was to run has ended. Those that its rule names are not to run until [`resume`](Self::resume).
    pub(super) fn ended(&mut self, at: usize) {
        let rule = self.rules.get(at).copied().unwrap_or_default();
        for (other, wanted) in self.wanted.iter_mut().enumerate() {
            *wanted &= match rule {
                OnExit::RestartOne => other != at,
                OnExit::RestartRest => other < at,
                OnExit::RestartAll => false,
            };
        }
    }

    /// All are to run, unless the job is over.
    pub(super) fn resume(&mut self) {
        let is_over = self.is_over;
        self.wanted.fill(!is_over);
    }

    /// None is to run any more.
    pub(super) fn end(&mut self) {
        self.is_over = true;
        self.resume();
    }

    /// The next step. What is not to run ends first, the last one first. Then each is started once all before it serve.
    pub(super) fn step(&self, doing: &[Doing]) -> LineupStep {
        let all = || self.wanted.iter().copied().zip(doing.iter().copied()).enumerate();
        match all().rfind(|(_, (wanted, doing))| !wanted && *doing != Doing::Nothing) {
            Some((_, (_, Doing::Stopping))) => return LineupStep::Wait,
            Some((at, _)) => return LineupStep::Stop(at),
            None => {}
        }
        match all().find(|(_, serving)| *serving != (true, Doing::Serving)) {
            Some((at, (true, Doing::Nothing))) => LineupStep::Start(at),
            Some((_, (false, _))) => LineupStep::Pause,
            _ => LineupStep::Wait,
        }
    }
}

/// How long a stop may take of a process that needs `own`, where `left` is left for it and for those that are stopped `later`:
/// all that they do not need. If that is less than it needs, each gets less in proportion.
pub(super) fn share(own: Duration, later: Duration, left: Duration) -> Duration {
    let spare = left.saturating_sub(later);
    if spare >= own { spare } else { left.mul_f64(own.div_duration_f64(own.saturating_add(later))) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use Doing::{Nothing, Serving, Starting, Stopping};

    fn lineup(rule: OnExit) -> Lineup {
        Lineup::new(vec![rule; 3])
    }

    #[test]
    fn each_is_started_once_the_one_before_serves() {
        let lineup = lineup(OnExit::RestartRest);
        for (doing, step) in [
            ([Nothing, Nothing, Nothing], LineupStep::Start(0)),
            ([Starting, Nothing, Nothing], LineupStep::Wait),
            ([Serving, Nothing, Nothing], LineupStep::Start(1)),
            ([Serving, Starting, Nothing], LineupStep::Wait),
            ([Serving, Serving, Nothing], LineupStep::Start(2)),
            ([Serving, Serving, Serving], LineupStep::Wait),
        ] {
            assert_eq!(lineup.step(&doing), step, "{doing:?}");
        }
    }

    #[test]
    fn an_end_stops_what_its_rule_names_and_all_are_started_again() {
        for (rule, steps) in
            [(OnExit::RestartOne, &[][..]), (OnExit::RestartRest, &[2]), (OnExit::RestartAll, &[2, 0])]
        {
            let (mut lineup, mut doing) = (lineup(rule), [Serving, Nothing, Serving]);
            lineup.ended(1);
            for &at in steps {
                assert_eq!(lineup.step(&doing), LineupStep::Stop(at), "{rule:?}");
                doing[at] = Stopping;
                assert_eq!(lineup.step(&doing), LineupStep::Wait, "{rule:?}");
                doing[at] = Nothing;
            }
            assert_eq!(lineup.step(&doing), LineupStep::Pause, "{rule:?}");
            lineup.resume();
            let first = doing.iter().position(|doing| *doing == Nothing).unwrap();
            assert_eq!(lineup.step(&doing), LineupStep::Start(first), "{rule:?}");
        }
    }

    #[test]
    fn a_process_is_not_started_before_one_that_waits_for_its_restart() {
        let mut lineup = lineup(OnExit::RestartOne);
        lineup.ended(0);
        assert_eq!(lineup.step(&[Nothing, Nothing, Nothing]), LineupStep::Pause);
        assert_eq!(lineup.step(&[Nothing, Serving, Nothing]), LineupStep::Pause);
    }

    #[test]
    fn the_end_of_a_job_is_final_and_in_reverse() {
        let mut lineup = lineup(OnExit::RestartOne);
        lineup.end();
        lineup.resume();
        assert_eq!(lineup.step(&[Serving, Starting, Nothing]), LineupStep::Stop(1));
        assert_eq!(lineup.step(&[Serving, Stopping, Nothing]), LineupStep::Wait);
        assert_eq!(lineup.step(&[Serving, Nothing, Nothing]), LineupStep::Stop(0));
        assert_eq!(lineup.step(&[Nothing; 3]), LineupStep::Pause);
    }

    #[test]
    fn a_stop_gets_what_the_later_ones_do_not_need() {
        let ms = Duration::from_millis;
        assert_eq!(share(ms(100), ms(300), ms(1_000)), ms(700));
        assert_eq!(share(ms(100), ms(300), ms(400)), ms(100));
        assert_eq!(share(ms(100), ms(300), ms(200)), ms(50), "in proportion");
        assert_eq!(share(ms(0), ms(0), ms(0)), ms(0));
        assert_eq!(share(ms(0), ms(300), ms(200)), ms(0));
        assert_eq!(share(Duration::MAX, Duration::MAX, ms(200)), ms(200));
    }

    proptest! {
        /// Stops one after the other never take longer together than what is left for all.
        #[test]
        fn the_stops_fit(needed in prop::collection::vec(0..5_000u64, 1..6), left in 0..20_000u64) {
            let mut needed: Vec<_> = needed.into_iter().map(Duration::from_millis).collect();
            let mut left = Duration::from_millis(left);
            while let Some(own) = needed.pop() {
                let given = share(own, needed.iter().sum(), left);
                prop_assert!(given <= left);
                left -= given;
            }
        }
    }
}
