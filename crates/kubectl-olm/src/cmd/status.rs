//! `status`: a ClusterExtension as a tree: its revisions, their phases and objects, and the pods behind them.
//!
//! Bounded: the tree counts the objects and pods beyond the limit. An object that cannot be read is shown as such in its
//! position.

use clap::Args;
use olm_api::ClusterExtension;
use olm_api::condition::{self, Verbosity};
use olm_core::message::first_line;
use serde::Serialize;

use super::output::{Output, bad, bold, condition_message, counted, full_message, good, indented};
use crate::CommandOutput;
use crate::dry_run::title;
use crate::extensions;
use crate::failure::CommandError;
use crate::live::{self, Level, LiveRevisions, Object, Revision};
use crate::sources::Cluster;
use crate::watch;

#[derive(Debug, Args)]
#[command(after_help = "Objects that are well are only counted; -o wide lists them all.\n\n\
                  Examples:\n  kubectl olm status my-extension\n  kubectl olm status my-extension -o wide\n  \
                  kubectl olm status my-extension -o json | jq .ready\n\n\
                  Exit codes: 0 Ready, 1 not Ready or no such extension, 2 bad input, 3 no answer.")]
pub(crate) struct Arguments {
    /// The ClusterExtension
    name: String,
    /// Objects to look at, at most
    #[arg(long, default_value_t = 300, value_name = "NUMBER")]
    limit: usize,
    /// Print the tree again whenever it changes, until Ctrl-C
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    cluster: Cluster,
}

/// The tree. `-o json` prints this.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Tree {
    name: String,
    /// Namespace of the package's objects.
    namespace: String,
    /// Whether the `Ready` condition is True.
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    installed: Option<String>,
    #[serde(skip)]
    deleted: bool,
    /// Conditions, in the order of the status.
    conditions: Vec<ConditionRow>,
    /// Revisions that are in force or being torn down, the oldest first.
    revisions: Vec<Revision>,
    /// Revisions that are archived and have no objects.
    archived: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct ConditionRow {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    if arguments.watch {
        return watched(arguments).await;
    }
    render(arguments).await
}

async fn render(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let (client, extension, own) = extensions::with_revisions(&arguments.cluster, &arguments.name).await?;
    let tree = tree(&extension, live::read(&client, &own, arguments.limit).await);
    let text = arguments.output.print(&tree, || vec![tree.name.clone()], |wide| text(&tree, wide));
    Ok(CommandOutput { text, yes: tree.ready })
}

/// The whole tree after each change. It ends when the extension is gone.
async fn watched(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let client = arguments.cluster.client().await?;
    let printed = std::cell::RefCell::new(None::<String>);
    let print = || async {
        let now = render(arguments).await?.text;
        let before = printed.replace(Some(now.clone()));
        let is_for_people = arguments.output.is_for_people();
        Ok(match before {
            Some(before) if before == now => None,
            Some(_) if is_for_people => Some(format!("\n{now}")),
            _ => Some(now),
        })
    };
    watch::follow(&client, Some(&arguments.name), print).await
}

fn tree(extension: &ClusterExtension, looked: LiveRevisions) -> Tree {
    let status = extension.status.clone().unwrap_or_default();
    let conditions = status.conditions.iter().map(|found| ConditionRow {
        type_: found.type_.clone(),
        status: found.status.as_str().to_owned(),
        reason: found.reason.clone(),
        message: found.message.clone(),
    });
    Tree {
        name: extension.metadata.name.clone().unwrap_or_default(),
        namespace: extension.spec.namespace.clone(),
        ready: condition::is_true(&status.conditions, condition::READY),
        installed: status
            .install
            .map(|install| format!("{} {}", install.bundle.name, install.bundle.version)),
        deleted: extensions::is_deleted(extension),
        conditions: conditions.collect(),
        revisions: looked.revisions,
        archived: looked.archived,
    }
}

/// A line of the tree and what hangs on it.
struct Node {
    line: String,
    below: Vec<Node>,
}

impl Node {
    fn leaf(line: impl Into<String>) -> Self {
        Self { line: line.into(), below: Vec::new() }
    }

    fn write(&self, text: &mut String, indent: &str) {
        for (at, node) in self.below.iter().enumerate() {
            let last = at + 1 == self.below.len();
            let (branch, rest) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            let below = if node.below.is_empty() { "" } else { "│  " };
            let line = indented(&node.line, &format!("{indent}{rest}{below}"));
            text.push_str(&format!("{indent}{branch}{line}\n"));
            node.write(text, &format!("{indent}{rest}"));
        }
    }
}

fn text(tree: &Tree, wide: bool) -> String {
    let message_of = |type_: &str| {
        let found = tree.conditions.iter().find(|found| found.type_ == type_);
        found.map(|found| found.message.as_str()).unwrap_or_default()
    };
    let progressing = message_of(condition::PROGRESSING);
    let mut bundle = tree.installed.clone();
    let state = if tree.deleted {
        bundle = bundle.or_else(|| tree.revisions.iter().rev().find_map(bundle_of));
        let reason = [message_of(condition::READY), progressing]
            .into_iter()
            .find_map(|message| first_line(message).strip_prefix(extensions::UNINSTALLING));
        bad(&reason.map_or("being deleted".to_owned(), |reason| format!("being deleted: {reason}")))
    } else if tree.ready {
        good("Ready")
    } else {
        bad("not Ready")
    };
    let installed = bundle.as_deref().unwrap_or("nothing is installed");
    let mut root = Node::leaf(format!("{} {}: {installed}, {state}", bold("ClusterExtension"), tree.name));
    for found in &tree.conditions {
        let important = match condition::spec(condition::EXTENSION, &found.type_).map(|spec| spec.verbosity) {
            Some(Verbosity::Always) => true,
            Some(Verbosity::WhenTrue) => found.status == "True",
            Some(Verbosity::Wide) | None => false,
        };
        if wide || important {
            let message = condition_message(&found.type_, &found.message, progressing);
            let message = if message.is_empty() { String::new() } else { format!(": {message}") };
            root.below
                .push(Node::leaf(format!("{}={} {}{message}", found.type_, found.status, found.reason)));
        }
    }
    root.below.extend(tree.revisions.iter().map(|revision| revision_node(revision, wide)));
    if tree.archived > 0 {
        root.below.push(Node::leaf(format!(
            "{} archived {} without objects",
            tree.archived,
            if tree.archived == 1 { "revision" } else { "revisions" }
        )));
    }
    let mut text = format!("{}\n", root.line);
    root.write(&mut text, "");
    text
}

/// Name and version of the bundle of a revision.
fn bundle_of(revision: &Revision) -> Option<String> {
    let bundle = [revision.bundle.as_str(), revision.version.as_str()].join(" ");
    Some(bundle.trim().to_owned()).filter(|bundle| !bundle.is_empty())
}

fn revision_node(revision: &Revision, wide: bool) -> Node {
    let mut node = Node::leaf(format!(
        "{} {}: revision {}, {}, {}",
        bold("ClusterObjectSet"),
        revision.name,
        revision.number,
        bundle_of(revision).unwrap_or_default(),
        revision.state
    ));
    for message in &revision.messages {
        // a condition: type, status and reason stand before its message
        let line = match message.split_once(": ") {
            Some((head, message)) => format!("{head}: {}", full_message(message)),
            None => message.clone(),
        };
        node.below.push(Node::leaf(line));
    }
    for phase in &revision.phases {
        let well = phase.objects.iter().filter(|object| object.level == Level::Ready).count();
        let mut phase_node = Node::leaf(format!(
            "phase {}: {}",
            phase.name,
            match (phase.objects.len(), phase.left_out) {
                (0, more @ 1..) => format!("{}, not looked at", counted(more, "object")),
                (looked, 0) => format!("{well} of {looked} objects ready"),
                (looked, more) => format!("{well} of {looked} objects ready, {more} not looked at"),
            }
        ));
        let shown = |object: &&Object| wide || object.level != Level::Ready || !object.pods.is_empty();
        for object in phase.objects.iter().filter(shown) {
            let mut object_node = Node::leaf(format!(
                "{} {}",
                title(&object.kind, object.namespace.as_deref(), &object.name),
                level(object)
            ));
            let pods = object.pods.iter().map(|pod| {
                let word = if pod.ready { good("ready") } else { bad("not ready") };
                let restarts = if pod.restarts == 1 { "restart" } else { "restarts" };
                let message =
                    if pod.message.is_empty() { String::new() } else { format!(": {}", pod.message) };
                Node::leaf(format!(
                    "Pod {}: {}, {word}, {} {restarts}{message}",
                    pod.name, pod.reason, pod.restarts
                ))
            });
            object_node.below.extend(pods);
            object_node
                .below
                .extend(object.pods_left_out.map(|more| Node::leaf(format!("{more} more pods"))));
            phase_node.below.push(object_node);
        }
        node.below.push(phase_node);
    }
    let more: usize = revision.phases.iter().map(|phase| phase.beyond_limit).sum();
    if more > 0 {
        let were = if more == 1 { "was" } else { "were" };
        node.below
            .push(Node::leaf(format!("{} {were} not looked at; raise --limit", counted(more, "object"))));
    }
    node
}

fn level(object: &Object) -> String {
    let word = match object.level {
        Level::Ready => good("ready"),
        Level::NotReady => bad("not ready"),
        Level::Missing => bad("missing"),
        Level::Unknown => "unknown".to_owned(),
    };
    match object.message.as_str() {
        "" => word,
        message if object.level == Level::Missing => format!("{word}: {message}"),
        message => format!("{word} ({message})"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::live::Phase;

    fn revision(messages: &[&str], phases: &[(usize, usize, usize)]) -> Revision {
        let object = || Object {
            api_version: "v1".to_owned(),
            kind: "Service".to_owned(),
            namespace: None,
            name: "s".to_owned(),
            level: Level::Ready,
            message: String::new(),
            pods: Vec::new(),
            pods_left_out: None,
        };
        let phase = |&(shown, left_out, beyond_limit): &(usize, usize, usize)| Phase {
            name: "p".to_owned(),
            objects: (0..shown).map(|_| object()).collect(),
            left_out,
            beyond_limit,
        };
        Revision {
            name: "x-1".to_owned(),
            number: 1,
            state: "Active".to_owned(),
            bundle: "x.v1".to_owned(),
            version: "1.0.0".to_owned(),
            messages: messages.iter().map(|&message| message.to_owned()).collect(),
            phases: phases.iter().map(phase).collect(),
        }
    }

    fn tree_text(deleted: bool, conditions: &[[&str; 4]], revisions: Vec<Revision>) -> String {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|[type_, status, reason, message]| {
                json!({"type": type_, "status": status, "reason": reason, "message": message,
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        let mut object = json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "metadata": {"name": "x"},
            "spec": {"namespace": "x", "source": {"sourceType": "Catalog", "catalog": {"packageName": "x"}}},
            "status": {"conditions": conditions},
        });
        if deleted {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let extension = serde_json::from_value(object).unwrap();
        text(&tree(&extension, LiveRevisions { revisions, archived: 0 }), false)
    }

    #[test]
    fn status_counts_only_objects_that_were_read() {
        let secrets = "objects are not shown: you may not get secrets in namespace n";
        for (revision, want) in [
            (
                revision(&[secrets], &[(0, 1, 0), (0, 2, 0)]),
                format!("   ├─ {secrets}\n   ├─ phase p: 1 object, not looked at\n   └─ phase p: 2 objects, not looked at\n"),
            ),
            (
                revision(&[], &[(2, 0, 0), (1, 2, 2), (0, 1, 1)]),
                "   ├─ phase p: 2 of 2 objects ready\n   ├─ phase p: 1 of 1 objects ready, 2 not looked at\n   \
                 ├─ phase p: 1 object, not looked at\n   └─ 3 objects were not looked at; raise --limit\n"
                    .to_owned(),
            ),
            (
                revision(&[], &[(0, 1, 1)]),
                "   ├─ phase p: 1 object, not looked at\n   └─ 1 object was not looked at; raise --limit\n".to_owned(),
            ),
        ] {
            let text = tree_text(false, &[], vec![revision]);
            let (_, below) = text.split_once("Active\n").unwrap();
            assert_eq!(below, want);
        }
    }

    #[test]
    fn status_indents_lines_of_messages() {
        let refused = "cannot upgrade\nfirst detail\nsecond detail";
        let text = tree_text(
            false,
            &[["Progressing", "True", "Retrying", refused], ["Ready", "False", "Retrying", "cannot upgrade"]],
            vec![revision(&["Available=False ProbeFailure: a\nb"], &[])],
        );
        let want = "ClusterExtension x: nothing is installed, not Ready\n\
                    ├─ Progressing=True Retrying: cannot upgrade\n│  first detail\n│  second detail\n\
                    ├─ Ready=False Retrying: as Progressing\n\
                    └─ ClusterObjectSet x-1: revision 1, x.v1 1.0.0, Active\n   └─ Available=False ProbeFailure: a\n      b\n";
        assert_eq!(text, want);
    }

    #[test]
    fn status_of_a_deleted_extension_names_what_it_waits_for() {
        let waits = "uninstalling: waiting for revision x-1 to be torn down";
        for (message, revisions, want) in [
            (
                waits,
                vec![revision(&[], &[])],
                "x.v1 1.0.0, being deleted: waiting for revision x-1 to be torn down",
            ),
            ("Revision 1.0.0 has rolled out.", vec![revision(&[], &[])], "x.v1 1.0.0, being deleted"),
            (waits, vec![], "nothing is installed, being deleted: waiting for revision x-1 to be torn down"),
        ] {
            let text = tree_text(true, &[["Progressing", "True", "RollingOut", message]], revisions);
            assert_eq!(text.lines().next(), Some(format!("ClusterExtension x: {want}").as_str()));
        }
    }
}
