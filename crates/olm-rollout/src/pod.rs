//! The state of a pod, and why its containers do not run, from its JSON.
//!
//! The texts of containers themselves (termination messages, logs) are left out: who reads a condition may not read pods.

use olm_core::Object;
use serde_json::Value;

use crate::probe::field;

/// Most characters of a message of the kubelet.
const MAX_MESSAGE_CHARS: usize = 120;

/// A pod as a table shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodState {
    pub name: String,
    /// The reason of the pod or of its first failing container, else its phase.
    pub reason: String,
    pub ready: bool,
    /// It is being deleted.
    pub terminating: bool,
    /// Restarts of all containers, init containers included.
    pub restarts: i64,
    /// The cause why it is not ready; of a ready pod, the reason of its last restart.
    pub cause: Option<String>,
    /// Something failed; the pod is not just on its way.
    pub failed: bool,
    /// It has ended and does not start again, evicted for example: another pod takes its place.
    pub ended: bool,
}

/// What is wrong with a container.
struct Cause {
    reason: String,
    text: String,
    /// It failed, rather than being on its way.
    failed: bool,
}

pub fn pod_state(pod: &Object) -> PodState {
    let status_text = |key: &str| field(pod, &["status", key]).and_then(Value::as_str).unwrap_or_default();
    let containers = containers(pod);
    let is_ready = condition(pod, "Ready").is_some_and(|found| text(found, "status") == "True");
    let phase = match status_text("phase") {
        "" => "Pending",
        phase => phase,
    };
    let found = if is_ready {
        containers.iter().find_map(|container| last_restart(container))
    } else {
        pod_failure(pod).or_else(|| container_failure(&containers)).or_else(|| unscheduled(pod))
    };
    let terminating = pod.metadata().is_some_and(|metadata| metadata.contains_key("deletionTimestamp"));
    PodState {
        name: pod.name().to_owned(),
        reason: match &found {
            _ if terminating => "Terminating".to_owned(),
            Some(found) if !is_ready => found.reason.clone(),
            _ => phase.to_owned(),
        },
        ready: is_ready && !terminating,
        terminating,
        restarts: containers.iter().map(|container| container.number("restartCount")).sum(),
        failed: !is_ready && found.as_ref().is_some_and(|found| found.failed),
        ended: matches!(phase, "Failed" | "Succeeded"),
        cause: found.map(|found| found.text),
    }
}

/// Why the pods of an object are not ready: the first failing one by name, else the first that is on its way. Those that have ended
/// count last: a ReplicaSet leaves them behind.
pub fn failing_pod<'a>(pods: impl IntoIterator<Item = &'a Object>) -> Option<String> {
    let mut states: Vec<PodState> = pods.into_iter().map(pod_state).collect();
    states.retain(|state| !state.ready && !state.terminating && state.cause.is_some());
    states.sort_by(|a, b| (a.ended, !a.failed, &a.name).cmp(&(b.ended, !b.failed, &b.name)));
    let first = states.into_iter().next()?;
    Some(format!("pod {}: {}", first.name, first.cause?))
}

/// The label selector of an object that runs pods, as a list request takes it. `None` when it selects nothing, or uses an
/// operator that label selectors do not have.
pub fn pod_selector(object: &Object) -> Option<String> {
    let selector = field(object, &["spec", "selector"])?;
    let labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let mut parts = Vec::new();
    for (key, value) in labels {
        parts.push(format!("{key}={}", value.as_str()?));
    }
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    for expression in expressions.into_iter().flatten() {
        let key = text(expression, "key");
        let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
        let values = values.filter_map(Value::as_str).collect::<Vec<_>>().join(",");
        parts.push(match text(expression, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        });
    }
    (!parts.is_empty()).then(|| parts.join(","))
}

/// A container with its status.
struct Container<'a> {
    status: &'a Value,
    is_init: bool,
}

impl Container<'_> {
    fn number(&self, key: &str) -> i64 {
        self.status.get(key).and_then(Value::as_i64).unwrap_or(0)
    }

    fn state(&self, when: &str, state: &str) -> Option<&Value> {
        self.status.get(when)?.get(state).filter(|found| found.is_object())
    }

    fn title(&self) -> String {
        format!("{}container {}", if self.is_init { "init " } else { "" }, text(self.status, "name"))
    }
}

/// The containers in the order in which they start.
fn containers(pod: &Object) -> Vec<Container<'_>> {
    let all =
        |key: &'static str| field(pod, &["status", key]).and_then(Value::as_array).into_iter().flatten();
    let init = all("initContainerStatuses").map(|status| Container { status, is_init: true });
    init.chain(all("containerStatuses").map(|status| Container { status, is_init: false })).collect()
}

/// The pod as a whole was ended: evicted, out of its deadline, lost with its node.
fn pod_failure(pod: &Object) -> Option<Cause> {
    let status = pod.0.get("status")?;
    let reason = text(status, "reason");
    let whole = format!("{reason}{}", after_colon(text(status, "message")));
    (!reason.is_empty()).then(|| Cause { reason: reason.to_owned(), text: whole, failed: true })
}

fn unscheduled(pod: &Object) -> Option<Cause> {
    let found = condition(pod, "PodScheduled").filter(|found| text(found, "status") == "False")?;
    let reason = text(found, "reason");
    Some(Cause {
        reason: reason.to_owned(),
        text: format!("{reason}{}", after_colon(text(found, "message"))),
        failed: true,
    })
}

/// The first failing container; of those that only are on their way, the first.
fn container_failure(containers: &[Container<'_>]) -> Option<Cause> {
    let mut failures: Vec<Cause> = containers.iter().filter_map(failure).collect();
    failures.sort_by_key(|found| !found.failed);
    failures.into_iter().next()
}

fn failure(container: &Container<'_>) -> Option<Cause> {
    let named = |reason: &str, text: String, failed| {
        Some(Cause { reason: reason.to_owned(), text: format!("{}: {text}", container.title()), failed })
    };
    if let Some(waiting) = container.state("state", "waiting") {
        let reason = text(waiting, "reason");
        let last = container.state("lastState", "terminated");
        if matches!(reason, "" | "ContainerCreating" | "PodInitializing") && last.is_none() {
            return (reason == "ContainerCreating").then(|| named(reason, reason.to_owned(), false))?;
        }
        let is_image = reason.contains("Image");
        let image = is_image.then(|| format!("image {}", text(container.status, "image")));
        // the message of a back-off is the time until the next start, which grows
        let message =
            if reason == "CrashLoopBackOff" { String::new() } else { after_colon(text(waiting, "message")) };
        let details = last.into_iter().flat_map(exit).chain(image);
        return named(reason, format!("{reason}{}{message}", in_parentheses(details)), true);
    }
    if let Some(ended) = container.state("state", "terminated") {
        let code = ended.get("exitCode").and_then(Value::as_i64).unwrap_or(0);
        if container.is_init && code == 0 {
            return None;
        }
        let reason = text(ended, "reason");
        // these are the runtime's words, not the container's
        let is_start = matches!(reason, "StartError" | "ContainerCannotRun");
        let message = if is_start { after_colon(text(ended, "message")) } else { String::new() };
        return named(reason, format!("{reason} (exit code {code}){message}"), true);
    }
    let is_running = container.state("state", "running").is_some();
    let is_ready = container.status.get("ready").and_then(Value::as_bool).unwrap_or(false);
    if !is_running || is_ready || container.is_init {
        return None;
    }
    match container.state("lastState", "terminated") {
        Some(last) => {
            let details = in_parentheses(exit(last));
            named("Restarted", format!("restarted{details}, not ready"), true)
        }
        None => named("NotReady", "running, but not ready".to_owned(), false),
    }
}

fn last_restart(container: &Container<'_>) -> Option<Cause> {
    let last = container.state("lastState", "terminated")?;
    let details = in_parentheses(exit(last));
    Some(Cause {
        reason: "Restarted".to_owned(),
        text: format!("{}: restarted{details}", container.title()),
        failed: false,
    })
}

/// The exit code, and the reason if it adds to that.
fn exit(ended: &Value) -> Vec<String> {
    let code = ended.get("exitCode").and_then(Value::as_i64).map(|code| format!("exit code {code}"));
    let reason = Some(text(ended, "reason")).filter(|reason| !matches!(*reason, "" | "Error" | "Completed"));
    code.into_iter().chain(reason.map(str::to_owned)).collect()
}

fn in_parentheses(details: impl IntoIterator<Item = String>) -> String {
    let all: Vec<String> = details.into_iter().collect();
    if all.is_empty() { String::new() } else { format!(" ({})", all.join(", ")) }
}

/// The first line of a message, cut.
fn after_colon(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default().trim();
    match line.char_indices().nth(MAX_MESSAGE_CHARS) {
        _ if line.is_empty() => String::new(),
        Some((end, _)) => format!(": {}…", &line[..end]),
        None => format!(": {line}"),
    }
}

fn condition<'a>(pod: &'a Object, type_: &str) -> Option<&'a Value> {
    let all = field(pod, &["status", "conditions"])?.as_array()?;
    all.iter().find(|found| text(found, "type") == type_)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, status: Value) -> Object {
        Object::from_value(json!({"metadata": {"name": name}, "status": status})).unwrap()
    }

    fn main(state: Value, last: Value) -> Value {
        json!({"phase": "Running", "containerStatuses": [
            {"name": "manager", "image": "quay.io/x:1", "restartCount": 3, "state": state, "lastState": last}]})
    }

    #[test]
    #[rustfmt::skip]
    fn pod_state_gives_reason_and_exit_code() {
        let ended = |code: i64, reason: &str| json!({"terminated": {"exitCode": code, "reason": reason}});
        let waiting =
            |reason: &str, message: &str| json!({"waiting": {"reason": reason, "message": message}});
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let mut restarted = main(json!({"running": {}}), ended(137, "OOMKilled"));
        restarted["conditions"] = ready.clone();
        let mut fine = main(json!({"running": {}}), json!({}));
        fine["conditions"] = ready;
        for (status, reason, cause, failed) in [
            (main(waiting("CrashLoopBackOff", "back-off 20s restarting"), ended(1, "OOMKilled")), "CrashLoopBackOff",
                Some("container manager: CrashLoopBackOff (exit code 1, OOMKilled)"), true),
            (main(waiting("CrashLoopBackOff", "back-off 20s restarting"), ended(2, "Error")), "CrashLoopBackOff",
                Some("container manager: CrashLoopBackOff (exit code 2)"), true),
            (main(waiting("ErrImagePull", "not found\nmore"), json!({})), "ErrImagePull",
                Some("container manager: ErrImagePull (image quay.io/x:1): not found"), true),
            (main(waiting("CreateContainerConfigError", "secret \"s\" not found"), json!({})), "CreateContainerConfigError",
                Some("container manager: CreateContainerConfigError: secret \"s\" not found"), true),
            (main(ended(137, "OOMKilled"), json!({})), "OOMKilled", Some("container manager: OOMKilled (exit code 137)"), true),
            (main(ended(0, "Completed"), json!({})), "Completed", Some("container manager: Completed (exit code 0)"), true),
            (main(json!({"running": {}}), ended(137, "OOMKilled")), "Restarted",
                Some("container manager: restarted (exit code 137, OOMKilled), not ready"), true),
            (main(json!({"running": {}}), json!({})), "NotReady", Some("container manager: running, but not ready"), false),
            (main(waiting("ContainerCreating", ""), json!({})), "ContainerCreating", Some("container manager: ContainerCreating"), false),
            (json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}), "Evicted",
                Some("Evicted: The node was low on resource: memory."), true),
            (
                json!({"phase": "Pending", "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}]}),
                "Unschedulable",
                Some("Unschedulable: 0/1 nodes are available"),
                true,
            ),
            (
                json!({"phase": "Pending",
                    "initContainerStatuses": [{"name": "setup", "state": ended(3, "Error")}],
                    "containerStatuses": [{"name": "manager", "state": waiting("PodInitializing", "")}]}),
                "Error",
                Some("init container setup: Error (exit code 3)"),
                true,
            ),
            (
                json!({"phase": "Pending",
                    "initContainerStatuses": [{"name": "setup", "state": ended(0, "Completed")}],
                    "containerStatuses": [{"name": "manager", "state": waiting("PodInitializing", "")}]}),
                "Pending",
                None,
                false,
            ),
            (restarted, "Running", Some("container manager: restarted (exit code 137, OOMKilled)"), false),
            (fine, "Running", None, false),
            (json!({}), "Pending", None, false),
        ] {
            let state = pod_state(&pod("x", status.clone()));
            assert_eq!(
                (state.reason.as_str(), state.cause.as_deref(), state.failed),
                (reason, cause, failed),
                "{status}"
            );
        }
    }

    #[test]
    fn pod_texts_of_the_container_are_left_out() {
        let ended = json!({"terminated": {"exitCode": 1, "reason": "Error", "message": "password=hunter2"}});
        for status in
            [main(ended.clone(), json!({})), main(json!({"waiting": {"reason": "CrashLoopBackOff"}}), ended)]
        {
            let cause = pod_state(&pod("x", status)).cause.unwrap();
            assert!(!cause.contains("hunter2"), "{cause}");
        }
    }

    #[test]
    fn pod_selector_prints_labels_and_expressions() {
        let expression =
            |operator: &str, values: Value| json!({"key": "k", "operator": operator, "values": values});
        for (selector, want) in [
            (json!({"matchLabels": {"a": "1", "b": "2"}}), Some("a=1,b=2")),
            (
                json!({"matchLabels": {"a": "1"}, "matchExpressions": [
                    expression("In", json!(["x", "y"])), expression("NotIn", json!(["z"])),
                    expression("Exists", json!(null)), expression("DoesNotExist", json!(null))]}),
                Some("a=1,k in (x,y),k notin (z),k,!k"),
            ),
            (json!({"matchExpressions": [expression("Like", json!(["x"]))]}), None),
            (json!({}), None),
            (json!(null), None),
        ] {
            let object = Object::from_value(json!({"spec": {"selector": selector}})).unwrap();
            assert_eq!(pod_selector(&object).as_deref(), want, "{selector}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn failing_pod_is_named_before_pending_one() {
        let creating = pod("a", main(json!({"waiting": {"reason": "ContainerCreating"}}), json!({})));
        let crashing = pod(
            "b",
            main(
                json!({"waiting": {"reason": "CrashLoopBackOff"}}),
                json!({"terminated": {"exitCode": 1, "reason": "OOMKilled"}}),
            ),
        );
        let evicted = pod("0", json!({"phase": "Failed", "reason": "Evicted"}));
        assert!(pod_state(&evicted).ended && !pod_state(&crashing).ended);
        let mut leaving = crashing.clone();
        leaving.metadata_mut().insert("deletionTimestamp".to_owned(), json!("2030-01-01T00:00:00Z"));
        for (pods, want) in [
            (vec![&creating, &crashing], Some("pod b: container manager: CrashLoopBackOff (exit code 1, OOMKilled)")),
            (vec![&creating, &leaving], Some("pod a: container manager: ContainerCreating")),
            (vec![&evicted, &creating], Some("pod a: container manager: ContainerCreating")),
            (vec![&evicted], Some("pod 0: Evicted")),
            (vec![&leaving], None),
            (vec![], None),
        ] {
            assert_eq!(failing_pod(pods).as_deref(), want);
        }
        let long =
            main(json!({"waiting": {"reason": "ErrImagePull", "message": "é".repeat(500)}}), json!({}));
        assert!(failing_pod([&pod("x", long)]).unwrap().chars().count() < MAX_MESSAGE_CHARS + 80);
    }
}
