//! `docs/rbac.md`: what manifests grant to each process, and what of it was used in the tests that read the audit log
//! (`install.rs`). The page is made from the manifests and from the tables that those tests prove; `OLM_UPDATE_DOCS=1` writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use olm_kit::{Request, repository};
use serde_json::Value;

use crate::classic::{CLASSIC, CLASSIC_UNUSED, COMPONENT};
use crate::install::{CATALOGD, CATALOGD_UNUSED, CONTROLLER, CONTROLLER_UNUSED, EXTENSIONS_ONLY, REPORTER};
use crate::manifests::{OVERLAYS, find, render};
use crate::rights::{Right, granted};

const PAGE: &str = "docs/rbac.md";

const HEAD: &str = "# Rights of the processes

What the manifests grant, and what of it is used. The tests named below run the processes under their service accounts, read the
apiserver's audit log afterwards, and fail when a request was refused, when a right is neither used nor has its reason here, and
when a reason is given for a right that is used. This page is made from the manifests and those reasons; write it again with
`OLM_UPDATE_DOCS=1 cargo test -p olm-integration --test deploy audit`.
";

const TAIL: &str = "
## Roles for people

| ClusterRole | allows |
|---|---|
| `operator-controller-clusterextension-viewer-role` | every verb of `kubectl olm` that reads, but for those of `classic`: ClusterExtensions, ClusterObjectSets, ClusterCatalogs, the content of catalogs through the apiserver, CustomResourceDefinitions, and for `upgrade-check` the ClusterVersion and ClusterServiceVersions |
| `operator-controller-clusterextension-editor-role` | the same, and ClusterExtensions to be written |

Neither is bound. `kubectl apply -k manifests/options/aggregated-roles` (chart: `aggregatedRoles: true`) adds the first to the
cluster's `view`, `edit` and `admin`, the second to `admin`; a ClusterRoleBinding of `admin` then allows to install everything that the catalogs
offer.

The verbs of `kubectl olm classic` also read CatalogSources, InstallPlans, OperatorGroups and Subscriptions, which neither role allows.

The viewer role leaves out the Secrets of `olmv1-system`, which hold the objects of revisions beside credentials. Without the right to `get` them
`status` shows a revision without its objects, `uninstall --dry-run` counts no custom resources, and `diff` names the right and ends. `status` shows the
objects that the user may read (with `view`, those of namespaces). `plan` names the objects that the user may not write, instead of
sending them as dry runs: with the rights of the extension's account it checks them all.
`tests/integration/tests/kubectl/viewer.rs::viewer_role_is_enough_for_reading_verbs` runs the verbs.

## Bound to no process

The other ClusterRoles (`*-metrics-reader`, `catalogd-proxy-role` and the like) are for monitoring; no process has them unless its table above
lists them. What an attacker could do with the rights of a process: [threat model](threat-model.md#a-compromised-process).
";

/// One process in one overlay.
struct Part<'a> {
    title: &'a str,
    overlay: &'a str,
    account: &'a str,
    unused: &'a [(&'a str, &'a str)],
    test: &'a str,
}

#[rustfmt::skip]
const PARTS: &[Part<'_>] = &[
    Part { title: "catalogd", overlay: "overlays/kubernetes", account: CATALOGD, unused: CATALOGD_UNUSED,
        test: "tests/integration/tests/deploy/install.rs::install_takes_a_package_from_catalog_to_removal" },
    Part { title: "operator-controller, restricted", overlay: "overlays/restricted", account: CONTROLLER, unused: CONTROLLER_UNUSED,
        test: "tests/integration/tests/deploy/install.rs::install_restricted_acts_as_extension_accounts_only" },
    Part { title: "cluster-operator", overlay: "overlays/openshift", account: REPORTER, unused: &[],
        test: "tests/integration/tests/deploy/install.rs::cluster_operator_reports_with_the_rights_of_its_manifests" },
    Part { title: "classic-controller", overlay: COMPONENT, account: CLASSIC, unused: CLASSIC_UNUSED,
        test: "tests/integration/tests/deploy/classic.rs::classic_needs_no_more_than_the_rights_of_its_component" },
];

/// Rights on one resource: where and which, then verbs that were used and verbs that were not, these with the reason.
type Rows<'a> = BTreeMap<(String, String), (BTreeSet<&'a str>, BTreeMap<&'a str, BTreeSet<&'a str>>)>;

fn rows<'a>(rights: &'a [Right], unused: &'a [(&'a str, &'a str)]) -> Rows<'a> {
    let mut rows = Rows::new();
    let mut before = "";
    let reasons: BTreeMap<&str, &str> = unused
        .iter()
        .map(|(title, reason)| {
            if *reason != "as above" {
                before = *reason;
            }
            (*title, before)
        })
        .collect();
    for right in rights {
        let names =
            if right.names.is_empty() { String::new() } else { format!(" {}", right.names.join(", ")) };
        let what = format!("`{}/{}`{names}", right.group, right.resource);
        let place = right.namespace.clone().unwrap_or_else(|| "everywhere".to_owned());
        let row = rows.entry((what, place)).or_default();
        match reasons.get(right.title().as_str()) {
            None => row.0.insert(right.verb.as_str()),
            Some(reason) => row.1.entry(*reason).or_default().insert(right.verb.as_str()),
        };
    }
    rows
}

fn list<'a>(verbs: impl IntoIterator<Item = &'a str>) -> String {
    let verbs: Vec<&str> = verbs.into_iter().collect();
    if verbs.is_empty() { "none".to_owned() } else { verbs.join(", ") }
}

fn page() -> Result<String> {
    let mut page = HEAD.to_owned();
    for part in PARTS {
        let rights = granted(&render(part.overlay)?, part.account)?;
        write!(
            page,
            "\n## {}\n\nService account `{}` in `{}`; measured by\n`{}`.\n\n",
            part.title, part.account, part.overlay, part.test
        )?;
        page += "| resource | where | used | granted and not used |\n|---|---|---|---|\n";
        for ((what, place), (used, unused)) in rows(&rights, part.unused) {
            let unused: Vec<String> =
                unused.into_iter().map(|(reason, verbs)| format!("{}: {reason}", list(verbs))).collect();
            let unused = if unused.is_empty() { "none".to_owned() } else { unused.join("; ") };
            writeln!(page, "| {what} | {place} | {} | {unused} |", list(used))?;
        }
    }
    page += "\n## operator-controller, cluster-admin\n\n\
        In every overlay but `restricted` operator-controller is bound to `cluster-admin`, since it writes what bundles hold. In the cold\n\
        install of `install_takes_a_package_from_catalog_to_removal` it used, beyond what `restricted` grants, nothing but `create`,\n\
        `patch` and `delete` on what a package consists of:\n\n";
    for resource in EXTENSIONS_ONLY {
        writeln!(page, "- `{resource}`")?;
    }
    Ok(page + TAIL)
}

#[test]
fn rights_page_lists_granted_and_used_rights() -> Result<()> {
    let path = repository().join(PAGE);
    let expected = page()?;
    if std::env::var_os("OLM_UPDATE_DOCS").is_some() {
        std::fs::write(&path, &expected)?;
    }
    let there = std::fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let differs = there.lines().zip(expected.lines()).position(|(there, expected)| there != expected);
    let line = differs.map(|at| at + 1);
    ensure!(there == expected, "{PAGE} is not current from line {line:?}; set OLM_UPDATE_DOCS=1");
    Ok(())
}

/// What would let a process go beyond the page.
#[test]
fn rights_of_a_process_do_not_allow_escalation() -> Result<()> {
    for overlay in OVERLAYS {
        let documents = render(overlay)?;
        for account in [CATALOGD, CONTROLLER, REPORTER] {
            if find(&documents, "ServiceAccount", account).is_err() {
                continue; // not part of this overlay
            }
            let admin = bound_to_cluster_admin(&documents, account);
            let allowed = account == CONTROLLER && *overlay != "overlays/restricted";
            ensure!(admin == allowed, "{overlay}: {account} is cluster-admin: {admin}");
            for right in granted(&documents, account)? {
                let title = format!("{overlay}: {account}: {}", right.title());
                let anything = right.group == "*" || right.resource == "*";
                // `get` would include pods/exec and nodes/proxy
                ensure!(!anything || (right.verb == "list" && *overlay == "overlays/restricted"), "{title}");
                ensure!(!["*", "escalate", "bind"].contains(&right.verb.as_str()), "{title}");
                let may = *overlay == "overlays/restricted" && right.resource == "serviceaccounts";
                ensure!(right.verb != "impersonate" || may, "{title}");
                let writes = ["create", "update", "patch", "delete", "deletecollection"]
                    .contains(&right.verb.as_str());
                ensure!(!(writes && right.group == "rbac.authorization.k8s.io"), "{title}");
                // credentials of others: writing pods or tokens, and Secrets outside of the own namespace by catalogd
                ensure!(
                    !(writes && ["pods", "serviceaccounts/token"].contains(&right.resource.as_str())),
                    "{title}"
                );
                let secrets = right.group.is_empty() && right.resource == "secrets";
                ensure!(!(secrets && account != CONTROLLER && right.namespace.is_none()), "{title}");
            }
        }
    }
    Ok(())
}

fn bound_to_cluster_admin(documents: &[Value], account: &str) -> bool {
    documents.iter().any(|one| {
        one["kind"] == "ClusterRoleBinding"
            && one["roleRef"]["name"] == "cluster-admin"
            && one["subjects"].as_array().into_iter().flatten().any(|subject| subject["name"] == account)
    })
}

/// Resources and verbs of the account's own requests that `rights` do not grant.
pub(crate) fn beyond(rights: &[Right], requests: &[Request]) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for request in requests {
        let about_nothing = request.resource.is_empty();
        if !about_nothing && request.acting_as.is_empty() && !rights.iter().any(|right| right.allows(request))
        {
            let resource = format!("{}/{}", request.group, request.resource);
            found.entry(resource).or_default().insert(request.verb.clone());
        }
    }
    found
}
