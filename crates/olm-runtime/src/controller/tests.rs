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
    use Requeue::{After, Backoff, BackoffWithin, OnChange};
    let [one, two] = [1, 2].map(Duration::from_secs);
    for (requeue, limit, want) in [
        (OnChange, None, OnChange),
        (OnChange, Some(one), After(one)),
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
