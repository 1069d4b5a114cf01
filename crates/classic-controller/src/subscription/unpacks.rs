//! Images of bundles that are being pulled and read in the process, and those that were read a short time ago.
//!
//! Rule: classic-apis §5.5, decision 53.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use olm_api::classic::{CatalogSource, Subscription};
use olm_classic::install_plan::{
    UnpackDecision, UnpackNext, UnpackObserved, UnpackSettings, decide_unpack, reported_unpack,
};
use olm_core::Object;
use olm_runtime::controller::Waker;
use olm_runtime::{task, watched};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::image_source::ImageSource;

/// How long the objects of a bundle stay in memory, from resolution to the end of its plan, and how long an image is pulled for which no
/// namespace asks any more.
const RETENTION: Duration = Duration::from_secs(120);
/// The longest wait between two attempts to pull an image.
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// Catalog and image.
type Key = (String, String);

/// The bundles of the process that are images.
pub(crate) struct Unpacks {
    images: Arc<dyn ImageSource>,
    states: Arc<Mutex<BTreeMap<Key, State>>>,
    /// Namespaces whose bundle came, or failed.
    pub(crate) ended: Waker,
}

struct State {
    progress: Progress,
    namespaces: BTreeSet<String>,
    /// No namespace needs it after that, unless one requests it before.
    needed_until: Instant,
    /// Of the CatalogSource: another one may have other secrets.
    source: Version,
    _task: Option<AbortOnDropHandle<()>>,
}

/// UID and generation: one that was deleted and created again begins with the first generation.
type Version = (Option<String>, Option<i64>);

fn version(source: &CatalogSource) -> Version {
    (source.metadata.uid.clone(), source.metadata.generation)
}

impl State {
    /// Whether it counts for this CatalogSource.
    fn is_of(&self, source: &CatalogSource) -> bool {
        self.source == version(source) || matches!(self.progress, Progress::Unpacked { .. })
    }
}

enum Progress {
    Running { since: Timestamp, problem: Option<String> },
    Failed { at: Timestamp, message: String },
    Unpacked { objects: Arc<Vec<Object>>, at: Instant },
}

impl Unpacks {
    pub(crate) fn new(images: &Arc<dyn ImageSource>) -> Arc<Self> {
        Arc::new(Self { images: Arc::clone(images), states: Arc::default(), ended: Waker::default() })
    }

    /// The objects of a bundle, or how far its image is. What is due is begun; what an earlier process has begun, as far as the statuses of
    /// the Subscriptions of the namespace report it, is continued.
    pub(crate) fn step(
        &self,
        source: &Arc<CatalogSource>,
        image: &str,
        settings: UnpackSettings,
        namespace: &str,
        subscriptions: &[Arc<Subscription>],
    ) -> (UnpackDecision, Option<Arc<Vec<Object>>>) {
        let now = Timestamp::now();
        let key = (watched::key(&source.metadata), image.to_owned());
        let mut states = self.states.lock();
        evict(&mut states);
        // statuses count for what an earlier process has begun: those of this one may be about another catalog, which a user replaced
        let is_begun =
            states.iter().any(|((_, image), state)| *image == key.1 && state.namespaces.contains(namespace));
        if !is_begun && !states.contains_key(&key) {
            let progress = match reported_unpack(image, subscriptions, settings, now) {
                UnpackObserved::Running { since, problem } => Some(Progress::Running { since, problem }),
                UnpackObserved::Failed { at, message } => Some(Progress::Failed { at, message }),
                UnpackObserved::NotStarted | UnpackObserved::Unpacked => None,
            };
            if let Some(progress) = progress {
                states.insert(key.clone(), self.begin(&key, source, progress));
            }
        }
        let mut objects = None;
        let observed = match states.get_mut(&key).filter(|state| state.is_of(source)) {
            None => UnpackObserved::NotStarted,
            Some(state) => {
                state.namespaces.insert(namespace.to_owned());
                match &state.progress {
                    Progress::Running { since, problem } => {
                        UnpackObserved::Running { since: *since, problem: problem.clone() }
                    }
                    Progress::Failed { at, message } => {
                        UnpackObserved::Failed { at: *at, message: message.clone() }
                    }
                    Progress::Unpacked { objects: found, .. } => {
                        objects = Some(Arc::clone(found));
                        UnpackObserved::Unpacked
                    }
                }
            }
        };
        let decision = decide_unpack(image, &observed, settings, now);
        match decision.next {
            UnpackNext::Start => {
                let earlier = states.remove(&key).map(|state| state.namespaces).unwrap_or_default();
                let mut state = self.begin(&key, source, Progress::Running { since: now, problem: None });
                state.namespaces = earlier.into_iter().chain([namespace.to_owned()]).collect();
                states.insert(key.clone(), state);
            }
            UnpackNext::Stop => {
                if let Some(state) = states.get_mut(&key) {
                    state._task = None;
                    state.progress = Progress::Failed { at: now, message: decision.message.clone() };
                }
            }
            UnpackNext::Wait(_) | UnpackNext::Use => {}
        }
        if let Some(state) = states.get_mut(&key) {
            let next = match decision.next {
                UnpackNext::Wait(wait) => wait,
                UnpackNext::Start | UnpackNext::Stop | UnpackNext::Use => Duration::ZERO,
            };
            state.needed_until = state.needed_until.max(Instant::now() + next + RETENTION);
        }
        (decision, objects)
    }

    /// The image is pulled if it is in progress.
    fn begin(&self, key: &Key, source: &Arc<CatalogSource>, progress: Progress) -> State {
        let is_running = matches!(progress, Progress::Running { .. });
        let pull = || task::supervised("pull of a bundle", self.pull(key.clone(), Arc::clone(source)));
        let pulling = is_running.then(|| tokio::spawn(pull()));
        State {
            progress,
            namespaces: BTreeSet::new(),
            needed_until: Instant::now(),
            source: version(source),
            _task: pulling.map(AbortOnDropHandle::new),
        }
    }

    /// Removes what no namespace needs any more.
    pub(crate) fn evict(&self) {
        evict(&mut self.states.lock());
    }

    /// The objects of a bundle whose plan is being executed.
    ///
    /// # Errors
    /// When its image cannot be pulled or read.
    pub(crate) async fn objects(
        &self,
        source: &Arc<CatalogSource>,
        image: &str,
    ) -> Result<Arc<Vec<Object>>, String> {
        if let Some(objects) = self.in_memory(&watched::key(&source.metadata), image) {
            return Ok(objects);
        }
        self.images.bundle(source, image).await.map(Arc::new).map_err(|error| error.message)
    }

    /// The objects of a bundle that was read a short time ago. `catalog` is `namespace/name`.
    pub(crate) fn in_memory(&self, catalog: &str, image: &str) -> Option<Arc<Vec<Object>>> {
        match &self.states.lock().get(&(catalog.to_owned(), image.to_owned()))?.progress {
            Progress::Unpacked { objects, .. } => Some(Arc::clone(objects)),
            Progress::Running { .. } | Progress::Failed { .. } => None,
        }
    }

    fn pull(&self, key: Key, source: Arc<CatalogSource>) -> impl Future<Output = ()> + Send + use<> {
        let (images, states, ended) =
            (Arc::clone(&self.images), Arc::clone(&self.states), self.ended.clone());
        async move {
            let mut failures = 0;
            loop {
                let progress = match images.bundle(&source, &key.1).await {
                    Ok(objects) => Progress::Unpacked { objects: Arc::new(objects), at: Instant::now() },
                    Err(error) if error.is_final => {
                        Progress::Failed { at: Timestamp::now(), message: error.message }
                    }
                    Err(error) => {
                        tracing::info!(image = key.1, error = error.message, "cannot pull a bundle");
                        if !report(&mut states.lock(), &key, error.message) {
                            return;
                        }
                        let wait = Duration::from_secs(1).saturating_mul(1 << failures.min(10));
                        tokio::time::sleep(wait.min(MAX_BACKOFF)).await;
                        failures += 1;
                        continue;
                    }
                };
                let namespaces = states.lock().get_mut(&key).map(|state| {
                    state.progress = progress;
                    std::mem::take(&mut state.namespaces)
                });
                for namespace in namespaces.into_iter().flatten() {
                    ended.wake(&namespace);
                }
                return;
            }
        }
    }
}

fn evict(states: &mut BTreeMap<Key, State>) {
    let now = Instant::now();
    states.retain(|_, state| match &state.progress {
        Progress::Unpacked { at, .. } => at.elapsed() < RETENTION,
        Progress::Failed { .. } => now < state.needed_until,
        // see `report`
        Progress::Running { .. } => true,
    });
}

/// Records why an image was not pulled. `false`: no namespace has asked for it for a while, so it is not pulled any more.
fn report(states: &mut BTreeMap<Key, State>, key: &Key, message: String) -> bool {
    match states.get_mut(key) {
        Some(state) if Instant::now() < state.needed_until => {
            if let Progress::Running { problem, .. } = &mut state.progress {
                *problem = Some(message);
            }
            true
        }
        Some(_) | None => {
            states.remove(key);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use olm_api::classic::Time;
    use olm_classic::install_plan::UnpackRule;
    use serde_json::json;

    use super::*;
    use crate::image_source::{CatalogContent, FetchError};

    /// A registry that is down; it counts pulls by the CatalogSource.
    #[derive(Default)]
    struct Down(Mutex<BTreeMap<Version, usize>>);

    impl ImageSource for Down {
        fn catalog<'a>(
            &'a self,
            _: &'a CatalogSource,
            _: &'a str,
        ) -> BoxFuture<'a, Result<Arc<dyn CatalogContent>, FetchError>> {
            async { Err(FetchError { message: "down".to_owned(), is_final: false }) }.boxed()
        }

        fn bundle<'a>(
            &'a self,
            source: &'a CatalogSource,
            _: &'a str,
        ) -> BoxFuture<'a, Result<Vec<Object>, FetchError>> {
            *self.0.lock().entry(version(source)).or_default() += 1;
            async { Err(FetchError { message: "down".to_owned(), is_final: false }) }.boxed()
        }
    }

    fn source(uid: &str, generation: i64) -> Arc<CatalogSource> {
        let metadata = json!({"name": "c", "namespace": "ns", "uid": uid, "generation": generation});
        Arc::new(
            serde_json::from_value(json!({"metadata": metadata, "spec": {"sourceType": "grpc"}})).unwrap(),
        )
    }

    const IMAGE: &str = "registry.example.com/a:v1";

    #[tokio::test(start_paused = true)]
    async fn unpack_ends_when_no_namespace_asks() {
        let down = Arc::new(Down::default());
        let images: Arc<dyn ImageSource> = Arc::clone(&down) as _;
        let unpacks = Unpacks::new(&images);
        let pulls = || down.0.lock().values().sum::<usize>();
        let ask = || unpacks.step(&source("u", 1), IMAGE, UnpackSettings::default(), "ns", &[]);
        for _ in 0..60 {
            ask();
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        assert!(unpacks.states.lock().len() == 1 && pulls() > 10, "{} pulls", pulls());
        tokio::time::sleep(RETENTION + MAX_BACKOFF).await;
        assert!(unpacks.states.lock().is_empty());
        let ended = pulls();
        tokio::time::sleep(RETENTION).await;
        assert_eq!(pulls(), ended);
        assert_eq!(ask().0.next, UnpackNext::Start);
    }

    const FAILED: (&str, &str) = ("BundleUnpackFailed", "BundleUnpackFailed");
    const RUNNING: (&str, &str) = ("BundleUnpacking", "UnpackingInProgress");

    /// A Subscription that has reported the bundle for so many seconds.
    fn reporting((type_, reason): (&str, &str), seconds: u64) -> Arc<Subscription> {
        let text = match type_ {
            "BundleUnpackFailed" => {
                format!(
                    "bundle image {IMAGE} cannot be unpacked: no such image; it is tried again after 300 s"
                )
            }
            _ => format!("unpacking of bundle image {IMAGE}: still running"),
        };
        let condition = json!({"type": type_, "status": "True", "reason": reason, "message": text});
        let status = json!({"lastUpdated": "2026-01-01T00:00:00Z", "conditions": [condition]});
        let spec = json!({"name": "a", "source": "c", "sourceNamespace": "ns"});
        let subscription =
            json!({"metadata": {"name": "a", "namespace": "ns"}, "spec": spec, "status": status});
        let mut subscription: Subscription = serde_json::from_value(subscription).unwrap();
        let since = Timestamp::now() - Duration::from_secs(seconds);
        for condition in &mut subscription.status.as_mut().unwrap().conditions {
            condition.last_transition_time = Some(Time(since));
        }
        Arc::new(subscription)
    }

    #[tokio::test(start_paused = true)]
    async fn unpack_continues_what_an_earlier_process_reported() {
        for (reported, seconds, rule, is_pulled) in [
            (FAILED, 60, UnpackRule::Failed, false),
            (FAILED, 301, UnpackRule::Retries, true),
            (RUNNING, 60, UnpackRule::Waits, true),
            (RUNNING, 601, UnpackRule::DeadlineExceeded, false),
            (RUNNING, 901, UnpackRule::Starts, true),
        ] {
            let down = Arc::new(Down::default());
            let images: Arc<dyn ImageSource> = Arc::clone(&down) as _;
            let unpacks = Unpacks::new(&images);
            let subscription = reporting(reported, seconds);
            let reports = [Arc::clone(&subscription)];
            let ask = |reports: &[Arc<Subscription>]| {
                unpacks.step(&source("u", 1), IMAGE, UnpackSettings::default(), "ns", reports).0
            };
            let decision = ask(&reports);
            assert_eq!(decision.rule, rule, "{reported:?} for {seconds} s");
            if rule == UnpackRule::Failed {
                let condition = &subscription.status.as_ref().unwrap().conditions[0];
                assert_eq!(decision.message, condition.message, "nothing is written");
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert_eq!(!down.0.lock().is_empty(), is_pulled, "{reported:?} for {seconds} s");
            let later = ask(&[]).rule;
            let want = if is_pulled { UnpackRule::Waits } else { UnpackRule::Failed };
            assert_eq!(later, want, "the statuses are read once: {reported:?} for {seconds} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unpack_from_another_catalog_begins_immediately() {
        let images: Arc<dyn ImageSource> = Arc::new(Down::default());
        let unpacks = Unpacks::new(&images);
        let reports = [reporting(FAILED, 60)];
        for (catalog, rule) in
            [("c", UnpackRule::Failed), ("d", UnpackRule::Starts), ("d", UnpackRule::Waits)]
        {
            let mut source = CatalogSource::clone(&source("u", 1));
            source.metadata.name = Some(catalog.to_owned());
            let source = Arc::new(source);
            let (decision, _) = unpacks.step(&source, IMAGE, UnpackSettings::default(), "ns", &reports);
            assert_eq!(decision.rule, rule, "{catalog}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unpack_failure_is_evicted_after_its_retry() {
        let images: Arc<dyn ImageSource> = Arc::new(Down::default());
        let unpacks = Unpacks::new(&images);
        let reports = [reporting(FAILED, 60)];
        unpacks.step(&source("u", 1), IMAGE, UnpackSettings::default(), "ns", &reports);
        for (seconds, left) in [(RETENTION.as_secs(), 1), (300, 0)] {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            unpacks.evict();
            assert_eq!(unpacks.states.lock().len(), left, "after further {seconds} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unpack_begins_again_with_another_catalog_source() {
        let down = Arc::new(Down::default());
        let images: Arc<dyn ImageSource> = Arc::clone(&down) as _;
        let unpacks = Unpacks::new(&images);
        let wait = UnpackNext::Wait(Duration::from_secs(5));
        for (uid, generation, namespace, next) in [
            ("u", 1, "a", UnpackNext::Start),
            ("u", 1, "a", wait),
            ("u", 2, "b", UnpackNext::Start),
            ("u", 2, "b", wait),
            ("created again", 2, "c", UnpackNext::Start),
            ("created again", 2, "c", wait),
        ] {
            let source = source(uid, generation);
            let (decision, _) = unpacks.step(&source, IMAGE, UnpackSettings::default(), namespace, &[]);
            assert_eq!(decision.next, next, "{uid} {generation}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(unpacks.states.lock().values().all(|state| state.namespaces.len() == 3), "all are woken");
        let pulls = down.0.lock().clone();
        tokio::time::sleep(MAX_BACKOFF).await;
        let later = down.0.lock().clone();
        let grown: Vec<&Version> = pulls.keys().filter(|source| pulls[*source] < later[*source]).collect();
        assert_eq!(grown, [&(Some("created again".to_owned()), Some(2))], "{pulls:?} {later:?}");
    }
}
