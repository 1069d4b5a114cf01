//! A plan as a value: what would happen, and how it is told. Pure.

use std::collections::BTreeMap;

use olm_core::Object;
use olm_rollout::permissions::{HandedOut, NewGrant, Scope, compact};
use serde::Serialize;
use serde_json::Value;

use crate::cmd::output::{bad, bold, good};
use crate::foretold::{Action, Field, Foretold};

/// Characters of a value that the table shows.
const SHOWN: usize = 80;

/// What would happen. `-o json` prints this.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outlook {
    /// Name of the extension.
    pub(crate) extension: String,
    /// The bundle that is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<Side>,
    /// The bundle that would be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<Side>,
    /// Where it comes from and why it may be installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) because: Option<String>,
    /// The versions on the way to the newest one that is wanted, the first step being this plan's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) path: Vec<String>,
    /// What would stop it: no bundle chosen, dependencies, CRDs, admission, objects of others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) refused: Vec<String>,
    /// Objects, in the order of the rollout; those that go last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) objects: Vec<Foretold>,
    /// Rights that the package does not give out now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) permissions: Vec<Grant>,
    /// Images that are new or others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) images: Vec<Image>,
    /// What is worth a word and stops nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

/// One bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Side {
    /// Its name.
    pub(crate) bundle: String,
    /// Its version.
    pub(crate) version: String,
    /// Its image.
    pub(crate) image: String,
    /// Number of the revision that has it.
    pub(crate) revision: i64,
}

/// Rights that are given anew.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Grant {
    /// To whom.
    to: String,
    /// In which namespace; absent for the whole cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    /// The rights, as rules of a role.
    rules: Vec<Value>,
    /// Roles that are no part of the package.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    roles: Vec<String>,
}

/// An image of a container.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Image {
    /// Which.
    container: String,
    /// What it runs now, if it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    old: Option<String>,
    /// What it would run.
    new: String,
}

impl Outlook {
    /// Whether nothing would change.
    pub(crate) fn is_quiet(&self) -> bool {
        let number = |side: &Option<Side>| side.as_ref().map(|side| side.revision);
        self.refused.is_empty()
            && number(&self.from) == number(&self.to)
            && self.objects.iter().all(|object| object.action == Action::Same)
    }

    /// What the objects say in themselves, compared with those in force.
    pub(crate) fn compare(&mut self, now: &[Object], then: &[Object]) {
        self.permissions = grants(now, then);
        self.images = images(now, then);
    }

    /// Takes in what would become of the objects.
    pub(crate) fn take(&mut self, objects: Vec<Foretold>) {
        for object in &objects {
            if object.action == Action::Refuse {
                self.refused.push(format!("{}: {}", object.title(), object.message));
            }
        }
        self.objects.extend(objects.into_iter().map(Foretold::without_stamp));
    }

    /// For people; `wide` leaves nothing out.
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
        for refused in &self.refused {
            line("Refused", &bad(refused));
        }
        for warning in &self.warnings {
            line("Warning", warning);
        }
        if self.is_quiet() {
            text.push_str("\nNothing would change.\n");
            return text;
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

/// Objects with their fields; those that stay as they are only counted unless `wide`.
pub(crate) fn objects(all: &[Foretold], wide: bool) -> String {
    let same = all.iter().filter(|object| object.action == Action::Same).count();
    let mut text = if all.is_empty() { String::new() } else { format!("\n{}\n", bold("Objects")) };
    for object in all {
        let (mark, word) = match object.action {
            Action::Add => (good("+"), ""),
            Action::Change => ("~".to_owned(), ""),
            Action::Remove => (bad("-"), ""),
            Action::Keep => ("=".to_owned(), " (is left behind)"),
            Action::Refuse => (bad("!"), " (refused)"),
            Action::Unknown => ("?".to_owned(), " (cannot be foretold)"),
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
    let shown = |value: &Value| {
        let text = value.to_string();
        if wide || text.chars().count() <= SHOWN {
            return text;
        }
        format!("{}…", text.chars().take(SHOWN).collect::<String>())
    };
    match (&field.old, &field.new) {
        (Some(old), Some(new)) => format!("{}: {} -> {}", field.path, shown(old), shown(new)),
        (Some(old), None) => format!("- {}: {}", field.path, shown(old)),
        (None, Some(new)) => format!("+ {}: {}", field.path, shown(new)),
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

fn grants(now: &[Object], then: &[Object]) -> Vec<Grant> {
    let new = HandedOut::by(then).beyond(&HandedOut::by(now));
    let grant = |((to, scope), grants): ((String, Scope), _)| {
        let grants: std::collections::BTreeSet<NewGrant> = grants;
        let rights = grants.iter().filter_map(|grant| match grant {
            NewGrant::Right(right) => Some(right),
            NewGrant::Role(_) => None,
        });
        let rules = compact(rights).iter().map(olm_rollout::permissions::Rule::to_value).collect();
        let roles = grants.iter().filter_map(|grant| match grant {
            NewGrant::Role(role) => Some(role.clone()),
            NewGrant::Right(_) => None,
        });
        let namespace = match scope {
            Scope::Cluster => None,
            Scope::Namespace(namespace) => Some(namespace),
        };
        Grant { to, namespace, rules, roles: roles.collect() }
    };
    new.into_iter().map(grant).collect()
}

fn images(now: &[Object], then: &[Object]) -> Vec<Image> {
    let now: BTreeMap<String, String> = olm_rollout::images(now);
    let changed =
        olm_rollout::images(then).into_iter().filter(|(container, new)| now.get(container) != Some(new));
    changed.map(|(container, new)| Image { old: now.get(&container).cloned(), container, new }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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

    fn upgrade() -> Outlook {
        let side = |version: &str, revision| Side {
            bundle: format!("demo.v{version}"),
            version: version.to_owned(),
            image: format!("registry/demo:v{version}"),
            revision,
        };
        let mut outlook = Outlook {
            extension: "demo".to_owned(),
            from: Some(side("1.0.0", 1)),
            to: Some(side("1.1.0", 2)),
            because: Some("replaces demo.v1.0.0 (catalog demo)".to_owned()),
            path: vec!["1.1.0 (replaces in stable)".to_owned(), "2.0.0 (replaces in stable)".to_owned()],
            warnings: vec!["CRD \"a.b\": a field is new".to_owned()],
            ..Outlook::default()
        };
        let (now, then) = (content("main:v1", json!(["get"])), content("main:v2", json!(["get", "list"])));
        outlook.compare(&now, &then);
        let map = |name: &str| {
            object(
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "demo"}}),
            )
        };
        outlook.take(vec![
            Foretold::new(&map("new"), Action::Add),
            Foretold::changed(&now[2], &then[2]),
            Foretold::changed(&now[0], &now[0]),
            Foretold {
                message: "admission webhook \"w\" denied the request: no".to_owned(),
                ..Foretold::new(&map("denied"), Action::Refuse)
            },
            Foretold::new(&map("old"), Action::Remove),
            Foretold::new(&map("kept"), Action::Keep),
        ]);
        outlook
    }

    #[test]
    fn an_upgrade_is_told() {
        insta::assert_snapshot!("upgrade", upgrade().text(false));
        insta::assert_snapshot!("upgrade_wide", upgrade().text(true));
        insta::assert_snapshot!("upgrade_json", serde_json::to_string_pretty(&upgrade()).unwrap());
    }

    #[test]
    fn quiet_is_only_what_changes_nothing_and_is_not_refused() {
        let mut outlook = Outlook { extension: "demo".to_owned(), ..Outlook::default() };
        assert!(outlook.is_quiet());
        assert_eq!(outlook.text(false), "Extension:   demo\n\nNothing would change.\n");
        let same = content("a", json!(["get"]));
        outlook.compare(&same, &same);
        outlook.take(vec![Foretold::changed(&same[0], &same[0])]);
        assert!(outlook.is_quiet() && outlook.permissions.is_empty() && outlook.images.is_empty());
        outlook.take(vec![Foretold::new(&same[0], Action::Unknown)]);
        assert!(!outlook.is_quiet(), "what nobody knows may be a change");
        let side = |revision| {
            Some(Side { bundle: "b".to_owned(), version: "1".to_owned(), image: String::new(), revision })
        };
        let moved = Outlook { from: side(1), to: side(2), ..Outlook::default() };
        assert!(!moved.is_quiet(), "another bundle with the same objects");
        let refused = Outlook { refused: vec!["no".to_owned()], ..Outlook::default() };
        assert!(!refused.is_quiet());
    }

    #[test]
    fn long_values_are_cut_unless_there_is_room() {
        let field = Field { path: "a".to_owned(), old: None, new: Some(json!("ü".repeat(200))) };
        assert_eq!(field_text(&field, false).chars().count(), "+ a: …".chars().count() + SHOWN);
        assert_eq!(field_text(&field, true).chars().count(), 207);
    }
}
