//! Good histories hold, and each way to spoil one is named by the check that is for it, and by no other.

mod check_trace;
mod good;
mod logs;
mod schedules;
mod sound;
mod spoiled;
