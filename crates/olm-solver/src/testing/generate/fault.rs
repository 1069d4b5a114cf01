//! Faults: a namespace that contradicts itself, has a cycle, or names what does not exist.

use rand::Rng;
use serde_json::{Value, json};

use super::{CaseBuilder, list, property, push, text};

/// Types and values of properties that cannot be read.
const UNREADABLE: [(&str, &str); 9] = [
    ("olm.package.required", r#"{"packageName": "amber", "versionRange": "~1.0.0"}"#),
    ("olm.package.required", r#"["amber", ">=1.0.0"]"#),
    ("olm.gvk.required", r#"{"group": 5, "version": "v1", "kind": "Broker"}"#),
    ("olm.gvk", r#""Broker""#),
    ("olm.constraint", r#"{"failureMessage": "nothing"}"#),
    ("olm.constraint", r#"{"gvk": {"group": "g"}, "extra": true}"#),
    ("olm.constraint", r#"{"package": {"name": "amber", "versionRange": ">=1.0.0"}}"#),
    ("olm.constraint", r#"{"cel": {"rule": "properties.exists(p, p.type == 'x'"}}"#),
    ("olm.constraint", r#"{"cel": {"rule": "1"}}"#),
];

impl CaseBuilder {
    /// Adds one fault, and returns its name.
    pub(super) fn add_fault(&mut self, case: &mut Value) -> &'static str {
        match self.dice.random_range(0..16) {
            0 => {
                self.add_need(case, |_, _| missing_api());
                "an API that nothing provides"
            }
            1 => {
                let need = json!({"packageName": "absent", "versionRange": ">=1.0.0"});
                self.add_need(case, |_, _| property("olm.package.required", need.clone()));
                "a package that does not exist"
            }
            2 => {
                self.add_need(case, |builder, package| {
                    let range = *builder.pick(&[">99.0.0", ">=1.0.0 <1.0.0", "0.0.1"]);
                    let need = json!({"packageName": package, "versionRange": range});
                    property("olm.package.required", need)
                });
                "a version that does not exist"
            }
            3 => {
                let parts = json!({"constraints": [missing_api_part(), {"cel": {"rule": "false"}}]});
                let kind = *self.pick(&["all", "any"]);
                self.add_need(case, |_, _| property("olm.constraint", json!({kind: parts})));
                "a constraint that nothing meets"
            }
            4 => {
                self.add_cycle(case);
                "packages that need each other"
            }
            5..8 => self.mistake_in_subscription(case),
            8 | 9 => {
                self.subscribe_twice(case);
                "two Subscriptions to a package"
            }
            10 => {
                let (kind, value) = *self.pick(&UNREADABLE);
                let value: Value = serde_json::from_str(value).unwrap_or_default();
                self.add_need(case, |_, _| property(kind, value.clone()));
                "a property that cannot be read"
            }
            11 => {
                if let Some(catalog) = self.pick_mut(&mut case["catalogs"]) {
                    catalog["unhealthy"] = json!(true);
                }
                "a catalog without content"
            }
            12 => {
                self.add_need(case, |_, _| property("olm.deprecated", json!({})));
                "deprecated bundles"
            }
            13 => {
                self.add_chain_of_csvs(case);
                "a chain of CSVs"
            }
            _ => {
                self.break_channel(case);
                "a channel without an order"
            }
        }
    }

    fn pick_mut<'a>(&mut self, list: &'a mut Value) -> Option<&'a mut Value> {
        let items = list.as_array_mut().filter(|items| !items.is_empty())?;
        let at = self.dice.random_range(0..items.len());
        items.get_mut(at)
    }

    /// A package that a Subscription names, where it is published.
    fn pick_subscribed<'a>(&mut self, case: &'a mut Value) -> Option<&'a mut Value> {
        let subscriptions = list(&case["subscriptions"]).to_vec();
        let subscription = subscriptions.get(self.dice.random_range(0..subscriptions.len().max(1)))?;
        let catalogs = case["catalogs"].as_array_mut()?;
        let catalog = catalogs.iter_mut().find(|it| it["name"] == subscription["catalog"])?;
        catalog["packages"].as_array_mut()?.iter_mut().find(|it| it["name"] == subscription["package"])
    }

    /// Gives the newer bundles of a package, or all, a property.
    fn add_need(&mut self, case: &mut Value, mut make: impl FnMut(&mut Self, &str) -> Value) {
        let others: Vec<&str> = self.plans.iter().map(|plan| plan.name).collect();
        let other = *self.pick(&others);
        let made = make(self, other);
        let is_all = self.chance(60);
        let Some(package) = self.pick_subscribed(case) else { return };
        let Some(bundles) = package["bundles"].as_array_mut() else { return };
        let from = if is_all { 0 } else { bundles.len() / 2 };
        for bundle in &mut bundles[from..] {
            push(&mut bundle["properties"], made.clone());
        }
    }

    fn add_cycle(&mut self, case: &mut Value) {
        let Some(catalog) = self.pick_mut(&mut case["catalogs"]) else { return };
        let names: Vec<String> =
            list(&catalog["packages"]).iter().map(|it| text(&it["name"]).to_owned()).collect();
        let Some(packages) = catalog["packages"].as_array_mut() else { return };
        for (at, package) in packages.iter_mut().enumerate() {
            let next = &names[(at + 1) % names.len()];
            let need = json!({"packageName": next, "versionRange": ">=0.0.1"});
            for bundle in package["bundles"].as_array_mut().into_iter().flatten() {
                push(&mut bundle["properties"], property("olm.package.required", need.clone()));
            }
        }
    }

    fn mistake_in_subscription(&mut self, case: &mut Value) -> &'static str {
        let (member, note) = *self.pick(&[
            ("catalog", "a Subscription to a missing catalog"),
            ("package", "a Subscription to a missing package"),
            ("channel", "a Subscription to a missing channel"),
            ("startingCSV", "a Subscription to a missing startingCSV"),
        ]);
        if let Some(subscription) = self.pick_mut(&mut case["subscriptions"]) {
            subscription[member] = json!("absent");
        }
        note
    }

    fn subscribe_twice(&mut self, case: &mut Value) {
        let Some(subscription) = self.pick_mut(&mut case["subscriptions"]) else { return };
        let mut second = subscription.clone();
        second["name"] = json!(format!("second-{}", text(&subscription["name"])));
        if self.chance(50) {
            second["installedCSV"] = json!("");
        }
        if self.chance(30) {
            second["channel"] = json!("");
        }
        push(&mut case["subscriptions"], second);
    }

    /// A CSV that another one replaces, in one phase or another.
    fn add_chain_of_csvs(&mut self, case: &mut Value) {
        case["failForward"] = json!(true);
        let phases = [
            *self.pick(&["Replacing", "Replacing", "Succeeded", "Failed"]),
            *self.pick(&["Failed", "Failed", "Pending"]),
        ];
        let Some(newer) = self.pick_mut(&mut case["installed"]) else { return };
        let mut older = newer.clone();
        older["name"] = json!(format!("{}-old", text(&newer["name"])));
        newer["replaces"] = older["name"].clone();
        newer["phase"] = json!(phases[1]);
        older["phase"] = json!(phases[0]);
        push(&mut case["installed"], older);
    }

    fn break_channel(&mut self, case: &mut Value) {
        let (kind, place) = (self.dice.random_range(0..3), self.dice.random_range(0..100));
        let Some(package) = self.pick_subscribed(case) else { return };
        let Some(channels) = package["channels"].as_array_mut() else { return };
        let at = place % channels.len().max(1);
        let Some(entries) = channels[at]["entries"].as_array_mut() else { return };
        let head = entries.last().map(|it| it["name"].clone()).unwrap_or_default();
        let Some(first) = entries.first_mut() else { return };
        match kind {
            0 => first["replaces"] = head,
            1 => first["skips"] = json!([head]),
            _ => {
                let count = entries.len();
                for entry in &mut entries[count / 2..] {
                    entry["replaces"] = json!("");
                }
            }
        }
    }
}

fn missing_api_part() -> Value {
    json!({"gvk": {"group": "none.example.com", "version": "v1", "kind": "Nothing"}})
}

fn missing_api() -> Value {
    property("olm.gvk.required", missing_api_part()["gvk"].clone())
}
