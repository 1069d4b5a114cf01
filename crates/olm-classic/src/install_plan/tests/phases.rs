//! Phases of plans, accounts, and unpacking.

use std::collections::BTreeSet;
use std::time::Duration;

use olm_api::ConditionStatus;
use olm_api::classic::{InstallPlanStatus, OperatorGroup};
use serde_json::{Value, json};

use super::*;

#[test]
#[rustfmt::skip]
fn plan_account_is_that_of_the_only_group() {
    let group = |name: &str, account: &str, namespaces: Value, reference: Value| -> OperatorGroup {
        let mut status = json!({"lastUpdated": "2023-01-01T00:00:00Z", "namespaces": namespaces});
        if !reference.is_null() {
            status["serviceAccountRef"] = reference;
        }
        let metadata = json!({"name": name, "namespace": "ns"});
        typed(
            "v1",
            "OperatorGroup",
            json!({"metadata": metadata, "spec": {"serviceAccountName": account}, "status": status}),
        )
    };
    let missing = "please make sure the service account exists. sa=worker operatorgroup=ns/g";
    let none = "no operator group found that is managing this namespace";
    for (groups, want) in [
        (vec![], Err(none)),
        (vec![group("g", "", json!([]), Value::Null)], Err(none)),
        (vec![group("g", "", json!(["ns"]), Value::Null), group("h", "", json!(["ns"]), Value::Null)],
            Err("more than one operator group(s) are managing this namespace count=2")),
        (vec![group("g", "worker", json!(["ns"]), Value::Null)], Err(missing)),
        (vec![group("g", "", json!([""]), Value::Null)], Ok(None)),
        (vec![group("g", "worker", json!(["ns"]), json!({"name": "worker"}))], Ok(Some("worker"))),
        (vec![group("g", "worker", json!(["ns"]), json!({"name": "earlier", "namespace": "ns"}))], Err(missing)),
        (vec![group("g", "worker", json!(["ns"]), json!({"name": "worker", "namespace": "other"}))], Err(missing)),
    ] {
        let groups: Vec<_> = groups.into_iter().map(Arc::new).collect();
        let got =
            plan_account(&groups).map(|it| it.and_then(|it| it.name)).map_err(|error| error.to_string());
        assert_eq!(got, want.map(|it| it.map(str::to_owned)).map_err(str::to_owned));
    }
}

pub(super) fn error(is_forbidden: bool) -> StepError {
    StepError::Api {
        kind: "service".to_owned(),
        name: "x".to_owned(),
        message: "no".to_owned(),
        is_forbidden,
    }
}

/// One row of the table after another: the guard, then what comes of it.
#[test]
fn next_phase_takes_each_row_of_the_table() {
    let one = |status: &str| vec![step("Service", "", "x", status)];
    let run = |status, error| PlanRun { steps: vec![status], error };
    let done = run(StepStatus::Created, None);
    let waiting = run(StepStatus::WaitingForApi, None);
    let forbidden = run(StepStatus::Unknown, Some(error(true)));
    let failed = run(StepStatus::Unknown, Some(error(false)));
    let invalid =
        run(StepStatus::UnsupportedResource, Some(StepError::Unsupported { object: "x".to_owned() }));
    let attenuated = {
        let mut plan = plan_with("Failed", one("Unknown"));
        plan.status.as_mut().unwrap().attenuated_service_account_ref = Some(Default::default());
        plan
    };
    let mut without_status = plan_with("", Vec::new());
    without_status.status = None;
    let unapproved = |phase: &str| {
        let mut plan = plan_with(phase, one("Unknown"));
        plan.spec.approved = false;
        plan
    };
    let mut tried = plan_with("Installing", one("Unknown"));
    tried.status.as_mut().unwrap().start_time =
        Some(olm_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
    let mut seen = BTreeSet::new();
    for (plan, observed, second, rule, next) in [
        (without_status, None, 0, PlanRule::NoStatus, PlanNext::Rest),
        (plan_with("Complete", one("Created")), None, 0, PlanRule::Ends, PlanNext::Rest),
        (plan_with("Failed", one("Created")), None, 0, PlanRule::Ends, PlanNext::Rest),
        (attenuated, None, 0, PlanRule::RightsChanged, PlanNext::RunSteps),
        (unapproved("Failed"), None, 0, PlanRule::ApprovalWithdrawn, PlanNext::Rest),
        (unapproved("Planning"), None, 0, PlanRule::OldPhaseWaits, PlanNext::Rest),
        (plan_with("", one("Unknown")), None, 0, PlanRule::OldPhaseStarts, PlanNext::RunSteps),
        (unapproved("RequiresApproval"), None, 0, PlanRule::WaitsForApproval, PlanNext::Rest),
        (plan_with("RequiresApproval", one("Unknown")), None, 0, PlanRule::Approved, PlanNext::RunSteps),
        (tried.clone(), None, 0, PlanRule::Runs, PlanNext::RunSteps),
        (tried.clone(), Some(&forbidden), 9999, PlanRule::RetriesForbidden, PlanNext::Requeue(REQUEUE)),
        (tried.clone(), Some(&failed), 59, PlanRule::RetriesError, PlanNext::Requeue(REQUEUE)),
        (tried.clone(), Some(&failed), 60, PlanRule::Fails, PlanNext::Rest),
        (tried.clone(), Some(&invalid), 0, PlanRule::Fails, PlanNext::Rest),
        (tried.clone(), Some(&waiting), 0, PlanRule::WaitsForApi, PlanNext::Requeue(REQUEUE)),
        (tried.clone(), Some(&done), 0, PlanRule::Completes, PlanNext::Rest),
    ] {
        let observed = PlanObserved {
            account: Ok(None),
            rights_changed: true,
            run: observed,
            retry_window: RETRY_WINDOW,
        };
        let decision = next_phase(&plan, &observed, at(second));
        assert_eq!((decision.rule, decision.next), (rule, next), "{rule:?}");
        let row = PLAN_ROWS.iter().find(|row| row.rule == rule).unwrap();
        let from = PlanPhase::from_plan(&plan);
        assert!(from.is_none_or(|from| row.from.contains(&from)), "{rule:?} from {from:?}");
        let phase = |status: Option<&InstallPlanStatus>| status.map(|status| status.phase.clone());
        let got = phase(decision.status.as_ref()).or(phase(plan.status.as_ref()));
        if let Some(to) = row.to {
            assert_eq!(got.as_deref(), Some(to.as_str()), "{rule:?}");
        }
        seen.insert(rule);
    }
    let no_group = PlanObserved {
        account: Err(AccountError::NoGroup),
        rights_changed: false,
        run: None,
        retry_window: RETRY_WINDOW,
    };
    let decision = next_phase(&tried, &no_group, at(1));
    assert_eq!((decision.rule, decision.next), (PlanRule::AccountProblem, PlanNext::Requeue(REQUEUE)));
    let condition = &decision.status.unwrap().conditions[0];
    let got =
        (condition.type_.as_str(), condition.status, condition.reason.as_str(), condition.message.as_str());
    let want = "no operator group found that is managing this namespace";
    assert_eq!(got, ("Installed", ConditionStatus::False, "InstallCheckFailed", want));
    seen.insert(decision.rule);
    let all: BTreeSet<PlanRule> = PLAN_ROWS.iter().map(|row| row.rule).collect();
    assert_eq!(seen, all, "each row has a case");
}

#[test]
fn plan_status_has_condition_and_message() {
    let plan = plan_with("Installing", vec![step("Service", "", "x", "Unknown")]);
    let decide = |run: &PlanRun, second| {
        let observed = PlanObserved {
            account: Ok(None),
            rights_changed: false,
            run: Some(run),
            retry_window: Duration::ZERO,
        };
        next_phase(&plan, &observed, at(second)).status.unwrap()
    };
    let failed = decide(&PlanRun { steps: vec![], error: Some(error(false)) }, 1);
    assert_eq!(failed.message, "error updating service: x: no");
    let condition = &failed.conditions[0];
    let want = ("InstallComponentFailed", "error updating service: x: no");
    assert_eq!((condition.reason.as_str(), condition.message.as_str()), want);
    let retried = decide(&PlanRun { steps: vec![], error: Some(error(true)) }, 1);
    let want = ("retrying execution due to error: error updating service: x: no", 0);
    assert_eq!((retried.message.as_str(), retried.conditions.len()), want);
    let complete = decide(&PlanRun { steps: vec![StepStatus::Present], error: None }, 1);
    assert_eq!((complete.conditions[0].status, complete.message.as_str()), (ConditionStatus::True, ""));
    assert_eq!(complete.plan[0].status, "Present");
}

const IMAGE: &str = "registry.example.com/a:v1";

#[test]
#[rustfmt::skip]
fn decide_unpack_takes_each_row_of_the_table() {
    let settings = UnpackSettings::default();
    let running =
        |problem: Option<&str>| UnpackObserved::Running { since: at(0), problem: problem.map(str::to_owned) };
    let failed = UnpackObserved::Failed { at: at(0), message: "no such image".to_owned() };
    let mut seen = BTreeSet::new();
    for (observed, second, rule, next, word, is_failed) in [
        (UnpackObserved::Unpacked, 0, UnpackRule::Unpacked, UnpackNext::Use, "", false),
        (UnpackObserved::NotStarted, 0, UnpackRule::Starts, UnpackNext::Start, IMAGE, false),
        (running(None), 599, UnpackRule::Waits, UnpackNext::Wait(REQUEUE), "still running", false),
        (running(Some("no pull secret")), 600, UnpackRule::DeadlineExceeded, UnpackNext::Stop, "no pull secret", true),
        (failed.clone(), 299, UnpackRule::Failed, UnpackNext::Wait(Duration::from_secs(1)), "no such image", true),
        (failed, 300, UnpackRule::Retries, UnpackNext::Start, "no such image", false),
    ] {
        let decision = decide_unpack(IMAGE, &observed, settings, at(second));
        assert_eq!((decision.rule, decision.next, decision.is_failed()), (rule, next, is_failed), "{observed:?}");
        assert!(decision.message.contains(word), "{}", decision.message);
        seen.insert(rule);
    }
    assert_eq!(seen, BTreeSet::from(UNPACK_ROWS.map(|row| row.rule)), "each row has a case");
    let unlimited = UnpackSettings { timeout: None, ..settings };
    assert_eq!(decide_unpack(IMAGE, &running(None), unlimited, at(1 << 30)).rule, UnpackRule::Waits);
}

#[test]
#[rustfmt::skip]
fn unpack_state_is_read_from_conditions() {
    let settings = UnpackSettings::default();
    let message = |observed: &UnpackObserved, second| decide_unpack(IMAGE, observed, settings, at(second)).message;
    let failed = |message: &str| UnpackObserved::Failed { at: at(0), message: message.to_owned() };
    let running = UnpackObserved::Running { since: at(0), problem: None };
    let (deadline, of_missing) = (message(&running, 600), message(&failed("no such image"), 1));
    let beside = format!("bundle image r.test/b:v1 cannot be unpacked: gone; it is tried again after 300 s; {of_missing}");
    let of_another = of_missing.replace("a:v1", "a:v1.2");
    let (of_failure, of_unpack) = (("BundleUnpackFailed", "BundleUnpackFailed"), ("BundleUnpacking", "UnpackingInProgress"));
    for (case, (type_, reason), message, second, want) in [
        ("failed", of_failure, of_missing.clone(), 1, failed("no such image")),
        ("beside another one", of_failure, beside, 1, failed("no such image")),
        ("another image", of_failure, of_another, 1, UnpackObserved::NotStarted),
        ("at the deadline", of_failure, deadline.clone(), 601, failed(&deadline)),
        ("after the deadline", of_failure, message(&failed(&deadline), 1), 601, failed(&deadline)),
        ("no unpacking", ("BundleUnpackFailed", "EnsureInstallPlanFailed"), of_missing, 1, UnpackObserved::NotStarted),
        ("about to begin", of_unpack, message(&UnpackObserved::NotStarted, 0), 1, running.clone()),
        ("begun", of_unpack, message(&running, 5), 899, running.clone()),
        ("begun again", of_unpack, message(&failed("no such image"), 300), 1, running.clone()),
        ("due again", of_unpack, message(&running, 5), 900, UnpackObserved::NotStarted),
    ] {
        let condition = json!({"type": type_, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": "1970-01-01T00:00:00Z"});
        let status = json!({"lastUpdated": "1970-01-01T00:00:00Z", "conditions": [condition]});
        let spec = json!({"name": "a", "source": "main", "sourceNamespace": "ns"});
        let subscription = json!({"metadata": {"name": "a"}, "spec": spec, "status": status});
        let subscriptions: [Arc<Subscription>; 1] = [Arc::new(typed("v1alpha1", "Subscription", subscription))];
        let reported = reported_unpack(IMAGE, &subscriptions, settings, at(second));
        assert_eq!(reported, want, "{case}: {message}");
    }
    assert_eq!(reported_unpack(IMAGE, &[], settings, at(1)), UnpackObserved::NotStarted);
}

#[test]
fn unpack_settings_are_read_from_the_group() {
    let group = |annotations: Value| -> OperatorGroup {
        let metadata = json!({"name": "og", "namespace": "ns", "annotations": annotations});
        typed("v1", "OperatorGroup", json!({"metadata": metadata, "spec": {}}))
    };
    let (timeout, retry) = (
        "operatorframework.io/bundle-unpack-timeout",
        "operatorframework.io/bundle-unpack-min-retry-interval",
    );
    let settings = UnpackSettings::default();
    for (annotations, want) in [
        (json!({}), Ok((Some(600), 300))),
        (json!({timeout: "12s", retry: "1m"}), Ok((Some(12), 60))),
        (json!({timeout: "0"}), Ok((None, 300))),
        (json!({retry: "0"}), Ok((Some(600), 5))),
        (json!({retry: "1ms"}), Ok((Some(600), 5))),
        (
            json!({timeout: "soon"}),
            Err(
                "OperatorGroup ns/og: annotation operatorframework.io/bundle-unpack-timeout: invalid duration \"soon\"; write \
                 it like 12h or 1m30s",
            ),
        ),
        (
            json!({retry: "-5m"}),
            Err(
                "OperatorGroup ns/og: annotation operatorframework.io/bundle-unpack-min-retry-interval: duration \"-5m\" is \
                 negative",
            ),
        ),
    ] {
        let got = settings.for_group(&group(annotations.clone()));
        let got = got.map(|it| (it.timeout.map(|it| it.as_secs()), it.retry_interval.as_secs()));
        assert_eq!(got.map_err(|error| error.to_string()), want.map_err(str::to_owned), "{annotations}");
    }
}

/// Once its approval was withdrawn and given again, the steps of a plan that failed have the whole retry window.
#[test]
fn failed_plan_has_one_remedy() {
    let gone = StepError::NoOwner { csv: "a.v1".to_owned(), object: "Service x".to_owned() }.to_string();
    assert_eq!(failed_wait(&gone), gone, "it names its own");
    assert_eq!(failed_wait("x"), "x; to retry it, set spec.approved to false, and then to true again");
}

#[test]
fn failed_plan_is_retried_when_approved_again() {
    let failed = PlanRun { steps: vec![StepStatus::Unknown], error: Some(error(false)) };
    let mut plan = plan_with("Installing", vec![step("Service", "", "x", "Unknown")]);
    let next = |plan: &mut InstallPlan, run: Option<&PlanRun>, second| {
        let account = Ok(None);
        let observed = PlanObserved { account, rights_changed: false, run, retry_window: RETRY_WINDOW };
        let decision = next_phase(plan, &observed, at(second));
        plan.status = decision.status.or_else(|| plan.status.take());
        (decision.rule, plan_wait(plan))
    };
    next(&mut plan, None, 0);
    let (rule, wait) = next(&mut plan, Some(&failed), 60);
    let problem = error(false).to_string();
    let want = format!("{problem}; to retry it, set spec.approved to false, and then to true again");
    assert_eq!((rule, wait), (PlanRule::Fails, Some(want)));
    plan.spec.approved = false;
    let want = "waiting for approval; set spec.approved to true".to_owned();
    assert_eq!(next(&mut plan, None, 100), (PlanRule::ApprovalWithdrawn, Some(want)));
    let status = plan.status.as_ref().unwrap();
    assert!(status.conditions.is_empty() && status.start_time.is_none(), "{status:?}");
    plan.spec.approved = true;
    assert_eq!(next(&mut plan, None, 200), (PlanRule::Approved, None));
    next(&mut plan, None, 200);
    let want = format!("retrying execution due to error: {problem}");
    assert_eq!(next(&mut plan, Some(&failed), 259), (PlanRule::RetriesError, Some(want)));
    let waiting = PlanRun { steps: vec![StepStatus::WaitingForApi], error: None };
    let want = "waiting for the API of Service x to be served".to_owned();
    assert_eq!(next(&mut plan, Some(&waiting), 259), (PlanRule::WaitsForApi, Some(want)));
}
