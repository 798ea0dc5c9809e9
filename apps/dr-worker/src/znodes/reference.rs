//! `docs/reference/znodes.md`: every znode of an election, and what its record contains.

use std::{fmt::Write as _, fs, path::Path};

use election_core::Paths;

use super::{PLANS, WorkerPaths as _};
use crate::reference::compare;

/// A znode: its path; how long it exists; who writes it; its data, by the name of a record if it is one.
type Row = (String, &'static str, &'static str, &'static str);

const ONCE: &str = "persistent";
const WITH_SESSION: &str = "ephemeral";
const LINE: &str = "ephemeral sequential";
const TRIMMED: &str = "persistent, trimmed";
const FIRST: &str = "the first member that joins";

fn rows(paths: &Paths) -> Vec<Row> {
    let member = "MEMBER".parse().unwrap();
    let numbered = |prefix: String| format!("{prefix}NUMBER");
    let ballots = numbered(paths.ballot_prefix("GUID"));
    let queue = format!("{}/GUID-NUMBER", paths.queue());
    let slot = paths.leader_znode(1).replace('1', "SLOT");
    let generation = format!("{}BALLOT", paths.generation_prefix());
    let version = paths.config_version(0).replace("0000000000", "VERSION");
    vec![
        (paths.base().to_owned(), ONCE, FIRST, "none"),
        (paths.nodes(), ONCE, FIRST, "none"),
        (paths.node(&member), WITH_SESSION, "the member", "`MemberRecord`"),
        (
            paths.election(),
            ONCE,
            "the first member that joins; its version counts the creations of `leader/elected`",
            "none",
        ),
        (ballots, LINE, "the member: its ballot. The lowest number is the elector", "the member's id"),
        (paths.leader(), ONCE, FIRST, "none"),
        (
            paths.elected(),
            ONCE,
            "the elector; a successor that steps in; an operator who forces a failover, acknowledges failures or moves the election",
            "`Elected`",
        ),
        (
            paths.leader_znode(0),
            WITH_SESSION,
            "the leader. Its czxid, and the base in `leader/elected`, are the fencing token",
            "`Current`; with the recipe `single` `Contender`",
        ),
        (slot, WITH_SESSION, "the leader of another slot than the first one", "`Current`"),
        (
            generation,
            ONCE,
            "the first leader below this `leader`, with the recipe `single`: tells it from one that was deleted",
            "none",
        ),
        (paths.queue(), ONCE, FIRST, "none"),
        (
            queue,
            LINE,
            "a candidate with the recipe `queue`. The lowest number leads; its czxid, and the base in `tokens`, are the fencing token",
            "`Contender`",
        ),
        (
            paths.tokens(),
            "persistent, once it is needed",
            "with the recipes `queue` and `single` a member that knows a newer token than the next one would be; operators",
            "`TokenBase`",
        ),
        (paths.control(), ONCE, "operators; the leader, when it begins a request about its job", "`Control`"),
        (paths.requests(), ONCE, "the first operator who asks", "none"),
        (
            numbered(paths.request_prefix()),
            "persistent sequential, trimmed",
            "the operator who asks; the elector or the leader answers",
            "`AdminRequest`",
        ),
        (
            paths.breadcrumbs(),
            ONCE,
            "leaders of jobs with fence commands, before their work begins and after it has ended",
            "`Breadcrumbs`",
        ),
        (
            paths.roster(),
            ONCE,
            "the worker of the elector, when a member appears, vanishes or returns; a worker that stops",
            "`Roster`",
        ),
        (paths.config(), ONCE, "`dr-worker config push` and `config revert`", "`Overlay`"),
        (version, TRIMMED, "the same", "`Overlay`"),
        (
            paths.halted(),
            "persistent, once it is needed",
            "the leader of a job with `after`, or of one that it names, when its program is stopped or starts again",
            "`Halted`",
        ),
    ]
}

/// Those of drills, and of past leaderships.
fn rows_of_reports(paths: &Paths) -> Vec<Row> {
    let member = "MEMBER".parse().unwrap();
    vec![
        (format!("{}/drill", paths.base()), ONCE, "the first drill", "none"),
        (paths.drill_order(), "persistent, until the drill ends", "`dr-worker drill`", "`DrillOrder`"),
        (
            paths.drill_conductor(),
            WITH_SESSION,
            "`dr-worker drill`: only one conducts a drill of a job",
            "the id of the run",
        ),
        (paths.drill_answers(), ONCE, "the first drill", "none"),
        (paths.drill_answer(&member), "persistent, until the next drill", "the member", "`DrillAnswer`"),
        (paths.drill_runs(), ONCE, "the first drill", "none"),
        (paths.drill_run("RUN"), TRIMMED, "`dr-worker drill`", "the report, as `drill show --output json`"),
        (paths.history(), ONCE, FIRST, "none"),
        (
            paths.history_entry(0).replace(&format!("{:020}", 0), "TOKEN"),
            "persistent, trimmed",
            "the leader, together with READY",
            "`HistoryEntry`",
        ),
    ]
}

/// Those of an evacuation, which is about all elections of a root.
fn rows_of_evacuations() -> Vec<Row> {
    let paths = Paths::new("/ROOT", PLANS).unwrap();
    vec![
        (
            paths.evacuation(),
            "persistent, until the next evacuation",
            "`dr-worker evacuate`; the worker that carries it out",
            "`Evacuation`",
        ),
        (
            paths.drill_run("PLAN"),
            "persistent, until the next drill of the plan",
            "`dr-worker drill --plan`",
            "the report, as `drill show last --plan PLAN --output json`",
        ),
        (paths.evacuation_carrier(), WITH_SESSION, "the worker that carries it out", "the worker's id"),
    ]
}

/// The sources of the records, as paths in the workspace. Their fields and comments are the reference.
const RECORDS: [&str; 17] = [
    "crates/election-admin/src/record/breadcrumbs.rs",
    "crates/election-core/src/record/contender.rs",
    "crates/election-core/src/record/control.rs",
    "crates/election-core/src/record/current.rs",
    "apps/dr-worker/src/znodes/drill.rs",
    "apps/dr-worker/src/znodes/evacuation.rs",
    "crates/election-core/src/record/elected.rs",
    "crates/election-core/src/record/history.rs",
    "crates/election-core/src/record/applied.rs",
    "crates/election-core/src/record/member.rs",
    "crates/election-core/src/record/named.rs",
    "apps/dr-worker/src/znodes/halted.rs",
    "apps/dr-worker/src/znodes/overlay.rs",
    "crates/election-core/src/record/request.rs",
    "crates/election-admin/src/record/roster.rs",
    "crates/election-core/src/record/slot.rs",
    "crates/election-core/src/record/tokens.rs",
];

fn source(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

/// The fields of a record, or of a part of one: name, type, meaning. None if it has no fields.
fn fields(record: &str) -> Option<Vec<(String, String, String)>> {
    let head = format!("struct {record} {{\n");
    let text = RECORDS.iter().map(|path| source(path)).find(|text| text.contains(&head))?;
    let (body, _) = text.split_once(&head)?.1.split_once("\n}")?;
    let (mut found, mut comment, mut flat) = (Vec::new(), String::new(), false);
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            comment += text;
        } else if line == "#[serde(flatten)]" {
            flat = true;
        } else if let Some((name, kind)) = line
            .strip_prefix("pub ")
            .or_else(|| line.strip_prefix("pub(crate) "))
            .and_then(|line| line.split_once(": "))
        {
            let (comment, kind) = (std::mem::take(&mut comment), kind.trim_end_matches(','));
            if std::mem::take(&mut flat) {
                found.extend(fields(kind)?);
            } else {
                found.push((name.to_owned(), json(kind), plain(comment.trim())));
            }
        }
    }
    Some(found)
}

/// The types that a text names.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let names = text.split('`').skip(1).step_by(2);
    names.filter(|name| name.starts_with(|first: char| first.is_ascii_uppercase()))
}

/// The type of a field in JSON.
fn json(kind: &str) -> String {
    let inside = |of: &str| kind.strip_prefix(of)?.strip_suffix('>').map(str::to_owned);
    if let Some(kind) = inside("Option<") {
        return format!("{} or absent", json(&kind));
    }
    if let Some(kind) = inside("Vec<").or_else(|| inside("BTreeSet<")) {
        return format!("array of {}", json(&kind));
    }
    if let Some(kinds) = inside("BTreeMap<") {
        return format!("table of {}", json(kinds.split_once(", ").unwrap().1));
    }
    match kind {
        "i32" | "u32" | "u64" | "usize" | "i64" => "number".to_owned(),
        "bool" => "boolean".to_owned(),
        "String" | "MemberId" | "SiteId" | "Ballot" => "string".to_owned(),
        other => format!("`{other}`"),
    }
}

/// A comment without the targets of its links.
fn plain(comment: &str) -> String {
    let mut text = String::new();
    let mut parts = comment.split("](");
    text += parts.next().unwrap_or_default();
    for part in parts {
        text += part.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.replace("[`", "`").replace("`]", "`")
}

fn page() -> String {
    let paths = Paths::new("/ROOT", "JOB").unwrap();
    let rows = [rows(&paths), rows_of_reports(&paths), rows_of_evacuations()].concat();
    let mut page = "# Znodes\n\n\
        An election has these znodes below `zookeeper.root` (by default `/dr`) and the name of its job. Records are JSON with \
        their format version `v`; a program ignores fields that it does not know, and leaves a record of a later format alone. \
        Parents are created when they are needed. A recipe has only the znodes that it uses: `elector` all but `queue`, `queue` \
        and `single` no ballots, no members' records and no decision.\n\n\
        Do not change them by hand. `dr-worker` has a [command](commands.md) for each change, and \
        [election-core](../../crates/election-core/README.md#when-znodes-are-deleted) describes what happens when znodes are \
        deleted.\n\n\
        | path | exists | written by | data |\n|---|---|---|---|\n"
        .to_owned();
    for (path, exists, writer, data) in &rows {
        writeln!(page, "| `{path}` | {exists} | {writer} | {data} |").unwrap();
    }
    page += "\n## Records\n\nThe documentation of `election_core::internals::record` has the types that have no fields, such as a cause.\n";
    let mut records: Vec<String> =
        rows.iter().flat_map(|(.., data)| named(data)).map(str::to_owned).collect();
    let mut at = 0;
    while let Some(record) = records.get(at).cloned() {
        let is_known = records[..at].contains(&record);
        if let Some(fields) = fields(&record).filter(|_| !is_known) {
            write!(page, "\n### {record}\n\n| field | type | meaning |\n|---|---|---|\n").unwrap();
            for (name, kind, meaning) in fields {
                writeln!(page, "| `{name}` | {kind} | {meaning} |").unwrap();
                records.extend(named(&kind).map(str::to_owned));
            }
        }
        at += 1;
    }
    page
}

#[test]
fn the_reference_has_each_znode_and_the_fields_of_its_record() {
    compare("znodes.md", &page());
}

#[test]
fn the_reference_has_the_path_of_each_method() {
    let methods = source("crates/election-core/src/paths.rs") + include_str!("paths.rs");
    let methods = methods.replace("    pub fn ", "    fn ");
    let methods = methods.split("    fn ").skip(1).filter(|method| method.contains("-> String {"));
    let names: Vec<_> =
        methods.filter_map(|method| method.split_once("(&self")).map(|(name, _)| name).collect();
    assert!(names.len() > 20, "{names:?}");
    let rows = include_str!("reference.rs");
    // A ballot with its number is in the row of its prefix, as is a request.
    let missing: Vec<_> = names
        .into_iter()
        .filter(|name| {
            !rows.contains(&format!("paths.{name}(")) && !rows.contains(&format!("paths.{name}_prefix("))
        })
        .collect();
    assert!(missing.is_empty(), "no row for the path of {missing:?}");
}
