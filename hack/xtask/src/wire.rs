//! `hack/wire.txt`: every string that leaves a process or is stored, so that a rename which changes one is seen in the diff.
//!
//! One line for each string, below its kind: the string, then the crates that hold it. There is no type, file or line in it, so that
//! moving code and renaming Rust items does not change the file; a serde field that takes its key from a Rust name does.
//!
//! - From what the programs hold: metrics and events (the tables of `olm_api::observe`), and flags with their values, defaults and
//!   environment variables (the clap definitions).
//! - From the syntax of `api/`, `crates/` and `hack/images` without their tests: the constants of `olm-api` by module ([`API`]);
//!   types that derive serde's traits or a metric's labels, each as the list of its keys; environment variables and headers
//!   by the function that gets them; every other string without white space by its form. Strings and small numbers of modules that
//!   name files, formats and leases ([`STORES`]) are a kind of their own.
//!
//! Not covered: text with white space (messages, logs, help, which snapshots and tests compare), what a derived `Debug` prints, what
//! a macro makes, and of strings that are put together at run time the whole. A string that a crate has twice is one line, so that
//! changing one of the two adds a line. The fields of CRDs are in `manifests/crds`, too, which `verify` compares.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::{Arg, Command};
use heck::{ToKebabCase as _, ToLowerCamelCase as _, ToSnakeCase as _, ToUpperCamelCase as _};
use olm_api::{classic, observe};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::Visit;
use syn::{Attribute, Expr, Fields, Lit, Meta};

use crate::flags;
use crate::source::{self, Parsed, anywhere, attribute, group, is_ident, is_in, is_punct, trees};

/// Modules of `olm-api`, and what their strings are.
const API: [(&str, &str); 9] = [
    ("api/src/annotations", "annotation"),
    ("api/src/condition", "condition type"),
    ("api/src/field_managers", "field manager"),
    ("api/src/finalizers", "finalizer"),
    ("api/src/labels", "label"),
    ("api/src/observe", IN_TABLES),
    ("api/src/openshift", "name of OpenShift"),
    ("api/src/reason", "condition reason"),
    ("api/src/secret_types", "type of a Secret"),
];
/// Modules, with those below them, that name files on disk, their formats and leases.
const STORES: [&str; 10] = [
    "crates/catalogd/src/run",
    "crates/catalogd/src/store",
    "crates/classic-controller/src/run",
    "crates/cluster-operator/src/run",
    "crates/olm-catalog/src/image_store",
    "crates/olm-catalog/src/package_store",
    "crates/olm-fbc/src/index",
    "crates/olm-oci/src/store",
    "crates/olm-signature/src/accepted_images",
    "crates/operator-controller/src/run",
];
/// Of strings that are not listed from the syntax.
const IN_TABLES: &str = "";
/// Macros whose strings are for people or for the compiler.
const PROSE: &str = "trace debug info warn error event span trace_span debug_span info_span warn_span error_span assert \
    assert_eq assert_ne debug_assert debug_assert_eq panic unreachable env cfg include_str include_bytes compile_error";

/// By kind and string, the crates.
type Wire = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

pub(crate) fn files(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut packages = source::packages(root)?;
    packages.retain(|package| {
        ["api", "crates", "hack/images"].iter().any(|folder| package.folder.starts_with(folder))
    });
    let mut wire = Wire::new();
    tables(&mut wire);
    let mut modules = BTreeSet::new();
    let read = |source: &source::Source, parsed: &Parsed| read(&module(&source.path), parsed);
    for (source, strings) in source::scan(root, &packages, read)?.into_iter().filter(|(it, _)| !it.test) {
        modules.insert(module(&source.path));
        strings.into_iter().for_each(|(kind, string)| add(&mut wire, &kind, string, &source.package));
    }
    for name in API.iter().map(|(name, _)| *name).chain(STORES) {
        ensure!(
            modules.contains(name),
            "hack/xtask/src/wire.rs lists the module {name}, which does not exist"
        );
    }
    let mut out = "# What leaves a process or is stored; from the sources by `make generate`, see hack/xtask/src/wire.rs. Do not edit.\n".to_owned();
    for (kind, strings) in wire {
        out += &format!("\n## {kind}\n");
        for (string, from) in strings {
            out += &format!("{}\t{}\n", string.escape_debug(), Vec::from_iter(from).join(", "));
        }
    }
    Ok(vec![("hack/wire.txt".into(), out)])
}

fn add(wire: &mut Wire, kind: &str, string: String, from: &str) {
    wire.entry(kind.to_owned()).or_default().entry(string).or_default().insert(from.to_owned());
}

/// A file's path without `.rs` and `/mod.rs`.
fn module(path: &Path) -> String {
    let path = path.with_extension("").to_string_lossy().into_owned();
    path.strip_suffix("/mod").map(str::to_owned).unwrap_or(path)
}

/// Metrics, events and flags.
fn tables(wire: &mut Wire) {
    for metric in observe::METRICS.iter().chain(classic::observe::METRICS) {
        let string = format!("{}{{{}}} {}", metric.name, metric.labels.join(", "), metric.kind.name());
        add(wire, "metric", string, metric.from.name());
    }
    for event in observe::EVENTS.iter().chain(classic::observe::EVENTS) {
        let kind = if event.warning { "Warning" } else { "Normal" };
        add(wire, "event", format!("{} {kind} {}", event.about, event.reason), "olm-api");
    }
    let mut plugin = kubectl_olm::definition();
    plugin.build();
    for program in flags::programs().iter().chain([&plugin]) {
        command(wire, program);
    }
}

fn command(wire: &mut Wire, program: &Command) {
    let name = program.get_bin_name().unwrap_or_else(|| program.get_name());
    for flag in program.get_arguments() {
        let names =
            [flag.get_long().map(|it| format!("--{it}")), flag.get_short().map(|it| format!("-{it}"))];
        let names: Vec<String> = names.into_iter().flatten().collect();
        let argument = if names.is_empty() {
            format!("argument {}", flag.get_index().unwrap_or(0))
        } else {
            names.join(" ")
        };
        add(wire, "flag", argument + &values(flag), name);
        if let Some(variable) = flag.get_env() {
            add(wire, "environment variable", variable.to_string_lossy().into_owned(), name);
        }
    }
    for verb in program.get_subcommands().filter(|verb| verb.get_name() != "help") {
        add(wire, "command", verb.get_name().to_owned(), name);
        command(wire, verb);
    }
}

fn values(flag: &Arg) -> String {
    let possible: Vec<String> =
        flag.get_possible_values().iter().map(|it| it.get_name().to_owned()).collect();
    let possible = if possible.is_empty() { String::new() } else { format!(" {{{}}}", possible.join(", ")) };
    let default = flag.get_default_values().iter().map(|it| format!(" ={}", it.to_string_lossy()));
    possible + &default.collect::<String>()
}

/// Kinds and strings of one file.
fn read(module: &str, parsed: &Parsed) -> Result<BTreeSet<(String, String)>> {
    let store = STORES.iter().any(|store| Path::new(module).starts_with(store));
    let api = API.iter().find(|(name, _)| module == *name).map(|(_, kind)| *kind);
    let kind = api.or(store.then_some("in a module that names files, formats or the lease"));
    let mut reader = Reader { kind, store, env_readers: BTreeSet::new(), found: BTreeSet::new() };
    reader.tokens(&parsed.product, None);
    reader.visit_file(&syn::parse2(parsed.product.clone())?);
    Ok(reader.found)
}

struct Reader {
    /// What every string of the module is.
    kind: Option<&'static str>,
    store: bool,
    /// Closures that read the environment variable that is their argument.
    env_readers: BTreeSet<String>,
    found: BTreeSet<(String, String)>,
}

impl Reader {
    fn add(&mut self, kind: &str, string: impl Into<String>) {
        if kind != IN_TABLES {
            self.found.insert((kind.to_owned(), string.into()));
        }
    }

    /// Finds strings; `call` is the kind of the first argument of the call that `tokens` belong to.
    fn tokens(&mut self, tokens: &TokenStream, call: Option<&str>) {
        let tokens = trees(tokens);
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let rest = &tokens[at..];
            let inner_attribute = is_punct(rest.get(1), '!') && rest.len() > 2;
            if attribute(&rest[..rest.len().min(2)]).is_some() {
                at += 2;
                continue;
            } else if is_punct(Some(token), '#') && inner_attribute {
                at += 3;
                continue;
            }
            match token {
                TokenTree::Literal(literal) => {
                    self.literal(Lit::new(literal.clone()), call.filter(|_| at == 0))
                }
                TokenTree::Group(group) => {
                    let call =
                        self.call(&tokens[..at]).filter(|_| group.delimiter() == Delimiter::Parenthesis);
                    self.tokens(&group.stream(), call);
                }
                TokenTree::Ident(name) if is_punct(rest.get(1), '!') && group(rest.get(2)).is_some() => {
                    at += if is_in(PROSE, &name.to_string()) { 2 } else { 1 };
                }
                TokenTree::Ident(name)
                    if name == "header" && is_punct(rest.get(1), ':') && is_punct(rest.get(2), ':') =>
                {
                    self.constants(&rest[1..])
                }
                TokenTree::Ident(name) if name == "let" && is_punct(rest.get(3), '|') => {
                    let end = rest.iter().position(|token| is_punct(Some(token), ';')).unwrap_or(rest.len());
                    let of_env = |here: &[TokenTree]| {
                        is_ident(here.first(), "env")
                            && ["var", "var_os"].iter().any(|it| is_ident(here.get(3), it))
                    };
                    if anywhere(&rest[..end], &of_env) {
                        self.env_readers.insert(rest[1].to_string());
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// What the first argument is of a call that `before` ends with.
    fn call(&self, before: &[TokenTree]) -> Option<&'static str> {
        let word =
            |back: usize| before.len().checked_sub(back).map(|at| before[at].to_string()).unwrap_or_default();
        let (name, mark, path) = (word(1), word(2), word(4));
        match (name.as_str(), mark.as_str(), path.as_str()) {
            ("var" | "var_os", ":", "env") => Some("environment variable"),
            (name, mark, _) if mark != "." && self.env_readers.contains(name) => Some("environment variable"),
            ("from_static", _, "HeaderName") | ("header", ".", _) => Some("header"),
            ("from_static", _, "HeaderValue") => Some("header value"),
            ("expect", ".", _) => Some(IN_TABLES),
            _ => None,
        }
    }

    /// `::NAME` or `::{NAME, …}` behind `header`: constants of the crate `http`.
    fn constants(&mut self, tokens: &[TokenTree]) {
        let names = group(tokens.get(2))
            .map_or_else(|| tokens.get(2).cloned().into_iter().collect(), |it| trees(&it.stream()));
        for name in names.iter().map(ToString::to_string) {
            if name.len() > 1 && name.chars().all(|c| c.is_ascii_uppercase() || c == '_') {
                self.add("header", name.to_lowercase().replace('_', "-"));
            }
        }
    }

    fn literal(&mut self, literal: Lit, call: Option<&str>) {
        let text = match literal {
            Lit::Str(text) => text.value(),
            Lit::ByteStr(bytes) => String::from_utf8_lossy(&bytes.value()).into_owned(),
            _ => return,
        };
        let text = without_names(&text);
        if let Some(kind) = call.or_else(|| form(&text).map(|form| self.kind.unwrap_or(form))) {
            self.add(kind, text);
        }
    }

    /// The keys of a type that derives what makes keys of its fields.
    fn keys(&mut self, attributes: &[Attribute], keys: &dyn Fn(&Options) -> Option<String>) {
        let derived = options(attributes, "derive");
        let kinds = [
            ("Serialize", "keys of JSON"),
            ("Deserialize", "keys of JSON"),
            ("EncodeLabelSet", "labels of a metric"),
        ];
        let kind = kinds.iter().find(|(derive, _)| derived.contains_key(*derive));
        if let Some(((_, kind), keys)) = kind.zip(keys(&options(attributes, "serde"))) {
            self.add(kind, keys);
        }
    }
}

/// A template's `{name:?}` as `{}`: the name is Rust's.
fn without_names(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        let name = rest[at + 1..].find('}').map(|end| &rest[at + 1..at + 1 + end]);
        let name =
            name.filter(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || "_:?#.<>$*".contains(c)));
        out += &rest[..=at];
        rest = &rest[at + 1 + name.map_or(0, str::len)..];
    }
    out + rest
}

/// The kind of a string by its form; none for text and marks.
fn form(text: &str) -> Option<&'static str> {
    let all = |text: &str, marks: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || marks.contains(c));
    let media = text.split(';').next().unwrap_or_default();
    if ["application/", "text/", "image/"].iter().any(|start| media.starts_with(start)) && all(media, "/.+-")
    {
        return Some("media type");
    }
    if text.contains(char::is_whitespace) || text.chars().filter(char::is_ascii_alphabetic).count() < 2 {
        return None;
    }
    Some(match text {
        _ if all(text, "_") && text.contains('_') && text.to_uppercase() == text => "name in capitals",
        _ if text.starts_with('/') || text.contains("://") => "URL, path or JSON pointer",
        _ if all(text, "_-") => "word",
        _ if all(text, "_-./") => "key with a domain, name of a file",
        _ => "part of a string",
    })
}

impl<'a> Visit<'a> for Reader {
    fn visit_item_const(&mut self, item: &'a syn::ItemConst) {
        if let (true, Expr::Lit(literal)) = (self.store, &*item.expr)
            && let Lit::Int(number) = &literal.lit
            && number.base10_parse::<u8>().is_ok_and(|number| number < 16)
        {
            self.add("small number in a module that names formats", number.base10_digits());
        }
    }

    fn visit_item_struct(&mut self, item: &'a syn::ItemStruct) {
        self.keys(&item.attrs, &|serde| fields(&item.fields, serde.get("rename_all")));
    }

    fn visit_item_enum(&mut self, item: &'a syn::ItemEnum) {
        self.keys(&item.attrs, &|serde| {
            let variants = item.variants.iter().filter_map(|variant| {
                let own = options(&variant.attrs, "serde");
                let rule = own.get("rename_all").or(serde.get("rename_all_fields"));
                let key = key(&variant.ident, &own, serde.get("rename_all"))?;
                Some(key + &fields(&variant.fields, rule).unwrap_or_default())
            });
            let how = ["tag", "content", "untagged"]
                .iter()
                .filter_map(|it| Some(format!(" {it}={}", serde.get(*it)?)));
            Some(variants.collect::<Vec<_>>().join(" | ") + &how.collect::<String>())
        });
    }
}

type Options = BTreeMap<String, String>;

/// The options of all attributes of this name, each with the first string in it.
fn options(attributes: &[Attribute], name: &str) -> Options {
    let mut found = Options::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident(name)) {
        let Meta::List(list) = &attribute.meta else { continue };
        for option in trees(&list.tokens).split(|token| is_punct(Some(token), ',')) {
            // of `serde::Serialize` the last name, of `rename = "x"` the only one
            let key = option.iter().rfind(|token| matches!(token, TokenTree::Ident(_)));
            let texts = option.iter().flat_map(|token| {
                group(Some(token)).map_or_else(|| vec![token.clone()], |it| trees(&it.stream()))
            });
            let text = texts.filter_map(|token| syn::parse2::<syn::LitStr>(token.into()).ok()).next();
            found.extend(key.map(|key| (key.to_string(), text.map(|it| it.value()).unwrap_or_default())));
        }
    }
    found
}

/// `{key, key?, ..}` in the order of the fields: `?` may be missing, `..` are the keys of another type.
fn fields(fields: &Fields, rule: Option<&String>) -> Option<String> {
    let Fields::Named(fields) = fields else { return None };
    let keys = fields.named.iter().filter_map(|field| {
        let own = options(&field.attrs, "serde");
        let optional = own.contains_key("default") || own.contains_key("skip_serializing_if");
        let alias = own.get("alias").map(|alias| format!("/{alias}")).unwrap_or_default();
        let key = key(field.ident.as_ref()?, &own, rule)?;
        Some(if own.contains_key("flatten") {
            "..".to_owned()
        } else {
            key + &alias + if optional { "?" } else { "" }
        })
    });
    Some(format!("{{{}}}", keys.collect::<Vec<_>>().join(", ")))
}

/// The name of a field or variant in JSON; none if it is left out.
fn key(ident: &syn::Ident, own: &Options, rule: Option<&String>) -> Option<String> {
    let rust = ident.to_string();
    let rust = rust.trim_start_matches("r#");
    match (own.contains_key("skip"), own.get("rename"), rule) {
        (true, ..) => None,
        (_, Some(name), _) => Some(name.clone()),
        (_, None, rule) => Some(rule.map_or_else(|| rust.to_owned(), |rule| cased(rust, rule))),
    }
}

/// `rename_all`. A rule that is not known here is shown beside the name.
fn cased(name: &str, rule: &str) -> String {
    match rule {
        "camelCase" => name.to_lower_camel_case(),
        "PascalCase" => name.to_upper_camel_case(),
        "kebab-case" => name.to_kebab_case(),
        "snake_case" => name.to_snake_case(),
        rule => format!("{name}({rule})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXTURE: &str = r#"
        use http::header::{IF_MATCH, HeaderMap};
        const KEY: &str = "example.io/key";
        const FORMAT: u32 = 2;
        #[derive(serde::Serialize, Debug)]
        #[serde(rename_all = "camelCase")]
        struct Stored { first_key: u8, #[serde(rename = "type", default)] kind: u8, #[serde(skip)] not_here: u8, #[serde(flatten)] more: More }
        #[derive(Deserialize)]
        #[serde(tag = "tagged", rename_all = "kebab-case")]
        enum Choice { OneThing, Other { field: u8 } }
        #[derive(EncodeLabelSet)]
        struct Labels { reason: String }
        fn read(query: &str) {
            /// docs.example.io/not
            let set = |name: &str| std::env::var_os(name).is_some();
            set("HOME"); std::env::var("LC_ALL"); other("OTHER_NAME");
            route("/api/v1/all"); format!("https://host/?q={query:?}{}", 1);
            tracing::info!(field = "not-wire", "not-wire");
            json!({"jsonKey": "value with spaces"});
            HeaderName::from_static("x-name"); struct Tar { header: &'static [u8; BLOCK] } HeaderValue::from_static("a b");
            file.join("manifest.json"); media("text/plain; charset=utf-8"); magic(b"MAGIC1");
            option.expect("not-wire");
        }
        #[cfg(test)]
        mod tests { const T: &str = "not-wire"; }
    "#;

    fn found(text: &str) -> BTreeSet<(String, String)> {
        read("crates/catalogd/src/other", &source::parse(text.to_owned()).unwrap()).unwrap()
    }

    #[test]
    fn wire_finds_one_string_of_each_kind() {
        let json = "keys of JSON";
        let want = [
            ("header", "if-match", "IF_MATCH"),
            ("key with a domain, name of a file", "example.io/key", "example.io/key"),
            (json, "{firstKey, type?, ..}", "first_key"),
            (json, "one-thing | other{field} tag=tagged", "OneThing"),
            ("labels of a metric", "{reason}", "reason:"),
            ("environment variable", "HOME", "HOME"),
            ("environment variable", "LC_ALL", "LC_ALL"),
            ("name in capitals", "OTHER_NAME", "OTHER_NAME"),
            ("URL, path or JSON pointer", "/api/v1/all", "/api/v1/all"),
            ("URL, path or JSON pointer", "https://host/?q={}{}", "https://host"),
            ("word", "jsonKey", "jsonKey"),
            ("header", "x-name", "x-name"),
            ("header value", "a b", "a b"),
            ("key with a domain, name of a file", "manifest.json", "manifest.json"),
            ("media type", "text/plain; charset=utf-8", "text/plain"),
            ("word", "MAGIC1", "MAGIC1"),
        ];
        let all = found(FIXTURE);
        assert_eq!(
            all,
            want.iter().map(|(kind, string, _)| ((*kind).to_owned(), (*string).to_owned())).collect()
        );
        for (_, string, source) in want {
            let other = source.replacen(|c: char| c.is_alphabetic(), "Z", 1);
            assert_ne!(found(&FIXTURE.replace(source, &other)), all, "{string} changed");
        }
    }

    #[test]
    fn wire_ignores_names_of_rust() {
        let mut renamed = FIXTURE.to_owned();
        for name in [
            "KEY", "FORMAT", "Stored", "Choice", "Labels", "read", "query", "set", "name", "kind",
            "not_here", "more",
        ] {
            renamed = renamed
                .replace(&format!("{name}:"), &format!("{name}_2:"))
                .replace(&format!("{name}("), &format!("{name}_2("));
            renamed = renamed.replace(&format!(" {name} "), &format!(" {name}_2 "));
        }
        assert!(
            renamed.contains("Stored_2")
                && renamed.contains("{query_2:?}")
                && renamed.contains("set_2(\"HOME\")")
        );
        assert_eq!(found(&renamed), found(FIXTURE));
    }

    #[test]
    fn wire_lists_stores_and_api_apart() {
        let parsed = source::parse(FIXTURE.to_owned()).unwrap();
        let store = read("crates/catalogd/src/store/files", &parsed).unwrap();
        assert!(store.contains(&("small number in a module that names formats".to_owned(), "2".to_owned())));
        assert!(store.contains(&(
            "in a module that names files, formats or the lease".to_owned(),
            "manifest.json".to_owned()
        )));
        assert!(
            read("api/src/labels", &parsed)
                .unwrap()
                .contains(&("label".to_owned(), "example.io/key".to_owned()))
        );
    }
}
