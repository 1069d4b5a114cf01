//! The part of a Deployment of OLM in Available, Progressing and Degraded. Rule: cluster-operator §1.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::inner::{Inner, Memory};

/// How long a roll-out may take before it is an error.
pub(crate) const PROGRESS_DEADLINE: SignedDuration = SignedDuration::from_mins(15);
/// The words of that error.
pub(crate) const TOO_LONG: &str = "has been progressing for more than 15 minutes";

/// A Deployment, as far as it matters here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Deployment {
    /// `metadata.generation`.
    pub(crate) generation: i64,
    /// The generation that its controller has observed.
    pub(crate) observed_generation: i64,
    /// `spec.replicas`.
    pub(crate) desired: i64,
    /// Replicas of the newest template.
    pub(crate) updated: i64,
    pub(crate) available: i64,
    pub(crate) unavailable: i64,
    /// The reason of its own condition Progressing.
    pub(crate) progressing_reason: String,
}

/// `<Component>Deployment<Name>`: `catalogd-controller-manager` is `CatalogdDeploymentCatalogdControllerManager`. Of the component
/// only the first letter is a capital.
pub(crate) fn title(name: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    };
    let component = name.strip_suffix("-controller-manager").unwrap_or(name).replace('-', "");
    let words: String = name.split('-').map(capital).collect();
    format!("{}Deployment{words}", capital(&component))
}

/// Why the Deployment is on its way, if it is.
fn on_its_way(found: Option<&Deployment>) -> Option<&'static str> {
    let Some(deployment) = found else { return Some("Waiting for Deployment to deploy pods") };
    if deployment.observed_generation < deployment.generation {
        return Some("Waiting for Deployment to act on changes");
    }
    // a node that restarts makes replicas unavailable; the roll-out is complete all the same
    if deployment.progressing_reason == "NewReplicaSetAvailable" {
        return None;
    }
    if deployment.unavailable > 0 || deployment.available < deployment.desired {
        return Some("Waiting for Deployment to deploy pods");
    }
    (deployment.updated < deployment.desired).then_some("Waiting for Deployment to update pods")
}

/// Whether all its pods are of the newest template and available.
pub(crate) fn is_rolled_out(found: Option<&Deployment>) -> bool {
    on_its_way(found).is_none()
}

/// Its three inner conditions, and when it will have been on its way for too long.
pub(crate) fn conditions(
    name: &str,
    found: Option<&Deployment>,
    memory: &Memory,
    now: Timestamp,
) -> (Vec<Inner>, Option<Timestamp>) {
    let title = title(name);
    let available = if found.is_some_and(|deployment| deployment.available > 0) {
        Inner::new(format!("{title}Available"), true, "AsExpected", "Deployment is available")
    } else {
        Inner::new(format!("{title}Available"), false, "Deploying", "Waiting for Deployment")
    };
    let progressing = match on_its_way(found) {
        Some(why) => Inner::new(format!("{title}Progressing"), true, "Deploying", why),
        None => {
            Inner::new(format!("{title}Progressing"), false, "AsExpected", "Deployment is not progressing")
        }
    };
    let due = memory.since(&progressing, now).checked_add(PROGRESS_DEADLINE).ok();
    let due = due.filter(|_| progressing.status == olm_api::ConditionStatus::True);
    let error = match (found, due) {
        (None, _) => Some(format!("deployments.apps \"{name}\" not found")),
        (Some(_), Some(due)) if due <= now => {
            Some(format!("deployment \"{name}\" {TOO_LONG}: {}", progressing.message))
        }
        (Some(_), _) => None,
    };
    let degraded = Inner::degraded(&title, error);
    (vec![available, progressing, degraded], due.filter(|due| *due > now))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    #[rustfmt::skip]
    fn deployment_titles_are_those_of_the_reference() {
        for (name, want) in [
            ("catalogd-controller-manager", "CatalogdDeploymentCatalogdControllerManager"),
            ("operator-controller-controller-manager", "OperatorcontrollerDeploymentOperatorControllerControllerManager"),
            ("other", "OtherDeploymentOther"),
        ] {
            assert_eq!(title(name), want);
        }
    }

    #[test]
    #[rustfmt::skip]
    fn deployment_conditions_of_each_state() {
        let whole = Deployment {
            generation: 2,
            observed_generation: 2,
            desired: 2,
            updated: 2,
            available: 2,
            unavailable: 0,
            progressing_reason: "ReplicaSetUpdated".to_owned(),
        };
        let up = "True AsExpected Deployment is available";
        let still = "False AsExpected Deployment is not progressing";
        for (case, found, want) in [
            ("whole", Some(whole.clone()), [up, still]),
            ("its controller has not looked yet", Some(Deployment { observed_generation: 1, ..whole.clone() }),
                [up, "True Deploying Waiting for Deployment to act on changes"]),
            ("one of two is not up", Some(Deployment { available: 1, unavailable: 1, ..whole.clone() }),
                [up, "True Deploying Waiting for Deployment to deploy pods"]),
            ("none is up", Some(Deployment { available: 0, unavailable: 2, ..whole.clone() }),
                ["False Deploying Waiting for Deployment", "True Deploying Waiting for Deployment to deploy pods"]),
            ("one is old", Some(Deployment { updated: 1, ..whole.clone() }), [up, "True Deploying Waiting for Deployment to update pods"]),
            ("a node restarts",
                Some(Deployment { available: 0, unavailable: 2, progressing_reason: "NewReplicaSetAvailable".to_owned(), ..whole.clone() }),
                ["False Deploying Waiting for Deployment", still]),
            ("not there", None, ["False Deploying Waiting for Deployment", "True Deploying Waiting for Deployment to deploy pods"]),
        ] {
            let (all, _) = conditions("catalogd", found.as_ref(), &Memory::default(), at(0));
            let texts: Vec<_> =
                all[..2].iter().map(|it| format!("{} {} {}", it.status, it.reason, it.message)).collect();
            assert_eq!(texts, want, "{case}");
            assert_eq!(is_rolled_out(found.as_ref()), all[1].reason == "AsExpected", "{case}");
            assert_eq!(all[2].reason == "SyncError", found.is_none(), "{case}");
        }
    }

    #[test]
    fn deployment_without_progress_is_degraded() {
        let stuck = Deployment {
            generation: 1,
            observed_generation: 1,
            desired: 1,
            unavailable: 1,
            ..Deployment::default()
        };
        let mut memory = Memory::default();
        let degraded = |memory: &Memory, now: i64| {
            let (all, due) = conditions("catalogd", Some(&stuck), memory, at(now));
            (all[2].message.clone(), due.map(Timestamp::as_second))
        };
        let (all, _) = conditions("catalogd", Some(&stuck), &memory, at(0));
        memory.record(&all, at(0));
        assert_eq!(degraded(&memory, 899), (String::new(), Some(900)));
        let (message, due) = degraded(&memory, 900);
        let want = "deployment \"catalogd\" has been progressing for more than 15 minutes: Waiting for Deployment to deploy pods";
        assert_eq!((message.as_str(), due), (want, None));
    }
}
