//! A path through the states as text.

use election_core::internals::{
    Outcome, Transaction, Watched, WriteKind, ZkOp, ZnodeWrite,
    record::{Current, Elected, Record},
};

use crate::model::{
    process::Answer,
    settings::{Fault, Setting},
    steps::{Move, Step},
    world::World,
};

/// One line for each step; after it, what it changed in the decision or a leader znode.
pub(crate) fn tell(setting: &Setting, path: Vec<(World, Option<Move>)>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut after: Vec<World> = path.iter().skip(1).map(|(world, _)| world.clone()).collect();
    for ((before, step), after) in path.into_iter().zip(after.drain(..)) {
        let Some(step) = step else { continue };
        let mut line = in_words(setting, &before, step.step);
        if before.elected(setting) != after.elected(setting) {
            line = format!(
                "{line}. Decision: {}",
                after.elected(setting).as_ref().map_or("none".into(), decision)
            );
        }
        for slot in 0..setting.slots {
            let (was, is) = (before.current(setting, slot), after.current(setting, slot));
            if was != is {
                let says = |c: Current| format!("{} in term {}, {:?}", c.member, c.term, c.status);
                let of = if setting.slots > 1 { format!(" of slot {slot}") } else { String::new() };
                line = format!("{line}. Leader znode{of}: {}", is.map_or("free".to_owned(), says));
            }
        }
        let (was, is) = (before.glance(setting), after.glance(setting));
        if was != is {
            line = format!("{line}. [{is}]");
        }
        lines.push(line);
    }
    lines
}

fn decision(elected: &Elected) -> String {
    let name = |n: &election_core::internals::record::Named| format!("{}/{}", n.member, n.ballot.sequence());
    let named = elected.named(0).map_or("nobody".to_owned(), name);
    let line: Vec<_> = elected.line_of(0).iter().map(name).collect();
    let mut words = format!("term {} names {named}", elected.term);
    if !line.is_empty() {
        words = format!("{words}, then {}", line.join(", "));
    }
    if !elected.exclusions.is_empty() {
        let all: Vec<_> =
            elected.exclusions.iter().map(|e| format!("{}/{}", e.member, e.ballot.sequence())).collect();
        words = format!("{words}, excluded {}", all.join(", "));
    }
    words
}

fn in_words(setting: &Setting, world: &World, step: Step) -> String {
    let name = |m: usize| setting.members[m].0;
    let client = |m: usize| world.members[m].client();
    match step {
        Step::Serve(m) => {
            let request = client(m).and_then(|c| c.sent.front()).map(|(_, r)| asked(r));
            format!("{}: {}", name(m), request.unwrap_or_default())
        }
        Step::Reply(m) => {
            let reply = client(m).and_then(|c| c.replies.front()).map(|(_, o)| answered(o));
            format!("{} learns: {}", name(m), reply.unwrap_or_default())
        }
        Step::Tell(m, w) => {
            let watched = client(m).map(|c| path_of(&c.watched[w].0)).map(short);
            format!("{} sees {}", name(m), watched.unwrap_or_default())
        }
        Step::Answer(m) => {
            let answer = world.members[m].process.as_ref().and_then(|p| p.job.answers);
            let words = match answer {
                Some(Answer::Prepared) => "is prepared",
                Some(Answer::TakenOver) => "has taken over, and serves",
                Some(Answer::Failed) => "has failed",
                Some(Answer::Ended) => "has ended",
                Some(Answer::Stopped) => "has stopped",
                None => "says nothing",
            };
            format!("{}: its job {words}", name(m))
        }
        Step::Ready(m) => format!("{}: its standby is ready", name(m)),
        Step::Consent(m, true) => format!("{}: leadership may move", name(m)),
        Step::Consent(m, false) => format!("{} calls off the move", name(m)),
        Step::Heartbeat(m) => format!("{} has its first lease", name(m)),
        Step::Learn(m) => format!("{} is told that its session is over", name(m)),
        Step::Connect(m) => format!("{} makes a session", name(m)),
        Step::Wake(m) => format!("{} is woken by its clock", name(m)),
        Step::Notice(m) => format!("{} notices that its connection is lost", name(m)),
        Step::Resume(m) => format!("{} reaches the ensemble again", name(m)),
        Step::GiveUp(m) => format!("{} gives its session up by its own clock", name(m)),
        Step::Land => "a write arrives whose connection was lost".to_owned(),
        Step::CatchUp(m) => format!("the server of {} has caught up", name(m)),
        Step::Arrive(m) => format!("{} learns what it has read before", name(m)),
        Step::Hold(m, None) => format!("{} has read something, and LEARNS IT LATER", name(m)),
        Step::Hold(m, Some(w)) => {
            let watched = client(m).map(|c| path_of(&c.watched[w].0)).map(short);
            format!("{} reads {}, and LEARNS IT LATER", name(m), watched.unwrap_or_default())
        }
        Step::Thaw(m) => format!("{} wakes", name(m)),
        Step::Start(m) => format!("{} is started", name(m)),
        Step::Expire(session) => {
            let m = (0..world.members.len()).find(|m| client(*m).is_some_and(|c| c.session == session));
            format!("the ensemble expires a session of {}", m.map_or("a dead process", name))
        }
        Step::Ask => {
            let ask = setting.asks[usize::from(world.asked)];
            let force = if ask.force { ", by force" } else { "" };
            format!("an operator ASKS for a {} to {}{force}", ask.kind.as_str(), ask.to.unwrap_or("anyone"))
        }
        Step::Tick => "time passes".to_owned(),
        Step::Fault(fault, m) => match fault {
            Fault::StandbyEnds => format!("{}: its STANDBY ENDS", name(m)),
            Fault::Crash => format!("{} DIES", name(m)),
            Fault::Kill => format!("{} IS KILLED, its guard lives", name(m)),
            Fault::Freeze => format!("{} STANDS STILL", name(m)),
            Fault::Cut => format!("{} IS CUT OFF", name(m)),
            Fault::Reset => format!("{} LOSES ITS CONNECTION", name(m)),
            Fault::Minority => format!("the server of {} IS CUT OFF from the others", name(m)),
            Fault::Lag => format!("the server of {} LAGS", name(m)),
            Fault::JobFails => format!("the job of {} IS GOING TO FAIL", name(m)),
            Fault::JobHangs => format!("the job of {} HANGS", name(m)),
            Fault::JobEnds => format!("the job of {} ENDS", name(m)),
            Fault::Leave => format!("{} IS ASKED TO LEAVE", name(m)),
            Fault::Clock => "the wall clocks JUMP an hour ahead".to_owned(),
            Fault::DeleteAll => "an administrator DELETES EVERYTHING".to_owned(),
            Fault::Late => "something arrives late".to_owned(),
            Fault::Stray => {
                let request = client(m).and_then(|client| client.writes()).map(asked);
                format!("{} LOSES ITS CONNECTION, and {} is under way", name(m), request.unwrap_or_default())
            }
        },
    }
}

fn path_of(watched: &Watched) -> &str {
    match watched {
        Watched::Node(path) | Watched::Tree(path) => path,
    }
}

fn short(path: &str) -> String {
    path.trim_start_matches("/dr/orders/").to_owned()
}

fn asked(request: &ZkOp) -> String {
    let transaction = match request {
        ZkOp::Get(path) => return format!("reads {}", short(path)),
        ZkOp::Children(path) => return format!("lists {}", short(path)),
        ZkOp::CreateSequential { prefix, .. } => return format!("draws {}", short(prefix)),
        ZkOp::Multi(transaction) => transaction,
    };
    let Transaction { checks, before, answer, after } = transaction;
    let others = before.iter().chain(after).map(|write| format!(", and {}", wrote(write)));
    let checks = checks.iter().map(|(path, version)| match version {
        Some(version) => format!(", while {} has version {version}", short(path)),
        None => format!(", while {} is there", short(path)),
    });
    [wrote(answer)].into_iter().chain(others).chain(checks).collect()
}

fn wrote(write: &ZnodeWrite) -> String {
    let path = short(&write.path);
    match &write.kind {
        WriteKind::Create { .. } => format!("creates {path}"),
        WriteKind::Set { data, version } => {
            let over = version.map_or_else(String::new, |version| format!(" of version {version}"));
            match Elected::decode(&write.path, data) {
                Ok(elected) => format!("sets {path}{over} to term {}", elected.term),
                Err(_) => format!("sets {path}{over}"),
            }
        }
        WriteKind::Delete { version: Some(version) } => format!("deletes {path} of version {version}"),
        WriteKind::Delete { version: None } => format!("deletes {path}"),
    }
}

fn answered(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Created { path, .. } => format!("{} is created", short(path)),
        Outcome::Changed { version, .. } => format!("set, now version {version}"),
        Outcome::Ok => "done".to_owned(),
        Outcome::Got(None) => "nothing is there".to_owned(),
        Outcome::Got(Some(_)) => "what was there".to_owned(),
        Outcome::Names(names) => format!("{} names", names.len()),
        Outcome::Exists => "it exists already".to_owned(),
        Outcome::Missing => "it does not exist".to_owned(),
        Outcome::Stale => "the version is another one".to_owned(),
        Outcome::NotApplied(_) => "not applied".to_owned(),
        Outcome::Unknown(_) => "nobody knows whether it was applied".to_owned(),
        Outcome::OtherRecipe(_) => "refused: there is another recipe".to_owned(),
    }
}
