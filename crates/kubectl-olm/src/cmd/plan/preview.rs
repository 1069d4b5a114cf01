//! The preview of a plan as a value, and its text. Pure.

use std::collections::BTreeMap;

use olm_core::Object;
use olm_rollout::permissions::{HandedOut, NewGrant, Scope, compact};
use serde::Serialize;
use serde_json::Value;

use crate::cmd::notices::Notice;
use crate::cmd::output::{bad, bold, good};
use crate::dry_run::{Action, Field, ObjectPreview};

/// Characters of a value in the table.
const MAX_VALUE: usize = 80;

/// The preview. `-o json` prints this.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Preview {
    pub(crate) extension: String,
    /// What the controller does with the newest revision; absent if it rejects the bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) action: Option<RevisionAction>,
    /// The installed bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<Side>,
    /// The bundle after the plan is executed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<Side>,
    /// The catalog, and the rule by which the bundle was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) because: Option<String>,
    /// The versions on the way to the newest matching one, the first step being this plan's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) path: Vec<String>,
    /// Why the newest revision, which the plan keeps, is not rolled out yet. Its objects are those of the dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unfinished: Option<String>,
    /// What blocks it: no bundle chosen, dependencies, CRDs, the ServiceAccount, admission, foreign objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) refused: Vec<String>,
    /// Objects, in the order of the rollout; the removed ones last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) objects: Vec<ObjectPreview>,
    /// Rights that the package does not grant now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) permissions: Vec<Grant>,
    /// Images that are new or changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) images: Vec<Image>,
    /// What is remarkable about the change of the version.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notices: Vec<Notice>,
    /// Findings that block nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
    /// Catalogs that could not be read, and why.
    #[serde(skip)]
    pub(crate) unread: Vec<String>,
    /// Whether there is no bundle to plan for because one of them has to be read first: that is no answer.
    #[serde(skip)]
    pub(crate) is_unanswered: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum RevisionAction {
    Keep,
    /// Its settings are changed.
    Update,
    Create,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Side {
    pub(crate) bundle: String,
    pub(crate) version: String,
    pub(crate) image: String,
    /// The digest of the image, if it was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
    /// Number of the revision that has it.
    pub(crate) revision: i64,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Grant {
    /// The account or group.
    to: String,
    /// The namespace; absent for the whole cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    /// The rights, as rules of a role.
    rules: Vec<Value>,
    /// Roles outside of the package.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    roles: Vec<String>,
}

/// An image of a container.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Image {
    container: String,
    /// Its present image, if it exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    old: Option<String>,
    /// Its image after the plan is executed.
    new: String,
}

impl Preview {
    pub(crate) fn is_unchanged(&self) -> bool {
        let number = |side: &Option<Side>| side.as_ref().map(|side| side.revision);
        self.refused.is_empty()
            && self.unfinished.is_none()
            && self.action != Some(RevisionAction::Update)
            && number(&self.from) == number(&self.to)
            && self.objects.iter().all(|object| object.action == Action::Same)
    }

    /// Compares the rights and images of the objects with the current ones.
    pub(crate) fn compare(&mut self, current: &[Object], desired: &[Object]) {
        self.permissions = grants(current, desired);
        self.images = images(current, desired);
    }

    pub(crate) fn add(&mut self, objects: Vec<ObjectPreview>) {
        for object in &objects {
            if object.action == Action::Refuse {
                self.refused.push(format!("{}: {}", object.title(), object.message));
            }
        }
        self.objects.extend(objects.into_iter().map(ObjectPreview::without_stamp));
    }

    /// The text; `wide` shows everything.
    pub(crate) fn text(&self, wide: bool) -> String {
        let mut text = String::new();
        let mut line =
            |name: &str, value: &str| text.push_str(&format!("{:<12} {value}\n", format!("{name}:")));
        line("Extension", &self.extension);
        for (name, side) in [("From", &self.from), ("To", &self.to)] {
            if let Some(side) = side {
                line(name, &format!("{} {} (revision {})", side.bundle, side.version, side.revision));
            }
        }
        if let Some(because) = &self.because {
            line("Because", because);
        }
        if self.path.len() > 1 {
            line("Path", &self.path.join(" -> "));
        }
        for notice in &self.notices {
            line(notice.kind.label(), &notice.text);
        }
        if let Some(unfinished) = &self.unfinished {
            line("Unfinished", unfinished);
        }
        for refused in &self.refused {
            line("Refused", &bad(refused));
        }
        for warning in &self.warnings {
            line("Warning", warning);
        }
        if self.is_unchanged() {
            text.push_str("\nNothing would change.\n");
            return text;
        }
        if self.action == Some(RevisionAction::Update) {
            text.push_str("\nThe settings of the revision change: annotations, probes or deadline.\n");
        }
        text.push_str(&objects(&self.objects, wide));
        if !self.permissions.is_empty() {
            text.push_str(&format!("\n{}\n", bold("New permissions")));
        }
        for grant in &self.permissions {
            let place = grant
                .namespace
                .as_ref()
                .map_or("everywhere".to_owned(), |place| format!("in namespace {place}"));
            text.push_str(&format!("  {}, {place}\n", grant.to));
            for rule in &grant.rules {
                text.push_str(&format!("    + {}\n", rule_text(rule)));
            }
            for role in &grant.roles {
                text.push_str(&format!("    + all that {role} allows\n"));
            }
        }
        if !self.images.is_empty() {
            text.push_str(&format!("\n{}\n", bold("Images")));
        }
        for image in &self.images {
            match &image.old {
                Some(old) => text.push_str(&format!("  {}: {old} -> {}\n", image.container, image.new)),
                None => text.push_str(&format!("  {}: {}\n", image.container, image.new)),
            }
        }
        text
    }
}

/// Objects with their fields; unchanged ones are only counted unless `wide`.
pub(crate) fn objects(all: &[ObjectPreview], wide: bool) -> String {
    let same = all.iter().filter(|object| object.action == Action::Same).count();
    let mut text = if all.is_empty() { String::new() } else { format!("\n{}\n", bold("Objects")) };
    for object in all {
        let (mark, word) = match object.action {
            Action::Add => (good("+"), ""),
            Action::Change => ("~".to_owned(), ""),
            Action::Remove => (bad("-"), ""),
            Action::Keep => ("=".to_owned(), " (is left behind)"),
            Action::Refuse => (bad("!"), " (refused)"),
            Action::Unknown => ("?".to_owned(), " (unknown)"),
            Action::Same if !wide => continue,
            Action::Same => (" ".to_owned(), ""),
        };
        text.push_str(&format!("  {mark} {}{word}\n", object.title()));
        if !object.message.is_empty() {
            text.push_str(&format!("      {}\n", object.message));
        }
        for field in &object.fields {
            text.push_str(&format!("      {}\n", field_text(field, wide)));
        }
    }
    if same > 0 && !wide {
        text.push_str(&format!("    {same} unchanged\n"));
    }
    text
}

fn field_text(field: &Field, wide: bool) -> String {
    let cut = |value: &Value| {
        let text = value.to_string();
        if wide || text.chars().count() <= MAX_VALUE {
            return text;
        }
        format!("{}…", text.chars().take(MAX_VALUE).collect::<String>())
    };
    match (&field.old, &field.new) {
        (Some(old), Some(new)) => format!("{}: {} -> {}", field.path, cut(old), cut(new)),
        (Some(old), None) => format!("- {}: {}", field.path, cut(old)),
        (None, Some(new)) => format!("+ {}: {}", field.path, cut(new)),
        (None, None) => field.path.clone(),
    }
}

fn rule_text(rule: &Value) -> String {
    let list = |key: &str| -> Vec<&str> {
        rule.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let verbs = list("verbs").join(",");
    let urls = list("nonResourceURLs");
    if !urls.is_empty() {
        return format!("{verbs} {}", urls.join(","));
    }
    let group = list("apiGroups").join(",");
    let group = if group.is_empty() { String::new() } else { format!(".{group}") };
    let names = list("resourceNames");
    let names = if names.is_empty() { String::new() } else { format!(" named {}", names.join(", ")) };
    let resources: Vec<String> =
        list("resources").iter().map(|resource| format!("{resource}{group}")).collect();
    format!("{verbs} {}{names}", resources.join(","))
}

fn grants(current: &[Object], desired: &[Object]) -> Vec<Grant> {
    let new = HandedOut::by(desired).beyond(&HandedOut::by(current));
    let grant = |((to, scope), grants): ((String, Scope), _)| {
        let grants: std::collections::BTreeSet<NewGrant> = grants;
        let (mut rights, mut roles) = (Vec::new(), Vec::new());
        for grant in &grants {
            match grant {
                NewGrant::Right(right) => rights.push(right),
                NewGrant::Role(role) => roles.push(role.clone()),
            }
        }
        let rules = compact(rights).iter().map(olm_rollout::permissions::Rule::to_value).collect();
        let namespace = match scope {
            Scope::Cluster => None,
            Scope::Namespace(namespace) => Some(namespace),
        };
        Grant { to, namespace, rules, roles }
    };
    new.into_iter().map(grant).collect()
}

fn images(current: &[Object], desired: &[Object]) -> Vec<Image> {
    let old: BTreeMap<String, String> = olm_rollout::images(current);
    let changed =
        olm_rollout::images(desired).into_iter().filter(|(container, new)| old.get(container) != Some(new));
    changed.map(|(container, new)| Image { old: old.get(&container).cloned(), container, new }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cmd::notices::NoticeKind;

    fn object(value: Value) -> Object {
        Object::from_value(value).unwrap()
    }

    fn content(image: &str, verbs: Value) -> Vec<Object> {
        let rbac = |kind: &str, name: &str, more: Value| {
            let mut whole = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}});
            whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            object(whole)
        };
        vec![
            rbac(
                "ClusterRole",
                "r",
                json!({"rules": [{"apiGroups": ["", "apps"], "resources": ["pods", "deployments"], "verbs": verbs},
                {"nonResourceURLs": ["/metrics"], "verbs": verbs}]}),
            ),
            rbac(
                "ClusterRoleBinding",
                "r",
                json!({"roleRef": {"kind": "ClusterRole", "name": "r"},
                "subjects": [{"kind": "ServiceAccount", "namespace": "demo", "name": "demo-sa"}]}),
            ),
            object(
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "ctrl", "namespace": "demo"},
                "spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}}),
            ),
        ]
    }

    fn upgrade() -> Preview {
        let side = |version: &str, revision| Side {
            bundle: format!("demo.v{version}"),
            version: version.to_owned(),
            image: format!("registry/demo:v{version}"),
            digest: None,
            revision,
        };
        let mut preview = Preview {
            extension: "demo".to_owned(),
            action: Some(RevisionAction::Create),
            from: Some(side("1.0.0", 1)),
            to: Some(side("1.1.0", 2)),
            because: Some("replaces demo.v1.0.0 (catalog demo)".to_owned()),
            path: vec!["1.1.0 (replaces in stable)".to_owned(), "2.0.0 (replaces in stable)".to_owned()],
            notices: vec![Notice { kind: NoticeKind::Held, text: "2.0.0 is held".to_owned() }],
            warnings: vec!["CRD \"a.b\": a field is new".to_owned()],
            ..Preview::default()
        };
        let (now, then) = (content("main:v1", json!(["get"])), content("main:v2", json!(["get", "list"])));
        preview.compare(&now, &then);
        let map = |name: &str| {
            object(
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "demo"}}),
            )
        };
        preview.add(vec![
            ObjectPreview::new(&map("new"), Action::Add),
            ObjectPreview::changed(&now[2], &then[2]),
            ObjectPreview::changed(&now[0], &now[0]),
            ObjectPreview {
                message: "admission webhook \"w\" denied the request: no".to_owned(),
                ..ObjectPreview::new(&map("denied"), Action::Refuse)
            },
            ObjectPreview::new(&map("old"), Action::Remove),
            ObjectPreview::new(&map("kept"), Action::Keep),
        ]);
        preview
    }

    #[test]
    fn plan_preview_of_an_upgrade() {
        insta::assert_snapshot!("upgrade", upgrade().text(false));
        insta::assert_snapshot!("upgrade_wide", upgrade().text(true));
        insta::assert_snapshot!("upgrade_json", serde_json::to_string_pretty(&upgrade()).unwrap());
    }

    #[test]
    fn plan_preview_without_change() {
        let mut preview = Preview { extension: "demo".to_owned(), ..Preview::default() };
        assert!(preview.is_unchanged());
        assert_eq!(preview.text(false), "Extension:   demo\n\nNothing would change.\n");
        let same = content("a", json!(["get"]));
        preview.compare(&same, &same);
        preview.add(vec![ObjectPreview::changed(&same[0], &same[0])]);
        assert!(preview.is_unchanged() && preview.permissions.is_empty() && preview.images.is_empty());
        preview.add(vec![ObjectPreview::new(&same[0], Action::Unknown)]);
        assert!(!preview.is_unchanged(), "an unknown result may be a change");
        let side = |revision| {
            Some(Side {
                bundle: "b".to_owned(),
                version: "1".to_owned(),
                image: String::new(),
                digest: None,
                revision,
            })
        };
        let moved = Preview { from: side(1), to: side(2), ..Preview::default() };
        assert!(!moved.is_unchanged(), "another bundle with the same objects");
        let update = Preview { action: Some(RevisionAction::Update), ..Preview::default() };
        assert!(!update.is_unchanged() && update.text(false).contains("The settings of the revision change"));
        let unfinished =
            Preview { unfinished: Some("Deployment a/b: 0 of 1".to_owned()), ..Preview::default() };
        assert!(!unfinished.is_unchanged() && !unfinished.text(false).contains("Nothing would change"));
        let refused = Preview { refused: vec!["no".to_owned()], ..Preview::default() };
        assert!(!refused.is_unchanged());
    }

    #[test]
    fn plan_preview_cuts_long_values() {
        let field = Field { path: "a".to_owned(), old: None, new: Some(json!("ü".repeat(200))) };
        assert_eq!(field_text(&field, false).chars().count(), "+ a: …".chars().count() + MAX_VALUE);
        assert_eq!(field_text(&field, true).chars().count(), 207);
    }
}
