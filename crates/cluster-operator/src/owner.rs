//! The owner of the ClusterOperator `olm`. Two writers of one status would fight without end, so where another manager writes
//! its conditions this process only reports (decision 17).

use clap::ValueEnum;
use kube::core::ObjectMeta;
use olm_api::field_managers::CLUSTER_OPERATOR;
use serde_json::Value;

use crate::summary::TYPES;

/// When the ClusterOperator is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Manage {
    /// Unless another manager writes it
    #[default]
    Auto,
    /// In any case; conditions that others write are replaced
    Always,
    /// Never; only metrics and events report it
    Never,
}

/// Why the ClusterOperator is left to another manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    /// This manager writes it.
    Manager(String),
    /// The flag asks for it.
    Asked,
}

/// Whether another manager owns the object. A change that a user makes with kubectl does not count: it is reverted. Neither does a
/// condition of a type that is not written here: it stays.
pub(crate) fn elsewhere(manage: Manage, metadata: Option<&ObjectMeta>) -> Option<Elsewhere> {
    match manage {
        Manage::Never => Some(Elsewhere::Asked),
        Manage::Always => None,
        Manage::Auto => {
            let entries = metadata?.managed_fields.iter().flatten();
            let other = entries
                .filter(|entry| entry.fields_v1.as_ref().is_some_and(|fields| has_summary(&fields.0)))
                .filter_map(|entry| entry.manager.as_deref())
                .find(|manager| *manager != CLUSTER_OPERATOR && !manager.starts_with("kubectl"));
            other.map(|manager| Elsewhere::Manager(manager.to_owned()))
        }
    }
}

/// Whether one of the conditions that are published here is among the fields. All are where they have no keys.
fn has_summary(fields: &Value) -> bool {
    let Some(members) = fields.pointer("/f:status/f:conditions").and_then(Value::as_object) else {
        return false;
    };
    let mut keys = members.keys().filter_map(|member| member.strip_prefix("k:")).peekable();
    let is_summary = |key: &str| {
        let key: Value = serde_json::from_str(key).unwrap_or_default();
        TYPES.iter().any(|(type_, _)| key["type"] == *type_)
    };
    keys.peek().is_none() || keys.any(is_summary)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn owner_is_another_manager_that_writes_conditions() {
        let conditions =
            json!({"f:status": {"f:conditions": {".": {}, "k:{\"type\":\"Available\"}": {".": {}}}}});
        let whole = json!({"f:status": {"f:conditions": {}}});
        let foreign = json!({"f:status": {"f:conditions": {"k:{\"type\":\"RecentBackup\"}": {".": {}}}}});
        let versions = json!({"f:status": {"f:versions": {}}});
        let labels = json!({"f:metadata": {"f:labels": {}}});
        let other = Some(Elsewhere::Manager("cluster-olm-operator".to_owned()));
        for (case, entries, want) in [
            ("nobody", vec![], None),
            ("we do", vec![(CLUSTER_OPERATOR, &conditions)], None),
            ("the reference does", vec![("cluster-olm-operator", &conditions)], other.clone()),
            (
                "it came after ours",
                vec![(CLUSTER_OPERATOR, &conditions), ("cluster-olm-operator", &conditions)],
                other.clone(),
            ),
            ("another client writes the whole list", vec![("cluster-olm-operator", &whole)], other),
            ("another client writes one of its own", vec![("etcd-backup", &foreign)], None),
            ("another client created it", vec![("cluster-version-operator", &labels)], None),
            ("another client wrote versions", vec![("cluster-version-operator", &versions)], None),
            ("a person edited it", vec![(CLUSTER_OPERATOR, &versions), ("kubectl-edit", &conditions)], None),
        ] {
            let entries: Vec<_> = entries
                .iter()
                .map(|(manager, fields)| json!({"manager": manager, "fieldsV1": fields}))
                .collect();
            let metadata: ObjectMeta = serde_json::from_value(json!({"managedFields": entries})).unwrap();
            assert_eq!(elsewhere(Manage::Auto, Some(&metadata)), want, "{case}");
            assert_eq!(elsewhere(Manage::Always, Some(&metadata)), None, "{case}");
            assert_eq!(elsewhere(Manage::Never, Some(&metadata)), Some(Elsewhere::Asked), "{case}");
        }
        assert_eq!(elsewhere(Manage::Auto, None), None);
    }
}
