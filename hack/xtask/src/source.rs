//! The Rust sources of a checkout as token trees: which lines are tests, and the product's tokens without them.
//!
//! What counts as a test: items under `#[test]` (any path that ends in `test`) or a `cfg` that names `test`, the files of such
//! modules, the folders `tests` and `benches` of a package, and packages below `tests/` and `fuzz/`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr as _;

use anyhow::{Context, Result, anyhow, ensure};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use serde::Deserialize;

/// A package of the workspace.
#[derive(Debug, Clone)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Its folder, from the root of the checkout.
    pub(crate) folder: PathBuf,
    /// Programs that `cargo test` builds from its folder `tests`, and those of its library and programs.
    pub(crate) test_programs: usize,
    pub(crate) unit_test_programs: usize,
}

/// A file of a package.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) package: String,
    /// From the root of the checkout.
    pub(crate) path: PathBuf,
    /// Nothing in it is product.
    pub(crate) test: bool,
}

/// A file's text and tokens.
pub(crate) struct Parsed {
    pub(crate) text: String,
    pub(crate) tokens: TokenStream,
    /// Those of the product.
    pub(crate) product: TokenStream,
    pub(crate) test_lines: usize,
    /// Modules in files of their own that are tests.
    test_modules: Vec<String>,
}

/// The workspace, as Cargo reports it.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub(crate) workspace_root: PathBuf,
    pub(crate) packages: Vec<Manifest>,
}

#[derive(Default, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) manifest_path: PathBuf,
    pub(crate) metadata: Option<Boundary>,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Boundary {
    pub(crate) must_not_know: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// absent for ordinary dependencies, else `dev` or `build`
    pub(crate) kind: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct Target {
    pub(crate) kind: Vec<String>,
    test: bool,
    required_features: Vec<String>,
}

pub(crate) fn metadata(root: &Path) -> Result<Metadata> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("cannot read cargo metadata")
}

/// The packages of a workspace by name.
pub(crate) fn packages(root: &Path) -> Result<Vec<Package>> {
    let Metadata { workspace_root, packages } = metadata(root)?;
    let mut found = Vec::new();
    for package in packages {
        let folder = package.manifest_path.parent().and_then(|it| it.strip_prefix(&workspace_root).ok());
        let folder = folder.context("a package is outside of the workspace")?.to_owned();
        // a target that needs a feature is built only where the feature is on, and so not by `cargo test`
        let built = package.targets.iter().filter(|it| it.test && it.required_features.is_empty());
        let (tests, others): (Vec<_>, Vec<_>) = built.partition(|target| target.kind[..] == ["test"]);
        let (test_programs, unit_test_programs) = (tests.len(), others.len());
        found.push(Package { name: package.name, folder, test_programs, unit_test_programs });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Whether `name` is a word of the list.
pub(crate) fn is_in(list: &str, name: &str) -> bool {
    list.split_whitespace().any(|word| word == name)
}

/// Reads every Rust file of `packages` and passes it to `read`, on all processors.
pub(crate) fn scan<T: Send>(
    root: &Path,
    packages: &[Package],
    read: impl Fn(&Source, &Parsed) -> Result<T> + Sync,
) -> Result<Vec<(Source, T)>> {
    let mut sources = Vec::new();
    for package in packages {
        let mut paths = Vec::new();
        collect(root, &package.folder, "rs", &mut paths)?;
        for path in paths {
            let inner = path.strip_prefix(&package.folder).unwrap_or(&path);
            let test = ["tests", "fuzz"].iter().any(|folder| package.folder.starts_with(folder))
                || ["tests", "benches"].iter().any(|folder| inner.starts_with(folder));
            sources.push(Source { package: package.name.clone(), path, test });
        }
    }
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let part = |worker: usize| {
        let mine = sources.iter().skip(worker).step_by(workers);
        let found = mine.map(|source| {
            let text = std::fs::read_to_string(root.join(&source.path))?;
            let parsed = parse(text).with_context(|| format!("cannot read {}", source.path.display()))?;
            let modules =
                parsed.test_modules.iter().map(|module| module_path(&source.path, module)).collect();
            Ok((source.clone(), read(source, &parsed)?, modules))
        });
        found.collect::<Result<Vec<(Source, T, Vec<PathBuf>)>>>()
    };
    let mut all = Vec::new();
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|worker| scope.spawn(move || part(worker))).collect();
        for worker in running {
            all.extend(worker.join().map_err(|_| anyhow!("a reader of sources failed"))??);
        }
        anyhow::Ok(())
    })?;
    let modules: BTreeSet<PathBuf> = all.iter().flat_map(|(_, _, modules)| modules.clone()).collect();
    for (source, ..) in &mut all {
        source.test |= source.path.ancestors().any(|above| modules.contains(&above.with_extension("")));
    }
    all.sort_by(|(a, ..), (b, ..)| a.path.cmp(&b.path));
    Ok(all.into_iter().map(|(source, found, _)| (source, found)).collect())
}

/// Files with this extension below `folder`, without what is built, hidden or another package.
pub(crate) fn collect(root: &Path, folder: &Path, extension: &str, paths: &mut Vec<PathBuf>) -> Result<()> {
    let here = root.join(folder);
    for entry in std::fs::read_dir(&here).with_context(|| format!("cannot read {}", here.display()))? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), folder.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            let package = extension == "rs" && entry.path().join("Cargo.toml").exists();
            if name != "target"
                && name != "node_modules"
                && !name.to_string_lossy().starts_with('.')
                && !package
            {
                collect(root, &path, extension, paths)?;
            }
        } else if path.extension().is_some_and(|it| it == extension) {
            paths.push(path);
        }
    }
    Ok(())
}

/// The Markdown files below `folder` with their texts.
pub(crate) fn pages(root: &Path, folder: &str) -> Result<BTreeMap<PathBuf, String>> {
    let mut paths = Vec::new();
    collect(root, Path::new(folder), "md", &mut paths)?;
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(root.join(&path));
        Ok((path.clone(), text.with_context(|| format!("cannot read {}", path.display()))?))
    };
    paths.into_iter().map(read).collect()
}

/// Where the module `name` of the file `path` is, without `.rs` or `/mod.rs`.
fn module_path(path: &Path, name: &str) -> PathBuf {
    let folder = match path.file_name().and_then(|file| file.to_str()) {
        Some("lib.rs" | "main.rs" | "mod.rs") => path.with_file_name(""),
        _ => path.with_extension(""),
    };
    folder.join(name)
}

/// Tokens of a text, and what is product among them.
pub(crate) fn parse(text: String) -> Result<Parsed> {
    // positions of files that were read before are not needed any more
    proc_macro2::extra::invalidate_current_thread_spans();
    let tokens = TokenStream::from_str(&text).map_err(|error| anyhow!("{error}"))?;
    let mut tests = Tests::default();
    let product = tests.strip(&tokens);
    let test_lines = if tests.whole { text.lines().count() } else { tests.lines.len() };
    let product = if tests.whole { TokenStream::new() } else { product };
    Ok(Parsed { text, tokens, product, test_lines, test_modules: tests.modules })
}

#[derive(Default)]
struct Tests {
    whole: bool,
    lines: BTreeSet<usize>,
    modules: Vec<String>,
}

impl Tests {
    /// What is left of `tokens` without tests.
    fn strip(&mut self, tokens: &TokenStream) -> TokenStream {
        let tokens = trees(tokens);
        let mut kept = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            let attributes =
                tokens[at..].chunks_exact(2).take_while(|pair| attribute(pair).is_some()).count();
            let end = at + attributes * 2;
            if tokens[at..end].chunks_exact(2).filter_map(attribute).any(|group| is_test(&group.stream())) {
                let stop = item_end(&tokens, end);
                self.skip(&tokens[at..stop], &tokens[end..stop]);
                at = stop;
                continue;
            }
            // `#![cfg(test)]`
            let inner = is_punct(tokens.get(at), '#') && is_punct(tokens.get(at + 1), '!');
            self.whole |= inner && group(tokens.get(at + 2)).is_some_and(|group| is_test(&group.stream()));
            kept.extend(tokens[at..end].iter().cloned());
            if let Some(token) = tokens.get(end) {
                kept.push(match token {
                    TokenTree::Group(group) => {
                        let mut inner = Group::new(group.delimiter(), self.strip(&group.stream()));
                        inner.set_span(group.span());
                        TokenTree::Group(inner)
                    }
                    other => other.clone(),
                });
            }
            at = end + 1;
        }
        kept.into_iter().collect()
    }

    fn skip(&mut self, with_attributes: &[TokenTree], item: &[TokenTree]) {
        if let (Some(first), Some(last)) = (with_attributes.first(), with_attributes.last()) {
            self.lines.extend(first.span().start().line..=last.span().end().line);
        }
        if let Some(at) = item.iter().position(|token| is_ident(Some(token), "mod"))
            && is_punct(item.last(), ';')
        {
            self.modules.extend(item.get(at + 1).map(ToString::to_string));
        }
    }
}

/// The brackets of the attribute that a `#` and a group are.
pub(crate) fn attribute(pair: &[TokenTree]) -> Option<&Group> {
    let found = group(pair.get(1)).filter(|group| group.delimiter() == Delimiter::Bracket)?;
    is_punct(pair.first(), '#').then_some(found)
}

/// Behind the item, field or arm that begins at `at`.
fn item_end(tokens: &[TokenTree], at: usize) -> usize {
    let rest = &tokens[at..];
    let head: Vec<String> = rest.iter().take(5).map(ToString::to_string).collect();
    let one_of = |words: &str, head: &[String]| head.iter().any(|word| is_in(words, word));
    // a field, a variant or an arm ends at a comma; what has a value ends at a semicolon, whatever braces it has
    let item = one_of(
        "pub fn mod impl struct enum use const static async unsafe trait type let",
        &head[..head.len().min(1)],
    );
    let value = one_of("use const static let type", &head) && !one_of("fn mod impl struct enum trait", &head);
    let end = rest.iter().position(|token| match token {
        TokenTree::Punct(punct) => punct.as_char() == ';' || (punct.as_char() == ',' && !item),
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace && !value,
        _ => false,
    });
    let end = end.map_or(tokens.len(), |end| at + end + 1);
    end + usize::from(!item && is_punct(tokens.get(end), ','))
}

/// `test`, `tokio::test(…)`, or a `cfg` that names `test` outside of `not`.
fn is_test(attribute: &TokenStream) -> bool {
    let tokens = trees(attribute);
    if is_ident(tokens.first(), "cfg") {
        return group(tokens.get(1)).is_some_and(|group| names_test(&group.stream()));
    }
    is_test_function(&tokens)
}

/// `test` or a path that ends in it.
pub(crate) fn is_test_function(attribute: &[TokenTree]) -> bool {
    is_ident(attribute.iter().take_while(|token| group(Some(token)).is_none()).last(), "test")
}

fn names_test(condition: &TokenStream) -> bool {
    let tokens = trees(condition);
    tokens.iter().enumerate().any(|(at, token)| match token {
        TokenTree::Group(group) => {
            !is_ident(tokens.get(at.wrapping_sub(1)), "not") && names_test(&group.stream())
        }
        token => is_ident(Some(token), "test"),
    })
}

/// Is there a place, in groups too, of which `here` is true?
pub(crate) fn anywhere(tokens: &[TokenTree], here: &dyn Fn(&[TokenTree]) -> bool) -> bool {
    (0..tokens.len()).any(|at| {
        here(&tokens[at..])
            || group(tokens.get(at)).is_some_and(|group| anywhere(&trees(&group.stream()), here))
    })
}

pub(crate) fn trees(tokens: &TokenStream) -> Vec<TokenTree> {
    tokens.clone().into_iter().collect()
}

pub(crate) fn is_ident(token: Option<&TokenTree>, word: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(ident)) if ident == word)
}

pub(crate) fn is_punct(token: Option<&TokenTree>, mark: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
}

pub(crate) fn group(token: Option<&TokenTree>) -> Option<&Group> {
    match token {
        Some(TokenTree::Group(group)) => Some(group),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_separates_tests_from_product() {
        let text = "use a;\n#[cfg(not(test))]\nfn kept() {}\n/// Docs.\n#[cfg(test)]\nuse b::{c, d};\n\
                    fn also<A, B>() {\n    #[cfg(test)]\n    let x = S { y: 1 };\n    z();\n}\n#[cfg(test)]\nmod tests;\n\
                    #[tokio::test(flavor = \"x\")]\nasync fn f<A, B>() {\n}\n#[cfg(any(test, feature = \"x\"))]\npub mod kit;\n";
        let parsed = parse(text.to_owned()).unwrap();
        let want = "usea;#[cfg(not(test))]fnkept(){}fnalso<A,B>(){z();}";
        assert_eq!(parsed.product.to_string().replace(' ', ""), want);
        let want = (12, vec!["tests".to_owned(), "kit".to_owned()]);
        assert_eq!((parsed.test_lines, parsed.test_modules), want);
        assert_eq!(parse("#![cfg(test)]\nfn a() {}\n".to_owned()).unwrap().test_lines, 2);
    }

    #[test]
    fn module_path_follows_the_file() {
        for (file, want) in [("a/lib.rs", "a/m"), ("a/b/mod.rs", "a/b/m"), ("a/b.rs", "a/b/m")] {
            assert_eq!(module_path(Path::new(file), "m"), Path::new(want), "{file}");
        }
    }
}
