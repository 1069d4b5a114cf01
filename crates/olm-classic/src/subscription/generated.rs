//! The Subscriptions that a plan makes for dependencies.
//!
//! Rule: classic-apis §4 row 11.

use olm_api::classic::{GROUP, Subscription};
use olm_core::Object;
use olm_solver::ChosenBundle;
use serde_json::{Value, json};

/// `package-channel-source-sourceNamespace`
pub fn generated_name(chosen: &ChosenBundle) -> String {
    format!("{}-{}-{}-{}", chosen.package, chosen.channel, chosen.catalog, chosen.namespace)
}

/// The Subscription of a bundle that no Subscription asks for. The step that makes it adds the plan's name.
pub fn generated_subscription(chosen: &ChosenBundle, namespace: &str) -> Object {
    let mut spec = json!({
        "name": chosen.package, "source": chosen.catalog, "sourceNamespace": chosen.namespace,
        "startingCSV": chosen.name, "installPlanApproval": "Automatic",
    });
    if !chosen.channel.is_empty() {
        spec["channel"] = chosen.channel.as_str().into();
    }
    let object = json!({
        "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "Subscription",
        "metadata": {"name": generated_name(chosen), "namespace": namespace}, "spec": spec,
    });
    match object {
        Value::Object(members) => Object(members),
        _ => Object::default(),
    }
}

/// Whether the Subscription asks for the package of a bundle, from its catalog. Without a catalog it means all.
pub fn subscribes(subscription: &Subscription, chosen: &ChosenBundle) -> bool {
    let spec = &subscription.spec;
    let is_any = spec.source.is_empty() && spec.source_namespace.is_empty();
    let is_source = spec.source == chosen.catalog && spec.source_namespace == chosen.namespace;
    spec.package == chosen.package && (is_any || is_source)
}
