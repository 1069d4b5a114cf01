//! Metrics of extensions, revisions and catalogs: made from the caches when they are scraped, so that nothing is counted twice and
//! nothing is kept (decision 19). Only the leader has caches, so only the leader shows them.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use olm_api::condition::{self, Condition};
use olm_api::{ClusterCatalog, ClusterExtension, observe};
use olm_runtime::metrics::{Metrics, encode_row};
use olm_runtime::watched::Objects;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, MetricEncoder};
use prometheus_client::metrics::gauge::ConstGauge;

use crate::revisions::Revisions;

#[derive(Clone, Debug)]
pub(crate) struct Inventory {
    pub(crate) extensions: Objects<ClusterExtension>,
    pub(crate) revisions: Revisions,
    pub(crate) catalogs: Objects<ClusterCatalog>,
}

impl Inventory {
    /// Shows them among the metrics of the process.
    pub(crate) fn register(self, metrics: &Metrics) {
        metrics.register_collector(self);
    }
}

type Written = Result<(), std::fmt::Error>;

impl Collector for Inventory {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Written {
        let extensions = self.extensions.all();

        let mut out = encode_row(&mut encoder, &observe::EXTENSION_CONDITION)?;
        for extension in &extensions {
            let conditions = extension.status.as_ref().map(|status| status.conditions.as_slice());
            let name = extension.name_any();
            conditions_of(&mut out, condition::EXTENSION, &name, conditions.unwrap_or_default())?;
        }
        let mut out = encode_row(&mut encoder, &observe::EXTENSION_CONDITION_TRANSITION)?;
        for extension in &extensions {
            let conditions = extension.status.as_ref().map(|status| status.conditions.as_slice());
            let name = extension.name_any();
            transitions_of(&mut out, condition::EXTENSION, &name, conditions.unwrap_or_default())?;
        }
        let mut out = encode_row(&mut encoder, &observe::EXTENSION_CREATED)?;
        for extension in &extensions {
            created(&mut out, &**extension)?;
        }
        let mut out = encode_row(&mut encoder, &observe::EXTENSION_INFO)?;
        for extension in &extensions {
            let installed = extension.status.as_ref().and_then(|status| status.install.as_ref());
            let package = extension.spec.source.catalog.as_ref().map(|catalog| catalog.package_name.as_str());
            let name = extension.name_any();
            let labels = [
                ("bundle", installed.map_or("", |install| install.bundle.name.as_str())),
                ("name", name.as_str()),
                ("namespace", extension.spec.namespace.as_str()),
                ("package", package.unwrap_or_default()),
                ("version", installed.map_or("", |install| install.bundle.version.as_str())),
            ];
            gauge(&mut out, &labels, 1)?;
        }
        let mut out = encode_row(&mut encoder, &observe::EXTENSION_UPGRADE_AVAILABLE)?;
        for extension in &extensions {
            let conditions = extension.status.as_ref().map(|status| status.conditions.as_slice());
            if let Some(found) = condition::find(conditions.unwrap_or_default(), condition::UPGRADE_AVAILABLE)
            {
                let name = extension.name_any();
                gauge(&mut out, &[("name", name.as_str()), ("reason", found.reason.as_str())], 1)?;
            }
        }

        let mut by_state: BTreeMap<String, i64> = BTreeMap::new();
        for revision in self.revisions.all() {
            *by_state.entry(format!("{:?}", revision.spec.lifecycle_state)).or_default() += 1;
        }
        let mut out = encode_row(&mut encoder, &observe::REVISIONS)?;
        for (state, count) in &by_state {
            gauge(&mut out, &[("lifecycle_state", state.as_str())], *count)?;
        }

        let catalogs = self.catalogs.all();
        let mut out = encode_row(&mut encoder, &observe::CATALOG_CONDITION)?;
        for catalog in &catalogs {
            let conditions = catalog.status.as_ref().map(|status| status.conditions.as_slice());
            conditions_of(&mut out, condition::CATALOG, &catalog.name_any(), conditions.unwrap_or_default())?;
        }
        let mut out = encode_row(&mut encoder, &observe::CATALOG_CONDITION_TRANSITION)?;
        for catalog in &catalogs {
            let conditions = catalog.status.as_ref().map(|status| status.conditions.as_slice());
            transitions_of(
                &mut out,
                condition::CATALOG,
                &catalog.name_any(),
                conditions.unwrap_or_default(),
            )?;
        }
        let mut out = encode_row(&mut encoder, &observe::CATALOG_CREATED)?;
        for catalog in &catalogs {
            created(&mut out, &**catalog)?;
        }
        Ok(())
    }
}

fn conditions_of(out: &mut MetricEncoder<'_>, kind: &str, name: &str, all: &[Condition]) -> Written {
    let exported = condition::of_kind(kind).filter(|spec| spec.in_metrics);
    for found in exported.filter_map(|spec| condition::find(all, spec.type_)) {
        let labels = [
            ("condition", found.type_.as_str()),
            ("name", name),
            ("reason", found.reason.as_str()),
            ("status", found.status.as_str()),
        ];
        gauge(out, &labels, 1)?;
    }
    Ok(())
}

fn transitions_of(out: &mut MetricEncoder<'_>, kind: &str, name: &str, all: &[Condition]) -> Written {
    let exported = condition::of_kind(kind).filter(|spec| spec.in_metrics);
    for found in exported.filter_map(|spec| condition::find(all, spec.type_)) {
        let labels = [("condition", found.type_.as_str()), ("name", name), ("status", found.status.as_str())];
        gauge(out, &labels, found.last_transition_time.0.as_second())?;
    }
    Ok(())
}

fn created(out: &mut MetricEncoder<'_>, object: &impl kube::ResourceExt) -> Written {
    match object.creation_timestamp() {
        Some(time) => gauge(out, &[("name", object.name_any().as_str())], time.0.as_second()),
        None => Ok(()),
    }
}

fn gauge(out: &mut MetricEncoder<'_>, labels: &[(&str, &str)], value: i64) -> Written {
    ConstGauge::new(value).encode(out.encode_family(&labels)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::runtime::watcher::Event;
    use olm_runtime::watched::{Object, Received};
    use serde_json::{Value, json};

    fn objects<K>(objects: Vec<Value>) -> Objects<K>
    where
        K: kube::Resource<DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned
            + Send
            + Sync
            + 'static,
    {
        let all = Objects::empty();
        for object in objects {
            let object: Received<K> = serde_json::from_value(object).unwrap();
            all.apply(Event::Apply(Object::from(object)), |object| (object.name(), object));
        }
        all
    }

    #[test]
    fn inventory_metrics_come_from_the_caches() {
        let head = |kind: &str, name: &str| json!({"apiVersion": "olm.operatorframework.io/v1", "kind": kind, "metadata": {"name": name, "creationTimestamp": "2029-12-31T23:59:00Z"}});
        let with = |mut head: Value, more: Value| {
            head.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            head
        };
        let condition = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason, "message": "m", "lastTransitionTime": "2030-01-01T00:00:00Z"});
        let extension = with(
            head("ClusterExtension", "demo"),
            json!({
                "spec": {"namespace": "demo-system", "source": {"sourceType": "Catalog", "catalog": {"packageName": "pack"}}},
                "status": {
                    "conditions": [
                        condition("Ready", "False", "Retrying"), condition("Reconciling", "True", "Retrying"),
                        condition("UpgradeAvailable", "True", "MajorVersionHeld"),
                    ],
                    "install": {"bundle": {"name": "pack.v1", "version": "1.0.0"}},
                },
            }),
        );
        let catalog = with(
            head("ClusterCatalog", "cat"),
            json!({
                "spec": {"source": {"type": "Image", "image": {"ref": "example.com/cat:v1"}}},
                "status": {"conditions": [condition("Serving", "True", "Available")]},
            }),
        );
        let broken = with(head("ClusterExtension", "odd"), json!({"spec": 7}));
        let metrics = Metrics::new();
        let inventory = Inventory {
            extensions: objects(vec![extension, broken]),
            revisions: Revisions::default(),
            catalogs: objects(vec![catalog]),
        };
        inventory.register(&metrics);
        let text = metrics.classic();
        let shown: Vec<&str> = text.lines().filter(|line| line.starts_with("olm_cluster_")).collect();
        assert_eq!(
            shown,
            [
                r#"olm_cluster_extension_condition{condition="Ready",name="demo",reason="Retrying",status="False"} 1"#,
                r#"olm_cluster_extension_condition_transition_timestamp_seconds{condition="Ready",name="demo",status="False"} 1893456000"#,
                r#"olm_cluster_extension_created_timestamp_seconds{name="demo"} 1893455940"#,
                r#"olm_cluster_extension_info{bundle="pack.v1",name="demo",namespace="demo-system",package="pack",version="1.0.0"} 1"#,
                r#"olm_cluster_extension_upgrade_available{name="demo",reason="MajorVersionHeld"} 1"#,
                r#"olm_cluster_catalog_condition{condition="Serving",name="cat",reason="Available",status="True"} 1"#,
                r#"olm_cluster_catalog_condition_transition_timestamp_seconds{condition="Serving",name="cat",status="True"} 1893456000"#,
                r#"olm_cluster_catalog_created_timestamp_seconds{name="cat"} 1893455940"#,
            ]
        );
    }
}
