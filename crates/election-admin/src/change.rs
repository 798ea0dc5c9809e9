//! Changes by compare-and-set: read, decide, write with what that rests on; and again after a lost race.

use std::time::Duration;

use zk_session::{BootTime, Incarnation, MultiOp, OpError, Session, sleep_until};

use crate::{
    error::{AdminError, TRIES},
    observer::Observer,
};

#[derive(Clone, Copy, Debug)]
enum Over<'a> {
    Session(&'a Session),
    Incarnation(&'a Incarnation),
}

/// The attempts of a change by compare-and-set: each looks at the znodes, decides, and writes with what that rests on.
///
/// ```no_run
/// # use election_admin::{AdminError, Attempts, Known};
/// # use election_core::{Paths, internals::record::Control};
/// # async fn drain(session: &zk_session::Session, paths: &Paths) -> Result<(), AdminError> {
/// let mut attempts = Attempts::over(session);
/// loop {
///     let observer = attempts.look().await?;
///     let known: Known<Control> = observer.known(paths.control()).await?;
///     let next = known.record_or_default()?.with(|control| control.drained.clear());
///     if attempts.write([known.replace(&next)?]).await? {
///         return Ok(());
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Attempts<'a> {
    over: Over<'a>,
    session: Option<Incarnation>,
    begun: u32,
}

impl<'a> Attempts<'a> {
    /// Over a session, whatever becomes of it. Each attempt waits until it is active, and sees all that was written
    /// before.
    pub fn over(session: &'a Session) -> Self {
        Self { over: Over::Session(session), session: None, begun: 0 }
    }

    /// Over one incarnation alone, for a member. The first attempt sees what the own writes of the session have followed.
    pub fn within(incarnation: &'a Incarnation) -> Self {
        Self { over: Over::Incarnation(incarnation), session: None, begun: 0 }
    }

    /// Begins the next attempt. What is read by it includes what the lost race has written.
    ///
    /// # Errors
    /// [`AdminError::TooManyRaces`]; when the session was closed, or ZooKeeper doesn't answer.
    ///
    /// # Cancel safety
    /// Cancel safe: it writes nothing.
    pub async fn look(&mut self) -> Result<Observer, AdminError> {
        let is_first = self.begun == 0;
        if self.begun == TRIES {
            return Err(AdminError::TooManyRaces);
        }
        if !is_first {
            pause(self.begun - 1).await;
        }
        let (session, may_lag) = match self.over {
            Over::Session(session) => (session.active().await?, true),
            Over::Incarnation(session) => (session.clone(), !is_first),
        };
        if may_lag {
            session.barrier().await?;
        }
        self.begun += 1;
        self.session = Some(session.clone());
        Ok(Observer::new(session))
    }

    /// Writes all of it or none. Returns whether it was written: otherwise a race was lost, or the outcome is unknown, and the
    /// next look finds what was written.
    ///
    /// # Errors
    /// When ZooKeeper doesn't answer, or refuses.
    ///
    /// # Cancel safety
    /// May have been carried out or not.
    pub async fn write(&mut self, group: impl IntoIterator<Item = MultiOp>) -> Result<bool, AdminError> {
        let Some(session) = &self.session else { return Ok(false) };
        match write(session, group.into_iter().collect()).await {
            Ok(()) => Ok(true),
            Err(error) if is_worth_another_look(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for the next attempt. The present one does not count: it has lost no race.
    pub(crate) async fn wait_until(&mut self, until: BootTime) {
        self.begun = self.begun.saturating_sub(1);
        sleep_until(until).await;
    }
}

/// A single operation finds out its outcome after a lost answer; a group of several does so only in part.
async fn write(session: &Incarnation, group: Vec<MultiOp>) -> Result<(), OpError> {
    match <[MultiOp; 1]>::try_from(group) {
        Ok([MultiOp::Set { path, data, version }]) => session.set(&path, data, version).await.map(drop),
        Ok([MultiOp::Create { path, data, mode }]) => session.create(&path, data, mode).await.map(drop),
        Ok([MultiOp::Delete { path, version }]) => session.delete(&path, version).await,
        Ok([other]) => session.multi([other]).await.map(drop),
        Err(group) => session.multi(group).await.map(drop),
    }
}

/// Whether a compare-and-set lost a race or has an unknown outcome. Reading the znode again then shows its state.
pub(crate) const fn is_worth_another_look(error: &OpError) -> bool {
    matches!(
        error,
        OpError::BadVersion { .. }
            | OpError::NodeExists { .. }
            | OpError::NoNode { .. }
            | OpError::NotEmpty { .. }
            | OpError::Unknown { .. }
    )
}

/// Between two attempts. So many races in a row are no races: the server of the session may disagree with the quorum, and a
/// session needs seconds to find that out and to move to another server.
async fn pause(attempt: u32) {
    match attempt.saturating_sub(10) {
        0 => tokio::task::yield_now().await,
        late => tokio::time::sleep(Duration::from_millis(10) * late).await,
    }
}
