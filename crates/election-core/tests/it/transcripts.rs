//! The engine's behaviour as transcripts: events in, actions out. They are a good introduction; begin with
//! `transcripts/first_election.txt`.
//!
//! Each file is a script. A line is played. All events that followed are under `----`, up to the next empty line. `x <-
//! ...` is an input of a member, `x -> ...` is an operation that reached the ensemble, and `x: ...` is an action or
//! note of a member. Ballots are written as `#` and their number.
//!
//! `TRANSCRIPTS=write cargo test -p election-core --test it transcripts` records them again. Read the difference before
//! you keep it.

use std::{env, fs, path::PathBuf};

use crate::script::Stage;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

/// Plays a script, and answers it with what happened now.
fn replay(name: &str, script: &str) -> String {
    let mut stage = Stage::new();
    let mut out = String::new();
    let mut lines = script.lines().peekable();
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let happened = stage.play(line).unwrap_or_else(|why| panic!("{name}: {line}: {why}"));
        if lines.peek() == Some(&"----") {
            while lines.next_if(|line| !line.is_empty()).is_some() {}
        }
        if !happened.is_empty() {
            out.push_str("----\n");
            out.push_str(&happened);
        }
    }
    out
}

fn check(name: &str) {
    let path = folder().join(format!("{name}.txt"));
    let recorded = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let replayed = replay(name, &recorded);
    if replayed == recorded {
        return;
    }
    if env::var("TRANSCRIPTS").is_ok_and(|v| v == "write") {
        fs::write(&path, replayed).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        return;
    }
    let differ = recorded.lines().zip(replayed.lines()).position(|(a, b)| a != b);
    let at = differ.unwrap_or_else(|| recorded.lines().count().min(replayed.lines().count()));
    let show = |text: &str| text.lines().skip(at).take(6).collect::<Vec<_>>().join("\n    ");
    panic!(
        "{}:{}: it went otherwise\n  recorded:\n    {}\n  now:\n    {}\nIf that is right: TRANSCRIPTS=write cargo test \
         -p election-core --test it {name}",
        path.display(),
        at + 1,
        show(&recorded),
        show(&replayed)
    );
}

macro_rules! transcripts {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { check(stringify!($name)); })*

        #[test]
        fn every_transcript_is_played() {
            let played = [$(stringify!($name)),*];
            for entry in fs::read_dir(folder()).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                assert!(played.contains(&name.as_str()), "{} is played by no test", path.display());
            }
        }
    };
}

transcripts! {
    failback_window,
    move_confirmed,
    policy_rolled_out,
    reconfigured,
    leader_lost_again,
    site_ended_as_planned,
    first_election,
    queue_wiped,
    single_wiped,
    record_at_its_limits,
    wiped_and_decided_by_others,
    wiped_with_a_floor_from_a_file,
    all_restarted_with_a_floor,
    first_leader_decides,
    lost_reply_of_first_decision,
    lost_first_decision,
    first_decision_without_a_ballot,
    leave_in_mid_first_decision,
    health_not_known_yet,
    unfit_successor,
    unfit_since_the_creation_was_lost,
    queue_health_not_known_yet,
    claim_after_a_pause,
    late_decision,
    leader_znode_comes_back,
    silent_watches,
    penalties,
    planned_for_a_time,
    planned_switchover,
    crash_with_succession,
    elector_and_successor_race,
    takeover_fails,
    takeover_hangs,
    takeover_flaps,
    release_overdue,
    release_after_work,
    force,
    force_waits,
    lease_end,
    freeze_on_pause,
    lease_nearly_over,
    commit_deleted,
    leave_during_a_restore,
    leftover_of_another_life,
    session_expiry,
    lost_reply_of_create,
    lost_reply_of_delete,
    late_delete,
    late_removal,
    lost_reply_of_commit,
    lost_reply_of_decision,
    lost_reply_of_ballot,
    restart_with_leftovers,
    own_former_session,
    restart_waits,
    restored_before_it_led,
    restored_while_it_prepared,
    restored_ready_while_it_prepared,
    restored_from_a_copy,
    restart_with_a_shorter_timeout,
    used_up_numbers,
    drain,
    all_restarted,
    slots_all_restarted,
    joined_beside_a_leader,
    drain_again_and_again,
    failed_before_the_successor,
    failed_site,
    failed_site_again,
    site_common_cause,
    site_overruled,
    duplicate_id,
    own_ballot_deleted,
    place_deleted,
    decision_deleted,
    decision_deleted_unseen,
    decision_in_its_second_life,
    declined,
    declined_by_the_only_one,
    leader_deleted,
    everything_deleted,
    exclusions_that_have_no_room,
    base_known_to_one,
    requests_deleted,
    hold_after_too_many_takeovers,
    backoff_of_a_failing_job,
    last_candidate_excluded,
    better_candidate,
    better_who_comes_and_goes,
    frozen_leader,
    frozen_elector,
    two_pauses,
    leave,
    shutdown,
    shutdown_waits_end,
    shutdown_without_an_elector,
    shutdown_in_mid_takeover,
    leave_in_mid_claim,
    predecessor_comes_back_and_goes,
    predecessor_that_did_not_lead,
    named_again_while_stopping,
    cut_off_elector,
    ready_not_onto_anothers_place,
    spoiled_records,
    manual_mode,
    watch_misses_a_place,
    work_ends_before_ready,
    released_leader_first_in_line,
    successor_without_memory,
    repaired_restart,
    order_read_late,
    overtaken_request,
    request_of_a_remembered_decision,
    refused_requests,
    request_expired,
    request_left_behind,
    request_before_the_first_decision,
    request_cancelled,
    request_cancelled_too_late,
    request_refused_by_mode,
    request_repeated,
    request_superseded,
    queue_first_election,
    queue_of_three,
    queue_listed_before_a_pause,
    queue_duplicate_id,
    single_duplicate_id,
    queue_shared_session,
    shared_session,
    single_shared_session,
    single_first_election,
    single_late_delete,
    single_restart_with_leftovers,
    single_restored_from_a_copy,
    single_server_that_lacks_a_znode,
    server_that_lacks_a_leader_znode, server_that_lacks_the_decision,
    suspected_leader,
    suspected_elector_comes_back,
    seen_by_one_site,
    suspected_and_nobody_else,
    suspected_while_held,
    tokens_raised,
    resign,
    resign_by_a_deadline,
    withdraw,
    acknowledge,
    line_of_those_who_stand,
    named_before_it_was_known_to_have_withdrawn,
    named_from_the_end_of_the_line,
    hold,
    called_off,
    called_off_in_vain,
    future_format,
    maintenance,
    history_is_bounded,
    history_refused,
    history_written_once,
    slots_first_election,
    slots_held_apart,
    slots_leader_lost,
    slots_two_lost_at_once,
    slots_switchover,
    slots_told_otherwise,
    slots_too_few_members,
    slots_more_of_them,
}
