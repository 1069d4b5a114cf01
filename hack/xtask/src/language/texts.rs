//! The texts of a source file or a page, by area.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::source::{self, Parsed, anywhere, is_ident, is_punct, trees};

/// Where words are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Area {
    Identifiers,
    /// Also doc comments of what is no help.
    Comments,
    TestNames,
    /// Doc comments of flags and of CRDs.
    Help,
    /// Strings with white space.
    Messages,
    Documents,
}

impl Area {
    pub(crate) const ALL: [Self; 6] =
        [Self::Identifiers, Self::Comments, Self::TestNames, Self::Help, Self::Messages, Self::Documents];

    pub(crate) fn name(self) -> &'static str {
        ["identifiers", "comments", "test names", "help", "messages", "documents"][self as usize]
    }
}

/// What a text is within its area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Plain,
    /// The name of a type, where it is declared.
    Type,
    /// The name of a function, constant or static, where it is declared.
    Item,
    /// A heading, or the first line of a module's documentation.
    Heading,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) area: Area,
    pub(crate) role: Role,
    /// Of its first character.
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// The texts of a Rust file. An identifier is listed once, where the file names it first; a declared name is listed again as such.
pub(crate) fn of_source(parsed: &Parsed) -> Vec<Text> {
    let mut reader =
        Reader { text: &parsed.text, end: 0, line: 1, names: BTreeMap::new(), found: Vec::new() };
    reader.tokens(&parsed.tokens, Scope::default());
    reader.gap(parsed.text.len()..parsed.text.len());
    if let Some(line) = parsed.text.lines().next().filter(|line| line.starts_with("//!")) {
        reader.push(Area::Comments, Role::Heading, 1, line.to_owned());
    }
    let mut texts = reader.found;
    let plain = |(text, line)| Text { area: Area::Identifiers, role: Role::Plain, line, text };
    texts.extend(reader.names.into_iter().map(plain));
    texts
}

/// A Markdown page, and its headings again as such; any other file holds messages.
pub(crate) fn of_page(path: &Path, text: &str) -> Vec<Text> {
    let markdown = path.extension().is_some_and(|extension| extension == "md");
    let area = if markdown { Area::Documents } else { Area::Messages };
    let page = |role, line, text: &str| Text { area, role, line, text: text.to_owned() };
    let headings = text.lines().enumerate().filter(|(_, line)| markdown && line.starts_with('#'));
    let mut texts = vec![page(Role::Plain, 1, text)];
    texts.extend(headings.map(|(at, heading)| page(Role::Heading, at + 1, heading)));
    texts
}

/// What the tokens of a group belong to.
#[derive(Clone, Copy, Default)]
struct Scope {
    /// Doc comments are help.
    help: bool,
    /// The names of functions are those of a trait.
    trait_impl: bool,
}

/// Takes the texts of a file apart.
struct Reader<'a> {
    text: &'a str,
    /// Behind the last token, and the line there.
    end: usize,
    line: usize,
    /// Identifiers and the line where each is first.
    names: BTreeMap<String, usize>,
    found: Vec<Text>,
}

impl Reader<'_> {
    fn push(&mut self, area: Area, role: Role, line: usize, text: String) {
        if !text.is_empty() {
            self.found.push(Text { area, role, line, text });
        }
    }

    /// Continues behind `token`; what stands before it is a comment.
    fn gap(&mut self, token: Range<usize>) {
        let text = self.text;
        let gap = text.get(self.end..token.start).unwrap_or_default();
        let blank = gap.len() - gap.trim_start().len();
        let line = self.line + newlines(&gap[..blank]);
        self.push(Area::Comments, Role::Plain, line, gap.trim().to_owned());
        self.line += newlines(&text[self.end.min(token.end)..token.end]);
        self.end = token.end;
    }

    fn tokens(&mut self, tokens: &TokenStream, scope: Scope) {
        const HELP: [&str; 6] = ["Parser", "Args", "Subcommand", "ValueEnum", "CustomResource", "JsonSchema"];
        let tokens = trees(tokens);
        let (mut docs, mut first_line) = (String::new(), 0);
        let (mut derives, mut test) = (false, false);
        let (mut in_impl, mut trait_impl) = (false, false);
        for (at, token) in tokens.iter().enumerate() {
            let range = token.span().byte_range();
            let before = tokens.get(at.wrapping_sub(1));
            if range.end <= self.end {
                // the second token of a doc comment: both have its position
                continue;
            }
            match token {
                TokenTree::Punct(_)
                    if self.text[range.clone()].starts_with("//")
                        || self.text[range.clone()].starts_with("/*") =>
                {
                    self.gap(range.start..range.start);
                    if docs.is_empty() {
                        first_line = self.line;
                    }
                    docs += &self.text[range.clone()];
                    docs.push('\n');
                    self.gap(range);
                    continue;
                }
                TokenTree::Group(group) => {
                    if is_punct(before, '#') {
                        let inner = trees(&group.stream());
                        derives |=
                            HELP.iter().any(|name| anywhere(&inner, &|here| is_ident(here.first(), name)));
                        test |= source::is_test_function(&inner);
                    }
                    self.gap(group.span_open().byte_range());
                    let body = group.delimiter() == Delimiter::Brace;
                    let inner = Scope {
                        help: body && (scope.help || derives),
                        trait_impl: body && std::mem::take(&mut trait_impl),
                    };
                    self.tokens(&group.stream(), inner);
                    self.gap(group.span_close().byte_range());
                    derives &= !body;
                    in_impl &= !body;
                }
                TokenTree::Ident(name) => {
                    self.gap(range.start..range.start);
                    in_impl |= name == "impl";
                    trait_impl |= in_impl && name == "for";
                    self.name(before, name.to_string(), &mut test, scope);
                    self.gap(range);
                }
                TokenTree::Literal(literal) => {
                    self.gap(range.start..range.start);
                    let text = literal.to_string();
                    if text.contains('"') && text.contains(char::is_whitespace) {
                        self.push(Area::Messages, Role::Plain, self.line, text);
                    }
                    self.gap(range);
                }
                TokenTree::Punct(_) => self.gap(range),
            }
            if !docs.is_empty() && !matches!(token, TokenTree::Punct(_)) && !is_punct(before, '#') {
                let area = if scope.help || derives { Area::Help } else { Area::Comments };
                self.push(area, Role::Plain, first_line, std::mem::take(&mut docs));
            }
        }
        self.push(Area::Comments, Role::Plain, first_line, docs);
    }

    fn name(&mut self, before: Option<&TokenTree>, name: String, test: &mut bool, scope: Scope) {
        let is_after = |words: &[&str]| words.iter().any(|word| is_ident(before, word));
        let line = self.line;
        if is_after(&["fn"]) && std::mem::take(test) {
            return self.push(Area::TestNames, Role::Plain, line, name);
        }
        if is_after(&["struct", "enum", "trait", "type", "union"]) {
            self.push(Area::Identifiers, Role::Type, line, name.clone());
        } else if (is_after(&["fn"]) && !scope.trait_impl)
            || (is_after(&["const", "static", "mut"]) && name.starts_with(char::is_uppercase))
        {
            self.push(Area::Identifiers, Role::Item, line, name.clone());
        }
        self.names.entry(name).or_insert(line);
    }
}

fn newlines(text: &str) -> usize {
    text.matches('\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "//! Module.\n/// Help.\n#[derive(clap::Args)]\nstruct Cli {\n    /// Flag.\n    #[arg(long)]\n    flag: u8, // why\n}\n\
        /// Doc\n/// lines.\nfn run() { log(\"a message\"); \"word\" /* ü */ }\n#[tokio::test]\nasync fn it_runs() {}\n\
        const MOST: u8 = 1;\nimpl From<A> for Cli {\n    fn from(a: A) -> Self { a }\n}\n// end\n";

    fn found(area: Area, role: Role) -> Vec<(usize, String)> {
        let texts = of_source(&source::parse(SOURCE.to_owned()).unwrap()).into_iter();
        let mut texts: Vec<_> = texts
            .filter(|text| text.area == area && text.role == role)
            .map(|text| (text.line, text.text.trim().replace('\n', " ")))
            .collect();
        texts.sort();
        texts
    }

    #[test]
    fn source_is_split_into_areas() {
        for (area, role, want) in [
            (Area::Help, Role::Plain, &[(1, "//! Module. /// Help."), (5, "/// Flag.")][..]),
            (
                Area::Comments,
                Role::Plain,
                &[(7, "// why"), (9, "/// Doc /// lines."), (11, "/* ü */"), (18, "// end")],
            ),
            (Area::Comments, Role::Heading, &[(1, "//! Module.")]),
            (Area::Messages, Role::Plain, &[(11, "\"a message\"")]),
            (Area::TestNames, Role::Plain, &[(13, "it_runs")]),
            (Area::Identifiers, Role::Type, &[(4, "Cli")]),
            (Area::Identifiers, Role::Item, &[(11, "run"), (14, "MOST")]),
        ] {
            let want: Vec<_> = want.iter().map(|(line, text)| (*line, (*text).to_owned())).collect();
            assert_eq!(found(area, role), want, "{area:?} {role:?}");
        }
        let names = found(Area::Identifiers, Role::Plain);
        assert!(
            names.contains(&(7, "flag".to_owned())) && names.contains(&(4, "Cli".to_owned())),
            "{names:?}"
        );
        assert!(!names.iter().any(|(_, name)| name == "it_runs"));
    }

    #[test]
    fn page_has_its_headings() {
        let roles: Vec<_> = of_page(Path::new("a.md"), "# A\ntext\n## B\n")
            .into_iter()
            .map(|it| (it.role, it.line))
            .collect();
        assert_eq!(roles, [(Role::Plain, 1), (Role::Heading, 1), (Role::Heading, 3)]);
    }
}
