//! The schedule of actions and failures of a simulation: made from a seed, without IO.
//!
//! Every action makes sense whatever happened before, so that the shortest schedule that fails is found by leaving actions out.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use crate::content::{PACKAGES, VERSIONS};
use crate::disturbance::{Disturbance, ERRORS, Outage};

/// What becomes of the objects of an extension that is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    Background,
    Orphan,
    Keep,
}

/// What a user does to an object of an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    Edit,
    Delete,
}

/// A step of a schedule.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Creates the extension, with or without a service account, or changes its version.
    Install { extension: &'static str, version: &'static str, account: bool },
    /// Deletes the extension.
    Uninstall { extension: &'static str, policy: Policy },
    /// Pauses the extension for a time.
    Pause { extension: &'static str, time: Duration },
    /// Edits or deletes the object of the extension with this index, counted round.
    Damage { extension: &'static str, object: usize, damage: Damage },
    /// Edits an object of the extension, and deletes it after a time, unseen by watches; the answer to its correction comes later than
    /// the next listing.
    Overtake { extension: &'static str, object: usize, time: Duration },
    /// Changes the version. If the old revision is archived within a time, removes the owner label of an object immediately after that, which
    /// no watch shows until the time ends, and delays the request that takes the old owner off.
    Unlabel { extension: &'static str, version: &'static str, object: usize, time: Duration },
    /// Changes the version. When the old revision is archived, deletes the extension immediately and orphans its objects, while the request
    /// that takes the old owner off one of them is delayed.
    Abandon { extension: &'static str, version: &'static str, object: usize },
    /// Deletes the extension and orphans its objects, creates it again, and deletes it with policy `keep` when it owns its revisions
    /// again. The answer to the request that made it their owner is lost, and their watch is late for a time.
    Reclaim { extension: &'static str, time: Duration },
    /// Another extension installs the package instead. After a time this one is created, and collides with its objects until the other
    /// one is deleted.
    Rival { extension: &'static str, version: &'static str, time: Duration },
    /// A ClusterObjectSet of the user has the ConfigMap that only this version has, for a time. Its removal is shown by no watch.
    Obstruct { extension: &'static str, version: &'static str, has_label: bool, time: Duration },
    /// Deletes the newest revision of the extension.
    DeleteRevision { extension: &'static str },
    /// Creates a custom resource of the extension, which its operator must finalize.
    CustomResource { extension: &'static str },
    /// The service account of the extension is gone, for a time.
    DeleteAccount { extension: &'static str, time: Duration },
    /// Custom resources that bundles contain are not served, for a time or until the end; before that their watches may break, so that
    /// nothing shows how they go.
    Unserve { is_hidden: bool, time: Option<Duration> },
    /// ConfigMaps cannot be created, as if their kind was not served, for a time. Those of the extension are deleted at the start, those
    /// of the others at the end.
    Flap { extension: &'static str, time: Duration },
    /// Neither catalogs nor bundles can be read, for a time.
    Registry { time: Duration },
    /// One that does not depend on the controllers.
    Disturbance(Disturbance),
}

impl Lasting for Action {
    fn time(&self) -> Option<Duration> {
        match self {
            Self::Pause { time, .. }
            | Self::Overtake { time, .. }
            | Self::Unlabel { time, .. }
            | Self::Reclaim { time, .. }
            | Self::Rival { time, .. }
            | Self::Obstruct { time, .. }
            | Self::DeleteAccount { time, .. }
            | Self::Flap { time, .. }
            | Self::Registry { time } => Some(*time),
            Self::Unserve { time, .. } => *time,
            Self::Disturbance(fault) => fault.time(),
            _ => None,
        }
    }
}

/// An action and the time since the start.
#[derive(Debug, Clone, PartialEq)]
pub struct Step<A = Action> {
    pub at: Duration,
    pub action: A,
}

/// An action that may end after a time.
pub trait Lasting {
    fn time(&self) -> Option<Duration>;
}

/// When an action begins or ends.
pub type Moment<'a, A> = (Duration, bool, &'a A);

/// All beginnings and ends in order.
pub fn moments<A: Lasting>(steps: &[Step<A>]) -> Vec<Moment<'_, A>> {
    let mut moments: Vec<Moment<'_, A>> = Vec::new();
    for Step { at, action } in steps {
        moments.push((*at, true, action));
        moments.extend(action.time().map(|time| (*at + time, false, action)));
    }
    moments.sort_by_key(|(at, ..)| *at);
    moments
}

/// Kinds whose watches and requests have faults.
#[rustfmt::skip]
pub const KINDS: [&str; 12] = [
    "clusterextensions", "clusterobjectsets", "secrets", "configmaps", "deployments", "clusterroles", "clusterrolebindings",
    "serviceaccounts", "customresourcedefinitions", "services", "servicemonitors", "leases",
];

/// Whether a seed runs without the requeue of what is not finished: then each change has to wake whom it concerns.
pub fn relies_on_events(seed: u64) -> bool {
    seed % 2 == 1
}

pub fn schedule(seed: u64) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut at = Duration::from_secs(random.random_range(0..20));
    let mut steps = Vec::new();
    // few extensions, so that actions meet
    let extensions = &PACKAGES[..random.random_range(1..=PACKAGES.len())];
    for extension in extensions {
        steps.push(Step { at, action: install(extension, &mut random) });
        at += gap(&mut random);
    }
    for _ in 0..random.random_range(3..12) {
        at += gap(&mut random);
        let extension = extensions.choose(&mut random).copied().unwrap_or(PACKAGES[0]);
        let action = action(extension, &mut random);
        let install = |version| Action::Install { extension, version, account: false };
        match action {
            Action::Obstruct { version, .. } => {
                steps.push(Step { at: at + Duration::from_secs(2), action: install(version) });
            }
            // when rollouts have ended, so that only one watch shows what it does
            Action::Flap { .. } | Action::Reclaim { .. } => at += SETTLED,
            // in the middle of an upgrade
            Action::Uninstall { policy: Policy::Orphan, .. } => {
                at += SETTLED;
                let before = Duration::from_millis(random.random_range(0..2_000));
                let action = install(version(&mut random));
                steps.push(Step { at: at.saturating_sub(before), action });
            }
            _ => {}
        }
        // what comes later often wakes the revisions that were not woken
        let is_last = matches!(action, Action::Flap { .. }) && random.random_ratio(2, 3);
        steps.push(Step { at, action });
        if is_last {
            break;
        }
    }
    steps.sort_by_key(|step| step.at);
    steps
}

/// After this time most rollouts have ended.
const SETTLED: Duration = Duration::from_secs(30);

/// Mostly close together, so that one action meets what another has begun.
pub(crate) fn gap(random: &mut StdRng) -> Duration {
    let most = *[20, 200, 2_000, 10_000, 40_000].choose(random).unwrap_or(&0);
    Duration::from_millis(random.random_range(0..most))
}

fn install(extension: &'static str, random: &mut StdRng) -> Action {
    Action::Install { extension, version: version(random), account: random.random_ratio(1, 2) }
}

fn version(random: &mut StdRng) -> &'static str {
    VERSIONS.choose(random).copied().unwrap_or(VERSIONS[0])
}

/// A random time up to so many seconds.
pub(crate) fn seconds(random: &mut StdRng, most: u64) -> Duration {
    Duration::from_millis(random.random_range(100..most * 1_000))
}

fn action(extension: &'static str, random: &mut StdRng) -> Action {
    use Action::Disturbance as Fault;
    let resource = KINDS.choose(random).copied().unwrap_or(KINDS[0]);
    match random.random_range(0..119) {
        0..13 => install(extension, random),
        13..16 => {
            let (version, object) = (version(random), random.random_range(0..16));
            let time = seconds(random, 20) + Duration::from_secs(5);
            Action::Unlabel { extension, version, object, time }
        }
        16..28 => {
            let policies = [Policy::Background, Policy::Background, Policy::Orphan, Policy::Keep];
            let policy = policies.choose(random).copied().unwrap_or(Policy::Background);
            Action::Uninstall { extension, policy }
        }
        28..32 => Action::Pause { extension, time: seconds(random, 60) },
        32..44 => {
            let damage = if random.random() { Damage::Edit } else { Damage::Delete };
            Action::Damage { extension, object: random.random_range(0..16), damage }
        }
        44..47 => Action::DeleteRevision { extension },
        47..53 => Action::CustomResource { extension },
        53..58 => {
            let (by, time) = (seconds(random, 30), seconds(random, 60));
            Fault(Disturbance::Delay { resource, by, time })
        }
        58..65 => Fault(Disturbance::Late { seed: random.random(), time: seconds(random, 60) }),
        65..71 => Fault(Disturbance::Drop { resource }),
        71..75 => Fault(Disturbance::Compact),
        75..79 => Action::DeleteAccount { extension, time: seconds(random, 30) },
        79..81 => {
            let time = seconds(random, 20) + Duration::from_secs(5);
            Action::Unserve { is_hidden: random.random(), time: random.random_ratio(2, 3).then_some(time) }
        }
        81..82 => Action::Flap { extension, time: seconds(random, 20) },
        82..85 => Fault(Disturbance::Fail {
            resource,
            writes: random.random(),
            error: random.random_range(0..ERRORS),
            times: random.random_range(1..6),
        }),
        85..87 => Fault(Disturbance::Noise { time: seconds(random, 30) }),
        87..89 => Fault(Disturbance::DeleteLease),
        89..91 => Fault(Disturbance::Suspend { time: seconds(random, 300) + Duration::from_secs(30) }),
        91..96 => {
            let outages = [Outage::Kill, Outage::Replace, Outage::Partition];
            let outage = outages.choose(random).copied().unwrap_or(Outage::Kill);
            let process = random.random_range(0..2);
            Fault(Disturbance::Lose { process, outage, time: seconds(random, 40) })
        }
        96..98 => {
            Fault(Disturbance::Clock { seconds: *[-3_600, -30, 400, 3_600].choose(random).unwrap_or(&0) })
        }
        98..100 => Action::Registry { time: seconds(random, 30) },
        100..102 => Fault(Disturbance::TakeLease),
        102..105 => {
            let time = seconds(random, 10) + Duration::from_secs(10);
            Action::Rival { extension, version: version(random), time }
        }
        105..108 => {
            let time = seconds(random, 10) + Duration::from_secs(5);
            Action::Obstruct { extension, version: version(random), has_label: random.random(), time }
        }
        108..111 => Action::Flap { extension, time: seconds(random, 20) },
        111..113 => {
            Action::Overtake { extension, object: random.random_range(0..16), time: seconds(random, 2) }
        }
        113..116 => Action::Reclaim { extension, time: seconds(random, 20) + Duration::from_secs(5) },
        _ => Action::Abandon { extension, version: version(random), object: random.random_range(0..16) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedule_follows_from_its_seed() {
        assert_eq!(schedule(5), schedule(5));
        assert_ne!(schedule(5), schedule(6));
        assert!(schedule(5).is_sorted_by_key(|step| step.at));
    }
}
