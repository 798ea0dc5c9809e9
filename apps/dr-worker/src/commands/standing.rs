//! Standing orders: maintenance, and how a change is reported.

use election_admin::orders::Ordered;
use election_core::internals::record::{Control, Mode};
use serde_json::{Value, json};

/// A second pause keeps the mode from before the first.
pub(crate) fn set_paused(control: &mut Control) {
    if control.mode != Mode::Manual {
        control.paused_in = Some(control.mode);
        control.mode = Mode::Manual;
    }
}

/// Restores the mode from before the pause. A mode that was set by `mode` ends as well: after `resume` the elector
/// decides.
pub(crate) fn end_pause(control: &mut Control) {
    let found = control.paused_in.take();
    if control.mode == Mode::Manual {
        control.mode = found.unwrap_or(Mode::Auto);
    }
}

/// The standing orders of a job after a change, for programs.
pub(crate) fn shown(job: &str, ordered: &Ordered) -> Value {
    let control = &ordered.after;
    json!({
        "election": job,
        "changed": ordered.is_news(),
        "mode": control.mode,
        "drained": control.drained,
        "failed_sites": control.failed_sites,
        "maintenance": control.maintenance,
        "preferred_site": control.preferred_site,
        "site_order": control.site_order,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_in_the_mode_that_it_found() {
        for found in [Mode::Auto, Mode::Observe] {
            let mut control = Control::default().with(|control| control.mode = found);
            set_paused(&mut control);
            set_paused(&mut control);
            assert_eq!(control.mode, Mode::Manual);
            end_pause(&mut control);
            assert_eq!((control.mode, control.paused_in), (found, None));
            end_pause(&mut control);
            assert_eq!(control.mode, found);
        }
        let mut chosen = Control::default().with(|control| control.mode = Mode::Manual);
        end_pause(&mut chosen);
        assert_eq!(chosen.mode, Mode::Auto);
    }
}
