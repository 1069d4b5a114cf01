//! Waiting for a state through a watch, with a deadline; the error shows the last state if the expected one does not come.

use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::TryStreamExt;
use kube::Api;
use kube::runtime::watcher;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Waits for one object.
///
/// ```no_run
/// # async fn example(api: kube::Api<k8s_openapi::api::core::v1::Node>) -> anyhow::Result<()> {
/// let node = olm_kit::Wait::new(&api, "node-1").for_condition("Ready", "True").await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use]
pub struct Wait<'a, K> {
    api: &'a Api<K>,
    name: &'a str,
    limit: Duration,
    logs: Vec<std::path::PathBuf>,
}

impl<'a, K> Wait<'a, K>
where
    K: kube::Resource + Clone + DeserializeOwned + Serialize + Debug + Send + 'static,
{
    /// For the object `name` of `api`; up to 60 s.
    pub fn new(api: &'a Api<K>, name: &'a str) -> Self {
        Self { api, name, limit: Duration::from_secs(60), logs: Vec::new() }
    }

    /// Another limit.
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// A log whose end belongs into the failure message.
    pub fn log(mut self, log: impl Into<std::path::PathBuf>) -> Self {
        self.logs.push(log.into());
        self
    }

    /// Until `reached` holds for the object; `what` describes it. Absent objects are not checked.
    pub async fn until(self, what: &str, mut reached: impl FnMut(&K) -> bool) -> Result<K> {
        let found = self.watch(what, |object| object.is_some_and(&mut reached)).await?;
        found.ok_or_else(|| anyhow::anyhow!("{what}: no object"))
    }

    /// Until the object exists.
    pub async fn to_exist(self) -> Result<K> {
        self.until("exists", |_| true).await
    }

    /// Until the object is gone.
    pub async fn to_be_gone(self) -> Result<()> {
        self.watch("is gone", |object| object.is_none()).await.map(|_| ())
    }

    /// Until condition `kind` has `status`.
    pub async fn for_condition(self, kind: &str, status: &str) -> Result<K> {
        self.until(&format!("{kind}={status}"), |object| {
            condition(object, kind).is_some_and(|it| it.status == status)
        })
        .await
    }

    /// Until condition `kind` has `status` and `reason`.
    pub async fn for_reason(self, kind: &str, status: &str, reason: &str) -> Result<K> {
        self.until(&format!("{kind}={status}/{reason}"), |object| {
            condition(object, kind).is_some_and(|it| it.status == status && it.reason == reason)
        })
        .await
    }

    async fn watch(&self, what: &str, mut reached: impl FnMut(Option<&K>) -> bool) -> Result<Option<K>> {
        let mut last = None;
        let mut watch_error = None;
        let follow = async {
            let mut events = std::pin::pin!(watcher::watch_object(self.api.clone(), self.name));
            loop {
                match events.try_next().await {
                    Ok(Some(object)) => {
                        let done = reached(object.as_ref());
                        last = object;
                        if done {
                            return;
                        }
                    }
                    // the watcher recovers by itself; its last error is worth reporting if the deadline passes
                    Err(problem) => watch_error = Some(problem),
                    Ok(None) => return std::future::pending().await,
                }
            }
        };
        if tokio::time::timeout(self.limit, follow).await.is_ok() {
            return Ok(last);
        }
        let kind = std::any::type_name::<K>().rsplit("::").next().unwrap_or_default();
        let mut message = format!("{kind} {}: not \"{what}\" within {:.0?}", self.name, self.limit);
        match &last {
            None => message += "; it does not exist",
            Some(object) => message += &format!("; last seen:\n{}", describe(object)),
        }
        if let Some(watch_error) = watch_error {
            message += &format!("\nwatch: {watch_error}");
        }
        for log in &self.logs {
            message += &format!("\n--- end of {}:\n{}", log.display(), crate::child::tail(log, 0, 40));
        }
        bail!(message)
    }
}

/// [`Wait::until`] as one call.
pub async fn wait_for<K>(
    api: &Api<K>,
    name: &str,
    what: &str,
    reached: impl FnMut(&K) -> bool,
    deadline: Duration,
) -> Result<K>
where
    K: kube::Resource + Clone + DeserializeOwned + Serialize + Debug + Send + 'static,
{
    Wait::new(api, name).within(deadline).until(what, reached).await
}

/// The shortest and the longest pause between two calls of a check.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// Calls `check` until it gives a value; for what cannot be watched (files, HTTP answers, process state). A check that takes long is
/// called less often: each pause is as long as the call before.
/// The error of `check` is why not yet; the last one is in the failure message.
pub async fn eventually<T, F>(what: &str, limit: Duration, mut check: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut last = None;
    let repeat = async {
        loop {
            let started = Instant::now();
            match check().await {
                Ok(value) => return value,
                Err(problem) => last = Some(problem),
            }
            tokio::time::sleep(started.elapsed().clamp(PAUSES.0, PAUSES.1)).await;
        }
    };
    match tokio::time::timeout(limit, repeat).await {
        Ok(value) => Ok(value),
        Err(_) => Err(last
            .unwrap_or_else(|| anyhow::anyhow!("no answer"))
            .context(format!("not within {limit:.0?}: {what}"))),
    }
}

/// Waits until `count` has given the same number for as long as `rest`, and gives it.
pub async fn still(
    what: &str,
    limit: Duration,
    rest: Duration,
    mut count: impl FnMut() -> Result<usize>,
) -> Result<usize> {
    let (mut last, mut since) = (count()?, Instant::now());
    eventually(what, limit, || {
        let now = count();
        if let Ok(now) = now
            && now != last
        {
            (last, since) = (now, Instant::now());
        }
        let unchanged_for = since.elapsed();
        async move {
            let now = now?;
            if unchanged_for <= rest {
                bail!("{now}, {unchanged_for:.1?} ago the last");
            }
            Ok(now)
        }
    })
    .await
}

/// One condition of `status.conditions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// True, False or Unknown
    pub status: String,
    pub reason: String,
    pub message: String,
    /// `observedGeneration`, when set
    pub observed_generation: Option<i64>,
}

/// The condition `kind` of any object.
pub fn condition(object: &impl Serialize, kind: &str) -> Option<Condition> {
    let object = serde_json::to_value(object).ok()?;
    let all = object.pointer("/status/conditions")?.as_array()?;
    let found = all.iter().find(|it| it["type"] == kind)?;
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    Some(Condition {
        status: text("status"),
        reason: text("reason"),
        message: text("message"),
        observed_generation: found["observedGeneration"].as_i64(),
    })
}

/// Conditions one a line, then the generation; the whole object when there are no conditions.
fn describe(object: &impl Serialize) -> String {
    let object = serde_json::to_value(object).unwrap_or_default();
    let Some(all) = object.pointer("/status/conditions").and_then(Value::as_array) else {
        let mut object = object;
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        return serde_json::to_string_pretty(&object).unwrap_or_default();
    };
    let mut lines: Vec<String> = all
        .iter()
        .map(|it| {
            let text = |key: &str| it[key].as_str().unwrap_or_default().to_owned();
            format!("  {}={} {}: {}", text("type"), text("status"), text("reason"), text("message"))
        })
        .collect();
    lines.push(format!("  generation {}", object["metadata"]["generation"]));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn wait_finds_and_describes_conditions() {
        let object = json!({"metadata": {"generation": 3}, "status": {"conditions": [
            {"type": "Installed", "status": "False", "reason": "Failed", "message": "no", "observedGeneration": 2},
        ]}});
        let found = condition(&object, "Installed").unwrap();
        assert_eq!(
            (found.status.as_str(), found.reason.as_str(), found.observed_generation),
            ("False", "Failed", Some(2))
        );
        assert_eq!(condition(&object, "Other"), None);
        assert_eq!(describe(&object), "  Installed=False Failed: no\n  generation 3");
    }

    #[tokio::test]
    async fn wait_eventually_pauses_as_long_as_a_check_takes() {
        for (takes, most) in [(0, 9), (200, 2)] {
            let mut count = 0;
            let outcome: Result<()> = eventually("nothing", Duration::from_millis(400), || {
                count += 1;
                async move {
                    tokio::time::sleep(Duration::from_millis(takes)).await;
                    bail!("not yet")
                }
            })
            .await;
            assert!(outcome.is_err() && (1..=most).contains(&count), "{takes} ms: {count}");
        }
    }

    #[tokio::test]
    async fn wait_eventually_reports_the_last_reason() {
        let mut count = 0;
        let problem = eventually::<(), _>("a sign", Duration::from_millis(200), || {
            count += 1;
            let count = count;
            async move { bail!("try {count}") }
        })
        .await
        .unwrap_err();
        let text = format!("{problem:#}");
        assert!(text.starts_with("not within 200ms: a sign: try "), "{text}");
    }
}
