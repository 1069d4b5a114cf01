//! `classic plan`: the InstallPlan that the Subscriptions of a namespace would get.
//!
//! The plan is made as the controller makes it; nothing is created. Of bundles that are images, the images are read.

use std::collections::BTreeMap;

use clap::Args;
use kube::Client;
use olm_api::classic::install_plan::Step;
use olm_api::classic::{InstallPlan, InstallPlanStatus};
use olm_bundle::RegistryV1;
use olm_classic::install_plan::{PlannedBundle, StepStatus};
use olm_classic::subscription::{Conclusion, conclude_pass};
use olm_core::Object;
use olm_fbc::property::{BUNDLE_OBJECT, BundleObject};
use olm_resolver::Property;
use olm_solver::{ChosenBundle, Limits, Solution, SolveError, solve};
use serde::Serialize;
use serde_json::json;

use super::space::{Content, Gathered, Space};
use crate::CommandOutput;
use crate::bundle_source::{BundleAccess, load_directory};
use crate::cmd::output::{Output, Table, or_dash};
use crate::failure::{CommandError, check_directory, print_note};
use crate::kinds::{Kinds, NoResource, api};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl olm classic plan -n operators
  kubectl olm classic plan -n operators -f namespace.yaml --content operatorhubio=./catalog -o yaml
  kubectl olm classic plan -n operators -f namespace.yaml --content mine=./catalog --bundle my-operator.v1.0.0=./bundle

A step is Present if its object exists, else Unknown; from files, only the objects in them are known.

Exit codes: 0 a plan, or nothing to install, 1 the Subscriptions cannot be met, 2 bad input, 3 no answer.")]
pub(crate) struct Arguments {
    /// A directory with the manifests and metadata of a bundle, instead of its image; may be repeated
    #[arg(long = "bundle", value_name = "NAME=DIR")]
    bundles: Vec<Content>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    space: Space,
}

/// What `-o json` prints.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct PlanReport {
    namespace: String,
    /// Why there is no plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The unfinished plan that installs the same; no other is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    existing: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<i64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    approval: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    phase: String,
    bundles: Vec<BundleRow>,
    steps: Vec<StepRow>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BundleRow {
    name: String,
    catalog: String,
    catalog_namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    replaces: String,
    /// What is unpacked; absent if the catalog has the manifests.
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct StepRow {
    bundle: String,
    status: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    group: String,
    version: String,
    kind: String,
    name: String,
}

pub(super) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let gathered = arguments.space.gather_subscribed().await?;
    let solution = match solve(&gathered.solver_input(), Limits::default()) {
        Ok(solution) => solution,
        Err(error @ SolveError::TooMuchWork { .. }) => {
            return Err(CommandError::Unreachable(error.to_string()));
        }
        Err(error) => {
            let namespace = gathered.namespace;
            let people =
                format!("no plan: {error}\n`kubectl olm classic resolve -n {namespace}` explains it\n");
            return Ok(arguments.without_plan(namespace, Some(error.to_string()), people));
        }
    };
    let mut contents = Vec::new();
    for chosen in &solution.bundles {
        contents.push(arguments.content(&gathered, chosen).await?);
    }
    let bundles: Vec<PlannedBundle<'_>> =
        solution.bundles.iter().zip(&contents).map(|(chosen, content)| content.planned(chosen)).collect();
    let concluded = conclude_pass(&gathered.facts(&[]), &solution, &bundles, &BTreeMap::new());
    let concluded = concluded.map_err(|error| CommandError::Usage(error.to_string()))?;
    let (existing, plan) = match &concluded {
        Conclusion::NothingNew => {
            let people = "nothing to install: no InstallPlan would be made\n".to_owned();
            return Ok(arguments.without_plan(gathered.namespace, None, people));
        }
        Conclusion::Make { plan, .. } => (None, &**plan),
        Conclusion::UseAgain { name, .. } => {
            let plans = gathered.objects.plans.iter();
            let Some(plan) = plans.map(|it| &**it).find(|it| it.metadata.name.as_ref() == Some(name)) else {
                return Err(CommandError::NotFound(format!(
                    "InstallPlan {name} is gone; run the command again"
                )));
            };
            (Some(name.clone()), plan)
        }
    };
    let report = report(&gathered, &solution, &bundles, plan, existing).await;
    let names = || report.steps.iter().map(|step| format!("{}/{}", step.kind, step.name)).collect();
    let text = arguments.output.print(&report, names, |_| text(&report));
    Ok(CommandOutput { text, yes: true })
}

struct BundleContent {
    objects: Vec<Object>,
    properties: Vec<Property>,
    image: Option<String>,
}

impl BundleContent {
    fn planned<'a>(&'a self, chosen: &'a ChosenBundle) -> PlannedBundle<'a> {
        let Self { objects, properties, image } = self;
        PlannedBundle { chosen, objects, properties, image: image.as_deref() }
    }
}

impl Arguments {
    /// The output if no plan is made. `people` is the text for them.
    fn without_plan(&self, namespace: &str, error: Option<String>, people: String) -> CommandOutput {
        let report = PlanReport { namespace: namespace.to_owned(), error, ..PlanReport::default() };
        let text = self.output.print(&report, Vec::new, |_| people);
        CommandOutput { text, yes: report.error.is_none() }
    }

    async fn content(
        &self,
        gathered: &Gathered<'_>,
        chosen: &ChosenBundle,
    ) -> Result<BundleContent, CommandError> {
        let name = &chosen.name;
        let missing = || {
            CommandError::Unreachable(format!(
                "bundle {name} is in its catalog no more; run the command again"
            ))
        };
        let catalog = gathered.content(&chosen.namespace, &chosen.catalog).ok_or_else(missing)?;
        let package = catalog.package(&chosen.package).await?.contents;
        let bundle = package.bundles.into_iter().find(|it| it.name == *name).ok_or_else(missing)?;
        let properties: Vec<Property> = bundle.properties.iter().map(Property::from).collect();
        let unreadable = |why: String| CommandError::Usage(format!("bundle {name}: {why}"));
        let inline: Vec<_> = bundle.properties_of(BUNDLE_OBJECT).collect();
        if let Some(given) = self.bundles.iter().find(|it| it.name == *name) {
            check_directory(&given.directory)?;
            let read = load_directory(&given.directory)?;
            return Ok(BundleContent { objects: objects(read), properties, image: Some(bundle.image) });
        }
        if inline.is_empty() {
            if bundle.image.is_empty() {
                return Err(unreadable(
                    "neither an image nor manifests; publish it with one of them".to_owned(),
                ));
            }
            let access = BundleAccess::new(&self.space.registry, &self.space.cache);
            let objects = objects(access.pull(&bundle.image).await?);
            return Ok(BundleContent { objects, properties, image: Some(bundle.image) });
        }
        let mut objects = Vec::new();
        for property in inline {
            let manifest = property.read::<BundleObject>(0).map_err(|error| unreadable(error.to_string()))?;
            let mut json = Vec::new();
            olm_yaml::yaml_to_json_exact(&manifest.data.0, &mut json, &olm_yaml::Limits::default())
                .map_err(|error| unreadable(error.to_string()))?;
            objects.push(serde_json::from_slice(&json).map_err(|error| unreadable(error.to_string()))?);
        }
        Ok(BundleContent { objects, properties, image: None })
    }
}

fn objects(bundle: RegistryV1) -> Vec<Object> {
    [bundle.csv.raw].into_iter().chain(bundle.crds).chain(bundle.others).collect()
}

async fn report(
    gathered: &Gathered<'_>,
    solution: &Solution,
    bundles: &[PlannedBundle<'_>],
    plan: &InstallPlan,
    existing: Option<String>,
) -> PlanReport {
    let planned = &plan.spec.cluster_service_version_names;
    let rows = solution.bundles.iter().zip(bundles).filter(|(chosen, _)| planned.contains(&chosen.name));
    let bundles = rows.map(|(chosen, bundle)| BundleRow {
        name: chosen.name.clone(),
        catalog: chosen.catalog.clone(),
        catalog_namespace: chosen.namespace.clone(),
        replaces: chosen.replaces.clone(),
        image: bundle.image.map(str::to_owned),
    });
    let bundles = bundles.collect();
    let status = plan.status.as_ref();
    let mut steps = Vec::new();
    let mut kinds = gathered.client.as_ref().map(|client| (client, Kinds::new(client)));
    for step in status.into_iter().flat_map(|status| &status.plan) {
        let is_there = match &mut kinds {
            None => is_among(gathered, step),
            Some((client, kinds)) => exists(client, kinds, gathered.namespace, step).await,
        };
        let made = step.status.parse::<StepStatus>().ok();
        let status = match made {
            Some(StepStatus::Unknown) | None if is_there => StepStatus::Present,
            Some(status) => status,
            None => StepStatus::Unknown,
        };
        let resource = &step.resource;
        steps.push(StepRow {
            bundle: step.resolving.clone(),
            status: status.as_str(),
            group: resource.group.clone(),
            version: resource.version.clone(),
            kind: resource.kind.clone(),
            name: resource.name.clone(),
        });
    }
    let phase = |status: &InstallPlanStatus| status.phase.clone();
    PlanReport {
        namespace: gathered.namespace.to_owned(),
        existing,
        error: None,
        generation: plan.spec.generation,
        approval: plan.spec.approval.clone(),
        phase: status.map(phase).unwrap_or_default(),
        bundles,
        steps,
    }
}

/// Whether the files have the object of a step.
fn is_among(gathered: &Gathered<'_>, step: &Step) -> bool {
    let name = Some(&step.resource.name);
    match step.resource.kind.as_str() {
        "ClusterServiceVersion" => gathered.objects.csvs.iter().any(|it| it.metadata.name.as_ref() == name),
        "Subscription" => gathered.objects.subscriptions.iter().any(|it| it.metadata.name.as_ref() == name),
        _ => false,
    }
}

/// Whether the cluster has the object of a step; prints why that is not known.
async fn exists(client: &Client, kinds: &mut Kinds, namespace: &str, step: &Step) -> bool {
    let resource = &step.resource;
    let api_version = match resource.group.as_str() {
        "" => resource.version.clone(),
        group => format!("{group}/{}", resource.version),
    };
    let kind = if resource.kind == "BundleSecret" { "Secret" } else { &resource.kind };
    let named = json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": resource.name, "namespace": namespace},
    });
    let Ok(object) = Object::from_value(named) else { return false };
    let (served, is_namespaced) = match kinds.resource_of(&object).await {
        Ok(served) => served,
        // it has no objects
        Err(NoResource::NotServed(_)) => return false,
        Err(NoResource::Unknown(why)) => {
            print_note(&format!("whether {kind} {} exists is not known: {why}", resource.name));
            return false;
        }
    };
    match api(client, &object, &served, is_namespaced).get_metadata_opt(&resource.name).await {
        Ok(found) => found.is_some(),
        Err(error) => {
            let doing = format!("read {kind} {}", resource.name);
            print_note(&CommandError::from_request(&doing, &error).to_string());
            false
        }
    }
}

fn text(report: &PlanReport) -> String {
    let mut text = match &report.existing {
        Some(name) => {
            format!("InstallPlan {name} of namespace {} is unfinished and is used", report.namespace)
        }
        None => format!("InstallPlan for namespace {}", report.namespace),
    };
    text.push_str(&format!(": approval {}, phase {}\n\n", report.approval, report.phase));
    let mut bundles = Table::new(["BUNDLE", "CATALOG", "REPLACES", "UNPACKED FROM"]);
    for row in &report.bundles {
        let catalog = format!("{}/{}", row.catalog_namespace, row.catalog);
        let image = row.image.clone().unwrap_or_else(|| "(the catalog)".to_owned());
        bundles.row([row.name.clone(), catalog, or_dash(&row.replaces), image]);
    }
    text.push_str(&bundles.text(""));
    let mut steps = Table::new(["STEP", "STATUS", "KIND", "NAME", "API", "BUNDLE"]);
    for (number, row) in report.steps.iter().enumerate() {
        let api = [row.group.as_str(), row.version.as_str()];
        let api = api.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
        let (kind, name, bundle) = (row.kind.clone(), row.name.clone(), row.bundle.clone());
        steps.row([(number + 1).to_string(), row.status.to_owned(), kind, name, api, bundle]);
    }
    text.push('\n');
    text + &steps.text("")
}
