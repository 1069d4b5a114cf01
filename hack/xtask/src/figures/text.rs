//! What people read in a checkout: words that the language guide replaces, and citations.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use anyhow::Result;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use serde_json::{Value, json};

use super::Table;
use crate::citations::{self, Citation, Targets};
use crate::links;
use crate::source::{self, Parsed, anywhere, is_ident, is_punct, trees};

/// Where words are.
const AREAS: [&str; 8] = [TYPES, IDENTIFIERS, COMMENTS, HELP, MESSAGES, TEST_NAMES, DOCS, HEADINGS];
const TYPES: &str = "names of types";
const IDENTIFIERS: &str = "identifiers";
const COMMENTS: &str = "comments";
const HELP: &str = "help";
const MESSAGES: &str = "messages";
const TEST_NAMES: &str = "test names";
const DOCS: &str = "docs";
const HEADINGS: &str = "headings";
type Area = &'static str;

/// Words and citations of some texts.
#[derive(Debug, Default)]
pub(super) struct Texts {
    /// By area and row of the guide.
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

    fn read(&mut self, area: Area, text: &str, guide: Option<&Guide>) {
        for row in guide.map(|guide| guide.find(area, text)).unwrap_or_default() {
            *self.words.entry((area, row)).or_default() += 1;
        }
    }

    fn cite_all(&mut self, citations: Vec<Citation>) {
        for citation in citations {
            self.cite(citation.kind, citation.fault.is_none());
        }
    }

    fn cite(&mut self, kind: &'static str, resolves: bool) {
        self.citations.entry(kind).or_default()[usize::from(!resolves)] += 1;
    }
}

/// Where a term counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Where {
    Texts,
    /// As a part of a type's name, or as the whole.
    Types,
    WholeTypes,
    /// As the first word.
    Headings,
}

/// The left column of the guide's table of words.
pub(super) struct Guide {
    rows: Vec<String>,
    /// By the first word of a term: the row, the words behind the first, and where it counts.
    terms: BTreeMap<String, Vec<(usize, Vec<String>, Where)>>,
}

impl Guide {
    pub(super) fn read(path: &Path) -> Option<Self> {
        Some(Self::parse(&std::fs::read_to_string(path).ok()?))
    }

    fn parse(text: &str) -> Self {
        let mut guide = Self { rows: Vec::new(), terms: BTreeMap::new() };
        let table = text.lines().skip_while(|line| !line.starts_with("| do not write")).skip(2);
        for line in table.take_while(|line| line.starts_with('|')) {
            let left = line.split('|').nth(1).unwrap_or_default().trim();
            guide.rows.push(left.to_owned());
            // "a, b (of c)", "a, b as c" and "a, b without c" are terms with a note
            let note =
                [" (", " as ", " without "].iter().filter_map(|it| left.find(it)).min().unwrap_or(left.len());
            let (terms, note) = left.split_at(note);
            for term in terms.split([',', '/']).map(str::trim) {
                let place = match note {
                    _ if note.starts_with(" without ") => Where::WholeTypes,
                    " as a heading" => Where::Headings,
                    _ if term.starts_with(char::is_uppercase) || note.contains("type") => Where::Types,
                    _ => Where::Texts,
                };
                guide.add(term.strip_prefix("the ").unwrap_or(term), place);
            }
        }
        guide
    }

    fn add(&mut self, term: &str, place: Where) {
        let words = words(term);
        let Some((first, rest)) = words.split_first() else { return };
        let endings: &[&str] = match (place, rest.len(), first.len()) {
            (Where::Texts, 0, ..4) => &["", "s"],
            (Where::Texts, 0, _) => &["", "s", "es", "d", "ed", "ing"],
            _ => &[""],
        };
        for ending in endings {
            let terms = self.terms.entry(format!("{first}{ending}")).or_default();
            terms.push((self.rows.len() - 1, rest.to_vec(), place));
        }
    }

    /// The row of each use of a term; a place in the text counts once for a row.
    fn find(&self, area: Area, text: &str) -> Vec<usize> {
        let words = words(text);
        let mut found = Vec::new();
        for (at, word) in words.iter().enumerate() {
            let uses = self.terms.get(word).into_iter().flatten().filter(|(_, rest, place)| {
                let counts = match place {
                    Where::Texts => !matches!(area, TYPES | HEADINGS),
                    Where::Types => area == TYPES,
                    Where::WholeTypes => area == TYPES && words.len() == 1,
                    Where::Headings => area == HEADINGS && at == 0,
                };
                counts && words[at + 1..].starts_with(rest)
            });
            found.extend(uses.map(|(row, ..)| *row).collect::<BTreeSet<usize>>());
        }
        found
    }
}

/// Words in lower case; `CamelCase` and `snake_case` are several.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = ' ';
    for c in text.chars().filter(|c| *c != '\'') {
        if c.is_alphanumeric() && (!before.is_alphanumeric() || (c.is_uppercase() && before.is_lowercase())) {
            words.push(String::new());
        }
        words
            .last_mut()
            .filter(|_| c.is_alphanumeric())
            .into_iter()
            .for_each(|word| word.extend(c.to_lowercase()));
        before = c;
    }
    words
}

/// Words and citations of a Rust file.
pub(super) fn of_source(path: &Path, parsed: &Parsed, guide: Option<&Guide>, targets: &Targets) -> Texts {
    let mut reader = Reader { text: &parsed.text, end: 0, names: BTreeSet::new(), found: Vec::new() };
    reader.tokens(&parsed.tokens, false);
    reader.gap(parsed.text.len()..parsed.text.len());
    let mut texts = Texts::default();
    for (area, text) in reader.names.into_iter().chain(reader.found) {
        texts.read(area, &text, guide);
    }
    texts.cite_all(targets.cited(path, &citations::texts_of(path, parsed)));
    texts
}

/// Words and citations of a Markdown page.
pub(super) fn of_page(root: &Path, page: &Path, guide: Option<&Guide>, targets: &Targets) -> Result<Texts> {
    let text = std::fs::read_to_string(root.join(page))?;
    let mut texts = Texts::default();
    texts.read(DOCS, &text, guide);
    for heading in text.lines().filter(|line| line.starts_with('#')) {
        texts.read(HEADINGS, heading, guide);
    }
    texts.cite_all(targets.cited(page, &text));
    for (_, target) in
        links::links(&text).filter(|(_, it)| !it.contains("://") && !it.starts_with(['#', 'm']))
    {
        let path = target.split('#').next().unwrap_or_default();
        texts.cite("links of pages", root.join(page).with_file_name(path).exists());
    }
    Ok(texts)
}

/// Takes the texts of a file apart.
struct Reader<'a> {
    text: &'a str,
    /// Behind the last token.
    end: usize,
    names: BTreeSet<(Area, String)>,
    found: Vec<(Area, String)>,
}

impl Reader<'_> {
    /// Goes to the end of `token`; what stands before it is a comment.
    fn gap(&mut self, token: Range<usize>) {
        let gap = self.text.get(self.end..token.start).unwrap_or_default().trim();
        if !gap.is_empty() {
            self.found.push((COMMENTS, gap.to_owned()));
        }
        self.end = token.end;
    }

    /// `help` says that doc comments are the help of a program.
    fn tokens(&mut self, tokens: &TokenStream, help: bool) {
        let tokens = trees(tokens);
        let (mut docs, mut derives, mut test) = (String::new(), false, false);
        for (at, token) in tokens.iter().enumerate() {
            let range = token.span().byte_range();
            let before = tokens.get(at.wrapping_sub(1));
            if range.end <= self.end {
                // the second token of a doc comment: both have its place
                continue;
            }
            match token {
                TokenTree::Punct(_)
                    if self.text[range.clone()].starts_with("//")
                        || self.text[range.clone()].starts_with("/*") =>
                {
                    docs += &self.text[range.clone()];
                    docs.push('\n');
                    self.gap(range);
                    continue;
                }
                TokenTree::Group(group) => {
                    if is_punct(before, '#') {
                        let inner = trees(&group.stream());
                        let clap = ["Parser", "Args", "Subcommand", "ValueEnum"];
                        derives |=
                            clap.iter().any(|name| anywhere(&inner, &|here| is_ident(here.first(), name)));
                        test |= source::is_test_function(&inner);
                    }
                    self.gap(group.span_open().byte_range());
                    let body = group.delimiter() == Delimiter::Brace;
                    self.tokens(&group.stream(), body && (help || derives));
                    self.gap(group.span_close().byte_range());
                    derives &= !body;
                }
                TokenTree::Ident(name) => {
                    self.name(before, name.to_string(), &mut test);
                    self.gap(range);
                }
                TokenTree::Literal(literal) => {
                    let text = literal.to_string();
                    if text.contains('"') && text.contains(char::is_whitespace) {
                        self.found.push((MESSAGES, text));
                    }
                    self.gap(range);
                }
                TokenTree::Punct(_) => self.gap(range),
            }
            if !docs.is_empty() && !matches!(token, TokenTree::Punct(_)) && !is_punct(before, '#') {
                self.found.push((if help || derives { HELP } else { COMMENTS }, std::mem::take(&mut docs)));
            }
        }
        self.found.push((COMMENTS, docs));
    }

    fn name(&mut self, before: Option<&TokenTree>, name: String, test: &mut bool) {
        if is_ident(before, "fn") && std::mem::take(test) {
            self.names.insert((TEST_NAMES, name));
            return;
        }
        if ["struct", "enum", "trait", "type", "union"].iter().any(|word| is_ident(before, word)) {
            self.names.insert((TYPES, name.clone()));
        }
        self.names.insert((IDENTIFIERS, name));
    }
}

/// Words by package and by row, and citations.
pub(super) fn tables(texts: &BTreeMap<&str, Texts>, guide: Option<&Guide>) -> Vec<Table> {
    let row = |name: &str, counts: &dyn Fn(&str, usize) -> bool| -> Vec<Value> {
        let uses = |area: Area| {
            let all = texts
                .iter()
                .flat_map(|(package, texts)| texts.words.iter().map(move |word| (*package, word)));
            let counted = all.filter(|(package, ((here, row), _))| *here == area && counts(package, *row));
            counted.map(|(_, (_, uses))| uses).sum::<usize>()
        };
        let all = AREAS.iter().map(|area| uses(area)).sum::<usize>();
        [json!(name), json!(all)].into_iter().chain(AREAS.iter().map(|area| json!(uses(area)))).collect()
    };
    let (mut by_package, mut by_row) = (Vec::new(), Vec::new());
    if let Some(guide) = guide {
        by_package.extend(texts.keys().map(|name| row(name, &|package, _| package == *name)));
        by_row.extend(guide.rows.iter().enumerate().map(|(at, words)| row(words, &|_, row| row == at)));
    }
    let mut all = Texts::default();
    texts.values().for_each(|texts| all.add(texts));
    let cited = all.citations.iter().map(|(kind, [good, bad])| vec![json!(kind), json!(good), json!(bad)]);
    let (note, cited) = ("../shared/language.md is not there", cited.collect());
    let columns = |first| [first, "all"].into_iter().chain(AREAS).collect();
    vec![
        Table {
            title: "Words of the language guide, by package",
            columns: columns("package"),
            rows: by_package,
            note,
        },
        Table {
            title: "Words of the language guide, by row",
            columns: columns("do not write"),
            rows: by_row,
            note,
        },
        Table { title: "Citations", columns: vec!["kind", "resolve", "do not"], rows: cited, note: "" },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUIDE: &str = "x\n| do not write | write |\n|---|---|\n| mend, the mend | fix |\n| forget (a cache entry) | evict |\n\
        | at once | now |\n| say, us | report |\n| kept, known (type names) | cached |\n| Place | `ObjectRef` |\n\
        | Writer without an object | `RevisionWriter` |\n| Failure, Fault as error types | `<Thing>Error` |\n\
        | who/what as a heading | a noun |\n\nafter";

    #[test]
    fn guide_finds_words_where_they_count() {
        let guide = Guide::parse(GUIDE);
        let rows = |area, text: &str| -> Vec<&str> {
            guide
                .find(area, text)
                .into_iter()
                .map(|row| guide.rows[row].split([',', ' ', '/']).next().unwrap())
                .collect()
        };
        for (area, text, want) in [
            (COMMENTS, "It mends what it forgets, recommended AT\n/// once.", &["mend", "forget", "at"][..]),
            (COMMENTS, "he says using us; known Place, a Failure", &["say", "say"]),
            (IDENTIFIERS, "mended_at_once", &["mend", "at"]),
            (IDENTIFIERS, "mendIt", &["mend"]),
            (TYPES, "KeptPlace", &["kept", "Place"]),
            (TYPES, "RevisionWriter", &[]),
            (TYPES, "Writer", &["Writer"]),
            (TYPES, "PullFault", &["Failure"]),
            (TYPES, "Mender", &[]),
            (HEADINGS, "## What to mend", &["who"]),
            (HEADINGS, "## Know what", &[]),
        ] {
            assert_eq!(rows(area, text), want, "{text}");
        }
    }

    #[test]
    fn texts_are_taken_apart_by_area() {
        let text = "//! Module.\n/// Help.\n#[derive(clap::Args)]\nstruct Cli {\n    /// Flag.\n    #[arg(long)]\n    flag: u8, // why\n}\n\
            /// Doc\n/// lines.\nfn run() { log(\"a message\"); \"word\" /* ü */ }\n#[tokio::test]\nasync fn it_runs() {}\n// end\n";
        let parsed = source::parse(text.to_owned()).unwrap();
        let mut reader = Reader { text, end: 0, names: BTreeSet::new(), found: Vec::new() };
        reader.tokens(&parsed.tokens, false);
        reader.gap(text.len()..text.len());
        let of = |wanted: Area| -> String {
            let texts = reader
                .found
                .iter()
                .filter(|(area, _)| *area == wanted)
                .map(|(_, text)| text.replace('\n', " "));
            texts.filter(|text| !text.is_empty()).map(|text| text + "|").collect()
        };
        assert_eq!(of(HELP), "//! Module. /// Help. |/// Flag. |");
        assert_eq!(of(COMMENTS), "// why|/// Doc /// lines. |/* ü */|// end|");
        assert_eq!(of(MESSAGES), "\"a message\"|");
        let names = |wanted: Area| -> Vec<&str> {
            reader.names.iter().filter(|(area, _)| *area == wanted).map(|(_, name)| name.as_str()).collect()
        };
        assert_eq!(names(TEST_NAMES), ["it_runs"]);
        assert_eq!(names(TYPES), ["Cli"]);
        assert!(names(IDENTIFIERS).contains(&"flag") && !names(IDENTIFIERS).contains(&"it_runs"));
    }
}
