//! Commands that run at certain points of a leadership.

use std::{fmt, time::Duration};

use super::{
    parse::{HOUR, MILLISECOND, SECOND, choice},
    reader::Section,
    table::{Maybe, Rule, optional_nested, required, table, value},
};

table! {
    /// A command that runs at a certain point of a leadership; environment and directory as for the job.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Hook {
        /// The program and its arguments.
        pub command: Vec<String> = Vec::new() => required("the program to run and its arguments");
        /// After which it is killed with everything it started, and counts as failed.
        pub timeout: Duration = 10 * SECOND => value().within(MILLISECOND..=HOUR);
        /// "sync": the worker waits for it; "async": it delays nothing.
        pub mode: HookMode = HookMode::Sync => value();
    }
}

choice! {
    /// Whether the worker waits for a hook.
    pub enum HookMode {
        /// It waits, and the hook may have a say in what follows.
        Sync = "sync",
        /// The hook runs beside everything else, and can neither delay nor refuse anything.
        Async = "async",
    }
}

table! {
    /// The hooks of a job.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Hooks {
        /// Runs while the old leader may still be stopping; must change nothing outside this node.
        pub prepare: Option<Hook> = None => hook(HookName::Prepare).example(
            "{ command = [\"/usr/bin/fetch-data\"], timeout = \"10s\", mode = \"sync\" }"
        );
        /// Runs when this member leads, before the job is started.
        pub before_takeover: Option<Hook> = None => hook(HookName::BeforeTakeover).example(
            "{ command = [\"/usr/bin/mount-data\"], timeout = \"10s\", mode = \"sync\" }"
        );
        /// Runs when the job is ready.
        pub after_ready: Option<Hook> = None => hook(HookName::AfterReady).example(
            "{ command = [\"/usr/bin/move-address\"], timeout = \"10s\", mode = \"async\" }"
        );
        /// Runs before the job is stopped.
        pub before_stop: Option<Hook> = None => hook(HookName::BeforeStop).example(
            "{ command = [\"/usr/bin/drain-clients\"], timeout = \"10s\", mode = \"sync\" }"
        );
        /// Runs when no process of the job is left.
        pub after_stop: Option<Hook> = None => hook(HookName::AfterStop).example(
            "{ command = [\"/usr/bin/umount-data\"], timeout = \"10s\", mode = \"sync\" }"
        );
        /// Runs on every member when the leader changes.
        pub on_leader_changed: Option<Hook> = None => hook(HookName::OnLeaderChanged).example(
            "{ command = [\"/usr/bin/tell-dns\"], timeout = \"10s\", mode = \"async\" }"
        );
    }
    check Hooks::check;
}

fn hook(name: HookName) -> Rule<Maybe<Hook>> {
    optional_nested(Hook { mode: name.mode(), ..Hook::default() })
}

choice! {
    /// The name of a hook.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum HookName {
        /// [`Hooks::prepare`]
        Prepare = "prepare",
        /// [`Hooks::before_takeover`]
        BeforeTakeover = "before_takeover",
        /// [`Hooks::after_ready`]
        AfterReady = "after_ready",
        /// [`Hooks::before_stop`]
        BeforeStop = "before_stop",
        /// [`Hooks::after_stop`]
        AfterStop = "after_stop",
        /// [`Hooks::on_leader_changed`]
        OnLeaderChanged = "on_leader_changed",
    }
}

impl HookName {
    /// All of them, in the order of a leadership.
    pub const ALL: [HookName; 6] = [
        HookName::Prepare,
        HookName::BeforeTakeover,
        HookName::AfterReady,
        HookName::BeforeStop,
        HookName::AfterStop,
        HookName::OnLeaderChanged,
    ];

    /// Whether it can refuse what would follow.
    pub fn can_refuse(self) -> bool {
        matches!(self, HookName::Prepare | HookName::BeforeTakeover)
    }

    /// Whether each run reports something newer than the last one, so that it does not wait for the end of that.
    pub fn reports_news(self) -> bool {
        matches!(self, HookName::OnLeaderChanged)
    }

    /// The mode by default.
    fn mode(self) -> HookMode {
        match self {
            HookName::AfterReady | HookName::OnLeaderChanged => HookMode::Async,
            _ => HookMode::Sync,
        }
    }

    /// Why it can have no other mode than its default; `None` if it can.
    fn why_only_one_mode(self) -> Option<&'static str> {
        match self {
            HookName::Prepare | HookName::BeforeTakeover => {
                Some("the takeover waits for it and needs its result")
            }
            HookName::AfterReady => Some("the job is ready before it runs, so nothing waits for it"),
            HookName::OnLeaderChanged => Some("it runs on members that do not lead, so nothing waits for it"),
            HookName::BeforeStop | HookName::AfterStop => None,
        }
    }
}

impl fmt::Display for HookName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Hooks {
    /// The hook of that name, if one is configured.
    pub fn get(&self, name: HookName) -> Option<&Hook> {
        match name {
            HookName::Prepare => &self.prepare,
            HookName::BeforeTakeover => &self.before_takeover,
            HookName::AfterReady => &self.after_ready,
            HookName::BeforeStop => &self.before_stop,
            HookName::AfterStop => &self.after_stop,
            HookName::OnLeaderChanged => &self.on_leader_changed,
        }
        .as_ref()
    }

    fn check(&mut self, section: &mut Section<'_>) {
        for name in HookName::ALL {
            let (Some(mode), usual) = (self.get(name).map(|hook| hook.mode), name.mode()) else { continue };
            if let Some(why) = name.why_only_one_mode().filter(|_| mode != usual) {
                let (mode, usual) = (mode.as_str(), usual.as_str());
                let message = format!("{mode:?} is not possible for {name}: {why}; {usual:?} is valid");
                section.again(name.as_str(), |section| section.problem("mode", message));
            }
        }
    }
}
