//! What `init` has to know, and the configuration that it makes of it. No I/O.

use clap::Args;
use strategies::Registry;
use toml_edit::{Array, Key, Value};

use crate::config::{Config, Sources};

/// The settings of a minimal configuration, as options; `None` where none is known yet.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Answers {
    /// Unique id of this worker [default: the host name].
    #[arg(long)]
    id: Option<String>,
    /// Site of this worker.
    #[arg(long)]
    site: Option<String>,
    /// All sites, in order of preference: east,west.
    ///
    /// Default: no site is preferred.
    #[arg(long)]
    sites: Option<String>,
    /// Who follows a failed leader [default: other-site].
    ///
    /// other-site, same-site-first, or prefer-order: by the order of sites.
    #[arg(long, value_name = "RULE")]
    on_leader_failure: Option<String>,
    /// ZooKeeper servers, as host:port, separated by commas.
    #[arg(long, value_name = "SERVERS")]
    connect: Option<String>,
    /// Parent znode of all elections [default: /dr].
    #[arg(long, value_name = "PATH")]
    root: Option<String>,
    /// Name of the job.
    #[arg(long)]
    job: Option<String>,
    /// Program of the job with its arguments.
    ///
    /// In one string, with quotes as in a shell: "/usr/bin/job --fast".
    #[arg(long, value_name = "LINE", allow_hyphen_values = true)]
    command: Option<String>,
    /// Address of the HTTP endpoints.
    ///
    /// Default: 127.0.0.1:7080.
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
}

/// A setting that `init` can ask for.
pub(super) struct InitQuestion {
    /// The option that answers it.
    pub(super) option: &'static str,
    pub(super) prompt: &'static str,
    /// What an empty line means; `None` where an answer is needed.
    pub(super) usual: Option<fn() -> String>,
    pub(super) answer: fn(&mut Answers) -> &mut Option<String>,
}

/// In the order in which they are asked.
pub(super) const QUESTIONS: [InitQuestion; 8] = [
    InitQuestion {
        option: "--id",
        prompt: "Id of this worker, unique among all workers",
        usual: Some(|| crate::config::host_name().unwrap_or_default()),
        answer: |answers| &mut answers.id,
    },
    InitQuestion {
        option: "--site",
        prompt: "Site of this worker, such as east",
        usual: None,
        answer: |answers| &mut answers.site,
    },
    InitQuestion {
        option: "--sites",
        prompt: "All sites in order of preference, such as east,west (empty: no site is preferred)",
        usual: Some(String::new),
        answer: |answers| &mut answers.sites,
    },
    InitQuestion {
        option: "--on-leader-failure",
        prompt: "Who follows a failed leader: other-site, same-site-first, or prefer-order (by the order of sites)",
        usual: Some(|| OTHER_SITE.to_owned()),
        answer: |answers| &mut answers.on_leader_failure,
    },
    InitQuestion {
        option: "--connect",
        prompt: "ZooKeeper servers, such as zk1:2181,zk2:2181,zk3:2181",
        usual: None,
        answer: |answers| &mut answers.connect,
    },
    InitQuestion {
        option: "--root",
        prompt: "Parent znode of all elections, the same on all nodes",
        usual: Some(|| ROOT.to_owned()),
        answer: |answers| &mut answers.root,
    },
    InitQuestion {
        option: "--job",
        prompt: "Name of the job, the same on all nodes",
        usual: None,
        answer: |answers| &mut answers.job,
    },
    InitQuestion {
        option: "--command",
        prompt: "Program of the job and its arguments",
        usual: None,
        answer: |answers| &mut answers.command,
    },
];

const ROOT: &str = "/dr";
const OTHER_SITE: &str = "other-site";

impl Answers {
    /// What makes the answers unusable, as sentences. Answers that are not known yet are no problem.
    pub(super) fn problems(&self, registry: &Registry) -> Vec<String> {
        let mut found = Vec::new();
        if self.command.as_deref().is_some_and(|line| shlex::split(line).is_none()) {
            found.push("the command has a quote without an end".to_owned());
        }
        let sets = self.settings().into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        let sources = Sources { sets, registry: registry.clone(), ..Sources::default() };
        let checked = Config::load(&sources).and_then(|config| config.check_node());
        if let Err(problems) = checked {
            // A problem without a key reports that no file was read.
            let with_key = problems
                .iter()
                .filter_map(|problem| problem.key.as_ref().map(|key| format!("{key}: {}", problem.message)));
            found.extend(with_key);
        }
        found
    }

    /// Key and value of each, with valid values in place of missing ones.
    fn settings(&self) -> Vec<(String, Value)> {
        let or = |answer: &Option<String>, usual: &str| answer.as_deref().unwrap_or(usual).to_owned();
        let job = Key::new(or(&self.job, "job"));
        let mut settings = vec![
            ("node.site".to_owned(), or(&self.site, self.sites().first().map_or("site", |site| site)).into()),
            ("zookeeper.connect".to_owned(), or(&self.connect, "127.0.0.1:2181").into()),
            ("zookeeper.root".to_owned(), or(&self.root, ROOT).into()),
            ("policy.sites".to_owned(), array(&self.sites())),
            ("policy.on_leader_failure".to_owned(), or(&self.on_leader_failure, OTHER_SITE).into()),
            (
                format!("job.{job}.command"),
                array(&self.words().unwrap_or_else(|| vec!["/bin/sh".to_owned()])),
            ),
        ];
        for (key, answer) in [("node.id", &self.id), ("http.listen", &self.listen)] {
            settings.extend(answer.clone().map(|text| (key.to_owned(), text.into())));
        }
        settings
    }

    fn sites(&self) -> Vec<String> {
        let sites = self.sites.as_deref().unwrap_or_default().split(',').map(str::trim);
        sites.filter(|site| !site.is_empty()).map(str::to_owned).collect()
    }

    fn words(&self) -> Option<Vec<String>> {
        self.command.as_deref().and_then(shlex::split)
    }

    /// The file, in which every answer is a setting.
    pub(super) fn file(&self, program: &str) -> String {
        let text = |answer: &Option<String>| Value::from(answer.as_deref().unwrap_or_default()).to_string();
        let (id, site, connect, root) =
            (text(&self.id), text(&self.site), text(&self.connect), text(&self.root));
        let job = Key::new(self.job.as_deref().unwrap_or_default());
        let command = array(&self.words().unwrap_or_default());
        let sites = match self.sites() {
            none if none.is_empty() => "# sites = []".to_owned(),
            sites => format!("sites = {}", array(&sites)),
        };
        let on_leader_failure = Value::from(self.on_leader_failure.as_deref().unwrap_or(OTHER_SITE));
        let listen = match &self.listen {
            None => r#"# listen = "127.0.0.1:7080""#.to_owned(),
            Some(listen) => format!("listen = {}", Value::from(listen.as_str())),
        };
        format!(
            r#"# Configuration of a worker, written by `{program} init`.
# A key behind '#' shows its default. `{program} config check` prints all errors, `{program} config show` prints each
# value with its source, and `{program} config schema` describes every key.

# This worker.
[node]
# Unique id: a second worker with the same id exits with code 75 while the first one lives.
id = {id}

# Site of this worker.
site = {site}

# Directory for locks and the records of running jobs. It must be on a local disk.
# state_dir = "/var/lib/dr-worker"

[zookeeper]
# All servers of the ensemble, as host:port, separated by commas.
connect = {connect}

# Parent znode of all elections. The same on all nodes.
root = {root}

# Session timeout. A lost host is replaced after this time. It must leave room to stop the job.
# session_timeout = "10s"

# tickTime in the servers' zoo.cfg. A value that is too small makes the lease unsafe.
# tick_time = "2s"

[http]
# Address of the HTTP endpoints: /leader, /status, /metrics and others. Each worker of a host has a port of its own.
{listen}

# Where leadership should be, and when it moves. The same on all nodes.
[policy]
# Sites in order of preference. Empty: no site is preferred.
{sites}

# Who follows a failed leader: "other-site" (another site first, also where the preferred site has a healthy member),
# "same-site-first", or "prefer-order" (by the order of sites).
on_leader_failure = {on_leader_failure}

# Automatic moves to a better member while the leader is fit: "none", "in-site" or "all".
# auto_moves = "none"

# The program that runs on the leader only. More jobs: more sections [job.NAME].
[job.{job}]
# Program and arguments; no shell.
command = {command}

# Signal that asks the job to end, and how long it may take. Then its whole process tree is killed.
# stop_signal = "SIGTERM"
# stop_timeout = "2s"

# When the job counts as serving: kind "none", "exec", "http", "tcp" or "notify".
# ready = {{ kind = "none" }}

# Whether the resource that the job writes to refuses fencing tokens older than the newest it has seen.
# fenced = false
"#
        )
    }
}

fn array(words: &[String]) -> Value {
    Value::Array(words.iter().map(String::as_str).collect::<Array>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers() -> Answers {
        let text = |text: &str| Some(text.to_owned());
        Answers {
            id: text("east-1"),
            site: text("east"),
            sites: text("east, west"),
            on_leader_failure: text("same-site-first"),
            connect: text("zk1:2181,zk2:2181"),
            root: text("/dr"),
            job: text("orders"),
            command: text(r#"/bin/sh -c 'echo "a \ b"'"#),
            listen: None,
        }
    }

    fn load(text: &str) -> Config {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("worker.toml");
        std::fs::write(&file, text).expect("a file");
        Config::load(&Sources { paths: vec![file], ..Sources::default() }).expect("a valid file")
    }

    /// Every value, whatever it came from.
    fn values(config: &Config) -> Vec<(String, String)> {
        config.shown().iter().map(|shown| (shown.key.clone(), shown.value.clone())).collect()
    }

    #[test]
    fn the_file_has_each_answer() {
        let strange = Answers { job: Some("orders.eu".into()), id: Some("1".into()), ..answers() };
        for answers in
            [answers(), Answers { sites: None, listen: Some("[::1]:0".into()), ..answers() }, strange]
        {
            let config = load(&answers.file("dr-worker"));
            assert_eq!(Some(config.node.id.to_string()), answers.id);
            assert_eq!(Some(config.zookeeper.connect.clone()), answers.connect);
            let job = &config.jobs[0];
            assert_eq!(Some(job.name().to_owned()), answers.job);
            assert_eq!(job.spec.command, ["/bin/sh", "-c", r#"echo "a \ b""#]);
            let sites: Vec<_> = job.policy.who.site_policy.sites.iter().map(|site| site.as_str()).collect();
            assert_eq!(sites, if answers.sites.is_some() { &["east", "west"][..] } else { &[] });
            assert_eq!(config.http.listen.to_string(), answers.listen.unwrap_or("127.0.0.1:7080".into()));
        }
    }

    #[test]
    fn keys_behind_a_hash_show_their_defaults() {
        let file = answers().file("dr-worker");
        let is_key = |line: &&str| line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
        let uncommented: Vec<_> =
            file.lines().map(|line| line.strip_prefix("# ").filter(is_key).unwrap_or(line)).collect();
        let uncommented = uncommented.join("\n");
        assert!(
            uncommented.contains("\nstate_dir = ") && uncommented.contains("\nready = "),
            "{uncommented}"
        );
        assert_eq!(values(&load(&uncommented)), values(&load(&file)));
    }

    #[test]
    fn problems_are_those_of_the_known_answers() {
        let problems = |answers: &Answers| answers.problems(&Registry::default());
        assert_eq!(problems(&Answers::default()), [""; 0]);
        assert_eq!(problems(&answers()), [""; 0]);
        for (wrong, part) in [
            (Answers { connect: Some("zk1:port".into()), ..Answers::default() }, "zookeeper.connect: "),
            (Answers { command: Some("/no/such --x".into()), ..Answers::default() }, "command: /no/such"),
            (Answers { command: Some("sh -c 'x".into()), ..Answers::default() }, "a quote without an end"),
            (Answers { command: Some(String::new()), ..Answers::default() }, "command: "),
            (Answers { site: Some("north".into()), ..answers() }, "not in the order of sites"),
            (Answers { job: Some("a/b".into()), ..Answers::default() }, "a/b"),
            (Answers { id: Some("a/b".into()), ..Answers::default() }, "node.id: "),
            (Answers { listen: Some("7080".into()), ..Answers::default() }, "http.listen: "),
        ] {
            let found = problems(&wrong);
            assert!(matches!(&found[..], [one] if one.contains(part)), "{wrong:?}: {found:?}");
        }
    }
}
