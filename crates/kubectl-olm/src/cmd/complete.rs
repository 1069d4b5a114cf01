//! `__complete`: the candidates for the last word of a command line, in the format that kubectl reads from its plugins: a candidate, a
//! tab and its description a line, then `:` with 0 (files may follow) or 4 (no files).
//!
//! Names come from the cluster or from the catalog that the line names. An error gives no candidates: a shell prints nothing useful.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Arg, Args, Command, FromArgMatches as _};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::config::Kubeconfig;
use kube::{Api, ResourceExt};
use olm_catalog::Selector;
use olm_fbc::PackageSummary;

use super::act::catalogs;
use super::show::version;
use crate::CommandOutput;
use crate::extensions;
use crate::failure::CommandError;
use crate::help::without_empty_variables;
use crate::sources::Sources;

/// The longest wait for candidates.
const CANDIDATES_TIMEOUT: Duration = Duration::from_secs(3);

/// The first word; hidden, because only scripts give it.
pub(crate) const VERB: &str = "__complete";

/// A candidate and its description.
type Candidate = (String, String);

/// What the last word is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Expected {
    /// One of these.
    Words(Vec<Candidate>),
    Extension,
    Catalog,
    Package,
    Channel,
    Version,
    Namespace,
    Context,
    Cluster,
    User,
    File,
    Nothing,
}

/// A command line, as far as it is read.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    expected: Expected,
    /// What the candidates begin with.
    prefix: String,
    /// `--flag=` in front of a value in the same word.
    before: String,
    /// Flags that choose the catalogs that are read.
    sources: Vec<String>,
    /// The package or the extension of the line.
    package: Option<String>,
    extension: Option<String>,
}

/// Reads the words; the last one is completed.
fn read(definition: &Command, words: &[String]) -> Line {
    let ids: Vec<String> = of_sources().get_arguments().map(|flag| flag.get_id().to_string()).collect();
    let (last, earlier) =
        words.split_last().map_or((String::new(), &[][..]), |(last, rest)| (last.clone(), rest));
    let (mut at, mut positionals, mut pending) = (definition, 0, None::<&Arg>);
    let mut line = Line {
        expected: Expected::Nothing,
        // bash makes a word of the sign
        prefix: if last == "=" { String::new() } else { last },
        before: String::new(),
        sources: Vec::new(),
        package: None,
        extension: None,
    };
    for word in earlier.iter().filter(|word| *word != "=") {
        if let Some(flag) = pending.take() {
            if ids.iter().any(|id| flag.get_id() == id.as_str()) {
                line.sources.push(format!("--{}={word}", flag.get_long().unwrap_or_default()));
            }
            continue;
        }
        if let Some((name, value)) = word.split_once('=').filter(|(name, _)| name.starts_with("--")) {
            if flag_of(at, name).is_some_and(|flag| ids.iter().any(|id| flag.get_id() == id.as_str())) {
                line.sources.push(format!("{name}={value}"));
            }
            continue;
        }
        if word.starts_with('-') && word.len() > 1 {
            pending = flag_of(at, word).filter(|flag| takes_a_word(flag));
            continue;
        }
        if let Some(verb) = at.find_subcommand(word).filter(|_| positionals == 0) {
            at = verb;
            continue;
        }
        match positional(at, positionals).map(kind_of) {
            Some(Expected::Package) => line.package = Some(word.clone()),
            Some(Expected::Extension) => line.extension = Some(word.clone()),
            _ => {}
        }
        positionals += 1;
    }
    if let Some(flag) = pending {
        line.expected = kind_of(flag);
        return line;
    }
    let assigned = line.prefix.split_once('=').filter(|(name, _)| name.starts_with("--"));
    if let Some((name, value)) = assigned.map(|(name, value)| (name.to_owned(), value.to_owned())) {
        line.expected = flag_of(at, &name).map_or(Expected::Nothing, kind_of);
        line.before = format!("{name}=");
        line.prefix = value;
        return line;
    }
    line.expected = if line.prefix.starts_with('-') {
        Expected::Words(flags(at))
    } else if at.has_subcommands() {
        let shown = at.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
        Expected::Words(shown.map(|verb| (verb.get_name().to_owned(), text(verb.get_about()))).collect())
    } else {
        positional(at, positionals).map_or(Expected::Nothing, kind_of)
    };
    line
}

fn text(help: Option<&clap::builder::StyledStr>) -> String {
    help.map(ToString::to_string).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

fn flags(verb: &Command) -> Vec<Candidate> {
    let shown = verb.get_arguments().filter(|flag| !flag.is_hide_set());
    shown.filter_map(|flag| Some((format!("--{}", flag.get_long()?), text(flag.get_help())))).collect()
}

fn flag_of<'a>(verb: &'a Command, word: &str) -> Option<&'a Arg> {
    let long = word.strip_prefix("--");
    let short = word.strip_prefix('-').filter(|rest| rest.chars().count() == 1);
    let is_named = |flag: &&Arg| match long {
        Some(long) => {
            flag.get_long() == Some(long) || flag.get_all_aliases().is_some_and(|all| all.contains(&long))
        }
        None => short.is_some_and(|short| flag.get_short().map(String::from).as_deref() == Some(short)),
    };
    verb.get_arguments().find(is_named)
}

fn takes_a_word(flag: &Arg) -> bool {
    flag.get_action().takes_values() && !flag.is_require_equals_set()
}

/// The positional argument at a position; the last one may take many words.
fn positional(verb: &Command, position: usize) -> Option<&Arg> {
    let all: Vec<&Arg> = verb.get_positionals().collect();
    let last = all.last().filter(|last| last.get_num_args().is_some_and(|range| range.max_values() > 1));
    all.get(position).or(last).copied()
}

fn kind_of(argument: &Arg) -> Expected {
    let values = argument.get_possible_values();
    if !values.is_empty() && argument.get_action().takes_values() {
        let shown = values.iter().filter(|value| !value.is_hide_set());
        return Expected::Words(
            shown.map(|value| (value.get_name().to_owned(), text(value.get_help()))).collect(),
        );
    }
    match (argument.get_id().as_str(), argument.is_positional()) {
        ("name", true) => Expected::Extension,
        ("names", true) | ("catalog", false) => Expected::Catalog,
        ("package", true) => Expected::Package,
        ("channel" | "channels", false) => Expected::Channel,
        ("version" | "from" | "installed", false) => Expected::Version,
        ("namespace", false) => Expected::Namespace,
        ("context", false) => Expected::Context,
        ("cluster", false) => Expected::Cluster,
        ("user", false) => Expected::User,
        _ => {
            let names = argument.get_value_names().unwrap_or_default();
            let is_file =
                |name: &str| name.contains("FILE") || name.contains("DIR") || name.contains("BUNDLE");
            if names.iter().any(|name| is_file(name.as_str())) { Expected::File } else { Expected::Nothing }
        }
    }
}

fn of_sources() -> Command {
    without_empty_variables(Sources::augment_args(Command::new("sources").no_binary_name(true)))
}

/// Completes the last of the words behind the program.
pub(crate) async fn run(words: &[OsString]) -> Result<CommandOutput, CommandError> {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut definition = crate::definition();
    definition.build();
    let line = read(&definition, &words);
    let found = tokio::time::timeout(CANDIDATES_TIMEOUT, candidates(&line)).await;
    let found = found.unwrap_or_else(|_| Ok(Vec::new())).unwrap_or_default();
    Ok(CommandOutput { text: output(&line, &found), yes: true })
}

fn output(line: &Line, found: &[Candidate]) -> String {
    let mut text = String::new();
    for (name, about) in found.iter().filter(|(name, _)| name.starts_with(&line.prefix)) {
        text.push_str(&format!("{}{name}", line.before));
        if !about.is_empty() {
            text.push_str(&format!("\t{}", about.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
        text.push('\n');
    }
    let directive = if line.expected == Expected::File { 0 } else { 4 };
    text + &format!(":{directive}\n")
}

async fn candidates(line: &Line) -> Result<Vec<Candidate>, CommandError> {
    let usage = |error: clap::Error| CommandError::Usage(error.to_string());
    let matches = of_sources().try_get_matches_from(&line.sources).map_err(usage)?;
    let sources = Sources::from_arg_matches(&matches).map_err(usage)?;
    let plain = |names: Vec<String>| names.into_iter().map(|name| (name, String::new())).collect();
    Ok(match &line.expected {
        Expected::Words(words) => words.clone(),
        Expected::File | Expected::Nothing => Vec::new(),
        Expected::Extension => {
            let all = extensions::all(&sources.cluster.client().await?).await?;
            let package = |extension: &olm_api::ClusterExtension| {
                extension
                    .spec
                    .source
                    .catalog
                    .as_ref()
                    .map(|catalog| format!("package {}", catalog.package_name))
            };
            all.iter().map(|found| (found.name_any(), package(found).unwrap_or_default())).collect()
        }
        Expected::Catalog => {
            let all = catalogs::all(&sources.cluster.client().await?).await?;
            plain(all.iter().map(ResourceExt::name_any).collect())
        }
        Expected::Namespace => {
            let api: Api<Namespace> = Api::all(sources.cluster.client().await?);
            let listed = api.list_metadata(&ListParams::default()).await;
            let listed = listed.map_err(|error| CommandError::from_request("read namespaces", &error))?;
            plain(listed.items.iter().map(ResourceExt::name_any).collect())
        }
        Expected::Context | Expected::Cluster | Expected::User => plain(entries(line)?),
        Expected::Package => packages(&sources).await?,
        Expected::Channel | Expected::Version => {
            let Some(package) = package(line, &sources).await? else { return Ok(Vec::new()) };
            let found = sources.package(&package).await?;
            let mut names = Vec::new();
            for contents in found.iter().map(|found| &found.content.contents) {
                if line.expected == Expected::Channel {
                    names.extend(contents.channels.iter().map(|channel| channel.name.clone()));
                } else {
                    let mut versions: Vec<_> = contents.bundles.iter().filter_map(version).collect();
                    versions.sort();
                    names.extend(versions.iter().rev().map(|version| version.version.to_string()));
                }
            }
            let mut seen = std::collections::BTreeSet::new();
            names.retain(|name| seen.insert(name.clone()));
            plain(names)
        }
    })
}

/// The contexts, clusters or users of the kubeconfig that the line names.
fn entries(line: &Line) -> Result<Vec<String>, CommandError> {
    let given = line.sources.iter().rev().find_map(|word| word.strip_prefix("--kubeconfig="));
    let file = given.map_or_else(Kubeconfig::read, Kubeconfig::read_from);
    let file = file.map_err(|error| CommandError::Usage(error.to_string()))?;
    Ok(match line.expected {
        Expected::Cluster => file.clusters.into_iter().map(|cluster| cluster.name).collect(),
        Expected::User => file.auth_infos.into_iter().map(|user| user.name).collect(),
        _ => file.contexts.into_iter().map(|context| context.name).collect(),
    })
}

async fn packages(sources: &Sources) -> Result<Vec<Candidate>, CommandError> {
    let reader = sources.open().await?;
    let mut found = std::collections::BTreeMap::new();
    for catalog in reader.select(&Selector::default()) {
        let read = reader.packages(&catalog).await.unwrap_or_default();
        found.extend(read.into_iter().map(|PackageSummary { name, display_name, .. }| (name, display_name)));
    }
    Ok(found.into_iter().collect())
}

/// The package of the line, or that of its extension.
async fn package(line: &Line, sources: &Sources) -> Result<Option<String>, CommandError> {
    let (Some(name), None) = (&line.extension, &line.package) else { return Ok(line.package.clone()) };
    let extension = extensions::named(&sources.cluster.client().await?, name).await?;
    Ok(extension.spec.source.catalog.map(|catalog| catalog.package_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_line(line: &str) -> Line {
        let mut definition = crate::definition();
        definition.build();
        read(&definition, &line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn complete_knows_what_a_word_is() {
        for (line, want) in [
            ("status ", Expected::Extension),
            ("--context prod status my", Expected::Extension),
            ("status my-extension ", Expected::Nothing),
            ("show ", Expected::Package),
            ("show x --channel ", Expected::Channel),
            ("show x --channel=st", Expected::Channel),
            ("show x --channel = ", Expected::Channel),
            ("versions x --version ", Expected::Version),
            ("upgrade x --version 1", Expected::Version),
            ("catalogs refresh ", Expected::Catalog),
            ("catalogs refresh a b", Expected::Catalog),
            ("list --catalog ", Expected::Catalog),
            ("install x -n ", Expected::Namespace),
            ("list --context ", Expected::Context),
            // names of other kinds
            ("catalogs add ", Expected::Nothing),
            ("classic status ", Expected::Nothing),
            ("bundle lint ", Expected::File),
            ("explain --file ", Expected::File),
            ("list --request-timeout ", Expected::Nothing),
        ] {
            assert_eq!(read_line(line).expected, want, "{line}");
        }
    }

    #[test]
    fn complete_reads_entries_of_the_given_kubeconfig() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let entries_of = |line: String| entries(&read_line(&line)).unwrap_or_default();
        let text = "{apiVersion: v1, kind: Config, contexts: [{name: far}, {name: near}], clusters: [{name: c}], users: [{name: u}]}";
        std::fs::write(&path, text).unwrap();
        for (line, want) in [
            ("--kubeconfig {} list --context ", &["far", "near"][..]),
            ("list --kubeconfig={} --context ", &["far", "near"]),
            ("list --kubeconfig={} --cluster ", &["c"]),
            ("list --kubeconfig={} --user=", &["u"]),
        ] {
            assert_eq!(entries_of(line.replace("{}", &path.display().to_string())), want, "{line}");
        }
        assert_eq!(entries_of("list --kubeconfig /no/such/file --context ".to_owned()).len(), 0);
    }

    #[test]
    fn complete_lists_verbs_flags_and_values() {
        for (line, candidates, others) in [
            ("", &["status", "catalogs", "bundle"][..], &["help", "__complete"][..]),
            ("bundle ", &["lint", "render"], &["status"]),
            ("status --", &["--output", "--watch", "--kubeconfig"], &["--namespace"]),
            ("status -o ", &["wide", "json"], &["--output"]),
            ("completion ", &["bash", "zsh", "fish", "powershell", "plugin"], &[]),
            ("plan x --policy ", &["SelfCertified"], &[]),
        ] {
            let read = read_line(line);
            let Expected::Words(words) = &read.expected else { panic!("{line}: {read:?}") };
            let names: Vec<&str> = words.iter().map(|(name, _)| name.as_str()).collect();
            assert!(candidates.iter().all(|name| names.contains(name)), "{line}: {names:?}");
            assert!(!others.iter().any(|name| names.contains(name)), "{line}: {names:?}");
        }
    }

    #[test]
    fn complete_prints_what_kubectl_reads() {
        let line = read_line("show x --catalog ab");
        let found = [
            ("abc".to_owned(), "a\nb".to_owned()),
            ("xyz".to_owned(), String::new()),
            ("ab".to_owned(), String::new()),
        ];
        assert_eq!(output(&line, &found), "abc\ta b\nab\n:4\n");
        let want = "--catalog=abc\ta b\n--catalog=ab\n:4\n";
        assert_eq!(output(&read_line("show x --catalog=a"), &found), want);
        assert_eq!(output(&read_line("bundle lint "), &[]), ":0\n");
        let line = read_line("show x --dir here --catalogd-url https://a --channel ");
        let want = ("--dir=here --catalogd-url=https://a".to_owned(), Some("x".to_owned()));
        assert_eq!((line.sources.join(" "), line.package), want);
    }
}
