//! `status`: a ClusterExtension as a tree: its revisions, their phases and objects, and the pods behind them.
//!
//! Bounded: the tree counts the objects and pods beyond the limit. An object that cannot be read is shown as such in its
//! position.

use clap::Args;
use olm_api::ClusterExtension;
use olm_api::condition::{self, Verbosity};
use serde::Serialize;

use super::output::{Output, bad, bold, good};
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
            text.push_str(&format!("{indent}{branch}{}\n", node.line));
            node.write(text, &format!("{indent}{rest}"));
        }
    }
}

fn text(tree: &Tree, wide: bool) -> String {
    let installed = tree.installed.as_deref().unwrap_or("nothing is installed");
    let ready = if tree.ready { good("Ready") } else { bad("not Ready") };
    let mut root = Node::leaf(format!("{} {}: {installed}, {ready}", bold("ClusterExtension"), tree.name));
    for found in &tree.conditions {
        let important = match condition::spec(condition::EXTENSION, &found.type_).map(|spec| spec.verbosity) {
            Some(Verbosity::Always) => true,
            Some(Verbosity::WhenTrue) => found.status == "True",
            Some(Verbosity::Wide) | None => false,
        };
        if wide || important {
            let message =
                if found.message.is_empty() { String::new() } else { format!(": {}", found.message) };
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

fn revision_node(revision: &Revision, wide: bool) -> Node {
    let bundle = [revision.bundle.as_str(), revision.version.as_str()].join(" ");
    let mut node = Node::leaf(format!(
        "{} {}: revision {}, {}, {}",
        bold("ClusterObjectSet"),
        revision.name,
        revision.number,
        bundle.trim(),
        revision.state
    ));
    for message in &revision.messages {
        node.below.push(Node::leaf(message.clone()));
    }
    for phase in &revision.phases {
        let well = phase.objects.iter().filter(|object| object.level == Level::Ready).count();
        let mut phase_node = Node::leaf(format!(
            "phase {}: {well} of {} objects ready",
            phase.name,
            phase.objects.len() + phase.left_out
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
        if phase.left_out > 0 {
            phase_node
                .below
                .push(Node::leaf(format!("{} objects were not looked at; raise --limit", phase.left_out)));
        }
        node.below.push(phase_node);
    }
    node
}

fn in_parentheses(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" ({message})") }
}

fn level(object: &Object) -> String {
    let word = match object.level {
        Level::Ready => good("ready"),
        Level::NotReady => bad("not ready"),
        Level::Missing => bad("missing"),
        Level::Unknown => "unknown".to_owned(),
    };
    format!("{word}{}", in_parentheses(&object.message))
}
