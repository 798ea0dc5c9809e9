//! The weeks of `docs/weeks.md`: a script of incidents in, their results out.
//!
//! A block `toml` is the policy of the blocks `week` behind it. There a line `> DAY HH:MM WHAT` is an
//! [incident](crate::incident), and `[for 12s, every 15m, 12 times]` behind it is its duration and repetition. `>
//! members A B..` names the members, and `> DAY HH:MM result` prints the account. A line that begins with `#` is the
//! author's explanation. Each run writes all other lines again.

use std::fmt::Write as _;

use crate::{
    DAY, HOUR, MINUTE, Millis, SECOND,
    account::Sum,
    incident::{Incident, span_of},
    policy::Rules,
    world::{Line, World, words},
};

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// The number of first and of last lines that are printed, if there are more than [`MOST`].
const SHOWN: (usize, usize) = (9, 3);
const MOST: usize = 16;

/// The document with all results of this run.
///
/// # Errors
/// The first line that can't be read, and the reason.
pub fn replay(document: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rules = None;
    let mut rest = document;
    while let Some((text, block)) = rest.split_once("```") {
        let (kind, block) = block.split_once('\n').ok_or("a block begins and does not end")?;
        let (inside, after) = block.split_once("```\n").ok_or("a block does not end")?;
        let inside = match kind {
            "week" => play(rules.clone().ok_or("a week has no policy before it")?, inside)?,
            _ => inside.to_owned(),
        };
        if kind == "toml" {
            rules = Some(Rules::read(&inside)?);
        }
        let _ = write!(out, "{text}```{kind}\n{inside}```\n");
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

fn play(rules: Rules, script: &str) -> Result<String, String> {
    let commands: Vec<_> = script.lines().filter(|line| line.starts_with(['>', '#'])).collect();
    let mut stage = None;
    let mut out = String::new();
    for (number, line) in commands.iter().enumerate() {
        let _ = writeln!(out, "{line}");
        let Some(command) = line.strip_prefix("> ") else { continue };
        if let Some(members) = command.strip_prefix("members ") {
            let members: Vec<_> = members.split(' ').collect();
            stage = Some(World::new(rules.clone(), &members, true)?);
            continue;
        }
        let world = stage.as_mut().ok_or("a week begins with its members")?;
        let (at, what) = time_of(command).map_err(|e| format!("{line}: {e}"))?;
        world.run_until(at);
        if what == "result" {
            let _ = writeln!(out, "{}", result(world.account().sum()));
            continue;
        }
        plan(world, at, what).map_err(|e| format!("{line}: {e}"))?;
        let later = commands[number + 1..].iter().find_map(|line| line.strip_prefix("> "));
        let until = later.map_or(Ok(7 * DAY), |next| time_of(next).map(|(at, _)| at - 1))?;
        world.run_until(until);
        out.push_str(&shown(&world.lines()));
    }
    Ok(out)
}

/// Reads `DAY HH:MM[:SS] WHAT`.
fn time_of(command: &str) -> Result<(Millis, &str), String> {
    let mut parts = command.splitn(3, ' ');
    let (Some(day), Some(time), Some(what)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("DAY HH:MM WHAT is wanted".to_owned());
    };
    let day = DAYS.iter().position(|one| *one == day).ok_or(format!("{day} is no day"))? as Millis;
    let units = [HOUR, MINUTE, SECOND];
    let numbers =
        time.split(':').map(|number| number.parse::<Millis>().map_err(|_| format!("{time} is no time")));
    let ms = numbers.zip(units).try_fold(0, |sum, (number, unit)| Ok::<_, String>(sum + number? * unit))?;
    Ok((day * DAY + ms, what))
}

/// Adds an incident with its repetitions and its end to the agenda.
fn plan(world: &mut World, at: Millis, what: &str) -> Result<(), String> {
    let (what, again) = match what.strip_suffix(']').and_then(|what| what.split_once(" [")) {
        Some((what, again)) => (what, again),
        None => (what, ""),
    };
    let incident = Incident::read(what)?;
    let (mut lasts, mut every, mut times) = (None, 0, 1);
    for clause in again.split(", ").filter(|clause| !clause.is_empty()) {
        match clause.split(' ').collect::<Vec<_>>()[..] {
            ["for", span] => lasts = Some(span_of(span)?),
            ["every", span] => every = span_of(span)?,
            [count, "times"] => times = count.parse().map_err(|_| format!("{count} is no count"))?,
            _ => return Err(format!("no such clause: {clause}")),
        }
    }
    for round in 0..times {
        let begins = at + round * every;
        world.plan(begins, incident.clone());
        if let Some(lasts) = lasts {
            world.plan(begins + lasts, incident.end().ok_or(format!("{what} has no end"))?);
        }
    }
    Ok(())
}

fn shown(lines: &[Line]) -> String {
    let mut out = String::new();
    let (first, last) = SHOWN;
    let left_out = if lines.len() > MOST { lines.len() - first - last } else { 0 };
    for (number, line) in lines.iter().enumerate() {
        let hidden = left_out > 0 && (first..first + left_out).contains(&number);
        if !hidden {
            let _ = writeln!(out, "{} {}: {}", clock(line.at), line.who, line.text);
        } else if number == first {
            let _ = writeln!(out, "... {left_out} more such lines ...");
        }
    }
    out
}

fn clock(at: Millis) -> String {
    let day = DAYS[usize::try_from(at / DAY % 7).unwrap_or(0)];
    let part = |unit: Millis, of: Millis| at / unit % of;
    format!("{day} {:02}:{:02}:{:02}", part(HOUR, 24), part(MINUTE, 60), part(SECOND, 60))
}

fn result(sum: Sum) -> String {
    let doubles = match sum.doubles {
        0 => "never two leaders at once".to_owned(),
        times => format!("TWO LEADERS AT ONCE, {times} times"),
    };
    format!(
        "without a leader {} ({} of it while somebody could have led), outside of the first site {}; \
         {} moves, {} of them not needed; {doubles}",
        words(sum.vacant_ms),
        words(sum.idle_ms),
        words(sum.away_ms),
        sum.moves,
        sum.needless,
    )
}
