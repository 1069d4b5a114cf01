//! Rights that the user lacks, in words.

/// The shipped role that reads what the verbs read.
pub(crate) const VIEWER_ROLE: &str = "operator-controller-clusterextension-viewer-role";
/// The shipped role that writes ClusterExtensions.
const EDITOR_ROLE: &str = "operator-controller-clusterextension-editor-role";

/// The shipped role that allows a request; `doing` is the verb and object, such as `read ClusterExtensions`.
pub(crate) fn role_for(doing: &str) -> Option<&'static str> {
    let (verb, object) = doing.split_once(' ')?;
    let kind = object.split(' ').next()?;
    match (verb, kind) {
        (
            "read",
            "ClusterExtensions" | "ClusterObjectSets" | "ClusterCatalogs" | "ClusterServiceVersions",
        ) => Some(VIEWER_ROLE),
        ("write", "ClusterExtension") => Some(EDITOR_ROLE),
        _ => None,
    }
}

/// Whether the apiserver's text of an answer 403 names a right that the user lacks; admission gives that answer, too.
pub(crate) fn is_missing_right(text: &str) -> bool {
    text.contains("forbidden: User \"") && text.contains(" cannot ")
}

/// The text with `you may not get secrets in namespace x` in place of the apiserver's text about it. A user without a right is no
/// fault of the object that is named.
pub(crate) fn in_words(text: &str) -> String {
    replaced(text).unwrap_or_else(|| text.to_owned())
}

fn replaced(text: &str) -> Option<String> {
    let (object, rest) = text.split_once(" is forbidden: User \"")?;
    let (_, rest) = rest.split_once("\" cannot ")?;
    let (verb, rest) = rest.split_once(" resource \"")?;
    let (resource, rest) = rest.split_once("\" in API group \"")?;
    let (group, rest) = rest.split_once('"')?;
    let before = object.rfind(": ").map_or("", |at| &object[..at + 2]);
    let (place, after) = match rest.strip_prefix(" in the namespace \"").and_then(|rest| rest.split_once('"'))
    {
        Some((namespace, after)) => (format!(" in namespace {namespace}"), after),
        None => (String::new(), rest.strip_prefix(" at the cluster scope").unwrap_or(rest)),
    };
    let after = after.strip_prefix(": Forbidden").unwrap_or(after);
    // the client's own form of the same answer
    let after = if after.starts_with(" (Status {") { "" } else { after };
    let before = before.strip_suffix("ApiError: ").unwrap_or(before);
    let dot = if group.is_empty() { "" } else { "." };
    Some(format!("{before}you may not {verb} {resource}{dot}{group}{place}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_name_the_shipped_role() {
        for (doing, want) in [
            ("read ClusterExtensions", Some(VIEWER_ROLE)),
            ("read ClusterServiceVersions", Some(VIEWER_ROLE)),
            ("write ClusterExtension \"x\"", Some(EDITOR_ROLE)),
            ("write ClusterCatalog \"x\"", None),
            ("read namespaces", None),
        ] {
            assert_eq!(role_for(doing), want, "{doing}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn rights_are_named_in_words() {
        let secret = "secrets \"a\" is forbidden: User \"u\" cannot get resource \"secrets\" in API group \"\" in the namespace \"n\"";
        let role = "clusterroles.rbac.authorization.k8s.io is forbidden: User \"u\" cannot list resource \"clusterroles\" in API group \
                    \"rbac.authorization.k8s.io\" at the cluster scope";
        for (text, want) in [
            (secret.to_owned(), "you may not get secrets in namespace n"),
            (format!("getting Secret n/a: {secret}: Forbidden"), "getting Secret n/a: you may not get secrets in namespace n"),
            (format!("reading: {role}"), "reading: you may not list clusterroles.rbac.authorization.k8s.io"),
            ("pods \"x\" is forbidden: exceeded quota: q".to_owned(), "pods \"x\" is forbidden: exceeded quota: q"),
            (format!("reading: ApiError: {secret}: Forbidden (Status {{ code: 403, message: {secret:?} }})"),
                "reading: you may not get secrets in namespace n"),
        ] {
            assert_eq!(in_words(&text), want);
        }
    }
}
