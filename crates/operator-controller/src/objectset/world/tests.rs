use std::sync::atomic::Ordering;

use futures::FutureExt as _;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::runtime::watcher::{self, Event};
use olm_core::Object;
use serde_json::json;
use tokio::sync::watch;

use super::awaited::AWAITED;
use super::kind::{Follower, Objects, config};
use super::*;
use crate::kinds::Kind;
use crate::objectset::live::{Live, ObjectRef};
use crate::testing::{Apiserver, assert_panic_exits, panics_at};

/// Watches of a client that reaches nothing: they try for ever.
fn world() -> World {
    olm_runtime::tls::install_provider();
    let nowhere = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
    World::new(Client::try_from(nowhere).unwrap(), Waker::default())
}

#[test]
fn world_lists_large_objects_in_small_pages() {
    for (group, kind, page, fields) in [
        ("", "ConfigMap", 500, None),
        ("", "Secret", 500, Some("type!=olm.operatorframework.io/object-data")),
        ("apiextensions.k8s.io", "CustomResourceDefinition", 100, None),
    ] {
        let found = config(&GroupVersionKind::gvk(group, "v1", kind));
        assert_eq!((found.page_size, found.field_selector.as_deref()), (Some(page), fields), "{kind}");
        assert_eq!(found.label_selector.as_deref(), Some(olm_api::labels::OWNER_NAME), "{kind}");
    }
}

#[tokio::test]
async fn world_keeps_watches_that_are_named_again() {
    let world = world();
    let tasks = || -> Vec<(String, bool)> {
        let foreign = world.foreign.0.lock();
        let all = foreign.get("e-1").into_iter().flatten();
        all.map(|awaited| (awaited.what.1.clone(), awaited.task.is_finished())).collect()
    };
    world.wait_for_named::<Namespace>("e-1", None, "a");
    world.wait_for_named::<Namespace>("e-1", None, "b");
    let first = world.foreign.0.lock()["e-1"][0].task.clone();
    let second = world.foreign.0.lock()["e-1"][1].task.clone();
    world.begin_waits("e-1");
    world.wait_for_named::<Namespace>("e-1", None, "a");
    world.wait_for_named::<Namespace>("e-1", None, "c");
    world.end_waits("e-1");
    assert_eq!(tasks(), [("a".to_owned(), false), ("c".to_owned(), false)]);
    assert_eq!(world.foreign.0.lock()["e-1"][0].task.id(), first.id(), "the same watch");
    let ended = async {
        while !second.is_finished() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap();
    // one that has woken the revision is of no use any more
    world.foreign.0.lock()["e-1"][0].is_spent.store(true, Ordering::Release);
    world.wait_for_named::<Namespace>("e-1", None, "a");
    assert!(world.foreign.0.lock()["e-1"].iter().all(|awaited| awaited.task.id() != first.id()));
    for number in 0..2 * AWAITED {
        world.wait_for_named::<Namespace>("e-1", None, &number.to_string());
    }
    assert_eq!(tasks().len(), AWAITED);
    world.stop_waiting("e-1");
    assert!(tasks().is_empty());
}

#[test]
fn object_watch_panic_exits() {
    let world = |path| World::new(panics_at(path), Waker::default());
    let (module, test) = (module_path!(), "object_watch_panic_exits");
    assert_panic_exits(module, test, "watch of an awaited object", async || {
        let world = world("/namespaces");
        world.wait_for_named::<Namespace>("e-1", None, "a");
        world
    });
    assert_panic_exits(module, test, "watch of configmaps", async || world("/configmaps").start().await);
}

impl World {
    /// A watch of ConfigMaps, whether the client reaches anything or not.
    async fn start(&self) -> Arc<KindWatch> {
        let interest = Interest {
            gvk: GroupVersionKind::gvk("", "v1", "ConfigMap"),
            waker: self.waker.clone(),
            waiting: Arc::clone(&self.waiting),
            users: Arc::new(Mutex::new([("u1".to_owned(), "e-1".to_owned())].into())),
        };
        Arc::new(KindWatch::start(&self.client, config_maps(), interest))
    }

    fn insert(&self, watch: &Arc<KindWatch>) {
        self.watches.lock().insert(watch.interest.gvk.clone(), Arc::clone(watch));
    }

    /// Who was woken since the last call.
    fn woken(&self) -> Vec<String> {
        woken(&self.waker)
    }
}

fn woken(waker: &Waker) -> Vec<String> {
    let mut names = Box::pin(waker.names());
    std::iter::from_fn(|| names.next().now_or_never().flatten()).collect()
}

fn config_maps() -> Kind {
    Kind { resource: ApiResource::erase::<ConfigMap>(&()), namespaced: true }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey {
        group: String::new(),
        version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: Some("n".into()),
        name: name.into(),
    }
}

fn place(name: &str) -> ObjectRef {
    ("n".to_owned(), name.to_owned())
}

fn live(version: u64) -> Live {
    let labels = json!({(olm_api::labels::OWNER_NAME): "e"});
    let object = json!({"metadata": {"name": "a", "resourceVersion": version.to_string(), "labels": labels}});
    Live::new(Object::from_value(object).unwrap())
}

fn owned(version: u64, owners: &[&str]) -> Live {
    let mut live = live(version);
    live.owners = owners.iter().map(|&owner| owner.to_owned()).collect();
    live
}

fn row((place, version): (&ObjectRef, u64)) -> (ObjectRef, Live) {
    (place.clone(), live(version))
}

#[test]
fn world_late_answer_does_not_restore_a_deleted_object() {
    let (a, objects) = (place("a"), Objects::new());
    let version = || objects.live.get(&a).map(|live| live.version);
    objects.apply(Event::Delete((&a, 7)), row);
    objects.put(a.clone(), live(6), 0);
    assert_eq!(version(), None, "it was written before the deletion");
    objects.put(a.clone(), live(8), 0);
    assert_eq!(version().as_deref(), Some("8"), "it was created again");
    objects.put(a.clone(), live(7), 0);
    assert_eq!(version().as_deref(), Some("8"), "an older state");
}

/// The object was created and deleted while the watch was down, and the creation is answered last.
#[test]
fn answer_from_before_a_listing_restores_nothing() {
    let (a, objects) = (place("a"), Objects::new());
    objects.apply(Event::<(&ObjectRef, u64)>::InitDone, row);
    let begun = objects.listings();
    for event in [Event::Init, Event::InitApply((&place("b"), 3)), Event::InitDone] {
        objects.apply(event, row);
    }
    objects.put(a.clone(), live(5), begun);
    assert!(objects.live.get(&a).is_none(), "the listing did not have it");
    objects.put(a.clone(), live(6), objects.listings());
    assert!(objects.live.get(&a).is_some(), "written after the listing");
}

/// The answer to a creation and the deletion by a rival arrive at the same time on two threads.
#[test]
fn world_late_answer_beside_a_deletion_restores_nothing() {
    let (a, objects, turn) = (place("a"), Objects::new(), std::sync::Barrier::new(2));
    let rounds = 20_000;
    let mut restored = None;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=rounds {
                turn.wait();
                objects.put(a.clone(), live(2 * round), 0);
                turn.wait();
            }
        });
        for round in 1..=rounds {
            turn.wait();
            objects.apply(Event::Delete((&a, 2 * round + 1)), row);
            turn.wait();
            if objects.live.get(&a).is_some() {
                restored = Some(round);
            }
        }
    });
    assert_eq!(restored, None, "restored in this round");
}

/// The other end of a watch: a test gives it events and errors.
fn follower(waiting: &[(&str, &str)]) -> Follower {
    let gvk = GroupVersionKind::gvk("", "v1", "ConfigMap");
    let waiting = waiting
        .iter()
        .map(|(object, revision)| ((gvk.clone(), place(object)), [(*revision).to_owned()].into()))
        .collect();
    let users = [("u1", "e-1"), ("u9", "e-9")].map(|(uid, name)| (uid.to_owned(), name.to_owned()));
    Follower {
        kind: config_maps(),
        interest: Interest {
            gvk,
            waker: Waker::default(),
            waiting: Arc::new(Mutex::new(waiting)),
            users: Arc::new(Mutex::new(users.into())),
        },
        objects: Objects::new(),
        state: watch::Sender::new(Synced::NotYet),
    }
}

impl Follower {
    /// Applies events about the object `a` and returns who was woken.
    fn woken_by(&self, events: impl IntoIterator<Item = Event<Live>>) -> Vec<String> {
        events.into_iter().for_each(|event| self.apply(event, |live| (place("a"), live)));
        woken(&self.interest.waker)
    }

    fn put(&self, mut live: Live, by: &str) {
        live.known_to = Some(by.to_owned());
        self.objects.put(place("a"), live, self.objects.listings());
    }
}

#[test]
fn world_own_write_wakes_only_the_others() {
    let follower = follower(&[("a", "e-2")]);
    let woken = |live: Live| follower.woken_by([Event::Apply(live)]);
    follower.put(owned(5, &["e-1"]), "e-1");
    assert_eq!(woken(owned(5, &["e-1"])), ["e-2"], "the answer's own state");
    assert!(woken(owned(5, &["e-1"])).is_empty(), "shown again");
    assert!(woken(owned(4, &["e-1"])).is_empty(), "an older state");
    assert_eq!(woken(owned(6, &["e-3"])), ["e-1", "e-2", "e-3"], "another owner");
}

#[test]
fn listing_wakes_all_that_it_concerns() {
    let follower = follower(&[("a", "e-3")]);
    let listing = |listed: Option<Live>| {
        let listed = listed.map(Event::InitApply);
        follower.woken_by([Event::Init].into_iter().chain(listed).chain([Event::InitDone]))
    };
    assert_eq!(listing(Some(owned(4, &["e-1", "e-2"]))), ["e-1", "e-2", "e-3"]);
    assert!(listing(Some(owned(4, &["e-1", "e-2"]))).is_empty(), "nothing was missed");
    // one of them wrote it, and the event was missed
    follower.put(owned(5, &["e-1", "e-2"]), "e-1");
    assert_eq!(listing(Some(owned(5, &["e-1", "e-2"]))), ["e-2", "e-3"], "e-1 knows what it wrote");
    assert_eq!(listing(Some(owned(6, &["e-4"]))), ["e-1", "e-2", "e-3", "e-4"], "a change was missed");
    assert_eq!(listing(None), ["e-3", "e-4"], "the deletion was missed");
}

/// A request finds an object gone. Its deletion may be in a gap of the watch, and then no event shows it.
#[tokio::test]
async fn eviction_wakes_the_others() {
    let world = world();
    let watch = world.start().await;
    let waits = ((watch.interest.gvk.clone(), place("a")), ["e-3".to_owned()].into());
    world.waiting.lock().extend([waits]);
    watch.put(&key("a"), owned(5, &["e-1", "e-2"]), "e-1", 0);
    watch.remove(&key("a"), "4", "e-1");
    assert!(watch.get(&key("a")).is_some() && world.woken().is_empty(), "it was created again since");
    watch.remove(&key("a"), "5", "e-1");
    assert!(watch.get(&key("a")).is_none());
    assert_eq!(world.woken(), ["e-2", "e-3"]);
    watch.remove(&key("a"), "5", "e-2");
    assert!(world.woken().is_empty(), "it was gone before");
}

/// The object was deleted while the request was on its way, unseen; no event about it comes any more.
#[tokio::test]
async fn world_late_answer_about_a_gone_object_wakes_its_revision() {
    let world = world();
    let watch = world.start().await;
    let begun = watch.listings();
    watch.put(&key("a"), owned(5, &["e-1"]), "e-1", begun + 1);
    assert!(watch.get(&key("a")).is_none());
    assert_eq!(world.woken(), ["e-1"]);
    watch.put(&key("a"), owned(6, &["e-1"]), "e-1", begun);
    watch.put(&key("a"), owned(5, &["e-1"]), "e-1", begun + 1);
    assert!(world.woken().is_empty(), "the watch has it");
}

/// A user removed the label, and the event that shows that as a deletion is late.
#[tokio::test]
async fn answer_without_the_label_wakes_the_others() {
    let world = world();
    let watch = world.start().await;
    watch.put(&key("a"), owned(5, &["e-1", "e-2"]), "e-2", 0);
    assert!(world.woken().is_empty());
    let mut unlabelled = owned(7, &["e-2"]);
    unlabelled.is_labelled = false;
    watch.put(&key("a"), unlabelled, "e-1", 0);
    assert!(watch.get(&key("a")).is_none());
    assert_eq!(world.woken(), ["e-2"]);
}

fn error(code: u16) -> watcher::Error {
    let status = kube::core::Status { code, ..kube::core::Status::default() };
    watcher::Error::InitialListFailed(kube::Error::Api(status.boxed()))
}

#[test]
fn watch_that_fails_later_wakes_its_users() {
    let follower = follower(&[]);
    let woken_by_error = |code| {
        follower.failed(&error(code));
        woken(&follower.interest.waker)
    };
    assert!(woken_by_error(404).is_empty(), "they wait for the first listing");
    assert_eq!(follower.woken_by([Event::InitDone]), ["e-1", "e-9"], "it was served later");
    assert!(woken_by_error(500).is_empty(), "it is restarted");
    assert_eq!(woken_by_error(404), ["e-1", "e-9"], "the kind is gone");
    assert!(woken_by_error(404).is_empty(), "they know");
    assert!(matches!(&*follower.state.borrow(), Synced::Failed { gone: true, .. }));
}

#[test]
fn watch_failure_has_the_words_of_the_apiserver() {
    let follower = follower(&[]);
    let refused = || kube::core::Status { code: 403, message: "no".into(), ..kube::core::Status::default() };
    for error in [
        watcher::Error::InitialListFailed(kube::Error::Api(refused().boxed())),
        watcher::Error::WatchError(refused().boxed()),
    ] {
        follower.failed(&error);
        let want = Synced::Failed { problem: "no".to_owned(), gone: false };
        assert_eq!(*follower.state.borrow(), want, "{error}");
    }
}

#[tokio::test]
async fn world_drops_the_watch_that_failed_and_no_later_one() {
    let world = world();
    let (failed, later) = (world.start().await, world.start().await);
    world.insert(&failed);
    assert!(world.drop_watch(&failed));
    world.insert(&later);
    assert!(!world.drop_watch(&failed), "another user has dropped it, and a third one began the next");
    assert!(Arc::ptr_eq(&world.watches.lock()[&later.interest.gvk], &later));
}

#[tokio::test]
async fn world_drops_a_watch_only_if_discovery_lacks_the_kind() {
    for (served, kind) in [(true, "ConfigMap"), (false, "Other")] {
        let resource = json!({"name": "configmaps", "kind": kind, "namespaced": true, "verbs": ["list"], "singularName": ""});
        let list = json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [resource]});
        let apiserver = Apiserver::new(move |_, uri| match uri {
            "/api/v1" => (200, list.clone()),
            _ => (500, json!({})),
        });
        let world = World::new(apiserver.client(), Waker::default());
        let watch = world.start().await;
        world.insert(&watch);
        world.check_served(&watch).await;
        assert_eq!(world.watches.lock().len(), usize::from(served));
        assert_eq!(world.woken().is_empty(), served, "its users find out");
    }
}
