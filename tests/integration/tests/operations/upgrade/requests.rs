//! The programs' requests, from the apiserver's audit record.

use std::collections::BTreeSet;

use anyhow::Result;
use olm_kit::{AuditTail, Cluster, Request, SYSTEM_NAMESPACE};

use super::system::{PROGRAMS, Version, account, lease};

/// What a request does to stored objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing: it reads.
    Reads,
    /// Nothing: a review (of a token, of rights) is answered and not stored.
    Reviews,
    /// Nothing: a dry run.
    DryRun,
    /// It writes the lease of the program's own leader election.
    Lease,
    /// It writes an object.
    Writes,
}

/// One request of our programs.
#[derive(Debug, Clone)]
pub(crate) struct Own {
    pub(crate) program: &'static str,
    pub(crate) version: Version,
    pub(crate) request: Request,
}

impl Own {
    /// The request as one of our programs', if it is; watches are left out, they are recorded at their start.
    fn from_request(request: Request) -> Option<Self> {
        let user = request.user.strip_prefix(&format!("system:serviceaccount:{SYSTEM_NAMESPACE}:"))?;
        let versions = [Version::Old, Version::New];
        let mut all = PROGRAMS.iter().flat_map(|program| versions.map(|version| (*program, version)));
        let (program, version) = all.find(|(program, version)| account(program, *version) == user)?;
        (request.verb != "watch").then_some(Self { program, version, request })
    }

    pub(crate) fn effect(&self) -> Effect {
        let request = &self.request;
        if !request.writes() {
            Effect::Reads
        } else if request.resource.ends_with("reviews") {
            Effect::Reviews
        } else if request.uri.contains("dryRun=All") {
            Effect::DryRun
        } else if request.resource == "leases"
            && request.namespace == SYSTEM_NAMESPACE
            && [lease(self.program), ""].contains(&request.name.as_str())
        {
            Effect::Lease
        } else {
            Effect::Writes
        }
    }

    /// The operation and its object, equal for the same operation at another time. Names of events end with a time.
    pub(crate) fn operation(&self) -> String {
        let request = &self.request;
        let name = match request.name.rsplit_once('.') {
            Some((stem, _)) if request.resource == "events" => stem,
            _ => &request.name,
        };
        format!("{} {} {} {}/{name}", self.program, request.verb, request.resource, request.namespace)
    }

    /// Whether it is a patch of one of these Secrets of the system namespace by the programs of today.
    pub(crate) fn patches_one_of(&self, secrets: &BTreeSet<String>) -> bool {
        let request = &self.request;
        (self.version, self.program) == (Version::New, "operator-controller")
            && (request.verb.as_str(), request.resource.as_str()) == ("patch", "secrets")
            && request.namespace == SYSTEM_NAMESPACE
            && secrets.contains(&request.name)
    }

    /// Who did what to which object, for messages.
    pub(crate) fn describe(&self) -> String {
        let request = &self.request;
        let acting = match request.acting_as.as_str() {
            "" => String::new(),
            user => format!(" as {user}"),
        };
        let Request { received, agent, verb, resource, namespace, name, code, .. } = request;
        let (version, program) = (self.version.name(), self.program);
        let client = format!("{received} {version} {program} ({agent}){acting}");
        format!("{client}: {verb} {resource} {namespace}/{name} -> {code}")
    }
}

/// Follows the record.
pub(crate) struct Requests {
    tail: AuditTail,
    /// Not taken yet.
    open: Vec<Own>,
    count: usize,
}

impl Requests {
    pub(crate) fn start(cluster: &Cluster) -> Result<Self> {
        Ok(Self { tail: cluster.audit_tail()?, open: Vec::new(), count: 0 })
    }

    /// How many requests there were, those about leases left out: they never end.
    pub(crate) fn count(&mut self) -> Result<usize> {
        for own in self.tail.more()?.into_iter().filter_map(Own::from_request) {
            self.count += usize::from(own.request.resource != "leases");
            self.open.push(own);
        }
        Ok(self.count)
    }

    /// Those since the last call.
    pub(crate) fn take(&mut self) -> Result<Vec<Own>> {
        self.count()?;
        Ok(std::mem::take(&mut self.open))
    }
}

#[test]
fn upgrade_writes_exclude_reads_leases_and_reviews() {
    let own = |verb: &str, resource: &str, name: &str, uri: &str| {
        Own::from_request(Request {
            verb: verb.to_owned(),
            user: "system:serviceaccount:olmv1-system:catalogd-new".to_owned(),
            acting_as: String::new(),
            agent: "agent".to_owned(),
            group: String::new(),
            resource: resource.to_owned(),
            namespace: "olmv1-system".to_owned(),
            name: name.to_owned(),
            code: 200,
            uri: uri.to_owned(),
            received: "now".to_owned(),
        })
    };
    for (verb, resource, name, uri, want) in [
        ("get", "leases", "x", "/", Some(Effect::Reads)),
        ("watch", "secrets", "x", "/", None),
        ("update", "leases", "catalogd-operator-lock", "/", Some(Effect::Lease)),
        ("update", "leases", "9c4404e7.operatorframework.io", "/", Some(Effect::Writes)),
        ("create", "subjectaccessreviews", "", "/", Some(Effect::Reviews)),
        ("patch", "secrets", "x", "/?dryRun=All", Some(Effect::DryRun)),
        ("patch", "clustercatalogs/status", "x", "/", Some(Effect::Writes)),
        ("create", "events", "", "/", Some(Effect::Writes)),
    ] {
        let effect = own(verb, resource, name, uri).map(|own| own.effect());
        assert_eq!(effect, want, "{verb} {resource} {name} {uri}");
    }
    let line = own("patch", "secrets", "x", "/").map(|own| own.describe());
    assert_eq!(line.as_deref(), Some("now new catalogd (agent): patch secrets olmv1-system/x -> 200"));
}
