//! The documentation as a site: the order of the pages, as docs/README.md has it, and the folder that mdBook builds.
//!
//! Pages keep their paths, so that links between them stay. `README.md` becomes `index.md`, the name of a folder's page on a site. A link to
//! a file that is no page leads to the repository.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::{links, source};

const INDEX: &str = "docs/README.md";
/// The first page of the site.
const FRONT: &str = "README.md";
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// A page with its title in the list of pages.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Page {
    title: String,
    /// From the root of the repository.
    path: PathBuf,
    /// The other pages of the folder, if this one is its README.
    below: Vec<Page>,
}

/// A section of the index.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    title: String,
    pages: Vec<Page>,
}

/// Fails if a page of docs is missing in the index, or stands there twice.
pub(crate) fn check(root: &Path) -> Result<()> {
    let parts = parts(root)?;
    let faults = faults(&parts, &source::pages(root, "docs")?.into_keys().collect());
    ensure!(faults.is_empty(), "{INDEX}:\n  {}", faults.join("\n  "));
    Ok(())
}

fn faults(parts: &[Part], pages: &BTreeSet<PathBuf>) -> Vec<String> {
    let mut found = Vec::new();
    let mut listed = BTreeSet::from([PathBuf::from(INDEX)]);
    for page in parts.iter().flat_map(|part| &part.pages).flat_map(with_pages_below) {
        if !listed.insert(page.path.clone()) {
            found.push(format!("{} is listed twice", page.path.display()));
        }
    }
    found.extend(pages.difference(&listed).map(|page| format!("{} is not listed", page.display())));
    found
}

fn with_pages_below(page: &Page) -> impl Iterator<Item = &Page> {
    std::iter::once(page).chain(&page.below)
}

/// The sections of the index with their pages.
fn parts(root: &Path) -> Result<Vec<Part>> {
    let text = std::fs::read_to_string(root.join(INDEX)).with_context(|| format!("cannot read {INDEX}"))?;
    let mut parts = read(&text)?;
    for page in parts.iter_mut().flat_map(|part| &mut part.pages) {
        let folder = page.path.parent().filter(|_| page.path.ends_with("README.md"));
        if let Some(folder) = folder.map(Path::to_owned) {
            page.below = pages_below(root, &folder)?;
        }
    }
    Ok(parts)
}

/// Each heading of the second level, and the first link of each item below it.
fn read(text: &str) -> Result<Vec<Part>> {
    let mut parts: Vec<Part> = Vec::new();
    for (number, line) in links::prose(text) {
        if let Some(title) = line.strip_prefix("## ") {
            parts.push(Part { title: title.to_owned(), pages: Vec::new() });
        } else if let Some(rest) = line.strip_prefix("- [") {
            let (title, _) = rest.split_once("](").with_context(|| format!("{INDEX}:{number}: no link"))?;
            let (_, target) =
                links::links(line).next().with_context(|| format!("{INDEX}:{number}: no link"))?;
            let path = links::joined(Path::new("docs"), target);
            let path = path.with_context(|| format!("{INDEX}:{number}: {target} leaves the repository"))?;
            let part = parts.last_mut().with_context(|| format!("{INDEX}:{number}: no section above"))?;
            part.pages.push(Page { title: title.to_owned(), path, below: Vec::new() });
        }
    }
    Ok(parts)
}

/// The pages of a folder beside its README, by name, with their own titles.
fn pages_below(root: &Path, folder: &Path) -> Result<Vec<Page>> {
    let mut pages = Vec::new();
    for (path, text) in source::pages(root, &folder.display().to_string())? {
        if path.parent() == Some(folder) && !path.ends_with("README.md") {
            let title = links::prose(&text).find_map(|(_, line)| line.strip_prefix("# "));
            let title = title.with_context(|| format!("{}: no title", path.display()))?.to_owned();
            pages.push(Page { title, path, below: Vec::new() });
        }
    }
    Ok(pages)
}

/// Writes the pages, their pictures, the list of pages and the settings of mdBook into `target`.
pub(crate) fn write(root: &Path, target: &Path) -> Result<()> {
    let parts = parts(root)?;
    let sources = target.join("src");
    if sources.exists() {
        std::fs::remove_dir_all(&sources).with_context(|| format!("cannot empty {}", sources.display()))?;
    }
    let mut files: BTreeSet<PathBuf> = [FRONT, INDEX].map(PathBuf::from).into();
    files.extend(
        parts.iter().flat_map(|part| &part.pages).flat_map(with_pages_below).map(|page| page.path.clone()),
    );
    for path in &files {
        let text = std::fs::read_to_string(root.join(path))
            .with_context(|| format!("cannot read {}", path.display()))?;
        let text = links::with_targets(&text, |link| on_site(root, path, link, &files));
        save(&sources.join(site_path(path)), &text)?;
    }
    let mut pictures = Vec::new();
    source::collect(root, Path::new("docs"), "svg", &mut pictures)?;
    for picture in pictures {
        save(&sources.join(&picture), &std::fs::read_to_string(root.join(&picture))?)?;
    }
    save(&sources.join("SUMMARY.md"), &summary(&parts))?;
    save(&target.join("book.toml"), &std::fs::read_to_string(root.join("hack/book.toml"))?)
}

fn save(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// mdBook's list of pages.
fn summary(parts: &[Part]) -> String {
    let mut text = format!(
        "# Summary\n\n[olm-rs]({})\n[Documentation]({})\n",
        site_path(Path::new(FRONT)).display(),
        site_path(Path::new(INDEX)).display()
    );
    for part in parts {
        let _ = write!(text, "\n# {}\n\n", part.title);
        for page in &part.pages {
            let _ = writeln!(text, "- [{}]({})", page.title, site_path(&page.path).display());
            for below in &page.below {
                let _ = writeln!(text, "  - [{}]({})", below.title, site_path(&below.path).display());
            }
        }
    }
    text
}

fn site_path(page: &Path) -> PathBuf {
    if page.ends_with("README.md") { page.with_file_name("index.md") } else { page.to_owned() }
}

/// The target of a link on the site.
fn on_site(root: &Path, page: &Path, target: &str, pages: &BTreeSet<PathBuf>) -> String {
    let (path, fragment) = target.split_at(target.find('#').unwrap_or(target.len()));
    if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
        return target.to_owned();
    }
    let Some(goal) = links::joined(page.parent().unwrap_or(Path::new("")), path) else {
        return target.to_owned();
    };
    let picture = goal.starts_with("docs") && goal.extension().is_some_and(|it| it == "svg");
    if pages.contains(&goal) {
        format!("{}{fragment}", site_path(Path::new(path)).display())
    } else if pages.contains(&goal.join("README.md")) {
        format!("{}/index.md{fragment}", path.trim_end_matches('/'))
    } else if picture {
        target.to_owned()
    } else {
        let kind = if root.join(&goal).is_dir() { "tree" } else { "blob" };
        format!("{REPOSITORY}/{kind}/main/{}{fragment}", goal.display())
    }
}

/// Fails with one line for each link of a built site that leads nowhere.
pub(crate) fn check_site(folder: &Path) -> Result<()> {
    let mut paths = Vec::new();
    source::collect(folder, Path::new(""), "html", &mut paths)?;
    let mut pages = BTreeMap::new();
    for path in paths {
        // all pages in one, the list of pages, and the page for a wrong address, which has a base of its own
        if !["print.html", "toc.html", "404.html"].iter().any(|name| path == Path::new(name)) {
            let text = std::fs::read_to_string(folder.join(&path))?;
            pages.insert(path, text);
        }
    }
    if pages.is_empty() {
        bail!("{} has no pages", folder.display());
    }
    let broken = broken(&pages, &|path| folder.join(path).exists());
    ensure!(broken.is_empty(), "links of the site that lead nowhere:\n  {}", broken.join("\n  "));
    eprintln!("{} pages, each link leads somewhere", pages.len());
    Ok(())
}

fn broken(pages: &BTreeMap<PathBuf, String>, exists: &dyn Fn(&Path) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (page, text) in pages {
        let targets = text.split(" href=\"").skip(1).filter_map(|rest| rest.split('"').next());
        for target in targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:")) {
            let (path, fragment) = target.split_once('#').unwrap_or((target, ""));
            let goal = match path {
                "" => Some(page.clone()),
                path => links::joined(page.parent().unwrap_or(Path::new("")), path),
            };
            let leads = goal.is_some_and(|goal| match pages.get(&goal) {
                Some(text) => fragment.is_empty() || text.contains(&format!(" id=\"{fragment}\"")),
                None => exists(&goal),
            });
            if !leads {
                found.push(format!("{}: {target}", page.display()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(title: &str, path: &str) -> Page {
        Page { title: title.to_owned(), path: PathBuf::from(path), below: Vec::new() }
    }

    #[test]
    fn book_index_is_read_as_sections_with_pages() {
        let text = "# Documentation\n\n## Install\n\n- [Installing](install.md): [OpenShift](install.md#openshift)\n  [more](x.md)\n\
                    ## Internals\n- [Architecture](../ARCHITECTURE.md)\n";
        let parts = read(text).unwrap();
        let install =
            Part { title: "Install".to_owned(), pages: vec![page("Installing", "docs/install.md")] };
        let internals =
            Part { title: "Internals".to_owned(), pages: vec![page("Architecture", "ARCHITECTURE.md")] };
        assert_eq!(parts, [install, internals]);
        assert!(read("- [x](x.md)").is_err(), "an item above the first section");
    }

    #[test]
    fn book_names_pages_that_are_missing_or_listed_twice() {
        let mut index = page("Decisions", "docs/decisions/README.md");
        index.below.push(page("1", "docs/decisions/0001-a.md"));
        let pages = vec![page("A", "docs/a.md"), page("A again", "docs/a.md"), index];
        let parts = [Part { title: "P".to_owned(), pages }];
        let there = [
            "docs/README.md",
            "docs/a.md",
            "docs/b.md",
            "docs/decisions/README.md",
            "docs/decisions/0001-a.md",
        ];
        let want = ["docs/a.md is listed twice", "docs/b.md is not listed"];
        assert_eq!(faults(&parts, &there.map(PathBuf::from).into()), want);
    }

    #[test]
    fn book_links_lead_to_pages_or_to_the_repository() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("manifests")).unwrap();
        let pages = ["README.md", "docs/a.md", "docs/decisions/README.md"].map(PathBuf::from).into();
        for (target, want) in [
            ("a.md#x", "a.md#x"),
            ("#x", "#x"),
            ("https://example.com/README.md", "https://example.com/README.md"),
            ("../README.md", "../index.md"),
            ("decisions/README.md#x", "decisions/index.md#x"),
            ("decisions", "decisions/index.md"),
            ("pictures/a.svg", "pictures/a.svg"),
            ("../LICENSE", "https://github.com/olm-rs/olm-rs/blob/main/LICENSE"),
            ("../manifests", "https://github.com/olm-rs/olm-rs/tree/main/manifests"),
        ] {
            assert_eq!(on_site(root.path(), Path::new("docs/a.md"), target, &pages), want);
        }
    }

    #[test]
    fn book_summary_lists_sections_and_pages_below() {
        let mut index = page("Decisions", "docs/decisions/README.md");
        index.below.push(page("0001 One", "docs/decisions/0001-one.md"));
        let part = Part { title: "Internals".to_owned(), pages: vec![index] };
        assert_eq!(
            summary(&[part]),
            "# Summary\n\n[olm-rs](index.md)\n[Documentation](docs/index.md)\n\n# Internals\n\n\
             - [Decisions](docs/decisions/index.md)\n  - [0001 One](docs/decisions/0001-one.md)\n"
        );
    }

    #[test]
    fn book_site_names_links_that_lead_nowhere() {
        let text = "<a href=\"b.html#there\">b</a> <a href=\"b.html#gone\">b</a> <a href=\"c.html\">c</a> <a href=\"../x\">x</a>\
                    <a href=\"style.css\">s</a> <a href=\"https://example.com\">e</a> <a href=\"#here\">h</a> <h1 id=\"here\">h</h1>";
        let pages = BTreeMap::from([
            (PathBuf::from("a.html"), text.to_owned()),
            (PathBuf::from("b.html"), "<h2 id=\"there\">b</h2>".to_owned()),
        ]);
        let want = ["a.html: b.html#gone", "a.html: c.html", "a.html: ../x"];
        assert_eq!(broken(&pages, &|path| path == Path::new("style.css")), want);
    }
}
