//! Namespaces made from a seed, as cases: catalogs with priorities, channels and deprecations; dependencies of every kind; installed CSVs.
//!
//! One in five gets a fault: it contradicts itself, has a cycle, or names what does not exist. Of the others one in seven is refused, too.

mod fault;
mod shape;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::Case;
use crate::{Limits, solve};
use shape::{LARGE, SHAPES, Shape};

const NAMES: [&str; 16] = [
    "amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "hazel", "iris", "jade", "kelp", "lotus",
    "maple", "north", "ochre", "pearl",
];
const KINDS: [&str; 6] = ["Backup", "Broker", "Cluster", "Database", "Gateway", "Worker"];
const CATALOGS: [&str; 5] = ["own", "bee", "zed", "community", "operators"];
const CHANNELS: [&str; 4] = ["stable", "alpha", "fast", "v1"];
const NAMESPACE: &str = "dev";
const GLOBAL: &str = "olm";

const RULES: [&str; 18] = [
    "properties.exists(p, p.type == 'certified')",
    "properties.exists(p, p.type == 'certified' && p.value == true)",
    "properties.exists(p, p.type == 'certified' && p.value)",
    "properties.exists(p, p.type == 'tier' && p.value >= 2)",
    "properties.exists(p, p.type == 'tier' && p.value == 1.0)",
    "properties.exists(p, p.type == 'arch' && 'arm64' in p.value)",
    "!properties.exists(p, p.type == 'arch')",
    "properties.all(p, p.type != 'tier')",
    "properties.exists_one(p, p.type == 'olm.gvk')",
    "properties.filter(p, p.type == 'olm.gvk').size() > 1",
    "properties.exists(p, p.type == 'olm.gvk' && p.value.kind == 'Broker')",
    "properties.exists(p, p.type == 'olm.package' && semver_compare(p.value.version, '1.2.0') >= 0)",
    "properties.exists(p, p.type == 'olm.package' && p.value.packageName.startsWith('c'))",
    "properties.map(p, p.type).exists(t, t == 'certified')",
    "size(properties) > 2 ? properties.exists(p, p.type == 'certified') : true",
    "properties.exists(p, p.type == 'tier') || properties.exists(p, p.type == 'arch')",
    "properties.exists(p, p.type.matches('^ce.*d$'))",
    "true",
];

/// Of a namespace to be taken that is refused although nothing is wrong with it on purpose.
const REFUSED: u32 = 20;

/// The case of this number: small, but one in 1,000 large.
pub fn case(seed: u64, number: u64) -> Value {
    let mut builder = CaseBuilder::new(seed, number);
    let shape = match builder.dice.random_range(0..1_000) {
        0 => &LARGE,
        _ => &SHAPES[builder.dice.random_range(0..SHAPES.len())],
    };
    let mut case = builder.sound_case(number, shape);
    // packages made at random contradict each other in every second namespace
    while is_refused(&case) && !builder.chance(REFUSED) {
        builder.clear();
        case = builder.sound_case(number, shape);
    }
    if builder.chance(20) {
        let fault = builder.add_fault(&mut case);
        case["note"] = json!(fault);
    }
    case
}

fn is_refused(case: &Value) -> bool {
    Case::parse(&case.to_string()).is_ok_and(|case| solve(&case.namespace, Limits::default()).is_err())
}

/// A large case that has nothing wrong.
pub fn large_case(seed: u64, number: u64) -> Value {
    CaseBuilder::new(seed, number).sound_case(number, &LARGE)
}

#[derive(Clone)]
struct Api {
    group: String,
    kind: &'static str,
    version: String,
}

impl Api {
    fn value(&self) -> Value {
        json!({"group": self.group, "version": self.version, "kind": self.kind})
    }
}

/// What the versions of a package have in common, in all catalogs.
struct Plan {
    name: &'static str,
    versions: Vec<String>,
    provides: Vec<usize>,
    /// Each with the first version that declares it.
    needs: Vec<(Need, usize)>,
    in_step: bool,
}

#[derive(Clone)]
enum Need {
    /// A property of a type, with its value.
    Fixed(&'static str, Value),
    /// The API of another package, in the version that goes with one's own.
    InStep(&'static str),
}

struct CaseBuilder {
    dice: StdRng,
    apis: Vec<Api>,
    plans: Vec<Plan>,
}

fn property(kind: &str, value: Value) -> Value {
    json!({"type": kind, "value": value})
}

impl CaseBuilder {
    fn new(seed: u64, number: u64) -> Self {
        let dice = StdRng::seed_from_u64(seed ^ number.wrapping_mul(0x2545_f491_4f6c_dd1d));
        Self { dice, apis: Vec::new(), plans: Vec::new() }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.dice.random_ratio(percent, 100)
    }

    fn within(&mut self, (low, high): (usize, usize)) -> usize {
        self.dice.random_range(low..=high)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.dice.random_range(0..from.len())]
    }

    fn some<T: Clone>(&mut self, from: &[T], count: usize) -> Vec<T> {
        from.choose_multiple(&mut self.dice, count).cloned().collect()
    }

    fn clear(&mut self) {
        self.apis.clear();
        self.plans.clear();
    }

    fn sound_case(&mut self, number: u64, shape: &Shape) -> Value {
        self.plan(shape);
        let count = self.within(shape.catalogs);
        let names = self.some(&CATALOGS, count);
        let catalogs: Vec<Value> =
            names.iter().enumerate().map(|(at, name)| self.catalog(name, shape, at == 0)).collect();
        let mut case = json!({
            "id": format!("{}-{number}", shape.profile), "profile": shape.profile, "namespace": NAMESPACE, "globalNamespace": GLOBAL,
            "catalogs": catalogs, "subscriptions": [], "installed": [],
        });
        if self.chance(5) {
            case["excludeGlobal"] = json!(true);
        }
        if self.chance(15) {
            case["failForward"] = json!(true);
        }
        self.subscribe(&mut case, shape);
        if self.chance(15) {
            self.add_free_csv(&mut case);
        }
        case
    }

    fn plan(&mut self, shape: &Shape) {
        for _ in 0..self.within(shape.apis) {
            let api = Api {
                group: format!("{}.example.com", self.pick(&NAMES[..6])),
                kind: KINDS.choose(&mut self.dice).copied().unwrap_or_default(),
                version: (*self.pick(&["v1", "v1", "v1", "v1beta1", "v2"])).to_owned(),
            };
            self.apis.push(api);
        }
        self.apis.sort_by_key(|api| api.value().to_string());
        self.apis.dedup_by_key(|api| api.value().to_string());
        let count = self.within(shape.packages);
        for name in self.some(&NAMES, count) {
            let versions = self.within(shape.versions);
            let (count, versions) = (self.dice.random_range(0..3), self.versions(versions));
            let all: Vec<usize> = (0..self.apis.len()).collect();
            let (provides, in_step) = (self.some(&all, count), self.chance(shape.in_step));
            self.plans.push(Plan { name, versions, provides, needs: Vec::new(), in_step });
        }
        for at in 0..self.plans.len() {
            while self.plans[at].needs.len() < 3 && self.chance(shape.needs) {
                let need = self.need(at, shape);
                let from = match self.chance(50) {
                    true => 0,
                    false => self.dice.random_range(0..self.plans[at].versions.len()),
                };
                self.plans[at].needs.push((need, from));
            }
        }
    }

    fn versions(&mut self, count: usize) -> Vec<String> {
        let (mut major, mut minor, mut patch) =
            (*self.pick(&[0, 1, 1, 1, 2]), self.dice.random_range(0..3), 0);
        let versions = (0..count).map(|_| {
            match self.dice.random_range(0..10) {
                0..2 => (major, minor, patch) = (major + 1, 0, 0),
                2..7 => (minor, patch) = (minor + 1, 0),
                _ => patch += 1,
            }
            let suffix = match self.dice.random_range(0..20) {
                0 => "-rc.1",
                1 => "+build.7",
                _ => "",
            };
            format!("{major}.{minor}.{patch}{suffix}")
        });
        versions.collect()
    }

    fn need(&mut self, of: usize, shape: &Shape) -> Need {
        // mostly of a package that comes after it, so that cycles are the exception
        let others: Vec<usize> = match self.chance(85) {
            true => (of + 1..self.plans.len()).collect(),
            false => (0..self.plans.len()).collect(),
        };
        let Some(&other) = others.choose(&mut self.dice) else {
            let api = self.any_api();
            return Need::Fixed("olm.gvk.required", api);
        };
        if self.plans[of].in_step && self.plans[other].in_step {
            return Need::InStep(self.plans[other].name);
        }
        if self.chance(shape.constraints) {
            let value = self.constraint(other, 0);
            return Need::Fixed("olm.constraint", value);
        }
        let provides = !self.plans[other].provides.is_empty();
        match self.dice.random_range(0..20) {
            0 if provides => Need::Fixed("olm.label.required", json!({"label": "certified"})),
            kind if kind < 9 || !provides => {
                let value = self.package_and_range(other);
                Need::Fixed("olm.package.required", value)
            }
            _ => {
                let value = self.api_of(other);
                Need::Fixed("olm.gvk.required", value)
            }
        }
    }

    fn any_api(&mut self) -> Value {
        let at = self.dice.random_range(0..self.apis.len());
        self.apis[at].value()
    }

    fn api_of(&mut self, plan: usize) -> Value {
        match self.plans[plan].provides.choose(&mut self.dice) {
            Some(&api) => self.apis[api].value(),
            None => self.any_api(),
        }
    }

    fn package_and_range(&mut self, plan: usize) -> Value {
        json!({"packageName": self.plans[plan].name, "versionRange": self.range(plan)})
    }

    fn range(&mut self, plan: usize) -> String {
        let versions = self.plans[plan].versions.clone();
        let (one, other) = (self.pick(&versions), self.pick(&versions));
        match self.dice.random_range(0..20) {
            0..8 => format!(">={}", versions[0]),
            8..10 => format!(">={one}"),
            10..12 => format!("<={one}"),
            12 => format!(">{one}"),
            13 => format!("<{one}"),
            14 => one.clone(),
            15 => format!("!{one}"),
            16 => format!(">={one} <{other}"),
            17 => format!("<{one} || >={other}"),
            18 => "1.x".to_owned(),
            _ => ">0.0.0 !1.0.0".to_owned(),
        }
    }

    /// Value of an `olm.constraint`.
    fn constraint(&mut self, plan: usize, depth: usize) -> Value {
        let mut value = match self.dice.random_range(0..if depth < 2 { 12 } else { 7 }) {
            0..3 => json!({"gvk": self.api_of(plan)}),
            3..5 => json!({"package": self.package_and_range(plan)}),
            5..7 => json!({"cel": {"rule": self.pick(&RULES)}}),
            7..9 => json!({"all": {"constraints": self.parts(plan, depth)}}),
            9..11 => json!({"any": {"constraints": self.parts(plan, depth)}}),
            // a bare `not` is met by almost everything
            _ if depth == 0 => {
                let not = json!({"not": {"constraints": self.parts(plan, depth)}});
                json!({"all": {"constraints": [self.constraint(plan, 2), not]}})
            }
            _ => json!({"not": {"constraints": self.parts(plan, depth)}}),
        };
        if self.chance(30) {
            value["failureMessage"] = json!(format!("needs {}", self.plans[plan].name));
        }
        value
    }

    fn parts(&mut self, plan: usize, depth: usize) -> Vec<Value> {
        let count = self.dice.random_range(1..4);
        let mut parts = Vec::new();
        for _ in 0..count {
            let of = match self.chance(70) {
                true => plan,
                false => self.dice.random_range(0..self.plans.len()),
            };
            parts.push(self.constraint(of, depth + 1));
        }
        parts
    }

    /// The first catalog can be seen and has all packages, so that most dependencies can be met.
    fn catalog(&mut self, name: &str, shape: &Shape, is_first: bool) -> Value {
        let namespace = match self.dice.random_range(0..30) {
            0 if !is_first => "elsewhere",
            1..16 if !is_first => GLOBAL,
            _ => NAMESPACE,
        };
        let share = if shape.profile == "prefs" { 60 } else { 80 };
        let mut packages = Vec::new();
        for plan in 0..self.plans.len() {
            if is_first || self.chance(share) {
                packages.push(self.package(plan, shape));
            }
        }
        json!({"name": name, "namespace": namespace, "priority": self.pick(&[0, 0, 0, 0, -400, 10, 100]), "packages": packages})
    }

    fn package(&mut self, plan: usize, shape: &Shape) -> Value {
        let (name, versions) = (self.plans[plan].name, self.plans[plan].versions.clone());
        let mut bundles = Vec::new();
        for version in 0..versions.len() {
            bundles.push(self.bundle(plan, version));
        }
        let count = self.within(shape.channels);
        let names = self.some(&CHANNELS, count);
        let mut channels = Vec::new();
        for channel in &names {
            // the first channel has all, others some
            let of: Vec<String> = match channels.is_empty() || self.chance(50) {
                true => versions.clone(),
                false => {
                    let most = self.dice.random_range(1..=versions.len());
                    versions[..most].to_vec()
                }
            };
            let invalid = self.chance(shape.invalid_graph);
            let entries = self.entries(name, &of, invalid);
            let mut channel = json!({"name": channel, "entries": entries});
            if self.chance(3) {
                channel["deprecation"] = json!("channel is not maintained");
            }
            channels.push(channel);
        }
        let default = if self.chance(3) { "nowhere" } else { self.pick(&names) };
        let mut package =
            json!({"name": name, "defaultChannel": default, "channels": channels, "bundles": bundles});
        if self.chance(3) {
            package["deprecation"] = json!("package is not maintained");
        }
        package
    }

    /// A chain of all versions; skips, ranges, and sometimes edges that make no chain.
    fn entries(&mut self, package: &str, versions: &[String], invalid: bool) -> Vec<Value> {
        let name = |at: usize| format!("{package}.v{}", versions[at]);
        let mut entries = Vec::new();
        let mut below: Option<usize> = None;
        for at in 0..versions.len() {
            let mut entry = json!({"name": name(at)});
            match below {
                None if self.chance(30) => entry["replaces"] = json!(format!("{package}.v0.0.9")),
                None => {}
                // what is skipped is replaced by nothing else
                Some(last) if last > 0 && self.chance(15) => {
                    let first: Option<Value> = entries.get(last).map(|it: &Value| it["replaces"].clone());
                    if let Some(Value::String(first)) = first {
                        entry["replaces"] = json!(first);
                    }
                    entry["skips"] = json!([name(last)]);
                }
                Some(last) => entry["replaces"] = json!(name(last)),
            }
            if self.chance(15) {
                let low = self.pick(versions);
                entry["skipRange"] = json!(format!(">={low} <{}", versions[at]));
            } else if self.chance(2) {
                entry["skipRange"] = json!(*self.pick(&["~1.0", "garbage", "!1.0.0"]));
            }
            below = Some(at);
            entries.push(entry);
        }
        if invalid {
            let (at, other) =
                (self.dice.random_range(0..versions.len()), self.dice.random_range(0..versions.len()));
            match self.dice.random_range(0..4) {
                0 => entries[at]["replaces"] = json!(name(other)),
                1 => entries[at]["skips"] = json!([name(other)]),
                2 => entries[at]["replaces"] = Value::Null,
                _ => drop(entries.remove(at)),
            }
            for entry in &mut entries {
                if entry["replaces"].is_null() {
                    entry["replaces"] = json!("");
                }
            }
        }
        entries
    }

    fn bundle(&mut self, plan: usize, version: usize) -> Value {
        let Plan { name, versions, provides, needs, in_step } = &self.plans[plan];
        let (name, text, in_step) = (*name, versions[version].clone(), *in_step);
        let mut apis: Vec<Value> = provides.iter().map(|&api| self.apis[api].value()).collect();
        if in_step {
            apis.push(json!({"group": format!("{name}.example.com"), "version": format!("v{version}"), "kind": "Part"}));
        }
        let needs: Vec<(&'static str, Value)> = needs
            .iter()
            .filter(|(_, from)| *from <= version)
            .map(|(need, _)| match need {
                Need::Fixed(kind, value) => (*kind, value.clone()),
                Need::InStep(other) => (
                    "olm.gvk.required",
                    json!({"group": format!("{other}.example.com"), "version": format!("v{version}"), "kind": "Part"}),
                ),
            })
            .collect();
        // now and then an older or newer version lacks an API, or has the next version of it
        apis.retain(|_| self.dice.random_ratio(95, 100));
        let mut bundle = json!({"name": format!("{name}.v{text}"), "version": text});
        let mut properties = Vec::new();
        let only_apis = self.chance(6);
        match only_apis {
            true => bundle["providedAPIs"] = json!(apis),
            false => {
                if self.chance(92) {
                    properties.push(property("olm.package", json!({"packageName": name, "version": text})));
                }
                properties.extend(apis.into_iter().map(|api| property("olm.gvk", api)));
            }
        }
        if !only_apis {
            self.add_facts(&mut properties);
        }
        let only_gvk = needs.iter().all(|(kind, _)| *kind == "olm.gvk.required");
        match self.dice.random_range(0..10) {
            // as a CSV lists them
            0 if only_gvk => {
                bundle["requiredAPIs"] = needs.into_iter().map(|(_, value)| value).collect();
            }
            // as `dependencies.yaml` has them
            1..4 => bundle["dependencies"] = needs.into_iter().map(as_dependency).collect(),
            _ if only_apis => bundle["dependencies"] = needs.into_iter().map(as_dependency).collect(),
            _ => properties.extend(needs.into_iter().map(|(kind, value)| property(kind, value))),
        }
        if !properties.is_empty() {
            bundle["properties"] = json!(properties);
        }
        if self.chance(3) {
            bundle["deprecation"] = json!("bundle is not maintained");
        }
        bundle
    }

    /// Properties that rules look at, and `olm.deprecated`.
    fn add_facts(&mut self, properties: &mut Vec<Value>) {
        if self.chance(30) {
            properties
                .push(property("certified", self.pick(&[json!(true), json!(false), json!("yes")]).clone()));
        }
        if self.chance(25) {
            properties.push(property("tier", json!(self.dice.random_range(0..4))));
        }
        if self.chance(20) {
            let arch = [json!("amd64"), json!(["amd64", "arm64"]), json!({"arm64": true})];
            properties.push(property("arch", self.pick(&arch).clone()));
        }
        if self.chance(5) {
            properties.push(property("olm.label", json!({"label": "certified"})));
        }
        if self.chance(2) {
            properties.push(property("olm.deprecated", json!({})));
        }
    }

    /// Subscriptions to packages that are published, and CSVs of them.
    fn subscribe(&mut self, case: &mut Value, shape: &Shape) {
        let catalogs: Vec<Value> = list(&case["catalogs"])
            .iter()
            .filter(|it| it["namespace"] != "elsewhere" && !list(&it["packages"]).is_empty())
            .cloned()
            .collect();
        let mut subscribed: Vec<String> = Vec::new();
        let (mut subscriptions, mut installed) = (Vec::new(), Vec::new());
        for _ in 0..self.within(shape.subscriptions) {
            let Some(catalog) = catalogs.choose(&mut self.dice) else { break };
            let package = self.pick(list(&catalog["packages"]));
            let channel = self.pick(list(&package["channels"]));
            let (name, entries) = (text(&package["name"]), list(&channel["entries"]));
            if subscribed.iter().any(|it| it == name) || entries.is_empty() {
                continue;
            }
            subscribed.push(name.to_owned());
            let mut subscription = json!({
                "name": format!("sub-{name}"), "package": name, "channel": channel["name"], "catalog": catalog["name"],
                "catalogNamespace": catalog["namespace"],
            });
            if self.chance(4) {
                subscription["channel"] = json!("");
            }
            if self.chance(3) {
                subscription["catalog"] = json!("");
                subscription["catalogNamespace"] = json!("");
            }
            let csv = text(&self.pick(entries)["name"]);
            if self.chance(shape.installed) {
                subscription["installedCSV"] = json!(csv);
                subscription["currentCSV"] = json!(csv);
                if self.chance(97) {
                    installed.extend(self.installed(package, csv));
                }
            } else if self.chance(10) {
                subscription["startingCSV"] = json!(csv);
            }
            subscriptions.push(subscription);
        }
        case["subscriptions"] = json!(subscriptions);
        case["installed"] = json!(installed);
    }

    /// The CSV of a published bundle; with the properties annotation, or as old ones are, without.
    fn installed(&mut self, package: &Value, csv: &str) -> Option<Value> {
        let bundle = list(&package["bundles"]).iter().find(|it| it["name"] == csv)?;
        let mut installed = json!({"name": csv, "version": bundle["version"]});
        let apis = |kind: &str, own: &str| -> Vec<Value> {
            let of_type = list(&bundle["properties"]).iter().filter(|it| it["type"] == kind);
            list(&bundle[own]).iter().cloned().chain(of_type.map(|it| it["value"].clone())).collect()
        };
        if self.chance(80) {
            let mut properties = list(&bundle["properties"]).to_vec();
            if properties.iter().all(|it| it["type"] != "olm.package") {
                let of = json!({"packageName": package["name"], "version": bundle["version"]});
                properties.insert(0, property("olm.package", of));
            }
            installed["properties"] = json!(properties);
        } else {
            installed["providedAPIs"] = json!(apis("olm.gvk", "providedAPIs"));
            installed["requiredAPIs"] = json!(apis("olm.gvk.required", "requiredAPIs"));
        }
        if self.chance(15) {
            installed["phase"] = json!(*self.pick(&["Installing", "Failed", "Replacing", "Pending"]));
        }
        Some(installed)
    }

    /// A CSV that no Subscription names, or a copy.
    fn add_free_csv(&mut self, case: &mut Value) {
        let packages: Vec<&Value> =
            list(&case["catalogs"]).iter().flat_map(|it| list(&it["packages"])).collect();
        let Some(&package) = packages.choose(&mut self.dice) else { return };
        let name = text(&package["name"]).to_owned();
        if list(&case["subscriptions"]).iter().any(|it| it["package"] == *name) && self.chance(80) {
            return;
        }
        let Some(bundle) = list(&package["bundles"]).choose(&mut self.dice) else { return };
        let csv = text(&bundle["name"]).to_owned();
        if list(&case["installed"]).iter().any(|it| it["name"] == *csv) {
            return;
        }
        let Some(mut installed) = self.installed(package, &csv) else { return };
        if self.chance(25) {
            installed["copied"] = json!(true);
        }
        push(&mut case["installed"], installed);
    }
}

/// A dependency of a bundle as `dependencies.yaml` has it.
fn as_dependency((kind, value): (&'static str, Value)) -> Value {
    match kind {
        "olm.package.required" => property(
            "olm.package",
            json!({"packageName": value["packageName"], "version": value["versionRange"]}),
        ),
        "olm.gvk.required" => property("olm.gvk", value),
        "olm.label.required" => property("olm.label", value),
        _ => property(kind, value),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        other => *other = json!([item]),
    }
}
