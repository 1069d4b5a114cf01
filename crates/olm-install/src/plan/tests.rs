use serde_json::{Value, json};

use super::*;
use crate::render::UserRoles;
use crate::resolution::{Class, validate};

const SYSTEM: &str = "olmv1-system";

fn request(annotations: Value, deadline: Value) -> ExtensionRequest {
    let extension = serde_json::from_value(json!({
        "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension",
        "metadata": {"name": "demo", "uid": "u1", "annotations": annotations},
        "spec": {"namespace": "demo", "progressDeadlineMinutes": deadline,
                 "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo"}}},
    }));
    validate(&extension.unwrap()).unwrap()
}

fn plain() -> ExtensionRequest {
    request(Value::Null, Value::Null)
}

fn paused() -> ExtensionRequest {
    request(json!({"olm.operatorframework.io/paused": "true"}), Value::Null)
}

fn bundle(version: &str) -> BundleFacts {
    BundleFacts {
        name: format!("demo.v{version}"),
        package: "demo".to_owned(),
        version: version.to_owned(),
        release: None,
        reference: format!("registry/demo:v{version}"),
    }
}

fn rendered(data: &str) -> Rendered {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "demo"}, "data": {"x": data}});
    Rendered {
        objects: vec![Object::from_value(map).unwrap()],
        properties: None,
        warnings: vec!["w".to_owned()],
        issuer: Some(CertProvider::BuiltIn),
        digest: format!("sha256:{}", "a".repeat(64)).parse().unwrap(),
        turn: None,
    }
}

fn content(data: &str) -> Content {
    Content::Rendered {
        rendered: rendered(data),
        crds: Checked { warnings: vec!["c".to_owned()], accepted: vec!["d".to_owned()] },
        inputs: "inputs".to_owned(),
        unrecorded: false,
    }
}

/// A revision of the version with the number as data.
fn revision(number: i64, version: &str, data: &str, state: &str) -> Arc<ClusterObjectSet> {
    let desired = Desired::new(&plain(), &bundle(version), None, rendered(data).objects).unwrap();
    let mut set = desired.numbered(number, SYSTEM).unwrap().set;
    set.spec.lifecycle_state = serde_json::from_value(json!(state)).unwrap();
    Arc::new(set)
}

fn active(number: i64, version: &str, data: &str) -> Arc<ClusterObjectSet> {
    revision(number, version, data, "Active")
}

fn archived(number: i64, version: &str, data: &str) -> Arc<ClusterObjectSet> {
    revision(number, version, data, "Archived")
}

fn made(
    request: &ExtensionRequest,
    target: &Target,
    content: Content,
    revisions: &[Arc<ClusterObjectSet>],
) -> Result<Plan, PassError> {
    let issuer = Some(CertProvider::BuiltIn);
    plan(request, Observed { revisions, target, system_namespace: SYSTEM, issuer, content })
}

/// The change in short, and the reasons of the notices.
fn short(plan: &Plan) -> (String, Vec<&'static str>) {
    let change = match &plan.change {
        Change::Keep => "keep".to_owned(),
        Change::Update(set) => format!("update {}", set.metadata.name.as_deref().unwrap_or_default()),
        Change::Restore(numbered) => {
            format!("restore {}", numbered.set.metadata.name.as_deref().unwrap_or_default())
        }
        Change::Create(new) => {
            let name = new.revision.set.metadata.name.as_deref().unwrap_or_default();
            format!("create {name}, expired {:?}", new.expired)
        }
    };
    (change, plan.notices.iter().map(|notice| notice.reason).collect())
}

#[test]
#[rustfmt::skip]
fn plan_keeps_updates_or_creates() {
    let chosen = |version| Target::Chosen(bundle(version));
    let same = || Content::Same { inputs: "inputs".to_owned() };
    let with_deadline = || request(Value::Null, json!(30));
    let moved = Target::Chosen(BundleFacts { reference: "registry/other:v1".to_owned(), ..bundle("1.0.0") });
    let warned = ["BundleWarning", "CRDUpgradeSafety", "CRDChangeAccepted"];
    let resolved = ["BundleWarning", "CRDUpgradeSafety", "CRDChangeAccepted", "Resolved"];
    let many: Vec<_> = (1..=7).map(|number| archived(number, "1.0.0", "1")).collect();
    for (case, request, target, content, revisions, change, reasons) in [
        ("first install", plain(), chosen("1.0.0"), content("1"), vec![], "create demo-1, expired []", &resolved[..]),
        ("same inputs", plain(), chosen("1.0.0"), same(), vec![active(1, "1.0.0", "1")], "keep", &[]),
        ("other image", plain(), moved, same(), vec![active(1, "1.0.0", "1")], "keep", &["ImageIgnored"]),
        ("deadline", with_deadline(), chosen("1.0.0"), same(), vec![active(1, "1.0.0", "1")], "update demo-1", &[]),
        ("same content", plain(), chosen("1.0.0"), content("1"), vec![active(1, "1.0.0", "1")], "keep", &warned),
        ("other settings", with_deadline(), chosen("1.0.0"), content("1"), vec![active(1, "1.0.0", "1")], "update demo-1", &warned),
        ("other content", plain(), chosen("1.0.0"), content("2"), vec![active(1, "1.0.0", "1")], "create demo-2, expired []", &resolved),
        ("upgrade", plain(), chosen("1.1.0"), content("2"), vec![archived(1, "1.0.0", "1"), active(2, "1.0.0", "2")],
            "create demo-3, expired []", &resolved),
        ("newest is archived by hand", plain(), chosen("1.0.0"), content("1"), vec![active(1, "1.0.0", "1"), archived(4, "1.0.0", "1")],
            "create demo-5, expired []", &resolved),
        ("old revisions expire", plain(), chosen("1.0.0"), content("2"), many, "create demo-8, expired [\"demo-1\", \"demo-2\"]",
            &resolved),
        ("no catalog", plain(), Target::Installed(bundle("1.0.0")), Content::Unread(PassError::new(Class::Transient, "no registry")),
            vec![active(1, "1.0.0", "1")], "keep", &["CatalogsUnavailable"]),
        ("no catalog, same settings", plain(), Target::Installed(bundle("1.0.0")), Content::Same { inputs: "inputs".to_owned() },
            vec![active(1, "1.0.0", "1")], "keep", &["CatalogsUnavailable"]),
        ("no catalog, other settings", plain(), Target::Installed(bundle("1.0.0")), content("2"), vec![active(1, "1.0.0", "1")],
            "create demo-2, expired []", &["BundleWarning", "CRDUpgradeSafety", "CRDChangeAccepted", "CatalogsUnavailable", "Resolved"]),
        ("other format, no registry", plain(), chosen("1.0.0"), Content::Unread(PassError::new(Class::Transient, "no registry")),
            vec![active(1, "1.0.0", "1")], "keep", &["BundleUnavailable"]),
        ("other format, no registry, deadline", with_deadline(), chosen("1.0.0"),
            Content::Unread(PassError::new(Class::Transient, "no registry")), vec![active(1, "1.0.0", "1")], "update demo-1",
            &["BundleUnavailable"]),
        ("no catalog, no registry, deadline, and the newest was archived by hand", with_deadline(), Target::Installed(bundle("1.0.0")),
            Content::Unread(PassError::new(Class::Transient, "no registry")), vec![active(1, "1.0.0", "1"), archived(2, "1.0.0", "2")],
            "keep", &["CatalogsUnavailable"]),
        ("paused", paused(), chosen("1.1.0"), Content::Unneeded, vec![active(1, "1.0.0", "1")], "keep", &[]),
        ("paused without a catalog", paused(), Target::Installed(bundle("1.0.0")), Content::Unneeded, vec![active(1, "1.0.0", "1")], "keep",
            &[]),
    ] {
        let plan = made(&request, &target, content, &revisions).unwrap();
        assert_eq!(short(&plan), (change.to_owned(), reasons.to_vec()), "{case}");
        assert_eq!(plan.issuer, Some(CertProvider::BuiltIn), "{case}");
    }
}

#[test]
fn plan_has_objects_and_inputs_of_a_new_revision() {
    let plan = made(&plain(), &Target::Chosen(bundle("1.0.0")), content("1"), &[]).unwrap();
    assert_eq!(plan.inputs.as_deref(), Some("inputs"));
    assert_eq!(plan.digest, Some(rendered("1").digest));
    let text = "bundle demo.v1.0.0 was chosen; revision demo-1 installs it";
    assert_eq!(plan.notices.last(), Some(&Notice::normal("Resolved", text)));
    let by_hand = [archived(1, "1.0.0", "1")];
    let again = made(&plain(), &Target::Chosen(bundle("1.0.0")), content("1"), &by_hand).unwrap();
    let text =
        "the last revision of bundle demo.v1.0.0 is no longer active; revision demo-2 rolls it out again";
    assert_eq!(again.notices.last(), Some(&Notice::normal("Resolved", text)));
    let Change::Create(new) = plan.change else { panic!("{:?}", plan.change) };
    let packed = new.revision.packed.phases.iter().map(|phase| (&phase.name, phase.objects.len()));
    let objects = new.phases.iter().map(|phase| (&phase.name, phase.objects.len()));
    assert!(packed.eq(objects.clone()), "{:?}", objects.collect::<Vec<_>>());
}

#[test]
fn plan_rejects_objects_that_do_not_fit() {
    let target = Target::Chosen(bundle("1.0.0"));
    let huge = "x".repeat(11 << 20);
    let error = made(&plain(), &target, content(&huge), &[]).unwrap_err();
    assert_eq!(error.class, Class::NeedsChange);
    let message = about(target.bundle(), error).message;
    let want =
        "error for resolved bundle \"demo.v1.0.0\" with version \"1.0.0\": packing objects into Secrets: ";
    assert!(message.starts_with(want), "{message}");
}

/// Answers as it was built, and records the calls.
struct Recorder {
    recorded: Option<String>,
    fails: &'static str,
    calls: Vec<&'static str>,
}

impl Recorder {
    fn call<T>(&mut self, name: &'static str, value: T) -> Result<T, PassError> {
        self.calls.push(name);
        // a registry may answer later, and what a check rejects stays rejected
        let class = if name == "render" { Class::Transient } else { Class::Blocked };
        if self.fails == name { Err(PassError::new(class, name)) } else { Ok(value) }
    }
}

impl Observer for Recorder {
    async fn recorded_inputs(&mut self, _: &ClusterObjectSet) -> Result<Option<String>, PassError> {
        let recorded = self.recorded.clone();
        self.call("recorded", recorded)
    }

    async fn render(
        &mut self,
        _: &BundleFacts,
        _: Option<CertProvider>,
        _: &str,
    ) -> Result<Rendered, PassError> {
        self.call("render", rendered("1"))
    }

    async fn check_crds(&mut self, _: &BundleFacts, _: &Arc<Rendered>) -> Result<Checked, PassError> {
        self.call("crds", Checked::default())
    }

    async fn check_account(&mut self, _: &BundleFacts, _: &[Object]) -> Result<(), PassError> {
        self.call("account", ())
    }
}

/// The Secrets of the newest revision are gone; its name and those of its Secrets stay, or there is a new revision.
#[tokio::test]
async fn plan_restores_missing_content() {
    let settings = RenderSettings::default();
    for (case, data, recorded, want) in [
        ("missing, the same content", "1", None, "restore demo-3"),
        ("there, of an older version of this program", "1", Some("x".to_owned()), "keep"),
        ("missing, other content", "2", None, "create demo-4, expired []"),
    ] {
        let mut observer = Recorder { recorded, fails: "", calls: Vec::new() };
        let (target, revisions) = (Target::Chosen(bundle("1.0.0")), [active(3, "1.0.0", data)]);
        let issuer = Some(CertProvider::BuiltIn);
        let request = plain();
        let observed = observe(&mut observer, settings, SYSTEM, &request, &target, &revisions, issuer).await;
        assert_eq!(short(&plan(&request, observed.unwrap()).unwrap()).0, want, "{case}");
    }
}

/// decision 36: it is recorded in clusters; with another text, all that is installed would be rendered again
#[test]
fn fingerprint_is_the_same_in_each_version() {
    let inputs = RenderSettings::default().fingerprint(&plain(), &bundle("1.0.0"), None);
    assert!(inputs.ends_with("37e22082da3af294176bb49673647390"), "{inputs}");
}

/// decision 47: the setting is one of the inputs, and its default changes no fingerprint
#[test]
fn user_roles_setting_is_one_of_the_inputs() {
    let of = |process: UserRoles, extension: Option<UserRoles>| {
        let request = ExtensionRequest { user_roles: extension, ..plain() };
        let settings = RenderSettings { user_roles: process, ..RenderSettings::default() };
        settings.fingerprint(&request, &bundle("1.0.0"), None)
    };
    let (none, aggregate) = (of(UserRoles::None, None), of(UserRoles::Aggregate, None));
    assert_ne!(none, aggregate);
    for (process, extension, want) in [
        (UserRoles::None, Some(UserRoles::Aggregate), &aggregate),
        (UserRoles::Aggregate, Some(UserRoles::None), &none),
        (UserRoles::Aggregate, Some(UserRoles::Aggregate), &aggregate),
    ] {
        assert_eq!(&of(process, extension), want, "{process} {extension:?}");
    }
}

#[tokio::test]
#[rustfmt::skip]
async fn observation_stops_at_what_decides() {
    let settings = RenderSettings::default();
    let inputs = settings.fingerprint(&plain(), &bundle("1.0.0"), Some(CertProvider::BuiltIn));
    let all = ["render", "crds", "account"];
    let chosen = || Target::Chosen(bundle("1.0.0"));
    let one = vec![active(1, "1.0.0", "1")];
    let about = "error for resolved bundle \"demo.v1.0.0\" with version \"1.0.0\": ";
    for (case, request, target, revisions, recorded, fails, calls, want) in [
        ("paused", paused(), chosen(), one.clone(), None, "", &[][..], Ok("unneeded")),
        ("no catalog", plain(), Target::Installed(bundle("1.0.0")), one.clone(), Some(inputs.clone()), "", &["recorded"], Ok("same")),
        ("no catalog, other settings", plain(), Target::Installed(bundle("1.0.0")), one.clone(), Some("x".to_owned()), "",
            &["recorded", "render", "crds", "account"], Ok("rendered")),
        ("no catalog and no registry", plain(), Target::Installed(bundle("1.0.0")), one.clone(), None, "render",
            &["recorded", "render"], Ok("unread")),
        ("no catalog and no registry, other settings", plain(), Target::Installed(bundle("1.0.0")), one.clone(), Some("x".to_owned()),
            "render", &["recorded", "render"], Err(format!("{about}render"))),
        ("no catalog and no registry, other format", plain(), Target::Installed(bundle("1.0.0")), one.clone(), Some(format!("0.{inputs}")),
            "render", &["recorded", "render"], Ok("unread")),
        ("no catalog and no registry, archived", plain(), Target::Installed(bundle("1.0.0")), vec![archived(1, "1.0.0", "1")], None,
            "render", &["render"], Ok("unread")),
        ("no catalog, and a change that a check rejects", plain(), Target::Installed(bundle("1.0.0")), one.clone(), Some("x".to_owned()),
            "crds", &["recorded", "render", "crds"], Err(format!("{about}crds"))),
        ("first install", plain(), chosen(), vec![], None, "", &all, Ok("rendered")),
        ("same inputs", plain(), chosen(), one.clone(), Some(inputs.clone()), "", &["recorded"], Ok("same")),
        ("other inputs", plain(), chosen(), one.clone(), Some("x".to_owned()), "", &["recorded", "render", "crds", "account"],
            Ok("rendered")),
        ("other inputs and no registry", plain(), chosen(), one.clone(), Some("x".to_owned()), "render", &["recorded", "render"],
            Err(format!("{about}render"))),
        ("other format", plain(), chosen(), one.clone(), Some(format!("0.{inputs}")), "", &["recorded", "render", "crds", "account"],
            Ok("rendered")),
        ("other format and no registry", plain(), chosen(), one.clone(), Some(format!("0.{inputs}")), "render", &["recorded", "render"],
            Ok("unread")),
        ("other format that a check rejects", plain(), chosen(), one.clone(), Some(format!("0.{inputs}")), "crds",
            &["recorded", "render", "crds"], Err(format!("{about}crds"))),
        ("upgrade", plain(), Target::Chosen(bundle("1.1.0")), one.clone(), None, "", &all, Ok("rendered")),
        ("archived", plain(), chosen(), vec![archived(1, "1.0.0", "1")], Some(inputs), "", &all, Ok("rendered")),
        ("unreadable", plain(), chosen(), one, None, "recorded", &["recorded"], Err("recorded".to_owned())),
        ("render", plain(), chosen(), vec![], None, "render", &all[..1], Err(format!("{about}render"))),
        ("CRDs", plain(), chosen(), vec![], None, "crds", &all[..2], Err(format!("{about}crds"))),
        ("account", plain(), chosen(), vec![], None, "account", &all, Err("account".to_owned())),
    ] {
        let mut observer = Recorder { recorded, fails, calls: Vec::new() };
        let issuer = Some(CertProvider::BuiltIn);
        let observed = observe(&mut observer, settings, SYSTEM, &request, &target, &revisions, issuer).await;
        let got = observed.map(|observed| match observed.content {
            Content::Unneeded => "unneeded",
            Content::Unread(_) => "unread",
            Content::Same { .. } => "same",
            Content::Rendered { .. } => "rendered",
        });
        assert_eq!(got.map_err(|error| error.message), want, "{case}");
        assert_eq!(observer.calls, calls, "{case}");
    }
}

#[tokio::test]
async fn plan_in_time_is_the_plan() {
    let target = Target::Chosen(bundle("1.0.0"));
    for (case, data) in [("small", "x".to_owned()), ("on a thread", "x".repeat(1 << 20))] {
        let observed = || Observed {
            revisions: &[],
            target: &target,
            system_namespace: SYSTEM,
            issuer: None,
            content: content(&data),
        };
        let here = plan(&plain(), observed()).unwrap();
        let in_time = plan_in_time(&plain(), observed()).await.unwrap().unwrap();
        let (Change::Create(here), Change::Create(in_time)) = (here.change, in_time.change) else {
            panic!("{case}")
        };
        assert_eq!(here.revision.packed, in_time.revision.packed, "{case}");
    }
}
