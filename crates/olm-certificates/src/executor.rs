//! The executor: carries [`super::plan`] out on a Secret, and writes what callers trust.
//!
//! A write is decided on an object that was just read, never on a cached one, and refused by the apiserver if the object has changed
//! since: any replica may take any step. What the Secret is allowed to be is its owner's decision ([`SecretOwner`]).

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, ObjectMeta};
use kube::{Client, ResourceExt as _};
use olm_runtime::apply::{self, ErrorClass};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::disputes::Disputes;
use crate::material::{self, IssueError, Keys};
use crate::plan::{self, CertificateState, Plan, Step, Timing};
use crate::secret;

/// Writes to one Secret in one pass, at most: create or delete, create, stage, switch, drop.
const MAX_WRITES: usize = 6;

/// A certificate and the Secret that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateSpec {
    /// The namespace of the Secret.
    pub namespace: String,
    /// The name of the Secret.
    pub name: String,
    /// The names under which clients reach the server: DNS names or addresses.
    pub names: Vec<String>,
    /// Common name of the authorities that sign the certificate.
    pub authority: &'static str,
    /// The key of the Secret with the certificate of the authority, usually [`secret::AUTHORITY_KEY`].
    pub authority_key: &'static str,
    /// How long things take.
    pub timing: Timing,
}

impl CertificateSpec {
    /// Namespace and name of the Secret, for people.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn plan(&self, stored: Option<&CertificateState>, trusted: &[&str], now: Timestamp) -> Plan {
        plan::plan(stored, &self.names, trusted, now, &self.timing)
    }
}

/// Whether and how a Secret may be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ownership {
    /// It is the owner's and marked as such.
    Own,
    /// It may be written, but lacks the owner's marks: it is empty, another provider filled it, or marks were removed.
    Unmarked,
    /// It is the owner's, and cannot be changed: only deleted.
    Immutable,
    /// It may not be written; with the error message.
    Foreign(String),
    /// It cannot be known yet whether it may be written; with the error message.
    Unknown(String),
}

/// The owner of a certificate's Secret.
pub trait SecretOwner: Sync {
    /// Whether and how the Secret may be written.
    fn ownership(&self, secret: &Secret) -> Ownership;

    /// The labels and owners that the Secret gets; `present` is what there is.
    fn marks(&self, present: Option<&Secret>) -> ObjectMeta;

    /// Reports a write.
    fn written(
        &self,
        spec: &CertificateSpec,
        step: &Step,
        state: &CertificateState,
    ) -> impl Future<Output = ()> + Send;
}

/// Why a certificate or the trust in it could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// Only a change in the cluster helps.
    #[error("{0}")]
    Refused(String),
    /// Another program writes the object too.
    #[error("{title} is disputed; next try in {wait:?}")]
    Disputed {
        /// Kind and name of the object.
        title: String,
        wait: Duration,
    },
    /// The names are no names.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// Worth another try.
    #[error("{0}")]
    Failed(String),
}

/// Writes certificates.
pub struct Executor {
    client: Client,
    manager: &'static str,
    disputes: Option<Disputes>,
}

impl Executor {
    /// Writes under this field manager.
    #[must_use]
    pub fn new(client: Client, manager: &'static str) -> Self {
        Self { client, manager, disputes: None }
    }

    /// Slows down where another program writes the same objects. Not for certificates that are valid for seconds: to rotate them takes as
    /// many writes.
    #[must_use]
    pub fn slow_when_disputed(self) -> Self {
        Self { disputes: Some(Disputes::default()), ..self }
    }

    /// What `cached` holds, and when to check again, if it is as it should be. Costs no request.
    pub fn settled(
        &self,
        spec: &CertificateSpec,
        owner: &impl SecretOwner,
        cached: &Secret,
        trusted: &[&str],
    ) -> Option<(CertificateState, Option<Timestamp>)> {
        let stored =
            (owner.ownership(cached) == Ownership::Own).then(|| secret::read(cached, spec.authority_key))?;
        let plan = spec.plan(Some(&stored), trusted, Timestamp::now());
        (plan.step == Step::Nothing).then(|| {
            self.record_settled(&format!("Secret {}", spec.title()));
            (stored, plan.recheck_at)
        })
    }

    /// Makes the Secret hold what it should. Returns what it holds then, and when to check again.
    ///
    /// # Errors
    /// If the Secret may not be written, or the apiserver refuses.
    pub async fn keep(
        &self,
        spec: &CertificateSpec,
        owner: &impl SecretOwner,
        trusted: &[&str],
    ) -> Result<(CertificateState, Option<Timestamp>), ExecutorError> {
        let title = format!("Secret {}", spec.title());
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &spec.namespace);
        let failed = |doing: &str, error: &kube::Error| {
            ExecutorError::Failed(format!("{doing} {title}: {}", apply::message(error)))
        };
        let read = async || api.get_opt(&spec.name).await.map_err(|error| failed("reading", &error));
        let mut live = read().await?;
        for _ in 0..MAX_WRITES {
            let ownership = live.as_ref().map(|live| owner.ownership(live));
            match &ownership {
                Some(Ownership::Foreign(message)) => return Err(ExecutorError::Refused(message.clone())),
                Some(Ownership::Unknown(message)) => return Err(ExecutorError::Failed(message.clone())),
                Some(Ownership::Immutable) => {
                    if let Some(immutable) = live.take() {
                        self.delete(&immutable).await?;
                    }
                    continue;
                }
                Some(Ownership::Own | Ownership::Unmarked) | None => {}
            }
            let now = Timestamp::now();
            let stored = live.as_ref().map(|live| secret::read(live, spec.authority_key));
            let Plan { step, recheck_at } = spec.plan(stored.as_ref(), trusted, now);
            let stored = match stored {
                Some(stored) if step == Step::Nothing && ownership == Some(Ownership::Own) => {
                    return Ok((stored, recheck_at));
                }
                other => other,
            };
            if let Some(wait) = self.disputed_for(&title) {
                return Err(ExecutorError::Disputed { title, wait });
            }
            let issued = match step {
                Step::Issue { .. } | Step::Stage(_) => Some(material::issue(
                    spec.authority,
                    &spec.names,
                    now,
                    spec.timing.validity,
                    Keys::generate()?,
                )?),
                Step::Nothing | Step::Switch | Step::Drop => None,
            };
            let Some(desired) = plan::after(&step, stored, issued, now, &spec.timing) else {
                return Err(ExecutorError::Failed(format!("{title} cannot be read")));
            };
            let marks = owner.marks(live.as_ref());
            let patch = live.as_ref().map(|live| secret::patch(spec, live, marks.clone(), &desired));
            live = match self.write(&api, &secret::created(spec, marks, &desired), patch).await {
                Ok(written) => {
                    self.record_write(&title);
                    owner.written(spec, &step, &desired).await;
                    Some(written)
                }
                Err(error) if is_race(&error) => read().await?,
                Err(error) => return Err(failed("writing", &error)),
            };
        }
        Err(ExecutorError::Failed(format!("{title} keeps changing")))
    }

    /// Creates the object, or patches the one that there is.
    pub(crate) async fn write<K>(&self, api: &Api<K>, created: &K, patch: Option<Value>) -> kube::Result<K>
    where
        K: Clone + std::fmt::Debug + Serialize + DeserializeOwned + kube::Resource,
    {
        let field_manager = Some(self.manager.to_owned());
        match patch {
            None => api.create(&PostParams { field_manager, ..PostParams::default() }, created).await,
            Some(patch) => {
                let params = PatchParams { field_manager, ..PatchParams::default() };
                api.patch(&created.name_any(), &params, &Patch::Merge(patch)).await
            }
        }
    }

    /// Deletes this very Secret. It is no error if it is gone or another one by now.
    ///
    /// # Errors
    /// If the apiserver refuses.
    pub async fn delete(&self, secret: &Secret) -> Result<(), ExecutorError> {
        delete_secret(&self.client, secret).await.map_err(|error| {
            let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
            ExecutorError::Failed(format!("deleting Secret {namespace}/{name}: {}", apply::message(&error)))
        })
    }

    /// Applies the `caBundle`s of an object. `None` if the object is gone or another one: the next pass decides again.
    ///
    /// # Errors
    /// If the apiserver refuses.
    pub async fn apply_ca_bundles(
        &self,
        resource: &ApiResource,
        name: &str,
        body: &Value,
    ) -> Result<Option<DynamicObject>, ExecutorError> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), resource);
        match api.patch(name, &PatchParams::apply(self.manager).force(), &Patch::Apply(body)).await {
            Ok(stored) => Ok(Some(stored)),
            Err(error) if matches!(apply::classify(&error), ErrorClass::NotFound | ErrorClass::Conflict) => {
                Ok(None)
            }
            Err(error) => Err(ExecutorError::Failed(format!(
                "writing the caBundle of {} {name}: {}",
                resource.kind,
                apply::message(&error)
            ))),
        }
    }

    /// How long to wait before the object is written again, because another program writes it too; `None` if it may be written now.
    pub fn disputed_for(&self, title: &str) -> Option<Duration> {
        self.disputes.as_ref().and_then(|disputes| disputes.wait(title))
    }

    /// Records a write of the object that the apiserver has accepted.
    pub fn record_write(&self, title: &str) {
        if let Some(disputes) = &self.disputes {
            disputes.written(title);
        }
    }

    /// Records that the object is as it should be.
    pub fn record_settled(&self, title: &str) {
        if let Some(disputes) = &self.disputes {
            disputes.settled(title);
        }
    }
}

/// Deletes this very Secret. It is no error if it is gone or another one by now.
///
/// # Errors
/// If the apiserver refuses; it can be repeated.
pub async fn delete_secret(client: &Client, secret: &Secret) -> kube::Result<()> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &secret.namespace().unwrap_or_default());
    apply::delete(&api, &secret.metadata, DeleteParams::default()).await.map(drop)
}

/// The object was written, created or deleted since it was read.
pub(crate) fn is_race(error: &kube::Error) -> bool {
    matches!(apply::classify(error), ErrorClass::Conflict | ErrorClass::AlreadyExists | ErrorClass::NotFound)
        && !matches!(error, kube::Error::Api(status) if status.message.contains("namespaces"))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use http::Method;
    use k8s_openapi::jiff::SignedDuration;
    use olm_runtime::testing::{client, failure, failure_with};
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;
    use crate::testing::{generation, spec};

    struct AnyOwner;

    impl SecretOwner for AnyOwner {
        fn ownership(&self, _: &Secret) -> Ownership {
            Ownership::Own
        }

        fn marks(&self, _: Option<&Secret>) -> ObjectMeta {
            ObjectMeta::default()
        }

        async fn written(&self, _: &CertificateSpec, _: &Step, _: &CertificateState) {
            panic!("the other replica wrote it");
        }
    }

    #[tokio::test]
    async fn executor_takes_the_certificate_of_a_faster_replica() {
        let current = generation(Timestamp::now(), SignedDuration::from_hours(1000));
        let state = CertificateState { current, next: None, previous: String::new() };
        let answers = Mutex::new(VecDeque::from([
            failure(404, "NotFound"),
            failure(409, "AlreadyExists"),
            (200, json!(secret::created(&spec(), ObjectMeta::default(), &state))),
        ]));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&requests);
        let client = client(move |request| {
            recorded.lock().push(request.method().clone());
            std::future::ready(answers.lock().pop_front().unwrap())
        });
        let executor = Executor::new(client, "test");
        let (found, _) = executor.keep(&spec(), &AnyOwner, &[]).await.unwrap();
        assert_eq!(found, state);
        assert_eq!(*requests.lock(), [Method::GET, Method::POST, Method::GET]);
    }

    /// An outage, a lease that is renewed late, or a namespace that does not exist: no other program writes the Secret.
    #[tokio::test]
    async fn executor_takes_failed_writes_for_no_dispute() {
        for (code, message) in [(500, "InternalError"), (404, "namespaces \"x\" not found")] {
            let client = client(move |request| {
                let is_read = request.method() == Method::GET;
                let (code, message) = if is_read { (404, "NotFound") } else { (code, message) };
                let reason = if code == 404 { "NotFound" } else { "InternalError" };
                std::future::ready(failure_with(code, reason, message))
            });
            let executor = Executor::new(client, "test").slow_when_disputed();
            for attempt in 0..2 * MAX_WRITES {
                let error = executor.keep(&spec(), &AnyOwner, &[]).await.unwrap_err();
                assert!(matches!(error, ExecutorError::Failed(_)), "{attempt}: {error}");
            }
        }
    }
}
