//! The status of a catalog, derived once from what an attempt came to. Pure.
//!
//! Rule: catalogd §3.6 and §4.6 (sanitising); §12 rows 2, 27 and 30.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use olm_api::cluster_catalog::{
    CatalogSourceType, CatalogUrls, ClusterCatalog, ClusterCatalogStatus, ResolvedCatalogSource,
    ResolvedImageSource,
};
use olm_api::condition::{self, Condition, ConditionStatus};
use olm_api::{finalizers, reason};
use olm_core::{ResolvedTemplate, message};
use olm_runtime::error_text;

use super::plan::{Quarantine, image_of};

const UNPACKED: &str = "Successfully unpacked and stored content from resolved source";
const SERVING: &str = "Serving desired content from resolved source";
const RESOLVED: &str = "catalog image reference was successfully resolved";
const SWITCHED_OFF: &str = "Catalog availability mode is set to Unavailable";

/// What an attempt came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    /// Content is served.
    Served {
        /// Canonical reference with digest.
        reference: String,
        /// Where clients find it.
        base: String,
        /// Seconds since 1970.
        last_unpacked: i64,
    },
    /// The first pull of this reference takes a while.
    Pulling { reference: String },
    /// Something went wrong; what was served before still is.
    Failed {
        /// The whole chain of causes.
        message: String,
        /// Only a change of the object can help.
        blocked: bool,
        /// Nothing is served here, and has not been for a while.
        nothing_served: bool,
        quarantine: Quarantine,
    },
    /// Content that should no longer be served could not be removed.
    RemovalFailed {
        /// The whole chain of causes.
        message: String,
    },
    /// The user switched the catalog off.
    SwitchedOff,
    /// The catalog is being deleted and its content is gone.
    Removed,
}

/// The new status. Conditions of other owners stay.
#[must_use]
pub fn derive(
    attempt: &Attempt,
    catalog: &ClusterCatalog,
    template: Option<&ResolvedTemplate>,
    now: Timestamp,
) -> ClusterCatalogStatus {
    let mut status = catalog.status.clone().unwrap_or_default();
    let generation = catalog.metadata.generation;
    let set = |conditions: &mut Vec<Condition>, type_: &str, state: bool, reason: &str, message: &str| {
        let condition = Condition::new(type_, ConditionStatus::from(state), reason, message, generation, now);
        condition::set(conditions, condition);
    };
    let conditions = &mut status.conditions;
    match template {
        Some(template) => {
            match &template.error {
                None => set(
                    conditions,
                    condition::TEMPLATES_HAVE_RESOLVED,
                    true,
                    reason::ALL_TEMPLATES_RESOLVED,
                    RESOLVED,
                ),
                Some(error) => set(
                    conditions,
                    condition::TEMPLATES_HAVE_RESOLVED,
                    false,
                    reason::UNABLE_TO_RESOLVE,
                    error,
                ),
            }
            let is_used = image_of(template).is_some();
            let reason = if is_used { reason::ALL_TEMPLATES_RESOLVED } else { reason::UNABLE_TO_RESOLVE };
            set(conditions, condition::RESOLVED_IMAGE, is_used, reason, &template.image);
        }
        None => {
            condition::remove(conditions, condition::TEMPLATES_HAVE_RESOLVED);
            condition::remove(conditions, condition::RESOLVED_IMAGE);
        }
    }
    match attempt {
        Attempt::Served { reference, base, last_unpacked } => {
            set(conditions, condition::PROGRESSING, true, reason::SUCCEEDED, UNPACKED);
            set(conditions, condition::SERVING, true, reason::AVAILABLE, SERVING);
            condition::remove(conditions, condition::QUARANTINED);
            status.resolved_source = Some(ResolvedCatalogSource {
                type_: CatalogSourceType::Image,
                image: ResolvedImageSource { reference: reference.clone() },
            });
            status.urls = Some(CatalogUrls { base: base.clone() });
            status.last_unpacked = Timestamp::from_second(*last_unpacked).ok().map(Time);
        }
        Attempt::Pulling { reference } => {
            let message = format!("pulling catalog content from {reference:?}; nothing is served yet");
            set(conditions, condition::PROGRESSING, true, reason::PULLING, &message);
        }
        Attempt::RemovalFailed { message } => {
            let message = format!("finalizer {:?} failed: {message}", finalizers::DELETE_SERVER_CACHE);
            let message = message::fit(&error_text::stable(&message));
            set(conditions, condition::PROGRESSING, true, reason::RETRYING, &message);
        }
        Attempt::Failed { message, blocked, nothing_served, quarantine } => {
            let reason = if *blocked { reason::BLOCKED } else { reason::RETRYING };
            let message = message::fit(&error_text::stable(message));
            set(conditions, condition::PROGRESSING, !blocked, reason, &message);
            match quarantine {
                Quarantine::Unchanged => {}
                Quarantine::Set => {
                    set(
                        conditions,
                        condition::QUARANTINED,
                        true,
                        reason::READING_ENDED_THE_PROCESS,
                        &message,
                    );
                }
                Quarantine::Lifted => {
                    condition::remove(conditions, condition::QUARANTINED);
                }
            }
            if *nothing_served && condition::is_true(conditions, condition::SERVING) {
                let condition = Condition::new(
                    condition::SERVING,
                    ConditionStatus::False,
                    reason::UNAVAILABLE,
                    "",
                    generation,
                    now,
                );
                condition::set(conditions, condition);
            }
        }
        Attempt::SwitchedOff => {
            set(conditions, condition::PROGRESSING, true, reason::SUCCEEDED, SWITCHED_OFF);
            set(conditions, condition::SERVING, false, reason::USER_SPECIFIED_UNAVAILABLE, SWITCHED_OFF);
            clear(&mut status);
        }
        Attempt::Removed => {
            set(conditions, condition::SERVING, false, reason::UNAVAILABLE, "");
            clear(&mut status);
        }
    }
    status
}

fn clear(status: &mut ClusterCatalogStatus) {
    status.resolved_source = None;
    status.urls = None;
    status.last_unpacked = None;
    condition::remove(&mut status.conditions, condition::QUARANTINED);
}

#[cfg(test)]
mod tests {
    use super::*;
    use olm_api::ClusterCatalogSpec;
    use olm_api::cluster_catalog::{AvailabilityMode, CatalogSource};

    fn catalog(status: Option<ClusterCatalogStatus>) -> ClusterCatalog {
        let source = CatalogSource { type_: CatalogSourceType::Image, image: None };
        let spec = ClusterCatalogSpec { source, priority: 0, availability_mode: AvailabilityMode::Available };
        let mut catalog = ClusterCatalog::new("cat", spec);
        catalog.metadata.generation = Some(7);
        catalog.status = status;
        catalog
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn served() -> Attempt {
        Attempt::Served {
            reference: "example.com/c@sha256:aa".to_owned(),
            base: "https://catalogd/catalogs/cat".to_owned(),
            last_unpacked: 1_700_000_000,
        }
    }

    fn failed(blocked: bool, nothing_served: bool) -> Attempt {
        let message = "source catalog content: read tcp 10.0.0.1:5->10.0.0.2:443: i/o timeout".to_owned();
        Attempt::Failed { message, blocked, nothing_served, quarantine: Quarantine::Unchanged }
    }

    #[test]
    fn status_conditions_of_each_outcome() {
        let before = derive(&served(), &catalog(None), None, at(1));
        #[rustfmt::skip]
        let table = [
            ("pulling, first", derive(&pulling(), &catalog(None), None, at(1))),
            ("served, first", derive(&served(), &catalog(None), None, at(1))),
            ("failed, first", derive(&failed(false, true), &catalog(None), None, at(1))),
            ("blocked, first", derive(&failed(true, true), &catalog(None), None, at(1))),
            ("failed, still served", derive(&failed(false, false), &catalog(Some(before.clone())), None, at(2))),
            ("failed, content lost", derive(&failed(false, true), &catalog(Some(before.clone())), None, at(2))),
            ("quarantined, still served", derive(&quarantined(), &catalog(Some(before.clone())), None, at(2))),
            ("switched off", derive(&Attempt::SwitchedOff, &catalog(Some(before.clone())), None, at(2))),
            ("removal failed", derive(&removal_failed(), &catalog(Some(before.clone())), None, at(2))),
            ("removed", derive(&Attempt::Removed, &catalog(Some(before)), None, at(2))),
        ];
        insta::assert_yaml_snapshot!(table);
    }

    fn pulling() -> Attempt {
        Attempt::Pulling { reference: "example.com/c:1".to_owned() }
    }

    fn removal_failed() -> Attempt {
        Attempt::RemovalFailed { message: "cannot write: Read-only file system (os error 30)".to_owned() }
    }

    fn quarantined() -> Attempt {
        let message = "catalogd ended 2 times while it read the image sha256:aa".to_owned();
        Attempt::Failed { message, blocked: false, nothing_served: false, quarantine: Quarantine::Set }
    }

    #[test]
    fn status_quarantine_ends_with_content_or_a_request() {
        let with = |status: &ClusterCatalogStatus, attempt: &Attempt| {
            let status = derive(attempt, &catalog(Some(status.clone())), None, at(2));
            condition::is_true(&status.conditions, condition::QUARANTINED)
        };
        let before = derive(&quarantined(), &catalog(None), None, at(1));
        let lifted = Attempt::Failed {
            message: "i/o timeout".to_owned(),
            blocked: false,
            nothing_served: false,
            quarantine: Quarantine::Lifted,
        };
        assert!(with(&before, &failed(false, false)), "another failure has no effect on it");
        for attempt in [lifted, served(), Attempt::SwitchedOff, Attempt::Removed] {
            assert!(!with(&before, &attempt), "{attempt:?}");
        }
    }

    #[test]
    fn status_without_a_difference_stays() {
        let mut first = derive(&served(), &catalog(None), None, at(1));
        let foreign = Condition::new("Foreign", ConditionStatus::True, "X", "", None, at(1));
        first.conditions.push(foreign);
        assert_eq!(derive(&served(), &catalog(Some(first.clone())), None, at(99)), first);
    }

    /// rule: classic-apis §2.6
    #[test]
    #[rustfmt::skip]
    fn status_shows_the_image_of_the_template() {
        let shown = |status: &ClusterCatalogStatus| {
            [condition::TEMPLATES_HAVE_RESOLVED, condition::RESOLVED_IMAGE].map(|type_| {
                let found = condition::find(&status.conditions, type_)?;
                Some(format!("{}/{}: {}", found.status.as_str(), found.reason, found.message))
            })
        };
        let resolved = "True/AllTemplatesResolved: catalog image reference was successfully resolved";
        let syntax = "False/UnableToResolve: cannot construct catalog image reference, because one or more template(s) has \
                      improper syntax";
        let mut status = None;
        for (template, want) in [
            (Some("q.io/c:v{kube_minor_version}"), [Some(resolved), Some("True/AllTemplatesResolved: q.io/c:v33")]),
            (Some("q.io/c:{foo}"), [Some(syntax), Some("False/UnableToResolve: q.io/c:{foo}")]),
            (Some("not a reference"), [Some(resolved), Some("False/UnableToResolve: not a reference")]),
            (None, [None, None]),
        ] {
            let version = "1.33.1".parse().ok();
            let template = template.map(|text| olm_core::resolve_image_template(text, version));
            let derived = derive(&served(), &catalog(status.take()), template.as_ref(), at(1));
            assert_eq!(shown(&derived).each_ref().map(Option::as_deref), want);
            status = Some(derived);
        }
    }
}
