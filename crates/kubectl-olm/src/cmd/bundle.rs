//! `bundle render|inspect|lint`: a registry+v1 bundle as the controller sees it, from a directory or an image. An author's
//! tool for CI.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use olm_bundle::{CertProvider, Level, PolicyRule, RegistryV1, RenderOptions, inspect, lint, render};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::output::{Form, rows};
use crate::CommandOutput;
use crate::bundle_source::BundleSource;
use crate::failure::{CommandError, read};
use crate::sources::Namespace;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Print the objects that installing the bundle creates, one JSON document a line
    #[command(
        after_help = "Exit codes: 0 printed, 2 the bundle cannot be read or is refused, 3 the registry gave no answer.\n\n\
                      Examples:\n  kubectl olm bundle render ./bundle --namespace my-operator | jq .kind\n  \
                      kubectl olm bundle render quay.io/example/bundle:v1 -n my-operator --config inline.yaml"
    )]
    Render(Render),
    /// Print what the bundle brings and asks for: APIs, images, permissions, what OLM does not support of it
    #[command(
        after_help = "Exit codes: 0 printed, 2 the bundle cannot be read, 3 the registry gave no answer.\n\n\
                      Examples:\n  kubectl olm bundle inspect quay.io/example/bundle:v1\n  \
                      kubectl olm bundle inspect ./bundle --rbac | kubectl apply --dry-run=server -f -"
    )]
    Inspect(Inspect),
    /// Look for faults; exit code 1 when the bundle cannot be installed
    #[command(
        after_help = "Exit codes: 0 no errors (warnings and notes do not count), 1 the bundle cannot be installed, \
                      2 the bundle cannot be read, 3 the registry gave no answer.\n\n\
                      Example:\n  kubectl olm bundle lint ./bundle -o json | jq '.[] | select(.level == \"error\")'"
    )]
    Lint(Lint),
}

#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// Print the permissions as RBAC objects, one YAML document each, instead of everything in words
    #[arg(long)]
    rbac: bool,
    #[command(flatten)]
    source: BundleSource,
}

#[derive(Debug, Args)]
pub(crate) struct Lint {
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
    #[command(flatten)]
    source: BundleSource,
}

/// Who issues webhook certificates.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Certificates {
    /// cert-manager
    CertManager,
    /// OpenShift's service CA
    ServiceCa,
    /// OLM's own controller
    BuiltIn,
    /// None: bundles with webhooks are refused
    None,
}

#[derive(Debug, Args)]
pub(crate) struct Render {
    #[command(flatten)]
    namespace: Namespace,
    /// File with what stands in spec.config.inline, JSON or YAML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Who issues webhook certificates
    #[arg(long, value_enum, default_value = "cert-manager")]
    certificates: Certificates,
    #[command(flatten)]
    source: BundleSource,
}

pub(crate) async fn run(verb: &Verb) -> Result<CommandOutput, CommandError> {
    match verb {
        Verb::Render(arguments) => rendered(arguments).await,
        Verb::Inspect(arguments) => {
            let bundle = arguments.source.load().await?;
            let text = if arguments.rbac { rbac(&bundle) } else { inspected(&bundle) };
            Ok(CommandOutput { text, yes: true })
        }
        Verb::Lint(arguments) => linted(arguments).await,
    }
}

async fn rendered(arguments: &Render) -> Result<CommandOutput, CommandError> {
    let bundle = arguments.source.load().await?;
    let options = RenderOptions {
        config: arguments.config.as_deref().map(document).transpose()?,
        cert_provider: match arguments.certificates {
            Certificates::CertManager => Some(CertProvider::CertManager),
            Certificates::ServiceCa => Some(CertProvider::ServiceCa),
            Certificates::BuiltIn => Some(CertProvider::BuiltIn),
            Certificates::None => None,
        },
        ..RenderOptions::new(arguments.namespace.required()?)
    };
    let objects = render(&bundle, &options).map_err(|error| arguments.source.failure(error))?;
    let text = objects.iter().map(|object| olm_core::go::json_string(&object.to_value()) + "\n").collect();
    Ok(CommandOutput { text, yes: true })
}

/// The one document of a file.
pub(crate) fn document(path: &Path) -> Result<Value, CommandError> {
    let mut all = documents(path)?;
    match all.len() {
        1 => Ok(all.remove(0)),
        several => {
            let text = format!("there are {several} documents in it; give a file with one");
            Err(CommandError::content(path, text))
        }
    }
}

/// The documents of a file, at least one.
pub(crate) fn documents(path: &Path) -> Result<Vec<Value>, CommandError> {
    let bytes = read(path)?;
    let documents =
        olm_yaml::Documents::from_bytes(&bytes, olm_yaml::Limits::default()).with_exact_integers();
    let documents = documents.map(|document| {
        let document = document.map_err(|error| CommandError::content(path, error))?;
        serde_json::from_slice(&document).map_err(|error| CommandError::content(path, error))
    });
    let documents = documents.collect::<Result<Vec<Value>, CommandError>>()?;
    if documents.is_empty() {
        return Err(CommandError::content(path, "there is no document in it"));
    }
    Ok(documents)
}

fn inspected(bundle: &RegistryV1) -> String {
    let seen = inspect(bundle);
    let mut text = format!("package: {}\nname: {}\nversion: {}\n", seen.package, seen.name, seen.version);
    text.push_str(&format!("install modes: {}\n", seen.install_modes));
    let mut list = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            text.push_str(&format!("{title}:\n"));
            lines.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
    };
    let provided = seen.provided.iter().map(|(name, versions)| format!("{name} ({})", versions.join(", ")));
    list("provides", provided.collect());
    list("requires", seen.required);
    let images = seen.images.iter().map(|image| {
        let related = if image.related { "" } else { "; not in relatedImages" };
        format!("{} (runs {}{related})", image.image, image.used_by.join(", "))
    });
    list("images", images.collect());
    list("further related images", seen.further_images);
    let permissions = seen.permissions.iter().flat_map(|permission| {
        let place = if permission.cluster_wide { "in the whole cluster" } else { "in watched namespaces" };
        permission.rules.iter().map(move |rule| format!("{} may {rule} {place}", permission.account))
    });
    list("permissions", permissions.collect());
    let webhooks =
        seen.webhooks.iter().map(|(kind, name, deployment)| format!("{kind} {name} by {deployment}"));
    list("webhooks", webhooks.collect());
    let refused = lint(bundle).into_iter().filter(|finding| finding.level == Level::Error);
    list("unsupported", refused.map(|finding| finding.message).collect());
    text
}

/// The permissions of each account as the CSV has them. Names are the accounts' own; those of an installation are generated.
fn rbac(bundle: &RegistryV1) -> String {
    let csv = &bundle.csv;
    let wide = csv.cluster_permissions.iter().map(|permission| ("ClusterRole", permission));
    let narrow = csv.permissions.iter().map(|permission| ("Role", permission));
    wide.chain(narrow)
        .map(|(kind, permission)| {
            let rules: Vec<Value> = permission.rules.iter().flatten().map(rule).collect();
            let role = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": permission.account()},
                "rules": rules,
            });
            format!("---\n{}", serde_saphyr::to_string(&role).unwrap_or_default())
        })
        .collect()
}

fn rule(rule: &PolicyRule) -> Value {
    let mut shown = Map::new();
    shown.insert("verbs".to_owned(), json!(rule.verbs.as_deref().unwrap_or_default()));
    for (name, values) in [
        ("apiGroups", &rule.api_groups),
        ("resources", &rule.resources),
        ("resourceNames", &rule.resource_names),
        ("nonResourceURLs", &rule.non_resource_urls),
    ] {
        if !values.is_empty() {
            shown.insert(name.to_owned(), json!(values));
        }
    }
    Value::Object(shown)
}

#[derive(Serialize)]
struct Row {
    level: &'static str,
    rule: &'static str,
    message: String,
}

async fn linted(arguments: &Lint) -> Result<CommandOutput, CommandError> {
    let findings = lint(&arguments.source.load().await?);
    let yes = !findings.iter().any(|finding| finding.level == Level::Error);
    let found: Vec<Row> = findings
        .into_iter()
        .map(|finding| Row {
            level: match finding.level {
                Level::Error => "error",
                Level::Warning => "warning",
                Level::Note => "note",
            },
            rule: finding.rule,
            message: finding.message,
        })
        .collect();
    let text = rows(arguments.output, &found, |row| format!("{}: {} [{}]", row.level, row.message, row.rule));
    Ok(CommandOutput { text, yes })
}
