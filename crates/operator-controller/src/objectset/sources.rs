//! Sources that wake the revision controller.

use std::sync::Arc;

use olm_api::{ClusterObjectSet, labels};
use olm_runtime::controller::Source;
use olm_runtime::watched::{Change, Object};

use super::{Context, extensions};

type Changed = Change<String, Object<ClusterObjectSet>>;

/// The table. Beside it, a pass asks to be repeated for its deadline and after failures.
pub(super) fn sources(context: &Arc<Context>) -> Vec<Source> {
    let [gone, siblings, paused] = std::array::from_fn(|_| Arc::clone(context));
    vec![
        Source::new(
            "it changed, other than by the answer to its own pass",
            context.revisions.subscribe(),
            move |change| {
                if let (Some(last), None) = (&change.before, &change.after) {
                    gone.evict(&change.key, &last.uid());
                }
                (!change.is_answer).then_some(change.key)
            },
        ),
        Source::new(
            "the order of its siblings depends on it",
            context.revisions.subscribe(),
            move |change| {
                let extension = ordered(&change);
                let names = extension.map(|extension| siblings.revisions.names_of_extension(extension));
                names.into_iter().flatten().filter(|name| *name != change.key).collect::<Vec<_>>()
            },
        ),
        Source::new(
            "its ClusterExtension is paused, resumed, deleted or has another policy",
            context.extensions.0.subscribe(),
            move |change| {
                if extensions::concerns(&change) {
                    paused.revisions.names_of_extension(&change.key)
                } else {
                    Vec::new()
                }
            },
        ),
        Source::new(
            "an object, a content Secret or something that it waits for changed",
            context.waker.names(),
            |name| [name],
        ),
    ]
}

/// The extension of a revision that appeared, went, is being deleted or has another spec.
fn ordered(change: &Changed) -> Option<&str> {
    let concerns = change.concerns(|set| (set.meta().generation, set.meta().deletion_timestamp.is_some()));
    change.latest().filter(|_| concerns)?.label(labels::OWNER_NAME)
}
