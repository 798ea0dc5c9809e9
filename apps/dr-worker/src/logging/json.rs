//! The JSON form of the log: each line has the member and the site, and a line about a job has `job` and, while this
//! member leads it, `term`, as a number.

use std::{collections::BTreeMap, fmt, sync::OnceLock};

use parking_lot::Mutex;
use serde_json::{Map, Value};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{Format, Json, Writer},
    },
    registry::LookupSpan,
};

/// Whose log it is.
static NODE: OnceLock<LoggingNode> = OnceLock::new();

struct LoggingNode {
    member: String,
    site: String,
    /// The jobs, with the term of those that this member leads.
    jobs: Mutex<BTreeMap<String, Option<u64>>>,
}

impl LoggingNode {}

/// Adds this member to all further lines. Only the first call counts.
pub(crate) fn identify<'a>(member: &str, site: &str, jobs: impl Iterator<Item = &'a str>) {
    NODE.get_or_init(|| LoggingNode {
        member: member.to_owned(),
        site: site.to_owned(),
        jobs: Mutex::new(jobs.map(|job| (job.to_owned(), None)).collect()),
    });
}

/// Adds the term to further lines about a job; `None`: this member does not lead it.
pub(crate) fn set_term(job: &str, term: Option<u64>) {
    if let Some(node) = NODE.get()
        && let Some(known) = node.jobs.lock().get_mut(job)
    {
        *known = term;
    }
}

/// `tracing-subscriber`'s format, with these fields after the level.
pub(super) struct Labelled(pub(super) Format<Json>);

impl<S, N> FormatEvent<S, N> for Labelled
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        let level = format!("\"level\":\"{}\",", event.metadata().level());
        let Some((node, at)) = NODE.get().zip(line.find(&level)) else { return writer.write_str(&line) };
        let (before, after) = line.split_at(at + level.len());
        let labels = Value::Object(labels(node, event)).to_string();
        // Without the braces.
        let labels = labels.get(1..labels.len() - 1).unwrap_or_default();
        write!(writer, "{before}{labels},{after}")
    }
}

/// The fields that the event itself does not have.
fn labels(node: &LoggingNode, event: &Event<'_>) -> Map<String, Value> {
    let mut about = About::default();
    event.record(&mut about);
    let mut labels = Map::new();
    labels.insert("member".to_owned(), node.member.clone().into());
    labels.insert("site".to_owned(), node.site.clone().into());
    let jobs = node.jobs.lock();
    let job = about.job.as_ref().or(about.election.as_ref());
    if let Some((job, term)) = job.and_then(|job| jobs.get_key_value(job)) {
        if about.job.is_none() {
            labels.insert("job".to_owned(), job.clone().into());
        }
        if let Some(term) = term.filter(|_| !about.has_term) {
            labels.insert("term".to_owned(), term.into());
        }
    }
    labels
}

/// What an event says about a job.
#[derive(Default)]
struct About {
    job: Option<String>,
    election: Option<String>,
    has_term: bool,
}

impl Visit for About {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "job" => self.job = Some(value.to_owned()),
            "election" => self.election = Some(value.to_owned()),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "term" => self.has_term = true,
            // `%job`
            "job" => self.job = Some(format!("{value:?}")),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs, io,
        path::{Path, PathBuf},
        sync::Arc,
    };

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Lines {
        type Writer = Lines;

        fn make_writer(&'a self) -> Lines {
            self.clone()
        }
    }

    #[test]
    fn a_line_has_each_label_once_and_with_its_type() {
        identify("east-1", "east", ["orders", "bills"].into_iter());
        set_term("orders", Some(7));
        set_term("unknown", Some(9));
        let lines = Lines::default();
        let format = Labelled(tracing_subscriber::fmt::format().json().flatten_event(true));
        let layer = tracing_subscriber::fmt().json().event_format(format).with_writer(lines.clone());
        tracing::subscriber::with_default(layer.finish(), || {
            tracing::info!("no job; \"level\":\"INFO\",");
            tracing::info!(job = "orders", "of a leader");
            tracing::info!(election = "orders", "of the election");
            tracing::info!(election = "another", "of another election");
            tracing::info!(job = "bills", "of a follower");
            tracing::warn!(job = "orders", term = 6_u64, "of an earlier term");
        });
        let lines = String::from_utf8(lines.0.lock().clone()).expect("text");
        let read = |line: &str| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            assert_eq!((&line["member"], &line["site"]), (&"east-1".into(), &"east".into()), "{line}");
            (line["job"].clone(), line["term"].clone())
        };
        let expected = [
            (Value::Null, Value::Null),
            ("orders".into(), 7.into()),
            ("orders".into(), 7.into()),
            (Value::Null, Value::Null),
            ("bills".into(), Value::Null),
            ("orders".into(), 6.into()),
        ];
        assert_eq!(lines.lines().map(read).collect::<Vec<_>>(), expected, "{lines}");
        assert_eq!(lines.lines().last().map(|line| line.matches("\"term\"").count()), Some(1));
    }

    /// Calls `read` with each source below this directory.
    fn each_source(of: &Path, read: &mut impl FnMut(&Path, &str)) {
        for entry in fs::read_dir(of).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                each_source(&path, read);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                read(&path, &fs::read_to_string(&path).expect("a source"));
            }
        }
    }

    #[test]
    fn no_event_has_a_field_with_the_name_of_a_label_of_the_member() {
        let workspace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut number = 0;
        let mut check = |path: &Path, source: &str| {
            for event in source.split("tracing::").skip(1) {
                let Some((level, fields)) = event.split_once("!(") else { continue };
                if !["trace", "debug", "info", "warn", "error"].contains(&level) {
                    continue;
                }
                number += 1;
                // Up to the sentence.
                let fields = fields.split('"').next().unwrap_or_default();
                for field in fields.split(',').map(|field| field.split('=').next().unwrap_or_default().trim())
                {
                    let field = field.trim_start_matches(['%', '?']);
                    assert!(!["member", "site"].contains(&field), "{}: {field}", path.display());
                }
            }
        };
        each_source(&workspace.join("apps/dr-worker/src"), &mut check);
        for entry in fs::read_dir(workspace.join("crates")).expect("a directory") {
            each_source(&entry.expect("an entry").path().join("src"), &mut check);
        }
        assert!(number > 100, "{number}");
    }
}
