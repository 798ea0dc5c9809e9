//! The last output of a job: of its program, of all its processes together, or of one of its programs.

use std::io;

use job_guard::{Followed, KeptLine, KeptOutput};

use super::{shown_line::ShownLine, standby::standby_name};
use crate::config::{program_name, split_name};

/// Whose output is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WhoseOutput {
    /// The leader's, of all its processes.
    Leader,
    /// That of one process of the leader.
    Process(String),
    /// The standby's.
    Standby,
}

impl WhoseOutput {
    /// By what a user has asked for.
    pub(crate) fn of(standby: bool, process: Option<&str>) -> Self {
        match process {
            Some(process) => Self::Process(process.to_owned()),
            None if standby => Self::Standby,
            None => Self::Leader,
        }
    }

    /// The names of the programs.
    fn programs(&self, kept: &KeptOutput, job: &str) -> io::Result<Vec<String>> {
        match self {
            Self::Standby => Ok(vec![standby_name(job)]),
            Self::Process(process) => Ok(vec![program_name(job, process)]),
            Self::Leader => {
                let mut all = kept.names_with(&program_name(job, ""))?;
                all.push(job.to_owned());
                Ok(all)
            }
        }
    }

    /// The last `count` lines of a job, oldest first; `None` if there are none.
    ///
    /// # Errors
    /// If the files can't be read, with the path.
    pub(crate) fn last(
        &self,
        kept: &KeptOutput,
        job: &str,
        count: usize,
    ) -> io::Result<Option<Vec<ShownLine>>> {
        let mut found = None;
        for program in self.programs(kept, job)? {
            if let Some(lines) = kept.last(&program, count)? {
                found.get_or_insert_with(Vec::new).push((program, lines));
            }
        }
        let lines = found.map(merged);
        Ok(lines.map(|mut lines| lines.split_off(lines.len().saturating_sub(count))))
    }

    /// The same, to be followed.
    ///
    /// # Errors
    /// If the files can't be read, with the path.
    pub(crate) fn follow(&self, kept: &KeptOutput, job: &str) -> io::Result<FollowedPrograms> {
        let programs = self.programs(kept, job)?.into_iter();
        let each = programs.map(|program| Ok((kept.follow(&program)?, program)));
        Ok(FollowedPrograms(each.collect::<io::Result<_>>()?))
    }
}

/// Reads what is kept of several programs, and what is added then.
pub(crate) struct FollowedPrograms(Vec<(Followed, String)>);

impl FollowedPrograms {
    /// The lines that were not returned before.
    ///
    /// # Errors
    /// If the files can't be read, with the path.
    pub(crate) fn more(&mut self) -> io::Result<Vec<ShownLine>> {
        let more = self.0.iter_mut().map(|(followed, program)| Ok((program.clone(), followed.more()?)));
        Ok(merged(more.collect::<io::Result<_>>()?))
    }
}

/// The lines of several programs in the order of their times.
fn merged(of_programs: Vec<(String, Vec<KeptLine>)>) -> Vec<ShownLine> {
    let mut all: Vec<(String, KeptLine)> = of_programs
        .into_iter()
        .flat_map(|(program, lines)| lines.into_iter().map(move |line| (program.clone(), line)))
        .collect();
    all.sort_by_key(|(_, line)| line.at_ms);
    all.into_iter().map(|(program, line)| ShownLine::of(split_name(&program).1, line)).collect()
}
