//! `plan`: what the controller would do for a wish, before anybody wishes it.
//!
//! The steps are the controller's own: resolution, rendering, CRD safety, dependencies, the layout of the revision. Its writes
//! are made as dry runs. Nothing is stored, and the extension itself is not changed.

mod outlook;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt as _};
use olm_api::{ClusterExtension, ClusterObjectSet, annotations, condition};
use olm_bundle::{CertProvider, Gates, PROPERTIES_ANNOTATION, RegistryV1, RenderOptions, render_with_report};
use olm_core::Object;
use olm_install::desired::{Desired, fingerprint, options_text, same_content};
use olm_install::issuer::{Issuers, Preference, choose, from_status, present};
use olm_install::preflight;
use olm_install::resolution::{BundleFacts, Cause, Wish, revision};
use olm_rollout::{RevisionFacts, Sibling, future_revision, next_number};
use olm_runtime::error_text::chain;
use serde_json::{Value, json};

use self::outlook::{Outlook, Side};
use super::output::Output;
use super::why::{Explained, Policy, decide};
use crate::Answer;
use crate::bundle_source::BundleAccess;
use crate::extensions;
use crate::failure::{Failure, wait};
use crate::foretold::{Writer, identity};
use crate::kinds::Kinds;
use crate::live;
use crate::sources::Sources;

pub(crate) use outlook::objects as objects_text;

/// Where revisions are kept when there is none that says it.
const SYSTEM_NAMESPACE: &str = "olmv1-system";

#[derive(Debug, Args)]
#[command(
    after_help = "Every object is sent to the apiserver as a dry run under the controller's field manager, so defaults, admission and \
                  other people's fields count. Nothing is stored. It is asked as you: where the extension names a service account, \
                  --as system:serviceaccount:NAMESPACE:NAME asks as that one.\n\n\
                  Examples:\n  kubectl olm plan my-extension\n  kubectl olm plan my-extension --version '>=2.0.0 <3.0.0'\n  \
                  kubectl olm plan my-extension --any-version --image quay.io/example/catalog:next -o wide\n  \
                  kubectl olm plan -f extension.yaml -o json\n\n\
                  Exit codes: like `kubectl diff`, 0 nothing would change, 1 something would, 2 it would be refused, bad input or no \
                  such extension, 3 no answer."
)]
pub(crate) struct Arguments {
    /// The ClusterExtension in the cluster
    #[arg(required_unless_present = "file", conflicts_with = "file", value_name = "CLUSTEREXTENSION")]
    name: Option<String>,
    /// A manifest of a ClusterExtension, in the cluster or not
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Versions to stay within instead of those of the extension, such as '>=2.0.0 <3.0.0'
    #[arg(long, value_name = "RANGE")]
    version: Option<String>,
    /// Any version
    #[arg(long, conflicts_with = "version")]
    any_version: bool,
    /// Channels instead of those of the extension; may be repeated
    #[arg(long)]
    channel: Vec<String>,
    /// Whether the catalog's upgrade edges bind, instead of what the extension says
    #[arg(long, value_enum)]
    upgrade_constraint_policy: Option<Policy>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    sources: Sources,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Answer, Failure> {
    let outlook = wait(foretell(arguments)).map_err(beyond_one)?;
    let names = || outlook.objects.iter().map(crate::foretold::Foretold::title).collect();
    let text = arguments.output.print(&outlook, names, |wide| outlook.text(wide));
    if !outlook.refused.is_empty() {
        return Err(Failure::Verdict { text: text.trim_end().to_owned(), help: None });
    }
    Ok(Answer { yes: outlook.is_quiet(), text })
}

/// 1 says that something differs, so that nothing is found cannot be 1.
pub(crate) fn beyond_one(failure: Failure) -> Failure {
    match failure {
        Failure::NotFound(text) => Failure::Usage(text),
        other => other,
    }
}

/// The extension as it would be.
async fn wished(arguments: &Arguments, client: &Client) -> Result<ClusterExtension, Failure> {
    let mut extension = match (&arguments.file, &arguments.name) {
        (Some(file), _) => {
            let mut wished = extensions::from_file(file)?;
            let api: Api<ClusterExtension> = Api::all(client.clone());
            let stored = api.get_opt(&wished.name_any()).await;
            let stored = stored.map_err(|error| {
                Failure::Unreachable(format!("cannot read ClusterExtension: {}", chain(&error)))
            })?;
            if let Some(stored) = stored {
                wished.metadata.uid = stored.metadata.uid;
                wished.status = stored.status;
            }
            wished
        }
        (None, name) => extensions::named(client, name.as_deref().unwrap_or_default()).await?,
    };
    let Some(catalog) = extension.spec.source.catalog.as_mut() else { return Ok(extension) };
    if let Some(version) = &arguments.version {
        olm_resolver::parse_range(version).map_err(|error| Failure::Usage(error.condition_message()))?;
        catalog.version = Some(version.clone());
    }
    if arguments.any_version {
        catalog.version = None;
    }
    if !arguments.channel.is_empty() {
        catalog.channels.clone_from(&arguments.channel);
    }
    if let Some(policy) = arguments.upgrade_constraint_policy {
        catalog.upgrade_constraint_policy = serde_json::from_value(json!(policy.as_str()))
            .map_err(|error| Failure::Usage(error.to_string()))?;
    }
    Ok(extension)
}

async fn foretell(arguments: &Arguments) -> Result<Outlook, Failure> {
    let client = arguments.sources.cluster.client().await?;
    let extension = wished(arguments, &client).await?;
    let all = extensions::revisions(&client, Some(&extension.name_any())).await?;
    let own: Vec<Arc<ClusterObjectSet>> =
        extensions::of(&extension, &all).map(|set| Arc::new(set.clone())).collect();
    let newest = own.iter().rfind(|set| revision::is_active(set));
    let states = revision::states(own.iter().map(AsRef::as_ref));
    let decided = decide(&extension, Some(states), None, &arguments.sources).await?;
    let mut outlook = Outlook {
        extension: extension.name_any(),
        from: newest.map(|set| side(&revision::facts(set).bundle, set.spec.revision)),
        ..opening(&decided.explained)
    };
    let (Some(wish), Some(bundle)) = (&decided.wish, &decided.bundle) else { return Ok(outlook) };
    if wish.paused {
        outlook.warnings.push("the extension is paused; nothing happens until it goes on".to_owned());
    }
    let kept = kept_issuer(&extension);
    let settled = match newest {
        None => false,
        Some(newest) => decided.resolution.is_none() || holds(&client, wish, newest, bundle, kept).await,
    };
    if settled {
        outlook.to = newest.map(|set| side(bundle, set.spec.revision));
        return Ok(outlook);
    }
    let registry = BundleAccess::of(&arguments.sources).pull(&bundle.reference).await?;
    let properties = registry.csv.annotations.get(PROPERTIES_ANNOTATION).cloned();
    let objects = match rendered(&client, wish, &registry, kept).await? {
        Ok(objects) => objects,
        Err(why) => {
            outlook.refused.push(why);
            return Ok(outlook);
        }
    };
    judge_crds(&client, wish, &objects, &own, &mut outlook).await;
    let desired = match Desired::new(wish, bundle, properties.as_deref(), objects) {
        Ok(desired) => desired,
        Err(why) => {
            outlook.refused.push(why.to_string());
            return Ok(outlook);
        }
    };
    let system = newest.and_then(|set| place_of_content(set)).unwrap_or_else(|| SYSTEM_NAMESPACE.to_owned());
    if let Some(newest) = newest {
        let compared = desired.numbered(newest.spec.revision, &system);
        if compared.is_ok_and(|compared| same_content(newest, &compared.set)) {
            outlook.to = Some(side(bundle, newest.spec.revision));
            return Ok(outlook);
        }
    }
    let counted: Vec<RevisionFacts> = own.iter().map(|set| counted(set)).collect();
    let number = next_number(&counted);
    outlook.to = Some(side(bundle, number));
    let then: Vec<Object> = desired.phases().iter().flat_map(|phase| phase.objects.clone()).collect();
    let mut now = Vec::new();
    for set in own.iter().filter(|set| revision::is_active(set)) {
        now.extend(live::content(&client, set).await.map_err(Failure::Unreachable)?);
    }
    outlook.compare(&now, &then);
    let siblings = own
        .iter()
        .map(|set| Sibling { uid: set.uid().unwrap_or_default(), retired: !revision::is_active(set) });
    let writer = Writer {
        client: &client,
        extension: &wish.name,
        uid: &wish.uid,
        us: future_revision(&wish.name, number),
        siblings: siblings.collect(),
    };
    let mut kinds = Kinds::new(&client);
    outlook.take(writer.apply(&mut kinds, &then).await);
    let kept: std::collections::BTreeSet<_> = then.iter().map(|object| identity(&object.key())).collect();
    let mut seen = kept;
    let gone: Vec<Object> = now.into_iter().filter(|object| seen.insert(identity(&object.key()))).collect();
    outlook.take(writer.give_up(&mut kinds, &gone).await);
    Ok(outlook)
}

/// What resolution says.
fn opening(explained: &Explained) -> Outlook {
    let because = explained.chosen.as_ref().map(|chosen| match &chosen.catalog {
        Some(catalog) => format!("{} (catalog {catalog})", chosen.why),
        None => chosen.why.clone(),
    });
    let path = explained.report.as_ref().and_then(|report| report.upgrade_path.as_ref());
    let steps = path.into_iter().flatten();
    Outlook {
        because,
        path: steps.map(|step| format!("{} ({} in {})", step.version, step.by, step.channel)).collect(),
        refused: explained.refusal.iter().chain(&explained.unmet).cloned().collect(),
        warnings: explained.deprecations.iter().map(|said| format!("deprecated: {said}")).collect(),
        ..Outlook::default()
    }
}

fn side(bundle: &BundleFacts, revision: i64) -> Side {
    Side {
        bundle: bundle.name.clone(),
        version: bundle.version.clone(),
        image: bundle.reference.clone(),
        revision,
    }
}

fn counted(set: &ClusterObjectSet) -> RevisionFacts {
    let conditions = set.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    RevisionFacts {
        name: set.name_any(),
        number: set.spec.revision,
        archived: !revision::is_active(set),
        succeeded: condition::is_true(conditions, condition::SUCCEEDED),
    }
}

fn kept_issuer(extension: &ClusterExtension) -> Option<CertProvider> {
    let certificates = extension.status.as_ref()?.webhook_certificates.as_ref()?;
    Some(from_status(certificates.provider))
}

/// Where the revision's objects are kept.
fn place_of_content(set: &ClusterObjectSet) -> Option<String> {
    let objects = set.spec.phases.iter().flat_map(|phase| &phase.objects);
    objects.filter_map(|object| object.reference.as_ref()).find_map(|reference| reference.namespace.clone())
}

/// Whether the newest revision was made of the same bundle with the same settings, so that the controller does not look at the
/// image again (decision 24). What cannot be read says no.
async fn holds(
    client: &Client,
    wish: &Wish,
    newest: &ClusterObjectSet,
    bundle: &BundleFacts,
    kept: Option<CertProvider>,
) -> bool {
    if !revision::facts(newest).bundle.is_same(bundle) {
        return false;
    }
    let objects = newest.spec.phases.iter().flat_map(|phase| &phase.objects);
    let reference = objects.filter_map(|object| object.reference.as_ref()).next();
    let Some((namespace, name)) = reference.and_then(|found| Some((found.namespace.clone()?, &found.name)))
    else {
        return false;
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let Ok(secret) = secrets.get_metadata(name).await else { return false };
    let inputs = fingerprint(wish, bundle, &options_text(Gates::default(), kept), env!("CARGO_PKG_VERSION"));
    secret.annotations().get(annotations::RENDER_INPUTS) == Some(&inputs)
}

/// The bundle's objects, or why it cannot be rendered.
async fn rendered(
    client: &Client,
    wish: &Wish,
    registry: &RegistryV1,
    kept: Option<CertProvider>,
) -> Result<Result<Vec<Object>, String>, Failure> {
    let all = Issuers { cert_manager: true, service_ca: true };
    let cert_provider = if registry.csv.webhooks.is_empty() {
        None
    } else {
        let present = present(client).await;
        let present = present
            .map_err(|error| Failure::Unreachable(format!("cannot list API groups: {}", chain(&error))))?;
        match choose(Preference::Auto, all, kept, present) {
            Ok(provider) => Some(provider),
            Err(why) => return Ok(Err(why)),
        }
    };
    let options = RenderOptions {
        config: wish.config.clone().map(Value::Object),
        cert_provider,
        ..RenderOptions::new(&wish.namespace)
    };
    Ok(render_with_report(registry, &options)
        .map(|rendered| rendered.objects)
        .map_err(|error| error.to_string()))
}

/// What the change of CRDs means for objects that exist. A question that the cluster did not answer is a warning.
async fn judge_crds(
    client: &Client,
    wish: &Wish,
    objects: &[Object],
    own: &[Arc<ClusterObjectSet>],
    outlook: &mut Outlook,
) {
    let settings = preflight::Settings { existing_objects: true };
    match preflight::check(client, settings, wish, objects, own).await {
        Ok(warnings) => outlook.warnings.extend(warnings),
        Err(failure) if failure.cause == Cause::CrdSafety => outlook.refused.push(failure.message),
        Err(failure) => outlook.warnings.push(format!("CRDs were not checked: {}", failure.message)),
    }
}
