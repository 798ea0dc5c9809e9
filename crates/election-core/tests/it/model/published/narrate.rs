//! The events, as text.

use super::{
    events::{Event, Trouble},
    rules::Remedy,
    system::{MEMBERS, Op, Place, System, Way},
};

/// Every step of a path, as text.
pub(super) fn tell(path: &[(System, Option<Event>)]) -> Vec<String> {
    let steps = path.windows(2).filter_map(|pair| Some((&pair[0].0, pair[0].1?, &pair[1].0)));
    steps.map(|(before, event, after)| in_words(before, event, after)).collect()
}

/// How a path continues that has no leader in the end.
pub(super) fn from_then_on(has: &dyn Fn(Remedy) -> bool, mut before: System) -> Vec<String> {
    const ENOUGH: usize = 24;
    let path = before.when_nothing_goes_wrong(has, 300);
    let mut steps = Vec::new();
    let all = path.len();
    for (event, after) in path.into_iter().take(ENOUGH) {
        let step = in_words(&before, event, &after);
        if steps.last() == Some(&step) {
            break;
        }
        steps.push(step);
        before = after;
    }
    steps.push(match all {
        0..=ENOUGH => "nothing happens any more".to_owned(),
        _ => "and so on, without end".to_owned(),
    });
    steps
}

fn in_words(before: &System, event: Event, after: &System) -> String {
    let mut line = words(before, event);
    let place = |p: Option<Place>| p.map_or("free".to_owned(), |p| format!("{}'s", MEMBERS[p.name]));
    if before.elected != after.elected {
        line = format!("{line}; e = {}", after.elected.map_or("none", |n| MEMBERS[n]));
    }
    if before.current != after.current {
        line = format!("{line}; l is {}", place(after.current));
    }
    for (m, name) in MEMBERS.into_iter().enumerate() {
        let acts = |s: &System| s.members[m].job.is_some() && !s.members[m].frozen;
        match (acts(before), acts(after)) {
            (false, true) => line = format!("{line}; **{name} acts**"),
            (true, false) => line = format!("{line}; {name} acts no more"),
            _ => {}
        }
    }
    line
}

fn words(system: &System, event: Event) -> String {
    let name = |m: usize| MEMBERS[m];
    let op = |m: usize| system.members[m].op;
    match event {
        Event::See(m) => format!("{} reads e, l and the members", name(m)),
        Event::Arrive(m) => match op(m) {
            Some((Op::Create, _)) => format!("{}'s create of l arrives", name(m)),
            Some((Op::Delete, _)) => format!("{}'s delete of l arrives", name(m)),
            Some((Op::Elect(n), _)) => format!("{}'s write of e = {} arrives", name(m), name(n)),
            None => String::new(),
        },
        Event::Answer(m) => match op(m) {
            Some((_, Way::Exists)) => format!("{} is told that l exists", name(m)),
            _ => format!("{} is told that it is done", name(m)),
        },
        Event::Stopped(m) => format!("{}'s program has stopped", name(m)),
        Event::Write(m) => format!("a write of {}'s program reaches the resource", name(m)),
        Event::Link(m) => format!("{} connects again", name(m)),
        Event::Thaw(m) => format!("{} wakes", name(m)),
        Event::Start(m) => format!("{} is started again", name(m)),
        Event::Expire(m) => format!("a session of {} ends", name(m)),
        Event::Timer(m) => format!("the watchdog of {} is due", name(m)),
        Event::Trouble(Trouble::Crash, m) => format!("{} dies", name(m)),
        Event::Trouble(Trouble::Freeze, m) => format!("{} is frozen", name(m)),
        Event::Trouble(Trouble::Cut, m) => format!("{} loses its connection", name(m)),
        Event::Trouble(Trouble::Fails, m) => format!("{} is going to fail to take over", name(m)),
        Event::Trouble(Trouble::Write, m) => format!("{}'s program writes", name(m)),
        Event::Trouble(Trouble::Move, m) => format!("{} is preferred from now on", name(m)),
    }
}
