//! `plan`: the controller's plan for an extension, before it is executed.
//!
//! The plan is `olm_install::plan`'s, observed with the rights of the user. The writes of a new revision's objects are sent as dry runs.
//! Nothing is stored, and the extension itself is not changed.

mod preview;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, ResourceExt as _};
use olm_api::{
    ClusterExtension, ClusterObjectSet, Condition, ConditionStatus, annotations, condition, labels, reason,
};
use olm_bundle::CertProvider;
use olm_core::Object;
use olm_install::account::{self, Account};
use olm_install::content::{ContentReader, secret_key};
use olm_install::plan::{Change, Observer, Plan, about, observe, plan};
use olm_install::preflight::{self, Checked, NoCache};
use olm_install::release::{self, InstalledRelease};
use olm_install::render::{RenderSettings, Rendered};
use olm_install::resolution::{BundleFacts, Cause, Class, ExtensionRequest, PassError, revision, validate};
use olm_install::{SYSTEM_NAMESPACE, dependencies, issuer};
use olm_rollout::{Revision, future_revision};
use olm_runtime::error_text::chain;
use serde_json::json;

use self::preview::{Preview, RevisionAction, Side};
use super::output::Output;
use super::why::{Explained, Policy, decide};
use crate::CommandOutput;
use crate::bundle_source::BundleAccess;
use crate::dry_run::{DryRun, ObjectPreview, identity, sibling};
use crate::extensions;
use crate::failure::CommandError;
use crate::kinds::Kinds;
use crate::rights::in_words;
use crate::sources::{Controller, Rendering, Sources};

pub(crate) use preview::objects as objects_text;

#[derive(Debug, Args)]
#[command(
    after_help = "Every object is sent to the apiserver as a dry run under the controller's field manager, so defaults, admission and \
                  the fields of other managers count. Nothing is stored. It uses your own rights: where the extension names a service account, \
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
    /// A manifest of a ClusterExtension, in the cluster or not; - is standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    changes: SpecChanges,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    controller: Controller,
    #[command(flatten)]
    rendering: Rendering,
    #[command(flatten)]
    sources: Sources,
}

/// Changes of the extension to plan for.
#[derive(Debug, Args)]
pub(crate) struct SpecChanges {
    /// Versions to stay within instead of those of the extension, such as '>=2.0.0 <3.0.0'
    #[arg(long, value_name = "RANGE")]
    version: Option<String>,
    /// Any version
    #[arg(long, conflicts_with = "version")]
    any_version: bool,
    /// Channels instead of those of the extension; may be repeated
    #[arg(long)]
    channel: Vec<String>,
    /// Whether the catalog's upgrade edges bind, instead of the extension's own policy
    #[arg(long, value_enum, alias = "upgrade-constraint-policy")]
    policy: Option<Policy>,
    /// The plan of a paused extension after it is resumed
    #[arg(long)]
    resume: bool,
}

impl SpecChanges {
    /// Whether there are any.
    pub(crate) fn is_some(&self) -> bool {
        let Self { version, any_version, channel, policy, resume } = self;
        *any_version || *resume || version.is_some() || !channel.is_empty() || policy.is_some()
    }

    pub(crate) fn apply(&self, extension: &mut ClusterExtension) -> Result<(), CommandError> {
        if self.resume {
            extension.annotations_mut().remove(annotations::PAUSED);
        }
        let Some(catalog) = extension.spec.source.catalog.as_mut() else { return Ok(()) };
        if let Some(version) = &self.version {
            olm_resolver::parse_range(version)
                .map_err(|error| CommandError::Usage(error.condition_message()))?;
            catalog.version = Some(version.clone());
        }
        if self.any_version {
            catalog.version = None;
        }
        if !self.channel.is_empty() {
            catalog.channels.clone_from(&self.channel);
        }
        if let Some(policy) = self.policy {
            catalog.upgrade_constraint_policy = serde_json::from_value(json!(policy.as_str()))
                .map_err(|error| CommandError::Usage(error.to_string()))?;
        }
        Ok(())
    }
}

pub(crate) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let preview = preview(arguments).await.map_err(beyond_one)?;
    if !preview.refused.is_empty() {
        return Err(refused(&preview, arguments.output));
    }
    Ok(CommandOutput { yes: preview.is_unchanged(), text: printed(&preview, arguments.output) })
}

fn printed(preview: &Preview, output: Output) -> String {
    let names = || preview.objects.iter().map(ObjectPreview::title).collect();
    output.print(preview, names, |wide| preview.text(wide))
}

/// The error for a plan that is refused, or cannot be made because catalogs are not read: the preview is the result.
pub(crate) fn refused(preview: &Preview, output: Output) -> CommandError {
    let text = printed(preview, output);
    match preview.is_unanswered {
        true => CommandError::unanswered(text),
        false => CommandError::Verdict { text: text.trim_end().to_owned(), help: None },
    }
}

/// Exit code 1 means that something differs, so an object that is not found cannot be 1.
pub(crate) fn beyond_one(failure: CommandError) -> CommandError {
    match failure {
        CommandError::NotFound(text) => CommandError::Usage(text),
        other => other,
    }
}

/// The extension to plan for, and the account of the extension in the cluster.
async fn planned(
    arguments: &Arguments,
    client: &Client,
) -> Result<(ClusterExtension, Option<Account>), CommandError> {
    let (mut extension, account) = match (&arguments.file, &arguments.name) {
        (Some(file), _) => {
            let mut extension = extensions::from_file(file)?;
            let present = extensions::find(client, &extension.name_any()).await?;
            let account = present.as_ref().and_then(Account::from_extension);
            if let Some(present) = present {
                extension.metadata.uid = present.metadata.uid;
                extension.status = present.status;
            }
            (extension, account)
        }
        (None, name) => {
            let extension = extensions::named(client, name.as_deref().unwrap_or_default()).await?;
            (extension.clone(), Account::from_extension(&extension))
        }
    };
    arguments.changes.apply(&mut extension)?;
    Ok((extension, account))
}

async fn preview(arguments: &Arguments) -> Result<Preview, CommandError> {
    let client = arguments.sources.cluster.client().await?;
    let (extension, account) = planned(arguments, &client).await?;
    let flags = (arguments.controller, arguments.rendering);
    preview_of(&client, &extension, account.as_ref(), flags, &arguments.sources).await
}

/// The preview of the controller's plan. `account` is that of the extension as it is in the cluster.
pub(crate) async fn preview_of(
    client: &Client,
    extension: &ClusterExtension,
    account: Option<&Account>,
    flags: (Controller, Rendering),
    sources: &Sources,
) -> Result<Preview, CommandError> {
    let made = made(client, extension, account, flags, sources).await?;
    let Made { mut preview, plan, mut kinds, request, own, release } = made;
    let (Some(Plan { change, digest, .. }), Some(request)) = (plan, request) else { return Ok(preview) };
    let action = match &change {
        // Secrets that the user may not read seem to be missing
        Change::Keep | Change::Restore(_) => RevisionAction::Keep,
        Change::Update(_) => RevisionAction::Update,
        Change::Create(_) => RevisionAction::Create,
    };
    preview.action = preview.refused.is_empty().then_some(action);
    let Change::Create(new) = change else {
        let Some(unfinished) = revision::newest(&own).filter(|set| is_unfinished(set)).cloned() else {
            preview.to = preview.from.clone();
            return Ok(preview);
        };
        preview.to = Some(side(&revision::facts(&unfinished).bundle, unfinished.spec.revision));
        preview.unfinished = Some(message(&unfinished));
        let stored = extensions::objects(client, &unfinished).await;
        let content = match stored {
            Ok(objects) => Content { objects, keys: Vec::new(), revision: own_revision(&unfinished) },
            Err(error) => {
                let text = format!("the objects of {} were not checked: {error}", unfinished.name_any());
                preview.warnings.push(text);
                return Ok(preview);
            }
        };
        let others: Vec<_> = own.into_iter().filter(|set| set.uid() != unfinished.uid()).collect();
        let current = current(client, &others, None, &mut preview).await;
        dry_run(client, &mut kinds, &request, &others, current, content, &mut preview).await?;
        return Ok(preview);
    };
    let digest = digest.map(|digest| digest.to_string());
    preview.to = Some(Side {
        digest,
        ..side(&revision::facts(&new.revision.set).bundle, new.revision.set.spec.revision)
    });
    let current = current(client, &own, release, &mut preview).await;
    let content = Content {
        revision: future_revision(&request.name, new.revision.set.spec.revision),
        objects: new.phases.into_iter().flat_map(|phase| phase.objects).collect(),
        keys: new
            .revision
            .packed
            .phases
            .into_iter()
            .flat_map(|phase| phase.objects)
            .map(|found| found.key)
            .collect(),
    };
    dry_run(client, &mut kinds, &request, &own, current, content, &mut preview).await?;
    Ok(preview)
}

/// Whether the revision is in force and was never rolled out completely.
fn is_unfinished(set: &ClusterObjectSet) -> bool {
    revision::is_active(set) && !revision::has_succeeded(set)
}

/// The reason for which a revision is not rolled out, one line: of its conditions the one that names an object.
fn message(set: &ClusterObjectSet) -> String {
    let facts = revision::facts(set);
    let found = |type_: &str, reason: &str| facts.condition(type_).filter(|found| found.reason == reason);
    let found = found(condition::AVAILABLE, reason::PROBE_FAILURE)
        .or_else(|| facts.condition(condition::PROGRESSING));
    let line = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    found.map_or_else(|| "it has no conditions yet".to_owned(), |found| line(&found.message))
}

fn own_revision(set: &ClusterObjectSet) -> Revision {
    let extension = set.labels().get(labels::OWNER_NAME).cloned().unwrap_or_default();
    let future = future_revision(&extension, set.spec.revision);
    Revision { name: set.name_any(), uid: set.uid().unwrap_or_default(), ..future }
}

/// The controller's plan for an extension, made with the rights of the user.
pub(crate) struct Made {
    /// The resolution, and what the checks reject or warn about.
    pub(crate) preview: Preview,
    /// `None` when there is no bundle to plan for, or a check refused it.
    pub(crate) plan: Option<Plan>,
    kinds: Kinds,
    request: Option<ExtensionRequest>,
    /// The revisions of the extension.
    own: Vec<Arc<ClusterObjectSet>>,
    /// The Helm release that the first of them is made from.
    release: Option<InstalledRelease>,
}

/// Makes the plan. `account` is that of the extension as it is in the cluster.
pub(crate) async fn made(
    client: &Client,
    extension: &ClusterExtension,
    account: Option<&Account>,
    (controller, rendering): (Controller, Rendering),
    sources: &Sources,
) -> Result<Made, CommandError> {
    let all = extensions::revisions(client, Some(&extension.name_any())).await?;
    let mut own: Vec<Arc<ClusterObjectSet>> =
        extensions::revisions_of(extension, &all).map(|set| Arc::new(set.clone())).collect();
    let mut adoption = Vec::new();
    let mut release = None;
    if let (true, Ok(request)) = (all.is_empty(), validate(extension)) {
        match release::read(client, SYSTEM_NAMESPACE, &request).await {
            Ok(found) => release = found,
            Err(error) if error.class == Class::Transient => {
                let why = in_words(&error.message);
                adoption.push(format!("Helm releases of the reference were not looked for: {why}"));
            }
            Err(error) => {
                let extension = extension.name_any();
                let preview = Preview { extension, refused: vec![error.message], ..Preview::default() };
                return Ok(Made {
                    preview,
                    plan: None,
                    kinds: Kinds::new(client),
                    request: None,
                    own,
                    release,
                });
            }
        }
    }
    if let Some(found) = &release {
        own.push(Arc::new(adopted(found)));
        adoption.push(format!(
            "bundle {} was installed through the Helm release in Secret {SYSTEM_NAMESPACE}/{}; revision {} takes its objects over \
             before",
            found.bundle.name,
            found.secret,
            found.revision.set.name_any()
        ));
    }
    let states = revision::states(own.iter().map(AsRef::as_ref));
    let decided = decide(extension, Some(states.clone()), None, controller, sources).await?;
    let mut preview = Preview {
        extension: extension.name_any(),
        from: states.upgraded().map(|installed| side(&installed.bundle, installed.number)),
        ..resolution(&decided.explained)
    };
    preview.warnings.extend(adoption);
    let kinds = Kinds::new(client);
    let (Some(request), Some(target)) = (decided.request, &decided.target) else {
        return Ok(Made { preview, plan: None, kinds, request: None, own, release });
    };
    let due = |chosen| dependencies::are_due(chosen, target.bundle(), &states);
    if decided.resolution.as_ref().is_some_and(due) {
        preview.refused.extend(decided.explained.unmet.clone());
    }
    if request.paused {
        preview
            .warnings
            .push("the extension is paused; --resume shows the plan without the pause".to_owned());
    }
    let settings = rendering.settings();
    let mut observer = UserObserver {
        client,
        settings,
        kinds,
        access: BundleAccess::from_sources(sources),
        request: &request,
        revisions: &own,
        is_same_account: account == Account::from_request(&request).as_ref(),
        refused: Vec::new(),
        warnings: Vec::new(),
        failure: None,
    };
    let system = system_namespace(&own);
    let recorded = issuer::recorded(extension);
    let observed = observe(&mut observer, settings, &system, &request, target, &own, recorded).await;
    let UserObserver { kinds, refused, warnings, failure, .. } = observer;
    preview.refused.extend(refused);
    preview.warnings.extend(warnings);
    let planned =
        observed.and_then(|observed| plan(&request, observed).map_err(|error| about(target.bundle(), error)));
    let plan = match planned {
        Ok(plan) => Some(plan),
        Err(error) if error.class == Class::Transient => {
            return Err(failure.unwrap_or(CommandError::Unreachable(error.message)));
        }
        Err(error) => {
            preview.refused.push(error.message);
            None
        }
    };
    let notices = plan.iter().flat_map(|plan| &plan.notices).filter(|notice| notice.warning);
    preview.warnings.extend(notices.map(|notice| notice.text.clone()));
    Ok(Made { preview, plan, kinds, request: Some(request), own, release })
}

/// The revision that adopts a release, as it will be.
pub(crate) fn adopted(release: &InstalledRelease) -> ClusterObjectSet {
    let mut set = release.revision.set.clone();
    let (true_, generation) = (ConditionStatus::True, Some(1));
    let reason = reason::SUCCEEDED;
    let succeeded =
        Condition::new(condition::SUCCEEDED, true_, reason, "", generation, Timestamp::UNIX_EPOCH);
    set.status.get_or_insert_default().conditions.push(succeeded);
    set
}

/// The objects of the active revisions. One that adopts a release has no Secrets yet.
async fn current(
    client: &Client,
    own: &[Arc<ClusterObjectSet>],
    release: Option<InstalledRelease>,
    preview: &mut Preview,
) -> Vec<Object> {
    if let Some(release) = release {
        return release.objects;
    }
    let mut current = Vec::new();
    let mut reader = ContentReader::new(client, SYSTEM_NAMESPACE);
    for set in own.iter().filter(|set| revision::is_active(set)) {
        match reader.objects(set).await {
            Ok(objects) => current.extend(objects),
            Err(error) => {
                let (name, why) = (set.name_any(), in_words(&chain(&error)));
                preview.warnings.push(format!(
                    "the objects of {name} were not read, so its rights and images count as new, and what is removed is missing: {why}"
                ));
            }
        }
    }
    current
}

/// The content of a revision that is rolled out.
struct Content {
    revision: Revision,
    /// Its objects, in the order of the rollout.
    objects: Vec<Object>,
    /// The keys of the objects in its Secrets, as far as they are known.
    keys: Vec<String>,
}

/// Compares the objects of a revision with `current` ones, and sends them as dry runs.
async fn dry_run(
    client: &Client,
    kinds: &mut Kinds,
    request: &ExtensionRequest,
    others: &[Arc<ClusterObjectSet>],
    current: Vec<Object>,
    content: Content,
    preview: &mut Preview,
) -> Result<(), CommandError> {
    let Content { revision, objects: desired, keys } = content;
    preview.compare(&current, &desired);
    let dry_run = DryRun {
        client,
        extension: &request.name,
        uid: &request.uid,
        revision,
        siblings: others.iter().map(|set| sibling(set)).collect(),
    };
    let mut applied = dry_run.apply(kinds, &desired).await;
    for (object, key) in applied.iter_mut().zip(keys) {
        object.hash = Some(key);
    }
    preview.add(applied);
    let mut identities: BTreeSet<_> = desired.iter().map(|object| identity(&object.key())).collect();
    let removed: Vec<Object> =
        current.into_iter().filter(|object| identities.insert(identity(&object.key()))).collect();
    preview.add(dry_run.remove(kinds, &removed).await);
    Ok(())
}

fn resolution(explained: &Explained) -> Preview {
    let because = explained.chosen.as_ref().map(|chosen| match &chosen.catalog {
        Some(catalog) => format!("{} (catalog {catalog})", chosen.why),
        None => chosen.why.clone(),
    });
    let path = explained.report.as_ref().and_then(|report| report.upgrade_path.as_ref());
    let steps = path.into_iter().flatten();
    Preview {
        because,
        path: steps.map(|step| format!("{} ({} in {})", step.version, step.by, step.channel)).collect(),
        refused: explained.error.iter().cloned().collect(),
        unread: explained.unread.clone(),
        is_unanswered: explained.is_unanswered,
        notices: explained.notices.clone(),
        warnings: explained
            .deprecations
            .iter()
            .map(|text| format!("deprecated: {text}"))
            .chain(explained.skipped.clone())
            .collect(),
        ..Preview::default()
    }
}

fn side(bundle: &BundleFacts, revision: i64) -> Side {
    Side {
        bundle: bundle.name.clone(),
        version: bundle.version.clone(),
        image: bundle.reference.clone(),
        digest: None,
        revision,
    }
}

/// The namespace of the Secrets of the newest revision.
fn system_namespace(own: &[Arc<ClusterObjectSet>]) -> String {
    let newest = revision::newest(own).into_iter();
    let entries = newest.flat_map(|set| &set.spec.phases).flat_map(|phase| &phase.objects);
    let mut keys = entries.filter_map(|entry| secret_key(entry, SYSTEM_NAMESPACE));
    keys.next().map_or_else(|| SYSTEM_NAMESPACE.to_owned(), |(namespace, _)| namespace)
}

/// Observes with the rights of the user. A rejection by a check is collected, so that the preview shows all of them; a check that
/// the user may not make is a warning.
struct UserObserver<'a> {
    client: &'a Client,
    settings: RenderSettings,
    kinds: Kinds,
    access: BundleAccess,
    request: &'a ExtensionRequest,
    revisions: &'a [Arc<ClusterObjectSet>],
    /// Whether the request names the account that the extension in the cluster names.
    is_same_account: bool,
    refused: Vec<String>,
    warnings: Vec<String>,
    /// The cache of bundles cannot be opened.
    failure: Option<CommandError>,
}

impl Observer for UserObserver<'_> {
    /// What cannot be read is not recorded: the content is compared then.
    async fn recorded_inputs(&mut self, newest: &ClusterObjectSet) -> Result<Option<String>, PassError> {
        let mut entries = newest.spec.phases.iter().flat_map(|phase| &phase.objects);
        let key = entries.find_map(|entry| secret_key(entry, SYSTEM_NAMESPACE));
        let Some((namespace, name)) = key.filter(|_| self.is_same_account) else { return Ok(None) };
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        let secret = secrets.get_metadata(&name).await.ok();
        Ok(secret.and_then(|secret| secret.annotations().get(annotations::RENDER_INPUTS).cloned()))
    }

    async fn render(
        &mut self,
        bundle: &BundleFacts,
        settled: Option<CertProvider>,
        _: &str,
    ) -> Result<Rendered, PassError> {
        let (client, settings) = (self.client, self.settings);
        let rendered = self.access.render(client, settings, self.request, &bundle.reference, settled).await;
        rendered.unwrap_or_else(|failure| {
            let error = PassError::new(Class::Transient, failure.to_string());
            self.failure = Some(failure);
            Err(error)
        })
    }

    async fn check_crds(
        &mut self,
        bundle: &BundleFacts,
        rendered: &Arc<Rendered>,
    ) -> Result<Checked, PassError> {
        let settings = preflight::Settings { existing_objects: true };
        let request = self.request;
        let checked =
            preflight::check(self.client, &NoCache, settings, request, bundle, rendered, self.revisions)
                .await;
        Ok(checked.unwrap_or_else(|error| {
            if error.cause == Cause::CrdSafety {
                self.refused.push(error.message);
            } else {
                self.warnings.push(format!("CRDs were not checked: {}", in_words(&error.message)));
            }
            Checked::default()
        }))
    }

    async fn check_account(&mut self, bundle: &BundleFacts, objects: &[Object]) -> Result<(), PassError> {
        let Some(account) = Account::from_request(self.request) else { return Ok(()) };
        let (mut served, mut unknown) = (HashMap::new(), BTreeSet::new());
        for object in objects {
            match self.kinds.served(object).await {
                Ok(kind) => served.extend(kind.map(|kind| (object.key(), kind))),
                Err(why) => {
                    unknown.insert(format!("rights were not checked: {}", in_words(&why)));
                }
            }
        }
        self.warnings.extend(unknown);
        let checked = match account.exists(self.client).await {
            Ok(exists) => {
                let name = &self.request.name;
                account::check(self.client, name, &account, exists, bundle, objects, &served).await
            }
            Err(error) => Err(account::unreadable(&account, &error)),
        };
        if let Err(error) = checked {
            if error.class == Class::Transient {
                let why = in_words(&error.message);
                self.warnings.push(format!("the ServiceAccount was not checked: {why}"));
            } else {
                self.refused.push(error.message);
            }
        }
        Ok(())
    }
}
