//! Rights that manifests grant, compared with requests that were made.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use olm_kit::Request;
use serde_json::Value;

use crate::manifests::find;

/// One verb on one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Right {
    /// absent: in all namespaces, and for what has none
    pub(crate) namespace: Option<String>,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) verb: String,
    /// empty: whatever the name
    pub(crate) names: Vec<String>,
}

impl Right {
    /// Whether the right is what let the request of the account itself through.
    pub(crate) fn allows(&self, request: &Request) -> bool {
        let is = |granted: &str, requested: &str| granted == "*" || granted == requested;
        is(&self.verb, &request.verb)
            && is(&self.group, &request.group)
            && is(&self.resource, &request.resource)
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == request.namespace)
            && (self.names.is_empty() || self.names.contains(&request.name) || named_by_field(self, request))
    }

    /// `verb group/resource[ name,…][ in namespace]`
    pub(crate) fn title(&self) -> String {
        let names = if self.names.is_empty() { String::new() } else { format!(" {}", self.names.join(",")) };
        let place = self.namespace.as_ref().map(|namespace| format!(" in {namespace}")).unwrap_or_default();
        format!("{} {}/{}{names}{place}", self.verb, self.group, self.resource)
    }
}

/// A list or watch limited to one name by a field selector is a request for that name.
fn named_by_field(right: &Right, request: &Request) -> bool {
    right.names.iter().any(|name| request.uri.contains(&format!("fieldSelector=metadata.name%3D{name}")))
}

/// All that the bindings among `documents` grant to a service account of the system namespace.
pub(crate) fn granted(documents: &[Value], account: &str) -> Result<Vec<Right>> {
    let mut rights = Vec::new();
    for binding in documents.iter().filter(|document| {
        matches!(document["kind"].as_str(), Some("ClusterRoleBinding" | "RoleBinding"))
            && document["subjects"].as_array().into_iter().flatten().any(|subject| {
                subject["kind"] == "ServiceAccount"
                    && subject["name"] == account
                    && subject["namespace"] == olm_kit::SYSTEM_NAMESPACE
            })
    }) {
        let text = |value: &Value| value.as_str().map(str::to_owned).context("not a text");
        let (kind, role) = (text(&binding["roleRef"]["kind"])?, text(&binding["roleRef"]["name"])?);
        let namespace = binding["metadata"]["namespace"].as_str().map(str::to_owned);
        if role == "cluster-admin" {
            continue;
        }
        let found = documents
            .iter()
            .filter(|one| one["kind"] == *kind && one["metadata"]["name"] == *role)
            .find(|one| {
                kind == "ClusterRole" || one["metadata"]["namespace"].as_str() == namespace.as_deref()
            })
            .with_context(|| format!("no {kind} {role}"))?;
        let list = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        for rule in found["rules"].as_array().into_iter().flatten() {
            for group in list(&rule["apiGroups"]) {
                for resource in list(&rule["resources"]) {
                    for verb in list(&rule["verbs"]) {
                        rights.push(Right {
                            namespace: namespace.clone(),
                            group: group.clone(),
                            resource: resource.clone(),
                            verb,
                            names: list(&rule["resourceNames"]),
                        });
                    }
                }
            }
        }
    }
    ensure!(!rights.is_empty(), "nothing is granted to {account}");
    find(documents, "ServiceAccount", account)?;
    Ok(rights)
}

/// Requests of a service account of the system namespace, also those that it made while impersonating another account.
pub(crate) fn of_account(requests: Vec<Request>, account: &str) -> Vec<Request> {
    let user = format!("system:serviceaccount:{}:{account}", olm_kit::SYSTEM_NAMESPACE);
    requests.into_iter().filter(|request| request.user == user).collect()
}

/// Fails unless every request names the program that made it.
pub(crate) fn named(requests: &[Request], program: &str) -> Result<()> {
    ensure!(!requests.is_empty(), "{program} asked for nothing");
    let prefix = format!("{program}/");
    let others: BTreeSet<_> = requests.iter().map(|request| &request.agent).collect();
    ensure!(others.iter().all(|agent| agent.starts_with(&prefix)), "{program} calls itself {others:?}");
    Ok(())
}

/// Fails unless every right is used or has its reason in `unused` (title, reason), and every reason is about a right that is not used.
pub(crate) fn least(rights: &[Right], requests: &[Request], unused: &[(&str, &str)]) -> Result<()> {
    let own = |request: &&Request| request.acting_as.is_empty();
    let used = |right: &Right| match right.verb.as_str() {
        "impersonate" => {
            requests.iter().any(|request| request.acting_as.starts_with("system:serviceaccount:"))
        }
        _ => requests.iter().filter(own).any(|request| right.allows(request)),
    };
    let idle: Vec<String> = rights.iter().filter(|right| !used(right)).map(Right::title).collect();
    let reasons: Vec<&str> = unused.iter().map(|(title, _)| *title).collect();
    let without: Vec<&String> = idle.iter().filter(|title| !reasons.contains(&title.as_str())).collect();
    ensure!(without.is_empty(), "granted and never used, without a reason: {without:#?}");
    let stale: Vec<&&str> = reasons.iter().filter(|title| !idle.iter().any(|one| one == *title)).collect();
    ensure!(stale.is_empty(), "a reason is given, but it is used or not granted: {stale:#?}");
    Ok(())
}

/// All rights but `get` of any object of these resources (`group/resource`), which have to be granted: whether one is read past the caches
/// depends on the timing.
pub(crate) fn without_reads(rights: &[Right], resources: &[&str]) -> Result<Vec<Right>> {
    let resource = |right: &Right| format!("{}/{}", right.group, right.resource);
    let is_left_out = |right: &Right| {
        right.verb == "get" && right.names.is_empty() && resources.contains(&resource(right).as_str())
    };
    let (left_out, others): (Vec<Right>, Vec<Right>) = rights.iter().cloned().partition(is_left_out);
    let granted: BTreeSet<String> = left_out.iter().map(resource).collect();
    let missing: Vec<&&str> = resources.iter().filter(|resource| !granted.contains(**resource)).collect();
    ensure!(missing.is_empty(), "no right to get {missing:?}");
    Ok(others)
}

/// Verbs and resources of the account's own requests that only a rule for all resources allows.
pub(crate) fn unnamed(rights: &[Right], requests: &[Request]) -> BTreeSet<String> {
    let names = |right: &&Right| right.group != "*" && right.resource != "*";
    requests
        .iter()
        .filter(|request| request.acting_as.is_empty() && rights.iter().any(|right| right.allows(request)))
        .filter(|request| !rights.iter().filter(names).any(|right| right.allows(request)))
        .map(|request| format!("{} {}/{}", request.verb, request.group, request.resource))
        .collect()
}

/// Fails if one of the account's own requests was refused. (What it does as an account of an extension is that account's affair.)
pub(crate) fn none_refused(requests: &[Request]) -> Result<()> {
    let refused: Vec<String> = requests
        .iter()
        .filter(|request| request.code == 403 && request.acting_as.is_empty())
        .map(|request| format!("{} {}", request.verb, request.uri))
        .collect();
    ensure!(refused.is_empty(), "refused: {refused:#?}");
    ensure!(!requests.is_empty(), "no request at all");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn documents(verbs: Value) -> Vec<Value> {
        vec![
            json!({"kind": "ServiceAccount", "metadata": {"name": "a", "namespace": "olmv1-system"}}),
            json!({"kind": "Role", "metadata": {"name": "r", "namespace": "n"},
                "rules": [{"apiGroups": ["g"], "resources": ["things"], "verbs": verbs, "resourceNames": ["one"]}]}),
            json!({"kind": "RoleBinding", "metadata": {"name": "b", "namespace": "n"}, "roleRef": {"kind": "Role", "name": "r"},
                "subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "olmv1-system"}]}),
        ]
    }

    fn request(verb: &str, namespace: &str, name: &str) -> Request {
        let text = str::to_owned;
        Request {
            verb: text(verb),
            user: text("system:serviceaccount:olmv1-system:a"),
            acting_as: String::new(),
            agent: String::new(),
            group: text("g"),
            resource: text("things"),
            namespace: text(namespace),
            name: text(name),
            code: 200,
            uri: String::new(),
            received: String::new(),
        }
    }

    #[test]
    fn rights_that_are_unused_are_reported() -> Result<()> {
        let rights = granted(&documents(json!(["get", "watch"])), "a")?;
        let titles: Vec<String> = rights.iter().map(Right::title).collect();
        assert_eq!(titles, ["get g/things one in n", "watch g/things one in n"]);
        let mut watch = request("watch", "n", "");
        watch.uri = "/x?fieldSelector=metadata.name%3Done&watch=1".to_owned();
        let both = [request("get", "n", "one"), watch];
        least(&rights, &both, &[])?;
        for (requests, unused, expected) in [
            (&both[..1], &[][..], "never used"),
            (&both, &[("get g/things one in n", "why")], "used or not granted"),
            (&[request("get", "m", "one"), both[1].clone()], &[], "never used"),
            (&[request("get", "n", "two"), both[1].clone()], &[], "never used"),
        ] {
            let error = least(&rights, requests, unused).err().context("expected an error")?.to_string();
            assert!(error.contains(expected), "{error}");
        }
        least(&rights, &both[..1], &[("watch g/things one in n", "why")])
    }

    #[test]
    fn rights_to_read_are_left_out_where_granted() -> Result<()> {
        let mut rights = granted(&documents(json!(["get", "watch"])), "a")?;
        assert_eq!(without_reads(&rights, &[])?, rights);
        assert!(without_reads(&rights, &["g/things"]).is_err(), "only one object of a name");
        rights[0].names.clear();
        assert_eq!(without_reads(&rights, &["g/things"])?, rights[1..]);
        assert!(without_reads(&rights, &["g/things", "g/others"]).is_err());
        Ok(())
    }

    #[test]
    fn rights_denials_count_unless_foreign() {
        let mut refused = request("get", "n", "one");
        refused.code = 403;
        assert!(none_refused(std::slice::from_ref(&refused)).is_err());
        refused.acting_as = "system:serviceaccount:x:y".to_owned();
        assert!(none_refused(&[refused]).is_ok());
        assert!(none_refused(&[]).is_err());
    }
}
