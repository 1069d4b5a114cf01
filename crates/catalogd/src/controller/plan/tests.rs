//! The decision table.

use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use olm_api::ClusterCatalogSpec;
use olm_api::cluster_catalog::{
    CatalogSource, CatalogSourceType, ClusterCatalogStatus, ImageSource, ResolvedCatalogSource,
    ResolvedImageSource,
};
use olm_api::condition::{Condition, ConditionStatus};

const TAG: &str = "example.com/c:latest";
const FIRST: &str = "example.com/c@sha256:1111";
const SECOND: &str = "example.com/c@sha256:2222";

fn catalog(reference: &str, poll: Option<i64>) -> ClusterCatalog {
    let image = ImageSource { reference: reference.to_owned(), poll_interval_minutes: poll };
    let source = CatalogSource { type_: CatalogSourceType::Image, image: Some(image) };
    let spec = ClusterCatalogSpec { source, priority: 0, availability_mode: AvailabilityMode::Available };
    let mut catalog = ClusterCatalog::new("cat", spec);
    catalog.metadata.generation = Some(3);
    catalog.metadata.finalizers = Some(vec![finalizers::DELETE_SERVER_CACHE.to_owned()]);
    catalog
}

fn with_status(mut catalog: ClusterCatalog, reference: &str, generation: i64) -> ClusterCatalog {
    let now = Timestamp::from_second(5).unwrap();
    catalog.status = Some(ClusterCatalogStatus {
        conditions: vec![Condition::new(
            condition::PROGRESSING,
            ConditionStatus::True,
            reason::SUCCEEDED,
            "",
            Some(generation),
            now,
        )],
        resolved_source: Some(ResolvedCatalogSource {
            type_: CatalogSourceType::Image,
            image: ResolvedImageSource { reference: reference.to_owned() },
        }),
        urls: None,
        last_unpacked: Some(Time(now)),
    });
    catalog
}

fn held(reference: &str, source: &str) -> Held {
    Held { reference: reference.to_owned(), source: Some(source.to_owned()), last_unpacked: 5 }
}

#[derive(Clone)]
struct Case {
    catalog: ClusterCatalog,
    leader: bool,
    held: Option<Held>,
    memory: Memory,
    now: Instant,
}

impl Case {
    fn plan(&self) -> Plan {
        let template = template(&self.catalog, "1.33.1".parse().ok());
        plan(&Observed {
            catalog: &self.catalog,
            desired: desired(&self.catalog, template.as_ref()),
            leader: self.leader,
            held: self.held.as_ref(),
            memory: &self.memory,
            now: self.now,
            minute: Duration::from_secs(60),
            dice: 0.5,
        })
    }
}

fn pull(why: Why) -> Plan {
    Plan::Pull { reference: TAG.to_owned(), why }
}

fn base() -> Case {
    let now = Instant::now() + Duration::from_secs(100_000);
    let memory = Memory { polled: Some(now), requested: Some(None), ..Memory::default() };
    Case {
        catalog: with_status(catalog(TAG, Some(10)), FIRST, 3),
        leader: true,
        held: Some(held(FIRST, TAG)),
        memory,
        now,
    }
}

fn failure(retry: Option<Instant>, reference: &str) -> FailedAttempt {
    FailedAttempt {
        reference: reference.to_owned(),
        generation: Some(3),
        attempts: 1,
        message: "no".to_owned(),
        blocked: retry.is_none(),
        retry,
        quarantine: Quarantine::Unchanged,
    }
}

type Change = Box<dyn Fn(&mut Case)>;

fn templated(template: &'static str) -> Change {
    let key = annotations::CATALOG_IMAGE_TEMPLATE;
    Box::new(move |c| drop(c.catalog.annotations_mut().insert(key.into(), template.into())))
}

fn pull_of(reference: &str) -> Plan {
    Plan::Pull { reference: reference.to_owned(), why: Why::NewReference }
}

#[test]
#[rustfmt::skip]
fn plan_leader_pulls_only_with_a_reason() {
    fn new_generation(c: &mut Case) { c.catalog.metadata.generation = Some(4); }
    fn failed_before(c: &mut Case) { c.catalog.status.as_mut().unwrap().conditions[0].reason = reason::RETRYING.to_owned(); }
    fn no_polling(c: &mut Case) { c.catalog.spec.source.image.as_mut().unwrap().poll_interval_minutes = None; }
    fn request(c: &mut Case) { c.catalog.annotations_mut().insert(annotations::REQUESTED_AT.into(), "1".into()); }
    fn switch_off(c: &mut Case) { c.catalog.spec.availability_mode = AvailabilityMode::Unavailable; }
    fn delete(c: &mut Case) { c.catalog.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH)); }
    let start = base();
    let due = start.now + Duration::from_secs(603);
    let seconds = Duration::from_secs;
    let wait = || Plan::Rest { until: Some(due) };
    let no_image = "terminal error: error parsing ClusterCatalog \"cat\", image source is nil";
    let table: Vec<(&str, Change, Plan)> = vec![
        ("settled", Box::new(|_| {}), wait()),
        ("no polling", Box::new(no_polling), Plan::Rest { until: None }),
        ("poll due", Box::new(move |c| c.now = due), pull(Why::PollDue)),
        ("just before", Box::new(move |c| c.now = due - seconds(1)), wait()),
        ("after a restart", Box::new(|c| c.memory.polled = None), pull(Why::PollDue)),
        ("priority changed", Box::new(new_generation), pull(Why::SpecChanged)),
        ("priority changed, and resolved since", Box::new(|c| { new_generation(c); c.memory.generation = Some(4); }), wait()),
        ("priority changed before the start", Box::new(|c| { new_generation(c); c.memory.polled = None; no_polling(c); }),
            pull(Why::SpecChanged)),
        ("failed before the start", Box::new(|c| { failed_before(c); c.memory.polled = None; no_polling(c); }), pull(Why::Retry)),
        ("failed, and resolved since", Box::new(|c| { failed_before(c); c.memory.generation = Some(3); }), wait()),
        ("priority changed, retry later", Box::new(move |c| { new_generation(c); c.memory.failure = Some(failure(Some(due), TAG)); }),
            pull(Why::SpecChanged)),
        ("template", templated("example.com/c:v{kube_minor_version}"), pull_of("example.com/c:v33")),
        ("template that does not resolve", templated("example.com/c:{foo}"), wait()),
        ("template that is no reference", templated("no reference"), wait()),
        ("template and no image",
            Box::new(|c| { templated("example.com/c:v{kube_minor_version}")(c); c.catalog.spec.source.image = None; }),
            pull_of("example.com/c:v33")),
        ("nothing served", Box::new(|c| c.held = None), pull(Why::NoContent)),
        ("other reference", Box::new(|c| c.held = Some(held(FIRST, "example.com/c:old"))), pull(Why::NewReference)),
        ("unknown source", Box::new(|c| c.held.as_mut().unwrap().source = None), pull(Why::NewReference)),
        ("status names other content", Box::new(|c| c.held = Some(held(SECOND, TAG))), pull(Why::StatusDiffers)),
        ("status is empty", Box::new(|c| c.catalog.status = None), wait()),
        ("requested", Box::new(request), pull(Why::Requested)),
        ("requested before the start", Box::new(|c| { c.memory.requested = None; request(c); }), wait()),
        ("a request was taken back", Box::new(|c| c.memory.requested = Some(Some("1".to_owned()))), wait()),
        ("a request that was acted upon", Box::new(|c| { c.memory.requested = Some(Some("1".to_owned())); request(c); }), wait()),
        ("failed, retry later", Box::new(move |c| { c.held = None; c.memory.failure = Some(failure(Some(due), TAG)); }), wait()),
        ("failed, retry now", Box::new(|c| c.memory.failure = Some(failure(Some(c.now), TAG))), pull(Why::Retry)),
        ("blocked", Box::new(|c| { c.held = None; c.memory.failure = Some(failure(None, TAG)); }), Plan::Rest { until: None }),
        ("blocked, then changed", Box::new(|c| { c.held = None; c.memory.failure = Some(failure(None, FIRST)); }), pull(Why::NoContent)),
        ("blocked, requested", Box::new(|c| { c.memory.failure = Some(failure(None, TAG)); request(c); }), pull(Why::Requested)),
        ("switched off", Box::new(switch_off), Plan::SwitchOff),
        ("deleted", Box::new(delete), Plan::TearDown),
        ("deleted, switched off", Box::new(|c| { switch_off(c); delete(c); }), Plan::SwitchOff),
        ("deleted, waiting for others", Box::new(|c| { delete(c); c.catalog.metadata.finalizers = None; }), Plan::LeaveAlone),
        ("no image", Box::new(|c| c.catalog.spec.source.image = None), Plan::Refuse(no_image.to_owned())),
    ];
    for (name, change, want) in table {
        let mut case = start.clone();
        change(&mut case);
        assert_eq!(case.plan(), want, "{name}");
    }
}

#[test]
fn plan_follower_serves_what_the_status_names() {
    let start = base();
    let follow = || Plan::Follow { reference: FIRST.to_owned() };
    for (name, held_reference, status, want) in [
        ("same", Some(FIRST), Some(FIRST), Plan::Rest { until: None }),
        ("behind", Some(SECOND), Some(FIRST), follow()),
        ("nothing yet", None, Some(FIRST), follow()),
        ("nothing published", Some(SECOND), None, Plan::Rest { until: None }),
    ] {
        let mut case = base();
        case.leader = false;
        case.held = held_reference.map(|reference| held(reference, TAG));
        if status.is_none() {
            case.catalog.status = None;
        }
        case.now = start.now + Duration::from_secs(100_000);
        assert_eq!(case.plan(), want, "{name}");
    }
    let later = start.now + Duration::from_secs(1);
    for (name, retry, of, want) in [
        ("failed, retry later", Some(later), FIRST, Plan::Rest { until: Some(later) }),
        ("failed, retry now", Some(start.now), FIRST, follow()),
        ("failed permanently", None, FIRST, Plan::Rest { until: None }),
        ("failed permanently, other content", None, SECOND, follow()),
    ] {
        let mut case = base();
        (case.leader, case.held, case.now) = (false, Some(held(SECOND, TAG)), start.now);
        case.memory.failure = Some(failure(retry, of));
        assert_eq!(case.plan(), want, "{name}");
    }
}

#[test]
fn plan_repetitions_are_polls_and_retries() {
    use Why::*;
    let all = [NoContent, NewReference, SpecChanged, StatusDiffers, PollDue, Requested, Retry];
    let repeated: Vec<Why> = all.into_iter().filter(|why| why.is_repetition()).collect();
    assert_eq!(repeated, [PollDue, Retry]);
}

#[test]
fn plan_pauses_grow_to_a_cap() {
    let millis = |retry, attempts| pause(retry, attempts, None).map(|pause| pause.as_millis());
    assert_eq!(millis(Retry::Backoff, 1), Some(5));
    assert_eq!(millis(Retry::Backoff, 4), Some(40));
    assert_eq!(millis(Retry::Backoff, 50), Some(1_000_000));
    assert_eq!(millis(Retry::Never, 1), None);
    assert_eq!(millis(Retry::Slow, 1), Some(300_000));
    assert_eq!(pause(Retry::Slow, 1, Some(Duration::from_secs(60))), Some(Duration::from_secs(60)));
    assert_eq!(millis(Retry::After(Duration::from_secs(7)), 1), Some(7000));
    assert_eq!(millis(Retry::After(Duration::from_secs(7)), 50), Some(1_000_000));
}

#[test]
fn plan_status_proves_the_source_of_its_generation_only() {
    assert_eq!(source_of_status(&with_status(catalog(TAG, None), FIRST, 3)), Some(TAG.to_owned()));
    assert_eq!(source_of_status(&with_status(catalog(TAG, None), FIRST, 2)), None);
    assert_eq!(source_of_status(&catalog(TAG, None)), None);
    for (state, source) in [(ConditionStatus::True, "example.com/c:v33"), (ConditionStatus::False, TAG)] {
        let mut templated = with_status(catalog(TAG, None), FIRST, 3);
        let image = Condition::new(
            condition::RESOLVED_IMAGE,
            state,
            "X",
            "example.com/c:v33",
            Some(3),
            Timestamp::UNIX_EPOCH,
        );
        templated.status.as_mut().unwrap().conditions.push(image);
        assert_eq!(source_of_status(&templated), Some(source.to_owned()));
    }
    assert_eq!(known_date(&with_status(catalog(TAG, None), FIRST, 2), FIRST), Some(5));
    assert_eq!(known_date(&with_status(catalog(TAG, None), FIRST, 2), SECOND), None);
}

#[test]
fn plan_new_content_has_a_later_date_than_the_old() {
    let old = Held { last_unpacked: 1000, ..held(FIRST, TAG) };
    for (name, known, before, now, want) in [
        ("first", None, None, 500, 500),
        ("first, and the status knows it", Some(7), None, 500, 7),
        ("the same content", None, Some((&old, true)), 500, 1000),
        ("the same content, dated by the status", Some(900), Some((&old, true)), 5000, 900),
        ("other content, the clock runs", None, Some((&old, false)), 2000, 2000),
        ("other content within the second", None, Some((&old, false)), 1000, 1001),
        ("other content, the clock was set back", None, Some((&old, false)), 10, 1001),
    ] {
        assert_eq!(dated(known, before, now), want, "{name}");
    }
}
