//! The rights of an operator where its group lets it work: what the Roles and RoleBindings of its ClusterServiceVersion become in the target
//! namespaces, or in the whole cluster.
//!
//! Rule: classic-apis §7.7.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::ResourceExt as _;
use olm_api::classic::ClusterServiceVersion;
use olm_classic::csv::requirements::RuleScope;
use olm_classic::operator_group::{rights, targets};
use olm_core::Object;

use crate::cluster::Cluster;
use crate::csv::rights::Rights;
use crate::csv::{key, labelled_owner};
use crate::write::{ObjectWriter, object};

/// Gives the operator its rights where its group lets it work.
pub(super) async fn spread(
    cluster: &Cluster,
    writer: &ObjectWriter,
    csv: &ClusterServiceVersion,
    targets: &[String],
) -> kube::Result<()> {
    if targets::is_global(targets) && has_rights(cluster, csv) {
        return Ok(());
    }
    let namespace = csv.namespace().unwrap_or_default();
    let copies = cluster.copies.uids(&namespace, &csv.name_any());
    let mut all = rights::spread(csv, targets, &namespaced_rights(cluster, &namespace), &copies);
    if targets::is_global(targets) && all.iter().any(|right| is_taken(cluster, csv, right)) {
        all = rights::apart(all, &namespace);
    }
    // one that is refused keeps no other from being written
    let mut written = Ok(());
    for desired in all {
        let live = live(cluster, &desired);
        written = written.and(writer.ensure(&desired, live.as_ref()).await.map(drop));
    }
    written
}

/// Whether the right in the cluster is not to be replaced: it is that of a CSV of the same name in another namespace, or of no CSV, as
/// Kubernetes' own are.
fn is_taken(cluster: &Cluster, csv: &ClusterServiceVersion, right: &Object) -> bool {
    let owner = match right.kind() {
        "ClusterRole" => cluster.cluster_roles.meta(right.name(), labelled_owner),
        _ => cluster.cluster_role_bindings.meta(right.name(), labelled_owner),
    };
    let Some(owner) = owner else { return false };
    owner.is_none_or(|owner| owner != key(csv) && cluster.csvs.meta(&owner, |_| ()).is_some())
}

/// Deletes the rights in the whole cluster that an operator got while its group was global.
pub(super) async fn narrow(
    cluster: &Cluster,
    writer: &ObjectWriter,
    csv: &ClusterServiceVersion,
) -> kube::Result<()> {
    let owned = namespaced_rights(cluster, &csv.namespace().unwrap_or_default());
    for right in rights::left_over(csv, &owned, |wide| live(cluster, wide)) {
        tracing::info!("{} is deleted: its OperatorGroup is not global any more", right.key());
        writer.delete(&right).await?;
    }
    Ok(())
}

/// The Roles and RoleBindings of a namespace.
fn namespaced_rights(cluster: &Cluster, namespace: &str) -> Vec<Object> {
    let roles = cluster.roles.in_namespace(namespace);
    let bindings = cluster.role_bindings.in_namespace(namespace);
    roles.iter().map(|it| object(&**it)).chain(bindings.iter().map(|it| object(&**it))).collect()
}

/// An object of RBAC as the caches have it.
fn live(cluster: &Cluster, desired: &Object) -> Option<Object> {
    let name = desired.name();
    let key = format!("{}/{name}", desired.namespace().unwrap_or_default());
    match desired.kind() {
        "Role" => cluster.roles.find(&key).map(|it| object(&*it)),
        "RoleBinding" => cluster.role_bindings.find(&key).map(|it| object(&*it)),
        "ClusterRole" => cluster.cluster_roles.find(name).map(|it| object(&*it)),
        "ClusterRoleBinding" => cluster.cluster_role_bindings.find(name).map(|it| object(&*it)),
        _ => None,
    }
}

/// Whether the operator may do in the whole cluster what its permissions in a namespace name.
fn has_rights(cluster: &Cluster, csv: &ClusterServiceVersion) -> bool {
    let namespace = csv.namespace().unwrap_or_default();
    let permissions = csv.spec.install.spec.iter().flat_map(|strategy| &strategy.permissions);
    let mut by_account: BTreeMap<&str, Vec<&PolicyRule>> = BTreeMap::new();
    for permission in permissions {
        by_account.entry(&permission.service_account_name).or_default().extend(&permission.rules);
    }
    by_account.into_iter().all(|(account, rules)| {
        let rights = Rights::of_account(cluster, &namespace, account);
        rules.iter().all(|rule| rights.allow(RuleScope::Cluster, rule))
    })
}
