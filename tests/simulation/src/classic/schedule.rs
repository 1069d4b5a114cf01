//! The schedule of a simulation of OLM Classic: made from a seed, without IO. Every action makes sense whatever happened before.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use super::content::{PACKAGES, TRIAL_CHANNEL, packages};
use super::harness::NAMESPACES;
use crate::disturbance::{Disturbance, ERRORS, Outage};
use crate::schedule::{Lasting, Step, gap, seconds};

/// An object of an installed operator that a user deletes, and that comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Deployment,
    OperatorCondition,
    Copy,
    GroupRole,
    Webhook,
    Certificate,
}

#[rustfmt::skip]
const TARGETS: [Target; 6] = [
    Target::Deployment, Target::OperatorCondition, Target::Copy, Target::GroupRole, Target::Webhook, Target::Certificate,
];

/// What happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Creates the Subscription of the namespace, or changes its approval.
    Subscribe { namespace: &'static str, is_manual: bool },
    /// Deletes the Subscriptions of the namespace and its ClusterServiceVersions.
    Unsubscribe { namespace: &'static str },
    /// Deletes the Subscription of the namespace and makes it again.
    Resubscribe { namespace: &'static str },
    /// The next version of the package is in the catalog.
    Publish { package: &'static str },
    /// The user approves what waits.
    Approve { namespace: &'static str },
    /// Deletes an object.
    Delete { package: &'static str, target: Target },
    /// Changes the image in the ClusterServiceVersion of the package.
    EditCsv { package: &'static str },
    /// Overwrites the phase of the ClusterServiceVersion of the package.
    OverwritePhase { package: &'static str, phase: usize },
    /// Another client writes labels and statuses of what is in the namespace all the time, for a time.
    Rival { namespace: &'static str, time: Duration },
    /// Deletes the ClusterServiceVersion of the package; after a time its Subscription, too, and makes that again.
    DeleteCsv { package: &'static str, time: Duration },
    /// Deletes the plans of the namespace.
    DeletePlans { namespace: &'static str },
    /// The OperatorGroup of the namespace is gone, for a time.
    DeleteGroup { namespace: &'static str, time: Duration },
    /// The namespace has another OperatorGroup besides, for a time.
    RivalGroup { namespace: &'static str, time: Duration },
    /// The account of the group is gone, for a time.
    DeleteAccount { namespace: &'static str, time: Duration },
    /// The CatalogSource is gone, for a time.
    DeleteCatalog { time: Duration },
    /// The namespace is deleted, and made again with what the user wants in it.
    DeleteNamespace { namespace: &'static str, time: Duration },
    /// The Subscription to the package names another channel, which has the first version only or does not exist, for a time.
    EditChannel { package: &'static str, channel: &'static str, time: Duration },
    /// A copied ClusterServiceVersion loses its label. After a time the user deletes what it is then.
    UnlabelCopy { time: Duration },
    /// The CatalogSource is made again with another image, which has the first versions only, for a time.
    ReplaceCatalog { time: Duration },
    /// Half of the definitions of the package are gone, for a time.
    DeleteCrds { package: &'static str, time: Duration },
    /// Creates a custom resource of the package.
    CustomResource { package: &'static str },
    /// Neither catalogs nor bundles can be pulled, for a time.
    Registry { time: Duration },
    /// One that does not depend on the controllers.
    Disturbance(Disturbance),
}

impl Lasting for Action {
    fn time(&self) -> Option<Duration> {
        match self {
            Self::Rival { time, .. }
            | Self::DeleteCsv { time, .. }
            | Self::DeleteGroup { time, .. }
            | Self::RivalGroup { time, .. }
            | Self::DeleteAccount { time, .. }
            | Self::DeleteCatalog { time }
            | Self::EditChannel { time, .. }
            | Self::UnlabelCopy { time }
            | Self::ReplaceCatalog { time }
            | Self::DeleteNamespace { time, .. }
            | Self::DeleteCrds { time, .. }
            | Self::Registry { time } => Some(*time),
            Self::Disturbance(fault) => fault.time(),
            _ => None,
        }
    }
}

/// Kinds whose watches and requests have faults.
#[rustfmt::skip]
pub const KINDS: [&str; 20] = [
    "catalogsources", "subscriptions", "installplans", "clusterserviceversions", "operatorgroups", "operatorconditions", "operators",
    "namespaces", "configmaps", "secrets", "services", "serviceaccounts", "deployments", "roles", "rolebindings", "clusterroles",
    "clusterrolebindings", "customresourcedefinitions", "validatingwebhookconfigurations", "leases",
];

pub fn schedule(seed: u64) -> Vec<Step<Action>> {
    let mut random = StdRng::seed_from_u64(seed ^ 0x0063_6c61_7373_6963);
    let mut at = Duration::from_secs(random.random_range(0..20));
    let mut steps = Vec::new();
    // mostly one namespace, so that actions meet
    let namespaces = match random.random_range(0..5) {
        0 | 1 => &NAMESPACES[..1],
        2 | 3 => &NAMESPACES[1..],
        _ => &NAMESPACES[..],
    };
    for namespace in namespaces {
        let is_manual = random.random_ratio(1, 4);
        steps.push(Step { at, action: Action::Subscribe { namespace, is_manual } });
        at += gap(&mut random);
    }
    for _ in 0..random.random_range(3..12) {
        at += gap(&mut random);
        let namespace = namespaces.choose(&mut random).copied().unwrap_or(NAMESPACES[0]);
        steps.push(Step { at, action: action(namespace, &mut random) });
    }
    // drawn last: the other steps of a seed do not depend on it
    if random.random_ratio(1, 2) {
        let namespace = namespaces.choose(&mut random).copied().unwrap_or(NAMESPACES[0]);
        let at = at.mul_f64(random.random::<f64>());
        steps.push(Step { at, action: edit(namespace, &mut random) });
        steps.sort_by_key(|step| step.at);
    }
    steps
}

/// A user changes for a time what resolution or copies depend on.
fn edit(namespace: &'static str, random: &mut StdRng) -> Action {
    let package = packages(namespace).choose(random).copied().unwrap_or(PACKAGES[0]);
    match random.random_range(0..3) {
        0 => {
            let channel = [TRIAL_CHANNEL, "gone"].choose(random).copied().unwrap_or(TRIAL_CHANNEL);
            Action::EditChannel { package, channel, time: seconds(random, 60) }
        }
        1 => Action::UnlabelCopy { time: seconds(random, 60) },
        _ => Action::ReplaceCatalog { time: seconds(random, 60) },
    }
}

fn action(namespace: &'static str, random: &mut StdRng) -> Action {
    let resource = KINDS.choose(random).copied().unwrap_or(KINDS[0]);
    let package = packages(namespace).choose(random).copied().unwrap_or(PACKAGES[0]);
    match random.random_range(0..100) {
        0..4 => Action::Subscribe { namespace, is_manual: random.random() },
        4..7 => Action::Unsubscribe { namespace },
        7..10 => Action::Resubscribe { namespace },
        10..22 => Action::Publish { package },
        22..24 => Action::Approve { namespace },
        24..32 => {
            let target = TARGETS.choose(random).copied().unwrap_or(TARGETS[0]);
            Action::Delete { package, target }
        }
        32..35 => Action::EditCsv { package },
        35..38 => Action::OverwritePhase { package, phase: random.random_range(0..4) },
        38..41 => Action::Rival { namespace, time: seconds(random, 20) },
        41..44 => Action::DeleteCsv { package, time: seconds(random, 30) },
        44..46 => Action::DeletePlans { namespace },
        46..50 => Action::DeleteGroup { namespace, time: seconds(random, 60) },
        50..52 => Action::RivalGroup { namespace, time: seconds(random, 30) },
        52..54 => Action::DeleteAccount { namespace, time: seconds(random, 30) },
        54..58 => Action::DeleteCatalog { time: seconds(random, 60) },
        58..62 => Action::DeleteNamespace { namespace, time: seconds(random, 30) },
        62..65 => Action::DeleteCrds { package, time: seconds(random, 30) },
        65..67 => Action::CustomResource { package },
        67..69 => Action::Registry { time: seconds(random, 40) },
        69..79 => {
            let writes = random.random_range(0..60);
            Action::Disturbance(Disturbance::Strike { writes, is_executed: random.random() })
        }
        _ => Action::Disturbance(fault(resource, random)),
    }
}

fn fault(resource: &'static str, random: &mut StdRng) -> Disturbance {
    match random.random_range(0..23) {
        0..3 => Disturbance::Delay { resource, by: seconds(random, 30), time: seconds(random, 60) },
        3..6 => Disturbance::Late { seed: random.random(), time: seconds(random, 60) },
        6..8 => Disturbance::Drop { resource },
        8..10 => Disturbance::Compact,
        10..13 => Disturbance::Fail {
            resource,
            writes: random.random(),
            error: random.random_range(0..ERRORS),
            times: random.random_range(1..6),
        },
        13..15 => Disturbance::Noise { time: seconds(random, 30) },
        15 => Disturbance::DeleteLease,
        16 => Disturbance::TakeLease,
        17 => Disturbance::Suspend { time: seconds(random, 300) + Duration::from_secs(30) },
        18..20 => {
            let outages = [Outage::Kill, Outage::Replace, Outage::Partition];
            let outage = outages.choose(random).copied().unwrap_or(Outage::Kill);
            Disturbance::Lose { process: random.random_range(0..2), outage, time: seconds(random, 40) }
        }
        20..22 => Disturbance::Down { time: seconds(random, 40) },
        _ => Disturbance::Clock { seconds: *[-3_600, -30, 400, 3_600].choose(random).unwrap_or(&0) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classic_schedule_follows_from_its_seed() {
        assert_eq!(schedule(5), schedule(5));
        assert_ne!(schedule(5), schedule(6));
        assert!(schedule(5).is_sorted_by_key(|step| step.at));
    }
}
