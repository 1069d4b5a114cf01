//! `search`: the packages of all catalogs, or those that a word occurs in.

use clap::Args;
use olm_fbc::PackageSummary;
use serde::Serialize;

use super::output::{MAX_NOTE, Output, Table, cut, or_dash};
use crate::CommandOutput;
use crate::failure::{CommandError, print_note};
use crate::sources::{NO_CATALOG, Sources};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  kubectl olm search\n  kubectl olm search argo\n  \
                  kubectl olm search --image quay.io/operatorhubio/catalog:latest -o name\n\n\
                  Exit codes: 0 there are some, 1 there is none, 2 bad input, 3 no answer.")]
pub(crate) struct Arguments {
    /// A word that occurs in the package's name, its name for users, its provider, description, keywords or a kind that it provides
    term: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    sources: Sources,
}

/// A package of one catalog. `-o json` prints a list of these.
#[derive(Debug, Serialize)]
struct Row {
    catalog: String,
    #[serde(flatten)]
    package: PackageSummary,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let reader = arguments.sources.open().await?;
    let catalogs = arguments.sources.packages(&reader).await?;
    let readable = !catalogs.is_empty();
    let matches = |brief: &PackageSummary| arguments.term.as_ref().is_none_or(|term| mentions(brief, term));
    let mut listed = Vec::new();
    for (catalog, briefs) in catalogs {
        let name = catalog.name.to_string();
        let found = briefs.into_iter().filter(matches);
        listed.extend(found.map(|package| Row { catalog: name.clone(), package }));
    }
    listed.sort_by(|a, b| (&a.package.name, &a.catalog).cmp(&(&b.package.name, &b.catalog)));
    let names = || {
        let mut names: Vec<String> = listed.iter().map(|row| row.package.name.clone()).collect();
        names.dedup();
        names
    };
    let text = arguments.output.print(&listed, names, |wide| table(&listed, wide));
    if listed.is_empty() {
        let message = nothing_found(arguments.term.as_deref(), readable, arguments.sources.local());
        print_note(&format!("error: {message}"));
    }
    Ok(CommandOutput { text, yes: !listed.is_empty() })
}

/// The error message if no package is listed. `local` is the flag and the catalog that was read instead of those of the cluster.
fn nothing_found(term: Option<&str>, readable: bool, local: Option<(&str, String)>) -> String {
    match (term, readable, local) {
        (_, false, _) => NO_CATALOG.to_owned(),
        (Some(term), true, None) => format!("no package mentions {term:?}; `kubectl olm search` lists all"),
        (Some(term), true, Some((flag, catalog))) => {
            format!("no package mentions {term:?}; `kubectl olm search {flag} {catalog}` lists all")
        }
        (None, true, None) => "the catalogs hold no packages; `kubectl olm catalogs` lists them".to_owned(),
        (None, true, Some((_, catalog))) => {
            format!("catalog {catalog} holds no packages; `kubectl olm catalog validate {catalog}` checks it")
        }
    }
}

/// Whether the word occurs in the summary of the package, case-insensitively.
fn mentions(package: &PackageSummary, term: &str) -> bool {
    let term = term.to_lowercase();
    let kinds = package.provided_apis.iter().map(|api| &api.kind);
    [&package.name, &package.display_name, &package.provider, &package.excerpt]
        .into_iter()
        .chain(&package.keywords)
        .chain(kinds)
        .any(|text| text.to_lowercase().contains(&term))
}

/// The version at the head of the default channel, and the channel; without one, the highest version of all.
fn offered(package: &PackageSummary) -> (&str, &str) {
    let default = package.channels.iter().find(|channel| channel.name == package.default_channel);
    match default.and_then(|channel| Some((channel.heads.first()?, channel.name.as_str()))) {
        Some((head, channel)) => (&head.version, channel),
        None => (package.latest.as_ref().map_or("", |latest| &latest.version), ""),
    }
}

fn table(listed: &[Row], wide: bool) -> String {
    let heads = ["PACKAGE", "VERSION", "CHANNEL", "CATALOG", "DEPRECATED", "NAME", "PROVIDER", "CHANNELS"];
    let is_any_deprecated = listed.iter().any(|row| row.package.deprecation.is_some());
    let shown = match (wide, is_any_deprecated) {
        (true, _) => heads.len(),
        (false, true) => 5,
        (false, false) => 4,
    };
    let mut table = Table::new(heads.into_iter().take(shown));
    let note = |text: &str| if wide { text.to_owned() } else { cut(text, MAX_NOTE) };
    for Row { catalog, package } in listed {
        let (version, channel) = offered(package);
        table.row([
            package.name.clone(),
            or_dash(version),
            or_dash(channel),
            catalog.clone(),
            or_dash(&note(package.deprecation.as_deref().unwrap_or_default())),
            or_dash(&package.display_name),
            or_dash(&package.provider),
            or_dash(
                &package.channels.iter().map(|channel| channel.name.as_str()).collect::<Vec<_>>().join(","),
            ),
        ]);
    }
    table.text("")
}

#[cfg(test)]
mod tests {
    use olm_fbc::PackageContents;
    use serde_json::json;

    use super::*;

    #[test]
    fn search_names_what_to_do_if_nothing_is_found() {
        for (term, readable, local, want) in [
            (Some("x"), true, None, "`kubectl olm search` lists all"),
            (Some("x"), true, Some("d"), "`kubectl olm search --dir d` lists all"),
            (Some("x"), false, None, "`kubectl olm catalogs` shows why"),
            (None, true, None, "`kubectl olm catalogs` lists them"),
            (
                None,
                true,
                Some("d"),
                "catalog d holds no packages; `kubectl olm catalog validate d` checks it",
            ),
        ] {
            let local = local.map(|directory: &str| ("--dir", directory.to_owned()));
            let text = nothing_found(term, readable, local);
            assert!(text.contains(want), "{term:?}: {text}");
        }
    }

    #[test]
    fn search_shows_the_version_of_the_default_channel() {
        let package = |default: &str| {
            let bundle = |version: &str| {
                json!({"schema": "olm.bundle", "package": "p", "name": format!("p.v{version}"), "image": "i", "properties": [
                    {"type": "olm.package", "value": {"packageName": "p", "version": version}}]})
            };
            let channel = |name: &str, version: &str| json!({"schema": "olm.channel", "package": "p", "name": name, "entries": [{"name": format!("p.v{version}")}]});
            let lines = [
                json!({"schema": "olm.package", "name": "p", "defaultChannel": default}),
                channel("stable", "2.0.0"),
                channel("candidate", "2.1.0-rc.1"),
                bundle("2.0.0"),
                bundle("2.1.0-rc.1"),
            ];
            let lines = lines.map(|line| line.to_string()).join("\n");
            olm_fbc::summarise("p", &PackageContents::from_jsonl("p", lines.as_bytes()).unwrap().0)
        };
        for (default, want) in [
            ("stable", ("2.0.0", "stable")),
            ("candidate", ("2.1.0-rc.1", "candidate")),
            ("", ("2.1.0-rc.1", "")),
            ("gone", ("2.1.0-rc.1", "")),
        ] {
            assert_eq!(offered(&package(default)), want, "{default:?}");
        }
    }
}
