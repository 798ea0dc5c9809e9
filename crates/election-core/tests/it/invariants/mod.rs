//! What must hold in every run, one file for each promise, with its source.

pub(crate) mod a_successor_follows_a_leader;
pub(crate) mod at_most_one;
pub(crate) mod blames_the_right_one;
pub(crate) mod elective_moves_confirmed;
pub(crate) mod elective_moves_in_windows;
pub(crate) mod exclusions_end;
pub(crate) mod fencing;
pub(crate) mod fit_when_named;
pub(crate) mod leads_as_decided;
pub(crate) mod leases_end_first;
pub(crate) mod never_back;
pub(crate) mod never_on_one_sites_word;
pub(crate) mod no_livelock;
pub(crate) mod no_zombie;
pub(crate) mod nothing_left_behind;
pub(crate) mod one_decision_per_term;
pub(crate) mod one_leader_in_the_end;
pub(crate) mod one_life;
pub(crate) mod others_undisturbed;
pub(crate) mod place_is_its_owners;
pub(crate) mod planned_stops_have_time;
pub(crate) mod requests_once;
pub(crate) mod standing_orders;
pub(crate) mod suspended_work_rests;
pub(crate) mod tokens_above_their_base;
pub(crate) mod work_ends_in_time;

/// What was promised and does not hold.
pub(crate) type Verdict = Result<(), String>;
