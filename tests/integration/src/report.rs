//! Reports of the programs about their objects, requested by SIGUSR1, beside the objects as the apiserver has them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use kube::{Client, ResourceExt as _};
use olm_kit::{Process, eventually};

use crate::inventory::objects;

/// How long a process may take to log its report.
const LIMIT: Duration = Duration::from_secs(20);

/// One object, as the controller of a program reported it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reported {
    /// The name of the controller.
    pub controller: String,
    /// The name of the object.
    pub name: String,
    /// Last and next pass.
    pub state: String,
    /// The resourceVersions at which it and its objects are cached, and what it waits for.
    pub described: String,
}

impl Reported {
    /// Reads a line of a log, if it is of a report.
    fn from_line(line: &str) -> Option<Self> {
        let (_, fields) = line.split_once("state of object ")?;
        let field = |name: &str| {
            let (_, rest) = fields.split_once(&format!("{name}=\""))?;
            Some(rest.split_once('"')?.0.to_owned())
        };
        let (controller, name) = (field("controller")?, field("name")?);
        Some(Self { controller, name, state: field("state")?, described: field("described")? })
    }

    /// Whether it is the object with this name, or a revision of it.
    pub fn concerns(&self, name: &str) -> bool {
        let rest = self.name.strip_prefix(name).map(|rest| rest.strip_prefix('-').unwrap_or(rest));
        rest.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
    }

    /// The cached resourceVersion of each object of a revision, by `<kind> <namespace>/<name>`; empty when it is not cached.
    pub fn cached(&self) -> BTreeMap<&str, &str> {
        let rest = self.described.split_once("objects: ").map(|(_, rest)| rest).unwrap_or_default();
        let list = rest.split_once(';').map_or(rest, |(list, _)| list);
        list.split(", ").filter_map(|object| object.rsplit_once('@')).collect()
    }
}

/// Requests reports of programs and returns all objects in them. `controllers`: how many each of them has.
pub async fn request(programs: &mut [(&mut Process, usize)]) -> Result<Vec<Reported>> {
    let mut all = Vec::new();
    for (program, controllers) in programs {
        let before = program.log_text().len();
        program.request_report();
        let report = eventually(&format!("{} reports", program.name()), LIMIT, || async {
            let text = program.log_text();
            let report = text.get(before..).unwrap_or_default().to_owned();
            let ends = report.matches("state of all objects was reported").count();
            ensure!(ends >= *controllers, "{ends} of {controllers} controllers");
            Ok(report)
        })
        .await?;
        all.extend(report.lines().filter_map(Reported::from_line));
    }
    Ok(all)
}

/// The resourceVersions of all objects of the cluster, by `<kind> <namespace>/<name>`.
pub async fn live_versions(client: &Client) -> Result<BTreeMap<String, String>> {
    let all = objects(client).await?.into_iter().filter_map(|(key, object)| {
        let (_, key) = key.split_once(' ')?;
        Some((key.to_owned(), object.resource_version()?))
    });
    Ok(all.collect())
}

/// What was reported of the objects with these names and of their revisions, with the resourceVersions that differ from the live ones.
pub fn explain(reported: &[Reported], live: &BTreeMap<String, String>, names: &[&str]) -> String {
    let mut lines = Vec::new();
    for object in reported.iter().filter(|object| names.iter().any(|name| object.concerns(name))) {
        let Reported { controller, name, state, described } = object;
        let own = live.iter().filter(|(key, _)| key.ends_with(&format!(" /{name}")));
        let own: Vec<String> = own.map(|(key, version)| format!("{key} at {version}")).collect();
        lines.push(format!("{controller} {name}: {state}; {described}; live: {}", own.join(", ")));
        for (key, cached) in object.cached() {
            let live = live.get(key).map(String::as_str).unwrap_or_default();
            if live != cached {
                lines.push(format!("  {key}: live at {live:?}, cached at {cached:?}"));
            }
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_explained_beside_the_live_versions() {
        let line = |name: &str, described: &str| {
            format!(
                "2026-01-01T00:00:00Z  INFO olm_runtime::report: state of object controller=\"c\" name=\"{name}\" \
                 state=\"last pass: success 1.0 s ago\" described=\"{described}\""
            )
        };
        let objects =
            "cached at 5; objects: ConfigMap n/a@6, Secret n/b@, Job n/c@8; waits for: ConfigMap n/a";
        let log =
            [line("e", "cached at 4"), line("e-1", objects), line("e-other", ""), "another line".to_owned()];
        let reported: Vec<Reported> = log.iter().filter_map(|line| Reported::from_line(line)).collect();
        assert_eq!(reported.len(), 3);
        let live = [
            ("ClusterExtension /e", "4"),
            ("ClusterObjectSet /e-1", "7"),
            ("ConfigMap n/a", "6"),
            ("Secret n/b", "3"),
            ("Job n/c", "9"),
        ];
        let live = live.map(|(key, version)| (key.to_owned(), version.to_owned())).into();
        let want = [
            "c e: last pass: success 1.0 s ago; cached at 4; live: ClusterExtension /e at 4",
            &format!("c e-1: last pass: success 1.0 s ago; {objects}; live: ClusterObjectSet /e-1 at 7"),
            "  Job n/c: live at \"9\", cached at \"8\"",
            "  Secret n/b: live at \"3\", cached at \"\"",
        ];
        assert_eq!(explain(&reported, &live, &["e"]), want.join("\n"));
    }
}
