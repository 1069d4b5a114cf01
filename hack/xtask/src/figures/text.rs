//! What people read in a checkout: words that the glossary replaces, and citations.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use super::Table;
use crate::language::rules::{self, Rules};
use crate::language::texts::{self, Area, Role, Text};
use crate::links;
use crate::source::{self, Parsed};

/// Words and citations of some texts.
#[derive(Debug, Default)]
pub(super) struct Texts {
    /// By area and rule.
    words: BTreeMap<(Area, usize), usize>,
    /// By kind: those that resolve, and those that do not.
    citations: BTreeMap<&'static str, [usize; 2]>,
}

impl Texts {
    pub(super) fn add(&mut self, other: &Self) {
        for (key, count) in &other.words {
            *self.words.entry(*key).or_default() += count;
        }
        for (kind, counts) in &other.citations {
            let mine = self.citations.entry(kind).or_default();
            *mine = [mine[0] + counts[0], mine[1] + counts[1]];
        }
    }

    fn read(&mut self, path: &Path, text: &Text, rules: &Rules) {
        for found in rules.find(path, text).into_iter().filter(|found| found.exception.is_none()) {
            *self.words.entry((text.area, found.rule)).or_default() += 1;
        }
    }

    fn cite(&mut self, kind: &'static str, resolves: bool) {
        self.citations.entry(kind).or_default()[usize::from(!resolves)] += 1;
    }
}

/// The Markdown pages of a checkout.
pub(super) struct Pages {
    root: PathBuf,
    pub(super) pages: Vec<PathBuf>,
}

impl Pages {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut pages = Vec::new();
        source::collect(root, Path::new(""), "md", &mut pages)?;
        Ok(Self { root: root.to_owned(), pages })
    }

    fn has_decision(&self, number: u32) -> bool {
        self.pages.iter().filter(|page| page.starts_with("docs/decisions")).any(|page| {
            let name = page.file_name().unwrap_or_default().to_string_lossy();
            name.split('-').next().and_then(|start| start.parse().ok()) == Some(number)
        })
    }

    /// Adds what `text` cites to `found`.
    fn cited(&self, text: &str, code: bool, found: &mut Texts) {
        let words: Vec<String> = rules::words(text).into_iter().map(|(_, word)| word).collect();
        for (at, word) in
            words.iter().enumerate().filter(|(_, word)| ["decision", "decisions"].contains(&word.as_str()))
        {
            let list = words[at + 1..].iter().filter(|next| *next != "and" || word == "decision");
            list.map_while(|next| next.parse().ok())
                .for_each(|it| found.cite("decision N", self.has_decision(it)));
        }
        let mut page = "";
        for (at, _) in text.match_indices('§') {
            // the word before, which may be in the line above; a second § of a sentence is of the same page
            let before = text[..at].trim_end_matches(|c: char| c.is_whitespace() || "/!*`[".contains(c));
            let name = before
                .rsplit(|c: char| !(c.is_alphanumeric() || "-.".contains(c)))
                .next()
                .unwrap_or_default();
            if name.len() > 2 && name.starts_with(char::is_lowercase) && !["and", "see"].contains(&name) {
                page = name.trim_end_matches(".md");
            }
            found.cite("spec §", self.pages.iter().any(|it| it.ends_with(format!("spec/{page}.md"))));
        }
        for (at, _) in text.match_indices("docs/").filter(|_| code) {
            let path = text[at..]
                .split(|c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c)))
                .next()
                .unwrap_or_default();
            found.cite("docs/… in comments", self.root.join(path.trim_end_matches(['.', '/'])).exists());
        }
    }
}

/// Words and citations of a Rust file.
pub(super) fn of_source(path: &Path, parsed: &Parsed, rules: &Rules, pages: &Pages) -> Texts {
    let mut found = Texts::default();
    for text in texts::of_source(parsed) {
        found.read(path, &text, rules);
        if matches!(text.area, Area::Comments | Area::Help) && text.role == Role::Plain {
            pages.cited(&text.text, true, &mut found);
        }
    }
    found
}

/// Words and citations of a Markdown page.
pub(super) fn of_page(root: &Path, page: &Path, rules: &Rules, pages: &Pages) -> Result<Texts> {
    let text = std::fs::read_to_string(root.join(page))?;
    let mut found = Texts::default();
    if !rules.skips(page) {
        texts::of_page(&text).iter().for_each(|text| found.read(page, text, rules));
    }
    pages.cited(&text, false, &mut found);
    for (_, target) in
        links::links(&text).filter(|(_, it)| !it.contains("://") && !it.starts_with(['#', 'm']))
    {
        let path = target.split('#').next().unwrap_or_default();
        found.cite("links of pages", root.join(page).with_file_name(path).exists());
    }
    Ok(found)
}

/// Words by package and by rule, and citations.
pub(super) fn tables(texts: &BTreeMap<&str, Texts>, rules: &Rules) -> Vec<Table> {
    let row = |name: &str, counts: &dyn Fn(&str, usize) -> bool| -> Vec<Value> {
        let uses = |area: Area| {
            let all = texts
                .iter()
                .flat_map(|(package, texts)| texts.words.iter().map(move |word| (*package, word)));
            let counted = all.filter(|(package, ((here, rule), _))| *here == area && counts(package, *rule));
            counted.map(|(_, (_, uses))| uses).sum::<usize>()
        };
        let uses = Area::ALL.map(uses);
        let all = uses.iter().sum::<usize>();
        [json!(name), json!(all)].into_iter().chain(uses.map(|uses| json!(uses))).collect()
    };
    let by_package = texts.keys().map(|name| row(name, &|package, _| package == *name)).collect();
    // behind the rules: test names that are too long
    let by_rule =
        (0..=rules.rules.len()).map(|at| row(&rules.describe(at).0, &|_, rule| rule == at)).collect();
    let mut all = Texts::default();
    texts.values().for_each(|texts| all.add(texts));
    let cited = all.citations.iter().map(|(kind, [good, bad])| vec![json!(kind), json!(good), json!(bad)]);
    let (note, cited) = ("", cited.collect());
    let columns = |first| [first, "all"].into_iter().chain(Area::ALL.map(Area::name)).collect();
    vec![
        Table {
            title: "Words of the language rules, by package",
            columns: columns("package"),
            rows: by_package,
            note,
        },
        Table {
            title: "Words of the language rules, by rule",
            columns: columns("do not write"),
            rows: by_rule,
            note,
        },
        Table { title: "Citations", columns: vec!["kind", "resolve", "do not"], rows: cited, note: "" },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn citations_resolve_to_pages() {
        let pages =
            ["docs/decisions/0004-x.md", "docs/internals/spec/catalogd.md"].map(PathBuf::from).to_vec();
        let pages = Pages { root: PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.."), pages };
        let mut found = Texts::default();
        let text = "decisions 4, 26 and 31, a decision of 4; catalogd\n//! §2 and §3.1, fbc §4, §5; docs/README.md. docs/gone.md";
        pages.cited(text, true, &mut found);
        let want = [("decision N", [1, 2]), ("docs/… in comments", [1, 1]), ("spec §", [2, 2])];
        assert_eq!(found.citations, BTreeMap::from(want));
    }
}
