//! PackageManifests.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use olm_api::classic::CatalogSource;
use olm_classic::packages;
use olm_fbc::PackageContents;
use serde_json::{Value, json};

use super::Comparison;
use super::observed::{pruned, typed};
use super::scenario::{Scenario, csv_name, entry_version, list, package_csvs};

pub(crate) fn compare(comparison: &mut Comparison, scenario: &Scenario) {
    for request in scenario.results.iter().flat_map(|step| list(&step["result"])) {
        let path = request["request"].as_str().unwrap_or_default();
        let Some(path) = path.strip_prefix("GET /apis/packages.operators.coreos.com/v1/namespaces/") else {
            continue;
        };
        let Some((asked, name)) = path.split_once("/packagemanifests/") else {
            comparison.underived(&format!("{} {path}", scenario.id), "a list, which the server selects");
            continue;
        };
        let place = format!("{} {path}", scenario.id);
        let (name, is_icon) = name.strip_suffix("/icon").map_or((name, false), |name| (name, true));
        let found = find(scenario, name);
        let found = found.filter(|_| packages::is_visible(&scenario.namespace(), asked, "olm"));
        if request["status"] == 404 {
            comparison.compare("missing package", &place, &json!(found.is_some()), &json!(false));
            continue;
        }
        let Some((source, contents)) = found else {
            comparison.underived(&place, "no catalog of the input has the package");
            continue;
        };
        if is_icon {
            compare_icon(comparison, &place, &contents, &request);
            continue;
        }
        let view = packages::manifest(&source, &contents, asked);
        assert_eq!(view.errors, vec![], "{place}");
        let manifest = serde_json::to_value(&view.manifest).unwrap();
        if request["body"]["kind"] == "PackageManifest" {
            comparison.compare("PackageManifest", &place, &pruned(&manifest), &pruned(&request["body"]));
        } else if let Some(values) = request["values"].as_object() {
            for (path, recorded) in values {
                let pointer = path.split('.').map(|part| format!("/{part}")).collect::<String>();
                let ours = manifest.pointer(&pointer).cloned().unwrap_or_default();
                comparison.compare("PackageManifest", &format!("{place} {path}"), &ours, recorded);
            }
        } else {
            comparison.underived(&place, "a table, which the server renders");
        }
    }
}

fn compare_icon(comparison: &mut Comparison, place: &str, contents: &PackageContents, request: &Value) {
    match packages::icon(contents) {
        Some((media_type, _)) => {
            comparison.compare("icon", place, &json!(media_type), &request["content_type"]);
        }
        None => comparison.underived(place, "the default icon of the server"),
    }
}

/// The catalog source with a package of this name, and its content as the lab's catalog has it.
fn find(scenario: &Scenario, name: &str) -> Option<(CatalogSource, PackageContents)> {
    for (catalog, content) in scenario.input["catalogs"].as_object().into_iter().flatten() {
        for (key, package) in content["packages"].as_object().into_iter().flatten() {
            if format!("{key}-{}", scenario.id) != name {
                continue;
            }
            let source = typed(json!({
                "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
                "metadata": { "name": catalog, "namespace": scenario.namespace() },
                "spec": { "sourceType": "grpc", "displayName": format!("Lab {catalog}"), "publisher": "lab" },
            }));
            return Some((source, contents(&scenario.id, key, name, package)));
        }
    }
    None
}

fn contents(id: &str, key: &str, name: &str, package: &Value) -> PackageContents {
    let mut lines = vec![json!({
        "schema": "olm.package", "name": name, "icon": package["icon"],
        "defaultChannel": package["defaultChannel"].as_str().unwrap_or("stable"),
    })];
    for (channel, entries) in package["channels"].as_object().into_iter().flatten() {
        let entries: Vec<Value> = list(entries)
            .iter()
            .map(|entry| {
                let mut named = json!({ "name": csv_name(id, key, &entry_version(entry)) });
                if let Some(replaced) = entry["replaces"].as_str() {
                    named["replaces"] = csv_name(id, key, replaced).into();
                }
                named
            })
            .collect();
        lines.push(json!({ "schema": "olm.channel", "package": name, "name": channel, "entries": entries }));
    }
    for (bundle, csv) in package_csvs(id, key, package) {
        let property = json!({ "type": "olm.package", "value": { "packageName": name, "version": csv["spec"]["version"] } });
        let inline = json!({ "type": "olm.bundle.object", "value": { "data": BASE64_STANDARD.encode(csv.to_string()) } });
        lines.push(json!({ "schema": "olm.bundle", "package": name, "name": bundle, "properties": [property, inline] }));
    }
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    let (contents, findings) = PackageContents::from_jsonl(name, lines.join("\n").as_bytes()).unwrap();
    assert_eq!(findings, vec![]);
    contents
}
