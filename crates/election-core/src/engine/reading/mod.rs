//! What this member has read, and what it makes of that: the last known content of the znodes, the memory of what was
//! decided, who was seen to lead, and what is to be read again.

pub(in crate::engine) mod memory;
pub(in crate::engine) mod rereading;
pub(in crate::engine) mod tenure;
pub(in crate::engine) mod view;

use memory::Memory;
use rereading::Rereading;
use tenure::Tenure;
use view::View;

/// What this member has read.
#[derive(Clone, Debug, Default, Hash)]
pub(in crate::engine) struct Reading {
    pub(in crate::engine) view: View,
    pub(in crate::engine) memory: Memory,
    /// By slot.
    pub(in crate::engine) tenures: Vec<Tenure>,
    pub(in crate::engine) rereading: Rereading,
}

impl Reading {
    /// Nothing of it is known of a new session; what was decided stays remembered.
    pub(in crate::engine) fn forget(&mut self) {
        self.view = View::default();
    }
}
