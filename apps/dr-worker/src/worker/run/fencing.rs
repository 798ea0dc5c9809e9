//! Fences the former leaders of a job that did not leave cleanly, before this member starts the job.
//!
//! A leader writes down that its job is about to start, and removes that when no process of it is left. A leader that
//! vanishes can't, so the next one finds it. The record is written only while the leader holds its leader znode. So the
//! next leader, which creates its own after that, reads all that former ones have written.

use std::{collections::BTreeSet, time::Duration};

use election_admin::{
    AdminError, Leading, Observer, change_breadcrumbs,
    record::{Breadcrumb, Breadcrumbs},
};
use election_core::{
    Leadership, Paths,
    config::{MemberId, SiteId},
    handler::Failure,
};
use job_guard::Deadline;
use metrics::counter;
use zk_session::{Incarnation, Session};

use crate::{
    config::{Fence, FenceFailure, job_key},
    typed::Typed,
    wall::unix_ms,
    worker::{job::JobEnv, state::JobSlot},
};

/// The delay before this member tries again to report that its job has ended.
const RETRY: Duration = Duration::from_secs(1);

/// How long the reasons of former leaders that are not fenced may be in the history, in bytes.
const REMARK: usize = 300;

/// How this member fences, and is recorded itself.
#[derive(Clone)]
pub(super) struct Fencing {
    pub(super) session: Session,
    pub(super) paths: Paths,
    pub(super) me: MemberId,
    pub(super) site: SiteId,
    pub(super) address: String,
    /// Whether the leader znode shows the leader's term.
    pub(super) has_elector: bool,
    pub(super) fence: Fence,
}

impl Fencing {
    /// Fences all former leaders of the slot that may still run the job, and records that the job is about to start here.
    /// Does only the latter if all of them have left cleanly, and nothing if the job has run in this leadership before.
    ///
    /// # Errors
    /// Who could not be fenced and why, unless the configuration takes that risk; or why the record can't be used.
    ///
    /// # Cancel safety
    /// A command in progress is killed. Who was fenced is not fenced again.
    pub(super) async fn clear(
        &self,
        slot: &JobSlot,
        leadership: &Leadership,
        env: &JobEnv,
    ) -> Result<(), Failure> {
        let session = self.session.active().await?;
        let appointment = leadership.appointment();
        let leading = Leading { member: &self.me, slot: appointment.slot, term: appointment.term };
        let leading = Some(leading).filter(|_| self.has_elector);
        let token = leadership.fencing_token();
        let mut at_risk = BTreeSet::new();
        loop {
            let left = self.look(&session, leading).await?;
            if left.leaderships.iter().any(|left| left.member == self.me && left.fencing_token == token) {
                return Ok(());
            }
            let is_next = |left: &&Breadcrumb| !at_risk.contains(&left.fencing_token);
            let Some(former) = left.to_fence(appointment.slot, &self.me).find(is_next).cloned() else {
                break;
            };
            match self.fence_one(&session, slot, leadership, env, &former).await {
                Ok(()) => {
                    let remove = |left: &mut Breadcrumbs| left.remove(&former.member, former.fencing_token);
                    change_breadcrumbs(&session, &self.paths, leading, |left, _| remove(left)).await?;
                }
                Err(why) if self.fence.on_failure == FenceFailure::Continue => {
                    let job = slot.name();
                    tracing::error!(
                        job,
                        "{why}; the job is started although it may still run there, because {}.fence.on_failure is \"continue\"",
                        job_key(job)
                    );
                    leadership.remark(shortened(&format!("started without a fence: {why}")));
                    at_risk.insert(former.fencing_token);
                }
                Err(why) => return Err(Failure::new(why)),
            }
        }
        let mine = Breadcrumb {
            member: self.me.clone(),
            ballot: None,
            site: self.site.clone(),
            address: Some(self.address.clone()),
            slot: appointment.slot,
            term: appointment.term,
            fencing_token: token,
            since_ms: unix_ms(),
        };
        change_breadcrumbs(&session, &self.paths, leading, |left, ballot| {
            left.enter(Breadcrumb { ballot: ballot.cloned(), ..mine.clone() });
        })
        .await?;
        Ok(())
    }

    /// Whether something else than the record of former leaders says that this is a member: the decision, a record of a member,
    /// the history, or what this member has seen.
    async fn is_known(
        &self,
        session: &Incarnation,
        member: &MemberId,
        env: &JobEnv,
    ) -> Result<bool, election_admin::ReadError> {
        if env.previous_leader.as_deref() == Some(member.as_str()) {
            return Ok(true);
        }
        let observer = Observer::new(session.clone());
        if observer.snapshot(&self.paths).await?.names(member) {
            return Ok(true);
        }
        let (history, _) = observer.history(&self.paths).await?;
        Ok(history.iter().any(|entry| entry.member == *member))
    }

    async fn look(
        &self,
        session: &Incarnation,
        leading: Option<Leading<'_>>,
    ) -> Result<Breadcrumbs, Failure> {
        match change_breadcrumbs(session, &self.paths, leading, |_, _| {}).await {
            Err(AdminError::Record(error)) => Err(Failure::new(format!(
                "can't read which former leaders to fence: {error}; `{}` replaces the record",
                Typed::verb("ack").job(self.paths.name()).arg("--fenced")
            ))),
            known => Ok(known?),
        }
    }

    /// Runs all commands against one former leader. The error is a sentence.
    async fn fence_one(
        &self,
        session: &Incarnation,
        slot: &JobSlot,
        leadership: &Leadership,
        env: &JobEnv,
        former: &Breadcrumb,
    ) -> Result<(), String> {
        let (job, member, term) = (slot.name(), &former.member, former.term);
        tracing::warn!(job, former = %member, former_term = term, "fencing a former leader that did not leave cleanly");
        let counted =
            |outcome| counter!("dr_fences_total", "job" => job.to_owned(), "outcome" => outcome).increment(1);
        let known = self.is_known(session, member, env).await;
        if !known.map_err(|error| format!("{member} is not fenced: {error}"))? {
            counted("failed");
            // Who can write this one record would choose what is switched off.
            return Err(format!(
                "{member} is not fenced: no other record of the election names it as a member; `{}` removes the record",
                Typed::verb("ack").job(job).arg("--fenced")
            ));
        }
        for command in &self.fence.commands {
            let spec = slot.spec();
            let variables = env.to_fence(&spec.env, &command.name, former);
            let by = Deadline::at(leadership.work_until());
            let fenced =
                slot.hooks.run_fence(spec, command.clone(), variables, slot.guards.clone(), Some(by));
            if let Err((problem, stderr)) = fenced.await {
                counted("failed");
                let name = &command.name;
                let stderr = if stderr.is_empty() { stderr } else { format!(": {stderr}") };
                return Err(format!("{member} is not fenced: {name} {problem}{stderr}"));
            }
        }
        counted("done");
        tracing::warn!(job, former = %member, former_term = term, "the former leader is fenced");
        Ok(())
    }

    /// Reports that no process of the job is left that was started with this token. If the session is over, that is
    /// repeated in the background: a leader may be about to fence this member.
    ///
    /// # Cancel safety
    /// May have been reported or not.
    pub(super) async fn left(&self, job: &str, fencing_token: u64) {
        let reported = match self.session.incarnation() {
            Some(session) => self.report_left(&session, fencing_token).await,
            None => Err(AdminError::Closed),
        };
        let Err(error) = reported else { return };
        tracing::info!(job, "can't report yet that the job has ended on this node: {error}");
        let (fencing, job) = (self.clone(), job.to_owned());
        tokio::spawn(async move {
            while let Ok(session) = fencing.session.active().await {
                match fencing.report_left(&session, fencing_token).await {
                    Ok(()) => return tracing::info!(job, "reported that the job has ended on this node"),
                    Err(AdminError::Record(error)) => return tracing::warn!(job, "{error}"),
                    Err(_) => tokio::time::sleep(RETRY).await,
                }
            }
        });
    }

    async fn report_left(&self, session: &Incarnation, fencing_token: u64) -> Result<(), AdminError> {
        let remove = |left: &mut Breadcrumbs| left.remove(&self.me, fencing_token);
        change_breadcrumbs(session, &self.paths, None, |left, _| remove(left)).await.map(drop)
    }

    /// Reports that what an earlier process of this member has led has ended, if that had this ballot: this process has
    /// proved it at its start.
    ///
    /// # Cancel safety
    /// May have been reported or not.
    pub(super) async fn returned(&self, job: &str, ballot: &str) {
        let Ok(session) = self.session.active().await else { return };
        let is_own = |left: &Breadcrumb| {
            left.member == self.me && left.ballot.as_ref().is_some_and(|own| own.as_str() == ballot)
        };
        let remove = |left: &mut Breadcrumbs| left.leaderships.retain(|left| !is_own(left));
        if let Err(error) = change_breadcrumbs(&session, &self.paths, None, |left, _| remove(left)).await {
            tracing::warn!(
                job,
                "can't report that the job of an earlier worker has ended on this node: {error}"
            );
        }
    }
}

fn shortened(text: &str) -> String {
    let end = (0..=REMARK.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..end].to_owned()
}
