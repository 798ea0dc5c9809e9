//! `cargo xtask book`: the documentation as a site, in `target/book`.
//!
//! The pages of the site are those of docs/SUMMARY.md. Some are outside of docs/, where mdBook can't read them. So the site is
//! made from a copy, in which each file has the path that it has in the workspace: the links between the files lead to the same
//! ones in the workspace, on a forge, and in the site.
#![forbid(unsafe_code)]

mod links;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail};
use mdbook_driver::MDBook;

use links::{Link, anchors, links};

const SUMMARY: &str = "docs/SUMMARY.md";

/// The argument is the target directory.
fn main() -> anyhow::Result<()> {
    let target =
        std::env::args_os().nth(1).context("no target directory is given; run `cargo xtask book`")?;
    let site = build(Path::new(&target))?;
    println!("{}", site.join("index.html").display());
    Ok(())
}

/// The root of the workspace.
fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

/// Makes the copy and the site, and returns the directory of the site.
fn build(target: &Path) -> anyhow::Result<PathBuf> {
    let book = Book::read(root())?;
    let problems = book.problems()?;
    if !problems.is_empty() {
        bail!("links that lead to nothing:\n{}", problems.join("\n"));
    }
    let (copy, site) = (target.join("book-src"), target.join("book"));
    remove(&copy)?;
    remove(&site)?;
    book.copy(&copy)?;
    let mut mdbook = MDBook::load(&copy)?;
    mdbook.config.build.build_dir.clone_from(&site);
    mdbook.build()?;
    let problems = site_problems(&site)?;
    if !problems.is_empty() {
        bail!("the site is wrong:\n{}", problems.join("\n"));
    }
    Ok(site)
}

fn remove(directory: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| directory.display().to_string())
        }
        _ => Ok(()),
    }
}

/// What a link of a page leads to.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    /// A page of the book.
    Page(PathBuf),
    /// A file that the site has too, as it is.
    File(PathBuf),
    /// Something that is no file of the workspace.
    Outside,
}

/// The pages, by their paths in the workspace.
struct Book {
    root: PathBuf,
    pages: Vec<PathBuf>,
}

impl Book {
    fn read(root: &Path) -> anyhow::Result<Self> {
        let mut book = Self { root: root.to_owned(), pages: Vec::new() };
        let summary = book.text(Path::new(SUMMARY))?;
        let all = links(&summary);
        // A heading without a page has an empty link.
        let pages = all.iter().filter(|link| !link.path.is_empty());
        book.pages = pages.map(|link| beside(Path::new(SUMMARY), &link.path)).collect();
        Ok(book)
    }

    fn text(&self, page: &Path) -> anyhow::Result<String> {
        fs::read_to_string(self.root.join(page)).with_context(|| page.display().to_string())
    }

    /// # Errors
    /// If it leads to nothing, or to what the site has not.
    fn target(&self, page: &Path, link: &Link) -> anyhow::Result<Target> {
        if link.is_outside() {
            return Ok(Target::Outside);
        }
        let mut path = if link.path.is_empty() { page.to_owned() } else { beside(page, &link.path) };
        if self.root.join(&path).is_dir() {
            path.push("README.md");
        }
        let is_page = self.pages.contains(&path);
        if !self.root.join(&path).is_file() {
            bail!("there is no {}", path.display());
        }
        let is_markdown = path.extension().is_some_and(|extension| extension == "md");
        if is_markdown && !is_page {
            bail!("{} is not in {SUMMARY}", path.display());
        }
        if let Some(anchor) = &link.anchor
            && is_markdown
            && !anchors(&self.text(&path)?).contains(anchor)
        {
            bail!("{} has no heading #{anchor}", path.display());
        }
        Ok(if is_page { Target::Page(path) } else { Target::File(path) })
    }

    /// What is wrong with the links of all pages.
    fn problems(&self) -> anyhow::Result<Vec<String>> {
        let mut problems = Vec::new();
        for page in &self.pages {
            let text = self.text(page)?;
            for link in links(&text) {
                if let Err(error) = self.target(page, &link) {
                    let line = text[..link.at.start].lines().count();
                    problems.push(format!("{}:{line}: {}: {error}", page.display(), &text[link.at]));
                }
            }
        }
        Ok(problems)
    }

    /// Copies the pages, and the files that they link to, with what mdBook asks for.
    fn copy(&self, to: &Path) -> anyhow::Result<()> {
        let sources = to.join("src");
        let mut files = BTreeSet::new();
        for page in &self.pages {
            let text = self.text(page)?;
            let mut copy = text.clone();
            for link in links(&text).into_iter().rev() {
                match self.target(page, &link)? {
                    Target::File(path) => drop(files.insert(path)),
                    // A forge shows a directory with its page.
                    Target::Page(_) if self.root.join(beside(page, &link.path)).is_dir() => {
                        copy.replace_range(
                            link.at,
                            &format!("{}/README.md", link.path.trim_end_matches('/')),
                        );
                    }
                    // An item of a crate is nowhere in the site.
                    Target::Outside if link.path.contains("::") => copy.replace_range(link.at, "#"),
                    Target::Page(_) | Target::Outside => {}
                }
            }
            write(&sources.join(page), &copy)?;
        }
        for file in files {
            let copy = sources.join(&file);
            fs::create_dir_all(copy.parent().context("a file without a directory")?)?;
            fs::copy(self.root.join(&file), copy).with_context(|| file.display().to_string())?;
        }
        let mut summary = self.text(Path::new(SUMMARY))?;
        for link in links(&summary).into_iter().rev().filter(|link| !link.path.is_empty()) {
            summary.replace_range(link.at, &beside(Path::new(SUMMARY), &link.path).display().to_string());
        }
        write(&sources.join("SUMMARY.md"), &summary)?;
        write(&to.join("book.toml"), &self.text(Path::new("book.toml"))?)
    }
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::create_dir_all(file.parent().context("a file without a directory")?)?;
    fs::write(file, text).with_context(|| file.display().to_string())
}

/// The path of a link, which is relative to its page.
fn beside(page: &Path, link: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

/// What a browser would not find, and what it would ask other hosts for.
fn site_problems(site: &Path) -> anyhow::Result<Vec<String>> {
    let mut problems = Vec::new();
    for file in html(site)? {
        let text = fs::read_to_string(&file)?;
        for tag in text.split('<').filter_map(|part| part.split_once('>').map(|(tag, _)| tag)) {
            for attribute in ["href=\"", "src=\""] {
                let Some((_, value)) = tag.split_once(attribute) else { continue };
                let value = value.split('"').next().unwrap_or_default();
                // A link to elsewhere is followed when it is clicked, all else when the page is shown.
                let is_elsewhere = value.contains("://");
                let path = value.split(['#', '?']).next().unwrap_or_default();
                let is_wrong = if tag.starts_with("base ") {
                    false
                } else if is_elsewhere {
                    !tag.starts_with("a ")
                } else {
                    let path = path.replace("%20", " ");
                    !path.is_empty() && !value.starts_with("data:") && !is_file(site, &file, &path)
                };
                if is_wrong {
                    let page = file.strip_prefix(site)?.display();
                    problems.push(format!("{page}: <{tag}>"));
                }
            }
        }
    }
    Ok(problems)
}

fn is_file(site: &Path, page: &Path, path: &str) -> bool {
    // The page for unknown paths is served from anywhere.
    let from = if path.starts_with('/') || page.ends_with("404.html") {
        site.join("index.html")
    } else {
        page.to_owned()
    };
    beside(&from, path.trim_start_matches('/')).is_file()
}

fn html(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(html(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "html") {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(directory: &Path, found: &mut BTreeSet<PathBuf>) -> anyhow::Result<()> {
        for entry in fs::read_dir(root().join(directory))? {
            let path = directory.join(entry?.file_name());
            if root().join(&path).is_dir() {
                below(&path, found)?;
            } else if path.extension().is_some_and(|extension| extension == "md")
                && path != Path::new(SUMMARY)
            {
                found.insert(path);
            }
        }
        Ok(())
    }

    #[test]
    fn every_document_is_in_the_book_once() -> anyhow::Result<()> {
        let book = Book::read(root())?;
        let pages: BTreeSet<_> = book.pages.iter().cloned().collect();
        assert_eq!(pages.len(), book.pages.len(), "{SUMMARY} names a page twice");
        let mut documents = BTreeSet::from(["README.md", "ARCHITECTURE.md"].map(PathBuf::from));
        below(Path::new("docs"), &mut documents)?;
        let missing: Vec<_> = documents.difference(&pages).collect();
        assert!(missing.is_empty(), "not in {SUMMARY}: {missing:?}");
        Ok(())
    }

    #[test]
    fn every_link_leads_to_something() -> anyhow::Result<()> {
        let problems = Book::read(root())?.problems()?;
        assert!(problems.is_empty(), "{}", problems.join("\n"));
        Ok(())
    }

    #[test]
    fn the_site_is_built_and_needs_no_other_host() -> anyhow::Result<()> {
        let target = tempfile::tempdir()?;
        let site = build(target.path())?;
        let pages = html(&site)?;
        assert!(pages.len() > Book::read(root())?.pages.len(), "only {} pages", pages.len());
        Ok(())
    }
}
