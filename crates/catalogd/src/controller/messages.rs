//! Tests of every message of conditions and events of catalogs, rendered with names of 40 characters and held against the form of messages
//! (decision 33). The messages are made elsewhere, where the errors are.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use olm_api::cluster_catalog::{AvailabilityMode, CatalogSource, CatalogSourceType, ClusterCatalog};
use olm_api::condition::{self, Condition, ConditionStatus};
use olm_api::{ClusterCatalogSpec, reason};
use olm_core::{message, resolve_image_template, variants};
use olm_fbc::{FileError, ParseError};
use olm_runtime::events::fitting_line;

use super::fetch::{pulling, quarantined, selection, slow, storing};
use super::plan::Quarantine;
use super::report::status_events;
use super::status::{Attempt, derive};
use crate::ingest::IngestError;
use crate::store::{ContentError, StoreError};

fn name(letter: &str) -> String {
    letter.repeat(40)
}

fn image() -> String {
    format!("registry.example.com/{}:v1", name("i"))
}

fn catalog() -> ClusterCatalog {
    let source = CatalogSource { type_: CatalogSourceType::Image, image: None };
    let spec = ClusterCatalogSpec { source, priority: 0, availability_mode: AvailabilityMode::Available };
    ClusterCatalog::new(&name("c"), spec)
}

fn not_stored() -> Vec<IngestError> {
    let path = || format!("configs/{}/catalog.yaml", name("p"));
    let parse = ParseError { message: "mapping values are not allowed".to_owned(), line: 7, offset: 120 };
    let file = || FileError { path: path(), error: parse.clone() };
    let read = variants!(olm_fbc::IngestError:
        olm_fbc::IngestError::Files(_) => olm_fbc::IngestError::Files(vec![file(), file()]),
        olm_fbc::IngestError::Read { .. } => {
            olm_fbc::IngestError::Read { path: path(), source: io::Error::other("the layer ends early") }
        },
        olm_fbc::IngestError::Write(_) => olm_fbc::IngestError::Write(io::Error::other("no space left")),
        olm_fbc::IngestError::TooLarge { .. } => {
            olm_fbc::IngestError::TooLarge { what: "bytes", limit: 1 << 30, path: path() }
        },
        olm_fbc::IngestError::Path(_) => olm_fbc::IngestError::Path(format!("../{}", path())),
        olm_fbc::IngestError::Cancelled => olm_fbc::IngestError::Cancelled,
    );
    let written = variants!(StoreError:
        StoreError::InUse(_) => StoreError::InUse("/var/cache/catalogs".into()),
        StoreError::Prepare { .. } => {
            StoreError::Prepare { dir: "/var/cache/catalogs".into(), source: io::Error::other("read-only") }
        },
        StoreError::Write(_) => StoreError::Write(io::Error::other("no space left")),
        StoreError::Content(_) => StoreError::Content(ContentError::Damaged { file: "all.jsonl" }),
        StoreError::Name(_) => StoreError::Name(name("n")),
    );
    read.into_iter().map(IngestError::from).chain(written.into_iter().map(IngestError::Store)).collect()
}

/// Why nothing is served.
fn failures() -> Vec<String> {
    let unlabelled = [true, false].map(|by_tag| selection(&BTreeMap::new(), by_tag).unwrap_err());
    let digest = format!("sha256:{}", "0".repeat(64)).parse().unwrap();
    let (not_pulled, not_stored) = (olm_oci::testing::errors(&image()), not_stored());
    let errors = not_pulled.iter().map(pulling).chain(not_stored.iter().map(storing)).chain(unlabelled);
    errors
        .chain([slow("resolving the reference", Duration::from_secs(300))])
        .map(|error| error.message)
        .chain([quarantined(&digest, 2)])
        .collect()
}

fn attempts() -> Vec<Attempt> {
    let failed = |message: String| Attempt::Failed {
        message,
        blocked: false,
        nothing_served: true,
        quarantine: Quarantine::Set,
    };
    let base = format!("https://catalogd-service.olmv1-system.svc/catalogs/{}", name("c"));
    let mut all = variants!(Attempt:
        Attempt::Served { .. } => Attempt::Served { reference: image(), base, last_unpacked: 0 },
        Attempt::Pulling { .. } => Attempt::Pulling { reference: image() },
        Attempt::Failed { .. } => failed("another error".to_owned()),
        Attempt::RemovalFailed { .. } => Attempt::RemovalFailed { message: "read-only file system".to_owned() },
        Attempt::SwitchedOff => Attempt::SwitchedOff,
        Attempt::Removed => Attempt::Removed,
    );
    all.extend(failures().into_iter().map(failed));
    all
}

#[test]
fn messages_of_catalogs_keep_their_form() {
    let template = resolve_image_template(&format!("{}:{{kube_minor_version}}-{{x}}", image()), None);
    for attempt in attempts() {
        let mut before = catalog();
        let serving = Condition::new(
            condition::SERVING,
            ConditionStatus::True,
            reason::AVAILABLE,
            "",
            None,
            Timestamp::UNIX_EPOCH,
        );
        condition::set(&mut before.status.get_or_insert_default().conditions, serving);
        let after = derive(&attempt, &before, Some(&template), Timestamp::UNIX_EPOCH);
        let events = status_events(&before, &after).into_iter().map(|event| fitting_line(&event.note));
        // those of a template are its text and the names of its variables in braces; Serving without content has no message
        let template = [condition::TEMPLATES_HAVE_RESOLVED, condition::RESOLVED_IMAGE];
        let conditions = after
            .conditions
            .iter()
            .filter(|found| !template.contains(&found.type_.as_str()) && !found.message.is_empty());
        for text in conditions.map(|found| found.message.clone()).chain(events) {
            assert_eq!(message::violations(&text), Vec::<String>::new(), "{text}");
        }
    }
}

/// The texts that are too long for one line, with names of 40 characters.
#[test]
fn messages_of_catalogs_that_need_shortening_are_listed() {
    let long = failures().into_iter().filter(|text| text.chars().count() > message::MAX_FIRST_LINE);
    let mut shown: Vec<String> =
        long.map(|text| message::first_line(&message::fit(&text)).to_owned()).collect();
    shown.sort();
    insta::assert_snapshot!(shown.join("\n"));
}
