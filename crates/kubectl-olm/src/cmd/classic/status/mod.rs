//! `classic status`: the Subscriptions of a namespace, what they installed, what they wait for, and what to do.

mod row;

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::{Api, Client};
use olm_api::openshift;
use olm_classic::csv::strategy::proxy_variables;
use olm_core::Object;

use self::row::{Catalog, Edit, Observed, Plan, Row};
use super::objects::list;
use crate::CommandOutput;
use crate::cmd::output::{Output, Table, bad, or_dash};
use crate::failure::{CommandError, print_note};
use crate::sources::{Cluster, Namespace};

/// Selects ClusterServiceVersions that are no copies.
const ORIGINALS: &str = "!olm.copiedFrom";
/// Selects what OLM makes.
const MANAGED: &str = "olm.managed=true";

#[derive(Debug, Args)]
#[command(
    after_help = "Deployments are compared with what their ClusterServiceVersion and the settings of the Subscription come to; -o wide and -o json \
                  have both values of a field. An edited Deployment alone does not change the exit code.\n\n\
                  Examples:\n  kubectl olm classic status -n operators\n  kubectl olm classic status my-subscription -n operators\n  \
                  kubectl olm classic status -A -o json\n\n\
                  Exit codes: 0 all are installed and none waits, 1 one waits or failed, or there is no such Subscription, 2 bad input, 3 no answer."
)]
pub(crate) struct Arguments {
    /// A Subscription, or a ClusterServiceVersion that belongs to none; else all of the namespace
    #[arg(id = "subscription", value_name = "NAME")]
    name: Option<String>,
    /// Those of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    #[command(flatten)]
    namespace: Namespace,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    cluster: Cluster,
}

impl Arguments {
    /// `None`: all.
    fn namespace(&self) -> Result<Option<&str>, CommandError> {
        match (self.all_namespaces, self.namespace.given(), &self.name) {
            (true, Some(_), _) => Err(CommandError::Usage(
                "--namespace and --all-namespaces contradict each other; use one".to_owned(),
            )),
            (true, None, Some(name)) => {
                let text = format!(
                    "{name:?} may be in several namespaces; use --namespace instead of --all-namespaces"
                );
                Err(CommandError::Usage(text))
            }
            (true, None, None) => Ok(None),
            (false, _, _) => self.namespace.required().map(Some),
        }
    }
}

pub(super) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let namespace = arguments.namespace()?;
    let observed = observe(&arguments.cluster.client().await?, namespace).await?;
    let mut rows = observed.rows();
    if let Some(name) = &arguments.name {
        rows.retain(|row| row.name() == name);
        if rows.is_empty() {
            let place = namespace.unwrap_or_default();
            return Err(CommandError::NotFound(format!(
                "namespace {place} has no Subscription {name:?}, nor a ClusterServiceVersion of that name without one"
            )));
        }
    }
    let names = || rows.iter().map(|row| row.name().to_owned()).collect();
    let text = arguments.output.print(&rows, names, |wide| text(&rows, namespace.is_none(), wide));
    Ok(CommandOutput { text, yes: rows.iter().all(|row| row.ready) })
}

async fn observe(client: &Client, namespace: Option<&str>) -> Result<Observed, CommandError> {
    let subscriptions: Vec<olm_api::classic::Subscription> = list(client, namespace, "").await?;
    let mut catalogs = list(client, namespace, "").await?;
    let mut unread = BTreeSet::new();
    if let Some(namespace) = namespace {
        let others: BTreeSet<&str> =
            subscriptions.iter().map(|it| it.spec.source_namespace.as_str()).collect();
        for other in others.into_iter().filter(|other| !other.is_empty() && *other != namespace) {
            match list::<olm_api::classic::CatalogSource>(client, Some(other), "").await {
                Ok(found) => catalogs.extend(found),
                Err(error) => {
                    print_note(&format!("the state of catalogs in namespace {other} is not known: {error}"));
                    unread.insert(other.to_owned());
                }
            }
        }
    }
    let (deployments, proxy) = deployments(client, namespace).await.unwrap_or_else(|error| {
        print_note(&format!("edited Deployments are not shown: {error}"));
        Default::default()
    });
    Ok(Observed {
        subscriptions,
        csvs: list(client, namespace, ORIGINALS).await?,
        plans: list(client, namespace, "").await?,
        catalogs,
        unread,
        deployments,
        proxy,
    })
}

/// The Deployments of operators, and the variables of the cluster's proxy that their containers have.
async fn deployments(
    client: &Client,
    namespace: Option<&str>,
) -> Result<(Vec<Object>, BTreeMap<String, String>), CommandError> {
    // as JSON: to compile all types below theirs takes long
    let resource = ApiResource::erase::<Deployment>(&());
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let listed = api.list(&ListParams::default().labels(MANAGED)).await;
    let found = listed.map_err(|error| CommandError::from_request("list deployments", &error))?.items;
    let variables = if found.is_empty() { BTreeMap::new() } else { proxy(client).await? };
    // in a list they do not name their kind
    let objects = found.into_iter().filter_map(|it| {
        let named = DynamicObject { types: Some(TypeMeta::resource::<Deployment>()), ..it };
        Object::from_value(serde_json::to_value(named).ok()?).ok()
    });
    Ok((objects.collect(), variables))
}

/// None on a cluster that is not OpenShift.
async fn proxy(client: &Client) -> Result<BTreeMap<String, String>, CommandError> {
    let gvk = GroupVersionKind::gvk(openshift::GROUP, "v1", "Proxy");
    // without rights the answer is 403 also where there is no such kind; discovery is open to every user
    if let Err(kube::Error::Api(status)) = client.list_api_group_resources(&gvk.api_version()).await
        && status.code == 404
    {
        return Ok(BTreeMap::new());
    }
    let resource = ApiResource::from_gvk_with_plural(&gvk, "proxies");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    match api.get("cluster").await {
        Ok(found) => Ok(proxy_variables(&found.data["status"])),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(BTreeMap::new()),
        Err(error) => Err(CommandError::from_request("get proxies", &error)),
    }
}

fn text(rows: &[Row], with_namespace: bool, wide: bool) -> String {
    if rows.is_empty() {
        return "no Subscription, and no ClusterServiceVersion\n".to_owned();
    }
    let heads = ["SUBSCRIPTION", "PACKAGE", "CHANNEL", "CATALOG", "INSTALLED", "PHASE", "STATE"];
    let mut table = Table::new(with_namespace.then_some("NAMESPACE").into_iter().chain(heads));
    for row in rows {
        let catalog = row.catalog.as_ref().map(Catalog::title).unwrap_or_default();
        let cells =
            [&row.subscription, &row.package, &row.channel, &catalog, &row.csv, &row.phase, &row.state];
        let namespace = with_namespace.then(|| row.namespace.clone());
        table.row(namespace.into_iter().chain(cells.map(|cell| or_dash(cell))));
    }
    let mut text = table.text("");
    for row in rows {
        text.push_str(&details(row, with_namespace, wide));
    }
    text
}

/// What is not as it should be; nothing for a row without.
fn details(row: &Row, with_namespace: bool, wide: bool) -> String {
    let mut lines = Vec::new();
    for row::Condition { type_, reason, message } in &row.conditions {
        let is_further = !message.is_empty() && !row.next.contains(message);
        let message = if is_further { format!(": {message}") } else { String::new() };
        lines.push(format!("{type_} {reason}{message}"));
    }
    if let Some(Plan { name, phase, csvs }) = &row.plan {
        lines.push(format!("InstallPlan {name}: {phase}, for {}", csvs.join(", ")));
    }
    lines.extend(row.requirements.iter().map(|requirement| format!("requirement: {requirement}")));
    for Edit { deployment, fields } in &row.edited {
        let paths: Vec<&str> = fields.iter().map(|field| field.path.as_str()).collect();
        lines.push(format!("Deployment {deployment} was edited: {}", paths.join(", ")));
        if wide {
            let value = |value: &Option<serde_json::Value>| {
                value.as_ref().map_or("-".to_owned(), ToString::to_string)
            };
            let line =
                |it: &row::Field| format!("  {}: {}, not {}", it.path, value(&it.live), value(&it.desired));
            lines.extend(fields.iter().map(line));
        }
    }
    lines.extend(row.next.iter().map(|next| format!("to do: {next}")));
    if lines.is_empty() {
        return String::new();
    }
    let name =
        if with_namespace { format!("{}/{}", row.namespace, row.name()) } else { row.name().to_owned() };
    let title = if row.ready { name } else { bad(&name) };
    let lines: String =
        lines.iter().map(|line| format!("  {}\n", line.trim_end().replace('\n', "\n  "))).collect();
    format!("\n{title}\n{lines}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::stand_in;

    #[tokio::test]
    async fn classic_status_survives_unreadable_catalogs() {
        let subscriptions = json!(row::tests::observed().subscriptions);
        let client = stand_in::cluster(move |request| {
            Some(if request.contains("/namespaces/olm/catalogsources?") {
                stand_in::failure(403, "catalogsources.operators.coreos.com is forbidden")
            } else if request.contains("/namespaces/ns/subscriptions?") {
                stand_in::list(&subscriptions)
            } else {
                stand_in::list(&json!([]))
            })
        });
        let rows = observe(&client, Some("ns")).await.unwrap().rows();
        let catalogs = rows.iter().filter_map(|row| row.catalog.as_ref()).map(Catalog::title);
        let mut want = vec!["olm/main (unknown)"; 4];
        want.push("olm/gone (unknown)");
        assert_eq!(catalogs.collect::<Vec<_>>(), want);
    }

    #[tokio::test]
    async fn classic_status_reads_the_proxy_of_the_cluster() {
        let found = json!({"apiVersion": "config.openshift.io/v1", "kind": "Proxy", "metadata": {"name": "cluster"},
            "status": {"httpProxy": "http://p"}});
        let resources =
            json!({"kind": "APIResourceList", "groupVersion": "config.openshift.io/v1", "resources": []});
        let served = (200, resources.to_string());
        let forbidden = || stand_in::failure(403, "proxies.config.openshift.io is forbidden");
        let not_found = || (404, "404 page not found".to_owned());
        for (case, group, answer, want) in [
            ("a proxy", served.clone(), (200, found.to_string()), Some("http://p")),
            ("none", served.clone(), not_found(), None),
            ("no such kind, and no right", not_found(), forbidden(), None),
            ("no right", served, forbidden(), None),
        ] {
            let client = stand_in::cluster(move |request| {
                Some(if request.contains("/apis/config.openshift.io/v1/proxies/cluster") {
                    answer.clone()
                } else if request.contains("/apis/config.openshift.io/v1") {
                    group.clone()
                } else if request.contains("/namespaces/ns/deployments?") {
                    stand_in::list(&json!([{"metadata": {"namespace": "ns", "name": "a"}}]))
                } else {
                    stand_in::list(&json!([]))
                })
            });
            let observed = observe(&client, Some("ns")).await.unwrap();
            assert_eq!(observed.proxy.get("HTTP_PROXY").map(String::as_str), want, "{case}");
            let shown: Vec<_> = observed.deployments.iter().map(|it| (it.kind(), it.name())).collect();
            let want = if case == "no right" { vec![] } else { vec![("Deployment", "a")] };
            assert_eq!(shown, want, "{case}: not compared without the proxy");
        }
    }

    #[test]
    fn classic_status_prints_details_of_what_waits() {
        let rows = row::tests::observed().rows();
        insta::assert_snapshot!(text(&rows, true, true));
        let rows: Vec<Row> = rows.into_iter().filter(|row| row.ready && row.edited.is_empty()).collect();
        assert_eq!(text(&rows, false, false).lines().count(), 1 + rows.len(), "no details");
        assert_eq!(text(&[], false, false), "no Subscription, and no ClusterServiceVersion\n");
    }

    #[test]
    fn classic_status_needs_one_place() {
        let parse = |words: &[&str]| {
            use clap::FromArgMatches as _;
            let command = Arguments::augment_args(clap::Command::new("status"));
            let matches = command.get_matches_from([&["status"], words].concat());
            Arguments::from_arg_matches(&matches).unwrap()
        };
        let place = |words: &[&str]| {
            parse(words).namespace().map(|it| it.map(str::to_owned)).map_err(|error| error.to_string())
        };
        assert_eq!(place(&["-n", "a"]), Ok(Some("a".to_owned())));
        assert_eq!(place(&["-A"]), Ok(None));
        for words in [&["-A", "-n", "a"][..], &["x", "-A"], &[]] {
            assert!(place(words).is_err(), "{words:?}");
        }
    }
}
