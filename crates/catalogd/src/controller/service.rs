//! The Service that makes a catalog an address of the gRPC registry, for catalogs that ask for it (decision 51).
//!
//! Its name is the catalog's, which the registry finds in the authority of a request. Content decides nothing here: a Service is made
//! once the catalog is served, and stays until the annotation or the catalog goes.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Resource as _, ResourceExt as _};
use olm_api::annotations::GRPC_SERVICE;
use olm_api::cluster_catalog::ClusterCatalog;
use olm_runtime::error_text;

use super::reconcile::{Context, FIELD_MANAGER};

/// The port of the Services, that of the registries of OLM Classic.
const PORT: i32 = 50051;
/// Longest name of a Service.
const MAX_NAME: usize = 63;
/// The pods of catalogd, as the manifests label them.
const SELECTOR: (&str, &str) = ("control-plane", "catalogd-controller-manager");
const TIMEOUT: Duration = Duration::from_secs(30);

/// Where Services are made, and what they lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceSettings {
    /// The namespace of catalogd.
    pub namespace: String,
    /// The port of the registry in its pods.
    pub port: u16,
}

/// The next step for the Service of one catalog.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    Nothing,
    /// None was there; one that another program creates meanwhile stays.
    Create(Box<Service>),
    /// In the place of the one that was read, and of no other.
    Apply(Box<Service>),
    /// The Service of this UID.
    Delete(String),
    /// The name of the catalog cannot be that of a Service.
    InvalidName,
    /// A Service of this name belongs to another owner.
    Taken,
}

fn step(
    catalog: &ClusterCatalog,
    is_served: bool,
    live: Option<&Service>,
    settings: &ServiceSettings,
) -> Step {
    if catalog.metadata.deletion_timestamp.is_some() {
        // the owner reference deletes it
        return Step::Nothing;
    }
    let is_ours = |live: &Service| {
        live.owner_references().iter().any(|owner| Some(&owner.uid) == catalog.metadata.uid.as_ref())
    };
    if catalog.annotations().get(GRPC_SERVICE).map(String::as_str) != Some("true") {
        let ours = live.filter(|live| is_ours(live) && live.metadata.deletion_timestamp.is_none());
        return ours.and_then(|live| live.uid()).map_or(Step::Nothing, Step::Delete);
    }
    if !is_service_name(&catalog.name_any()) {
        return Step::InvalidName;
    }
    let desired = desired(catalog, settings);
    match live {
        Some(live) if !is_ours(live) => Step::Taken,
        Some(live) if same(live, &desired) => Step::Nothing,
        Some(live) => {
            let mut desired = desired;
            desired.metadata.resource_version = live.resource_version();
            Step::Apply(Box::new(desired))
        }
        None if is_served => Step::Create(Box::new(desired)),
        None => Step::Nothing,
    }
}

/// A DNS label that begins with a letter, as every version of the apiserver accepts it.
fn is_service_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && !name.contains('.')
        && name.starts_with(|first: char| first.is_ascii_lowercase())
}

fn desired(catalog: &ClusterCatalog, settings: &ServiceSettings) -> Service {
    let labels = [
        ("app.kubernetes.io/part-of", "olm"),
        ("app.kubernetes.io/name", "catalogd"),
        (GRPC_SERVICE, "true"),
    ];
    let texts = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
    };
    let port = ServicePort {
        name: Some("grpc".to_owned()),
        port: PORT,
        target_port: Some(IntOrString::Int(settings.port.into())),
        protocol: Some("TCP".to_owned()),
        app_protocol: Some("kubernetes.io/h2c".to_owned()),
        ..ServicePort::default()
    };
    Service {
        metadata: ObjectMeta {
            name: Some(catalog.name_any()),
            namespace: Some(settings.namespace.clone()),
            labels: Some(texts(&labels)),
            // no blockOwnerDeletion: it needs the right to change the catalog's finalizers
            owner_references: catalog.owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            ports: Some(vec![port]),
            selector: Some(texts(&[SELECTOR])),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// Whether the Service has what is desired of it; the apiserver adds to it.
fn same(live: &Service, desired: &Service) -> bool {
    let spec = |service: &Service| {
        let spec = service.spec.clone().unwrap_or_default();
        let ports = spec.ports.unwrap_or_default().into_iter();
        let ports: Vec<_> = ports
            .map(|port| (port.name, port.port, port.target_port, port.protocol, port.app_protocol))
            .collect();
        (spec.selector, ports)
    };
    spec(live) == spec(desired) && live.owner_references() == desired.owner_references()
}

impl Context {
    /// Makes, corrects or deletes the Service of a catalog. A failure is logged; the next pass over the catalog tries again.
    pub(super) async fn keep_service(&self, catalog: &ClusterCatalog) {
        let Some(settings) = self.services.as_ref().filter(|_| *self.leader.borrow()) else { return };
        let is_served = self.store.get(&catalog.name_any()).is_some();
        let keeping = keep(&self.client, catalog, is_served, settings);
        let error = match tokio::time::timeout(TIMEOUT, keeping).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error_text::chain(&error),
            Err(_) => "no answer in time".to_owned(),
        };
        tracing::warn!(catalog = catalog.name_any(), error, "cannot write the Service of a catalog");
    }
}

async fn keep(
    client: &Client,
    catalog: &ClusterCatalog,
    is_served: bool,
    settings: &ServiceSettings,
) -> kube::Result<()> {
    let api: Api<Service> = Api::namespaced(client.clone(), &settings.namespace);
    let name = catalog.name_any();
    let live = api.get_opt(&name).await?;
    match step(catalog, is_served, live.as_ref(), settings) {
        Step::Nothing => {}
        Step::Create(service) => {
            let params =
                PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
            api.create(&params, &service).await?;
            tracing::info!(catalog = name, "created the Service of a catalog");
        }
        Step::Apply(service) => {
            let force = PatchParams::apply(FIELD_MANAGER).force();
            api.patch(&name, &force, &Patch::Apply(&service)).await?;
            tracing::info!(catalog = name, "wrote the Service of a catalog");
        }
        Step::Delete(uid) => {
            let preconditions = Preconditions { uid: Some(uid), resource_version: None };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            match api.delete(&name, &params).await {
                Ok(_) => tracing::info!(catalog = name, "deleted the Service of a catalog"),
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        Step::InvalidName => tracing::warn!(
            catalog = name,
            "a Service cannot have the name of this catalog: it is no DNS label that begins with a letter"
        ),
        Step::Taken => {
            tracing::warn!(catalog = name, "a Service of this name exists and is not the catalog's")
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use olm_runtime::testing::{self, failure};
    use serde_json::json;

    use super::*;

    fn catalog(name: &str, annotation: Option<&str>) -> ClusterCatalog {
        let annotations = annotation.map(|value| json!({ GRPC_SERVICE: value }));
        serde_json::from_value(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
            "metadata": {"name": name, "uid": "u", "annotations": annotations},
            "spec": {"source": {"type": "Image", "image": {"ref": "x"}}},
        }))
        .unwrap()
    }

    fn settings() -> ServiceSettings {
        ServiceSettings { namespace: "olmv1-system".to_owned(), port: 50051 }
    }

    #[test]
    fn service_is_made_for_catalogs_that_ask() {
        let settings = settings();
        let asks = catalog("cat", Some("true"));
        let expected = desired(&asks, &settings);
        let create = Step::Create(Box::new(expected.clone()));
        let mut again = expected.clone();
        again.metadata.resource_version = Some("7".to_owned());
        let mut ours = again.clone();
        ours.metadata.uid = Some("s".to_owned());
        let mut changed = ours.clone();
        changed.spec.as_mut().unwrap().selector = None;
        let foreign = Service::default();
        let mut deleted = asks.clone();
        deleted.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        for (case, catalog, is_served, live, want) in [
            ("is not served yet", &asks, false, None, Step::Nothing),
            ("is served", &asks, true, None, create),
            ("is there", &asks, true, Some(&ours), Step::Nothing),
            ("was changed", &asks, false, Some(&changed), Step::Apply(Box::new(again))),
            ("belongs to another", &asks, true, Some(&foreign), Step::Taken),
            (
                "is no longer asked for",
                &catalog("cat", Some("false")),
                true,
                Some(&ours),
                Step::Delete("s".to_owned()),
            ),
            ("was never asked for", &catalog("cat", None), true, Some(&foreign), Step::Nothing),
            ("goes with its catalog", &deleted, true, Some(&ours), Step::Nothing),
            ("has dots", &catalog("a.b", Some("true")), true, None, Step::InvalidName),
            ("begins with a digit", &catalog("4cat", Some("true")), true, None, Step::InvalidName),
            ("is too long", &catalog(&"a".repeat(64), Some("true")), true, None, Step::InvalidName),
        ] {
            assert_eq!(step(catalog, is_served, live, &settings), want, "{case}");
        }
    }

    /// What is sent for a catalog that asks for a Service, in order, if the apiserver answers so.
    async fn requests(answers: Vec<(u16, serde_json::Value)>) -> (kube::Result<()>, Vec<String>) {
        let (answers, sent) = (Mutex::new(VecDeque::from(answers)), Arc::new(Mutex::new(Vec::new())));
        let log = sent.clone();
        let client = testing::client(move |request| {
            log.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
            std::future::ready(answers.lock().unwrap().pop_front().unwrap())
        });
        let kept = keep(&client, &catalog("cat", Some("true")), true, &settings()).await;
        let sent = sent.lock().unwrap().clone();
        (kept, sent)
    }

    #[tokio::test]
    async fn service_that_appears_meanwhile_stays() {
        let services = "/api/v1/namespaces/olmv1-system/services";
        let (kept, sent) = requests(vec![failure(404, "NotFound"), failure(409, "AlreadyExists")]).await;
        assert!(matches!(kept, Err(kube::Error::Api(status)) if status.code == 409));
        assert_eq!(sent, [format!("GET {services}/cat"), format!("POST {services}")]);
        // one that the catalog owns is only written as it was read
        let mut changed = desired(&catalog("cat", Some("true")), &settings());
        changed.spec.as_mut().unwrap().selector = None;
        changed.metadata.resource_version = Some("7".to_owned());
        let live = (200, serde_json::to_value(&changed).unwrap());
        let (kept, sent) = requests(vec![live, failure(409, "Conflict")]).await;
        assert!(matches!(kept, Err(kube::Error::Api(status)) if status.code == 409));
        assert_eq!(sent, [format!("GET {services}/cat"), format!("PATCH {services}/cat")]);
    }

    #[test]
    fn service_leads_to_the_pods_of_the_manifests() {
        let found = serde_json::to_value(desired(&catalog("cat", Some("true")), &settings())).unwrap();
        assert_eq!(found["metadata"]["ownerReferences"][0]["kind"], "ClusterCatalog");
        let port = json!({"appProtocol": "kubernetes.io/h2c", "name": "grpc", "port": 50051, "protocol": "TCP", "targetPort": 50051});
        assert_eq!(found["spec"]["ports"], json!([port]));
        let deployment = include_str!("../../../../manifests/base/catalogd/deployment.yaml");
        let (key, value) = SELECTOR;
        assert_eq!(found["spec"]["selector"], json!({key: value}));
        assert!(deployment.contains(&format!("        {key}: {value}\n")));
    }
}
