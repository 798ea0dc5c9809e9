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
const NOT_RUN: [(&str, &str); 13] = [
    ("README.md", "daemons, files of the host: tests/it/{dev,init}.rs, tests/tests/it/first_deployment.rs"),
    (
        "commands.md",
        "runs a job without ZooKeeper: tests/tests/it/lost_quorum.rs, tests/it/emergency_lead.rs",
    ),
    ("drills.md", "the system manager runs the timer: tests/tests/it/package.rs has it verify the unit"),
    ("evacuation.md", "moves every job: tests/it/evacuation.rs"),
    (
        "from-a-zookeeper-lock.md",
        "starts an ensemble: tests/tests/it/guides.rs does so, and types the single commands",
    ),
    ("http.md", "credentials: tests/it/http_control.rs, http_tls.rs"),
    ("install.md", "the system manager, modules of the kernel: tests/tests/{package,first_deployment}.rs"),
    ("lost-quorum.md", "the system manager: tests/tests/it/lost_quorum.rs types the command without it"),
    ("migrate.md", "needs two ensembles, and restarts services: tests/it/migrate.rs does both"),
    ("notifications.md", "needs a notification: tests/it/notify.rs runs the receiver that is beside it"),
    ("proofs.md", "runs other tests"),
    ("reliability.md", "cuts networks, as root, for minutes"),
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

/// The files below a directory whose names end so; no products of builds, and nothing hidden.
fn files(dir: &Path, end: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') && !path.is_symlink() {
            files(&path, end, found);
        } else if path.is_file() && name.ends_with(end) {
            found.push(path);
        }
    }
}

/// The directory of each package of the workspace.
fn packages() -> BTreeMap<String, PathBuf> {
    let mut manifests = Vec::new();
    files(&workspace(), "Cargo.toml", &mut manifests);
    let named = manifests.into_iter().filter_map(|manifest| {
        let text = fs::read_to_string(&manifest).unwrap();
        let name = text
            .lines()
            .find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"').map(str::to_owned));
        Some((name.filter(|_| text.contains("[package]"))?, manifest.parent().unwrap().to_owned()))
    });
    named.collect()
}

/// The directories with the sources of a package's test program of that name, or of its library; of all of them without a name.
fn programs(package: &Path, program: Option<&str>) -> Vec<PathBuf> {
    let declared = fs::read_to_string(package.join("Cargo.toml")).unwrap();
    let elsewhere = declared.split("[[test]]\nname = \"").skip(1).filter_map(|test| {
        let (name, rest) = test.split_once('"')?;
        let path = rest.split_once("path = \"")?.1.split_once('"')?.0;
        Some((name.to_owned(), package.join(path).parent()?.to_owned()))
    });
    let inside = fs::read_dir(package.join("tests")).into_iter().flatten().map(|entry| entry.unwrap().path());
    let inside = inside.filter(|path| path.join("main.rs").is_file());
    let inside = inside.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path));
    let all = elsewhere.chain(inside).chain([("lib".to_owned(), package.join("src"))]);
    all.filter(|(name, _)| program.is_none_or(|program| program == name)).map(|(_, path)| path).collect()
}

/// Whether a test of these sources has a name with this part: the path of its modules, and the name of its function. A function
/// that a macro makes a test counts, too, and so does a module that a macro makes.
fn has_test(sources: &Path, part: &str) -> bool {
    let mut all = Vec::new();
    if sources.is_dir() {
        files(sources, ".rs", &mut all);
    }
    let (module, part) = part.rsplit_once("::").map_or(("", part), |(module, part)| (module, part));
    all.iter().any(|path| {
        let text = fs::read_to_string(path).unwrap();
        let file = path.strip_prefix(sources).unwrap().with_extension("");
        let file = file.to_string_lossy().replace('/', "::");
        let functions =
            text.split("fn ").skip(1).filter_map(|rest| rest.split_once('(')).map(|(name, _)| name);
        let modules =
            text.lines().filter_map(|line| line.trim_start().strip_prefix("mod ")?.strip_suffix(" {"));
        let is_here = |module: &str| {
            MADE.contains(&module) || file.contains(module) || text.contains(&format!("mod {module} {{"))
        };
        module.split("::").all(is_here)
            && functions.chain(modules).chain([file.as_str()]).any(|name| name.contains(part))
    })
}

/// The modules that macros make: one for each driver.
const MADE: [&str; 1] = ["native"];

/// The commands that run tests, in a document: as words.
fn test_commands(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for name in ["cargo test", "cargo xtask test"] {
        for (at, _) in text.match_indices(name) {
            let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
            let is_inline = text[line..at].matches('`').count() % 2 == 1;
            let rest = &text[at + name.len()..];
            let end = if is_inline { rest.find('`') } else { rest.find(['\n', '#', '`']) };
            let rest = &rest[..end.unwrap_or(rest.len())];
            let words = rest.split_whitespace().map(str::to_owned);
            found.push([name.to_owned()].into_iter().chain(words.take_while(|word| word != "-->")).collect());
        }
    }
    found
}

/// Why this command runs no test.
fn no_test(words: &[String], packages: &BTreeMap<String, PathBuf>) -> Option<String> {
    let (mut package, mut program, mut filters) = (None, None, Vec::new());
    let mut rest = words[1..].iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-p" | "--package" => package = rest.next(),
            "--test" => program = rest.next().map(String::as_str),
            "--lib" => program = Some("lib"),
            "--features" | "--skip" | "--zookeeper" => drop(rest.next()),
            // What its reader puts in.
            option if option.starts_with('-') || option.chars().all(|c| c.is_ascii_uppercase()) => {}
            filter => filters.push(filter),
        }
    }
    let dirs: Vec<_> = match package {
        None => packages.values().collect(),
        Some(package) => match packages.get(package) {
            Some(dir) => vec![dir],
            None => return Some(format!("no package {package}")),
        },
    };
    let programs: Vec<_> = dirs.iter().flat_map(|dir| programs(dir, program)).collect();
    if programs.is_empty() {
        return Some(format!("no test program {}", program.unwrap_or_default()));
    }
    let is_ours = |filter: &str| {
        words[0] == "cargo xtask test" && (packages.contains_key(filter) || workspace().join(filter).exists())
    };
    let missing = filters
        .into_iter()
        .find(|filter| !is_ours(filter) && !programs.iter().any(|dir| has_test(dir, filter)));
    missing.map(|filter| format!("no test {filter}"))
}

#[test]
fn each_command_that_runs_tests_names_some() {
    let (packages, mut documents) = (packages(), Vec::new());
    files(&workspace(), ".md", &mut documents);
    // It is about the past.
    documents.retain(|path| !path.ends_with("CHANGELOG.md"));
    let (mut wrong, mut count) = (Vec::new(), 0);
    for path in documents {
        for words in test_commands(&fs::read_to_string(&path).unwrap()) {
            count += 1;
            let why = no_test(&words, &packages);
            wrong.extend(why.map(|why| format!("{}: {}: {why}", path.display(), words.join(" "))));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 40, "only {count} commands were found");

    for (command, why) in [
        ("`cargo test -p nobody`", "no package nobody"),
        ("`cargo test -p e2e --test that`", "no test program that"),
        ("`cargo test -p dr-worker --test it\ndocuments::no_such`", "no test documents::no_such"),
        ("cargo xtask test tests/no.rs # why", "no test tests/no.rs"),
    ] {
        assert_eq!(no_test(&test_commands(command)[0], &packages).as_deref(), Some(why), "{command}");
    }
}

/// Sources that a document names in backquotes, such as the file of the test that shows what it says.
#[test]
fn each_source_file_that_is_named_is_there() {
    let (mut sources, mut documents) = (Vec::new(), Vec::new());
    files(&workspace(), ".rs", &mut sources);
    files(&workspace(), ".md", &mut documents);
    documents.retain(|path| !path.ends_with("CHANGELOG.md"));
    let named = |text: &str| -> BTreeSet<PathBuf> {
        let code = text.split('`').skip(1).step_by(2);
        code.filter(|code| code.ends_with(".rs") && !code.contains([' ', '{', '*']))
            .map(PathBuf::from)
            .collect()
    };
    let (mut missing, mut count) = (Vec::new(), 0);
    for path in documents {
        for name in named(&fs::read_to_string(&path).unwrap()) {
            count += 1;
            let is_there = sources.iter().any(|source| source.ends_with(name.components().as_path()));
            missing.extend((!is_there).then(|| format!("{}: {}", path.display(), name.display())));
        }
    }
    assert!(missing.is_empty(), "no such file:\n{}", missing.join("\n"));
    assert!(count > 60, "only {count} names were found");
}
