//! The status of a catalog, derived from its spec and from what is served.
//!
//! Rule: classic-apis §2.2 to §2.4, §2.7.

use olm_api::classic::catalog_source::{
    ConfigMapReference, ConnectionState as StatusConnection, GrpcPodConfig, RegistryService,
};
use olm_api::classic::{CatalogSource, CatalogSourceStatus};
use olm_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use olm_api::k8s_openapi::jiff::Timestamp;
use olm_core::KubernetesVersion;

use super::connection::ConnectionState;
use super::poll::Polling;
use super::template::template;
use super::{Backing, validate};

pub const REGISTRY_PORT: &str = "50051";

/// Without a reason: the catalog is as it should be.
const POD_NOTE: &str = "spec.grpcPodConfig has no effect: the image is read without a registry pod";

/// The cluster as one catalog sees it.
#[derive(Debug, Clone, Copy, Default)]
pub struct SourceObserved<'a> {
    /// The version of the cluster, once it is known.
    pub version: Option<KubernetesVersion>,
    /// The ConfigMap of the spec, if it exists; while its catalog is connecting, that is not known.
    pub config_map: Option<&'a ConfigMapReference>,
    /// The content is served, or is about to be: for an image or a ConfigMap, what serves it is there and as it should be.
    pub is_served: bool,
    /// Why it cannot be read, or not read again.
    pub problem: Option<&'a str>,
    /// `None`: not connected yet.
    pub connection: Option<ConnectionState>,
}

/// The name of the Service of a catalog: that of the catalog, with dashes for dots.
pub fn service_name(source: &str) -> String {
    source.replace('.', "-")
}

/// Whether Subscriptions may use a catalog. That of an address always is: whether its server answers shows in resolution.
pub fn is_healthy(source: &CatalogSource, is_served: bool) -> bool {
    match validate(&source.spec) {
        Ok(Backing::Address(_)) => true,
        Ok(Backing::Image(_) | Backing::ConfigMap(_)) => is_served,
        Err(_) => false,
    }
}

/// What a catalog waits for, and what to do; `None` if its status has nothing of the kind.
///
/// It is the note of the event [`WAITING_EVENT`](crate::install_plan::WAITING_EVENT).
pub fn catalog_wait(source: &CatalogSource) -> Option<String> {
    let status = source.status.as_ref()?;
    let connection = status.connection_state.as_ref();
    let is_down =
        connection.is_some_and(|it| it.last_observed_state == ConnectionState::TransientFailure.as_str());
    if status.message.is_empty() || (status.reason.is_empty() && !is_down) {
        return None;
    }
    let fix = validate(&source.spec).err().map(|error| format!("; {}", error.fix()));
    Some(format!("{}{}", status.message, fix.unwrap_or_default()))
}

/// The status of a catalog. Times change only with what they belong to, so that nothing is written when nothing changed.
pub fn sync(source: &CatalogSource, observed: SourceObserved<'_>, now: Timestamp) -> CatalogSourceStatus {
    let known = source.status.clone().unwrap_or_default();
    let conditions = template(source, observed.version, now).conditions;
    let error = |reason: &str, message: String| CatalogSourceStatus {
        reason: reason.to_owned(),
        message,
        conditions: conditions.clone(),
        unknown: known.unknown.clone(),
        ..CatalogSourceStatus::default()
    };
    let backing = match validate(&source.spec) {
        Ok(backing) => backing,
        // an image that the template gives counts from the next pass on
        Err(problem) => return error("SpecInvalidError", problem.to_string()),
    };
    let config_map_reference = match (backing, observed.config_map) {
        (Backing::ConfigMap(name), None) => {
            let namespace = source.metadata.namespace.as_deref().unwrap_or_default();
            let is_unknown = observed.connection == Some(ConnectionState::Connecting);
            let why = match observed.problem {
                Some(problem) if is_unknown => problem.to_owned(),
                Some(_) | None => format!("configmaps {namespace}/{name} not found"),
            };
            return error("ConfigMapError", format!("failed to get catalog config map {name}: {why}"));
        }
        (Backing::ConfigMap(_), Some(observed)) => {
            Some(config_map(known.config_map_reference, observed, now))
        }
        (Backing::Image(_) | Backing::Address(_), _) => None,
    };
    let interval = Polling::from_source(source).and_then(|polling| polling.error);
    // a registry that does not answer shows in the state of the connection; the reference has no reason besides
    let is_down = observed.connection == Some(ConnectionState::TransientFailure)
        && !matches!(backing, Backing::ConfigMap(_));
    let (reason, message) = match (observed.problem, interval) {
        (Some(problem), None) if is_down => ("", problem.to_owned()),
        (Some(problem), Some(error)) if is_down => ("InvalidIntervalError", format!("{error}; {problem}")),
        (Some(problem), _) => (error_reason(backing), problem.to_owned()),
        (None, Some(error)) => ("InvalidIntervalError", error.to_string()),
        (None, None) => ("", pod_note(source, backing).to_owned()),
    };
    CatalogSourceStatus {
        message,
        reason: reason.to_owned(),
        latest_image_registry_poll: known.latest_image_registry_poll,
        config_map_reference,
        registry_service: observed.is_served.then(|| service(source, backing, known.registry_service, now)),
        connection_state: (observed.connection)
            .map(|state| connection(source, backing, state, known.connection_state, now)),
        conditions,
        unknown: known.unknown,
    }
}

fn error_reason(backing: Backing<'_>) -> &'static str {
    match backing {
        Backing::ConfigMap(_) => "ConfigMapError",
        Backing::Image(_) | Backing::Address(_) => "RegistryServerError",
    }
}

/// What the message reports of an image that has settings for a pod, if there is nothing else to report.
fn pod_note(source: &CatalogSource, backing: Backing<'_>) -> &'static str {
    let has_settings = source.spec.grpc_pod_config.as_ref().is_some_and(|it| *it != GrpcPodConfig::default());
    match backing {
        Backing::Image(_) if has_settings => POD_NOTE,
        Backing::Image(_) | Backing::Address(_) | Backing::ConfigMap(_) => "",
    }
}

fn config_map(
    known: Option<ConfigMapReference>,
    observed: &ConfigMapReference,
    now: Timestamp,
) -> ConfigMapReference {
    match known {
        Some(known) if known.uid == observed.uid && known.resource_version == observed.resource_version => {
            known
        }
        _ => ConfigMapReference { last_update_time: Some(Time(now)), ..observed.clone() },
    }
}

fn service(
    source: &CatalogSource,
    backing: Backing<'_>,
    known: Option<RegistryService>,
    now: Timestamp,
) -> RegistryService {
    let created_at = known.and_then(|known| known.created_at).or(Some(Time(now)));
    let protocol = "grpc".to_owned();
    match backing {
        // there is no Service of ours
        Backing::Address(_) => RegistryService { protocol, created_at, ..RegistryService::default() },
        Backing::Image(_) | Backing::ConfigMap(_) => RegistryService {
            protocol,
            service_name: service_name(source.metadata.name.as_deref().unwrap_or_default()),
            service_namespace: source.metadata.namespace.clone().unwrap_or_default(),
            port: REGISTRY_PORT.to_owned(),
            created_at,
            unknown: Default::default(),
        },
    }
}

fn connection(
    source: &CatalogSource,
    backing: Backing<'_>,
    state: ConnectionState,
    known: Option<StatusConnection>,
    now: Timestamp,
) -> StatusConnection {
    let address = match backing {
        Backing::Address(address) => address.to_owned(),
        Backing::Image(_) | Backing::ConfigMap(_) => {
            let name = service_name(source.metadata.name.as_deref().unwrap_or_default());
            let namespace = source.metadata.namespace.as_deref().unwrap_or_default();
            format!("{name}.{namespace}.svc:{REGISTRY_PORT}")
        }
    };
    match known {
        Some(known) if known.address == address && known.last_observed_state == state.as_str() => known,
        known => StatusConnection {
            address,
            last_observed_state: state.as_str().to_owned(),
            last_connect: match state {
                ConnectionState::Ready => Some(Time(now)),
                ConnectionState::Idle
                | ConnectionState::Connecting
                | ConnectionState::TransientFailure
                | ConnectionState::Shutdown => known.and_then(|known| known.last_connect),
            },
            unknown: Default::default(),
        },
    }
}
