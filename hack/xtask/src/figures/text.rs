//! Texts of a checkout: words that the glossary replaces, and citations.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::Table;
use crate::citations::{self, Targets};
use crate::language::rules::Rules;
use crate::language::texts::{self, Area, Text};
use crate::links;
use crate::source::Parsed;

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

/// Words and citations of a Rust file.
pub(super) fn of_source(path: &Path, parsed: &Parsed, rules: &Rules, targets: &Targets) -> Texts {
    let mut found = Texts::default();
    for text in texts::of_source(parsed) {
        found.read(path, &text, rules);
    }
    let cited = targets.cited(path, &citations::texts_of(path, parsed));
    cited.iter().for_each(|citation| found.cite(citation.kind, citation.fault.is_none()));
    found
}

/// Words and citations of a Markdown page.
pub(super) fn of_page(root: &Path, page: &Path, rules: &Rules, targets: &Targets) -> Result<Texts> {
    let text = std::fs::read_to_string(root.join(page))?;
    let mut found = Texts::default();
    if !rules.skips(page) {
        texts::of_page(page, &text).iter().for_each(|text| found.read(page, text, rules));
    }
    let cited = targets.cited(page, &text);
    cited.iter().for_each(|citation| found.cite(citation.kind, citation.fault.is_none()));
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
    let columns = |first| format!("{first},all,{}", Area::ALL.map(Area::name).join(","));
    vec![
        Table::new("Words of the language rules, by package", &columns("package"), by_package),
        Table::new("Words of the language rules, by rule", &columns("do not write"), by_rule),
        Table::new("Citations", "kind,resolve,do not", cited.collect()),
    ]
}
