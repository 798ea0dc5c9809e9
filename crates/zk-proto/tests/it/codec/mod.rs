//! Tests of the codec through its public API: round trips, invalid input, and the recorded traffic of other clients and
//! real servers.

mod fields;
mod hostile;
mod memory;
mod messages;
mod recorded;
mod recording;
mod round_trips;
