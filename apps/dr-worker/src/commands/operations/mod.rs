//! The operations of operators: what each one takes, asks and answers.

mod ack;
mod cancel;
mod confirm;
mod job;
mod maintenance;
mod mode;
mod moves;
mod prefer;
mod sites;
mod stay;
mod tokens;

use super::operation::Declared;

/// All operations, in the order of `--help`.
pub(crate) const ALL: &[Declared] = &[
    Declared::of::<moves::Switchover>(),
    Declared::of::<moves::Failover>(),
    Declared::of::<cancel::Cancel>(),
    Declared::of::<confirm::ConfirmMove>(),
    Declared::of::<sites::Drain>(),
    Declared::of::<sites::FailSite>(),
    Declared::of::<maintenance::Service>(),
    Declared::of::<prefer::Prefer>(),
    Declared::of::<mode::Pause>(),
    Declared::of::<mode::Resume>(),
    Declared::of::<mode::SetMode>(),
    Declared::of::<stay::Stay>(),
    Declared::of::<job::Stop>(),
    Declared::of::<job::Start>(),
    Declared::of::<job::Restart>(),
    Declared::of::<ack::Ack>(),
    Declared::of::<tokens::RaiseToken>(),
];
