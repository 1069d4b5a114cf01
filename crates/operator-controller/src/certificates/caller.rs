//! The callers of webhooks: admission configurations and conversions, reduced to the Services that they call and the authorities
//! that they trust. Pure.
//!
//! Only `caBundle` is written, under a field manager of its own; the revision's engine applies nothing there, so neither
//! reports the other's work as drift (decision 13).

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use olm_api::{field_managers, labels};
use olm_bundle::CaTarget;
use serde_json::{Value, json};

/// Namespace and name of a Service.
pub type Service = (String, String);

/// The kinds that call webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `spec.conversion` of a CustomResourceDefinition.
    Crd,
    Mutating,
    Validating,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Crd, Self::Mutating, Self::Validating];

    /// Kind and name of a target.
    #[must_use]
    pub fn split(target: &CaTarget) -> (Self, &str) {
        match target {
            CaTarget::CustomResourceDefinition(name) => (Self::Crd, name),
            CaTarget::MutatingWebhookConfiguration(name) => (Self::Mutating, name),
            CaTarget::ValidatingWebhookConfiguration(name) => (Self::Validating, name),
        }
    }

    /// The target of this kind and name.
    #[must_use]
    pub fn target(self, name: String) -> CaTarget {
        match self {
            Self::Crd => CaTarget::CustomResourceDefinition(name),
            Self::Mutating => CaTarget::MutatingWebhookConfiguration(name),
            Self::Validating => CaTarget::ValidatingWebhookConfiguration(name),
        }
    }

    /// Where the apiserver has it.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        match self {
            Self::Crd => ApiResource::erase::<CustomResourceDefinition>(&()),
            Self::Mutating => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
            Self::Validating => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
        }
    }
}

/// Kind and name of a target, for people.
#[must_use]
pub fn title(target: &CaTarget) -> String {
    let (kind, name) = Kind::split(target);
    format!("{} {name}", kind.resource().kind)
}

/// One call that an object makes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Call {
    /// Name of the entry; none in a conversion.
    entry: Option<String>,
    service: Service,
    trusted: String,
}

/// A live object that calls Services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub target: CaTarget,
    /// The extension whose object it is.
    pub extension: String,
    uid: String,
    calls: Vec<Call>,
    is_managed: bool,
}

impl Caller {
    /// Reads a live object of that kind.
    #[must_use]
    pub fn read(kind: Kind, object: &DynamicObject) -> Self {
        let calls = match kind {
            Kind::Crd => {
                let client = object.data.pointer("/spec/conversion/webhook/clientConfig");
                client.and_then(|client| call(None, client)).into_iter().collect()
            }
            Kind::Mutating | Kind::Validating => {
                let entries = object.data.get("webhooks").and_then(Value::as_array).into_iter().flatten();
                let named = entries.filter_map(|entry| {
                    let name = entry.get("name")?.as_str()?.to_owned();
                    call(Some(name), entry.get("clientConfig")?)
                });
                named.collect()
            }
        };
        let is_managed = object
            .managed_fields()
            .iter()
            .any(|entry| entry.manager.as_deref() == Some(field_managers::WEBHOOK_CERTIFICATES));
        Self {
            target: kind.target(object.name_any()),
            extension: object.labels().get(labels::OWNER_NAME).cloned().unwrap_or_default(),
            uid: object.uid().unwrap_or_default(),
            calls,
            is_managed,
        }
    }

    /// The authorities that it trusts (PEM) when it calls this Service; nothing where it does not call it.
    pub fn trusted<'a>(&'a self, service: &'a Service) -> impl Iterator<Item = &'a str> {
        self.calls.iter().filter(move |call| call.service == *service).map(|call| call.trusted.as_str())
    }

    /// What to apply so that it trusts what it should; `None` when it does. `trust` has the authorities (PEM) by Service; calls of
    /// other Services stay.
    #[must_use]
    pub(crate) fn ca_bundles(&self, trust: &BTreeMap<Service, String>) -> Option<Value> {
        let managed: Vec<(&Call, &str)> =
            self.calls.iter().filter_map(|call| Some((call, trust.get(&call.service)?.as_str()))).collect();
        if managed.iter().all(|(call, desired)| call.trusted == *desired) {
            return None;
        }
        let encoded = |text: &str| {
            use base64::Engine as _;
            json!({"caBundle": base64::engine::general_purpose::STANDARD.encode(text)})
        };
        let mut body = self.identity();
        for (call, desired) in managed {
            match &call.entry {
                None => body["spec"] = json!({"conversion": {"webhook": {"clientConfig": encoded(desired)}}}),
                Some(entry) => {
                    let entry = json!({"name": entry, "clientConfig": encoded(desired)});
                    match body.get_mut("webhooks").and_then(Value::as_array_mut) {
                        Some(entries) => entries.push(entry),
                        None => body["webhooks"] = json!([entry]),
                    }
                }
            }
        }
        Some(body)
    }

    /// What to apply so that nothing in it is managed by the issuer any more; `None` when nothing is.
    #[must_use]
    pub fn release(&self) -> Option<Value> {
        self.is_managed.then(|| self.identity())
    }

    /// With the UID an apply changes this very object and never makes a new one.
    fn identity(&self) -> Value {
        let (kind, name) = Kind::split(&self.target);
        let resource = kind.resource();
        json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "uid": self.uid},
        })
    }
}

fn call(entry: Option<String>, client: &Value) -> Option<Call> {
    use base64::Engine as _;
    let text = |pointer: &str| client.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let bytes = base64::engine::general_purpose::STANDARD.decode(text("/caBundle").unwrap_or_default());
    Some(Call {
        entry,
        service: (text("/service/namespace")?, text("/service/name")?),
        trusted: String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    fn metadata(manager: &str) -> Value {
        json!({"name": "x", "uid": "u", "labels": {labels::OWNER_NAME: "demo"},
            "managedFields": [{"manager": manager, "operation": "Apply"}]})
    }

    fn service(name: &str) -> Service {
        ("ns".to_owned(), name.to_owned())
    }

    #[test]
    fn caller_entries_of_own_services_are_configured() {
        let caller = Caller::read(
            Kind::Validating,
            &live(json!({
                "metadata": metadata("olm.operatorframework.io"),
                "webhooks": [
                    {"name": "a", "clientConfig": {"service": {"namespace": "ns", "name": "s"}}},
                    {"name": "b", "clientConfig": {"service": {"namespace": "ns", "name": "s"}, "caBundle": "cGVt"}},
                    {"name": "c", "clientConfig": {"service": {"namespace": "ns", "name": "foreign"}}},
                    {"name": "d", "clientConfig": {"url": "https://example.com"}},
                ],
            })),
        );
        assert_eq!((caller.extension.as_str(), caller.release()), ("demo", None));
        assert_eq!(caller.trusted(&service("s")).collect::<Vec<_>>(), ["", "pem"]);
        let trust = BTreeMap::from([(service("s"), "pem".to_owned())]);
        let body = caller.ca_bundles(&trust).unwrap();
        assert_eq!(
            body,
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "x", "uid": "u"},
                "webhooks": [{"name": "a", "clientConfig": {"caBundle": "cGVt"}}, {"name": "b", "clientConfig": {"caBundle": "cGVt"}}],
            })
        );
        assert_eq!(caller.ca_bundles(&BTreeMap::from([(service("other"), "pem".to_owned())])), None);
    }

    #[test]
    fn caller_conversions_are_configured_and_released() {
        let crd = |bundle: &str| {
            live(json!({
                "metadata": metadata(field_managers::WEBHOOK_CERTIFICATES),
                "spec": {"group": "g", "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {
                    "caBundle": bundle, "service": {"namespace": "ns", "name": "s"}}}}},
            }))
        };
        let trust = BTreeMap::from([(service("s"), "pem".to_owned())]);
        assert_eq!(Caller::read(Kind::Crd, &crd("cGVt")).ca_bundles(&trust), None, "it is right already");
        let caller = Caller::read(Kind::Crd, &crd("!"));
        let body = caller.ca_bundles(&trust).unwrap();
        assert_eq!(body["spec"], json!({"conversion": {"webhook": {"clientConfig": {"caBundle": "cGVt"}}}}));
        let released = caller.release().unwrap();
        assert_eq!(released["metadata"], json!({"name": "x", "uid": "u"}));
        assert!(released.get("spec").is_none());
        assert!(
            Caller::read(Kind::Crd, &live(json!({"metadata": {"name": "x"}, "spec": {}})))
                .ca_bundles(&trust)
                .is_none()
        );
    }
}
