//! Images of bundles that are being pulled and read in the process, and those that were read a short time ago.
//!
//! Rule: classic-apis §5.5, decision 53.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use olm_api::classic::CatalogSource;
use olm_api::classic::install_plan::BundleLookup;
use olm_classic::install_plan::{UnpackDecision, UnpackNext, UnpackObserved, UnpackSettings, decide_unpack};
use olm_core::Object;
use olm_runtime::controller::Waker;
use olm_runtime::watched;
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
    /// When a namespace asked last.
    asked: Instant,
    /// Of the CatalogSource: another one may have other secrets.
    generation: Option<i64>,
    _task: Option<AbortOnDropHandle<()>>,
}

impl State {
    /// Whether it counts for this generation of the CatalogSource.
    fn is_of(&self, generation: Option<i64>) -> bool {
        self.generation == generation || matches!(self.progress, Progress::Unpacked { .. })
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

    /// The objects of a bundle, or how far its image is. What is due is begun.
    pub(crate) fn step(
        &self,
        source: &Arc<CatalogSource>,
        lookup: &BundleLookup,
        settings: UnpackSettings,
        namespace: &str,
    ) -> (UnpackDecision, Option<Arc<Vec<Object>>>) {
        let now = Timestamp::now();
        let key = (watched::key(&source.metadata), lookup.path.clone());
        let mut states = self.states.lock();
        states.retain(|_, state| match &state.progress {
            Progress::Unpacked { at, .. } => at.elapsed() < RETENTION,
            Progress::Running { .. } | Progress::Failed { .. } => true,
        });
        let mut objects = None;
        let generation = source.metadata.generation;
        let observed = match states.get_mut(&key).filter(|state| state.is_of(generation)) {
            None => UnpackObserved::NotStarted,
            Some(state) => {
                state.namespaces.insert(namespace.to_owned());
                state.asked = Instant::now();
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
        let decision = decide_unpack(lookup, &observed, settings, now);
        match decision.next {
            UnpackNext::Start => {
                let task = self.pull(key.clone(), Arc::clone(source));
                let earlier = states.remove(&key).map(|state| state.namespaces).unwrap_or_default();
                let state = State {
                    progress: Progress::Running { since: now, problem: None },
                    namespaces: earlier.into_iter().chain([namespace.to_owned()]).collect(),
                    asked: Instant::now(),
                    generation,
                    _task: Some(AbortOnDropHandle::new(tokio::spawn(task))),
                };
                states.insert(key, state);
            }
            UnpackNext::Stop => {
                if let Some(state) = states.get_mut(&key) {
                    state._task = None;
                    state.progress = Progress::Failed { at: now, message: decision.message.clone() };
                }
            }
            UnpackNext::Wait(_) | UnpackNext::Use => {}
        }
        (decision, objects)
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

/// Records why an image was not pulled. `false`: no namespace has asked for it for a while, so it is not pulled any more.
fn report(states: &mut BTreeMap<Key, State>, key: &Key, message: String) -> bool {
    match states.get_mut(key) {
        Some(state) if state.asked.elapsed() < RETENTION => {
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
    use olm_classic::install_plan::bundle_lookup;
    use olm_solver::ChosenBundle;
    use serde_json::json;

    use super::*;
    use crate::image_source::{CatalogContent, FetchError};

    /// A registry that is down; it counts pulls by generations of the CatalogSource.
    #[derive(Default)]
    struct Down(Mutex<BTreeMap<i64, usize>>);

    impl ImageSource for Down {
        fn catalog<'a>(
            &'a self,
            _: &'a CatalogSource,
            _: &'a str,
        ) -> BoxFuture<'a, Result<Arc<dyn CatalogContent>, String>> {
            async { Err("down".to_owned()) }.boxed()
        }

        fn bundle<'a>(
            &'a self,
            source: &'a CatalogSource,
            _: &'a str,
        ) -> BoxFuture<'a, Result<Vec<Object>, FetchError>> {
            *self.0.lock().entry(source.metadata.generation.unwrap_or_default()).or_default() += 1;
            async { Err(FetchError { message: "down".to_owned(), is_final: false }) }.boxed()
        }
    }

    fn source(generation: i64) -> Arc<CatalogSource> {
        let metadata = json!({"name": "c", "namespace": "ns", "generation": generation});
        Arc::new(
            serde_json::from_value(json!({"metadata": metadata, "spec": {"sourceType": "grpc"}})).unwrap(),
        )
    }

    fn lookup() -> BundleLookup {
        let [namespace, catalog, channel, name, package, replaces] =
            ["ns", "c", "stable", "a.v1", "a", ""].map(str::to_owned);
        let chosen = ChosenBundle { namespace, catalog, channel, name, package, replaces };
        bundle_lookup(&chosen, "registry.example.com/a:v1", String::new())
    }

    #[tokio::test(start_paused = true)]
    async fn unpack_ends_when_no_namespace_asks() {
        let down = Arc::new(Down::default());
        let images: Arc<dyn ImageSource> = Arc::clone(&down) as _;
        let unpacks = Unpacks::new(&images);
        let pulls = || down.0.lock().values().sum::<usize>();
        let ask = || unpacks.step(&source(1), &lookup(), UnpackSettings::default(), "ns");
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

    #[tokio::test(start_paused = true)]
    async fn unpack_begins_again_with_another_catalog_source() {
        let down = Arc::new(Down::default());
        let images: Arc<dyn ImageSource> = Arc::clone(&down) as _;
        let unpacks = Unpacks::new(&images);
        for (generation, namespace, next) in [
            (1, "a", UnpackNext::Start),
            (1, "a", UnpackNext::Wait(Duration::from_secs(5))),
            (2, "b", UnpackNext::Start),
            (2, "b", UnpackNext::Wait(Duration::from_secs(5))),
        ] {
            let (decision, _) =
                unpacks.step(&source(generation), &lookup(), UnpackSettings::default(), namespace);
            assert_eq!(decision.next, next, "{generation}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(unpacks.states.lock().values().all(|state| state.namespaces.len() == 2), "both are woken");
        let pulls = down.0.lock().clone();
        tokio::time::sleep(MAX_BACKOFF).await;
        let later = down.0.lock().clone();
        assert!(pulls[&1] == later[&1] && pulls[&2] < later[&2], "{pulls:?} {later:?}");
    }
}
