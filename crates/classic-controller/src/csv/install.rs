//! The objects of an install strategy, written.
//!
//! They are written as the account of the group, if it names one; certificates are OLM's own.
//!
//! Rules: classic-apis §6.3 row 16, §6.5, §7.1, §9.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::{Resource, ResourceExt as _};
use olm_api::classic::cluster_service_version::WebhookDescription;
use olm_api::classic::{ClusterServiceVersion, OperatorGroup};
use olm_classic::csv::OwnerConflict;
use olm_classic::csv::chain::is_foreign;
use olm_classic::csv::strategy::{self, serving};
use olm_classic::csv::webhooks::check_conversion;
use olm_classic::operator::label_component;
use olm_classic::operator_group::targets;
use olm_classic::ownership::extension_conflict;
use olm_core::Object;
use olm_runtime::client::impersonating;
use serde_json::{Value, json};

use super::installs::InstallError;
use super::writer::{Actor, InstallWriter};
use super::{Csvs, key, labelled_owner};
use crate::write::{ObjectWriter, cache_answer, has, includes, named, object};

/// The label of a webhook configuration that names the webhook of the CSV.
const WEBHOOK_NAME: &str = "olm.webhook-description-generate-name";

impl Csvs {
    /// Creates or updates all objects of the strategy, and deletes those that are not in it any more.
    pub(super) async fn install(&self, csv: &ClusterServiceVersion) -> Result<(), InstallError> {
        let strategy = strategy::check(csv).map_err(InstallError::hopeless)?;
        let named: BTreeSet<&str> = strategy.deployments.iter().map(|it| it.name.as_str()).collect();
        let mut bundles = BTreeMap::new();
        let config = self.config(csv);
        let mut settings = self.settings(csv, config.as_ref());
        let writer = self.group_writer(csv)?;
        for deployment in serving::deployments(csv) {
            if !named.contains(deployment) {
                return Err(InstallError::hopeless(format!(
                    "deployment {deployment:?} of a webhook or APIService is not in spec.install.spec.deployments"
                )));
            }
            let served = self.serve(&writer, csv, deployment).await?;
            settings.ca_hashes.insert(deployment.to_owned(), served.ca_hash);
            bundles.insert(deployment.to_owned(), served.bundle);
        }
        let desired = strategy::deployments(csv, &settings).map_err(InstallError::hopeless)?;
        for deployment in desired {
            self.write_deployment(&writer, csv, deployment).await?;
        }
        for obsolete in strategy::obsolete(csv, &self.deployments_of(csv)) {
            writer.checked(obsolete, writer.writer.delete(obsolete).await)?;
        }
        check_conversion(csv, &self.preserving()).map_err(InstallError::retried)?;
        self.write_callers(&writer, csv, &bundles).await?;
        self.delete_undefined_webhooks(&writer, csv).await
    }

    /// Writes what calls the Deployments: webhook configurations, conversions and APIServices. `bundles` has the CAs of each Deployment, in
    /// base64.
    pub(super) async fn write_callers(
        &self,
        writer: &InstallWriter,
        csv: &ClusterServiceVersion,
        bundles: &BTreeMap<String, String>,
    ) -> Result<(), InstallError> {
        let group = self.group(&csv.namespace().unwrap_or_default());
        let namespaces = group.and_then(|group| targets::webhook_namespaces(&group));
        for webhook in &csv.spec.webhook_definitions {
            let Some(bundle) = bundles.get(&webhook.deployment_name) else { continue };
            self.write_webhook(writer, csv, webhook, (namespaces.as_ref(), bundle.as_str())).await?;
        }
        let config = self.config(csv).unwrap_or_default();
        let owned = csv.spec.api_service_definitions.iter().flat_map(|services| &services.owned);
        for service in owned {
            let Some(bundle) = bundles.get(&service.deployment_name) else { continue };
            let mut desired = serving::api_service(csv, service, bundle);
            let live = self.context.cluster.api_services.find(desired.name());
            let is_there = |key: &str| live.as_ref().is_some_and(|live| live.annotations().contains_key(key));
            for (key, value) in config.annotations.iter().filter(|(key, _)| !is_there(key)) {
                desired.set_annotation(key, value);
            }
            let owner = live.as_ref().and_then(|live| labelled_owner(&live.metadata));
            // two that waited may have found it free
            if owner.as_ref().is_some_and(|owner| is_foreign(csv, &self.context.cluster.csvs.all(), owner)) {
                let conflict = OwnerConflict::ApiService { name: desired.name().to_owned(), owner };
                return Err(InstallError::retried(conflict.message()));
            }
            writer.ensure(&desired, live.map(|it| object(&*it)).as_ref()).await?;
        }
        Ok(())
    }

    /// Writes as OLM itself.
    pub(super) fn own_writer(&self) -> InstallWriter {
        InstallWriter { writer: self.writer.clone(), actor: Actor::Controller }
    }

    /// Writes as the account of the group, if it names one.
    pub(super) fn group_writer(&self, csv: &ClusterServiceVersion) -> Result<InstallWriter, InstallError> {
        let namespace = csv.namespace().unwrap_or_default();
        let Some(account) = account(&self.context.cluster.groups.in_namespace(&namespace))? else {
            return Ok(self.own_writer());
        };
        let user = format!("system:serviceaccount:{namespace}:{account}");
        let writer = ObjectWriter::new(impersonating(&self.context.client, &user));
        Ok(InstallWriter { writer, actor: Actor::Account })
    }

    /// Writes the Deployments of rotated certificates, whose pods get the hash of the new authority.
    pub(super) async fn write_rotated(
        &self,
        writer: &InstallWriter,
        csv: &ClusterServiceVersion,
        rotated: &[(&str, String)],
    ) -> Result<(), InstallError> {
        if rotated.is_empty() {
            return Ok(());
        }
        let config = self.config(csv);
        let settings = self.settings(csv, config.as_ref());
        let mut desired = strategy::deployments(csv, &settings).map_err(InstallError::hopeless)?;
        // a newer version may have taken one over meanwhile
        let own = self.deployments_of(csv);
        let is_own = |name: &str| own.iter().any(|it| it.name() == name);
        desired.retain(|it| rotated.iter().any(|(name, _)| *name == it.name()) && is_own(it.name()));
        for deployment in desired {
            self.write_deployment(writer, csv, deployment).await?;
        }
        Ok(())
    }

    /// A Deployment that was made from the same specification is not written: what people changed in it stays.
    async fn write_deployment(
        &self,
        writer: &InstallWriter,
        csv: &ClusterServiceVersion,
        mut desired: Object,
    ) -> Result<(), InstallError> {
        let cluster = &self.context.cluster;
        let key = format!("{}/{}", desired.namespace().unwrap_or_default(), desired.name());
        let mut live = cluster.deployments.find(&key).map(|live| object(&*live));
        if live.as_ref().is_some_and(|live| is_current(live, &desired)) {
            return Ok(());
        }
        match &mut live {
            Some(live) => strategy::remove_withdrawn(live, &desired),
            None => label_component(&mut desired, csv.labels().keys().map(String::as_str), Some(csv)),
        }
        let written = writer.ensure(&desired, live.as_ref()).await?;
        cache_answer(&cluster.deployments, live.is_none(), written);
        Ok(())
    }

    /// `namespaces` is `None` as long as the targets of the group are not known: what is there keeps its selector.
    async fn write_webhook(
        &self,
        writer: &InstallWriter,
        csv: &ClusterServiceVersion,
        webhook: &WebhookDescription,
        (namespaces, bundle): (Option<&Value>, &str),
    ) -> Result<(), InstallError> {
        if let Some(conversion) = serving::conversion(csv, webhook, bundle) {
            for name in &webhook.conversion_crds {
                self.write_conversion(writer, name, &conversion).await?;
            }
            return Ok(());
        }
        let mut present = self.webhooks_of(csv);
        present.retain(|live| {
            serving::configuration_kind(webhook) == Some(live.kind())
                && live.labels().get(WEBHOOK_NAME).copied() == Some(webhook.generate_name.as_str())
        });
        let mut present = present.into_iter();
        let (present, surplus) = (present.next(), present);
        let namespaces = namespaces.cloned().or_else(|| namespace_selector(present.as_ref()?));
        let selector = namespaces.as_ref().unwrap_or(&Value::Null);
        let Some(mut desired) = serving::webhook_configuration(csv, webhook, selector, bundle) else {
            return Err(InstallError::hopeless(format!(
                "webhook {:?} has type {:?}; known are ValidatingAdmissionWebhook, MutatingAdmissionWebhook and ConversionWebhook",
                webhook.generate_name, webhook.type_
            )));
        };
        let Some(live) = present else {
            if namespaces.is_none() {
                return Err(InstallError::retried(format!(
                    "webhook {:?}: the OperatorGroup has no target namespaces yet",
                    webhook.generate_name
                )));
            }
            let written = writer.checked(&desired, writer.writer.create(&desired).await)?;
            self.cache_webhook(true, written);
            return Ok(());
        };
        desired.metadata_mut().remove("generateName");
        desired.metadata_mut().insert("name".to_owned(), live.name().into());
        let written = if selects_less(&live, &desired) {
            Some(writer.checked(&desired, writer.writer.replace(&live, &desired).await)?)
        } else {
            writer.ensure(&desired, Some(&live)).await?
        };
        if let Some(written) = written {
            self.cache_webhook(false, written);
        }
        // a backup that was restored may have brought others, whose callers would trust an earlier authority
        for other in surplus {
            writer.checked(&other, writer.writer.delete(&other).await)?;
        }
        Ok(())
    }

    fn cache_webhook(&self, is_new: bool, written: Object) {
        let cluster = &self.context.cluster;
        if written.kind() == "ValidatingWebhookConfiguration" {
            cache_answer(&cluster.validating_webhooks, is_new, Some(written));
        } else {
            cache_answer(&cluster.mutating_webhooks, is_new, Some(written));
        }
    }

    async fn write_conversion(
        &self,
        writer: &InstallWriter,
        name: &str,
        conversion: &Value,
    ) -> Result<(), InstallError> {
        let body = |conversion: Value| {
            let mut crd = named("apiextensions.k8s.io/v1", "CustomResourceDefinition", None, name);
            crd.0.insert("spec".to_owned(), json!({ "conversion": conversion }));
            crd
        };
        let desired = body(conversion.clone());
        let Some(live) = self.context.cluster.crds.find(name) else {
            return Err(InstallError::retried(format!("CustomResourceDefinition {name} is not present")));
        };
        if has(&body(json!(live.spec.conversion)), &desired) {
            return Ok(());
        }
        if let Some(conflict) = extension_conflict(&object(&*live)) {
            return Err(InstallError::retried(conflict));
        }
        let patch = json!({ "spec": { "conversion": conversion } });
        writer.checked(&desired, writer.writer.patch(&desired, &patch).await).map(drop)
    }

    /// The admission webhooks of the cluster that are a CSV's.
    pub(super) fn webhooks_of(&self, csv: &ClusterServiceVersion) -> Vec<Object> {
        let (cluster, owner) = (&self.context.cluster, Some(key(csv)));
        let validating = cluster.validating_webhooks.all();
        let mutating = cluster.mutating_webhooks.all();
        let validating =
            validating.iter().filter(|it| labelled_owner(it.meta()) == owner).map(|it| object(&**it));
        let mutating =
            mutating.iter().filter(|it| labelled_owner(it.meta()) == owner).map(|it| object(&**it));
        validating.chain(mutating).collect()
    }

    /// Deletes the admission webhooks of a CSV that it does not define, any more or as that kind.
    async fn delete_undefined_webhooks(
        &self,
        writer: &InstallWriter,
        csv: &ClusterServiceVersion,
    ) -> Result<(), InstallError> {
        for webhook in self.webhooks_of(csv) {
            let name = webhook.labels().get(WEBHOOK_NAME).copied();
            let mut defined = csv.spec.webhook_definitions.iter();
            let is_defined = defined.any(|it| {
                name == Some(it.generate_name.as_str())
                    && serving::configuration_kind(it) == Some(webhook.kind())
            });
            if !is_defined {
                writer.checked(&webhook, writer.writer.delete(&webhook).await)?;
            }
        }
        Ok(())
    }

    /// Names of CustomResourceDefinitions that keep unknown fields.
    fn preserving(&self) -> BTreeSet<String> {
        let all = self.context.cluster.crds.all();
        let preserving = all.iter().filter(|crd| crd.spec.preserve_unknown_fields == Some(true));
        preserving.map(|crd| crd.name_any()).collect()
    }
}

/// The account by which the group of a namespace installs; `None`: as OLM itself.
///
/// # Errors
/// When there is not exactly one group any more: then nothing shows whose rights count.
fn account(groups: &[Arc<OperatorGroup>]) -> Result<Option<String>, InstallError> {
    match groups {
        [group] => Ok(Some(group.spec.service_account_name.clone()).filter(|account| !account.is_empty())),
        _ => Err(InstallError::retried(format!("found {} operatorGroups, expected 1", groups.len()))),
    }
}

/// Whether a Deployment was made from the specification of `desired`, whose hash is a label, and has its annotations.
fn is_current(live: &Object, desired: &Object) -> bool {
    let annotations =
        |object: &Object| object.0.get("spec")?.pointer("/template/metadata/annotations").cloned();
    let without_spec = |object: &Object| {
        let members = object.0.iter().filter(|(member, _)| member.as_str() != "spec");
        Object(members.map(|(member, value)| (member.clone(), value.clone())).collect())
    };
    let expected = annotations(desired).unwrap_or_default();
    has(&without_spec(live), &without_spec(desired)) && includes(annotations(live).as_ref(), &expected)
}

/// The selector of namespaces of the first webhook.
fn namespace_selector(configuration: &Object) -> Option<Value> {
    configuration.0.get("webhooks")?.get(0)?.get("namespaceSelector").cloned()
}

/// Whether the first webhook of `live` selects namespaces by terms that the desired one does not have.
fn selects_less(live: &Object, desired: &Object) -> bool {
    !includes(namespace_selector(desired).as_ref(), &namespace_selector(live).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use olm_runtime::watched;

    use super::super::FINALIZER;
    use super::super::installs::Retry;
    use super::*;
    use crate::cluster::Cluster;
    use crate::testing::{Apiserver, context, failure_with, put, success};

    #[test]
    fn install_acts_as_the_account_of_the_only_group() {
        let group = |account: &str| -> Arc<OperatorGroup> {
            let group = json!({"metadata": {"name": "g"}, "spec": {"serviceAccountName": account}});
            Arc::new(serde_json::from_value(group).unwrap())
        };
        for (groups, want) in [
            (vec![group("a")], Some(Some("a"))),
            (vec![group("")], Some(None)),
            (vec![], None),
            (vec![group(""), group("a")], None),
        ] {
            let got = account(&groups).ok();
            assert_eq!(got.as_ref().map(Option::as_deref), want, "{} groups", groups.len());
        }
    }

    fn csv(spec: Value) -> ClusterServiceVersion {
        let mut all =
            json!({"displayName": "a", "install": {"strategy": "deployment", "spec": {"deployments": []}}});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let metadata = json!({"name": "a.v1", "namespace": "ns", "uid": "u"});
        serde_json::from_value(json!({"metadata": metadata, "spec": all})).unwrap()
    }

    /// A webhook configuration of that CSV in the cache.
    fn configured(cluster: &Cluster, name: &str, selector: &Value) {
        let labels = json!({"olm.owner": "a.v1", "olm.owner.namespace": "ns", "olm.owner.kind": "ClusterServiceVersion",
            "olm.webhook-description-generate-name": "w.a.test"});
        let webhook = json!({"name": "w.a.test", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {}, "namespaceSelector": selector});
        let metadata = json!({"name": name, "uid": name, "resourceVersion": "1", "labels": labels});
        put(&cluster.validating_webhooks, json!({"metadata": metadata, "webhooks": [webhook]}));
    }

    #[tokio::test]
    async fn webhook_of_a_group_that_became_global_selects_all_namespaces() {
        let webhook = json!({"type": "ValidatingAdmissionWebhook", "generateName": "w.a.test", "deploymentName": "d",
            "sideEffects": "None", "admissionReviewVersions": ["v1"]});
        let csv = csv(json!({"webhookdefinitions": [webhook]}));
        let bundles = BTreeMap::from([("d".to_owned(), "Y2E=".to_owned())]);
        let apiserver = Apiserver::new(|_, _| {
            let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"});
            (200, with_name(body))
        });
        let cluster = Cluster::new();
        let csvs = Csvs::new(context("csv", &apiserver, &cluster));
        let without_targets = csvs.write_callers(&csvs.own_writer(), &csv, &bundles).await.unwrap_err();
        assert_eq!(without_targets.retry, Retry::Later);
        assert_eq!(apiserver.requests(), Vec::<String>::new(), "it would select all namespaces");
        let limited = r#""namespaceSelector":{"matchLabels":{"olm.operatorgroup.uid/1":""}}"#;
        let status =
            |namespaces: &[&str]| json!({"namespaces": namespaces, "lastUpdated": "2026-01-01T00:00:00Z"});
        for (case, group, selector) in [
            ("no group", None, limited),
            ("no status", Some(Value::Null), limited),
            ("targets of an earlier specification", Some(status(&["a"])), limited),
            ("all namespaces", Some(status(&[""])), r#""namespaceSelector":{}"#),
        ] {
            configured(&cluster, "w", &json!({"matchLabels": {"olm.operatorgroup.uid/1": ""}}));
            if let Some(status) = group {
                let metadata = json!({"name": "g", "namespace": "ns", "uid": case});
                put(&cluster.groups, json!({"metadata": metadata, "spec": {}, "status": status}));
            }
            csvs.write_callers(&csvs.own_writer(), &csv, &bundles).await.unwrap();
            let requests = apiserver.requests();
            let written = requests.last().unwrap();
            assert!(written.starts_with("PUT ") && written.contains(selector), "{case}: {written}");
        }
        assert_eq!(apiserver.requests().len(), 4);
    }

    #[tokio::test]
    async fn webhook_that_is_configured_twice_loses_the_second() {
        let webhook = json!({"type": "ValidatingAdmissionWebhook", "generateName": "w.a.test", "deploymentName": "d",
            "sideEffects": "None", "admissionReviewVersions": ["v1"]});
        let csv = csv(json!({"webhookdefinitions": [webhook]}));
        let bundles = BTreeMap::from([("d".to_owned(), "Y2E=".to_owned())]);
        for names in [&["w"][..], &["w", "x"], &["w", "x", "y"]] {
            let apiserver = Apiserver::new(|_, _| {
                let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"});
                (200, with_name(body))
            });
            let cluster = Cluster::new();
            let csvs = Csvs::new(context("csv", &apiserver, &cluster));
            names.iter().for_each(|name| configured(&cluster, name, &json!({})));
            csvs.write_callers(&csvs.own_writer(), &csv, &bundles).await.unwrap();
            let requests = apiserver.requests();
            assert!(requests[0].starts_with("PUT ") && requests[0].contains("/w?"), "{requests:#?}");
            let deleted: Vec<bool> = requests[1..].iter().map(|it| it.starts_with("DELETE ")).collect();
            assert_eq!(deleted, vec![true; names.len() - 1], "{requests:#?}");
            assert!(
                names[1..].iter().all(|name| requests.iter().any(|it| it.contains(&format!("/{name}?"))))
            );
        }
    }

    #[tokio::test]
    async fn api_service_of_another_csv_is_left_alone() {
        let owned =
            json!({"name": "as", "group": "a.test", "version": "v1", "kind": "A", "deploymentName": "d"});
        let csv = csv(json!({"apiservicedefinitions": {"owned": [owned]}}));
        let bundles = BTreeMap::from([("d".to_owned(), "Y2E=".to_owned())]);
        for (owner, is_left) in [("b.v1", true), ("gone.v1", false)] {
            let apiserver = Apiserver::new(|_, _| (200, json!({"metadata": {"name": "v1.a.test"}})));
            let cluster = Cluster::new();
            let mut other = csv.clone();
            other.metadata.name = Some("b.v1".to_owned());
            cluster.csvs.insert("ns/b.v1".to_owned(), watched::Object::new(other));
            let labels = json!({"olm.owner": owner, "olm.owner.namespace": "ns", "olm.owner.kind": "ClusterServiceVersion"});
            let metadata = json!({"name": "v1.a.test", "uid": "s", "resourceVersion": "1", "labels": labels});
            put(&cluster.api_services, json!({ "metadata": metadata }));
            let csvs = Csvs::new(context("csv", &apiserver, &cluster));
            let written = csvs.write_callers(&csvs.own_writer(), &csv, &bundles).await;
            let error = written.err().map(|error| error.message);
            let conflict = "APIService v1.a.test is owned by ClusterServiceVersion ns/b.v1";
            assert_eq!(error.as_deref(), is_left.then_some(conflict), "{owner}");
            assert_eq!(apiserver.requests().is_empty(), is_left, "{owner}");
        }
    }

    #[tokio::test]
    async fn api_service_annotations_are_not_overwritten() {
        let owned =
            json!({"name": "as", "group": "a.test", "version": "v1", "kind": "A", "deploymentName": "d"});
        let csv = csv(json!({"apiservicedefinitions": {"owned": [owned]}}));
        let bundles = BTreeMap::from([("d".to_owned(), "Y2E=".to_owned())]);
        let apiserver = Apiserver::new(|_, _| (200, json!({"metadata": {"name": "v1.a.test"}})));
        let cluster = Cluster::new();
        let config = json!({"annotations": {"one": "of the config", "other": "of the config"}});
        let subscription = json!({
            "metadata": {"name": "s", "namespace": "ns"},
            "spec": {"name": "a", "source": "c", "sourceNamespace": "ns", "config": config},
            "status": {"currentCSV": "a.v1", "lastUpdated": "2026-01-01T00:00:00Z"},
        });
        put(&cluster.subscriptions, subscription);
        let labels = json!({"olm.owner": "a.v1", "olm.owner.namespace": "ns", "olm.owner.kind": "ClusterServiceVersion"});
        let metadata = json!({"name": "v1.a.test", "uid": "s", "resourceVersion": "1", "labels": labels,
            "annotations": {"one": "of a user"}});
        put(&cluster.api_services, json!({ "metadata": metadata }));
        let csvs = Csvs::new(context("csv", &apiserver, &cluster));
        csvs.write_callers(&csvs.own_writer(), &csv, &bundles).await.unwrap();
        let requests = apiserver.requests();
        let [written] = requests.as_slice() else { panic!("{requests:#?}") };
        let annotations = r#""annotations":{"one":"of a user","other":"of the config"}"#;
        assert!(written.starts_with("PUT ") && written.contains(annotations), "{written}");
    }

    #[tokio::test]
    async fn conversion_of_an_extension_is_left_alone() {
        use olm_api::labels::{OWNER_KIND, OWNER_KIND_CLUSTER_EXTENSION, OWNER_NAME};
        let webhook = json!({"type": "ConversionWebhook", "generateName": "c.a.test", "deploymentName": "d",
            "conversionCRDs": ["as.a.test"], "sideEffects": "None", "admissionReviewVersions": ["v1"]});
        let csv = csv(json!({"webhookdefinitions": [webhook]}));
        let bundles = BTreeMap::from([("d".to_owned(), "Y2E=".to_owned())]);
        let of_extension = json!({(OWNER_KIND): OWNER_KIND_CLUSTER_EXTENSION, (OWNER_NAME): "shop"});
        for (labels, is_left) in [(of_extension, true), (json!({}), false)] {
            let apiserver =
                Apiserver::new(|_, _| (200, with_name(json!({"apiVersion": "v1", "kind": "Any"}))));
            let cluster = Cluster::new();
            let names = json!({"kind": "A", "plural": "as"});
            let spec = json!({"group": "a.test", "scope": "Cluster", "names": names, "versions": []});
            put(&cluster.crds, json!({"metadata": {"name": "as.a.test", "labels": labels}, "spec": spec}));
            let csvs = Csvs::new(context("csv", &apiserver, &cluster));
            let written = csvs.write_callers(&csvs.own_writer(), &csv, &bundles).await;
            let conflict = "CustomResourceDefinition as.a.test belongs to ClusterExtension shop of OLM v1; uninstall one of the two";
            let error = written.err().map(|error| error.message);
            assert_eq!(error.as_deref(), is_left.then_some(conflict), "{error:?}");
            assert_eq!(apiserver.requests().is_empty(), is_left, "{:?}", apiserver.requests());
        }
    }

    fn with_name(mut object: Value) -> Value {
        object["metadata"] = json!({"name": "w"});
        object
    }

    #[tokio::test]
    async fn install_deletes_webhooks_that_are_not_defined_any_more() {
        let defined = |kind: &str| {
            json!([{"type": kind, "generateName": "w.a.test", "deploymentName": "d",
                "sideEffects": "None", "admissionReviewVersions": ["v1"]}])
        };
        for (definitions, is_deleted) in [
            (json!([]), true),
            (defined("MutatingAdmissionWebhook"), true),
            (defined("ValidatingAdmissionWebhook"), false),
        ] {
            let csv = csv(json!({"webhookdefinitions": definitions}));
            let apiserver = Apiserver::new(|_, _| success());
            let cluster = Cluster::new();
            let csvs = Csvs::new(context("csv", &apiserver, &cluster));
            configured(&cluster, "w", &json!({}));
            csvs.delete_undefined_webhooks(&csvs.own_writer(), &csv).await.unwrap();
            let deleted =
                apiserver.requests().iter().any(|it| it.starts_with("DELETE ") && it.contains("/w?"));
            assert_eq!(deleted, is_deleted, "{definitions}: {:?}", apiserver.requests());
        }
    }

    /// A CSV in this phase, and its group in the cache.
    fn member(cluster: &Cluster, phase: &str, spec: Value) -> Value {
        let group = json!({
            "metadata": {"name": "g", "namespace": "ns", "uid": "g"}, "spec": {"targetNamespaces": ["ns"]},
            "status": {"namespaces": ["ns"], "lastUpdated": "2026-01-01T00:00:00Z"},
        });
        put(&cluster.groups, group);
        let mut csv = json!(csv(spec));
        csv["spec"]["installModes"] = json!([{"type": "OwnNamespace", "supported": true}]);
        csv["apiVersion"] = json!("operators.coreos.com/v1alpha1");
        csv["kind"] = json!("ClusterServiceVersion");
        csv["metadata"]["annotations"] =
            json!({"olm.operatorGroup": "g", "olm.operatorNamespace": "ns", "olm.targetNamespaces": "ns"});
        csv["metadata"]["finalizers"] = json!([FINALIZER]);
        csv["metadata"]["generation"] = json!(1);
        csv["status"] = json!({"phase": phase, "reason": "AllRequirementsMet"});
        csv
    }

    /// The requests of a pass over a CSV. Each is answered with the CSV, but those to Deployments are refused.
    async fn pass(cluster: &Arc<Cluster>, csv: Value) -> (Csvs, Vec<String>) {
        let answer = csv.clone();
        let apiserver = Apiserver::new(move |_, uri| match uri.contains("/deployments") {
            true => failure_with(500, "InternalError", "refused"),
            false => (200, answer.clone()),
        });
        let csv: ClusterServiceVersion = serde_json::from_value(csv).unwrap();
        cluster.csvs.insert("ns/a.v1".to_owned(), watched::Object::new(csv.clone()));
        let csvs = Csvs::new(context("csv", &apiserver, cluster));
        let _requeue = csvs.reconcile(Arc::new(csv)).await;
        (csvs, apiserver.requests())
    }

    #[tokio::test]
    async fn install_begins_with_the_finalizer() {
        for (finalizers, is_added) in [(json!([]), true), (json!([FINALIZER]), false)] {
            let cluster = Cluster::new();
            let mut csv = member(&cluster, "InstallReady", json!({}));
            csv["metadata"]["finalizers"] = finalizers;
            let (csvs, requests) = pass(&cluster, csv).await;
            let adds = |it: &String| {
                it.starts_with("PATCH ") && it.contains(&format!(r#""finalizers":["{FINALIZER}"]"#))
            };
            assert_eq!(requests.iter().any(adds), is_added, "{requests:#?}");
            assert!(csvs.installs.age("ns/a.v1").is_some(), "it was installed: {requests:#?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn install_reports_that_a_change_cannot_be_applied() {
        let cluster = Cluster::new();
        let deployments = json!([{"name": "d", "spec": {"replicas": 2}}]);
        let install = json!({"strategy": "deployment", "spec": {"deployments": deployments}});
        let csv = member(&cluster, "Installing", json!({ "install": install }));
        let labels = json!({"olm.owner": "a.v1", "olm.deployment-spec-hash": "that of an earlier one"});
        let metadata =
            json!({"name": "d", "namespace": "ns", "uid": "d", "resourceVersion": "1", "labels": labels});
        put(&cluster.deployments, json!({ "metadata": metadata }));
        let (_, requests) = pass(&cluster, csv).await;
        let is_applied = |it: &&String| it.starts_with("PUT ") && it.contains("/deployments/d?");
        assert_eq!(requests.iter().filter(is_applied).count(), 1, "{requests:#?}");
        let is_reported = |it: &String| it.contains("/a.v1/status?") && it.contains("Deployment d: refused");
        assert!(requests.iter().any(is_reported), "{requests:#?}");
    }
}
