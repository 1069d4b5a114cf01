//! `catalogs`: the ClusterCatalogs of the cluster, and their creation, refresh and removal.

use std::collections::BTreeMap;

use clap::{Args, Subcommand, ValueEnum};
use futures::StreamExt as _;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch};
use kube::{Api, Client, ResourceExt as _};
use olm_api::cluster_catalog::AvailabilityMode;
use olm_api::{ClusterCatalog, annotations, condition};
use olm_catalog::Selector;
use olm_runtime::duration::{DurationError, GoDuration};
use serde::Serialize;
use serde_json::json;

use super::waiting::Waiting;
use super::{DryRun, Edit, Several, key_value, refused};
use crate::CommandOutput;
use crate::cmd::output::{Output, Table, age, bad, counted, or_dash};
use crate::failure::{CommandError, is_kind_missing, print_note};
use crate::sources::{Cache, Cluster, Registry, Sources};
use crate::{extensions, similar};

/// Catalogs that are read at the same time.
const PARALLEL_READS: usize = 8;

#[derive(Debug, Args)]
#[command(
    after_help = "SERVING names the reason when a catalog is not served. PACKAGES is ? if catalogd gave no answer.\n\n\
                  Examples:\n  kubectl olm catalogs\n  kubectl olm catalogs -o wide\n  \
                  kubectl olm catalogs add operatorhubio quay.io/operatorhubio/catalog:latest --poll-interval 10m\n  \
                  kubectl olm catalogs refresh operatorhubio\n\n\
                  Exit codes: 0 listed (also when there are none), 2 bad input, 3 no answer."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    list: List,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List them, as without a verb
    #[command(hide = true)]
    List(List),
    /// Create a ClusterCatalog for a catalog image
    Add(Add),
    /// Resolve the images of catalogs now instead of at their next poll
    Refresh(Refresh),
    /// Delete ClusterCatalogs; what was installed from them stays
    Remove(Remove),
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    cache: Cache,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  kubectl olm catalogs add operatorhubio quay.io/operatorhubio/catalog:latest --poll-interval 10m --wait\n  \
                  kubectl olm catalogs add mine registry.example.com/catalog:v1 --priority 10 --label team=a\n\n\
                  Exit codes: 0 done, 1 not served after --wait, 2 bad input, 3 no answer.")]
struct Add {
    /// Name of the ClusterCatalog
    #[arg(id = "new", value_name = "NAME")]
    name: String,
    /// The catalog image with its registry and a tag or digest
    #[arg(value_parser = image)]
    image: String,
    /// Among catalogs with the same package, the one with the highest priority is used
    #[arg(long, value_name = "NUMBER", default_value_t, allow_negative_numbers = true)]
    priority: i32,
    /// Time between polls of the tag, such as 10m: whole minutes [default: none, `refresh` polls it]
    #[arg(long, value_name = "DURATION", value_parser = minutes)]
    poll_interval: Option<i64>,
    /// Whether the catalog is served and used
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    availability: Availability,
    /// A label, KEY=VALUE, for spec.source.catalog.selector of extensions; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = key_value)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    edit: Edit,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(Debug, Args)]
#[command(after_help = "Sets the annotation olm.operatorframework.io/requested-at to the time.\n\n\
                  Examples:\n  kubectl olm catalogs refresh operatorhubio\n\n\
                  Exit codes: 0 requested, 1 no such catalog, 2 bad input, 3 no answer.")]
struct Refresh {
    /// The ClusterCatalogs
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  kubectl olm catalogs remove operatorhubio\n\n\
                  Exit codes: 0 done, 1 no such catalog, 2 bad input, 3 no answer.")]
struct Remove {
    /// The ClusterCatalogs
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Change nothing: print what would be deleted (client), or what the apiserver would delete (server)
    #[arg(long, value_enum, default_value_t, num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    dry_run: DryRun,
    #[command(flatten)]
    cluster: Cluster,
}

/// `spec.availabilityMode`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Availability {
    /// Serve it
    #[default]
    #[value(name = "Available")]
    Available,
    /// Keep the object, serve nothing
    #[value(name = "Unavailable")]
    Unavailable,
}

/// One ClusterCatalog. `-o json` prints a list of these.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    /// Whether its content can be fetched.
    serving: bool,
    /// The reason why it is not served.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    /// How many packages it has, if it could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    packages: Option<usize>,
    priority: i32,
    /// The image of the spec.
    image: String,
    /// The digest of the served image.
    #[serde(skip_serializing_if = "String::is_empty")]
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    poll_interval_minutes: Option<i64>,
    /// When the served content was unpacked, RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    last_unpacked: String,
    /// When it was created, RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    created: String,
    #[serde(skip)]
    age: String,
}

fn minutes(text: &str) -> Result<i64, String> {
    let minutes = match text.parse::<u32>() {
        Ok(minutes) => i64::from(minutes),
        Err(_) => {
            let GoDuration(interval) = text.parse().map_err(|error: DurationError| error.to_string())?;
            if !interval.as_secs().is_multiple_of(60) {
                return Err("it counts whole minutes; write it like 10m".to_owned());
            }
            i64::try_from(interval.as_secs() / 60).map_err(|error| error.to_string())?
        }
    };
    if minutes > 0 { Ok(minutes) } else { Err("at least 1m".to_owned()) }
}

/// A reference of an image, which is no URL.
fn image(text: &str) -> Result<String, String> {
    let url = text.split_once("://");
    url.map_or_else(|| Ok(text.to_owned()), |(scheme, _)| Err(format!("leave out {scheme}://")))
}

pub(crate) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    match &arguments.verb {
        None => list(&arguments.list).await,
        Some(Verb::List(arguments)) => list(arguments).await,
        Some(Verb::Add(arguments)) => add(arguments).await,
        Some(Verb::Refresh(arguments)) => refresh(arguments).await,
        Some(Verb::Remove(arguments)) => remove(arguments).await,
    }
}

/// All catalogs that fit their type, by name.
pub(crate) async fn all(client: &Client) -> Result<Vec<ClusterCatalog>, CommandError> {
    Ok(read(client).await?.0)
}

/// The same, and an error message about each of the others.
async fn read(client: &Client) -> Result<(Vec<ClusterCatalog>, Vec<String>), CommandError> {
    let (mut catalogs, unread) =
        extensions::readable::<ClusterCatalog>(client, "read ClusterCatalogs").await?;
    catalogs.sort_by_key(ClusterCatalog::name_any);
    Ok((catalogs, unread))
}

async fn list(List { output, cache, cluster }: &List) -> Result<CommandOutput, CommandError> {
    let client = cluster.client().await?;
    let (catalogs, unread) = read(&client).await?;
    let packages = if catalogs.is_empty() {
        if unread.is_empty() {
            print_note("there are no ClusterCatalogs; `kubectl olm catalogs add NAME IMAGE` creates one");
        }
        extensions::print_passed_over(&unread);
        BTreeMap::new()
    } else {
        packages(cluster, cache).await?
    };
    let now = Timestamp::now();
    let rows: Vec<Row> = catalogs.iter().map(|catalog| row(catalog, &packages, now)).collect();
    let names = || rows.iter().map(|row| row.name.clone()).collect();
    Ok(CommandOutput { text: output.print(&rows, names, |wide| table(&rows, wide)), yes: true })
}

/// The number of packages of each catalog that is served and can be read.
async fn packages(cluster: &Cluster, cache: &Cache) -> Result<BTreeMap<String, usize>, CommandError> {
    let sources = Sources::of_cluster(cluster, &Registry::default(), cache);
    let reader = sources.open().await?;
    let served = reader.select(&Selector::default());
    let served = served.into_iter().filter(|catalog| catalog.endpoint.is_ok());
    let read = futures::stream::iter(served.map(|catalog| {
        let reader = &reader;
        async move {
            let found = reader.packages(&catalog).await;
            (catalog.name.to_string(), found)
        }
    }));
    let (mut counts, mut skipped) = (BTreeMap::new(), Vec::new());
    let mut read = std::pin::pin!(read.buffer_unordered(PARALLEL_READS));
    while let Some((name, found)) = read.next().await {
        match found {
            Ok(found) => drop(counts.insert(name, found.len())),
            Err(error) => {
                let text = format!("skipped {}", sources.failure(error));
                if !skipped.contains(&text) {
                    print_note(&text);
                    skipped.push(text);
                }
            }
        }
    }
    Ok(counts)
}

fn row(catalog: &ClusterCatalog, packages: &BTreeMap<String, usize>, now: Timestamp) -> Row {
    let status = catalog.status.clone().unwrap_or_default();
    let find = |type_: &str| condition::find(&status.conditions, type_);
    let serving = condition::is_true(&status.conditions, condition::SERVING);
    let is_off = catalog.spec.availability_mode == AvailabilityMode::Unavailable;
    // the progress of the source is more than that nothing is served
    let progressing = find(condition::PROGRESSING).filter(|found| !is_off && found.reason != "Succeeded");
    let why = progressing.or(find(condition::SERVING)).filter(|_| !serving || progressing.is_some());
    let image = catalog.spec.source.image.as_ref();
    let name = catalog.name_any();
    let resolved = status.resolved_source.map(|source| source.image.reference).unwrap_or_default();
    Row {
        serving,
        reason: why.map(|found| found.reason.clone()).unwrap_or_default(),
        message: why.map(|found| found.message.clone()).unwrap_or_default(),
        packages: packages.get(&name).copied(),
        priority: catalog.spec.priority,
        image: image.map(|image| image.reference.clone()).unwrap_or_default(),
        digest: resolved.split_once('@').map(|(_, digest)| digest.to_owned()).unwrap_or_default(),
        poll_interval_minutes: image.and_then(|image| image.poll_interval_minutes),
        last_unpacked: status.last_unpacked.map(|time| time.0.to_string()).unwrap_or_default(),
        created: catalog.creation_timestamp().map(|time| time.0.to_string()).unwrap_or_default(),
        age: catalog.creation_timestamp().map(|time| age(time.0, now)).unwrap_or_default(),
        name,
    }
}

fn table(rows: &[Row], wide: bool) -> String {
    let heads = ["NAME", "SERVING", "PACKAGES", "PRIORITY", "AGE", "IMAGE", "DIGEST", "MESSAGE"];
    let mut table = Table::new(heads.into_iter().take(if wide { heads.len() } else { 5 }));
    for row in rows {
        let word = if row.serving { "True" } else { "False" };
        let packages = row.packages.map(|count| count.to_string());
        table.row([
            row.name.clone(),
            if row.reason.is_empty() { word.to_owned() } else { format!("{word} ({})", row.reason) },
            packages.unwrap_or_else(|| if row.serving { "?" } else { "-" }.to_owned()),
            row.priority.to_string(),
            or_dash(&row.age),
            row.image.clone(),
            or_dash(&row.digest),
            or_dash(&row.message),
        ]);
    }
    let broken = rows.iter().filter(|row| !row.serving).count();
    if broken == 0 {
        return table.text("");
    }
    let text = format!("{} of {} not served; -o wide shows why", broken, counted(rows.len(), "catalog"));
    format!("{}\n{}\n", table.text(""), bad(&text))
}

async fn add(arguments: &Add) -> Result<CommandOutput, CommandError> {
    let name = &arguments.name;
    let mut image = json!({"ref": arguments.image});
    if let Some(minutes) = arguments.poll_interval {
        image["pollIntervalMinutes"] = json!(minutes);
    }
    let mode = match arguments.availability {
        Availability::Available => "Available",
        Availability::Unavailable => "Unavailable",
    };
    let labels: BTreeMap<_, _> = arguments.labels.iter().cloned().collect();
    let catalog = json!({"apiVersion": olm_api::API_VERSION, "kind": "ClusterCatalog",
        "metadata": {"name": name, "labels": labels},
        "spec": {"source": {"type": "Image", "image": image}, "priority": arguments.priority, "availabilityMode": mode}});
    let catalog: ClusterCatalog =
        serde_json::from_value(catalog).map_err(|error| CommandError::Usage(error.to_string()))?;
    let what = format!("clustercatalog/{name} created (image {})", arguments.image);
    if arguments.edit.dry_run == DryRun::Client {
        return Ok(arguments.edit.output_of(&catalog, &json!(catalog.spec), &what));
    }
    let client = arguments.cluster.client().await?;
    let api: Api<ClusterCatalog> = Api::all(client.clone());
    let stored = api.create(&arguments.edit.post_params(), &catalog).await.map_err(|error| match &error {
        kube::Error::Api(status) if status.code == 409 => CommandError::Usage(format!(
            "there is a ClusterCatalog {name:?} already; `kubectl olm catalogs refresh {name}` reads its image again"
        )),
        _ => refused(&format!("ClusterCatalog {name:?}"), &error),
    })?;
    let is_switched_off = arguments.availability == Availability::Unavailable;
    if !arguments.edit.writes() || !arguments.waiting.wait || is_switched_off {
        if arguments.waiting.wait && is_switched_off {
            print_note("an Unavailable catalog is not served, so nothing is waited for");
        }
        return Ok(arguments.edit.output_of(&stored, &json!(stored.spec), &what));
    }
    print_note(&what);
    let served =
        arguments.waiting.served(&client, &stored, &format!("`kubectl olm catalogs remove {name}`")).await?;
    let end = format!("clustercatalog/{name} {}", if served { "is served" } else { "is not served" });
    Ok(CommandOutput { yes: served, ..arguments.edit.output_of(&stored, &json!(stored.spec), &end) })
}

/// The error of a request about one catalog, with similar names if it does not exist.
async fn failed(client: &Client, name: &str, error: &kube::Error) -> CommandError {
    match error {
        kube::Error::Api(status) if status.code == 404 && !is_kind_missing(status) => {
            let names: Vec<String> =
                all(client).await.unwrap_or_default().iter().map(ClusterCatalog::name_any).collect();
            let hint = similar::hint(name, &names, "see `kubectl olm catalogs`");
            CommandError::NotFound(format!("there is no ClusterCatalog {name:?}; {hint}"))
        }
        _ => refused(&format!("ClusterCatalog {name:?}"), error),
    }
}

async fn refresh(arguments: &Refresh) -> Result<CommandOutput, CommandError> {
    let client = arguments.cluster.client().await?;
    let api: Api<ClusterCatalog> = Api::all(client.clone());
    let now = Timestamp::now().to_string();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotations::REQUESTED_AT: now}}}));
    let params = super::patch_params();
    let mut whole = Several::new();
    for name in &arguments.names {
        let refreshed = match api.patch_metadata(name, &params, &patch).await {
            Ok(_) => Ok(format!("clustercatalog/{name}: refresh requested\n")),
            Err(error) => Err(failed(&client, name, &error).await),
        };
        if !whole.add("", refreshed) {
            break;
        }
    }
    whole.output(lines)
}

async fn remove(arguments: &Remove) -> Result<CommandOutput, CommandError> {
    let client = arguments.cluster.client().await?;
    let api: Api<ClusterCatalog> = Api::all(client.clone());
    let params = DeleteParams { dry_run: arguments.dry_run == DryRun::Server, ..DeleteParams::default() };
    let dry = arguments.dry_run.suffix();
    let mut whole = Several::new();
    for name in &arguments.names {
        let removed = match arguments.dry_run {
            DryRun::Client => api.get_metadata(name).await.map(drop),
            DryRun::None | DryRun::Server => api.delete(name, &params).await.map(drop),
        };
        let removed = match removed {
            Ok(()) => Ok(format!("clustercatalog/{name} deleted; what was installed from it stays{dry}\n")),
            Err(error) => Err(failed(&client, name, &error).await),
        };
        if !whole.add("", removed) {
            break;
        }
    }
    whole.output(lines)
}

/// The lines for several catalogs.
fn lines(all: &[String]) -> CommandOutput {
    CommandOutput { text: all.concat(), yes: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catalogs_image_is_no_url() {
        for (text, want) in [
            ("quay.io/c:v1", Ok("quay.io/c:v1")),
            ("https://quay.io/c:v1", Err("leave out https://")),
            ("docker://quay.io/c:v1", Err("leave out docker://")),
        ] {
            assert_eq!(image(text), want.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn catalogs_poll_interval_counts_minutes() {
        for (text, want) in [
            ("10m", Ok(10)),
            ("1h30m", Ok(90)),
            ("5", Ok(5)),
            ("90s", Err("it counts whole minutes; write it like 10m")),
            ("0", Err("at least 1m")),
            ("0s", Err("at least 1m")),
            ("soon", Err("invalid duration \"soon\"; write it like 12h or 1m30s")),
        ] {
            assert_eq!(minutes(text), want.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn catalogs_table_shows_why_one_is_not_served() {
        let catalog = |name: &str, spec: serde_json::Value, conditions: &[(&str, &str, &str, &str)]| {
            let conditions: Vec<_> = conditions
                .iter()
                .map(|(type_, status, reason, message)| {
                    json!({"type": type_, "status": status, "reason": reason, "message": message,
                        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1})
                })
                .collect();
            let mut whole = json!({"source": {"type": "Image", "image": {"ref": "r.example.com/c:v1"}}});
            whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            serde_json::from_value::<ClusterCatalog>(json!({
                "apiVersion": olm_api::API_VERSION, "kind": "ClusterCatalog",
                "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": whole, "status": {"conditions": conditions},
            }))
            .unwrap()
        };
        let served = ("Serving", "True", "Available", "Serving desired content");
        let all = [
            catalog("good", json!({"priority": 7}), &[served, ("Progressing", "True", "Succeeded", "")]),
            catalog("quiet", json!({}), &[served, ("Progressing", "True", "Succeeded", "")]),
            catalog("stale", json!({}), &[served, ("Progressing", "True", "Retrying", "no such host")]),
            catalog("never", json!({}), &[("Progressing", "True", "Retrying", "unauthorized (401)")]),
            catalog(
                "off",
                json!({"availabilityMode": "Unavailable"}),
                &[
                    ("Serving", "False", "UserSpecifiedUnavailable", ""),
                    ("Progressing", "True", "Succeeded", ""),
                ],
            ),
            catalog("new", json!({}), &[]),
        ];
        let now: Timestamp = "2026-01-01T05:30:00Z".parse().unwrap();
        let packages = BTreeMap::from([("good".to_owned(), 3)]);
        let rows: Vec<Row> = all.iter().map(|catalog| row(catalog, &packages, now)).collect();
        insta::assert_snapshot!(format!("{}\n{}", table(&rows, false), table(&rows, true)));
    }
}
