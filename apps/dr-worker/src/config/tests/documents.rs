//! The configuration in documents is what the loader accepts.

use super::*;

/// Blocks that this program alone does not accept, by a word after `toml`, and why.
const OTHERS: [(&str, &str); 1] =
    [("own-stage", "names a stage of another program, whose own test loads it")];

/// What a block without tables belongs to, by the word after `toml`.
const TABLES: [&str; 2] = ["job.orders", "policy"];

/// Each block in TOML: its place, the word after `toml`, its text.
fn blocks() -> Vec<(String, String, String)> {
    let root = config_dir().join("..");
    let mut pages = vec![root.join("README.md"), root.join("apps/dr-worker/README.md")];
    for directory in ["docs", "examples"] {
        for entry in fs::read_dir(root.join(directory)).unwrap() {
            let path = entry.unwrap().path();
            pages.push(if path.is_dir() { path.join("README.md") } else { path });
        }
    }
    pages.sort();
    let mut blocks = Vec::new();
    for page in pages.iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        let Ok(text) = fs::read_to_string(page) else { continue };
        let name = page.strip_prefix(&root).unwrap().display();
        for (at, _) in text.match_indices("\n```toml") {
            let (mark, rest) = text[at + "\n```toml".len()..].split_once('\n').unwrap();
            let (block, _) = rest.split_once("```").unwrap();
            let line = text[..at].lines().count() + 1;
            blocks.push((format!("{name}:{line}"), mark.trim().to_owned(), block.to_owned()));
        }
    }
    blocks
}

/// A small configuration around a block: a node of its first site, connected to the server that it prefers, with the measured
/// attribute and the other jobs that blocks name.
fn surroundings(block: &str) -> String {
    let first = |key: &str| {
        let (_, rest) = block.split_once(&format!("\n{key} = "))?;
        rest.split('"').nth(1)
    };
    // In a table of servers by their sites, a server is the first text.
    let listed = first("sites").filter(|site| !site.contains(':'));
    let own_site = format!("site = \"{}\"", listed.unwrap_or("east"));
    let site = first("site").filter(|_| block.contains("[node]")).map_or(own_site, |_| String::new());
    let connect = first("prefer").unwrap_or("127.0.0.1:2181");
    let jobs = ["orders", "db", "mq"].map(|job| format!("[job.{job}]\ncommand = [\"/bin/true\"]\n"));
    let policies = ["db", "mq"].map(|job| format!("[job.{job}.policy]\npipeline = [\"oldest-ballot\"]\n"));
    format!(
        "[node]\n{site}\nattributes = {{ lag = \"0\" }}\n[zookeeper]\nconnect = \"{connect}\"\n{}{}",
        jobs.concat(),
        policies.concat()
    )
}

/// Why the loader refuses a block with its surroundings.
fn refusal(block: &str) -> Option<Vec<String>> {
    let mut given = Given::file(&surroundings(block));
    given.add("z-page.toml", block);
    given.load().is_err().then(|| given.problems())
}

#[test]
fn the_configuration_in_documents_is_accepted() {
    let (blocks, mut refused) = (blocks(), Vec::new());
    assert!(blocks.len() > 50, "only {} blocks were found", blocks.len());
    for (place, mark, block) in blocks {
        let text = match mark.as_str() {
            "" => block,
            table if TABLES.contains(&table) => format!("[{table}]\n{block}"),
            other => {
                assert!(OTHERS.iter().any(|(mark, _)| *mark == other), "{place}: unknown mark {other:?}");
                assert!(refusal(&block).is_some(), "{place}: the mark {other:?} is not needed");
                continue;
            }
        };
        if let Some(problems) = refusal(&text) {
            refused.push(format!("{place}: {}", problems.join("; ")));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}
