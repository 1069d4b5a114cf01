//! RBAC rules and the single rights that they stand for.

use std::fmt;

use serde_json::{Map, Value, json};

const ANY: &str = "*";
/// Resources, names or URLs of a rule that its text names.
const MAX_LISTED: usize = 4;

/// Where a right holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The whole cluster: cluster-scoped objects, or all namespaces.
    Cluster,
    Namespace(String),
}

/// One right: one verb on one resource, or on one URL. `*` stands for itself: to have it, a rule must contain `*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    Resource {
        /// API group, empty for the core group.
        group: String,
        /// Plural, with `/subresource` if it is about one.
        resource: String,
        /// Name of the object; `None` for every name.
        name: Option<String>,
        verb: String,
    },
    /// On a path of the apiserver.
    Url {
        /// The path, which may end with `*`.
        path: String,
        verb: String,
    },
}

impl Right {
    #[must_use]
    pub fn on(verb: &str, group: &str, resource: &str, name: Option<&str>) -> Self {
        Self::Resource {
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: name.map(str::to_owned),
            verb: verb.to_owned(),
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resource { group, resource, name, verb } => {
                write!(f, "{verb} {resource}")?;
                if !group.is_empty() {
                    write!(f, ".{group}")?;
                }
                match name {
                    Some(name) => write!(f, " {name:?}"),
                    None => Ok(()),
                }
            }
            Self::Url { path, verb } => write!(f, "{verb} {path}"),
        }
    }
}

/// A rule of a Role or ClusterRole. Lists that are absent are empty. Displayed in one line: groups, resources, names in quotes, then
/// the verbs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rule {
    /// `apiGroups`.
    pub groups: Vec<String>,
    pub resources: Vec<String>,
    /// `resourceNames`; empty for every name.
    pub names: Vec<String>,
    /// `nonResourceURLs`.
    pub urls: Vec<String>,
    pub verbs: Vec<String>,
}

impl Rule {
    /// Reads one entry of `rules`; what is no list of texts counts as absent.
    #[must_use]
    pub fn from_value(value: &Value) -> Self {
        let texts = |key: &str| -> Vec<String> {
            let list = value.get(key).and_then(Value::as_array);
            list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            groups: texts("apiGroups"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            urls: texts("nonResourceURLs"),
            verbs: texts("verbs"),
        }
    }

    /// All entries of `rules` of a Role or ClusterRole.
    #[must_use]
    pub fn all(role: &Value) -> Vec<Self> {
        role.get("rules").and_then(Value::as_array).into_iter().flatten().map(Self::from_value).collect()
    }

    /// The rule as an entry of `rules`, without empty lists.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (key, list) in [
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
            ("nonResourceURLs", &self.urls),
            ("verbs", &self.verbs),
        ] {
            if !list.is_empty() {
                map.insert(key.to_owned(), json!(list));
            }
        }
        Value::Object(map)
    }

    /// The single rights that the rule stands for.
    pub fn rights(&self) -> impl Iterator<Item = Right> + '_ {
        let names: Vec<Option<&str>> = if self.names.is_empty() {
            vec![None]
        } else {
            self.names.iter().map(|name| Some(name.as_str())).collect()
        };
        let resources = self.verbs.iter().flat_map(move |verb| {
            let names = names.clone();
            self.groups.iter().flat_map(move |group| {
                let names = names.clone();
                self.resources.iter().flat_map(move |resource| {
                    names.clone().into_iter().map(move |name| Right::on(verb, group, resource, name))
                })
            })
        });
        let urls = self.verbs.iter().flat_map(|verb| {
            self.urls.iter().map(|path| Right::Url { path: path.clone(), verb: verb.clone() })
        });
        resources.chain(urls)
    }

    /// Whether who has this rule has the right.
    #[must_use]
    pub fn grants(&self, right: &Right) -> bool {
        let has = |list: &[String], value: &str| list.iter().any(|found| found == ANY || found == value);
        match right {
            Right::Resource { group, resource, name, verb } => {
                has(&self.verbs, verb)
                    && has(&self.groups, group)
                    && (has(&self.resources, resource) || self.grants_subresource(resource))
                    && (self.names.is_empty() || name.as_ref().is_some_and(|name| self.names.contains(name)))
            }
            Right::Url { path, verb } => {
                has(&self.verbs, verb)
                    && self.urls.iter().any(|found| match found.strip_suffix(ANY) {
                        Some(start) => path.starts_with(start),
                        None => found == path,
                    })
            }
        }
    }

    /// `*/scale` grants `deployments/scale`.
    fn grants_subresource(&self, resource: &str) -> bool {
        resource.split_once('/').is_some_and(|(_, sub)| {
            self.resources.iter().any(|found| found.strip_prefix("*/").is_some_and(|found| found == sub))
        })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<&str> = self.groups.iter().map(String::as_str).filter(|it| !it.is_empty()).collect();
        let mut about = vec![groups.join(", "), listed(self.resources.iter().cloned())];
        about.push(listed(self.names.iter().map(|name| format!("{name:?}"))));
        about.push(listed(self.urls.iter().cloned()));
        about.retain(|part| !part.is_empty());
        write!(f, "{}: {}", about.join(" "), self.verbs.join(", "))
    }
}

/// The first of them, and how many there are more.
fn listed(items: impl ExactSizeIterator<Item = String>) -> String {
    let more = items.len().saturating_sub(MAX_LISTED);
    let text = items.take(MAX_LISTED).collect::<Vec<_>>().join(", ");
    if more == 0 { text } else { format!("{text} and {more} more") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(groups: &[&str], resources: &[&str], names: &[&str], verbs: &[&str]) -> Rule {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Rule {
            groups: texts(groups),
            resources: texts(resources),
            names: texts(names),
            verbs: texts(verbs),
            urls: Vec::new(),
        }
    }

    #[test]
    #[rustfmt::skip]
    fn permissions_rule_grants_what_the_apiserver_allows() {
        let named = Some("x");
        for (rule, right, want) in [
            (rule(&["apps"], &["deployments"], &[], &["get"]), Right::on("get", "apps", "deployments", None), true),
            (rule(&["apps"], &["deployments"], &[], &["get"]), Right::on("get", "apps", "deployments", named), true),
            (rule(&["apps"], &["deployments"], &[], &["get"]), Right::on("create", "apps", "deployments", None), false),
            (rule(&["apps"], &["deployments"], &[], &["get"]), Right::on("get", "", "deployments", None), false),
            (rule(&["apps"], &["deployments"], &["x"], &["get"]), Right::on("get", "apps", "deployments", named), true),
            (rule(&["apps"], &["deployments"], &["x"], &["get"]), Right::on("get", "apps", "deployments", None), false),
            (rule(&["apps"], &["deployments"], &["y"], &["get"]), Right::on("get", "apps", "deployments", named), false),
            (rule(&["*"], &["*"], &[], &["*"]), Right::on("bind", "x", "y/z", named), true),
            // `*` asked for is had only by who has `*`
            (rule(&["apps"], &["deployments"], &[], &["get", "list"]), Right::on("*", "apps", "deployments", None), false),
            (rule(&["apps"], &["*"], &[], &["*"]), Right::on("*", "apps", "*", None), true),
            (rule(&[""], &["*/scale"], &[], &["get"]), Right::on("get", "", "pods/scale", None), true),
            (rule(&[""], &["*/scale"], &[], &["get"]), Right::on("get", "", "pods", None), false),
            (rule(&[""], &["pods"], &[], &["get"]), Right::on("get", "", "pods/scale", None), false),
        ] {
            assert_eq!(rule.grants(&right), want, "{rule:?} grants {right}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn permissions_rule_is_displayed_in_one_line() {
        let urls =
            Rule { urls: vec!["/metrics".to_owned()], verbs: vec!["get".to_owned()], ..Rule::default() };
        let many = ["a", "b", "c", "d", "e", "f"];
        for (rule, want) in [
            (rule(&["apps"], &["deployments"], &[], &["create"]), "apps deployments: create"),
            (rule(&[""], &["pods", "secrets"], &[], &["get", "list"]), "pods, secrets: get, list"),
            (rule(&["apps"], &["deployments"], &["x", "y"], &["patch"]), "apps deployments \"x\", \"y\": patch"),
            (rule(&["*"], &["*"], &[], &["*"]), "* *: *"),
            (rule(&[""], &many, &[], &["get"]), "a, b, c, d and 2 more: get"),
            (urls, "/metrics: get"),
        ] {
            assert_eq!(rule.to_string(), want);
        }
    }

    #[test]
    fn permissions_urls_match_exactly_or_by_prefix() {
        let urls = |path: &str| Rule {
            urls: vec![path.to_owned()],
            verbs: vec!["get".to_owned()],
            ..Rule::default()
        };
        let right = |path: &str| Right::Url { path: path.to_owned(), verb: "get".to_owned() };
        for (has, wants, want) in [
            ("/metrics", "/metrics", true),
            ("/metrics", "/metrics/x", false),
            ("/metrics/*", "/metrics/x", true),
            ("*", "/anything", true),
            ("/healthz", "*", false),
        ] {
            assert_eq!(urls(has).grants(&right(wants)), want, "{has} grants {wants}");
        }
    }

    #[test]
    fn permissions_rule_is_the_product_of_its_lists() {
        let rule = rule(&["a", "b"], &["x", "y"], &["n", "m"], &["get", "list"]);
        assert_eq!(rule.rights().count(), 16);
        assert!(rule.rights().all(|right| rule.grants(&right)));
        assert_eq!(Rule::from_value(&rule.to_value()), rule);
        assert_eq!(
            Rule::from_value(&serde_json::json!({"verbs": "get", "resources": [1, "pods"]})).resources,
            ["pods"]
        );
    }
}
