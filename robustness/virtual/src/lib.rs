//! Whole elections in virtual time: the runtime of election-core on sessions of zk-session, connected to the embedded servers
//! of zk-testkit, all of it in one thread, without sockets, on tokio's paused clock.
//!
//! Everything comes of one seed: the plan of faults, the latencies, and what the product itself draws. The same seed has the
//! same run, byte for byte: the trace has every chunk of bytes that passes between a member and a server, and every line of
//! the history. What happened is judged by the checks of `robustness`, which know nothing of the product.
//!
//! The product has three points at which a test enters: the clocks of `boot-time` (`VirtualTime`), the connections of a session
//! (`SessionBuilder::dial_by`), and the random numbers of `fastrand`, which a thread can seed. Nothing else in it reads a
//! clock, opens a socket or draws a number, and no `select!` in it chooses at random.
#![forbid(unsafe_code)]

mod faults;
mod member;
mod network;
mod plan;
mod run;
mod trace;

pub use plan::{Act, Plan, RECIPES, Step};
pub use run::{Outcome, run};
