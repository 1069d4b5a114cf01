//! `upgrade-check`: whether installed bundles block an update of the cluster, before the update is requested.
//!
//! The decision is the one that cluster-operator publishes in the ClusterOperator `olm`; here any version can be checked, and
//! only the API server needs to run. Catalogs are read only for hints, and only if a bundle blocks the update.
//!
//! Rule: cluster-operator §5 to §8.

use std::collections::BTreeSet;

use clap::Args;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt};
use olm_api::classic::ClusterServiceVersion;
use olm_api::cluster_object_set::LifecycleState;
use olm_api::openshift::{CLUSTER_VERSION, ClusterVersion};
use olm_api::{ClusterExtension, ClusterObjectSet, annotations, labels};
use olm_catalog::Selector;
use olm_core::openshift::{Blocking, Bundle, Lifecycle, Report, Revision, Stream, counted, judge};
use olm_install::resolution::validate;
use olm_resolver::ReleaseField;
use serde::Serialize;

use super::output::{Output, Table, bad, good, or_dash};
use crate::CommandOutput;
use crate::extensions;
use crate::failure::{CommandError, print_note};
use crate::remedy::{self, Remedy};
use crate::sources::Sources;

#[derive(Debug, Args)]
#[command(
    after_help = "Only major.minor counts: 4.19.7 is 4.19, and so is 4.19.0-rc.1. Without --to it is asked about the next minor version.\n\n\
                  Examples:\n  kubectl olm upgrade-check\n  kubectl olm upgrade-check --to 4.20\n  \
                  kubectl olm upgrade-check --from 4.18.9 -o json | jq .upgradeable\n\n\
                  Exit codes: 0 nothing stands in the way, 1 something does (also a limit that cannot be read), 2 bad input, 3 no answer."
)]
pub(crate) struct Arguments {
    /// The version that the cluster would get, such as 4.20; without it the next minor version
    #[arg(long, value_name = "VERSION")]
    to: Option<String>,
    /// The version that the cluster has, such as 4.19.3; without it that of the ClusterVersion
    #[arg(long, value_name = "VERSION")]
    from: Option<String>,
    #[command(flatten)]
    output: Output,
    /// Read no catalogs to find bundles that would not stand in the way
    #[arg(long)]
    no_hints: bool,
    #[command(flatten)]
    sources: Sources,
}

/// The answer. `-o json` prints this.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct UpgradeCheck {
    /// The version that the cluster has, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<String>,
    /// `major.minor` of the target.
    target: String,
    /// Whether no bundle blocks the update.
    upgradeable: bool,
    /// As in the condition Upgradeable of the ClusterOperator.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Bundles that declare a limit, those in the way first.
    bundles: Vec<Row>,
    /// Number of bundles without a limit.
    unlimited: usize,
}

/// A bundle that declares a limit.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    extension: String,
    bundle: String,
    /// The last version that it runs on; absent if it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_open_shift_version: Option<String>,
    blocks: bool,
    /// The lowest bundle of the catalogs that would not block the update; whether an upgrade edge leads there is not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
    /// What to do, or a warning about the declared limit.
    #[serde(skip_serializing_if = "String::is_empty")]
    help: String,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let usage = |error: olm_core::openshift::StreamError| CommandError::Usage(error.to_string());
    let target = arguments.to.as_deref().map(Stream::of_target).transpose().map_err(usage)?;
    let from = arguments.from.as_deref().map(full_version);
    if let Some(from) = &from {
        Stream::of_version(from).map_err(usage)?;
    }
    let client = arguments.sources.cluster.client().await?;
    let current = match from {
        Some(from) => Some(from),
        None => cluster_version(&client).await?,
    };
    if let (Some(current), Some(to), Some(target)) = (&current, &arguments.to, target) {
        refuse_older(current, to, target)?;
    }
    let all = extensions::all(&client).await?;
    let mut check = check(current, target, &installed(&client, &all).await?)?;
    if !check.upgradeable && !arguments.no_hints {
        hint(&mut check, &all, &arguments.sources).await;
    }
    let text = arguments.output.print(&check, || blocking_names(&check), |_| text(&check));
    Ok(CommandOutput { text, yes: check.upgradeable })
}

/// 4.7 as 4.7.0; other texts as they are.
fn full_version(text: &str) -> String {
    let full = format!("{text}.0");
    let is_short = text.split('.').count() == 2 && Stream::of_version(&full).is_ok();
    if is_short { full } else { text.to_owned() }
}

/// An error if the target is older than what the cluster has.
fn refuse_older(current: &str, to: &str, target: Stream) -> Result<(), CommandError> {
    match Stream::of_version(current) {
        Ok(stream) if target.effective() < stream.effective() => {
            Err(CommandError::Usage(format!("{to} is older than {current}")))
        }
        _ => Ok(()),
    }
}

/// The version in the ClusterVersion, if the cluster has one.
async fn cluster_version(client: &Client) -> Result<Option<String>, CommandError> {
    let resource = kube::api::ApiResource::erase::<ClusterVersion>(&());
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let found = match api.get_opt(CLUSTER_VERSION).await {
        Ok(found) => found,
        // no such kind, or no permission to read it: no version is known
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => None,
        Err(error) => return Err(CommandError::from_request("read the ClusterVersion", &error)),
    };
    let version = found.as_ref().and_then(|it| it.data.pointer("/status/desired/version")?.as_str());
    Ok(version.map(str::to_owned))
}

/// The bundles whose limits apply.
async fn installed(client: &Client, all: &[ClusterExtension]) -> Result<Vec<Bundle>, CommandError> {
    let revisions = extensions::revisions(client, None).await?;
    let revisions: Vec<Revision> = revisions.iter().filter_map(revision).collect();
    let named = all.iter().map(|extension| {
        let install = extension.status.as_ref().and_then(|status| status.install.as_ref());
        let name = extension.metadata.name.as_deref().unwrap_or_default();
        (name, install.map(|install| install.bundle.name.as_str()))
    });
    let mut bundles = counted(named, &revisions);
    bundles.extend(of_classic(client).await?);
    Ok(bundles)
}

/// The ClusterServiceVersions of OLM Classic, without copies; none where the kind is not served. Without the right to list them there is no
/// answer: each of them may block the update.
async fn of_classic(client: &Client) -> Result<Vec<Bundle>, CommandError> {
    let csvs: Api<ClusterServiceVersion> = Api::all(client.clone());
    match csvs.list_metadata(&ListParams::default().labels("!olm.copiedFrom")).await {
        Ok(found) => Ok(found.items.iter().map(csv).collect()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(CommandError::from_request("read ClusterServiceVersions", &error)),
    }
}

fn csv(csv: &impl ResourceExt) -> Bundle {
    let annotations = csv.annotations();
    Bundle::from_csv(&csv.namespace().unwrap_or_default(), &csv.name_any(), |key| annotations.get(key))
}

fn revision(set: &ClusterObjectSet) -> Option<Revision> {
    if set.labels().get(labels::OWNER_KIND).map(String::as_str) != Some(labels::OWNER_KIND_CLUSTER_EXTENSION)
    {
        return None;
    }
    Some(Revision {
        extension: set.labels().get(labels::OWNER_NAME)?.clone(),
        number: set.spec.revision,
        lifecycle: match set.spec.lifecycle_state {
            LifecycleState::Active => Lifecycle::Active,
            LifecycleState::Archived => Lifecycle::Archived,
        },
        bundle: set.annotations().get(annotations::BUNDLE_NAME).cloned().unwrap_or_default(),
        properties: set.annotations().get(annotations::PROPERTIES).cloned(),
    })
}

/// Adds the bundles that would not block the update, as far as catalogs can be read.
async fn hint(check: &mut UpgradeCheck, all: &[ClusterExtension], sources: &Sources) {
    let Ok(target) = Stream::of_target(&check.target) else { return };
    let reader = match sources.open().await {
        Ok(reader) => reader,
        Err(failure) => return print_note(&format!("no hints from catalogs: {failure}")),
    };
    for row in check.bundles.iter_mut().filter(|row| row.blocks) {
        let extension = all.iter().find(|it| it.name_any() == row.extension);
        let Some(Ok(request)) = extension.map(validate) else { continue };
        let selector = if sources.is_local() { Selector::default() } else { request.selector };
        let found = reader.sources(&reader.select(&selector), &request.package, ReleaseField::Counts).await;
        if let Some(Remedy { bundle, catalog }) = remedy::lowest(&found, &row.bundle, target) {
            if row.max_open_shift_version.is_some() {
                row.help = format!("upgrade to {bundle} of catalog {catalog} or above, or uninstall it");
            }
            row.remedy = Some(bundle);
        }
    }
}

fn check(
    current: Option<String>,
    target: Option<Stream>,
    bundles: &[Bundle],
) -> Result<UpgradeCheck, CommandError> {
    let stream = match &current {
        Some(version) => Some(Stream::of_version(version).map_err(|error| {
            CommandError::Unreachable(format!("by the cluster, {error}; give --from and --to"))
        })?),
        None => None,
    };
    let report = match (stream, target) {
        // the condition that cluster-operator would publish
        (Some(stream), None) => judge(stream, stream.next(), bundles),
        // the gate does not apply to patch updates and downgrades
        (Some(stream), Some(target)) if target.effective() <= stream.effective() => {
            judge(stream, target, &[])
        }
        (_, Some(target)) => judge(target.before(), target, bundles),
        (None, None) => {
            return Err(CommandError::Unreachable(
                "this cluster does not report its version of OpenShift; give --from or --to".to_owned(),
            ));
        }
    };
    Ok(UpgradeCheck {
        current,
        target: report.target.to_string(),
        upgradeable: report.is_open(),
        reason: report.reason(),
        message: report.message(0),
        bundles: rows(&report),
        unlimited: report.unlimited,
    })
}

fn rows(report: &Report) -> Vec<Row> {
    let target = report.target;
    let row = |extension: &str, bundle: &str, limit: Option<Stream>, blocks: bool, help: String| Row {
        extension: extension.to_owned(),
        bundle: bundle.to_owned(),
        max_open_shift_version: limit.map(|stream| stream.to_string()),
        blocks,
        remedy: None,
        help,
    };
    let limited = |one: &Blocking, blocks: bool| {
        let stream = one.limit.stream;
        let help = match (one.limit.suspicious, blocks) {
            (true, _) => format!("{stream} may be {stream}0 without quotes in YAML; ask the author"),
            (false, true) => format!("upgrade to a bundle that runs on {target}, or uninstall it"),
            (false, false) => String::new(),
        };
        row(one.owner.name(), &one.bundle, Some(stream), blocks, help)
    };
    let blocking = report.blocking.iter().map(|one| limited(one, true));
    let unreadable = report
        .unreadable
        .iter()
        .map(|one| row(one.owner.name(), &one.bundle, None, true, one.message.clone()));
    let fitting = report.fitting.iter().map(|one| limited(one, false));
    blocking.chain(unreadable).chain(fitting).collect()
}

/// The extensions that block the next cluster upgrade, each once: during an upgrade, two bundles of one may.
fn blocking_names(check: &UpgradeCheck) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let names = check.bundles.iter().filter(|row| row.blocks).map(|row| &row.extension);
    names.filter(|name| seen.insert(*name)).cloned().collect()
}

fn text(check: &UpgradeCheck) -> String {
    let way = match &check.current {
        Some(current) => format!("{current} to {}", check.target),
        None => format!("to {}", check.target),
    };
    let blocked = check.bundles.iter().filter(|row| row.blocks).count();
    let answer = match blocked {
        0 => good("nothing installed stands in the way"),
        1 => bad("1 bundle stands in the way"),
        more => bad(&format!("{more} bundles stand in the way")),
    };
    let mut table = Table::new(["EXTENSION", "BUNDLE", "AT MOST", "BLOCKS", "HELP"]);
    for row in &check.bundles {
        table.row([
            row.extension.clone(),
            or_dash(&row.bundle),
            row.max_open_shift_version.clone().unwrap_or_else(|| "?".to_owned()),
            if row.blocks { "yes" } else { "no" }.to_owned(),
            or_dash(&row.help),
        ]);
    }
    let rest = match check.unlimited {
        0 => String::new(),
        1 => "1 bundle declares no limit\n".to_owned(),
        more => format!("{more} bundles declare no limit\n"),
    };
    format!("{way}: {answer}\n{}{rest}", table.text(""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stand_in;
    use olm_core::openshift::Owner;

    fn bundle(extension: &str, value: Option<&str>) -> Bundle {
        Bundle {
            owner: Owner::Extension(extension.to_owned()),
            name: format!("{extension}.v1.0.0"),
            properties: value
                .map(|value| format!(r#"[{{"type":"olm.maxOpenShiftVersion","value":{value}}}]"#)),
        }
    }

    fn all() -> [Bundle; 5] {
        [
            bundle("late", Some("\"4.20\"")),
            bundle("early", Some("\"4.18\"")),
            bundle("bad", Some("\"v4.20\"")),
            bundle("trap", Some("4.2")),
            bundle("free", None),
        ]
    }

    fn asked(current: Option<&str>, target: Option<&str>) -> Result<UpgradeCheck, CommandError> {
        check(current.map(str::to_owned), target.map(|it| Stream::of_target(it).unwrap()), &all())
    }

    #[test]
    fn upgrade_check_prints_text_and_reason() {
        let check = asked(Some("4.18.7"), None).unwrap();
        insta::assert_snapshot!(text(&check), @r#"
        4.18.7 to 4.19: 3 bundles stand in the way
        EXTENSION   BUNDLE         AT MOST   BLOCKS   HELP
        early       early.v1.0.0   4.18      yes      upgrade to a bundle that runs on 4.19, or uninstall it
        trap        trap.v1.0.0    4.2       yes      4.2 may be 4.20 without quotes in YAML; ask the author
        bad         bad.v1.0.0     ?         yes      error(s) with cluster extension bad: error in bundle bad.v1.0.0: error converting to semver for version "v4.20": it must not begin with v
        late        late.v1.0.0    4.20      no       -
        1 bundle declares no limit
        "#);
        assert_eq!(check.reason, Some("IncompatibleOperatorsInstalled"));
        let message = check.message.unwrap();
        assert!(
            message.starts_with(
                "Found ClusterExtensions that require upgrades prior to upgrading cluster to version 4.19: "
            ),
            "{message}"
        );
    }

    #[tokio::test]
    async fn upgrade_check_needs_right_to_list_csvs() {
        let forbidden = "clusterserviceversions.operators.coreos.com is forbidden: User \"u\" cannot list resource \
                         \"clusterserviceversions\" in API group \"operators.coreos.com\" at the cluster scope";
        for (code, message, want) in [
            // OLM Classic is not installed
            (404, "404 page not found", Ok(0)),
            (
                403,
                forbidden,
                Err("you may not list clusterserviceversions.operators.coreos.com; ClusterRole \
                     operator-controller-clusterextension-viewer-role allows it"),
            ),
            (500, "etcd is down", Err("cannot read ClusterServiceVersions: etcd is down")),
        ] {
            let client = stand_in::cluster(move |_| Some(stand_in::failure(code, message)));
            let got = of_classic(&client).await.map(|found| found.len());
            let got = got.map_err(|failure| (failure.code(), failure.to_string()));
            assert_eq!(got, want.map_err(|text| (3, text.to_owned())), "{code}");
        }
    }

    #[test]
    fn upgrade_check_refuses_older_targets() {
        for (current, to, want) in [
            ("4.18.5", "4.17", Err("4.17 is older than 4.18.5")),
            ("4.18.5", "4.18", Ok(())),
            ("4.23.0", "5.0", Ok(())),
            ("5.0.0", "4.22", Err("4.22 is older than 5.0.0")),
            ("unknown", "4.17", Ok(())),
        ] {
            let got = refuse_older(current, to, Stream::of_target(to).unwrap());
            assert_eq!(got.map_err(|error| error.to_string()), want.map_err(str::to_owned), "{current} {to}");
        }
        let full = ["4.7", "4.7.1", "4", "x.y"].map(full_version);
        assert_eq!(full, ["4.7.0", "4.7.1", "4", "x.y"]);
    }

    #[test]
    fn upgrade_check_names_each_extension_once() {
        let upgraded = Bundle { name: "early.v1.1.0".to_owned(), ..bundle("early", Some("\"4.18\"")) };
        let bundles = all().into_iter().chain([upgraded]).collect::<Vec<_>>();
        let check = check(Some("4.18.7".to_owned()), None, &bundles).unwrap();
        assert_eq!(check.bundles.iter().filter(|row| row.extension == "early").count(), 2);
        assert_eq!(blocking_names(&check), ["early", "trap", "bad"]);
    }

    #[test]
    fn upgrade_check_accepts_any_target() {
        for (current, target, blocked) in [
            (Some("4.18.7"), Some("4.19"), Some(vec!["early", "trap", "bad"])),
            // two hops: what stops the first stops the second, and more
            (Some("4.18.7"), Some("4.21"), Some(vec!["early", "late", "trap", "bad"])),
            (None, Some("4.20"), Some(vec!["early", "trap", "bad"])),
            // no minor update
            (Some("4.18.7"), Some("4.18.9"), Some(vec![])),
            (Some("4.18.7"), Some("4.17"), Some(vec![])),
            (Some("4.23.0"), Some("5.0"), Some(vec![])),
            (None, None, None),
            (Some("unknown"), Some("4.20"), None),
        ] {
            let got = asked(current, target).ok().map(|check| {
                assert_eq!(check.upgradeable, check.bundles.iter().all(|row| !row.blocks));
                check
                    .bundles
                    .into_iter()
                    .filter(|row| row.blocks)
                    .map(|row| row.extension)
                    .collect::<Vec<_>>()
            });
            let want = blocked.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(got, want, "{current:?} to {target:?}");
        }
    }
}
