//! Moves of leadership in recipes without an elector.

use election_admin::Layout;
use election_core::internals::record::{AdminRequest, RequestKind, Target};

use crate::{error::Error, typed::Typed};

/// Refuses what needs an elector. Returns who follows the leader, as text.
///
/// # Errors
/// With what is possible instead.
pub(crate) fn check(job: &str, layout: Layout, request: &AdminRequest) -> Result<&'static str, Error> {
    let failover = Typed::verb("failover").job(job).arg("--force").arg("--now");
    let recipe = format!("{job} uses the recipe {:?}", layout.as_str());
    let follows = match layout {
        Layout::Queue => "the next member in its queue follows",
        Layout::Single | Layout::Elector => "the fastest member follows",
    };
    if request.to != Target::Any {
        return Err(Error::Usage(format!(
            "{recipe}: {follows}; --to and --to-site need the recipe \"elector\""
        )));
    }
    if request.kind == RequestKind::Switchover {
        return Err(Error::Usage(format!(
            "{recipe}, which has no elector to ask the leader to hand over. End the leader's worker: it stops \
             its job, then {follows}. Or take leadership from it with `{failover}`"
        )));
    }
    if !request.force {
        return Err(Error::Usage(format!(
            "{recipe}: {follows} by itself once the leader is gone. `{failover}` takes leadership \
             from a leader that is alive"
        )));
    }
    if !request.now {
        return Err(Error::Usage(format!(
            "{recipe}, which has no elector to give the leader its stop budget: add --now (two programs may run \
             until the leader has stopped), or end the leader's worker: it stops its job, then {follows}"
        )));
    }
    Ok(follows)
}
