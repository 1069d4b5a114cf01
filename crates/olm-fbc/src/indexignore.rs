//! `.indexignore` files: which files of a catalog directory are not read (fbc §2.3).
//!
//! Close to gitignore, but not the same: lines are trimmed on both sides, `\#` is no escape, a directory is
//! never pruned (so `!` works inside an excluded one) and only files are asked about.

use std::str::Chars;

use crate::Cancellation;

pub(crate) const FILE_NAME: &str = ".indexignore";

/// The patterns of all `.indexignore` files of a tree. Later ones win.
#[derive(Debug, Clone, Default)]
pub struct IndexIgnore {
    files: Vec<IgnoreFile>,
    patterns: usize,
}

/// One file: its patterns share the directory that they apply to.
#[derive(Debug, Clone)]
struct IgnoreFile {
    /// Components joined by `/`; empty for the root.
    scope: String,
    depth: usize,
    patterns: Vec<Pattern>,
}

#[derive(Debug, Clone)]
struct Pattern {
    include: bool,
    directory_only: bool,
    shape: Shape,
}

#[derive(Debug, Clone)]
enum Shape {
    /// Any component below the scope.
    Name(Box<str>),
    /// Components from the scope on.
    Anchored(Box<[Part]>),
}

#[derive(Debug, Clone)]
enum Part {
    /// Nothing between two slashes.
    Empty,
    /// `**`.
    AnyDepth,
    /// `**` beside other characters: matches nothing.
    Invalid,
    Glob(Box<str>),
}

impl Part {
    fn new(text: &str) -> Self {
        match text {
            "" => Self::Empty,
            "**" => Self::AnyDepth,
            text if text.contains("**") => Self::Invalid,
            text => Self::Glob(text.into()),
        }
    }
}

/// How much work matching may still do. A step is one pattern component or character that is compared.
#[derive(Debug)]
pub struct MatchBudget<'a> {
    left: u64,
    cancellation: Option<&'a Cancellation>,
}

impl<'a> MatchBudget<'a> {
    /// `steps` in total, until `cancellation`.
    pub fn new(steps: u64, cancellation: &'a Cancellation) -> Self {
        Self { left: steps, cancellation: Some(cancellation) }
    }

    fn unlimited() -> Self {
        Self { left: u64::MAX, cancellation: None }
    }

    fn step(&mut self) -> Result<(), MatchError> {
        self.left = self.left.checked_sub(1).ok_or(MatchError::Steps)?;
        let check = self.left.is_multiple_of(STEPS_PER_CHECK);
        if check && self.cancellation.is_some_and(Cancellation::is_cancelled) {
            return Err(MatchError::Cancelled);
        }
        Ok(())
    }
}

/// How often the cancellation is read.
const STEPS_PER_CHECK: u64 = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchError {
    Steps,
    Cancelled,
}

/// The lines of a file that are patterns.
fn patterns(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

pub(crate) fn count_patterns(text: &[u8]) -> usize {
    patterns(&String::from_utf8_lossy(text)).count()
}

impl IndexIgnore {
    /// Adds the patterns of one file that lies in `directory` (relative to the root, `""` for the root).
    /// Files are to be added in walk order.
    pub fn add(&mut self, directory: &str, text: &[u8]) {
        let patterns: Vec<Pattern> = patterns(&String::from_utf8_lossy(text)).map(Pattern::new).collect();
        if patterns.is_empty() {
            return;
        }
        self.patterns += patterns.len();
        let scope: Vec<&str> = components(directory).collect();
        self.files.push(IgnoreFile { depth: scope.len(), scope: scope.join("/"), patterns });
    }

    pub fn len(&self) -> usize {
        self.patterns
    }

    pub fn is_empty(&self) -> bool {
        self.patterns == 0
    }

    /// Whether the file at `path` (relative to the root, `/` between components) is left out. Work is not bounded: for
    /// trusted patterns and tests.
    pub fn ignores(&self, path: &str) -> bool {
        self.ignores_within(path, &mut MatchBudget::unlimited()).unwrap_or(false)
    }

    /// As [`Self::ignores`], within a budget that may be shared by many paths.
    ///
    /// # Errors
    /// The budget is spent, or the work was cancelled.
    pub(crate) fn ignores_within(
        &self,
        path: &str,
        budget: &mut MatchBudget<'_>,
    ) -> Result<bool, MatchError> {
        if self.files.is_empty() {
            return Ok(false);
        }
        let path: Vec<&str> = components(path).collect();
        for file in self.files.iter().rev() {
            let Some(below) = file.below(&path, budget)? else { continue };
            for pattern in file.patterns.iter().rev() {
                if pattern.matches(below, budget)? {
                    return Ok(!pattern.include);
                }
            }
        }
        Ok(false)
    }
}

fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|component| !component.is_empty() && *component != ".")
}

impl IgnoreFile {
    /// The part of `path` below the file's directory, if it lies there.
    fn below<'p>(
        &self,
        path: &'p [&'p str],
        budget: &mut MatchBudget<'_>,
    ) -> Result<Option<&'p [&'p str]>, MatchError> {
        budget.step()?;
        if path.len() <= self.depth {
            return Ok(None);
        }
        let (above, below) = path.split_at(self.depth);
        for (scope, component) in self.scope.split('/').zip(above) {
            budget.step()?;
            if scope != *component {
                return Ok(None);
            }
        }
        Ok(Some(below))
    }
}

impl Pattern {
    fn new(line: &str) -> Self {
        let (include, pattern) = match line.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let (directory_only, pattern) = match pattern.strip_suffix('/') {
            Some(rest) => (true, rest),
            None => (false, pattern),
        };
        let shape = if pattern.contains('/') {
            Shape::Anchored(pattern.split('/').map(Part::new).collect())
        } else {
            Shape::Name(pattern.into())
        };
        Self { include, directory_only, shape }
    }

    /// `path` is not empty.
    fn matches(&self, path: &[&str], budget: &mut MatchBudget<'_>) -> Result<bool, MatchError> {
        match &self.shape {
            Shape::Name(name) => {
                let names = if self.directory_only { &path[..path.len() - 1] } else { path };
                for component in names {
                    if glob(name, component, budget)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Shape::Anchored(parts) => Ok(match anchored(parts, path, budget)? {
                Some(rest) => !(self.directory_only && rest == 0),
                None => false,
            }),
        }
    }
}

/// Matches components from the front; `Some` is how many of the path are left over.
fn anchored(
    parts: &[Part],
    path: &[&str],
    budget: &mut MatchBudget<'_>,
) -> Result<Option<usize>, MatchError> {
    let mut at = 0;
    let mut matched = false;
    let mut anywhere = false;
    for (index, part) in parts.iter().enumerate() {
        budget.step()?;
        match part {
            Part::Empty => anywhere = false,
            Part::AnyDepth if index + 1 == parts.len() => break,
            Part::AnyDepth => anywhere = true,
            Part::Invalid => return Ok(None),
            Part::Glob(part) => {
                let reach = if anywhere { path.len() } else { (at + 1).min(path.len()) };
                let mut found = None;
                for (candidate, component) in path.iter().enumerate().take(reach).skip(at) {
                    if glob(part, component, budget)? {
                        found = Some(candidate);
                        break;
                    }
                }
                let Some(found) = found else { return Ok(None) };
                anywhere = false;
                matched = true;
                at = found + 1;
            }
        }
    }
    Ok(matched.then(|| path.len() - at))
}

/// Shell globbing within one component: `*`, `?`, `[a-z]`, `[^a-z]`, `\` escapes. A malformed pattern matches
/// nothing.
fn glob(pattern: &str, name: &str, budget: &mut MatchBudget<'_>) -> Result<bool, MatchError> {
    let (mut pattern, mut name) = (pattern, name);
    // where to continue if the last `*` has to take one more character
    let mut retry: Option<(&str, &str)> = None;
    loop {
        budget.step()?;
        if let Some(rest) = pattern.strip_prefix('*') {
            pattern = rest;
            retry = Some((rest, name));
            continue;
        }
        let mut after = name.chars();
        let next = after.next();
        if next.is_none() && pattern.is_empty() {
            return Ok(true);
        }
        let rest = match next {
            Some(c) => match_character(pattern, c, budget)?,
            None => None,
        };
        if let Some(rest) = rest {
            (pattern, name) = (rest, after.as_str());
            continue;
        }
        let Some((start, taken)) = retry else { return Ok(false) };
        let mut taken = taken.chars();
        if taken.next().is_none() {
            return Ok(false);
        }
        (pattern, name) = (start, taken.as_str());
        retry = Some((pattern, name));
    }
}

/// Matches one character against the head of a pattern; `Some` is the rest of the pattern.
fn match_character<'p>(
    pattern: &'p str,
    c: char,
    budget: &mut MatchBudget<'_>,
) -> Result<Option<&'p str>, MatchError> {
    let mut rest = pattern.chars();
    let matched = match rest.next() {
        None => false,
        Some('?') => true,
        Some('\\') => rest.next() == Some(c),
        Some('[') => match_class(&mut rest, c, budget)?,
        Some(literal) => literal == c,
    };
    Ok(matched.then_some(rest.as_str()))
}

/// Matches one character against a class whose `[` has been read, and reads its `]`.
fn match_class(rest: &mut Chars<'_>, c: char, budget: &mut MatchBudget<'_>) -> Result<bool, MatchError> {
    let skip = |rest: &mut Chars<'_>, prefix: char| {
        let found = rest.as_str().starts_with(prefix);
        if found {
            rest.next();
        }
        found
    };
    let negated = skip(rest, '^');
    let mut found = false;
    let mut first = true;
    loop {
        budget.step()?;
        if !first && skip(rest, ']') {
            return Ok(found != negated);
        }
        let Some(low) = class_character(rest) else { return Ok(false) };
        let high = if skip(rest, '-') { class_character(rest) } else { Some(low) };
        let Some(high) = high else { return Ok(false) };
        found |= (low..=high).contains(&c);
        first = false;
    }
}

fn class_character(rest: &mut Chars<'_>) -> Option<char> {
    match rest.next()? {
        '-' | ']' => None,
        '\\' => rest.next(),
        c => Some(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: [&str; 7] = [
        "a.yaml",
        "dir.yaml",
        "dir/a.yaml",
        "dir/b.yaml",
        "dir/sub/a.yaml",
        "dir/sub/c.json",
        "objects/o.json",
    ];

    fn ignored(patterns: &str) -> Vec<&'static str> {
        let mut ignore = IndexIgnore::default();
        ignore.add("", patterns.as_bytes());
        let tree = TREE.iter().copied().chain(["x/objects/o.json"]);
        tree.filter(|path| ignore.ignores(path)).collect()
    }

    #[test]
    fn indexignore_table_of_fbc_2_3() {
        let below_dir = ["dir/a.yaml", "dir/b.yaml", "dir/sub/a.yaml", "dir/sub/c.json"];
        let everything: Vec<&str> = TREE.iter().copied().chain(["x/objects/o.json"]).collect();
        let below_any: Vec<&str> = everything.iter().copied().filter(|path| path.contains('/')).collect();
        let both_objects = ["objects/o.json", "x/objects/o.json"];
        let cases: &[(&str, &[&str])] = &[
            ("dir", &below_dir),
            ("dir/", &below_dir),
            ("/dir", &below_dir),
            ("dir/**", &below_dir),
            ("dir/*", &below_dir),
            ("d*r", &below_dir),
            ("di[rs]", &below_dir),
            ("di[^a-q]", &below_dir),
            (" dir ", &below_dir),
            ("**", &everything),
            ("**/*", &everything),
            ("/**", &[]),
            ("#dir", &[]),
            (r"\#x", &[]),
            ("d**r/a.yaml", &[]),
            ("**/", &below_any),
            ("*.json", &["dir/sub/c.json", "objects/o.json", "x/objects/o.json"]),
            ("objects/*.json", &["objects/o.json"]),
            ("/objects", &["objects/o.json"]),
            ("**/objects/*.json", &both_objects),
            ("dir/*/a.yaml", &["dir/sub/a.yaml"]),
            ("dir/**/c.json", &["dir/sub/c.json"]),
            ("sub/", &["dir/sub/a.yaml", "dir/sub/c.json"]),
            ("**/sub", &["dir/sub/a.yaml", "dir/sub/c.json"]),
            ("**/sub/**", &["dir/sub/a.yaml", "dir/sub/c.json"]),
            ("dir\n!c.json", &["dir/a.yaml", "dir/b.yaml", "dir/sub/a.yaml"]),
            ("dir/\n!dir/sub/c.json", &["dir/a.yaml", "dir/b.yaml", "dir/sub/a.yaml"]),
            ("a.yaml\n!/a.yaml", &["dir/a.yaml", "dir/sub/a.yaml"]),
            ("d[r-", &[]),
            (r"d\ir", &below_dir),
            ("?ir", &below_dir),
        ];
        for (patterns, want) in cases {
            assert_eq!(ignored(patterns), *want, "{patterns:?}");
        }
    }

    #[test]
    fn indexignore_holds_for_its_own_directory() {
        let mut ignore = IndexIgnore::default();
        ignore.add("", b"**/*\n!*.json\n!*.yaml\n**/objects/*.json\n");
        ignore.add("foo", b"/index2.yaml");
        for (path, want) in [
            ("README.md", true),
            ("a.json", false),
            ("x/objects/o.json", true),
            ("objects/o.yaml", false),
            ("index2.yaml", false),
            ("foo/index2.yaml", true),
            ("foo/bar/index2.yaml", false),
        ] {
            assert_eq!(ignore.ignores(path), want, "{path}");
        }
    }

    /// What a pattern costs does not depend on how deep its file lies.
    #[test]
    fn indexignore_patterns_of_a_file_share_its_directory() {
        let mut ignore = IndexIgnore::default();
        ignore.add(&"d/".repeat(60), "a\n".repeat(1000).as_bytes());
        assert_eq!(ignore.len(), 1000);
        let cancellation = Cancellation::default();
        let mut budget = MatchBudget::new(100, &cancellation);
        let beside = format!("{}e/a", "d/".repeat(59));
        assert_eq!(ignore.ignores_within(&beside, &mut budget), Ok(false), "compared once");
        assert_eq!(ignore.files.len(), 1, "stored once");
        assert!(ignore.ignores(&format!("{}a", "d/".repeat(60))));
    }

    #[test]
    fn indexignore_is_fast_with_many_stars() {
        let mut ignore = IndexIgnore::default();
        ignore.add("", "*a".repeat(2000).as_bytes());
        assert!(!ignore.ignores(&"a".repeat(1999)));
        assert!(ignore.ignores(&"a".repeat(2001)));
    }
}
