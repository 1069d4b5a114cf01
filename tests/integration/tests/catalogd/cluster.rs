//! The whole process against a real control plane and a real registry. Each test has a cluster of its own, because every
//! catalogd serves all catalogs of its cluster.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::api::{Api, DeleteParams, PostParams};
use olm_api::{ClusterCatalog, annotations, condition, finalizers, labels};
use olm_kit::{Ca, CatalogImage, Cluster, Process, Program, Registry, Wait, eventually};
use serde_json::json;

use crate::{create, merge, request};

const LIMIT: Duration = Duration::from_secs(60);

struct World {
    cluster: Cluster,
    registry: Registry,
    api: Api<ClusterCatalog>,
    http: reqwest::Client,
}

impl World {
    async fn new() -> Result<Self> {
        let cluster = Cluster::start().await?;
        cluster.install_crds().await?;
        let client = cluster.client().await?;
        Ok(Self {
            registry: Registry::start().await?,
            api: Api::all(client),
            http: Ca::shared()?.http_client()?,
            cluster,
        })
    }

    async fn push(&self, repository: &str, tag: &str, name: &str) -> Result<String> {
        let text = format!("schema: olm.package\nname: {name}\ndefaultChannel: stable\n");
        let pushed = self.registry.push(repository, tag, &CatalogImage::from_text(&text).image()).await?;
        Ok(pushed.digest)
    }

    /// Waits until the status reports this digest as served.
    async fn resolved(&self, name: &str, digest: &str) -> Result<ClusterCatalog> {
        let served = |catalog: &ClusterCatalog| {
            let Some(status) = &catalog.status else { return false };
            let resolved =
                status.resolved_source.as_ref().is_some_and(|s| s.image.reference.ends_with(digest));
            resolved && condition::is_true(&status.conditions, condition::SERVING)
        };
        Wait::new(&self.api, name).within(LIMIT).until(&format!("serves {digest}"), served).await
    }

    /// Waits until the condition has this reason and its message begins so. (An earlier attempt may have failed in other words: a
    /// registry that was slow to answer.)
    async fn progressing(&self, name: &str, reason: &str, begins: &str) -> Result<()> {
        let has = |catalog: &ClusterCatalog| {
            let conditions = catalog.status.as_ref().map(|status| status.conditions.as_slice());
            condition::find(conditions.unwrap_or_default(), condition::PROGRESSING)
                .is_some_and(|found| found.reason == reason && found.message.starts_with(begins))
        };
        let what = format!("Progressing={reason}: {begins}…");
        Wait::new(&self.api, name).within(LIMIT).until(&what, has).await.map(drop)
    }

    /// Status, digest header and body of a catalog's content.
    async fn get(&self, process: &Process, name: &str) -> Result<(u16, String, String)> {
        let url = format!("{}/catalogs/{name}/api/v1/all", process.content_url());
        let answer = self.http.get(url).send().await?;
        let digest = answer.headers().get("olm-catalog-digest").and_then(|value| value.to_str().ok());
        let digest = digest.unwrap_or_default().to_owned();
        Ok((answer.status().as_u16(), digest, answer.text().await?))
    }

    async fn serves(&self, process: &Process, name: &str, digest: &str) -> Result<()> {
        eventually(&format!("{name} is served as {digest}"), LIMIT, || async {
            let (status, served, _) = self.get(process, name).await?;
            ensure!(status == 200 && served == digest, "{status} {served}");
            Ok(())
        })
        .await
    }
}

#[tokio::test]
async fn catalog_lifecycle_from_creation_to_deletion() -> Result<()> {
    let mut world = World::new().await?;
    let one = world.push("life", "latest", "one").await?;
    let reference = format!("{}/life:latest", world.registry.address());
    let mut catalogd = Program::catalogd(&world.cluster)?.start().await?;

    // Served, marked and reported.
    create(&world.api, "life", json!({ "ref": reference, "pollIntervalMinutes": 60 })).await?;
    let catalog = world.resolved("life", &one).await?;
    assert_eq!(
        catalog.metadata.labels.unwrap_or_default().get(labels::METADATA_NAME).map(String::as_str),
        Some("life")
    );
    assert_eq!(catalog.metadata.finalizers, Some(vec![finalizers::DELETE_SERVER_CACHE.to_owned()]));
    let status = catalog.status.unwrap_or_default();
    assert_eq!(status.urls.map(|urls| urls.base), Some(format!("{}/catalogs/life", catalogd.content_url())));
    let (code, digest, body) = world.get(&catalogd, "life").await?;
    assert_eq!((code, digest.as_str()), (200, one.as_str()));
    assert_eq!(body, "{\"defaultChannel\":\"stable\",\"name\":\"one\",\"schema\":\"olm.package\"}\n");

    // A change that is not about the reference resolves the tag again (decision 35), and pulls nothing.
    let count = |process: &Process, words: &str| process.log_text().matches(words).count();
    assert_eq!(count(&catalogd, "resolving"), 1, "{}", catalogd.log_text());
    merge(&world.api, "life", json!({ "spec": { "priority": 7 } })).await?;
    let current = |catalog: &ClusterCatalog| {
        let status = catalog.status.clone().unwrap_or_default();
        status.conditions.iter().all(|c| c.observed_generation == catalog.metadata.generation)
    };
    Wait::new(&world.api, "life").within(LIMIT).until("observed", current).await?;
    eventually("the tag is resolved again", LIMIT, || async {
        let resolved = count(&catalogd, "SpecChanged");
        ensure!(resolved == 1, "{resolved}");
        Ok(())
    })
    .await?;
    assert_eq!(count(&catalogd, "resolving"), 2, "{}", catalogd.log_text());

    // The tag moves: the new content is served, the old directory goes.
    let two = world.push("life", "latest", "two").await?;
    request(&world.api, "life", "1").await?;
    world.resolved("life", &two).await?;
    assert_eq!(world.get(&catalogd, "life").await?.1, two);
    let stored = || -> Vec<String> {
        let entries = std::fs::read_dir(catalogd.cache().join("content")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    };
    eventually("the old content is removed", LIMIT, || async {
        ensure!(stored() == [two.clone()], "{:?}", stored());
        Ok(())
    })
    .await?;

    // A bad new image takes nothing away.
    let broken = CatalogImage::from_text("schema: olm.package\nname: [unclosed\n").image();
    world.registry.push("life", "latest", &broken).await?;
    request(&world.api, "life", "2").await?;
    let words = "error storing fbc: error walking FBC root: error converting YAML to JSON: ";
    world.progressing("life", "Retrying", words).await?;
    assert_eq!(world.get(&catalogd, "life").await?.1, two);
    world.resolved("life", &two).await?;
    let two_again = world.push("life", "latest", "two").await?;
    assert_eq!(two_again, two);
    request(&world.api, "life", "3").await?;
    world.progressing("life", "Succeeded", "").await?;

    // The registry is gone and the process is killed: what is on disk is served again, dated as before.
    let date = world.api.get("life").await?.status.and_then(|status| status.last_unpacked);
    world.registry.child()?.kill();
    catalogd.kill9();
    catalogd.restart().await?;
    assert_eq!(world.get(&catalogd, "life").await?.1, two);
    world.progressing("life", "Retrying", "source catalog content: ").await?;
    let status = world.resolved("life", &two).await?.status.unwrap_or_default();
    assert_eq!(status.last_unpacked, date);

    // Switched off by the user.
    merge(&world.api, "life", json!({ "spec": { "availabilityMode": "Unavailable" } })).await?;
    let off = |catalog: &ClusterCatalog| {
        let status = catalog.status.clone().unwrap_or_default();
        condition::is_false(&status.conditions, condition::SERVING)
            && status.resolved_source.is_none()
            && status.urls.is_none()
            && status.last_unpacked.is_none()
            && catalog.metadata.finalizers.is_none()
    };
    Wait::new(&world.api, "life").within(LIMIT).until("switched off", off).await?;
    assert_eq!(world.get(&catalogd, "life").await?.0, 404);

    // Deletion ends with nothing left, and the process ends with success.
    world.api.delete("life", &DeleteParams::default()).await?;
    Wait::new(&world.api, "life").within(LIMIT).to_be_gone().await?;
    ensure!(catalogd.stop(), "exit code\n{}", catalogd.log_text());
    Ok(())
}

/// The image by the version of the cluster is served and shown; the spec stays as it was written.
#[tokio::test]
async fn catalog_image_follows_a_template() -> Result<()> {
    let world = World::new().await?;
    let version = world.cluster.client().await?.apiserver_version().await?;
    let minor = version.git_version.split('.').nth(1).unwrap_or_default().to_owned();
    let spec = world.push("template", "spec", "one").await?;
    let templated = world.push("template", &format!("v1.{minor}"), "two").await?;
    let repository = format!("{}/template", world.registry.address());
    let reference = format!("{repository}:spec");
    let catalogd = Program::catalogd(&world.cluster)?.start().await?;
    create(&world.api, "template", json!({ "ref": reference })).await?;
    world.resolved("template", &spec).await?;

    let good = format!("{repository}:v{{kube_major_version}}.{{kube_minor_version}}");
    let (yes, no) = ("True/AllTemplatesResolved", "False/UnableToResolve");
    let bad = format!("{repository}:{{foo}}");
    let resolved = "catalog image reference was successfully resolved";
    let syntax =
        "cannot construct catalog image reference, because one or more template(s) has improper syntax";
    for (template, digest, state, message, image) in [
        (Some(&good), &templated, yes, resolved, format!("{repository}:v1.{minor}")),
        (Some(&bad), &spec, no, syntax, bad.clone()),
        (Some(&good), &templated, yes, resolved, format!("{repository}:v1.{minor}")),
        (None, &spec, "absent", "", String::new()),
    ] {
        let annotations = json!({ annotations::CATALOG_IMAGE_TEMPLATE: template });
        merge(&world.api, "template", json!({ "metadata": { "annotations": annotations } })).await?;
        let catalog = world.resolved("template", digest).await?;
        assert_eq!(world.get(&catalogd, "template").await?.1, *digest);
        let conditions = catalog.status.unwrap_or_default().conditions;
        let shown = [condition::TEMPLATES_HAVE_RESOLVED, condition::RESOLVED_IMAGE].map(|type_| {
            condition::find(&conditions, type_).map_or(("absent".to_owned(), ""), |found| {
                (format!("{}/{}", found.status.as_str(), found.reason), found.message.as_str())
            })
        });
        assert_eq!(shown, [(state.to_owned(), message), (state.to_owned(), image.as_str())]);
        let written = catalog.spec.source.image.map(|image| image.reference);
        assert_eq!(written.as_ref(), Some(&reference));
        assert_eq!(catalog.metadata.generation, Some(1), "the spec is never written");
    }
    Ok(())
}

#[tokio::test]
async fn catalog_errors_have_the_reference_messages() -> Result<()> {
    let world = World::new().await?;
    let catalogd = Program::catalogd(&world.cluster)?.start().await?;
    let address = world.registry.address().to_owned();
    let unlabelled = CatalogImage::from_text("schema: olm.package\nname: x\n").without_label().image();
    let unlabelled = world.registry.push("unlabelled", "latest", &unlabelled).await?;
    let missing_label =
        "catalog image is missing the required label \"operators.operatorframework.io.index.configs.v1\"";
    for (name, reference, reason, message) in [
        ("both", format!("{address}/x:1@sha256:{}", "a".repeat(64)), "Blocked", "source catalog content: terminal error: error creating reference: Docker references with both a tag and digest are currently not supported".to_owned()),
        ("upper", format!("{address}/x/Y:1"), "Blocked", "source catalog content: terminal error: error parsing image reference".to_owned()),
        ("no-label-tag", unlabelled.by_tag(), "Retrying", format!("source catalog content: error applying image: {missing_label}")),
        ("no-label-digest", unlabelled.by_digest(), "Blocked", format!("source catalog content: error applying image: terminal error: {missing_label}")),
        ("absent", format!("{address}/absent:1"), "Retrying", "source catalog content: error creating image source: ".to_owned()),
    ] {
        create(&world.api, name, json!({ "ref": reference })).await?;
        world.progressing(name, reason, &message).await?;
        assert_eq!(world.get(&catalogd, name).await?.0, 404, "{name}");
        let status = world.api.get(name).await?.status.unwrap_or_default();
        assert!(condition::find(&status.conditions, condition::SERVING).is_none(), "{name}: {status:?}");
    }

    // Fixing the reference fixes the catalog without a wait.
    let good = world.push("good", "latest", "good").await?;
    let image = json!({ "ref": format!("{address}/good:latest") });
    merge(&world.api, "both", json!({ "spec": { "source": { "image": image } } })).await?;
    world.resolved("both", &good).await?;
    assert_eq!(world.get(&catalogd, "both").await?.1, good);
    Ok(())
}

#[tokio::test]
async fn replicas_serve_through_tag_changes_and_leader_loss() -> Result<()> {
    let world = World::new().await?;
    world.cluster.install_olm().await?;
    let one = world.push("pair", "latest", "one").await?;
    let external = "catalogd.example.com";
    let replica = || {
        Ok::<_, anyhow::Error>(
            Program::catalogd(&world.cluster)?
                .flag("--leader-elect", "true")
                .flag("--external-address", external),
        )
    };
    let mut first = replica()?.start().await?;
    eventually("the first leads", LIMIT, || async {
        ensure!(first.log_text().contains("became leader"));
        Ok(())
    })
    .await?;
    let second = replica()?.start().await?;
    create(&world.api, "pair", json!({ "ref": format!("{}/pair:latest", world.registry.address()) })).await?;
    world.resolved("pair", &one).await?;
    world.serves(&first, "pair", &one).await?;
    world.serves(&second, "pair", &one).await?;

    let two = world.push("pair", "latest", "two").await?;
    request(&world.api, "pair", "1").await?;
    world.resolved("pair", &two).await?;
    world.serves(&first, "pair", &two).await?;
    world.serves(&second, "pair", &two).await?;
    let last_modified = async |process: &Process| -> Result<String> {
        let answer =
            world.http.head(format!("{}/catalogs/pair/api/v1/all", process.content_url())).send().await?;
        let headers = answer.headers();
        let [date, tag] = ["last-modified", "etag"].map(|name| headers.get(name).map(|v| format!("{v:?}")));
        Ok(format!("{date:?} {tag:?}"))
    };
    eventually("both replicas give the same validators", LIMIT, || async {
        let (one, two) = (last_modified(&first).await?, last_modified(&second).await?);
        ensure!(one == two, "{one} {two}");
        Ok(())
    })
    .await?;

    // The leader is killed; the other replica continues to serve, takes over, and follows the tag.
    first.kill9();
    let three = world.push("pair", "latest", "three").await?;
    let took_over = eventually("the second leads", LIMIT, || async {
        let (status, digest, _) = world.get(&second, "pair").await?;
        assert_eq!((status, digest.as_str()), (200, two.as_str()), "content is served all the time");
        ensure!(second.log_text().contains("became leader"));
        Ok(())
    });
    took_over.await?;
    request(&world.api, "pair", "2").await?;
    world.resolved("pair", &three).await?;
    world.serves(&second, "pair", &three).await?;

    // The first comes back with old content on disk and follows.
    first.restart().await?;
    world.serves(&first, "pair", &three).await?;
    Ok(())
}

#[tokio::test]
async fn registry_stall_blocks_no_other_and_secret_grants_access() -> Result<()> {
    let world = World::new().await?;
    let client = world.cluster.client().await?;
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(client, "default");
    let catalogd = Program::catalogd(&world.cluster)?.flag("--global-pull-secret", "default/registry");
    let catalogd = catalogd.start().await?;

    // A registry that accepts connections and never responds, and more catalogs on it than pulls may run at a time.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    for n in 0..10 {
        let image = json!({ "ref": format!("{}/x:1", silent.local_addr()?) });
        create(&world.api, &format!("stalled-{n}"), image).await?;
    }
    let good = world.push("good", "latest", "good").await?;
    create(&world.api, "good", json!({ "ref": format!("{}/good:latest", world.registry.address()) })).await?;
    world.resolved("good", &good).await?;
    world.serves(&catalogd, "good", &good).await?;

    // A first pull that takes a while is reported.
    let begins = format!("pulling catalog content from \"{}/x:1\"", silent.local_addr()?);
    world.progressing("stalled-0", "Pulling", &begins).await?;

    // A registry that requires a password: reported, and served as soon as the secret exists.
    let locked = Registry::start_with_auth().await?;
    let text = "schema: olm.package\nname: locked\n";
    let pushed = locked.push("locked", "latest", &CatalogImage::from_text(text).image()).await?;
    create(&world.api, "locked", json!({ "ref": pushed.by_tag() })).await?;
    world.progressing("locked", "Retrying", "source catalog content: error creating image source: ").await?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "registry" },
        "type": "kubernetes.io/dockerconfigjson", "stringData": { ".dockerconfigjson": locked.docker_config() },
    });
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    world.resolved("locked", &pushed.digest).await?;
    world.serves(&catalogd, "locked", &pushed.digest).await?;
    Ok(())
}
