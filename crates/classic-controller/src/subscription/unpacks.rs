//! Images of bundles that are being pulled and read in the process, and those that were read a short time ago.
//!
//! Rule: classic-apis §5.5, decision 53.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use olm_api::classic::CatalogSource;
use olm_api::classic::install_plan::BundleLookup;
use olm_classic::install_plan::{UnpackDecision, UnpackNext, UnpackObserved, UnpackSettings, decide_unpack};
use olm_core::Object;
use olm_runtime::controller::Waker;
use olm_runtime::watched;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::image_source::ImageSource;

/// How long the objects of a bundle stay in memory: from resolution to the end of its plan.
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
    _task: Option<AbortOnDropHandle<()>>,
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
        let observed = match states.get_mut(&key) {
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
        let decision = decide_unpack(lookup, &observed, settings, now);
        match decision.next {
            UnpackNext::Start => {
                let task = self.pull(key.clone(), Arc::clone(source));
                let state = State {
                    progress: Progress::Running { since: now, problem: None },
                    namespaces: BTreeSet::from([namespace.to_owned()]),
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
                        if let Some(State { progress: Progress::Running { problem, .. }, .. }) =
                            states.lock().get_mut(&key)
                        {
                            *problem = Some(error.message);
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
