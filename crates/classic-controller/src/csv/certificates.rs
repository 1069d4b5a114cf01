//! Serving certificates of a CSV's Deployments, and the objects around them.
//!
//! The Secret has the form that the reference gives it, so that its certificates stay in use; [`olm_certificates`] decides when one is
//! issued or rotated, and carries that out. A certificate whose end is near is followed by another one with overlap: callers trust both. Once
//! it is served, the pods are replaced, because some read their certificate only when they start.
//!
//! Rule: classic-apis §9.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use kube::core::ObjectMeta;
use kube::{Resource as _, ResourceExt as _};
use olm_api::classic::{ClusterServiceVersion, Time};
use olm_certificates::plan::{CertificateState, Step, Timing, schedule};
use olm_certificates::{CertificateSpec, ExecutorError, Ownership, SecretOwner, secret};
use olm_classic::csv::chain::successors;
use olm_classic::csv::strategy::serving;
use olm_classic::csv::{Certificates, Phase};
use olm_classic::operator::label_component;
use olm_classic::operator_group::keys;
use olm_core::Object;
use serde_json::{Value, json};

use super::Csvs;
use super::installs::InstallError;
use super::observe::CA_HASH;
use super::writer::InstallWriter;
use crate::write::{cache_answer, named, object};

/// Common name of authorities.
const AUTHORITY: &str = "olm.operatorframework.io webhook authority";
/// The key of the Secret with the certificate of the authority.
const AUTHORITY_KEY: &str = "olmCAKey";
/// The wait after a certificate could not be written.
const RETRY: Duration = Duration::from_secs(60);
/// No date is waited for longer: clocks are set.
const MAX_WAIT: Duration = Duration::from_hours(12);

/// What a Deployment serves with.
pub(super) struct Served {
    /// Of the authority; a new one restarts the pods.
    pub(super) ca_hash: String,
    /// The authorities that callers trust, in base64.
    pub(super) bundle: String,
    /// Whether pods may still serve with a certificate of another authority.
    is_rotated: bool,
    recheck_at: Option<Timestamp>,
}

impl Csvs {
    /// Writes the certificate of a Deployment, and the objects around it with `writer`.
    pub(super) async fn serve(
        &self,
        writer: &InstallWriter,
        csv: &ClusterServiceVersion,
        deployment: &str,
    ) -> Result<Served, InstallError> {
        let served = self.certificate(csv, deployment).await?;
        for mut desired in serving::objects(csv, deployment, &served.ca_hash) {
            let live = self.served_object(&desired);
            if live.is_none() {
                label_component(&mut desired, csv.labels().keys().map(String::as_str), Some(csv));
            }
            if desired.kind() != "Secret" {
                writer.ensure(&desired, live.as_ref()).await?;
                continue;
            }
            let written = self.own_writer().ensure(&desired, live.as_ref()).await?;
            cache_answer(&self.context.cluster.secrets, live.is_none(), written);
        }
        Ok(served)
    }

    /// Issues or rotates the certificate of a Deployment, if it is due.
    async fn certificate(
        &self,
        csv: &ClusterServiceVersion,
        deployment: &str,
    ) -> Result<Served, ExecutorError> {
        let spec = spec(csv, deployment);
        let cached = self.context.cluster.secrets.find(&spec.title());
        let trusted = self.trusted(csv, deployment);
        let trusted: Vec<&str> = trusted.iter().map(String::as_str).collect();
        let owner = Owner { csv };
        let settled = cached.and_then(|cached| self.executor.settled(&spec, &owner, &cached, &trusted));
        let (state, recheck_at) = match settled {
            Some(settled) => settled,
            None => self.executor.keep(&spec, &owner, &trusted).await?,
        };
        let bundle = json!(ByteString(state.trust().into_bytes()));
        Ok(Served {
            ca_hash: serving::ca_hash(&state.current.authority),
            bundle: bundle.as_str().unwrap_or_default().to_owned(),
            is_rotated: !state.previous.is_empty(),
            recheck_at,
        })
    }

    /// The Deployments that serve for an installed CSV. One that is being replaced serves with those that it has until a newer version has
    /// some: that may wait for a long time to be installed.
    fn serving_deployments<'a>(&self, csv: &'a ClusterServiceVersion) -> BTreeSet<&'a str> {
        let mut deployments = serving::deployments(csv);
        match Phase::read(csv) {
            Phase::Installing | Phase::Succeeded => {}
            Phase::Replacing if !deployments.is_empty() => {
                let here = self.context.cluster.own_csvs(&csv.namespace().unwrap_or_default());
                let name = csv.name_any();
                let is_newer = successors(&name, &here).any(|newer| !self.deployments_of(newer).is_empty());
                let own = self.deployments_of(csv);
                deployments.retain(|name| !is_newer && own.iter().any(|own| own.name() == *name));
            }
            Phase::New
            | Phase::Pending
            | Phase::InstallReady
            | Phase::Failed
            | Phase::Replacing
            | Phase::Deleting
            | Phase::Unknown => deployments.clear(),
        }
        deployments
    }

    /// Keeps the certificates of an installed CSV and the trust of their callers. Returns when to check again.
    pub(super) async fn keep_certificates(&self, csv: &ClusterServiceVersion) -> Option<Duration> {
        let deployments = self.serving_deployments(csv);
        if deployments.is_empty() {
            return None;
        }
        let (mut bundles, mut rotated, mut wait) = (BTreeMap::new(), Vec::new(), None);
        for deployment in deployments {
            match self.certificate(csv, deployment).await {
                Ok(served) => {
                    if served.is_rotated {
                        rotated.push((deployment, served.ca_hash));
                    }
                    bundles.insert(deployment.to_owned(), served.bundle);
                    let until = served.recheck_at.map(until);
                    wait = [wait, until].into_iter().flatten().min();
                }
                Err(error) => {
                    tracing::warn!(error = %error, deployment, "certificate cannot be written");
                    wait = Some(wait.map_or(RETRY, |wait: Duration| wait.min(RETRY)));
                }
            }
        }
        if let Err(error) = self.publish(csv, &bundles, &rotated).await {
            tracing::warn!(error = error.message, "callers of a certificate or its Secret cannot be written");
            wait = Some(wait.map_or(RETRY, |wait| wait.min(RETRY)));
        }
        wait
    }

    /// Writes what callers trust, then what replaces the pods.
    async fn publish(
        &self,
        csv: &ClusterServiceVersion,
        bundles: &BTreeMap<String, String>,
        rotated: &[(&str, String)],
    ) -> Result<(), InstallError> {
        let writer = self.group_writer(csv)?;
        self.write_callers(&writer, csv, bundles).await?;
        self.restart_pods(csv, rotated).await?;
        if Phase::read(csv) == Phase::Replacing {
            // in the other phases the phase machine applies what is marked
            self.write_rotated(&writer, csv, rotated).await?;
        }
        Ok(())
    }

    /// Marks the Secrets of rotated certificates with the hash of the authority. The hash is part of the Deployments, which so are written
    /// again. A certificate that was never rotated here keeps the mark that it came with.
    async fn restart_pods(
        &self,
        csv: &ClusterServiceVersion,
        rotated: &[(&str, String)],
    ) -> Result<(), InstallError> {
        let namespace = csv.namespace().unwrap_or_default();
        for (deployment, ca_hash) in rotated {
            let secret = named("v1", "Secret", Some(&namespace), &serving::secret_name(deployment));
            let key = format!("{namespace}/{}", secret.name());
            let cached = self.context.cluster.secrets.find(&key);
            if cached.is_some_and(|it| it.annotations().get(CA_HASH) == Some(ca_hash)) {
                continue;
            }
            let patch = json!({ "metadata": { "annotations": { CA_HASH: ca_hash } } });
            let writer = self.own_writer();
            let written = writer.checked(&secret, writer.writer.patch(&secret, &patch).await)?;
            cache_answer(&self.context.cluster.secrets, false, Some(written));
        }
        Ok(())
    }

    /// The times of the certificates that the Secrets hold for pods.
    pub(super) fn certificates_in_use(&self, csv: &ClusterServiceVersion) -> Option<Certificates> {
        let schedules = serving::deployments(csv).into_iter().filter_map(|deployment| {
            let spec = spec(csv, deployment);
            let stored = self.context.cluster.secrets.find(&spec.title())?;
            schedule(&secret::read(&stored, spec.authority_key).current, &spec.timing)
        });
        let times = schedules.map(|it| (it.issued, it.rotate_at));
        let (updated, rotate_at) = times.reduce(|all, it| (all.0.max(it.0), all.1.min(it.1)))?;
        Some(Certificates { updated: Time(updated), rotate_at: Time(rotate_at) })
    }

    /// What the callers of a Deployment trust, as PEM.
    fn trusted(&self, csv: &ClusterServiceVersion, deployment: &str) -> Vec<String> {
        let webhooks = self.webhooks_of(csv);
        let clients = webhooks.iter().flat_map(|it| it.0.get("webhooks")?.as_array().cloned()).flatten();
        let mut clients: Vec<Value> = clients.map(|webhook| webhook["clientConfig"].clone()).collect();
        let converted = csv.spec.webhook_definitions.iter().flat_map(|webhook| &webhook.conversion_crds);
        for crd in converted.filter_map(|name| self.context.cluster.crds.find(name)) {
            clients.push(json!(crd.spec.conversion)["webhook"]["clientConfig"].clone());
        }
        let owned = csv.spec.api_service_definitions.iter().flat_map(|services| &services.owned);
        for service in owned {
            let name = format!("{}.{}", service.version, service.group);
            if let Some(service) = self.context.cluster.api_services.find(&name) {
                clients.push(json!(service.spec));
            }
        }
        let backend = serving::service_name(deployment);
        let here = clients.iter().filter(|client| client["service"]["name"] == backend.as_str());
        let bundles =
            here.filter_map(|client| serde_json::from_value::<ByteString>(client["caBundle"].clone()).ok());
        bundles.map(|bundle| String::from_utf8_lossy(&bundle.0).into_owned()).collect()
    }

    /// An object around a Deployment, as the caches have it.
    fn served_object(&self, desired: &Object) -> Option<Object> {
        let cluster = &self.context.cluster;
        let name = desired.name();
        let key =
            desired.namespace().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"));
        match desired.kind() {
            "Service" => cluster.services.find(&key).map(|it| object(&*it)),
            "Secret" => cluster.secrets.find(&key).map(|it| object(&*it)),
            "Role" => cluster.roles.find(&key).map(|it| object(&*it)),
            "RoleBinding" => cluster.role_bindings.find(&key).map(|it| object(&*it)),
            "ClusterRoleBinding" => cluster.cluster_role_bindings.find(&key).map(|it| object(&*it)),
            _ => None,
        }
    }
}

fn spec(csv: &ClusterServiceVersion, deployment: &str) -> CertificateSpec {
    let namespace = csv.namespace().unwrap_or_default();
    let service = serving::service_name(deployment);
    let names = ["", ".svc", ".svc.cluster.local"].map(|suffix| format!("{service}.{namespace}{suffix}"));
    CertificateSpec {
        name: serving::secret_name(deployment),
        namespace,
        names: names.to_vec(),
        authority: AUTHORITY,
        authority_key: AUTHORITY_KEY,
        timing: Timing::default(),
    }
}

fn until(at: Timestamp) -> Duration {
    let wait = at.duration_since(Timestamp::now()).as_millis();
    Duration::from_millis(u64::try_from(wait).unwrap_or_default()).clamp(Duration::from_millis(100), MAX_WAIT)
}

/// A CSV as the owner of the Secret.
struct Owner<'a> {
    csv: &'a ClusterServiceVersion,
}

impl SecretOwner for Owner<'_> {
    /// A Secret of another CSV of the namespace is taken over: a newer version of the operator serves with the same certificate.
    fn ownership(&self, secret: &Secret) -> Ownership {
        let own = self.csv.uid().unwrap_or_default();
        let owners = secret.owner_references();
        let is_managed = secret.labels().get(keys::MANAGED).is_some_and(|label| label == "true");
        let of_csvs = owners.iter().any(|owner| owner.kind == "ClusterServiceVersion");
        let is_empty = secret.data.as_ref().is_none_or(BTreeMap::is_empty);
        if !(of_csvs || is_managed || is_empty) {
            return Ownership::Foreign(format!(
                "Secret {}/{} is not from OLM; delete or rename it",
                secret.namespace().unwrap_or_default(),
                secret.name_any()
            ));
        }
        match (secret.immutable == Some(true), is_managed && owners.iter().any(|owner| owner.uid == own)) {
            (true, _) => Ownership::Immutable,
            (false, true) => Ownership::Own,
            (false, false) => Ownership::Unmarked,
        }
    }

    fn marks(&self, present: Option<&Secret>) -> ObjectMeta {
        let mut owners = vec![OwnerReference {
            controller: Some(false),
            block_owner_deletion: Some(false),
            ..self.csv.owner_ref(&()).unwrap_or_default()
        }];
        let others = present.map(|secret| secret.owner_references().to_vec()).unwrap_or_default();
        owners.extend(others.into_iter().filter(|owner| Some(&owner.uid) != self.csv.metadata.uid.as_ref()));
        ObjectMeta {
            labels: Some(BTreeMap::from([(keys::MANAGED.to_owned(), "true".to_owned())])),
            owner_references: Some(owners),
            ..ObjectMeta::default()
        }
    }

    async fn written(&self, spec: &CertificateSpec, step: &Step, _: &CertificateState) {
        tracing::info!(secret = spec.title(), ?step, "serving certificate written");
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::SignedDuration;
    use olm_certificates::material::{Generation, Keys, issue};
    use olm_runtime::watched;

    use super::*;
    use crate::cluster::Cluster;
    use crate::testing::{self, Apiserver};

    fn csv() -> ClusterServiceVersion {
        serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "demo.v1", "uid": "u"},
            "spec": {
                "displayName": "demo",
                "install": {"strategy": "deployment", "spec": {"deployments": [{"name": "demo", "spec": {}}]}},
                "webhookdefinitions": [{"type": "ValidatingAdmissionWebhook", "generateName": "v.demo.test",
                    "deploymentName": "demo", "sideEffects": "None", "admissionReviewVersions": ["v1"]}],
            },
            "status": {"phase": "Succeeded"},
        }))
        .unwrap()
    }

    fn generation() -> Generation {
        let names = spec(&csv(), "demo").names;
        issue(
            AUTHORITY,
            &names,
            Timestamp::now(),
            SignedDuration::from_hours(9000),
            Keys::generate().unwrap(),
        )
        .unwrap()
    }

    /// Puts the group of the CSV, with all namespaces as targets, into the cache.
    fn group(cluster: &Cluster, account: &str) {
        let (metadata, spec) =
            (json!({"namespace": "ns", "name": "g", "uid": "g"}), json!({"serviceAccountName": account}));
        let status = json!({"namespaces": [""], "lastUpdated": "2026-01-01T00:00:00Z"});
        testing::put(&cluster.groups, json!({"metadata": metadata, "spec": spec, "status": status}));
    }

    #[tokio::test]
    async fn install_writes_as_the_account_all_but_certificates() {
        const RESOURCES: [&str; 9] = [
            "/clusterrolebindings",
            "/kube-system/rolebindings",
            "/ns/rolebindings",
            "/roles",
            "/services",
            "/deployments",
            "/validatingwebhookconfigurations",
            "/customresourcedefinitions/things.demo.test",
            "/apiservices",
        ];
        let mut served = json!(csv());
        let webhook = json!({"type": "ConversionWebhook", "generateName": "c.demo.test", "deploymentName": "demo",
            "conversionCRDs": ["things.demo.test"], "sideEffects": "None", "admissionReviewVersions": ["v1"]});
        served["spec"]["webhookdefinitions"].as_array_mut().unwrap().push(webhook);
        served["spec"]["installModes"] = json!([{"type": "AllNamespaces", "supported": true}]);
        served["spec"]["customresourcedefinitions"] =
            json!({"owned": [{"name": "things.demo.test", "version": "v1", "kind": "Thing"}]});
        served["spec"]["apiservicedefinitions"] = json!({"owned": [{"name": "others", "group": "other.demo.test",
            "version": "v1", "kind": "Other", "deploymentName": "demo"}]});
        let csv: ClusterServiceVersion = serde_json::from_value(served).unwrap();
        let state = CertificateState { current: generation(), next: None, previous: String::new() };
        for (account, user) in [("installer", "system:serviceaccount:ns:installer"), ("", "")] {
            let apiserver =
                Apiserver::new(|_, _| (200, json!({"metadata": {"namespace": "ns", "name": "any"}})));
            let cluster = Cluster::new();
            group(&cluster, account);
            store(&cluster, &csv, &state, "any");
            let names = json!({"kind": "Thing", "plural": "things"});
            let spec = json!({"group": "demo.test", "scope": "Cluster", "names": names, "versions": []});
            testing::put(&cluster.crds, json!({"metadata": {"name": "things.demo.test"}, "spec": spec}));
            let csvs = Csvs::new(testing::context("csv", &apiserver, &cluster));
            csvs.install(&csv).await.unwrap();
            let requests = apiserver.requests().into_iter().zip(apiserver.users());
            let (certificates, others): (Vec<_>, Vec<_>) =
                requests.partition(|(it, _)| it.contains("/secrets/"));
            assert!(certificates.iter().all(|(_, by)| by.is_empty()), "{certificates:#?}");
            assert!(!certificates.is_empty() && others.iter().all(|(_, by)| by == user), "{others:#?}");
            for resource in RESOURCES {
                assert!(others.iter().any(|(it, _)| it.contains(resource)), "{resource}: {others:#?}");
            }
            assert_eq!(others.len(), RESOURCES.len(), "{others:#?}");
        }
    }

    /// Puts the Secret with this mark into the cache.
    fn store(cluster: &Cluster, csv: &ClusterServiceVersion, state: &CertificateState, mark: &str) {
        let mut stored = secret::created(&spec(csv, "demo"), Owner { csv }.marks(None), state);
        stored.metadata.annotations = Some([(CA_HASH.to_owned(), mark.to_owned())].into());
        cluster.secrets.insert("ns/demo-service-cert".to_owned(), watched::Object::new(stored));
    }

    #[tokio::test]
    async fn certificate_times_are_those_of_the_secret() {
        let apiserver = Apiserver::new(|_, _| (500, json!({})));
        let (csv, cluster) = (csv(), Cluster::new());
        let csvs = Csvs::new(testing::context("csv", &apiserver, &cluster));
        assert_eq!(csvs.certificates_in_use(&csv), None);
        let state = CertificateState { current: generation(), next: None, previous: String::new() };
        store(&cluster, &csv, &state, "any");
        let used = csvs.certificates_in_use(&csv).unwrap();
        let age = Timestamp::now().duration_since(used.updated.0);
        assert!(age >= SignedDuration::ZERO && age < SignedDuration::from_mins(1), "{used:?}");
        let left = used.rotate_at.0.duration_since(used.updated.0);
        assert_eq!(left, SignedDuration::from_hours(9000 - 30 * 24), "30 days before the end");
    }

    /// Requests of a pass over certificates, when the Secret has this mark.
    async fn requests(state: &CertificateState, mark: &str) -> Vec<String> {
        let apiserver = Apiserver::new(|_, _| (200, json!({"metadata": {"namespace": "ns", "name": "any"}})));
        let (csv, cluster) = (csv(), Cluster::new());
        group(&cluster, "");
        store(&cluster, &csv, state, mark);
        let csvs = Csvs::new(testing::context("csv", &apiserver, &cluster));
        csvs.keep_certificates(&csv).await;
        apiserver.requests()
    }

    /// Puts a Deployment of this CSV into the cache.
    fn deploy(cluster: &Cluster, name: &str, owner: &str) {
        let labels = json!({"olm.owner": owner});
        let metadata =
            json!({"namespace": "ns", "name": name, "uid": name, "resourceVersion": "1", "labels": labels});
        let deployment = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        cluster.deployments.insert(format!("ns/{name}"), watched::Object::new(deployment));
    }

    #[tokio::test]
    async fn certificate_of_a_replaced_csv_is_kept_while_it_serves() {
        let (old, new) = (generation(), generation());
        let mark = serving::ca_hash(&new.authority);
        let state = CertificateState { current: new, next: None, previous: old.authority };
        let (webhook, deployment) = ("/validatingwebhookconfigurations?", "/deployments/demo?");
        for (phase, deployments, written) in [
            ("Succeeded", &[("demo", "demo.v1")][..], &[webhook][..]),
            ("Pending", &[("demo", "demo.v1")], &[]),
            ("Replacing", &[("demo", "demo.v1")], &[webhook, deployment]),
            ("Replacing", &[], &[]),
            ("Replacing", &[("demo", "demo.v2")], &[]),
            ("Replacing", &[("demo", "demo.v1"), ("another", "demo.v2")], &[]),
        ] {
            let apiserver =
                Apiserver::new(|_, _| (200, json!({"metadata": {"namespace": "ns", "name": "any"}})));
            let (mut csv, cluster) = (csv(), Cluster::new());
            csv.status = serde_json::from_value(json!({ "phase": phase })).unwrap();
            let mut newer = csv.clone();
            newer.metadata.name = Some("demo.v2".to_owned());
            newer.spec.replaces = "demo.v1".to_owned();
            for csv in [&csv, &newer] {
                cluster.csvs.insert(crate::csv::key(csv), watched::Object::new(csv.clone()));
            }
            group(&cluster, "");
            store(&cluster, &csv, &state, &mark);
            deployments.iter().for_each(|(name, owner)| deploy(&cluster, name, owner));
            let csvs = Csvs::new(testing::context("csv", &apiserver, &cluster));
            csvs.keep_certificates(&csv).await;
            let requests = apiserver.requests();
            assert_eq!(requests.len(), written.len(), "{phase} {deployments:?}: {requests:#?}");
            let are_written = requests.iter().zip(written).all(|(request, part)| request.contains(part));
            assert!(are_written, "{phase} {deployments:?}: {requests:#?}");
        }
    }

    #[tokio::test]
    async fn certificate_rotation_replaces_pods_once_callers_know_it() {
        let (old, new) = (generation(), generation());
        let [old_hash, new_hash] = [&old, &new].map(|it| serving::ca_hash(&it.authority));
        let state = |previous: &str| CertificateState {
            current: new.clone(),
            next: None,
            previous: previous.to_owned(),
        };
        let marked = format!(r#"{{"metadata":{{"annotations":{{"olmcahash":"{new_hash}"}}}}}}"#);
        for (case, state, mark, is_marked) in [
            ("rotated", state(&old.authority), old_hash.as_str(), true),
            ("marked already", state(&old.authority), new_hash.as_str(), false),
            ("of another issuer", state(""), "another hash", false),
        ] {
            let requests = requests(&state, mark).await;
            let is_caller = |line: &String| line.contains("validatingwebhookconfigurations");
            let is_mark = |line: &String| line.starts_with("PATCH") && line.contains(&marked);
            let caller = requests.iter().position(is_caller);
            let mark = requests.iter().position(is_mark);
            assert!(caller.is_some() && mark.is_some() == is_marked, "{case}: {requests:#?}");
            assert!(
                mark.is_none_or(|mark| caller.is_some_and(|caller| caller < mark)),
                "{case}: {requests:#?}"
            );
            assert_eq!(requests.len(), 1 + usize::from(is_marked), "{case}: {requests:#?}");
        }
    }
}
