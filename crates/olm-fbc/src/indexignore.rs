//! `.indexignore` files: which files of a catalog directory are not read (fbc §2.3).
//!
//! Close to gitignore, but not the same: lines are trimmed on both sides, `\#` is no escape, a directory is
//! never pruned (so `!` works inside an excluded one) and only files are asked about.

/// The name of such a file.
pub const FILE_NAME: &str = ".indexignore";

/// The patterns of all `.indexignore` files of a tree. Later ones win.
#[derive(Debug, Clone, Default)]
pub struct IndexIgnore {
    patterns: Vec<Pattern>,
}

#[derive(Debug, Clone)]
struct Pattern {
    scope: Vec<String>,
    include: bool,
    directory_only: bool,
    shape: Shape,
}

#[derive(Debug, Clone)]
enum Shape {
    /// Any component below the scope.
    Name(String),
    /// Components from the scope on.
    Anchored(Vec<String>),
}

impl IndexIgnore {
    /// Adds the patterns of one file that lies in `directory` (relative to the root, `""` for the root).
    /// Files are to be added in walk order.
    pub fn add(&mut self, directory: &str, text: &[u8]) {
        let scope: Vec<String> = components(directory).map(str::to_owned).collect();
        for line in String::from_utf8_lossy(text).lines() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (include, pattern) = match line.strip_prefix('!') {
                Some(rest) => (true, rest),
                None => (false, line),
            };
            let (directory_only, pattern) = match pattern.strip_suffix('/') {
                Some(rest) => (true, rest),
                None => (false, pattern),
            };
            let shape = if pattern.contains('/') {
                Shape::Anchored(pattern.split('/').map(str::to_owned).collect())
            } else {
                Shape::Name(pattern.to_owned())
            };
            self.patterns.push(Pattern { scope: scope.clone(), include, directory_only, shape });
        }
    }

    /// Whether the file at `path` (relative to the root, `/` between components) is left out.
    pub fn ignores(&self, path: &str) -> bool {
        if self.patterns.is_empty() {
            return false;
        }
        let path: Vec<&str> = components(path).collect();
        let decisive = self.patterns.iter().rev().find(|pattern| pattern.matches(&path));
        decisive.is_some_and(|pattern| !pattern.include)
    }
}

fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|component| !component.is_empty() && *component != ".")
}

impl Pattern {
    fn matches(&self, path: &[&str]) -> bool {
        let below = path.len() > self.scope.len() && self.scope.iter().zip(path).all(|(a, b)| a == b);
        if !below {
            return false;
        }
        let path = &path[self.scope.len()..];
        match &self.shape {
            Shape::Name(name) => {
                let asked = if self.directory_only { &path[..path.len() - 1] } else { path };
                asked.iter().any(|component| glob(name, component))
            }
            Shape::Anchored(parts) => match anchored(parts, path) {
                Some(rest) => !(self.directory_only && rest == 0),
                None => false,
            },
        }
    }
}

/// Matches components from the front; `Some` is how many of the path are left over.
fn anchored(parts: &[String], path: &[&str]) -> Option<usize> {
    let mut at = 0;
    let mut matched = false;
    let mut anywhere = false;
    for (index, part) in parts.iter().enumerate() {
        match part.as_str() {
            "" => anywhere = false,
            "**" if index + 1 == parts.len() => break,
            "**" => anywhere = true,
            part if part.contains("**") => return None,
            part => {
                let reach = if anywhere { path.len() } else { (at + 1).min(path.len()) };
                let found = (at..reach).find(|&candidate| glob(part, path[candidate]))?;
                anywhere = false;
                matched = true;
                at = found + 1;
            }
        }
    }
    matched.then(|| path.len() - at)
}

/// Shell globbing within one component: `*`, `?`, `[a-z]`, `[^a-z]`, `\` escapes. A malformed pattern matches
/// nothing.
fn glob(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    // where to go on if the last `*` has to take one more character
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&'*') {
            p += 1;
            retry = Some((p, n));
            continue;
        }
        if n == name.len() && p == pattern.len() {
            return true;
        }
        let step = name.get(n).and_then(|&c| one(&pattern[p..], c));
        match (step, retry) {
            (Some(used), _) => {
                p += used;
                n += 1;
            }
            (None, Some((after, taken))) if taken < name.len() => {
                retry = Some((after, taken + 1));
                p = after;
                n = taken + 1;
            }
            _ => return false,
        }
    }
}

/// Matches one character against the head of a pattern; `Some` is how much of the pattern that took.
fn one(pattern: &[char], c: char) -> Option<usize> {
    match *pattern.first()? {
        '?' => Some(1),
        '\\' => (*pattern.get(1)? == c).then_some(2),
        '[' => {
            let mut at = 1;
            let negated = pattern.get(at) == Some(&'^');
            at += usize::from(negated);
            let mut found = false;
            let mut count = 0;
            loop {
                if count > 0 && pattern.get(at) == Some(&']') {
                    return (found != negated).then_some(at + 1);
                }
                let low = class_character(pattern, &mut at)?;
                let high = if pattern.get(at) == Some(&'-') {
                    at += 1;
                    class_character(pattern, &mut at)?
                } else {
                    low
                };
                found |= (low..=high).contains(&c);
                count += 1;
            }
        }
        literal => (literal == c).then_some(1),
    }
}

fn class_character(pattern: &[char], at: &mut usize) -> Option<char> {
    let mut c = *pattern.get(*at)?;
    if c == '-' || c == ']' {
        return None;
    }
    if c == '\\' {
        *at += 1;
        c = *pattern.get(*at)?;
    }
    *at += 1;
    Some(c)
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
    fn the_table_of_fbc_2_3() {
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
    fn a_nested_file_speaks_of_its_own_directory() {
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

    #[test]
    fn many_stars_do_not_hang() {
        let mut ignore = IndexIgnore::default();
        ignore.add("", "*a".repeat(2000).as_bytes());
        assert!(!ignore.ignores(&"a".repeat(1999)));
        assert!(ignore.ignores(&"a".repeat(2001)));
    }
}
