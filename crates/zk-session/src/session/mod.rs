//! What is known of a session, and the task that keeps it: makes it, proves it alive, ends it in time, makes the next one.

pub(crate) mod armed;
pub(crate) mod audit;
pub(crate) mod changes;
pub(crate) mod establish;
pub(crate) mod heartbeats;
pub(crate) mod incarnation;
pub(crate) mod live;
pub(crate) mod reliance;
pub(crate) mod scope;
pub(crate) mod shared;
pub(crate) mod state;
pub(crate) mod supervisor;
