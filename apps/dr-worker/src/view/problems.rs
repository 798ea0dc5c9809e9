use std::fmt;

use election_admin::{Disagreement, Ghost, Layout, OldDecision, Problem};
use election_core::config::MemberId;
use schemars::JsonSchema;
use serde::Serialize;

use crate::typed::Typed;

/// A problem of an election.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProblemRow {
    /// Its kind: `ghost`, `old-decision`, `low-token`, `other-policy`, `not-fenced`, `refused-config`,
    /// `access`, or what only `list` shows: `starts-no-job`, as a worker answers (also in `/cluster`), and `emergency`, on the
    /// node that has led without ZooKeeper.
    pub kind: &'static str,
    /// The problem and its consequence.
    pub sentence: String,
    /// The command that fixes it; none if it is fixed without one.
    pub command: Option<String>,
}

impl ProblemRow {
    pub(super) fn new(job: &str, layout: Layout, problem: &Problem) -> Self {
        match problem {
            Problem::Ghost(ghost) => Self {
                kind: "ghost",
                sentence: format!("{}: no living member owns it", GhostRow::new(ghost)),
                command: Some(Typed::verb("remove-ghosts").job(job).arg("--yes").to_string()),
            },
            Problem::OldDecision(old) => Self { kind: "old-decision", sentence: of_old(old), command: None },
            Problem::LowToken { slot, token, newest } => {
                let leader =
                    if *slot == 0 { "the leader".to_owned() } else { format!("the leader of slot {slot}") };
                let command = Some(
                    Typed::verb("raise-token").job(job).arg("--above").arg(newest).arg("--yes").to_string(),
                );
                let (hint, command) = match layout {
                    Layout::Elector => ("", command),
                    _ => ("; this recipe can't raise its tokens, so reset the token at the resource", None),
                };
                Self {
                    kind: "low-token",
                    sentence: format!(
                        "the fencing token of {leader}, {token}, is older than {newest} in the history: a resource \
                         that has seen {newest} refuses the leader{hint}"
                    ),
                    command,
                }
            }
            Problem::OtherPolicy { elector, members } => {
                let names: Vec<_> = members.iter().map(|member| member.as_str()).collect();
                let (who, have) = (names.join(", "), if names.len() == 1 { "has" } else { "have" });
                Self {
                    kind: "other-policy",
                    sentence: format!(
                        "{who} {have} another policy than the elector {elector}: as the elector it may decide \
                         otherwise; compare `dr-worker config show` on these nodes"
                    ),
                    command: None,
                }
            }
            Problem::NotFenced(left) => Self {
                kind: "not-fenced",
                sentence: format!(
                    "{} of site {} led in term {} and has not reported that its job has ended: it is fenced before \
                     the job starts elsewhere, unless an operator confirms that it is off",
                    left.member, left.site, left.term
                ),
                command: Some(Typed::verb("ack").job(job).arg("--fenced").to_string()),
            },
            Problem::RefusedOverlay { version, members, reason } => {
                let names: Vec<_> = members.iter().map(|member| member.as_str()).collect();
                let (who, refuse) = (names.join(", "), if names.len() == 1 { "refuses" } else { "refuse" });
                Self {
                    kind: "refused-config",
                    sentence: format!(
                        "{who} {refuse} configuration version {version} and {} on with the former one: {reason}",
                        if names.len() == 1 { "goes" } else { "go" }
                    ),
                    command: Some(Typed::verb("config revert").job(job).to_string()),
                }
            }
            _ => Self {
                kind: "other",
                sentence: "a problem that this program does not know; upgrade it".to_owned(),
                command: None,
            },
        }
    }
}

fn of_old(OldDecision { term, seen, token }: &OldDecision) -> String {
    let decision = match term {
        None => "the decision is missing".to_owned(),
        Some(term) => format!("the decision, of term {term}, is older than the one that members have seen"),
    };
    format!(
        "{decision}: they have seen term {seen} and fencing token {token}; the next elector writes it \
         again, above these"
    )
}

impl fmt::Display for ProblemRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.sentence)?;
        self.command.iter().try_for_each(|command| write!(f, "; fix: `{command}`"))
    }
}

/// A server that disagrees with the quorum about a znode, and what to do.
pub(crate) fn disagreement(found: &Disagreement) -> String {
    let Disagreement { server, path, .. } = found;
    let what = if found.is_kept {
        "shows a znode that the quorum has deleted"
    } else {
        "lacks a znode that the quorum has"
    };
    format!(
        "the server {server} {what}: {path}; stop this server, delete its data directory (not its myid), and start it, so \
         that it copies the leader's data"
    )
}

/// A znode that no living member owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GhostRow {
    /// Its path.
    pub path: String,
    /// The member in its record.
    pub member: Option<MemberId>,
    /// The session that it belongs to, in ZooKeeper's notation.
    pub session: String,
    /// When it was created, in milliseconds since the Unix epoch.
    pub since_ms: u64,
}

impl GhostRow {
    /// Describes a ghost.
    pub fn new(ghost: &Ghost) -> Self {
        Self {
            path: ghost.path.clone(),
            member: ghost.member.clone(),
            session: ghost.session.to_string(),
            since_ms: ghost.created_ms,
        }
    }
}

impl fmt::Display for GhostRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let member = self.member.as_ref().map_or_else(|| "an unknown member".to_owned(), ToString::to_string);
        let since = crate::wall::moment(self.since_ms);
        write!(f, "{} of {member} (session {}, since {since})", self.path, self.session)
    }
}
