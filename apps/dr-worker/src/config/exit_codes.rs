//! `exit_codes` of a job and of its processes.

use job_guard::ExitCodes;

use super::{
    key::Reach,
    reader::Section,
    table::{table, value},
};

table! {
    #[derive(Clone)]
    pub(super) struct ExitKeys {
        /// It is not restarted, and the member leads on without it.
        stay_down: Vec<u32> = Vec::new() => value().overlay(Reach::StayDown).check(|codes: &Vec<u32>| no_exit_code(codes));
        /// It can't run on this node: the member gives up leadership, and is excluded for policy.exclusion.
        not_here: Vec<u32> = Vec::new() => value().check(|codes: &Vec<u32>| no_exit_code(codes));
    }
    check ExitKeys::check;
}

fn no_exit_code(codes: &[u32]) -> Option<String> {
    let code = codes.iter().find(|code| **code > 255)?;
    Some(format!("{code} is not an exit code; 0 to 255 is valid"))
}

impl ExitKeys {
    fn check(&mut self, section: &mut Section<'_>) {
        if let Some(code) = self.not_here.iter().find(|code| self.stay_down.contains(code)) {
            section.problem("not_here", format!("{code} is in stay_down too; it can mean only one of them"));
        }
    }
}

impl From<ExitKeys> for Option<ExitCodes> {
    fn from(keys: ExitKeys) -> Self {
        Some(keys.into())
    }
}

impl From<ExitKeys> for ExitCodes {
    fn from(ExitKeys { stay_down, not_here }: ExitKeys) -> Self {
        let [stay_down, not_here] =
            [stay_down, not_here].map(|codes| codes.into_iter().map(u32::cast_signed).collect());
        Self { stay_down, not_here }
    }
}
