//! `make figures`: sizes, watches, stores, words that the glossary replaces, citations and the times of the last runs of a checkout.
//!
//! Every number comes from the files of the checkout, so that an old commit is measured by today's rules: [`DEFINITIONS`].

mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Result, bail};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use serde_json::{Map, Value, json};
use syn::visit::{self, Visit};

use self::text::Texts;
use crate::citations::Targets;
use crate::language::{self, Rules};
use crate::source::{self, Package, Parsed, Source, anywhere, group, is_ident, is_in, is_punct, trees};

const DEFINITIONS: &str = "\
Lines: all lines of Rust files. Test lines: items under `#[test]` or a `cfg` that names `test`, files of such modules, the folders \
`tests` and `benches`, packages below `tests/` and `fuzz/`; all others are product. Files, median and longest: files of the product, with \
all their lines. Public items: `pub` items and methods of the product, without fields. Watches: calls of kube's `watcher`, \
`metadata_watcher` and `watch_object` in the product, and of `watch` and `watch_metadata` where a file names `WatchParams`. Watch loops: \
innermost loops that match on events of a watch. In-memory stores: fields and statics of the product with a lock (`Mutex`, `RwLock`, \
`ArcSwap`, `RefCell`) around a map, set or queue, or around a type of the package that has one; a `DashMap`; a reflector's `Store<K>`. \
Test programs: those that `cargo test --workspace` builds, from `tests/*.rs` and from libraries and programs. Words: those of \
hack/language.toml of this checkout, with their inflections; an identifier counts once in a \
file. Messages: strings with white space. Citations: of comments, strings and pages, as `xtask \
citations` resolves them, and links to files.\n";

/// What is printed.
struct Table {
    title: &'static str,
    columns: Vec<String>,
    rows: Vec<Vec<Value>>,
    /// In place of no rows.
    note: &'static str,
}

impl Table {
    /// With the names of its columns, separated by commas.
    fn new(title: &'static str, columns: &str, rows: Vec<Vec<Value>>) -> Self {
        Self { title, columns: columns.split(',').map(str::to_owned).collect(), rows, note: "none" }
    }
}

/// Prints the figures of `root`, or of the checkout that the arguments name.
pub(crate) fn print(root: &Path, arguments: &[&str]) -> Result<()> {
    let rules = Rules::read(root)?;
    let (mut root, mut json) = (root, false);
    for pair in arguments.chunks(2) {
        match *pair {
            ["--checkout", folder] => root = Path::new(folder),
            ["-o", "json"] => json = true,
            _ => bail!("usage: cargo run -p xtask -- figures [--checkout DIR] [-o json]"),
        }
    }
    let tables = tables(root, &rules)?;
    let text = if json { as_json(&tables)? } else { as_markdown(&tables) };
    Ok(std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes())?)
}

fn as_json(tables: &[Table]) -> Result<String> {
    let mut out = Map::from_iter([("Definitions".to_owned(), DEFINITIONS.into())]);
    for table in tables {
        let names = || table.columns.iter().cloned();
        let rows = table.rows.iter().map(|row| Value::Object(names().zip(row.iter().cloned()).collect()));
        out.insert(table.title.to_owned(), rows.collect());
    }
    Ok(serde_json::to_string_pretty(&out)? + "\n")
}

fn as_markdown(tables: &[Table]) -> String {
    let mut out = String::new();
    for table in tables {
        out += &format!("## {}\n\n", table.title);
        if table.rows.is_empty() {
            out += &format!("{}\n\n", table.note);
            continue;
        }
        let numbers =
            |at: usize| if table.rows.iter().all(|row| !row[at].is_string()) { "---:" } else { "---" };
        let rule: Vec<&str> = (0..table.columns.len()).map(numbers).collect();
        out += &format!("| {} |\n|{}|\n", table.columns.join(" | "), rule.join("|"));
        for row in &table.rows {
            let cells = row
                .iter()
                .map(|cell| cell.as_str().map_or_else(|| cell.to_string(), |it| it.replace('|', "\\|")));
            out += &format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
        }
        out.push('\n');
    }
    out + DEFINITIONS
}

/// What a file holds.
struct Facts {
    lines: usize,
    test_lines: usize,
    product: Product,
    texts: Texts,
}

#[derive(Debug, Default)]
struct Product {
    public: usize,
    watches: usize,
    loops: usize,
    /// Fields and statics, with the names in their types.
    fields: Vec<(String, Vec<String>)>,
    /// Types with a collection in them.
    collections: Vec<String>,
}

fn tables(root: &Path, rules: &Rules) -> Result<Vec<Table>> {
    let packages = source::packages(root)?;
    let targets = Targets::read(root)?;
    let files = source::scan(root, &packages, |source, parsed| {
        let texts = text::of_source(&source.path, parsed, rules, &targets);
        Ok(Facts {
            lines: parsed.text.lines().count(),
            test_lines: parsed.test_lines,
            product: product(parsed)?,
            texts,
        })
    })?;
    let stores: Vec<_> = packages.iter().flat_map(|package| stores(package, &files)).collect();
    let mut texts: BTreeMap<&str, Texts> = BTreeMap::new();
    for (source, facts) in &files {
        texts.entry(&source.package).or_default().add(&facts.texts);
    }
    for page in &language::pages(root)? {
        let texts = texts.entry(language::package_of(page, &packages)).or_default();
        texts.add(&text::of_page(root, page, rules, &targets)?);
    }
    let watched = files
        .iter()
        .filter(|(source, facts)| !source.test && facts.product.watches + facts.product.loops > 0);
    let watches = watched.map(|(source, facts)| {
        vec![json!(source.path), json!(facts.product.watches), json!(facts.product.loops)]
    });
    let mut tables = vec![
        sizes(&packages, &files, &stores),
        Table::new("Watches", "file,watches,watch loops", watches.collect()),
        Table::new("In-memory stores", "package,file,field,type", stores),
    ];
    tables.extend(text::tables(&texts, rules));
    tables.push(runs(root));
    Ok(tables)
}

fn sizes(packages: &[Package], files: &[(Source, Facts)], stores: &[Vec<Value>]) -> Table {
    let row = |name: &str, packages: &[Package]| {
        let of = |package: &str| packages.iter().any(|it| it.name == package);
        let mine: Vec<_> = files.iter().filter(|(source, _)| of(&source.package)).collect();
        let lines: usize = mine.iter().map(|(_, facts)| facts.lines).sum();
        let tests: usize =
            mine.iter().map(|(source, it)| if source.test { it.lines } else { it.test_lines }).sum();
        let product: Vec<_> = mine.iter().filter(|(source, _)| !source.test).collect();
        let mut lengths: Vec<_> =
            product.iter().map(|(source, facts)| (facts.lines, json!(source.path))).collect();
        lengths.sort_by_key(|(lines, _)| *lines);
        let (longest, path) = lengths.last().cloned().unwrap_or((0, json!("")));
        let sum = |count: fn(&Product) -> usize| {
            json!(product.iter().map(|(_, it)| count(&it.product)).sum::<usize>())
        };
        let programs = |count: fn(&Package) -> usize| json!(packages.iter().map(count).sum::<usize>());
        vec![
            json!(name),
            json!(lines - tests),
            json!(tests),
            sum(|it| it.public),
            json!(lengths.len()),
            json!(lengths.get(lengths.len() / 2).map_or(0, |(lines, _)| *lines)),
            json!(longest),
            path,
            sum(|it| it.watches),
            sum(|it| it.loops),
            json!(stores.iter().filter(|row| row[0].as_str().is_some_and(of)).count()),
            programs(|it| it.test_programs),
            programs(|it| it.unit_test_programs),
        ]
    };
    let mut rows: Vec<_> = packages.chunks(1).map(|package| row(&package[0].name, package)).collect();
    rows.push(row("all", packages));
    let columns = "package,product lines,test lines,public items,files,median file,longest file,which,watches,watch loops,\
        in-memory stores,test programs,unit test programs";
    Table::new("Packages", columns, rows)
}

/// The steps that `make test`, `make test-all` and `.ci/run` recorded: `step<TAB>seconds<TAB>unix time<TAB>what was built`.
fn runs(root: &Path) -> Table {
    let mut paths = Vec::new();
    let _no_run = source::collect(root, Path::new("target/figures"), "tsv", &mut paths);
    paths.sort();
    let mut rows = Vec::new();
    for path in paths {
        for line in std::fs::read_to_string(root.join(&path)).unwrap_or_default().lines() {
            let mut cells: Vec<&str> = line.splitn(4, '\t').collect();
            cells.resize(4, "");
            let run = path.file_stem().map(|name| name.to_string_lossy());
            let number = |cell: &&str| cell.parse::<serde_json::Number>().map_or(json!(cell), Value::from);
            rows.push(
                [json!(run), json!(cells[0])].into_iter().chain(cells[1..].iter().map(number)).collect(),
            );
        }
    }
    Table { note: "no run recorded", ..Table::new("Last runs", "run,step,seconds,unix time,built", rows) }
}

fn product(parsed: &Parsed) -> Result<Product> {
    let mut found = Product::default();
    let names_params = anywhere(&trees(&parsed.product), &|here| is_ident(here.first(), "WatchParams"));
    count(&parsed.product, names_params, &mut found);
    found.visit_file(&syn::parse2(parsed.product.clone())?);
    Ok(found)
}

/// Counts public items, watches and watch loops; returns whether there was such a loop.
fn count(tokens: &TokenStream, names_params: bool, found: &mut Product) -> bool {
    const ITEMS: &str = "fn async unsafe const static struct enum trait type mod use extern union";
    let tokens = trees(tokens);
    let before = found.loops;
    // the last keyword of a loop that no block followed yet
    let mut head = false;
    for (at, token) in tokens.iter().enumerate() {
        let after = |mark| at > 0 && is_punct(tokens.get(at - 1), mark);
        match token {
            TokenTree::Group(inner) => {
                let looped = count(&inner.stream(), names_params, found);
                if inner.delimiter() == Delimiter::Brace && std::mem::take(&mut head) && !looped {
                    found.loops += usize::from(anywhere(&trees(&inner.stream()), &is_event));
                }
            }
            TokenTree::Punct(mark) => head &= mark.as_char() != ';',
            TokenTree::Ident(word) => {
                let word = word.to_string();
                let called =
                    group(tokens.get(at + 1)).is_some() && !is_ident(tokens.get(at.wrapping_sub(1)), "fn");
                head |= ["loop", "while"].contains(&word.as_str())
                    || (word == "for" && !is_ident(tokens.first(), "impl"));
                found.public +=
                    usize::from(word == "pub" && ITEMS.split(' ').any(|it| is_ident(tokens.get(at + 1), it)));
                found.watches += usize::from(match word.as_str() {
                    "watcher" | "metadata_watcher" | "watch_object" => called && !after('.'),
                    "watch" | "watch_metadata" => called && after('.') && names_params,
                    _ => false,
                });
            }
            TokenTree::Literal(_) => {}
        }
    }
    found.loops > before
}

fn is_event(here: &[TokenTree]) -> bool {
    let names = ["Apply", "InitApply", "InitDone", "Delete"];
    is_ident(here.first(), "WatchEvent")
        || (is_ident(here.first(), "Event") && names.iter().any(|name| is_ident(here.get(3), name)))
}

const LOCKS: &str = "Mutex AsyncMutex RwLock ArcSwap ArcSwapOption RefCell";
const COLLECTIONS: &str = "HashMap BTreeMap HashSet BTreeSet VecDeque IndexMap LruCache BinaryHeap";

impl<'a> Visit<'a> for Product {
    fn visit_item_struct(&mut self, item: &'a syn::ItemStruct) {
        for (at, field) in item.fields.iter().enumerate() {
            let name = field.ident.as_ref().map_or_else(|| at.to_string(), ToString::to_string);
            self.field(&item.ident, format!("{}.{name}", item.ident), &field.ty);
        }
    }

    fn visit_item_static(&mut self, item: &'a syn::ItemStatic) {
        self.field(&item.ident, item.ident.to_string(), &item.ty);
    }
}

impl Product {
    fn field(&mut self, of: &syn::Ident, field: String, type_: &syn::Type) {
        let mut names = Names(Vec::new());
        names.visit_type(type_);
        if names.0.iter().any(|name| is_in(COLLECTIONS, name)) {
            self.collections.push(of.to_string());
        }
        self.fields.push((field, names.0));
    }
}

/// The names in a type, from the outside in; `Store<` has parameters.
struct Names(Vec<String>);

impl<'a> Visit<'a> for Names {
    fn visit_path_segment(&mut self, segment: &'a syn::PathSegment) {
        let reflector = segment.ident == "Store" && !segment.arguments.is_empty();
        self.0.push(format!("{}{}", segment.ident, if reflector { "<" } else { "" }));
        visit::visit_path_segment(self, segment);
    }
}

fn stores(package: &Package, files: &[(Source, Facts)]) -> Vec<Vec<Value>> {
    let mine = || files.iter().filter(|(source, _)| source.package == package.name && !source.test);
    let of_package: BTreeSet<&String> = mine().flat_map(|(_, facts)| &facts.product.collections).collect();
    let is_store = |names: &[String]| {
        let locked = names.iter().skip_while(|name| !is_in(LOCKS, name));
        locked.skip(1).any(|name| is_in(COLLECTIONS, name) || of_package.contains(name))
            || names.iter().any(|name| name == "DashMap" || name == "Store<")
    };
    let fields =
        mine().flat_map(|(source, facts)| facts.product.fields.iter().map(move |field| (source, field)));
    let fields = fields.filter(|(_, (_, names))| is_store(names));
    fields
        .map(|(source, (field, names))| {
            vec![json!(package.name), json!(source.path), json!(field), json!(names.join(" "))]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_counts_items_watches_and_loops() {
        let text = "pub struct A { pub x: u8 } pub(crate) fn b() {} impl A { pub fn c(&self) {} }\n\
            fn watcher(a: u8) {}\n\
            fn d() { let e = watcher(api, config); f.watch(\"0\"); loop { while let Some(e) = e.next().await { match e { \
                Ok(Event::Init) => {}, Ok(watcher::Event::InitDone) => {} } } } for a in b {} }\n\
            #[cfg(test)] mod tests { pub fn g() { watcher(a); } }";
        let counts = |text: &str| {
            let found = product(&source::parse(text.to_owned()).unwrap()).unwrap();
            (found.public, found.watches, found.loops)
        };
        assert_eq!(counts(text), (2, 1, 1));
        assert_eq!(counts(&format!("use kube::api::WatchParams; {text}")), (2, 2, 1));
    }

    /// A workspace with one package.
    #[test]
    fn figures_count_a_checkout() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for (path, text) in [
            ("Cargo.toml", "[package]\nname = \"one\"\nversion = \"1.0.0\"\n[workspace]\n"),
            (
                "src/lib.rs",
                "//! A grue (decision 2).\nstruct A(Mutex<B>);\nstruct B { c: HashMap<u8, u8>, d: Arc<Mutex<u8>> }\n#[cfg(test)]\nmod t;\n",
            ),
            ("src/t.rs", "#[test]\nfn grues() {}\n"),
            ("tests/u.rs", "\n"),
            ("docs/decisions/0002-x.md", "[a](../../src/lib.rs) [b](gone.md)\n"),
            ("target/figures/test.tsv", "unit\t1.5\t1700000000\tnothing\n"),
        ] {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let rules = Rules::parse("skip = []\n[[rule]]\nnot = [\"grue\"]\nwrite = \"monster\"\n").unwrap();
        let tables = tables(root, &rules).unwrap();
        let rows = |title: &str| {
            serde_json::to_string(&tables.iter().find(|table| table.title == title).unwrap().rows).unwrap()
        };
        assert_eq!(
            rows("Packages").split("],[").next().unwrap(),
            r#"[["one",3,5,0,1,5,5,"src/lib.rs",0,0,1,1,1"#
        );
        assert_eq!(rows("In-memory stores"), r#"[["one","src/lib.rs","A.0","Mutex B"]]"#);
        assert!(rows("Words of the language rules, by rule").starts_with(r#"[["grue",2,0,1,1,0,0,0],"#));
        assert_eq!(rows("Citations"), r#"[["decision N",1,0],["links of pages",1,1]]"#);
        assert_eq!(rows("Last runs"), r#"[["test","unit",1.5,1700000000,"nothing"]]"#);
        assert!(
            as_markdown(&tables)
                .contains("| run | step | seconds | unix time | built |\n|---|---|---:|---:|---|\n")
        );
        assert!(as_json(&tables).unwrap().contains("\"seconds\": 1.5"));
        std::fs::remove_dir_all(root.join("target")).unwrap();
        let text = as_markdown(&super::tables(root, &rules).unwrap());
        assert!(text.contains("no run recorded"), "{text}");
    }
}
