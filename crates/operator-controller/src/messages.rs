//! Tests of every message of conditions and events, rendered with names of 40 characters and held against the form of messages
//! (decision 33). The messages are made elsewhere, where the errors are.
//!
//! Each error is listed with all its variants: the compiler names one that is missing here. What the apiserver, a registry or the
//! author of a bundle writes into a message is short here; [`message::fit`] sees to the rest.

use std::io;

use k8s_openapi::jiff::Timestamp;
use kube::core::Status;
use olm_api::{Condition, ConditionStatus, annotations, condition, reason};
use olm_bundle::{ConfigError, ParseError, PropertiesError, RenderError, TargetsError, Unsupported};
use olm_core::{CatalogName, message, variants};
use olm_install::bundle::BundleError;
use olm_install::plan::about;
use olm_install::render::not_rendered;
use olm_install::resolution::{
    BundleFacts, Class, PassError, RevisionFacts, RevisionStates, UpgradeUpdate, refused, validate,
};
use olm_resolver::{Asked, CatalogReadError, Held, ResolveError, UnfitBundle, UnmetConstraint};
use olm_rollout::probe::ProbeResult;
use olm_rollout::schedule::Deadline;
use olm_rollout::status::{Facts, ObjectState, Outcome, PhaseState, condition_updates};
use olm_runtime::apply;
use olm_runtime::events::fitting_line;
use serde_json::json;

use crate::bundles::with_remedy;
use crate::extension::result::{PassResult, Progress, Trace};
use crate::extension::writer::WriteError;
use crate::extension::{events, status};
use crate::kinds::KindError;
use crate::objectset::IdentityError;

/// A name of 40 characters.
fn name(letter: &str) -> String {
    letter.repeat(40)
}

fn image() -> String {
    format!("registry.example.com/{}:v1", name("i"))
}

fn bundle(version: &str) -> BundleFacts {
    BundleFacts {
        name: name("b"),
        package: name("p"),
        version: version.to_owned(),
        release: None,
        reference: image(),
    }
}

fn kube_error() -> kube::Error {
    let message = format!("clusterobjectsets.olm.operatorframework.io {:?} is forbidden", name("o"));
    kube::Error::Api(Status { code: 403, reason: "Forbidden".into(), message, ..Status::default() }.boxed())
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

fn unmet() -> Vec<UnmetConstraint> {
    variants!(UnmetConstraint:
        UnmetConstraint::Version { .. } =>
            UnmetConstraint::Version { lowest: parsed("1.40.0"), cluster: parsed("v1.33.1") },
        UnmetConstraint::Api(_) => UnmetConstraint::Api(olm_resolver::GvkRef {
            group: format!("{}.io", "g".repeat(37)).into(), version: "v1".into(), kind: "K".repeat(40).into(),
        }),
    )
}

fn unresolved() -> Vec<PassError> {
    let asked = |installed: bool| {
        Box::new(Asked {
            package: parsed(&name("p")),
            range: Some(">=1.0.0 <2.0.0".to_owned()),
            channels: vec![parsed(&name("c"))],
            installed: installed.then(|| parsed("1.0.0")),
        })
    };
    let catalogs = || -> Vec<CatalogName> { vec![parsed(&name("d")), parsed(&name("e"))] };
    let unread = variants!(CatalogReadError:
        CatalogReadError::NotServing => CatalogReadError::NotServing,
        CatalogReadError::NotCached => CatalogReadError::NotCached,
        CatalogReadError::Fetch(_) => CatalogReadError::Fetch("connection refused".to_owned()),
        CatalogReadError::Content(_) => CatalogReadError::Content("line 7 is no JSON".to_owned()),
        CatalogReadError::Other(_) => CatalogReadError::Other("another error".to_owned()),
    );
    let catalog = |problem: CatalogReadError| ResolveError::Catalog {
        package: parsed(&name("p")),
        catalog: parsed(&name("d")),
        problem,
        help: None,
    };
    let mut errors = variants!(ResolveError:
        ResolveError::Range { .. } => ResolveError::Range {
            text: ">=1.0.0 <bad".to_owned(),
            error: Box::new(olm_resolver::parse_range(">=1.0.0 <bad").map_err(|error| match error {
                ResolveError::Range { error, .. } => *error,
                other => unreachable!("{other}"),
            }).unwrap_err()),
        },
        ResolveError::Installed { .. } => ResolveError::Installed { text: "version \"x\" is invalid".to_owned() },
        ResolveError::Catalog { .. } => catalog(CatalogReadError::NotServing),
        ResolveError::NoMatch { .. } => ResolveError::NoMatch {
            asked: asked(true),
            help: Some("the only version is 1.7.1".to_owned()),
        },
        ResolveError::Ambiguous { .. } => ResolveError::Ambiguous { asked: asked(false), catalogs: catalogs() },
        ResolveError::Version { .. } => {
            ResolveError::Version { bundle: parsed(&name("b")), why: "no version property".to_owned() }
        },
        ResolveError::Environment { .. } => ResolveError::Environment {
            bundle: parsed(&name("b")), catalog: parsed(&name("d")), unmet: unmet(),
        },
        ResolveError::Dependency { .. } => {
            ResolveError::Dependency { bundle: parsed(&name("b")), property: "olm.gvk.required".to_owned() }
        },
    );
    errors.extend(unread.into_iter().map(catalog));
    errors.iter().map(refused).collect()
}

fn not_pulled() -> Vec<BundleError> {
    let digest = || parsed(&format!("sha256:{}", "0".repeat(64)));
    let unparsed = variants!(ParseError:
        ParseError::NoAnnotations => ParseError::NoAnnotations,
        ParseError::Annotations { .. } => ParseError::Annotations { message: "line 1 is no YAML".to_owned() },
        ParseError::NoManifests => ParseError::NoManifests,
        ParseError::SubDirectory { .. } => ParseError::SubDirectory { path: "manifests/sub".to_owned() },
        ParseError::Objects { .. } => ParseError::Objects {
            path: "manifests/csv.yaml".to_owned(), message: "line 7 is no YAML".to_owned(), more: vec![name("f")],
        },
        ParseError::NoCsv => ParseError::NoCsv,
        ParseError::SeveralCsvs { .. } => ParseError::SeveralCsvs { names: vec![name("v"), name("w")] },
        ParseError::Properties(_) => ParseError::Properties(
            PropertiesError::File { message: "line 1 is no list".to_owned() },
        ),
        ParseError::TooLarge { .. } => ParseError::TooLarge { limit: 7, what: "files" },
        ParseError::TooManyNodes { .. } => {
            ParseError::TooManyNodes { path: "manifests/csv.yaml".to_owned(), limit: 7 }
        },
        ParseError::Cancelled => ParseError::Cancelled,
        ParseError::Read { .. } => {
            ParseError::Read { path: "manifests/csv.yaml".to_owned(), source: io::Error::other("full") }
        },
    );
    let task = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        let task = tokio::spawn(std::future::pending::<()>());
        task.abort();
        task.await.unwrap_err()
    });
    let mut errors = variants!(BundleError:
        BundleError::Image(_) => BundleError::Image(olm_oci::Error::Cancelled),
        BundleError::Parse(_) => BundleError::Parse(ParseError::NoCsv),
        BundleError::Slow { .. } => BundleError::Slow { reference: image() },
        BundleError::SlowRead { .. } => BundleError::SlowRead { digest: digest() },
        BundleError::Quarantined { .. } => BundleError::quarantined(&digest(), 2, "now"),
        BundleError::Task(_) => BundleError::Task(task),
    );
    errors.extend(olm_oci::testing::errors(&image()).into_iter().map(BundleError::Image));
    errors.extend(unparsed.into_iter().map(BundleError::Parse));
    errors
}

fn not_made() -> Vec<RenderError> {
    let unsupported = variants!(Unsupported:
        Unsupported::ApiServices => Unsupported::ApiServices,
        Unsupported::Webhooks => Unsupported::Webhooks,
        Unsupported::NotAllNamespaces => Unsupported::NotAllNamespaces,
        Unsupported::NoInstallMode => Unsupported::NoInstallMode,
    );
    let findings = || (0..30).map(|at| format!("CSV {}: finding {at}", name("v"))).collect();
    let mut errors = variants!(RenderError:
        RenderError::Unsupported(_) => RenderError::Unsupported(Unsupported::Webhooks),
        RenderError::Config(_) => RenderError::Config(ConfigError::Invalid {
            detail: "required field \"watchNamespace\" is missing".to_owned(),
        }),
        RenderError::Invalid { .. } => RenderError::Invalid { findings: findings() },
        RenderError::Targets(_) => RenderError::Targets(TargetsError {
            targets: vec![name("n")], reason: "supported install modes [AllNamespaces] do not support it".to_owned(),
        }),
        RenderError::Generator(_) => RenderError::Generator(format!("Service {}: no port", name("s"))),
        RenderError::Duplicate { .. } => RenderError::Duplicate {
            object: format!("v1, Kind=Service {}/{}", name("n"), name("s")),
            first: "the bundle",
            second: "the configuration",
        },
        RenderError::Cancelled => RenderError::Cancelled,
    );
    errors.extend(unsupported.into_iter().map(RenderError::Unsupported));
    errors
}

fn not_written() -> Vec<WriteError> {
    let object = || format!("Secret {}", name("s"));
    variants!(WriteError:
        WriteError::Retention(_) => WriteError::Retention(kube_error()),
        WriteError::Secret { .. } => WriteError::Secret { name: name("s"), source: kube_error() },
        WriteError::Foreign { .. } => WriteError::Foreign { name: name("s") },
        WriteError::Create(_) => WriteError::Create(kube_error()),
        WriteError::Update { .. } => WriteError::Update { name: name("r"), source: kube_error() },
        WriteError::Owner(_) => WriteError::Owner(kube_error()),
        WriteError::Read { .. } => WriteError::Read { object: object(), source: kube_error() },
        WriteError::Taken { .. } => WriteError::Taken { name: name("r") },
        WriteError::Unlabelled { .. } => WriteError::Unlabelled { name: name("r"), owner: name("e") },
        WriteError::Changed(_) => WriteError::Changed(object()),
    )
}

/// Specs that are refused.
fn invalid() -> Vec<PassError> {
    let annotated = |key: &str| json!({"metadata": {"annotations": {key: "invalid"}}});
    let catalog =
        |field: &str, value: serde_json::Value| json!({"spec": {"source": {"catalog": {field: value}}}});
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "None"}]});
    let changes = [
        json!({"metadata": {"name": "e".repeat(64)}}),
        json!({"spec": {"source": {"catalog": null}}}),
        catalog("packageName", json!("")),
        catalog("selector", selector),
        catalog("version", json!(">=1.0.0 <bad")),
        annotated(annotations::PAUSED),
        annotated(annotations::MAJOR_UPDATES),
        annotated(annotations::USER_ROLES),
        annotated(annotations::DEPENDENCY_CHECK),
        annotated(annotations::ACCEPT_CRD_CHANGE),
    ];
    let refused = |change: serde_json::Value| {
        let mut extension = json!({"apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension",
            "metadata": {"name": name("e")},
            "spec": {"namespace": name("n"), "source": {"sourceType": "Catalog", "catalog": {"packageName": name("p")}}}});
        merge(&mut extension, change);
        validate(&serde_json::from_value(extension).unwrap()).unwrap_err()
    };
    changes.into_iter().map(refused).collect()
}

fn merge(into: &mut serde_json::Value, change: serde_json::Value) {
    match (into.as_object_mut(), change) {
        (Some(into), serde_json::Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key).or_insert(serde_json::Value::Null), value);
            }
        }
        (_, change) => *into = change,
    }
}

/// What stops a pass, by the step.
fn failures() -> Vec<(&'static str, PassError)> {
    let chosen = |error: PassError| about(&bundle("1.2.3"), error);
    let row = |step: &'static str| move |error: PassError| (step, error);
    let pulled = not_pulled().iter().map(with_remedy).collect::<Vec<_>>();
    let made = not_made().iter().map(not_rendered).collect::<Vec<_>>();
    let written: Vec<_> =
        not_written().iter().map(|error| PassError::new(Class::Transient, error.to_string())).collect();
    let mut all: Vec<_> = invalid().into_iter().map(row("spec")).collect();
    all.extend(unresolved().into_iter().map(row("resolution")));
    all.extend(pulled.into_iter().map(chosen).map(row("bundle")));
    all.extend(made.into_iter().map(chosen).map(row("rendering")));
    all.extend(written.into_iter().map(row("revision")));
    all
}

/// Outcomes of a pass over a revision.
fn outcomes() -> Vec<Outcome> {
    let object = |letter: &str| ObjectState {
        title: format!("Deployment.apps/v1 {}/{}", name("n"), name(letter)),
        progressed: false,
        settled: true,
        verdict: ProbeResult::no("0 of 1 replicas available"),
    };
    let unreadable = variants!(IdentityError:
        IdentityError::NoExtension(_) => {
            IdentityError::NoExtension(format!("ClusterExtension {} does not exist", name("e")))
        },
        IdentityError::Failed(_) => IdentityError::Failed(apply::message(&kube_error())),
    );
    let unserved = variants!(KindError:
        KindError::NoMatch { .. } => {
            KindError::NoMatch { kind: "K".repeat(40), api_version: format!("{}/v1", name("g")) }
        },
        KindError::Unreachable(_) => KindError::Unreachable("connection refused".to_owned()),
    );
    let mut all = variants!(Outcome:
        Outcome::Blocked(_) => Outcome::Blocked("content has changed".to_owned()),
        Outcome::Failed(_) => Outcome::Failed(apply::message(&kube_error())),
        Outcome::Refused(_) => Outcome::Refused("Deployment n/x belongs to another".to_owned()),
        Outcome::Processed { .. } => Outcome::Processed {
            phases: (0..30).map(|_| PhaseState { objects: vec![object("x"), object("y")] }).collect(), total: 31,
        },
        Outcome::Removing(_) => Outcome::Removing(Some(format!("waiting for 2 {}.{}", name("k"), name("g")))),
        Outcome::RemovalFailed(_) => Outcome::RemovalFailed(format!("error removing revision: {}", apply::message(&kube_error()))),
        Outcome::Archived => Outcome::Archived,
    );
    all.push(Outcome::Processed { phases: Vec::new(), total: 0 });
    all.push(Outcome::Processed { phases: Vec::new(), total: 1 });
    all.push(Outcome::Removing(None));
    all.extend(unreadable.iter().map(|error| Outcome::Failed(error.to_string())));
    all.extend(unserved.iter().map(|error| Outcome::Failed(format!("establish watch: {error}"))));
    all
}

/// The conditions of a revision after each outcome.
fn revision_messages() -> Vec<(String, String)> {
    let mut all = Vec::new();
    let deadlines = variants!(Deadline:
        Deadline::None => Deadline::None,
        Deadline::Ahead(_) => Deadline::Ahead(std::time::Duration::from_secs(1)),
        Deadline::Passed { .. } => Deadline::Passed { minutes: 10 },
    );
    for outcome in outcomes() {
        for deadline in &deadlines {
            let facts = Facts { version: "1.2.3", had_available: true, deadline: *deadline };
            let updates = condition_updates(&outcome, facts).into_iter();
            all.extend(updates.map(|it| (format!("revision {}/{}", it.condition, it.reason), it.message)));
        }
    }
    all
}

fn revision(number: i64, version: &str, conditions: &[(&str, ConditionStatus, &str, &str)]) -> RevisionFacts {
    let made = |(type_, status, reason, text): &(&str, ConditionStatus, &str, &str)| {
        Condition::new(type_, *status, reason, *text, Some(1), Timestamp::UNIX_EPOCH)
    };
    RevisionFacts {
        name: format!("{}-{number}", name("e")),
        number,
        bundle: bundle(version),
        conditions: conditions.iter().map(made).collect(),
    }
}

/// States of an extension: revisions and the last step.
fn states() -> Vec<(Vec<RevisionFacts>, Progress)> {
    use ConditionStatus::{False, True};
    let applied = |version: &str| Progress::Applied { target: bundle(version), issuer: None };
    let cause = format!(
        "Object Deployment.apps/v1 {}/{}: .status.condition[\"Available\"] is False; 0 of 1 replicas available: ImagePullBackOff",
        name("n"),
        name("x")
    );
    let done = |available: (ConditionStatus, &str, &str)| {
        let (status, reason, text) = available;
        revision(
            1,
            "1.2.3",
            &[
                (condition::SUCCEEDED, True, reason::SUCCEEDED, "Revision succeeded rolling out."),
                (condition::AVAILABLE, status, reason, text),
                (condition::PROGRESSING, True, reason::SUCCEEDED, "Revision 1.2.3 has rolled out."),
            ],
        )
    };
    let fine = || done((True, reason::PROBES_SUCCEEDED, "Objects are available and pass all probes."));
    let rolling = |status, reason| {
        revision(
            2,
            "2.0.0",
            &[
                (condition::AVAILABLE, False, reason::PROBE_FAILURE, &cause),
                (condition::PROGRESSING, status, reason, "Revision 2.0.0 is rolling out."),
            ],
        )
    };
    let held = format!("uninstalling: waiting for revisions {}-1 to be torn down", name("e"));
    let progress = variants!(Progress:
        Progress::Invalid(_) => Progress::Invalid(invalid().remove(0)),
        Progress::Failed(_) => Progress::Failed(unresolved().remove(0)),
        Progress::Applied { .. } => applied("1.2.3"),
        Progress::Paused => Progress::Paused,
        Progress::Uninstalling { .. } => Progress::Uninstalling { message: held, obstacle: None },
    );
    let mut all: Vec<_> = progress.into_iter().map(|progress| (vec![fine()], progress)).collect();
    all.push((vec![fine(), rolling(True, reason::ROLLING_OUT)], applied("2.0.0")));
    all.push((vec![rolling(True, reason::ROLLING_OUT)], applied("2.0.0")));
    all.push((vec![rolling(True, reason::RETRYING)], applied("2.0.0")));
    all.push((vec![rolling(False, reason::BLOCKED)], applied("2.0.0")));
    all.push((vec![revision(1, "1.2.3", &[])], applied("1.2.3")));
    all.push((vec![fine()], applied("2.0.0")));
    all.push((vec![done((False, reason::PROBE_FAILURE, &cause))], applied("1.2.3")));
    all.extend(failures().into_iter().map(|(_, error)| (vec![fine()], Progress::Failed(error))));
    all
}

/// The conditions and events of an extension in each state.
fn extension_messages() -> Vec<(String, String)> {
    let bundle = || (parsed(&name("d")), parsed(&name("b")), parsed("2.0.0"));
    let upgrade = || {
        let ((catalog, bundle, version), (other, skipped, lower)) = (bundle(), bundle());
        let unfit = UnfitBundle { catalog: other, bundle: skipped, version: lower, unmet: unmet() };
        let held = Some(Held { catalog, bundle, version });
        UpgradeUpdate { held, unfit: Some(unfit), ..UpgradeUpdate::NONE }
    };
    let unfit = || {
        let (catalog, bundle, version) = bundle();
        let unfit = Some(UnfitBundle { catalog, bundle, version, unmet: unmet() });
        UpgradeUpdate { unfit, ..UpgradeUpdate::NONE }
    };
    let mut all = Vec::new();
    for (at, (revisions, progress)) in states().into_iter().enumerate() {
        let result = PassResult {
            upgrade: if at % 2 == 0 { upgrade() } else { unfit() },
            ..PassResult::unchanged(RevisionStates::split(revisions), progress)
        };
        let after = status::derive(&result, None, 1, false, Timestamp::UNIX_EPOCH);
        let emitted = events::events(None, &after, &result, Trace::default());
        all.extend(
            emitted
                .into_iter()
                .map(|event| (format!("event {}", event.note.reason), fitting_line(&event.note.text))),
        );
        // an available revision has nothing to report under other conditions
        let with_text = after.conditions.into_iter().filter(|found| !found.message.is_empty());
        all.extend(with_text.map(|found| (format!("{}/{}", found.type_, found.reason), found.message)));
    }
    all
}

#[test]
fn messages_of_conditions_and_events_keep_their_form() {
    let mut broken = Vec::new();
    let revisions = revision_messages().into_iter().map(|(about, text)| (about, message::fit(&text)));
    for (about, text) in extension_messages().into_iter().chain(revisions) {
        let violations = message::violations(&text);
        if !violations.is_empty() {
            broken.push(format!("{about} {}: {text}", violations.join(", ")));
        }
    }
    broken.sort();
    broken.dedup();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The texts that are too long for one line, with names of 40 characters: the reference's, and those around what a registry or
/// the apiserver writes.
#[test]
fn messages_that_need_shortening_are_listed() {
    let mut raw: Vec<(String, String)> =
        failures().into_iter().map(|(step, error)| (step.to_owned(), error.message)).collect();
    raw.extend(revision_messages());
    let mut long: Vec<String> = raw
        .into_iter()
        .filter(|(_, text)| message::first_line(text).chars().count() > message::MAX_FIRST_LINE)
        .map(|(step, text)| format!("{step}: {}", message::first_line(&message::fit(&text))))
        .collect();
    long.sort();
    long.dedup();
    insta::assert_snapshot!(long.join("\n"));
}
