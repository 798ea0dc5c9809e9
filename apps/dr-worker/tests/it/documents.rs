//! The shell commands of the documents of this program. Each block in `sh` is run here on two workers, or is a file, or is marked
//! `no-run`, with the reason here. Each block in `console` is typed by the test that is named here. The znodes that the commands
//! leave are those of the reference.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::support::{
    Outcome, dr_worker,
    stage::{Stage, leads},
    until,
};

/// Blocks that are not run: their document, why, and what is done instead.
const NOT_RUN: [(&str, &str); 7] = [
    (
        "README.md",
        "daemons, files of the host, credentials: tests/{dev,init,emergency_lead,http_control,http_tls}.rs",
    ),
    ("drills.md", "the system manager runs the timer: tests/tests/it/package.rs has it verify the unit"),
    (
        "from-a-zookeeper-lock.md",
        "starts an ensemble: tests/tests/it/guides.rs does so, and types the single commands",
    ),
    ("install.md", "the system manager, modules of the kernel: tests/tests/{package,first_deployment}.rs"),
    ("notifications.md", "needs a notification: tests/it/notify.rs runs the receiver that is beside it"),
    ("proofs.md", "runs other tests"),
    ("shapes.md", "runs other tests"),
];

/// Who types the blocks in `console` of a document.
const TYPED: [(&str, &str); 9] = [
    ("explain.md", "apps/dr-worker/src/operator/explain_tests.rs"),
    ("first-deployment.md", "tests/tests/it/first_deployment.rs"),
    ("from-a-zookeeper-lock.md", "tests/tests/it/guides.rs"),
    ("from-cron.md", "tests/tests/it/guides.rs"),
    ("from-keepalived.md", "tests/tests/it/guides.rs"),
    ("from-pacemaker.md", "tests/tests/it/guides.rs"),
    ("from-patroni.md", "tests/tests/it/guides.rs"),
    ("lost-quorum.md", "tests/tests/it/lost_quorum.rs"),
    ("tutorial.md", "tests/tests/it/first_deployment.rs"),
];

/// Commands that may end with another code than 0: `doctor` finds that the server of the test is no Apache ZooKeeper.
const FINDS: [&str; 2] = ["doctor", "config check --online"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A block of a document: what is after the three backquotes, and its text.
struct Block {
    head: String,
    text: String,
}

impl Block {
    /// Whether its lines are typed here. Otherwise it is a file, is marked, or is typed by another test.
    fn is_run(&self) -> bool {
        self.head == "sh" && !self.text.starts_with("#!")
    }
}

/// The blocks of each document, by its name.
fn documents() -> BTreeMap<String, Vec<Block>> {
    let mut paths: Vec<_> =
        fs::read_dir(workspace().join("docs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.push(workspace().join("apps/dr-worker/README.md"));
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    let blocks = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        // Every other part is between two blocks.
        let parts = text.split("\n```").skip(1).step_by(2);
        let blocks = parts.map(|part| {
            let (head, text) = part.split_once('\n').unwrap();
            Block { head: head.to_owned(), text: text.to_owned() }
        });
        (path.file_name().unwrap().to_string_lossy().into_owned(), blocks.collect())
    };
    paths.into_iter().map(blocks).collect()
}

#[test]
fn each_block_is_run_or_has_a_reason() {
    let documents = documents();
    let with = |head: &str| -> BTreeSet<&str> {
        let has = |blocks: &[Block]| blocks.iter().any(|block| block.head == head);
        documents.iter().filter(|(_, blocks)| has(blocks)).map(|(name, _)| name.as_str()).collect()
    };
    assert_eq!(with("sh no-run"), NOT_RUN.iter().map(|(name, _)| *name).collect());
    assert_eq!(with("console"), TYPED.iter().map(|(name, _)| *name).collect());
    for (document, test) in TYPED {
        let source = fs::read_to_string(workspace().join(test)).unwrap();
        let name = document.trim_end_matches(".md");
        assert!(source.contains(name), "{test} does not name {document}");
    }
    for (name, blocks) in &documents {
        for block in blocks {
            let language = block.head.split(' ').next().unwrap();
            let is_known = !["sh", "console"].contains(&language)
                || ["sh", "sh no-run", "console"].contains(&&*block.head);
            assert!(is_known, "{name}: unknown mark: {}", block.head);
        }
    }
}

#[test]
fn scripts_in_documents_are_scripts() {
    for (name, blocks) in documents() {
        for block in blocks.iter().filter(|block| block.head.starts_with("sh")) {
            let mut shell = Command::new("sh").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
            // bash has process substitution, which is for the reader's own shell.
            let text = block.text.replace("<(", "$(");
            shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
            assert!(shell.wait().unwrap().success(), "{name}:\n{}", block.text);
        }
    }
}

/// The settings as variables of the environment.
fn variables(settings: &[&str]) -> Vec<(String, String)> {
    let variable = |setting: &&str| {
        let (key, value) = setting.split_once('=').unwrap();
        (format!("DR_WORKER__{}", key.replace('.', "__").to_uppercase()), value.to_owned())
    };
    settings.iter().map(variable).collect()
}

/// The rows of docs/reference/znodes.md: the path below the job's, and whether the znode is ephemeral.
fn reference() -> Vec<(String, bool)> {
    let page = fs::read_to_string(workspace().join("docs/reference/znodes.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `/ROOT/JOB"));
    rows.map(|row| {
        let (path, rest) = row.split_once("` | ").unwrap();
        (path.to_owned(), rest.starts_with("ephemeral"))
    })
    .collect()
}

/// Whether a path is one of these: capital letters are for what differs.
fn is_path_of(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<_>, Vec<_>) = (pattern.split('/').collect(), path.split('/').collect());
    let is_name_of =
        |(pattern, name): (&&str, &&str)| match pattern.find(|symbol: char| symbol.is_uppercase()) {
            Some(fixed) => name.len() > fixed && name.starts_with(&pattern[..fixed]),
            None => pattern == name,
        };
    pattern.len() == path.len() && pattern.iter().zip(&path).all(is_name_of)
}

/// All znodes of a job are in the reference, and are of the kind that it has for them.
fn is_in_reference(root: &str) {
    let (reference, top) = (reference(), format!("{root}/orders"));
    let found = Stage::with_session(async |session| {
        let (mut found, mut paths) = (Vec::new(), vec![top.clone()]);
        while let Some(path) = paths.pop() {
            // One that is trimmed meanwhile is passed over.
            let Some(children) = session.children(&path).await.unwrap() else { continue };
            paths.extend(children.names.iter().map(|name| format!("{path}/{name}")));
            found.push((path[top.len()..].to_owned(), children.stat.ephemeral_owner != 0));
        }
        found
    });
    assert!(found.len() > 8, "{found:?}");
    for (path, is_ephemeral) in found {
        let row = reference.iter().find(|(pattern, _)| is_path_of(pattern, &path));
        assert_eq!(
            row.map(|(_, ephemeral)| *ephemeral),
            Some(is_ephemeral),
            "docs/reference/znodes.md: {path}"
        );
    }
}

/// The commands of a document that are typed on a node of two. The job is not yet where they move it.
fn run(name: &str, blocks: &[Block], root: &'static str) {
    let stage = Stage::new(root);
    let to_east = blocks.iter().any(|block| block.is_run() && block.text.contains("--to-site east"));
    let sites = if to_east { ["west", "east"] } else { ["east", "west"] };
    let order = format!("policy.sites={sites:?}");
    // Room for the longest stop that a document configures.
    let settings = [order.as_str(), "policy.min_tenure=0s", "zookeeper.session_timeout=10s"];
    let members = sites.map(|site| format!("{site}-1"));
    let first = stage.worker(&members[0], sites[0], &settings);
    until("the first one leads", || leads(&first));
    let second = stage.worker(&members[1], sites[1], &settings);
    until("the second one is standby", || second.code("/standby") == 200);

    let here = stage.dir.path();
    for block in blocks.iter().filter(|block| block.head.starts_with("toml")) {
        let first = block.text.lines().next().unwrap_or_default();
        if let Some((file, _)) = first.strip_prefix("# ").and_then(|rest| rest.split_once(".toml")) {
            fs::write(here.join(file).with_extension("toml"), &block.text).unwrap();
        }
    }
    let node = stage.worker_command(&members[0], sites[0], &settings);
    let arguments: Vec<_> = node.get_args().map(|argument| argument.to_str().unwrap()).collect();
    let settings: Vec<_> = arguments.into_iter().filter(|argument| *argument != "--set").collect();
    let program = dr_worker();
    let programs = Path::new(program.get_program()).parent().unwrap();
    for block in blocks.iter().filter(|block| block.is_run()) {
        for line in block.text.lines() {
            let mut shell = Command::new("sh");
            for (name, value) in program.get_envs() {
                match value {
                    Some(value) => shell.env(name, value),
                    None => shell.env_remove(name),
                };
            }
            let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
            shell.args(["-c", line]).current_dir(here).env("PATH", path).envs(variables(&settings));
            let outcome = Outcome::of(shell.stdin(Stdio::null()));
            let finds = FINDS.iter().any(|verb| line.contains(verb));
            let is_fine = outcome.code == Some(0) || finds && outcome.code == Some(1);
            assert!(is_fine, "{name}: {line}: {:?}\n{}{}", outcome.code, outcome.stdout, outcome.stderr);
        }
    }
    is_in_reference(root);
}

#[test]
fn the_commands_of_documents_run() {
    let documents = documents();
    let run_here = documents.iter().filter(|(_, blocks)| blocks.iter().any(Block::is_run));
    let run_here: Vec<_> = run_here.collect();
    assert!(run_here.len() >= 4, "only {} documents have commands to run", run_here.len());
    // A drill takes its time.
    std::thread::scope(|scope| {
        for (name, blocks) in run_here {
            let root = format!("/{}", name.trim_end_matches(".md")).leak();
            scope.spawn(|| run(name, blocks, root));
        }
    });
}
