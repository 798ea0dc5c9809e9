//! The operations of operators: what each one takes, asks and answers.

mod ack;
mod cancel;
mod confirm;
mod evacuate;
mod job;
mod maintenance;
mod mode;
mod moves;
mod prefer;
mod sites;
mod stay;
mod tokens;

use super::operation::{Declared, HOLD, Jobs, MOVE, RECOVER, Takes};

const TRIED: Takes = Takes { dry_run: true, ..Takes::ORDER };
const CLOSES: Takes = Takes { yes: true, ..TRIED };
const SERVICE: Takes = Takes { jobs: Jobs::OfMember, ..Takes::ORDER };
const REQUEST: Takes =
    Takes { reason: true, wait: Some("Wait until it is done or has failed."), ..Takes::ONE_JOB };
const HALTS: Takes = Takes { yes: true, ..REQUEST };
const MOVES: Takes =
    Takes { dry_run: true, wait: Some("Wait until the new leader is ready, or it has failed."), ..REQUEST };
const REPLACES: Takes = Takes { yes: true, ..MOVES };
const TOGETHER: Takes = Takes {
    jobs: Jobs::OfRoot,
    reason: true,
    yes: true,
    wait: Some("Wait until all has moved, or a move has failed."),
    ..Takes::ONE_JOB
};
const MENDS: Takes = Takes { jobs: Jobs::Chosen, yes: true, ..Takes::ONE_JOB };

/// All operations, in the order of `--help`.
pub(crate) const ALL: &[Declared] = &[
    Declared::of::<moves::Switchover>("switchover", MOVE, MOVES),
    Declared::of::<moves::Failover>("failover", MOVE, REPLACES),
    Declared::of::<cancel::Cancel>("cancel", MOVE, Takes::ONE_JOB),
    Declared::of::<confirm::ConfirmMove>("confirm", MOVE, Takes::ORDER),
    Declared::of::<sites::Drain>("drain", MOVE, CLOSES),
    Declared::of::<evacuate::Evacuate>("evacuate", MOVE, TOGETHER),
    Declared::of::<sites::FailSite>("fail-site", MOVE, CLOSES),
    Declared::of::<maintenance::Service>("maintenance", MOVE, SERVICE),
    Declared::of::<prefer::Prefer>("prefer", MOVE, TRIED),
    Declared::of::<mode::Pause>("pause", HOLD, Takes::ORDER),
    Declared::of::<mode::Resume>("resume", HOLD, Takes::ORDER),
    Declared::of::<mode::SetMode>("mode", HOLD, TRIED),
    Declared::of::<stay::Stay>("stay", HOLD, Takes::ORDER),
    Declared::of::<job::Stop>("stop", HOLD, HALTS),
    Declared::of::<job::Start>("start", HOLD, REQUEST),
    Declared::of::<job::Restart>("restart", HOLD, HALTS),
    Declared::of::<ack::Ack>("ack", RECOVER, MENDS),
    Declared::of::<tokens::RaiseToken>("raise-token", RECOVER, MENDS),
];
