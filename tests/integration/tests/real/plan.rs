//! The operators that are installed, their versions, and what each needs from its cluster.

use serde_json::{Value, json};

use crate::sample::stand_in;

/// One package of the sample.
pub(crate) struct Operator {
    /// Its name.
    pub(crate) package: &'static str,
    /// Its versions in the sample, oldest first. One that is alone gets a made successor.
    pub(crate) versions: &'static [&'static str],
    /// The namespace that it shall watch instead of all.
    pub(crate) watches: Option<&'static str>,
    /// What the condition must name before it is fixed, one after the other, with the index of the requested version.
    pub(crate) lacks: &'static [(usize, &'static str)],
    /// Whether its user accepts changes of CRDs that could break what is stored. Set after they were rejected.
    pub(crate) accepts_crds: bool,
}

const fn operator(package: &'static str, versions: &'static [&'static str]) -> Operator {
    Operator { package, versions, watches: None, lacks: &[], accepts_crds: false }
}

impl Operator {
    const fn lacks(self, lacks: &'static [(usize, &'static str)]) -> Self {
        Self { lacks, ..self }
    }

    const fn accepts_crds(self) -> Self {
        Self { accepts_crds: true, ..self }
    }

    const fn watches(self, namespace: &'static str) -> Self {
        Self { watches: Some(namespace), ..self }
    }

    /// What it lacks before this version can be installed.
    pub(crate) fn lacks_at(&self, step: usize) -> impl Iterator<Item = &'static str> {
        self.lacks.iter().filter(move |(at, _)| *at == step).map(|(_, lack)| *lack)
    }
}

/// The namespace beside those of the operators, for one that watches it.
pub(crate) const WATCHED: &str = "watched";

/// The package that brings `RabbitmqCluster`; the sample has it not, so it is made.
pub(crate) const RABBITMQ: &str = "rabbitmq-cluster-operator";

/// All packages of the sample that have bundles.
pub(crate) const OPERATORS: [Operator; 15] = [
    operator("authorino-operator", &["0.8.0", "0.9.0"])
        .lacks(&[(1, "allowed oneOf schemas removed")])
        .accepts_crds(),
    operator("aws-neuron-operator", &["0.0.2"]),
    operator("azure-service-operator", &["1.0.28631"]),
    operator("cert-manager", &["1.7.1"]),
    operator("cluster-aas-operator", &["0.1.1"]).lacks(&[(0, "API Application (argoproj.io/v1alpha1)")]),
    operator("deployment-validation-operator", &["0.2.2"]),
    operator("dynatrace-operator", &["0.10.0"]),
    operator("egressip-ipam-operator", &["1.2.4"]).lacks(&[(0, "PrometheusRule")]),
    operator("gitwebhook-operator", &["0.1.0"]).lacks(&[(0, "ServiceMonitor")]),
    operator("infinispan", &["0.2.1"]).watches("infinispan"),
    operator("mercury-operator", &["1.0.1"])
        .watches(WATCHED)
        .lacks(&[(0, "API Kafka (kafka.strimzi.io/v1beta2)")]),
    operator("patterns-operator", &["0.0.63", "0.0.64", "0.0.80"])
        .lacks(&[(2, "existingFieldRemoval")])
        .accepts_crds(),
    operator("rabbitmq-messaging-topology-operator", &["1.8.0", "1.9.0", "1.18.2"])
        .lacks(&[(2, RABBITMQ), (2, "25 changes of 12 CRDs are not safe")])
        .accepts_crds(),
    operator("special-resource-operator", &["4.8.1"])
        .lacks(&[(0, "API NodeFeatureDiscovery (nfd.openshift.io/v1)")]),
    operator("vault-config-operator", &["0.2.0"]).lacks(&[(0, "ServiceMonitor")]),
];

/// Kinds of others that first installs need: an administrator brings them with the operators they belong to.
pub(crate) fn kinds_of_others() -> Vec<Value> {
    [
        ("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
        ("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"),
        ("argoproj.io", "v1alpha1", "Application", "applications"),
        ("kafka.strimzi.io", "v1beta2", "Kafka", "kafkas"),
        ("kafka.strimzi.io", "v1beta2", "KafkaTopic", "kafkatopics"),
        ("kafka.strimzi.io", "v1beta2", "KafkaUser", "kafkausers"),
        ("camel.apache.org", "v1", "Integration", "integrations"),
        ("nfd.openshift.io", "v1", "NodeFeatureDiscovery", "nodefeaturediscoveries"),
    ]
    .map(|(group, version, kind, plural)| stand_in(group, version, kind, plural))
    .to_vec()
}

/// A ClusterExtension that requests a version of a package.
pub(crate) fn extension(package: &str, version: &str, watches: Option<&str>, accepts_crds: bool) -> Value {
    let mut extension = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
        "metadata": {"name": package},
        "spec": {"namespace": package, "source": {"sourceType": "Catalog",
            "catalog": {"packageName": package, "version": version}}}});
    if let Some(namespace) = watches {
        extension["spec"]["config"] =
            json!({"configType": "Inline", "inline": {"watchNamespace": namespace}});
    }
    if accepts_crds {
        extension["spec"]["install"] = json!({"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}});
    }
    extension
}
