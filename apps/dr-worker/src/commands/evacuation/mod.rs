//! The evacuation of a site: jobs that move together, in their order.
//!
//! ```text
//!   gather ─▶ survey: what would move, and the obstacles ─▶ plan: the record
//!                                                                  ▼
//!   course: which step is next, what an outcome means ◀─▶ a worker carries it out
//! ```

pub(crate) mod course;
pub(crate) mod gather;
pub(crate) mod order;
pub(crate) mod practice;
pub(crate) mod shown;
pub(crate) mod site_report;
pub(crate) mod store;
pub(crate) mod survey;
