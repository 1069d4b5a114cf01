//! From the target bundle to a revision that holds it: check its dependencies, observe, plan, execute the plan.
//!
//! The plan is `olm_install::plan`'s. This module reads for it, with the caches of the process, and writes the result.
//! Rules: operator-controller §3.4 (UnpackBundle, Apply), §6.3; revisions §4.2.

use std::sync::Arc;

use kube::ResourceExt as _;
use olm_api::ClusterObjectSet;
use olm_bundle::CertProvider;
use olm_core::Object;
use olm_install::plan::{Change, Content, IMAGE_IGNORED, Observer, about, observe, plan_in_time};
use olm_install::preflight::{self, Checked};
use olm_install::render::Rendered;
use olm_install::resolution::{
    BundleFacts, Class, ExtensionRequest, PassError, RevisionStates, Target, revision,
};
use olm_resolver::{Resolution, Skipped};

use super::context::Context;
use super::dependencies;
use super::result::Notice;
use super::state::{PerExtension, States, UnchangedApply, Verified};
use super::writer::{RevisionWriter, StepError, WriteError};
use crate::recorded::Recorded;

/// The result of an executed plan.
#[derive(Debug)]
pub struct Delivered {
    /// The revision that was written or changed, if any was.
    pub written: Option<ClusterObjectSet>,
    /// What users are informed of.
    pub notices: Vec<Notice>,
    /// The issuer of the extension's webhook certificates, once it is chosen.
    pub issuer: Option<CertProvider>,
    /// The installed bundle could not be read for now, so that changed settings or another format of its objects do not count yet.
    pub unread: bool,
}

/// Makes the newest revision hold the target. `states` are those of `revisions`, and `recorded` is the certificate issuer of the extension's status.
///
/// # Errors
/// With the text for the `Progressing` condition, or because the cluster has changed meanwhile.
pub(crate) async fn deliver(
    context: &Context,
    request: &ExtensionRequest,
    target: &Target,
    chosen: Option<&Resolution>,
    revisions: &[Arc<ClusterObjectSet>],
    states: &RevisionStates,
    recorded: Option<CertProvider>,
) -> Result<Delivered, StepError> {
    let bundle = target.bundle();
    let mut notices = match (target, chosen) {
        (Target::Chosen(_), Some(chosen)) => {
            let mut notices = dependencies::check(context, request, chosen, bundle, states).await?;
            let is_new = states.newest().is_none_or(|newest| !newest.bundle.is_same(bundle));
            let skipped = Skipped::find(chosen, &request.channels, request.range.as_ref());
            let skipped = skipped.filter(|_| is_new).map(|it| it.to_string());
            notices.extend(skipped.map(|text| Notice::warning("BundleSkipped", text)));
            notices
        }
        (Target::Chosen(_) | Target::Installed(_), _) => Vec::new(),
    };
    let newest = revision::newest(revisions);
    let verified = newest.and_then(|newest| context.verified(request, newest));
    let mut observer = ClusterObserver { context, request, revisions, verified: verified.as_ref() };
    let (settings, system) = (context.settings.render, context.settings.system_namespace.as_str());
    let observed = observe(&mut observer, settings, system, request, target, revisions, recorded).await?;
    let unread = matches!(observed.content, Content::Unread(_));
    let planned = plan_in_time(request, observed).await.map_err(|error| about(bundle, error))?;
    let mut plan = planned.map_err(|error| {
        let inputs = settings.fingerprint(request, bundle, settings.settled(recorded));
        context.states.update(&request.name, &request.uid, |state| state.reject(bundle, &inputs, &error));
        about(bundle, error)
    })?;
    if let Change::Create(new) = &mut plan.change {
        // packed by now, and too large to be in memory while another controller reads them
        new.phases.clear();
    }
    let written = match &plan.change {
        Change::Keep => None,
        Change::Update(set) => match newest {
            Some(newest) => apply_settings(&context.states, &context.writer, request, set, newest).await?,
            None => None,
        },
        Change::Restore(numbered) => match newest {
            Some(newest) => {
                let inputs = plan.inputs.as_deref().unwrap_or_default();
                let recorded = Recorded::from_request(request);
                Some(context.writer.restore(numbered, newest, inputs, &recorded).await?)
            }
            None => None,
        },
        Change::Create(new) => {
            let inputs = plan.inputs.as_deref().unwrap_or_default();
            let expired: Vec<_> = revisions
                .iter()
                .map(AsRef::as_ref)
                .filter(|set| new.expired.contains(&set.name_any()))
                .collect();
            let recorded = Recorded::from_request(request);
            let stored = context.writer.create(&new.revision, &expired, inputs, &recorded).await?;
            let (extension, revision) = (&request.name, stored.name_any());
            tracing::info!(extension, revision, bundle = bundle.name, "revision created");
            Some(stored)
        }
    };
    if let (Some(newest), Some(inputs), Some(_rendered)) = (newest, &plan.inputs, plan.digest)
        && !matches!(plan.change, Change::Create(_))
    {
        context.writer.record_inputs(&request.name, &newest.name_any(), inputs).await?;
    }
    let created = written.as_ref().filter(|_| matches!(plan.change, Change::Create(_)));
    if let (Some(inputs), Some(set)) = (plan.inputs, created.or(newest.map(AsRef::as_ref))) {
        context.remember(request, set, bundle, inputs);
    }
    let is_reported = verified.is_some_and(|verified| verified.bundle.reference == bundle.reference);
    notices.extend(plan.notices.into_iter().filter(|it| it.reason != IMAGE_IGNORED || !is_reported));
    Ok(Delivered { written, notices, issuer: plan.issuer, unread })
}

/// Applies settings to the newest revision, unless the same apply to the same version of it changed nothing before. `None` if nothing
/// was sent.
async fn apply_settings(
    states: &States,
    writer: &RevisionWriter,
    request: &ExtensionRequest,
    set: &ClusterObjectSet,
    newest: &ClusterObjectSet,
) -> Result<Option<ClusterObjectSet>, WriteError> {
    let apply = UnchangedApply { applied: set.clone(), resource_version: newest.resource_version() };
    let (name, uid) = (&request.name, &request.uid);
    if states.update(name, uid, |state| state.unchanged.as_ref() == Some(&apply)) {
        return Ok(None);
    }
    let written = writer.update(set, newest).await?;
    if written.resource_version() == apply.resource_version {
        states.update(name, uid, |state| state.unchanged = Some(apply));
    }
    Ok(Some(written))
}

/// Observes with the caches of the process, and registers what the extension waits for.
struct ClusterObserver<'a> {
    context: &'a Context,
    request: &'a ExtensionRequest,
    revisions: &'a [Arc<ClusterObjectSet>],
    verified: Option<&'a Verified>,
}

impl Observer for ClusterObserver<'_> {
    /// From the memory of the process, unless another account was checked then; else from the revision's Secrets.
    async fn recorded_inputs(&mut self, newest: &ClusterObjectSet) -> Result<Option<String>, PassError> {
        match self.verified {
            Some(verified) if verified.account == self.request.service_account => {
                Ok(Some(verified.inputs.clone()))
            }
            Some(_) => Ok(None),
            None => {
                let (context, request) = (self.context, self.request);
                let uid = newest.uid().unwrap_or_default();
                let inputs = |state: &mut PerExtension| state.inputs.get(&uid).cloned();
                if let Some(inputs) = context.states.update(&request.name, &request.uid, inputs) {
                    return Ok(Some(inputs));
                }
                let recorded = Recorded::from_request(request);
                let mut found = context
                    .writer
                    .mark_secrets(&request.name, &[newest], &recorded)
                    .await
                    .map_err(not_written)?;
                Ok(found.remove(&uid))
            }
        }
    }

    async fn render(
        &mut self,
        bundle: &BundleFacts,
        settled: Option<CertProvider>,
        inputs: &str,
    ) -> Result<Rendered, PassError> {
        let request = self.request;
        let rejection = |state: &mut PerExtension| {
            state.image = Some(bundle.reference.clone());
            state.rejection(bundle, inputs)
        };
        if let Some(rejected) = self.context.states.update(&request.name, &request.uid, rejection) {
            return Err(rejected);
        }
        self.context.wait_for_crds(request, Vec::new());
        self.context.bundles.render(request, bundle, settled).await
    }

    async fn check_crds(
        &mut self,
        bundle: &BundleFacts,
        rendered: &Arc<Rendered>,
    ) -> Result<Checked, PassError> {
        let Self { context, request, revisions, .. } = self;
        // before they are read, so that no change is missed
        context.wait_for_crds(request, preflight::names(&rendered.objects));
        let settings = context.settings.preflight;
        let client = &context.client;
        let checked =
            preflight::check(client, &context.crds, settings, request, bundle, rendered, revisions).await?;
        context.wait_for_crds(request, Vec::new());
        Ok(checked)
    }

    async fn check_account(&mut self, bundle: &BundleFacts, objects: &[Object]) -> Result<(), PassError> {
        self.context.accounts.check(self.request, bundle, objects).await
    }
}

fn not_written(error: WriteError) -> PassError {
    PassError::new(Class::Transient, error.to_string())
}

#[cfg(test)]
mod tests {
    use olm_api::annotations;
    use olm_install::resolution::validate;
    use serde_json::{Value, json};

    use super::*;
    use crate::secret_cache::SecretCache;
    use crate::testing::Apiserver;

    /// Server-side apply removes the annotation of a release only if this controller set it.
    #[tokio::test]
    async fn deliver_repeats_no_apply_that_changed_nothing() {
        let extension = serde_json::from_value(json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "metadata": {"name": "demo", "uid": "u1"},
            "spec": {"namespace": "demo", "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo"}}},
        }));
        let request = validate(&extension.unwrap()).unwrap();
        let set = |version: &str, annotations: Value, deadline: Value| -> ClusterObjectSet {
            let spec = json!({"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent",
                "progressDeadlineMinutes": deadline});
            let metadata = json!({"name": "demo-1", "uid": "r1", "resourceVersion": version, "annotations": annotations});
            let set = json!({"apiVersion": olm_api::API_VERSION, "kind": "ClusterObjectSet", "metadata": metadata, "spec": spec});
            serde_json::from_value(set).unwrap()
        };
        let (release, none) = (json!({annotations::BUNDLE_RELEASE: "2"}), json!({}));
        for (case, answered, remaining, version, deadline, sent) in [
            ("of another client", "7", &release, "7", json!(null), 1),
            ("of another client, and the revision changed since", "7", &release, "9", json!(null), 2),
            ("of another client, and other settings", "7", &release, "7", json!(30), 2),
            ("of this controller, and set again", "8", &none, "8", json!(null), 2),
        ] {
            let answer = serde_json::to_value(set(answered, remaining.clone(), json!(null))).unwrap();
            let apiserver = Apiserver::new(move |_, _| (200, answer.clone()));
            let writer = RevisionWriter::new(apiserver.client(), "olmv1-system", SecretCache::default());
            let states = States::default();
            for (version, deadline) in [("7", json!(null)), (version, deadline)] {
                let desired = set("", none.clone(), deadline);
                let newest = set(version, release.clone(), json!(null));
                apply_settings(&states, &writer, &request, &desired, &newest).await.unwrap();
            }
            let requests = apiserver.requests();
            assert_eq!(requests.len(), sent, "{case}: {requests:?}");
            assert!(
                !requests.iter().any(|line| line.contains(annotations::BUNDLE_RELEASE)),
                "{case}: {requests:?}"
            );
        }
    }
}
