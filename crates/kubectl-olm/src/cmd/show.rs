//! `show`: what a package offers, from every catalog that has it.

use std::collections::BTreeMap;

use clap::Args;
use olm_catalog::PackageContent;
use olm_core::VersionRelease;
use olm_fbc::property::{self, CsvMetadata, Gvk, GvkRequired, PackageRequired};
use olm_fbc::{Bundle, PackageContents, PackageSummary, Reference, schema, summarise};
use serde::Serialize;
use serde_json::Value;

use super::output::{MAX_NOTE, Output, Table, bad, bold, cut, or_dash};
use crate::CommandOutput;
use crate::failure::CommandError;
use crate::similar::no_channel;
use crate::sources::{Found, Sources};

/// Characters of a description.
const MAX_DESCRIPTION: usize = 200;
/// Most versions in the table; the rest is counted.
const MAX_VERSIONS: usize = 8;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  kubectl olm show argocd-operator\n  \
                  kubectl olm show argocd-operator --channel alpha --version 0.10.0 -o wide\n  \
                  kubectl olm show argocd-operator --image quay.io/operatorhubio/catalog:latest\n  \
                  kubectl olm show my-operator --dir ./catalog -o json\n\n\
                  Exit codes: 0 shown, 1 no such package, channel or version, 2 bad input, 3 no answer.")]
pub(crate) struct Arguments {
    /// The package
    package: String,
    /// Show the head of this channel instead of the default channel's
    #[arg(long)]
    channel: Option<String>,
    /// Show the bundle of this version
    #[arg(long)]
    version: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    sources: Sources,
}

/// A package as one catalog has it. `-o json` prints a list of these.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PackageDetails {
    catalog: String,
    /// Everything that is the same for all bundles.
    #[serde(flatten)]
    package: PackageSummary,
    /// The author's text (Markdown).
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
    /// All versions, highest first.
    versions: Vec<String>,
    /// One bundle: the requested one, else the head of the default channel, else the highest.
    #[serde(skip_serializing_if = "Option::is_none")]
    bundle: Option<Detail>,
    /// The parts of the package that do not decode.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    findings: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Detail {
    name: String,
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    release: Option<String>,
    image: String,
    /// Ways of installing that work; OLM v1 installs AllNamespaces, SingleNamespace and OwnNamespace.
    install_modes: Vec<String>,
    /// Custom resources that it brings.
    provided: Vec<Api>,
    /// Custom resources that must be there.
    required: Vec<Api>,
    /// Packages and constraints that must be met.
    dependencies: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    min_kube_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    max_open_shift_version: String,
    /// Images that it runs, for mirroring.
    related_images: Vec<String>,
    /// The message of the catalog for its deprecation.
    #[serde(skip_serializing_if = "Option::is_none")]
    deprecation: Option<String>,
    /// The author's text (Markdown).
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    keywords: Vec<String>,
    /// Such as `stable` or `alpha`.
    #[serde(skip_serializing_if = "String::is_empty")]
    maturity: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    links: Vec<Contact>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    maintainers: Vec<Contact>,
}

/// A name with an address.
#[derive(Debug, Serialize)]
struct Contact {
    name: String,
    /// URL or mail address.
    #[serde(skip_serializing_if = "String::is_empty")]
    address: String,
}

impl std::fmt::Display for Contact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", [self.name.as_str(), &self.address].join(" ").trim())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Api {
    group: String,
    kind: String,
    /// All versions of it, in the catalog's order.
    versions: Vec<String>,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let found = arguments.sources.package(&arguments.package).await?;
    let shown = all_details(arguments, &found)?;
    let names = || shown.iter().map(|shown| shown.package.name.clone()).take(1).collect();
    let people = |wide| shown.iter().map(|shown| text(shown, wide)).collect::<Vec<_>>().join("\n");
    Ok(CommandOutput { text: arguments.output.print(&shown, names, people), yes: true })
}

/// The package of the catalogs that have the version or channel; an error if none has it.
fn all_details(arguments: &Arguments, found: &[Found]) -> Result<Vec<PackageDetails>, CommandError> {
    let (mut all, mut missing) = (Vec::new(), Vec::new());
    for found in found {
        match details(arguments, found) {
            Ok(details) => all.push(details),
            Err(text) => missing.push(text),
        }
    }
    if all.is_empty() { Err(CommandError::NotFound(missing.join("\n"))) } else { Ok(all) }
}

/// An error message if the catalog lacks the version or channel.
fn details(arguments: &Arguments, found: &Found) -> Result<PackageDetails, String> {
    let PackageContent { contents, findings } = &found.content;
    let package = summarise(&arguments.package, contents);
    let mut versions: Vec<VersionRelease> = contents.bundles.iter().filter_map(version).collect();
    versions.sort();
    versions.dedup();
    let bundle = picked(arguments, found, &package)?;
    // in full beside it
    let package = PackageSummary { excerpt: String::new(), keywords: Vec::new(), ..package };
    Ok(PackageDetails {
        catalog: found.catalog.name.to_string(),
        description: contents.package.as_ref().map(|package| package.description.clone()).unwrap_or_default(),
        versions: versions.iter().rev().map(ToString::to_string).collect(),
        bundle: bundle
            .map(|bundle| Detail { deprecation: deprecation(contents, &bundle.name), ..detail(bundle) }),
        findings: findings.iter().map(ToString::to_string).collect(),
        package,
    })
}

/// The message of the catalog for the deprecation of a bundle.
fn deprecation(contents: &PackageContents, bundle: &str) -> Option<String> {
    let entries = &contents.deprecations.last()?.entries;
    let is_of = |reference: &Reference| reference.schema == schema::BUNDLE && reference.name == bundle;
    entries.iter().find(|entry| is_of(&entry.reference)).map(|entry| entry.message.clone())
}

pub(crate) fn version(bundle: &Bundle) -> Option<VersionRelease> {
    let package = bundle.package_property().ok()?;
    VersionRelease::parse(&package.version, package.release.as_deref()).ok()
}

fn picked<'a>(
    arguments: &Arguments,
    found: &'a Found,
    package: &PackageSummary,
) -> Result<Option<&'a Bundle>, String> {
    let bundles: BTreeMap<&str, &Bundle> =
        found.content.contents.bundles.iter().map(|bundle| (bundle.name.as_str(), bundle)).collect();
    let at = format!("package {} of catalog {}", package.name, found.catalog.name);
    if let Some(requested) = &arguments.version {
        let is = |bundle: &&&Bundle| {
            version(bundle).is_some_and(|found| {
                found.to_string() == *requested || found.version.to_string() == *requested
            })
        };
        let bundle = bundles.values().find(is).copied();
        return bundle.map(Some).ok_or_else(|| {
            let flags = arguments.sources.flags();
            format!("{at} has no version {requested}; see `kubectl olm versions {}{flags}`", package.name)
        });
    }
    let channel = arguments.channel.as_ref().unwrap_or(&package.default_channel);
    let known = package.channels.iter().find(|known| known.name == *channel);
    if known.is_none() && arguments.channel.is_some() {
        let all = package.channels.iter().map(|channel| channel.name.as_str());
        return Err(no_channel(channel, &at, all));
    }
    let head = known.and_then(|channel| channel.heads.first()).or(package.latest.as_ref());
    Ok(head.and_then(|head| bundles.get(head.name.as_str()).copied()))
}

fn detail(bundle: &Bundle) -> Detail {
    let package = bundle.package_property().unwrap_or_default();
    let csv = csv(bundle);
    let (mut provided, mut required) = (Apis::default(), Apis::default());
    let gvks = bundle.properties_of(property::GVK).filter_map(|property| property.read::<Gvk>(0).ok());
    gvks.for_each(|gvk| provided.add(gvk.group, gvk.kind, gvk.version));
    let needs = bundle.properties_of(property::GVK_REQUIRED);
    let needs = needs.filter_map(|property| property.read::<GvkRequired>(0).ok());
    needs.for_each(|gvk| required.add(gvk.group, gvk.kind, gvk.version));
    for (crds, apis) in [(&csv.owned, &mut provided), (&csv.required, &mut required)] {
        for (group, kind, version) in crds {
            apis.add(group.clone(), kind.clone(), version.clone());
        }
    }
    let packages = bundle.properties_of(property::PACKAGE_REQUIRED);
    let mut dependencies: Vec<String> = packages
        .filter_map(|property| property.read::<PackageRequired>(0).ok())
        .map(|needed| {
            format!("package {} {}", needed.package_name, needed.version_range).trim_end().to_owned()
        })
        .collect();
    let raw = |property: &property::Property| property.value.as_ref().map(|json| json.as_str().to_owned());
    dependencies.extend(
        bundle.properties_of(property::CONSTRAINT).filter_map(raw).map(|json| format!("constraint {json}")),
    );
    let mut related: Vec<String> = bundle
        .related_images
        .iter()
        .map(|related| related.image.clone())
        .filter(|image| !image.is_empty() && *image != bundle.image)
        .collect();
    related.sort();
    related.dedup();
    let openshift = bundle.properties_of(property::MAX_OPENSHIFT_VERSION).find_map(raw).unwrap_or_default();
    Detail {
        name: bundle.name.clone(),
        version: package.version,
        release: package.release,
        image: bundle.image.clone(),
        install_modes: csv.install_modes,
        provided: provided.0,
        required: required.0,
        dependencies,
        min_kube_version: csv.min_kube_version,
        max_open_shift_version: openshift.trim_matches('"').to_owned(),
        related_images: related,
        deprecation: None,
        description: csv.description,
        keywords: csv.keywords,
        maturity: csv.maturity,
        links: csv.links,
        maintainers: csv.maintainers,
    }
}

/// APIs with their versions together.
#[derive(Default)]
struct Apis(Vec<Api>);

impl Apis {
    fn add(&mut self, group: String, kind: String, version: String) {
        let place = self.0.binary_search_by(|api| (&api.group, &api.kind).cmp(&(&group, &kind)));
        match place {
            Ok(at) if self.0[at].versions.contains(&version) => {}
            Ok(at) => self.0[at].versions.push(version),
            Err(at) => self.0.insert(at, Api { group, kind, versions: vec![version] }),
        }
    }
}

/// The data of a CSV, from either property of the catalog.
#[derive(Default)]
struct Csv {
    install_modes: Vec<String>,
    min_kube_version: String,
    owned: Vec<(String, String, String)>,
    required: Vec<(String, String, String)>,
    description: String,
    keywords: Vec<String>,
    maturity: String,
    links: Vec<Contact>,
    maintainers: Vec<Contact>,
}

fn csv(bundle: &Bundle) -> Csv {
    let metadata = bundle
        .properties_of(property::CSV_METADATA)
        .find_map(|property| property.read::<CsvMetadata>(0).ok());
    let Some(metadata) = metadata else { return inline_csv(bundle).unwrap_or_default() };
    let crds = |crds: &[property::Crd]| {
        let gvk = |crd: &property::Crd| (group(&crd.name), crd.kind.clone(), crd.version.clone());
        crds.iter().map(gvk).collect()
    };
    let modes = metadata.install_modes.iter().filter(|mode| mode.supported);
    Csv {
        install_modes: modes.map(|mode| mode.kind.clone()).collect(),
        owned: crds(&metadata.crd_descriptions.owned),
        required: crds(&metadata.crd_descriptions.required),
        min_kube_version: metadata.min_kube_version,
        description: metadata.description,
        keywords: metadata.keywords,
        maturity: metadata.maturity,
        links: contacts(metadata.links.into_iter().map(|link| (link.name, link.url))),
        maintainers: contacts(metadata.maintainers.into_iter().map(|person| (person.name, person.email))),
    }
}

fn contacts(all: impl Iterator<Item = (String, String)>) -> Vec<Contact> {
    all.map(|(name, address)| Contact { name, address }).collect()
}

/// Older catalogs have the manifests themselves.
fn inline_csv(bundle: &Bundle) -> Option<Csv> {
    let objects = bundle.properties_of(property::BUNDLE_OBJECT);
    let objects = objects.filter_map(|property| property.read::<property::BundleObject>(0).ok());
    let csv = objects
        .filter_map(|object| {
            let document =
                olm_yaml::Documents::from_bytes(&object.data.0, olm_yaml::Limits::default()).next()?.ok()?;
            serde_json::from_slice::<Value>(&document).ok()
        })
        .find(|object| object["kind"] == "ClusterServiceVersion")?;
    let spec = &csv["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let crds = |value: &Value| {
        let gvk = |crd: &Value| (group(&text(&crd["name"])), text(&crd["kind"]), text(&crd["version"]));
        list(value).iter().map(gvk).collect()
    };
    let modes = list(&spec["installModes"]);
    Some(Csv {
        install_modes: modes
            .iter()
            .filter(|mode| mode["supported"] == true)
            .map(|mode| text(&mode["type"]))
            .collect(),
        min_kube_version: text(&spec["minKubeVersion"]),
        owned: crds(&spec["customresourcedefinitions"]["owned"]),
        required: crds(&spec["customresourcedefinitions"]["required"]),
        description: text(&spec["description"]),
        keywords: list(&spec["keywords"]).iter().map(text).collect(),
        maturity: text(&spec["maturity"]),
        links: contacts(list(&spec["links"]).iter().map(|link| (text(&link["name"]), text(&link["url"])))),
        maintainers: contacts(
            list(&spec["maintainers"]).iter().map(|person| (text(&person["name"]), text(&person["email"]))),
        ),
    })
}

/// `<plural>.<group>`
fn group(crd: &str) -> String {
    crd.split_once('.').map(|(_, group)| group.to_owned()).unwrap_or_default()
}

fn text(shown: &PackageDetails, wide: bool) -> String {
    let package = &shown.package;
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            text.push_str(&format!("{:<16} {value}\n", format!("{name}:")));
        }
    };
    line("Package", &package.name);
    line("Name", &package.display_name);
    line("Provider", &package.provider);
    line("Catalog", &shown.catalog);
    line("Default channel", &package.default_channel);
    if let Some(why) = &package.deprecation {
        line("Deprecated", &bad(why));
    }
    let more = shown.versions.len().saturating_sub(if wide { usize::MAX } else { MAX_VERSIONS });
    let mut versions = shown.versions[..shown.versions.len() - more].join(", ");
    if more > 0 {
        versions.push_str(&format!(" and {more} more"));
    }
    line("Versions", &versions);
    let of_bundle = shown.bundle.as_ref().map(|bundle| bundle.description.as_str()).unwrap_or_default();
    let description = if shown.description.is_empty() { of_bundle } else { &shown.description };
    let description = description.split_whitespace().collect::<Vec<_>>().join(" ");
    line("Description", &if wide { description } else { cut(&description, MAX_DESCRIPTION) });
    text.push_str(&channels(package, wide));
    if let Some(bundle) = &shown.bundle {
        text.push_str(&bundle_text(bundle, wide));
    }
    for finding in &shown.findings {
        text.push_str(&format!("{} {finding}\n", bad("finding:")));
    }
    text
}

fn channels(package: &PackageSummary, wide: bool) -> String {
    let mut table = Table::new(["CHANNEL", "HEAD", "VERSION", "ENTRIES", "DEPRECATED"]);
    for channel in &package.channels {
        let mut heads = channel.heads.iter();
        let first = heads.next();
        let deprecated = channel.deprecation.as_deref().unwrap_or_default();
        table.row([
            channel.name.clone(),
            or_dash(first.map(|head| head.name.as_str()).unwrap_or_default()),
            or_dash(first.map(|head| head.version.as_str()).unwrap_or_default()),
            channel.entries.to_string(),
            or_dash(&if wide { deprecated.to_owned() } else { cut(deprecated, MAX_NOTE) }),
        ]);
        // more than one head is a fault of the catalog
        for head in heads {
            table.row([String::new(), head.name.clone(), head.version.clone()]);
        }
    }
    format!("\n{}", table.text(""))
}

fn bundle_text(bundle: &Detail, wide: bool) -> String {
    let mut text = format!("\n{}\n", bold(&format!("Bundle {}", bundle.name)));
    let mut line = |name: &str, value: &str| {
        text.push_str(&format!("  {:<14} {}\n", format!("{name}:"), or_dash(value)));
    };
    line("Version", &bundle.version);
    if let Some(release) = &bundle.release {
        line("Release", release);
    }
    if let Some(why) = &bundle.deprecation {
        line("Deprecated", &bad(why));
    }
    line("Image", &bundle.image);
    line("Install modes", &bundle.install_modes.join(", "));
    let apis = |apis: &[Api]| {
        let named = |api: &Api| format!("{}.{} ({})", api.kind, api.group, api.versions.join(", "));
        apis.iter().map(named).collect::<Vec<_>>().join("\n                 ")
    };
    line("Provides", &apis(&bundle.provided));
    line("Requires", &apis(&bundle.required));
    line("Depends on", &bundle.dependencies.join("\n                 "));
    let (least, most) = (&bundle.min_kube_version, &bundle.max_open_shift_version);
    for (name, bound, value) in [("Kubernetes", "at least", least), ("OpenShift", "at most", most)] {
        if !value.is_empty() {
            line(name, &format!("{bound} {value}"));
        }
    }
    let contacts =
        |all: &[Contact]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n                 ");
    for (name, value) in [
        ("Maturity", bundle.maturity.clone()),
        ("Keywords", bundle.keywords.join(", ")),
        ("Links", contacts(&bundle.links)),
        ("Maintainers", contacts(&bundle.maintainers)),
    ] {
        if !value.is_empty() {
            line(name, &value);
        }
    }
    if wide {
        line("Images", &bundle.related_images.join("\n                 "));
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use olm_catalog::CatalogFacts;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    /// The package as a catalog with one version and one channel has it.
    fn found(catalog: &str, version: &str, channel: &str) -> Found {
        let name = format!("p.v{version}");
        let lines = [
            json!({"schema": "olm.package", "name": "p", "defaultChannel": channel}),
            json!({"schema": "olm.channel", "package": "p", "name": channel, "entries": [{"name": name}]}),
            json!({"schema": "olm.bundle", "package": "p", "name": name, "image": "example.com/p", "properties": [
                {"type": "olm.package", "value": {"packageName": "p", "version": version}}]}),
        ];
        let lines = lines.map(|line| line.to_string() + "\n").concat();
        let catalog = json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterCatalog", "metadata": {"name": catalog},
            "spec": {"source": {"type": "Image", "image": {"ref": "example.com/c"}}},
        });
        Found {
            catalog: CatalogFacts::from_catalog(&serde_json::from_value(catalog).unwrap()).unwrap(),
            content: PackageContent::from_lines(&"p".parse().unwrap(), lines.as_bytes()).unwrap(),
        }
    }

    #[test]
    fn show_leaves_out_catalogs_without_the_version() {
        let all = [found("a", "1.0.0", "stable"), found("b", "2.0.0", "fast")];
        for (flags, want) in [
            (&["-o", "name"][..], Ok(vec!["a", "b"])),
            (&["--version", "2.0.0"], Ok(vec!["b"])),
            (&["--channel", "stable"], Ok(vec!["a"])),
            (
                &["--version", "3.0.0"],
                Err("package p of catalog a has no version 3.0.0; see `kubectl olm versions p`\n\
                     package p of catalog b has no version 3.0.0; see `kubectl olm versions p`"),
            ),
        ] {
            let line = Line::parse_from([&["show", "p"], flags].concat());
            let got = all_details(&line.arguments, &all);
            let got = got.map(|all| all.into_iter().map(|details| details.catalog).collect::<Vec<_>>());
            let want = want.map(|all| all.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(got.map_err(|failure| failure.to_string()), want.map_err(str::to_owned), "{flags:?}");
        }
    }
}
