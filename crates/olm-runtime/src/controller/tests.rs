use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::stream;
use parking_lot::Mutex;

use super::*;
use crate::Shutdown;
use crate::metrics::Metrics;

/// A controller that is woken for these names and runs `pass` for all of them but `gone`.
async fn controller<F>(
    (metrics, stop): (&Metrics, &Shutdown),
    workers: u16,
    names: &[&str],
    pass: impl Fn(String) -> F,
) where
    F: Future<Output = (Requeue, Outcome)> + Send + 'static,
{
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let sources = vec![Source::new("they exist", stream::iter(names), |name| [name])];
    let workers = Workers::new(workers, stop.clone());
    let controller = Controller::new("test", workers, metrics.controller("test", 1), sources);
    run(controller, std::future::ready(()), |name| (name != "gone").then(|| pass(name.to_owned()))).await;
}

#[test]
fn requeue_within_a_limit() {
    use Requeue::{After, Backoff, BackoffWithin, Gone, OnChange, Unfinished};
    let [one, two] = [1, 2].map(Duration::from_secs);
    for (requeue, limit, want) in [
        (Gone, Some(one), Gone),
        (OnChange, None, OnChange),
        (OnChange, Some(one), After(one)),
        (Unfinished, Some(one), After(one)),
        (Unfinished, Some(backoff::UNFINISHED), Unfinished),
        (After(two), Some(one), After(one)),
        (After(one), Some(two), After(one)),
        (Backoff, Some(one), BackoffWithin(one)),
        (BackoffWithin(two), Some(one), BackoffWithin(one)),
        (BackoffWithin(two), None, BackoffWithin(two)),
    ] {
        assert_eq!(requeue.within(limit), want, "{requeue:?} {limit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn controller_requeues_by_the_result_of_a_pass() {
    use Requeue::{After, Backoff, BackoffWithin, OnChange};
    let (metrics, begun) = (Metrics::new(), Instant::now());
    let steps = [
        (Backoff, 5),
        (Backoff, 10),
        (BackoffWithin(Duration::from_millis(7)), 7),
        (After(Duration::from_millis(40)), 40),
        (Backoff, 5),
        (OnChange, 0),
    ];
    let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let record = Arc::clone(&times);
    let stop = Shutdown::new();
    let running = controller((&metrics, &stop), 1, &["gone", "a"], move |_| {
        record.lock().push(Instant::now());
        let step = steps[record.lock().len() - 1].0;
        async move { (step, Outcome::Success) }
    });
    assert!(tokio::time::timeout(Duration::from_secs(60), running).await.is_err());
    let times = times.lock();
    assert_eq!(times.len(), steps.len());
    assert!(times[0] - begun < Duration::from_millis(2));
    for (pair, (requeue, want)) in times.windows(2).zip(steps) {
        let waited = (pair[1] - pair[0]).as_millis();
        assert!((want..want + 2).contains(&waited), "{requeue:?}: {waited}");
    }
}

#[tokio::test(start_paused = true)]
async fn controller_retries_failures_within_a_minute() {
    let (metrics, stop, times) = (Metrics::new(), Shutdown::new(), Arc::new(Mutex::new(Vec::new())));
    let record = Arc::clone(&times);
    let running = controller((&metrics, &stop), 1, &["a"], move |_| {
        record.lock().push(Instant::now());
        std::future::ready((Requeue::Backoff, Outcome::Error))
    });
    assert!(tokio::time::timeout(Duration::from_secs(3600), running).await.is_err());
    let times = times.lock();
    let waits: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let longest = waits.iter().max().unwrap();
    assert!(*longest <= Duration::from_secs(61), "{longest:?}");
    assert!(waits.len() < 100, "it slows down: {}", waits.len());
}

#[tokio::test(start_paused = true)]
async fn controller_requeues_unfinished_objects_within_a_minute() {
    let (metrics, stop, times) = (Metrics::new(), Shutdown::new(), Arc::new(Mutex::new(Vec::new())));
    let record = Arc::clone(&times);
    let running = controller((&metrics, &stop), 1, &["a"], move |_| {
        record.lock().push(Instant::now());
        std::future::ready((Requeue::Unfinished, Outcome::RequeueAfter))
    });
    assert!(tokio::time::timeout(Duration::from_secs(600), running).await.is_err());
    let times = times.lock();
    let waits: BTreeSet<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let within = Duration::from_secs(45)..=Duration::from_millis(60_002);
    assert!(waits.len() > 1 && waits.iter().all(|wait| within.contains(wait)), "{waits:?}");
}

/// Three objects, one worker, passes of ten seconds.
#[tokio::test(start_paused = true)]
async fn controller_measures_its_queue() {
    let (metrics, stop, depths) = (Metrics::new(), Shutdown::new(), Arc::new(Mutex::new(Vec::new())));
    let series = |name: &str| format!("{name}{{controller=\"test\",name=\"test\"}} ");
    let (shown, record, depth) = (metrics.clone(), Arc::clone(&depths), series("workqueue_depth"));
    let running = controller((&metrics, &stop), 1, &["a", "b", "c"], move |_| {
        let (shown, record, depth) = (shown.clone(), Arc::clone(&record), depth.clone());
        async move {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let text = shown.classic();
            let line = text.lines().find_map(|line| line.strip_prefix(&depth));
            record.lock().push(line.unwrap().to_owned());
            // not in the queue before it is due
            (Requeue::After(Duration::from_secs(3_600)), Outcome::RequeueAfter)
        }
    });
    assert!(tokio::time::timeout(Duration::from_secs(60), running).await.is_err());
    assert_eq!(*depths.lock(), ["2", "1", "0"]);
    let text = metrics.classic();
    let value = |name: &str| {
        let (prefix, text) = (series(name), &text);
        let found = text.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap();
        found.parse::<f64>().unwrap()
    };
    assert_eq!(value("workqueue_queue_duration_seconds_count"), 3.0);
    let waited = value("workqueue_queue_duration_seconds_sum");
    assert!((30.0..30.1).contains(&waited), "0, 10 and 20 s: {waited}");
    assert_eq!(value("workqueue_depth"), 0.0);
}

#[test]
#[rustfmt::skip]
fn report_states_of_an_object() {
    let now = Instant::now() + Duration::from_secs(100);
    let ago = |seconds| now - Duration::from_secs(seconds);
    let done = |outcome, failures| Record { failures, last: Some((ago(30), outcome)) };
    for (record, next, want) in [
        (Record::default(), Next::Running, "last pass: none; failures in a row: 0; next pass: running"),
        (done(Some(Outcome::Success), 0), Next::OnChange, "last pass: success 30.0 s ago; failures in a row: 0; next pass: on change"),
        (done(Some(Outcome::Error), 3), Next::At(now + Duration::from_millis(1_500)),
            "last pass: error 30.0 s ago; failures in a row: 3; next pass: in 1.5 s"),
        (done(None, 1), Next::At(ago(2)), "last pass: panic 30.0 s ago; failures in a row: 1; next pass: due for 2.0 s"),
    ] {
        assert_eq!(state(&record, next, now), want);
    }
}

/// A report leaves out objects that are gone.
#[tokio::test(start_paused = true)]
async fn report_describes_the_objects_that_exist() {
    let (metrics, stop, described) = (Metrics::new(), Shutdown::new(), Arc::new(Mutex::new(Vec::new())));
    let sources = vec![Source::new("they exist", stream::iter(["a", "b"]), |name| [name.to_owned()])];
    let record = Arc::clone(&described);
    let controller = Controller {
        describe: Box::new(move |name| {
            record.lock().push(name.to_owned());
            String::new()
        }),
        ..Controller::new("test", Workers::new(9, stop.clone()), metrics.controller("test", 1), sources)
    };
    let running = run(controller, std::future::ready(()), |name| {
        let requeue = if name == "b" { Requeue::Gone } else { Requeue::OnChange };
        Some(std::future::ready((requeue, Outcome::Success)))
    });
    let requesting = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        report::request();
        tokio::time::sleep(Duration::from_secs(1)).await;
        stop.cancel();
    };
    tokio::join!(running, requesting);
    // another test of this process may have requested one at the same time
    assert!(described.lock().iter().all(|name| name == "a") && !described.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn controller_retries_and_counts_panics() {
    let (metrics, stop, count) = (Metrics::new(), Shutdown::new(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    let running = controller((&metrics, &stop), 2, &["a"], move |_| {
        let counted = Arc::clone(&counted);
        async move {
            counted.fetch_add(1, Ordering::Relaxed);
            panic!("a defect")
        }
    });
    // after 1, 2, 4, 8 and 10 seconds
    assert!(tokio::time::timeout(Duration::from_secs(30), running).await.is_err());
    assert_eq!(count.load(Ordering::Relaxed), 6);
    let metrics = metrics.classic();
    assert!(
        metrics.contains("controller_runtime_reconcile_panics_total{controller=\"test\"} 6\n"),
        "{metrics}"
    );
}

#[tokio::test(start_paused = true)]
async fn controller_finishes_passes_when_it_stops() {
    let (metrics, stop, ended) = (Metrics::new(), Shutdown::new(), Arc::new(Mutex::new(Vec::new())));
    let (stops, record) = (stop.clone(), Arc::clone(&ended));
    controller((&metrics, &stop), 2, &["a", "b", "c"], move |name| {
        let (stops, record) = (stops.clone(), Arc::clone(&record));
        async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            stops.cancel();
            tokio::time::sleep(Duration::from_secs(1)).await;
            record.lock().push(name);
            (Requeue::Backoff, Outcome::Error)
        }
    })
    .await;
    ended.lock().sort();
    assert_eq!(*ended.lock(), ["a", "b"], "a third pass does not begin");
}

#[tokio::test(start_paused = true)]
async fn controller_aborts_passes_when_it_is_dropped() {
    let (metrics, stop, held) = (Metrics::new(), Shutdown::new(), Arc::new(()));
    let used = Arc::clone(&held);
    let running = controller((&metrics, &stop), 1, &["a"], move |_| {
        let used = Arc::clone(&used);
        async move {
            std::future::pending::<()>().await;
            drop(used);
            (Requeue::OnChange, Outcome::Success)
        }
    });
    assert!(tokio::time::timeout(Duration::from_secs(1), running).await.is_err());
    tokio::task::yield_now().await;
    assert_eq!(Arc::strong_count(&held), 1);
}

#[tokio::test(start_paused = true)]
async fn controller_keeps_wake_ups_until_caches_are_filled() {
    let (metrics, stop, begun) = (Metrics::new(), Shutdown::new(), Instant::now());
    let sources = vec![Source::new("they exist", stream::iter(["a", "b"]), |name| [name.to_owned()])];
    let controller = Controller {
        min_interval: Duration::from_secs(5),
        ..Controller::new("test", Workers::new(9, stop.clone()), metrics.controller("test", 1), sources)
    };
    let passes: Arc<Mutex<Vec<(String, u64)>>> = Arc::default();
    let record = Arc::clone(&passes);
    let ready = tokio::time::sleep(Duration::from_secs(1));
    let running = run(controller, ready, |name| {
        record.lock().push((name.to_owned(), begun.elapsed().as_secs()));
        Some(std::future::ready((Requeue::After(Duration::from_secs(1)), Outcome::Success)))
    });
    assert!(tokio::time::timeout(Duration::from_secs(8), running).await.is_err());
    let want = [("a", 1), ("b", 1), ("a", 6), ("b", 6)].map(|(name, at)| (name.to_owned(), at));
    assert_eq!(*passes.lock(), want);
}
