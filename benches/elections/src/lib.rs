//! What the benchmarks of elections share.
//!
//! Figures differ between machines, and change while other programs run. So each benchmark measures, in turn with what it
//! is about, one write round trip of the ensemble ([`Clients::round_trips`], W) and the fewest requests that could do the
//! same without an election engine ([`raw`]), and prints its times as multiples of both.
//!
//! The candidates are those of the program `contestant`, which prints a line for each of its steps ([`Contestant`]).
//! [`Party`] leads a group of them; [`Watched`] places a recording proxy before each server, and [`timeline`] prints what
//! it has recorded.

#![forbid(unsafe_code)]

mod clients;
mod contestant;
mod curator;
mod moment;
mod options;
mod party;
pub mod raw;
mod run;
mod setting;
mod table;
pub mod timeline;
mod usage;
mod watched;
mod wire;

pub use clients::Clients;
pub use contestant::{Contestant, Line};
pub use curator::Curator;
pub use moment::Moment;
pub use options::{Crowd, Options};
pub use party::Party;
pub use run::{ensemble, run};
pub use setting::{Kind, Setting};
pub use table::{References, Step, Table, Times};
pub use usage::Usage;
pub use watched::{Recorded, Watched};
pub use wire::{Decoder, Event, Exchange, Message, What};
