//! Verbs that change the spec of a ClusterExtension, through the public API and nothing else.
//!
//! `--dry-run=client -o yaml` prints the same edit as a manifest, for git. A warning names fields that another manager owns,
//! because it would revert the edit.

pub(crate) mod catalogs;
pub(crate) mod install;
mod losses;
pub(crate) mod pause;
mod planned;
pub(crate) mod rollback;
mod settle;
pub(crate) mod spec;
mod undo;
pub(crate) mod uninstall;
pub(crate) mod upgrade;
mod waiting;

use clap::{Args, ValueEnum};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use olm_api::ClusterExtension;
use olm_runtime::duration::GoDuration;
use olm_runtime::error_text::chain;
use serde_json::{Value, json};

use super::output::Output;
use crate::CommandOutput;
use crate::failure::{CommandError, is_kind_missing, print_note};
use crate::{extensions, interrupt};
pub(crate) use waiting::Waiting;

/// Field manager of the edits.
const MANAGER: &str = "kubectl-olm";
/// How often an edit is tried when the controller writes the status at the same time.
const TRIES: u32 = 10;

/// How an object is written.
#[derive(Debug, Args)]
pub(crate) struct Edit {
    /// Change nothing: print what would be sent (client), or what the apiserver would store (server)
    #[arg(long, value_enum, default_value_t, num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    dry_run: DryRun,
    #[command(flatten)]
    output: Output,
}

/// How a change is made.
#[derive(Debug, Args)]
pub(crate) struct Change {
    #[command(flatten)]
    edit: Edit,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
    /// With --wait, how long the containers are watched once it is Ready; exit 1 if one restarts
    #[arg(long, default_value = "5s", value_name = "DURATION")]
    settle: GoDuration,
}

/// The place of a dry run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum DryRun {
    /// Change the cluster
    #[default]
    None,
    /// Print the manifest, send nothing
    Client,
    /// Let the apiserver check it, store nothing
    Server,
}

impl DryRun {
    /// What follows the result, in kubectl's words.
    fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Client => " (dry run)",
            Self::Server => " (server dry run)",
        }
    }
}

fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

impl Edit {
    fn writes(&self) -> bool {
        self.dry_run == DryRun::None
    }

    fn post_params(&self) -> PostParams {
        PostParams { dry_run: self.dry_run == DryRun::Server, field_manager: Some(MANAGER.to_owned()) }
    }

    fn patch_params(&self) -> PatchParams {
        PatchParams { dry_run: self.dry_run == DryRun::Server, ..patch_params() }
    }

    async fn create(
        &self,
        client: &Client,
        extension: ClusterExtension,
    ) -> Result<ClusterExtension, CommandError> {
        if self.dry_run == DryRun::Client {
            return Ok(extension);
        }
        refuse_interrupted(&named(&extension))?;
        let api: Api<ClusterExtension> = Api::all(client.clone());
        let created = api.create(&self.post_params(), &extension).await;
        created.map_err(|error| refused_creation(&extension, &error))
    }

    /// Merges `patch` into the extension as it was read, unless it changed meanwhile.
    async fn patch(
        &self,
        client: &Client,
        extension: &ClusterExtension,
        mut patch: Value,
    ) -> Result<ClusterExtension, CommandError> {
        for (path, manager) in owners(extension, &patch) {
            print_note(&format!(
                "note: {path} is also written by {manager:?}; change it there too, or it may be put back"
            ));
        }
        if self.dry_run == DryRun::Client {
            let mut edited = serde_json::to_value(extension).unwrap_or_default();
            json_patch::merge(&mut edited, &patch);
            return serde_json::from_value(edited).map_err(|error| CommandError::Usage(error.to_string()));
        }
        let api: Api<ClusterExtension> = Api::all(client.clone());
        let params = self.patch_params();
        let name = extension.name_any();
        let mut version = extension.resource_version();
        let mut tries = 0;
        loop {
            refuse_interrupted(&named(extension))?;
            patch["metadata"]["resourceVersion"] = json!(version);
            let error = match api.patch(&name, &params, &Patch::Merge(&patch)).await {
                Ok(stored) => return Ok(stored),
                Err(error) => error,
            };
            tries += 1;
            if tries == TRIES || !matches!(&error, kube::Error::Api(status) if status.code == 409) {
                return Err(refused(&named(extension), &error));
            }
            let now = api.get(&name).await.map_err(|error| refused(&named(extension), &error))?;
            if !same_spec(extension, &now) {
                return Err(refused(&named(extension), &error));
            }
            version = now.resource_version();
        }
    }

    fn changed<K: Resource<DynamicType = ()>>(&self, object: &K, spec: &Value, what: &str) -> Changed {
        Changed {
            manifest: manifest(object, spec),
            name: format!("{}.olm.operatorframework.io/{}", K::kind(&()).to_lowercase(), object.name_any()),
            what: format!("{what}{}", self.dry_run.suffix()),
            yes: true,
        }
    }

    /// The result as text, or the manifest.
    fn print(&self, changed: &Changed) -> CommandOutput {
        let names = || vec![changed.name.clone()];
        let text = self.output.print(&changed.manifest, names, |wide| changed.text(wide));
        CommandOutput { text, yes: changed.yes }
    }

    /// The results as text, or one list of all manifests.
    fn print_all(&self, all: &[Changed]) -> CommandOutput {
        let items: Vec<&Value> = all.iter().map(|changed| &changed.manifest).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        let names = || all.iter().map(|changed| changed.name.clone()).collect();
        let people = |wide| all.iter().map(|changed| changed.text(wide)).collect();
        CommandOutput {
            text: self.output.print(&list, names, people),
            yes: all.iter().all(|changed| changed.yes),
        }
    }

    fn output_of<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        spec: &Value,
        what: &str,
    ) -> CommandOutput {
        self.print(&self.changed(object, spec, what))
    }
}

/// An object after its change, to be printed.
struct Changed {
    manifest: Value,
    /// With the kind and its group.
    name: String,
    /// The change in words.
    what: String,
    yes: bool,
}

impl Changed {
    fn text(&self, wide: bool) -> String {
        let manifest =
            if wide { serde_saphyr::to_string(&self.manifest).unwrap_or_default() } else { String::new() };
        format!("{}\n{manifest}", self.what)
    }
}

impl Change {
    /// Whether nothing is sent.
    fn is_client_only(&self) -> bool {
        self.edit.dry_run == DryRun::Client
    }

    fn writes(&self) -> bool {
        self.edit.writes()
    }

    fn dry_run(&self) -> DryRun {
        self.edit.dry_run
    }

    /// The result of a dry run that `failure` refuses: the manifest, and the error beside it.
    fn refused_dry_run(&self, extension: &ClusterExtension, what: &str, failure: &CommandError) -> Changed {
        print_note(&format!("error: {failure}"));
        Changed { yes: false, ..self.edit.changed(extension, &json!(extension.spec), what) }
    }

    async fn create(
        &self,
        client: &Client,
        extension: ClusterExtension,
        what: &str,
    ) -> Result<Changed, CommandError> {
        let stored = self.edit.create(client, extension).await?;
        let undo = format!("`kubectl olm uninstall {}`", stored.name_any());
        self.done(client, stored, what, &undo).await
    }

    /// Merges `patch` into the extension as it was read, unless it changed meanwhile. `undo` is the command that takes it back.
    async fn edit(
        &self,
        client: &Client,
        extension: &ClusterExtension,
        patch: Value,
        (what, undo): (&str, &str),
    ) -> Result<Changed, CommandError> {
        let stored = self.edit.patch(client, extension, patch).await?;
        self.done(client, stored, what, undo).await
    }

    async fn done(
        &self,
        client: &Client,
        stored: ClusterExtension,
        what: &str,
        undo: &str,
    ) -> Result<Changed, CommandError> {
        let changed = |extension: &ClusterExtension, what: &str| {
            self.edit.changed(extension, &json!(extension.spec), what)
        };
        if !self.writes() || !self.waiting.wait {
            return Ok(changed(&stored, what));
        }
        print_note(what);
        let (last, ready) = self.waiting.ready(client, &stored, undo).await?;
        let GoDuration(time) = self.settle;
        let failure = if ready { settle::watch(client, &last, time, undo).await? } else { None };
        let end = match (ready, &failure) {
            (false, _) => "is not Ready".to_owned(),
            (true, None) => "is Ready".to_owned(),
            (true, Some(failure)) => format!("was Ready, and then failed: {failure}"),
        };
        let yes = ready && failure.is_none();
        Ok(Changed { yes, ..changed(&last, &format!("{} {end}", last.name_any())) })
    }
}

/// The value of a flag that is KEY=VALUE.
fn key_value(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = pair.ok_or_else(|| "write KEY=VALUE".to_owned())?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Prints what runs after a change that did not become Ready. `before` and `after` are the extension around it, `target` is the requested
/// version. An extension that is gone, or cannot be read now, has its result already.
async fn print_not_done(
    client: &Client,
    (before, after): (&ClusterExtension, &ClusterExtension),
    target: Option<&str>,
) {
    let name = before.name_any();
    let Ok(now) = extensions::named(client, &name).await else { return };
    if extensions::is_deleted(&now) {
        return;
    }
    let installed = now.status.and_then(|status| status.install).map(|install| install.bundle.version);
    let back = undo::command(before, after);
    print_note(&undo::not_done(&name, target, installed.as_deref(), back.as_deref()));
}

/// Kind and name of an extension in messages.
fn named(extension: &ClusterExtension) -> String {
    format!("ClusterExtension {:?}", extension.name_any())
}

/// An error after Ctrl-C, before `object` is changed.
fn refuse_interrupted(object: &str) -> Result<(), CommandError> {
    if interrupt::is_received() {
        return Err(interrupted(object));
    }
    Ok(())
}

/// The error for Ctrl-C before `object` is changed, which is printed.
fn interrupted(object: &str) -> CommandError {
    print_note(&format!("\ninterrupted; {object} is not changed"));
    CommandError::Interrupted
}

/// Whether only the status can have changed: the controller writes it at any time.
fn same_spec(read: &ClusterExtension, now: &ClusterExtension) -> bool {
    read.uid() == now.uid() && read.metadata.generation == now.metadata.generation
}

/// The manifest of an object, without status and generated metadata.
fn manifest<K: Resource<DynamicType = ()>>(object: &K, spec: &Value) -> Value {
    let metadata = object.meta();
    let mut user_metadata = json!({"name": metadata.name});
    let maps = [("annotations", &metadata.annotations), ("labels", &metadata.labels)];
    for (key, map) in maps {
        if let Some(map) = map.as_ref().filter(|map| !map.is_empty()) {
            user_metadata[key] = json!(map);
        }
    }
    json!({"apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": user_metadata, "spec": spec})
}

/// Fields that `patch` changes and that another manager applied.
fn owners(extension: &ClusterExtension, patch: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for path in leaves(patch, &mut Vec::new()) {
        for entry in extension.metadata.managed_fields.iter().flatten() {
            let manager = entry.manager.clone().unwrap_or_default();
            let applied = entry.operation.as_deref() == Some("Apply");
            let owns = entry.fields_v1.as_ref().is_some_and(|fields| {
                path.iter().try_fold(&fields.0, |at, step| at.get(format!("f:{step}"))).is_some()
            });
            if applied && owns && manager != MANAGER {
                found.push((path.join("."), manager));
            }
        }
    }
    found
}

/// The paths of all leaves of a patch.
fn leaves(value: &Value, at: &mut Vec<String>) -> Vec<Vec<String>> {
    let Value::Object(map) = value else { return vec![at.clone()] };
    let mut all = Vec::new();
    for (key, value) in map {
        at.push(key.clone());
        all.extend(leaves(value, at));
        at.pop();
    }
    all
}

fn refused_creation(extension: &ClusterExtension, error: &kube::Error) -> CommandError {
    match error {
        kube::Error::Api(status) if status.code == 409 => CommandError::Usage(exists_already(extension)),
        _ => refused(&named(extension), error),
    }
}

/// The results for several objects. After an error about one of them the others are changed all the same.
struct Several<T> {
    done: Vec<T>,
    /// The highest exit code of the errors.
    code: u8,
}

impl<T> Several<T> {
    fn new() -> Self {
        Self { done: Vec::new(), code: 0 }
    }

    /// Adds the result for an object; an error is printed after `about`. Returns whether to continue with the next one: not after Ctrl-C.
    #[must_use]
    fn add(&mut self, about: &str, result: Result<T, CommandError>) -> bool {
        let is_interrupted = matches!(result, Err(CommandError::Interrupted));
        match result {
            Ok(done) => self.done.push(done),
            Err(failure) => {
                if !is_interrupted {
                    print_note(&format!("error: {about}{failure}"));
                }
                self.code = self.code.max(failure.code());
            }
        }
        !is_interrupted
    }

    /// Whether nothing was changed, and nothing failed.
    fn is_empty(&self) -> bool {
        self.done.is_empty() && self.code == 0
    }

    fn output(self, print: impl FnOnce(&[T]) -> CommandOutput) -> Result<CommandOutput, CommandError> {
        let output = print(&self.done);
        match self.code {
            0 => Ok(output),
            code => Err(CommandError::Partial { text: output.text, code }),
        }
    }
}

fn exists_already(extension: &ClusterExtension) -> String {
    format!(
        "there is a ClusterExtension {:?} already; `kubectl olm upgrade {0}` changes its version, --name gives this one another name",
        extension.name_any()
    )
}

/// `object` is its kind and name.
fn refused(object: &str, error: &kube::Error) -> CommandError {
    match error {
        kube::Error::Api(status) if status.code == 409 => {
            CommandError::Unreachable(format!("{object} was changed just now; check it and try again"))
        }
        kube::Error::Api(status) if status.code == 404 && !is_kind_missing(status) => {
            CommandError::NotFound(format!("{object} was deleted just now"))
        }
        kube::Error::Api(status) if status.code == 422 || status.code == 400 => {
            CommandError::Usage(chain(error))
        }
        _ => CommandError::from_request(&format!("write {object}"), error),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        edit: Edit,
    }

    #[test]
    fn key_value_splits_at_the_first_sign() {
        for (text, want) in [
            ("a=b", Some(("a", "b"))),
            ("a=b=c", Some(("a", "b=c"))),
            ("a=", Some(("a", ""))),
            ("=b", None),
            ("a", None),
        ] {
            let found = key_value(text).ok();
            let found = found.as_ref().map(|(key, value)| (key.as_str(), value.as_str()));
            assert_eq!(found, want, "{text}");
        }
    }

    #[test]
    fn act_prints_several_manifests_as_one_list() {
        let extension = |name: &str| -> ClusterExtension {
            serde_json::from_value(json!({
                "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "metadata": {"name": name},
                "spec": {"namespace": "n", "source": {"sourceType": "Catalog", "catalog": {"packageName": "p"}}},
            }))
            .unwrap()
        };
        let printed = |form: &str, names: &[&str]| {
            let edit = Line::parse_from(["x", "--dry-run", "-o", form]).edit;
            let all: Vec<Changed> = names
                .iter()
                .map(|name| {
                    let extension = extension(name);
                    edit.changed(&extension, &json!(extension.spec), &format!("{name} edited"))
                })
                .collect();
            edit.print_all(&all).text
        };
        let read: fn(&str) -> Value = |text| serde_json::from_str(text).unwrap();
        let list = read(&printed("json", &["a", "b"]));
        let items: Vec<&Value> =
            list["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]).collect();
        assert_eq!((&list["kind"], items), (&json!("List"), vec![&json!("a"), &json!("b")]));
        assert_eq!(read(&printed("json", &[]))["items"], json!([]));
        let yaml: Value = serde_saphyr::from_str(&printed("yaml", &["a", "b"])).unwrap();
        assert_eq!(yaml, list);
        assert_eq!(printed("table", &["a", "b"]), "a edited (dry run)\nb edited (dry run)\n");
        let name = "clusterextension.olm.operatorframework.io";
        assert_eq!(printed("name", &["a", "b"]), format!("{name}/a\n{name}/b\n"));
    }

    #[test]
    fn act_keeps_results_beside_errors_about_others() {
        let done = |name: &str| Ok(format!("{name} done\n"));
        let missing = || Err(CommandError::NotFound("missing".to_owned()));
        let unreachable = || Err(CommandError::Unreachable("no".to_owned()));
        let interrupted = || Err(CommandError::Interrupted);
        for (results, want) in [
            (vec![done("a"), done("b")], (0, "a done\nb done\n")),
            (vec![done("a"), missing()], (1, "a done\n")),
            (vec![done("a"), unreachable(), done("b"), missing()], (3, "a done\nb done\n")),
            (vec![missing(), Err(CommandError::Usage("bad".to_owned()))], (2, "")),
            (vec![done("a"), interrupted(), done("b")], (130, "a done\n")),
        ] {
            let mut several = Several::new();
            for result in results {
                if !several.add("x", result) {
                    break;
                }
            }
            let got = match several.output(|done| CommandOutput { text: done.concat(), yes: true }) {
                Ok(output) => (0, output.text),
                Err(CommandError::Partial { text, code }) => (code, text),
                Err(other) => panic!("{other}"),
            };
            assert_eq!(got, (want.0, want.1.to_owned()));
        }
    }

    #[test]
    fn edit_errors_have_the_code_of_their_cause() {
        let error = |code: u16, details: Value| -> kube::Error {
            let status = json!({"code": code, "reason": "R", "message": "m", "details": details});
            kube::Error::Api(serde_json::from_value(status).unwrap())
        };
        let named = json!({"name": "x", "kind": "clusterextensions"});
        for (error, want) in [
            (error(404, named.clone()), (1, "ClusterExtension \"x\" was deleted just now")),
            (error(404, json!({})), (3, "OLM is not installed in this cluster")),
            (error(409, named.clone()), (3, "ClusterExtension \"x\" was changed just now")),
            (error(422, named), (2, "m")),
        ] {
            let failure = refused("ClusterExtension \"x\"", &error);
            assert_eq!(failure.code(), want.0, "{failure}");
            assert!(failure.to_string().contains(want.1), "{failure}");
        }
    }

    #[test]
    fn edit_warns_about_fields_of_other_appliers() {
        let extension: ClusterExtension = serde_json::from_value(json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension",
            "metadata": {"name": "x", "managedFields": [
                {"manager": "flux", "operation": "Apply",
                 "fieldsV1": {"f:spec": {"f:source": {"f:catalog": {"f:version": {}}}}}},
                {"manager": "kubectl-edit", "operation": "Update",
                 "fieldsV1": {"f:spec": {"f:source": {"f:catalog": {"f:version": {}}}}}},
            ]},
            "spec": {"namespace": "x", "source": {"sourceType": "Catalog", "catalog": {"packageName": "x"}}},
        }))
        .unwrap();
        let version = json!({"spec": {"source": {"catalog": {"version": "1.0.0"}}}});
        let want = [("spec.source.catalog.version".to_owned(), "flux".to_owned())];
        assert_eq!(owners(&extension, &version), want);
        assert_eq!(owners(&extension, &json!({"spec": {"source": {"catalog": {"channels": ["a"]}}}})), []);
    }

    #[test]
    fn edit_detects_changed_spec_or_object() {
        let read = |uid: &str, generation: i64, version: &str| -> ClusterExtension {
            serde_json::from_value(json!({
                "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension",
                "metadata": {"name": "x", "uid": uid, "generation": generation, "resourceVersion": version},
                "spec": {"namespace": "x", "source": {"sourceType": "Catalog", "catalog": {"packageName": "x"}}},
            }))
            .unwrap()
        };
        let first = read("a", 1, "10");
        assert!(same_spec(&first, &read("a", 1, "11")), "the status was written");
        assert!(!same_spec(&first, &read("a", 2, "11")), "another spec was applied");
        assert!(!same_spec(&first, &read("b", 1, "11")), "it was deleted and created again");
    }
}
