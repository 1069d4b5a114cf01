//! Citations in the repository's texts: the specification's section, the decision or the file that each names is there.
//!
//! - `catalogd §4.2`: a page of the folder [`SPECIFICATION`] (without `.md`) and the number that one of its headings begins with. A
//!   letter stands for an appendix: `operator-controller §A`. After it, `row 3`, `rows 1, 2 and 5 to 7`, `case 3` and `step 3` name
//!   rows of the section's tables by their first cell, or items of its lists.
//! - A `§` behind no page belongs to the page that the same paragraph named last: one comment, one row of a table. In a page of the
//!   specification it belongs to that page.
//! - `decision 4`, `decisions 4, 5 and 7 to 9`: pages of the folder [`DECISIONS`] by their numbers.
//! - A path that begins with `docs/`, outside of Markdown links (see [`crate::links`]).
//! - Sections of an RFC are left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use proc_macro2::{TokenStream, TokenTree};

use crate::conformance::sample;
use crate::decisions::{self, DECISIONS};
use crate::links;
use crate::source::{self, Parsed};

pub(crate) const SPECIFICATION: &str = "docs/internals/spec";

/// Files with citations beside those of Rust, by the ends of their names.
const TEXTS: [&str; 10] = ["md", "toml", "yaml", "yml", "sh", "py", "go", "scn", "cfg", "txt"];
/// Words that may stand between a page and a further section of it.
const CONNECTIVES: [&str; 9] = ["", "and", "to", "or", "with", "of", "see", "in", "also"];

pub(crate) const SECTION: &str = "page §N";
pub(crate) const DECISION: &str = "decision N";
pub(crate) const FILE: &str = "docs/…";

/// Fails with one line for each citation that names nothing.
pub(crate) fn check(root: &Path) -> Result<()> {
    let wrong = all(root)?.into_iter().filter_map(|(path, citation)| {
        Some(format!("{}:{}: {}", path.display(), citation.line, citation.fault?))
    });
    let wrong: Vec<String> = wrong.collect();
    ensure!(wrong.is_empty(), "citations that name nothing:\n  {}", wrong.join("\n  "));
    Ok(())
}

/// Prints `count` citations of the specification and of decisions at random, equal for an equal `seed`, for a reader to judge.
pub(crate) fn draw(root: &Path, count: usize, seed: u64) -> Result<()> {
    let named = all(root)?.into_iter().filter(|(_, citation)| citation.kind != FILE);
    let named: Vec<(PathBuf, usize, String)> =
        named.map(|(path, citation)| (path, citation.line, citation.name)).collect();
    let mut out = std::io::stdout().lock();
    for (path, line, name) in sample(named, count, seed) {
        writeln!(out, "{}:{line}: {name}", path.display())?;
    }
    Ok(())
}

/// The citations of all files.
fn all(root: &Path) -> Result<Vec<(PathBuf, Citation)>> {
    let targets = Targets::read(root)?;
    let mut found = Vec::new();
    let mut add = |path: &Path, text: &str| {
        found.extend(targets.cited(path, text).into_iter().map(|citation| (path.to_owned(), citation)));
    };
    for (source, text) in
        source::scan(root, &source::packages(root)?, |source, parsed| Ok(texts_of(&source.path, parsed)))?
    {
        add(&source.path, &text);
    }
    for path in texts(root)? {
        add(&path, &std::fs::read_to_string(root.join(&path))?);
    }
    Ok(found)
}

/// Files beside those of Rust. The changelog speaks of what was there at the time.
fn texts(root: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = vec![PathBuf::from("Makefile")];
    for extension in TEXTS {
        source::collect(root, Path::new(""), extension, &mut paths)?;
    }
    paths.retain(|path| path != Path::new("CHANGELOG.md"));
    Ok(paths)
}

/// A citation, and why it names nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Citation {
    pub(crate) line: usize,
    pub(crate) kind: &'static str,
    /// What it names, in words of its own: `catalogd §4.2`.
    pub(crate) name: String,
    pub(crate) fault: Option<String>,
}

/// What citations may name.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    root: PathBuf,
    /// By the page's name: by section, the names of rows and steps.
    pages: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    decisions: BTreeSet<u32>,
}

impl Targets {
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut targets =
            Self { root: root.to_owned(), decisions: decisions::numbers(root), ..Self::default() };
        if root.join(SPECIFICATION).is_dir() {
            let pages = source::pages(root, SPECIFICATION)?.into_iter();
            for (path, text) in pages.filter(|(path, _)| !path.ends_with("README.md")) {
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                targets.pages.insert(name, sections(&text));
            }
        }
        Ok(targets)
    }

    /// The citations of a text, which is the file's own or what [`texts_of`] leaves of it.
    pub(crate) fn cited(&self, path: &Path, text: &str) -> Vec<Citation> {
        let own = path.starts_with(SPECIFICATION).then(|| path.file_stem()?.to_str()).flatten();
        let own = own.filter(|name| self.pages.contains_key(*name));
        let markdown = path.extension().is_some_and(|extension| extension == "md");
        let mut found = Vec::new();
        for paragraph in paragraphs(text, markdown) {
            self.sections(&paragraph, own, &mut found);
            self.decisions(&paragraph, &mut found);
            self.files(&paragraph, &mut found);
        }
        found.sort_by_key(|citation| citation.line);
        found
    }

    fn sections(&self, paragraph: &Paragraph, own: Option<&str>, found: &mut Vec<Citation>) {
        let mut page = own.map_or(Source::Nothing, Source::Page);
        for (at, _) in paragraph.text.match_indices('§') {
            let before = paragraph.text[..at].trim_end_matches([' ', '`']);
            let word = before.rsplit(|c: char| !(c.is_alphanumeric() || "-.".contains(c))).next();
            let word = word.map(|word| word.strip_suffix(".md").unwrap_or(word)).unwrap_or_default();
            match self.pages.get_key_value(word) {
                Some((name, _)) => page = Source::Page(name),
                None if before[..before.len() - word.len()].ends_with("RFC ") => page = Source::Rfc,
                None if own.is_some() || CONNECTIVES.contains(&word) => {}
                None => page = Source::Unknown(word),
            }
            let rest = &paragraph.text[at + '§'.len_utf8()..];
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).unwrap_or(rest.len());
            let section = rest[..end].trim_end_matches('.');
            let (name, fault) = match page {
                // `§` as a sign
                _ if !section.starts_with(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase()) => continue,
                Source::Rfc => continue,
                Source::Nothing => {
                    (format!("§{section}"), Some(format!("§{section} is behind no page of {SPECIFICATION}")))
                }
                Source::Unknown(word) => (
                    format!("{word} §{section}"),
                    Some(format!("there is no page {SPECIFICATION}/{word}.md")),
                ),
                Source::Page(name) => self.section(name, section, &rest[end..]),
            };
            found.push(Citation { line: paragraph.line(at), kind: SECTION, name, fault });
        }
    }

    /// The name of a section and of its rows that `rest` continues with, and what of it is missing.
    fn section(&self, page: &str, section: &str, rest: &str) -> (String, Option<String>) {
        let name = format!("{page} §{section}");
        let Some(rows) = self.pages[page].get(section) else {
            let fault = format!("{SPECIFICATION}/{page}.md has no section {section}");
            return (name, Some(fault));
        };
        let word = rest.trim_start().split(' ').next().unwrap_or_default();
        if !["row", "rows", "case", "cases", "step", "steps"].contains(&word) {
            return (name, None);
        }
        let list = rest.trim_start()[word.len()..].trim_start();
        let cited = numbers(list, word.ends_with('s'));
        let missing: Vec<&str> = cited.iter().copied().filter(|row| !rows.contains(*row)).collect();
        let fault = format!("{SPECIFICATION}/{page}.md §{section} has no {word} {}", missing.join(", "));
        (format!("{name} {word} {}", cited.join(", ")), (!missing.is_empty()).then_some(fault))
    }

    fn decisions(&self, paragraph: &Paragraph, found: &mut Vec<Citation>) {
        for (at, word) in paragraph.text.match_indices("ecision") {
            let Some(start) = at.checked_sub(1).filter(|at| ["d", "D"].contains(&&paragraph.text[*at..=*at]))
            else {
                continue;
            };
            let rest = &paragraph.text[at + word.len()..];
            let (rest, several) = rest.strip_prefix('s').map_or((rest, false), |rest| (rest, true));
            let part_of_word = paragraph.text[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            if part_of_word || !rest.starts_with(' ') {
                continue;
            }
            for number in numbers(rest.trim_start(), several) {
                let Ok(number) = number.parse() else { continue };
                let missing = !self.decisions.contains(&number);
                let fault = missing.then(|| format!("there is no {DECISIONS}/{number:04}-….md"));
                let name = format!("decision {number}");
                found.push(Citation { line: paragraph.line(start), kind: DECISION, name, fault });
            }
        }
    }

    fn files(&self, paragraph: &Paragraph, found: &mut Vec<Citation>) {
        for (at, _) in paragraph.text.match_indices("docs/") {
            let part = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
            // the end of another path
            if paragraph.text[..at].ends_with(|c: char| part(c) || "}<>$".contains(c)) {
                continue;
            }
            let rest = &paragraph.text[at..];
            let end = rest.find(|c: char| !part(c)).unwrap_or(rest.len());
            let mut path = rest[..end].trim_end_matches('.');
            // a pattern stands for the folder
            if rest[end..].starts_with(['*', '<', '{', '…', '$']) {
                path = path.rsplit_once('/').map_or(path, |(folder, _)| folder);
            }
            let fault = (!self.root.join(path).exists()).then(|| format!("there is no {path}"));
            found.push(Citation { line: paragraph.line(at), kind: FILE, name: path.to_owned(), fault });
        }
    }
}

/// What a `§` belongs to.
#[derive(Clone, Copy)]
enum Source<'a> {
    Nothing,
    Page(&'a str),
    Unknown(&'a str),
    Rfc,
}

/// `1, 2 and 5 to 7` at the beginning of `text`; only the first unless there may be several. Of a range its ends.
fn numbers(text: &str, several: bool) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let number = &rest[..end];
        if !number
            .trim_start_matches(|c: char| c.is_ascii_uppercase())
            .starts_with(|c: char| c.is_ascii_digit())
        {
            return found;
        }
        found.push(number);
        let next = [", ", " and ", " to ", "–"].iter().find_map(|mark| rest[end..].strip_prefix(mark));
        match next {
            Some(next) if several => rest = next,
            _ => return found,
        }
    }
}

/// Lines that belong together, without the marks of comments.
struct Paragraph {
    text: String,
    /// Where each line begins in `text`, and its number.
    lines: Vec<(usize, usize)>,
}

impl Paragraph {
    fn line(&self, at: usize) -> usize {
        self.lines.iter().rev().find(|(start, _)| *start <= at).map_or(0, |(_, number)| *number)
    }
}

fn paragraphs(text: &str, markdown: bool) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    let mut open = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let alone = markdown && line.starts_with(['|', '#']);
        let line = if markdown { line } else { line.trim_start_matches(['/', '!', '#', '*']).trim_start() };
        if line.is_empty() {
            open = false;
            continue;
        }
        match found.last_mut().filter(|_| open && !alone) {
            Some(paragraph) => {
                paragraph.text.push(' ');
                paragraph.lines.push((paragraph.text.len(), number + 1));
                paragraph.text.push_str(line);
            }
            None => found.push(Paragraph { text: line.to_owned(), lines: vec![(0, number + 1)] }),
        }
        open = !alone;
    }
    found
}

/// A Rust file with nothing but its comments and string literals, each in its place. Literals of this program are its own patterns
/// and the texts of its tests, which cite nothing.
pub(crate) fn texts_of(path: &Path, parsed: &Parsed) -> String {
    let mut text = parsed.text.clone().into_bytes();
    blank(&parsed.text, &parsed.tokens, path.starts_with("hack/xtask"), &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn blank(text: &str, tokens: &TokenStream, literals: bool, out: &mut [u8]) {
    let mut clear = |range: std::ops::Range<usize>| {
        for byte in out[range].iter_mut().filter(|byte| **byte != b'\n') {
            *byte = b' ';
        }
    };
    let mut groups = Vec::new();
    for token in source::trees(tokens) {
        let range = token.span().byte_range();
        match token {
            // a doc comment is an attribute whose tokens all have the comment's place
            _ if text[range.clone()].starts_with("//") || text[range.clone()].starts_with("/*") => {}
            TokenTree::Group(group) => {
                clear(group.span_open().byte_range());
                clear(group.span_close().byte_range());
                groups.push(group);
            }
            TokenTree::Literal(_) if !literals && text[range.clone()].contains('"') => {}
            _ => clear(range),
        }
    }
    for group in groups {
        blank(text, &group.stream(), literals, out);
    }
}

/// The sections of a page by number or letter, each with the names of its rows and steps and of those below it.
fn sections(page: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut open: Vec<(usize, Vec<String>)> = Vec::new();
    for (_, line) in links::prose(page) {
        let title = line.trim_start_matches('#');
        let depth = line.len() - title.len();
        if depth > 0 && title.starts_with(' ') {
            open.retain(|(above, _)| *above < depth);
            let title = title.trim().trim_start_matches("Appendix ");
            let names: Vec<String> = title.split(" / ").map_while(section_name).collect();
            for name in &names {
                found.entry(name.clone()).or_default();
            }
            open.push((depth, names));
            continue;
        }
        let row = line.strip_prefix("| ").and_then(|row| row.split('|').next());
        let step = line.trim_start().split_once(". ").map(|(number, _)| number);
        let Some(name) = row.or(step).map(|name| name.trim().trim_matches('*')) else { continue };
        // a row may be named by a number and a word
        let name = name.split(' ').next().unwrap_or_default();
        if name.len() < 5 && name.contains(|c: char| c.is_ascii_digit()) {
            for section in open.iter().flat_map(|(_, names)| names) {
                found.entry(section.clone()).or_default().insert(name.to_owned());
            }
        }
    }
    found
}

/// The number or letter that a title begins with.
fn section_name(title: &str) -> Option<String> {
    let name = title.split(' ').next()?.trim_end_matches('.');
    let digits = name.trim_start_matches(|c: char| c.is_ascii_uppercase());
    let number = digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    (name.len() - digits.len() <= 1 && number && !name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets() -> Targets {
        let page = "# Page\n## 1. One\n### 4.2 Two\n| # | x |\n|---|---|\n| 1 | a |\n| **2** | b |\n### 9.7 / 9.8 More\n3. step\n\
            ```\n## 5. code\n```\n## Appendix A. Shapes\n### T3 A table\n## Words\n";
        Targets {
            root: PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.."),
            pages: BTreeMap::from([
                ("catalogd".to_owned(), sections(page)),
                ("fbc".to_owned(), sections("## 7. x")),
            ]),
            decisions: BTreeSet::from([4, 26]),
        }
    }

    fn faults(path: &str, text: &str) -> Vec<(usize, String)> {
        let found = targets().cited(Path::new(path), text);
        found.into_iter().filter_map(|citation| Some((citation.line, citation.fault?))).collect()
    }

    #[test]
    fn citations_that_resolve_are_found_by_name() {
        let text = "//! Rules: catalogd §4.2 rows 1 and 2, §9.8 step 3; fbc\n//! §7, `catalogd` §A and §T3; RFC 9110 §8.1, §8.2.\n\
            //! Decisions 4 and 26, a decision of 4; docs/README.md.\n";
        let names: Vec<(usize, String)> = targets()
            .cited(Path::new("a.rs"), text)
            .into_iter()
            .map(|citation| (citation.line, citation.name + citation.fault.as_deref().unwrap_or_default()))
            .collect();
        let want = [
            (1, "catalogd §4.2 rows 1, 2"),
            (1, "catalogd §9.8 step 3"),
            (2, "fbc §7"),
            (2, "catalogd §A"),
            (2, "catalogd §T3"),
            (3, "decision 4"),
            (3, "decision 26"),
            (3, "docs/README.md"),
        ];
        assert_eq!(names, want.map(|(line, name)| (line, name.to_owned())));
    }

    #[test]
    fn citations_that_name_nothing_are_faults() {
        for (text, want) in [
            ("catalogd §4.3", "docs/internals/spec/catalogd.md has no section 4.3"),
            ("catalogd §5", "docs/internals/spec/catalogd.md has no section 5"),
            ("fbc §7, §8", "docs/internals/spec/fbc.md has no section 8"),
            ("catalogd §4.2 row 3", "docs/internals/spec/catalogd.md §4.2 has no row 3"),
            ("catalogd §4.2 rows 1 to 9", "docs/internals/spec/catalogd.md §4.2 has no rows 9"),
            ("update graph §2", "there is no page docs/internals/spec/graph.md"),
            ("as §1 requires", "there is no page docs/internals/spec/as.md"),
            ("(§1)", "§1 is behind no page of docs/internals/spec"),
            ("decision 5", "there is no docs/decisions/0005-….md"),
            ("decisions 4 to 6", "there is no docs/decisions/0006-….md"),
            ("see docs/gone.md", "there is no docs/gone.md"),
        ] {
            assert_eq!(faults("a.rs", &format!("\n//! {text}\n")), [(2, want.to_owned())], "{text}");
        }
    }

    #[test]
    fn citations_end_with_their_paragraph() {
        assert_eq!(faults("a.rs", "//! fbc §7\n//!\n//! §7\n").len(), 1, "another paragraph");
        assert_eq!(faults("a.md", "| fbc §7 | §7 |\n| x | §7 |\n")[0].0, 2, "another row");
        assert_eq!(faults("docs/internals/spec/fbc.md", "as in §7, not §8").len(), 1, "the page itself");
    }

    #[test]
    fn rust_files_cite_in_comments_and_strings() {
        let text =
            "/// decision 1\nfn decision(a: u8) { f(\"decision 2\", 'ü') /* decision 3 */ } // decision 5\n";
        let parsed = source::parse(text.to_owned()).unwrap();
        let lines = |path: &str| -> Vec<(usize, String)> {
            let text = texts_of(Path::new(path), &parsed);
            targets().cited(Path::new(path), &text).into_iter().map(|it| (it.line, it.name)).collect()
        };
        let names = |numbers: &[(usize, u8)]| -> Vec<(usize, String)> {
            numbers.iter().map(|(line, number)| (*line, format!("decision {number}"))).collect()
        };
        assert_eq!(lines("a.rs"), names(&[(1, 1), (2, 2), (2, 3), (2, 5)]));
        assert_eq!(lines("hack/xtask/src/a.rs"), names(&[(1, 1), (2, 3), (2, 5)]));
    }
}
