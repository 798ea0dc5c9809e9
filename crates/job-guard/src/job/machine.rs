//! The states of a job's process, and what follows an end. Pure: events and times go in, decisions come out, and the
//! supervisor carries them out.
//!
//! ```text
//!   stopped ──▶ starting ──▶ running ──▶ stopping ──┬──▶ stopped   on request
//!                 ▲   └───────────────────────▲     ├──▶ backoff   it ended; restarted after a pause
//!                 └────────── backoff ◀───────│─────┤
//!                                             │     ├──▶ exited    its exit code says that it stays down; the member leads on
//!                                     an end, or    └──▶ fatal     too many restarts, not on this node, or the lease ended
//!                                     a stop begins
//! ```

use boot_time::BootTime;

use super::{restart::RestartHistory, status::ProcessState};
use crate::{
    config::{ExitCodes, RestartPolicy},
    guard::protocol::Exit,
};

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The job is to be started now: for the first time, or because the pause is over.
    Start,
    /// It has run for long enough, or its readiness probe has passed.
    Ready,
    /// Its program has ended, or was asked to end.
    Ending,
    /// No process of it is left, or none was started.
    Gone(End),
    /// Its program is about to change its role: it is not ready until it is again, and is not restarted before that.
    RoleChanges,
    /// The job is to be stopped for good.
    Stop,
}

/// How a run of the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// How the program ended without having been asked to.
    pub(super) by_itself: Option<Exit>,
    /// Whether the lease has ended, or leaves no time to run and stop the job.
    pub(super) is_lease_over: bool,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Go on: the run is not over.
    Continue,
    /// Run the program.
    Run,
    /// Restart it at this time, unless it is stopped before.
    RestartAt(BootTime),
    /// Leave it down until it is stopped: it ended with this code.
    StayDown(i32),
    /// Nothing more: the run of the job is over.
    Finish(Finish),
}

/// Why the run of the job is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// It was stopped on request.
    Stopped,
    /// The lease ended.
    LeaseEnded,
    /// It ended more often than its restart policy allows.
    RestartsExhausted,
    /// It ended with this code, which says that it can't run on this node.
    NotHere(i32),
    /// It ended while it changed its role.
    RoleNotTaken,
}

#[derive(Debug)]
pub(super) struct Machine {
    policy: RestartPolicy,
    codes: ExitCodes,
    restarts: RestartHistory,
    state: ProcessState,
    /// The end of the pause.
    restart_at: Option<BootTime>,
    is_stop_requested: bool,
    is_changing_role: bool,
}

impl Machine {
    pub(super) fn new(policy: RestartPolicy, codes: ExitCodes) -> Self {
        Self {
            policy,
            codes,
            restarts: RestartHistory::default(),
            state: ProcessState::Stopped,
            restart_at: None,
            is_stop_requested: false,
            is_changing_role: false,
        }
    }

    /// The rules for ends from now on. The restarts so far count.
    pub(super) fn set_rules(&mut self, policy: RestartPolicy, codes: ExitCodes) {
        (self.policy, self.codes) = (policy, codes);
    }

    /// These restarts have been made before.
    pub(super) fn with_restarts(self, restarts: RestartHistory) -> Self {
        Self { restarts, ..self }
    }

    /// The restarts, for the next program of this process.
    pub(super) fn restart_history(&self) -> RestartHistory {
        self.restarts.clone()
    }

    pub(super) fn state(&self) -> ProcessState {
        self.state
    }

    /// How often the job was restarted.
    pub(super) fn restarts(&self) -> u32 {
        self.restarts.total()
    }

    pub(super) fn on(&mut self, event: Event, now: BootTime) -> Decision {
        use ProcessState::{Backoff, Exited, Fatal, Running, Starting, Stopped, Stopping};
        match (event, self.state) {
            (Event::Start, Stopped | Backoff) if self.is_stop_requested => self.finish(Finish::Stopped),
            (Event::Start, Stopped | Backoff) => match self.restart_at.filter(|at| now < *at) {
                Some(at) => Decision::RestartAt(at),
                None => {
                    self.state = Starting;
                    Decision::Run
                }
            },
            (Event::Ready, Starting) if !self.is_stop_requested => {
                (self.state, self.is_changing_role) = (Running, false);
                Decision::Continue
            }
            (Event::RoleChanges, Starting | Running) if !self.is_stop_requested => {
                (self.state, self.is_changing_role) = (Starting, true);
                Decision::Continue
            }
            (Event::Ending, Starting | Running) => {
                self.state = Stopping;
                Decision::Continue
            }
            (Event::Gone(end), Starting | Running | Stopping) => self.gone(end, now),
            (Event::Stop, state) => {
                self.is_stop_requested |= state != Fatal;
                match state {
                    Stopped | Backoff | Exited => self.finish(Finish::Stopped),
                    Starting | Running => {
                        self.state = Stopping;
                        Decision::Continue
                    }
                    // A frozen job is starting or running here; the supervisor shows that it rests.
                    Stopping | Fatal | ProcessState::Frozen => Decision::Continue,
                }
            }
            // It comes late: the state has changed meanwhile.
            (Event::Start | Event::Ready | Event::RoleChanges | Event::Ending | Event::Gone(_), _) => {
                Decision::Continue
            }
        }
    }

    fn gone(&mut self, end: End, now: BootTime) -> Decision {
        if self.is_stop_requested {
            return self.finish(Finish::Stopped);
        }
        if end.is_lease_over {
            return self.finish(Finish::LeaseEnded);
        }
        if self.is_changing_role {
            return self.finish(Finish::RoleNotTaken);
        }
        if let Some(Exit::Code(code)) = end.by_itself {
            if self.codes.not_here.contains(&code) {
                return self.finish(Finish::NotHere(code));
            }
            if self.codes.stay_down.contains(&code) {
                self.state = ProcessState::Exited;
                return Decision::StayDown(code);
            }
        }
        match self.restarts.ended(&self.policy, now) {
            Some(at) => {
                (self.state, self.restart_at) = (ProcessState::Backoff, Some(at));
                Decision::RestartAt(at)
            }
            None => self.finish(Finish::RestartsExhausted),
        }
    }

    fn finish(&mut self, why: Finish) -> Decision {
        self.state = if why == Finish::Stopped { ProcessState::Stopped } else { ProcessState::Fatal };
        Decision::Finish(why)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> BootTime {
        BootTime::from_duration(Duration::from_millis(ms))
    }

    fn machine(max: u32) -> Machine {
        let policy = RestartPolicy {
            max,
            within: Duration::from_secs(60),
            backoff: Duration::from_millis(200),
            backoff_max: Duration::from_millis(500),
        };
        Machine::new(policy, ExitCodes { stay_down: vec![0, 3], not_here: vec![4] })
    }

    fn ended(code: i32) -> Event {
        Event::Gone(End { by_itself: Some(Exit::Code(code)), is_lease_over: false })
    }

    const KILLED: Event = Event::Gone(End { by_itself: None, is_lease_over: false });

    /// Plays events one after the other, and returns the states and the last decision.
    fn play(machine: &mut Machine, events: &[(u64, Event)]) -> (Vec<&'static str>, Decision) {
        let mut last = Decision::Continue;
        let mut state = |(ms, event): &(u64, Event)| {
            last = machine.on(*event, at(*ms));
            machine.state().as_str()
        };
        (events.iter().map(&mut state).collect(), last)
    }

    #[test]
    fn a_job_that_ends_is_restarted_after_a_pause_until_it_has_ended_too_often() {
        let mut machine = machine(1);
        let (states, last) = play(
            &mut machine,
            &[
                (0, Event::Start),
                (10, Event::Ready),
                (20, Event::Ending),
                (30, ended(1)),
                (100, Event::Start),
            ],
        );
        assert_eq!(states, ["starting", "running", "stopping", "backoff", "backoff"]);
        assert_eq!(last, Decision::RestartAt(at(230)), "the pause is not over");
        let (states, last) = play(&mut machine, &[(230, Event::Start), (240, ended(1))]);
        assert_eq!((states, machine.restarts()), (vec!["starting", "fatal"], 1));
        assert_eq!(last, Decision::Finish(Finish::RestartsExhausted));
    }

    #[test]
    fn exit_codes_decide_only_if_the_job_ended_by_itself() {
        for (event, state, decision) in [
            (ended(3), "exited", Decision::StayDown(3)),
            (ended(4), "fatal", Decision::Finish(Finish::NotHere(4))),
            (ended(5), "backoff", Decision::RestartAt(at(201))),
            (KILLED, "backoff", Decision::RestartAt(at(201))),
            (
                Event::Gone(End { by_itself: Some(Exit::Code(4)), is_lease_over: true }),
                "fatal",
                Decision::Finish(Finish::LeaseEnded),
            ),
        ] {
            let (states, last) = play(&mut machine(3), &[(0, Event::Start), (1, event)]);
            assert_eq!((states[1], last), (state, decision), "{event:?}");
        }
    }

    #[test]
    fn a_program_that_ends_while_it_changes_its_role_is_not_restarted() {
        let begun = [(0, Event::Start), (1, Event::Ready), (2, Event::RoleChanges)];
        let mut ended_in_between = machine(3);
        assert_eq!(play(&mut ended_in_between, &begun).0, ["starting", "running", "starting"]);
        let (states, last) = play(&mut ended_in_between, &[(3, ended(1))]);
        assert_eq!((states[0], last), ("fatal", Decision::Finish(Finish::RoleNotTaken)));
        let mut ended_after = machine(3);
        play(&mut ended_after, &begun);
        assert_eq!(play(&mut ended_after, &[(3, Event::Ready), (4, ended(1))]).0, ["running", "backoff"]);
    }

    #[test]
    fn a_stop_ends_every_state() {
        for (before, after) in [
            (&[][..], vec!["stopped"]),
            (&[(0, Event::Start)], vec!["stopping", "stopped"]),
            (&[(0, Event::Start), (1, Event::Ready)], vec!["stopping", "stopped"]),
            (&[(0, Event::Start), (1, Event::Ending)], vec!["stopping", "stopped"]),
            (&[(0, Event::Start), (1, ended(1))], vec!["stopped"]),
            (&[(0, Event::Start), (1, ended(3))], vec!["stopped"]),
        ] {
            let mut machine = machine(3);
            play(&mut machine, before);
            // The exit code does not matter then.
            let stop = [(2, Event::Stop), (3, ended(4))];
            let (states, _) = play(&mut machine, &stop[..after.len()]);
            assert_eq!(states, after, "after {before:?}");
            assert_eq!(play(&mut machine, &[(4, Event::Start)]).1, Decision::Finish(Finish::Stopped));
        }
    }

    fn any_event() -> impl Strategy<Value = Event> {
        let exit = prop_oneof![
            Just(None),
            (0..6).prop_map(|code| Some(Exit::Code(code))),
            Just(Some(Exit::Signal(9)))
        ];
        let end = (exit, prop::bool::weighted(0.05))
            .prop_map(|(by_itself, is_lease_over)| Event::Gone(End { by_itself, is_lease_over }));
        prop_oneof![
            4 => Just(Event::Start),
            2 => Just(Event::Ready),
            2 => Just(Event::Ending),
            1 => Just(Event::RoleChanges),
            4 => end,
            1 => Just(Event::Stop),
        ]
    }

    proptest! {
        /// In any order of events, also of late ones.
        #[test]
        fn no_job_runs_that_should_not(
            max in 0..4u32,
            events in prop::collection::vec((0..20_000u64, any_event()), 0..80),
        ) {
            let mut machine = machine(max);
            let (mut now, mut is_stopped, mut is_over, mut stays_down) = (0, false, false, false);
            let (mut earliest, mut restarts) = (at(0), Vec::new());
            for (pause, event) in events {
                now += pause;
                is_stopped |= event == Event::Stop;
                let before = machine.state();
                match machine.on(event, at(now)) {
                    Decision::Run => {
                        prop_assert!(!is_stopped && !is_over && !stays_down, "it was started");
                        prop_assert!(at(now) >= earliest, "the pause was not kept");
                    }
                    Decision::RestartAt(time) => {
                        earliest = time;
                        if matches!(event, Event::Gone(_)) {
                            restarts.push(now);
                        }
                    }
                    Decision::StayDown(code) => {
                        let exit = Some(Exit::Code(code));
                        let is_own = matches!(event, Event::Gone(end) if end.by_itself == exit);
                        prop_assert!(is_own && (code == 0 || code == 3), "{:?}", event);
                        stays_down = true;
                    }
                    Decision::Finish(why) => {
                        prop_assert_eq!(why == Finish::Stopped, is_stopped);
                        is_over = true;
                    }
                    Decision::Continue => {}
                }
                prop_assert!(before != ProcessState::Fatal || machine.state() == ProcessState::Fatal, "it is final");
                if machine.state() == ProcessState::Running {
                    prop_assert!(!is_stopped, "it counts as ready after its stop");
                }
            }
            for (index, restart) in restarts.iter().enumerate() {
                let recent = restarts[..=index].iter().filter(|other| restart - **other <= 60_000).count();
                prop_assert!(recent <= max as usize, "{} restarts within a minute: {:?}", recent, restarts);
            }
            prop_assert_eq!(machine.restarts() as usize, restarts.len());
        }
    }
}
