//! `hack/language.toml`: the words that are not written here, and where each of them counts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::texts::{Area, Role, Text};

/// More would make the rules a matter of opinion.
const MAX_EXCEPTIONS: usize = 40;
const MAX_TEST_NAME: usize = 60;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Pages that quote the words.
    skip: Vec<String>,
    #[serde(rename = "rule")]
    rules: Vec<Rule>,
    #[serde(rename = "exception", default)]
    exceptions: Vec<Exception>,
    #[serde(rename = "uncovered", default)]
    uncovered: Vec<Uncovered>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// Words or phrases.
    pub(crate) not: Vec<String>,
    pub(crate) write: String,
    #[serde(default)]
    pub(crate) at: At,
    /// All areas, if there is none.
    #[serde(default)]
    areas: Vec<Area>,
}

/// Where in a text a term of a rule counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum At {
    #[default]
    Anywhere,
    /// In the name of a type.
    Type,
    /// As the whole name of a type, function or constant.
    Name,
    /// As the first word of a heading, of a module's documentation or of a test name.
    Start,
}

/// A phrase in which a term does not count.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exception {
    pub(crate) phrase: String,
    reason: String,
    /// The files below this path; all files, if it is empty.
    #[serde(default)]
    below: String,
}

/// A word of the guide without a rule.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Uncovered {
    word: String,
    reason: String,
}

#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) rules: Vec<Rule>,
    pub(crate) exceptions: Vec<Exception>,
    skip: Vec<String>,
    /// By the first word of a term: its rule, and the words behind the first.
    terms: BTreeMap<String, Vec<(usize, Vec<String>)>>,
}

/// A term in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Use {
    /// An index of [`Rules::rules`], or behind them all for a test name that is too long.
    pub(crate) rule: usize,
    pub(crate) line: usize,
    pub(crate) word: String,
    /// The exception that allows it.
    pub(crate) exception: Option<usize>,
}

impl Rule {
    /// Where the rule holds, for a reader.
    pub(crate) fn scope(&self) -> String {
        let at = match self.at {
            At::Anywhere => "",
            At::Type => "in the name of a type",
            At::Name => "as the whole name of a type, function or constant",
            At::Start => "as the first word of a heading, module or test name",
        };
        let areas: Vec<&str> = self.areas.iter().map(|area| area.name()).collect();
        match (at, areas.is_empty()) {
            ("", true) => "everywhere".to_owned(),
            (at, true) => at.to_owned(),
            ("", false) => areas.join(", "),
            (at, false) => format!("{at} ({})", areas.join(", ")),
        }
    }
}

impl Rules {
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(root.join("hack/language.toml"))
            .context("cannot read hack/language.toml")?;
        Self::parse(&text).context("hack/language.toml")
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        let file: File = toml::from_str(text)?;
        let mut terms: BTreeMap<String, Vec<(usize, Vec<String>)>> = BTreeMap::new();
        for (at, rule) in file.rules.iter().enumerate() {
            ensure!(!rule.not.is_empty() && !rule.write.is_empty(), "a rule lacks `not` or `write`");
            for term in &rule.not {
                let words: Vec<String> = words(term).into_iter().map(|(_, word)| word).collect();
                let (first, rest) = words.split_first().context("an empty term")?;
                let endings: &[&str] = match (rule.at, rest.len(), first.len()) {
                    (At::Anywhere, 0, ..4) => &["", "s"],
                    (At::Anywhere, 0, _) => &["", "s", "es", "d", "ed", "ing"],
                    _ => &[""],
                };
                for ending in endings {
                    terms.entry(format!("{first}{ending}")).or_default().push((at, rest.to_vec()));
                }
            }
        }
        for (what, reason) in file
            .exceptions
            .iter()
            .map(|it| (&it.phrase, &it.reason))
            .chain(file.uncovered.iter().map(|it| (&it.word, &it.reason)))
        {
            ensure!(!what.is_empty() && !reason.is_empty(), "{what:?} has no reason");
        }
        ensure!(file.exceptions.len() <= MAX_EXCEPTIONS, "more than {MAX_EXCEPTIONS} exceptions");
        Ok(Self { rules: file.rules, exceptions: file.exceptions, skip: file.skip, terms })
    }

    /// Pages that the rules do not hold for.
    pub(crate) fn skips(&self, path: &Path) -> bool {
        self.skip.iter().any(|skipped| path.starts_with(skipped))
    }

    /// What a rule is called, and what to write.
    pub(crate) fn describe(&self, rule: usize) -> (String, &str) {
        match self.rules.get(rule) {
            Some(rule) => (rule.not.join(", "), &rule.write),
            None => (format!("a test name of more than {MAX_TEST_NAME} characters"), "`<area>_<behaviour>`"),
        }
    }

    /// Every use of a term in `text` of the file `path`; a position counts once for a rule.
    pub(crate) fn find(&self, path: &Path, text: &Text) -> Vec<Use> {
        let words = words(&text.text);
        let mut allowed = vec![None; words.len()];
        for (index, exception) in self.exceptions.iter().enumerate() {
            if path.starts_with(&exception.below) {
                let phrase: Vec<String> = self::words(&exception.phrase).into_iter().map(|it| it.1).collect();
                for (at, _) in words.iter().enumerate().filter(|(at, _)| starts_with(&words[*at..], &phrase))
                {
                    allowed[at..at + phrase.len()].fill(Some(index));
                }
            }
        }
        let mut found = Vec::new();
        for (at, (offset, word)) in words.iter().enumerate() {
            let uses = self.terms.get(word).into_iter().flatten().filter(|(rule, rest)| {
                let rule = &self.rules[*rule];
                (rule.areas.is_empty() || rule.areas.contains(&text.area))
                    && counts(rule.at, text, at, rest.len() + 1 == words.len())
                    && starts_with(&words[at + 1..], rest)
            });
            let rules: BTreeMap<usize, &Vec<String>> = uses.map(|(rule, rest)| (*rule, rest)).collect();
            for (rule, rest) in rules {
                let phrase: Vec<&str> = std::iter::once(word).chain(rest).map(String::as_str).collect();
                let line = text.line + text.text[..*offset].matches('\n').count();
                found.push(Use { rule, line, word: phrase.join(" "), exception: allowed[at] });
            }
        }
        if text.area == Area::TestNames && text.text.chars().count() > MAX_TEST_NAME {
            let rule = self.rules.len();
            found.push(Use { rule, line: text.line, word: text.text.clone(), exception: None });
        }
        found
    }

    /// The exceptions that allow nothing.
    pub(crate) fn unused<'a>(&'a self, used: &BTreeSet<usize>) -> Vec<&'a str> {
        let exceptions = self.exceptions.iter().enumerate().filter(|(at, _)| !used.contains(at));
        exceptions.map(|(_, exception)| exception.phrase.as_str()).collect()
    }
}

/// Does a term count that begins with the word `at` of `text`?
fn counts(rule: At, text: &Text, at: usize, whole: bool) -> bool {
    match (rule, text.role) {
        (At::Anywhere, role) => role == Role::Plain,
        (At::Type, role) => role == Role::Type,
        (At::Name, role) => matches!(role, Role::Type | Role::Item) && whole,
        (At::Start, role) => at == 0 && (role == Role::Heading || text.area == Area::TestNames),
    }
}

fn starts_with(words: &[(usize, String)], phrase: &[String]) -> bool {
    words.len() >= phrase.len() && words.iter().zip(phrase).all(|((_, word), want)| word == want)
}

/// Words in lower case with their offsets; `CamelCase` and `snake_case` are several.
pub(crate) fn words(text: &str) -> Vec<(usize, String)> {
    let mut words: Vec<(usize, String)> = Vec::new();
    let mut before = ' ';
    for (at, c) in text.char_indices().filter(|(_, c)| *c != '\'') {
        if c.is_alphanumeric() && (!before.is_alphanumeric() || (c.is_uppercase() && before.is_lowercase())) {
            words.push((at, String::new()));
        }
        if let Some((_, word)) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = r#"
        skip = ["docs/glossary.md"]
        [[rule]]
        not = ["grue", "by lamp", "ox"]
        write = "monster"
        [[rule]]
        not = ["blorb"]
        write = "file"
        at = "type"
        [[rule]]
        not = ["of"]
        write = "a verb"
        at = "name"
        [[rule]]
        not = ["the"]
        write = "the area"
        at = "start"
        [[rule]]
        not = ["zork"]
        write = "game"
        areas = ["help"]
        [[exception]]
        phrase = "grue bleen"
        reason = "philosophy"
        [[exception]]
        phrase = "ox"
        reason = "a name"
        below = "crates/a"
    "#;

    fn found(area: Area, role: Role, text: &str) -> Vec<String> {
        let text = Text { area, role, line: 3, text: text.to_owned() };
        let uses = Rules::parse(RULES).unwrap().find(Path::new("crates/ab/src/lib.rs"), &text);
        uses.iter()
            .map(|it| {
                format!("{}:{}{}", it.line, it.word, if it.exception.is_some() { " allowed" } else { "" })
            })
            .collect()
    }

    #[test]
    fn rules_count_at_their_positions() {
        use Area::{Comments, Documents, Help, Identifiers, TestNames};
        use Role::{Heading, Item, Plain, Type};
        let long = "a".repeat(61);
        for (area, role, text, want) in [
            (Comments, Plain, "It grues, BY\n/// lamp, lamp, gruesome", &["3:grues", "3:by lamp"][..]),
            (Comments, Plain, "\n\nox's oxen oxing", &["5:oxs"]),
            (Documents, Plain, "The grue", &["3:grue"]),
            (Identifiers, Plain, "grueing_by_lamp", &["3:grueing", "3:by lamp"]),
            (Identifiers, Plain, "BlorbGrue", &["3:grue"]),
            (Identifiers, Type, "BlorbGrue", &["3:blorb"]),
            (Identifiers, Type, "Of", &["3:of"]),
            (Identifiers, Item, "of", &["3:of"]),
            (Identifiers, Item, "out_of", &[]),
            (Identifiers, Item, "blorb", &[]),
            (Documents, Heading, "## The the", &["3:the"]),
            (TestNames, Plain, "the_grue_is_of_the_zork", &["3:the", "3:grue"]),
            (TestNames, Plain, &long[1..], &[]),
            (TestNames, Plain, &long, &[&format!("3:{long}")]),
            (Help, Plain, "zork of blorb", &["3:zork"]),
            (Comments, Plain, "zork", &[]),
            (Comments, Plain, "a grueBleen, a grue", &["3:grue allowed", "3:grue"]),
            (Comments, Plain, "ox", &["3:ox"]),
        ] {
            assert_eq!(found(area, role, text), want, "{text}");
        }
    }

    #[test]
    fn exception_holds_below_its_path() {
        let text = Text { area: Area::Comments, role: Role::Plain, line: 1, text: "ox".to_owned() };
        let rules = Rules::parse(RULES).unwrap();
        let used = rules.find(Path::new("crates/a/src/lib.rs"), &text)[0].exception.unwrap();
        assert_eq!(rules.unused(&BTreeSet::from([used])), ["grue bleen"]);
    }

    #[test]
    fn rules_reject_what_has_no_reason() {
        for text in [
            RULES.replace("\"a name\"", "\"\""),
            RULES.replace("\"monster\"", "\"\""),
            RULES.replace("areas = [\"help\"]", "areas = [\"nowhere\"]"),
            format!(
                "{RULES}{}",
                "[[exception]]\nphrase = \"a\"\nreason = \"b\"\n".repeat(MAX_EXCEPTIONS - 1)
            ),
        ] {
            assert!(Rules::parse(&text).is_err(), "{text}");
        }
    }
}
