//! A strict signature policy: unsigned content is neither served nor installed, and that is reported; signed content is.

use anyhow::{Context as _, Result};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use olm_api::{ClusterCatalog, annotations, condition};
use olm_kit::{CatalogImage, Entry, Options, Package, Signer, Stack, Wait, eventually};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::world::{LIMIT, World};

/// Everything must be signed with this key.
async fn strict() -> Result<&'static (Stack, Signer, String)> {
    static STRICT: OnceCell<(Stack, Signer, String)> = OnceCell::const_new();
    STRICT
        .get_or_try_init(|| async {
            let signer = Signer::new()?;
            let file = std::env::temp_dir().join(olm_kit::unique("policy.json"));
            std::fs::write(&file, json!({"default": [signer.requirement()]}).to_string())?;
            let file = file.display().to_string();
            let flag = |program: olm_kit::Program| program.flag("--signature-policy", &file);
            let stack = Stack::start_with(&Options::default(), flag).await?;
            Ok((stack, signer, file))
        })
        .await
}

#[tokio::test]
async fn signature_policy_requires_signed_catalogs_and_bundles() -> Result<()> {
    let (stack, signer, policy) = strict().await?;
    let world = World::on(stack, "signed").await?;
    let name = &world.name;
    let registry = &stack.registry;
    let bundle = world.bundle("1.0.0").image();
    let bundle = registry.push(&format!("{name}/bundle"), "v1.0.0", &bundle).await?;
    let package =
        Package::new(name).channel("stable", [Entry::new("1.0.0")]).bundle("1.0.0", &bundle.by_digest());
    let image = CatalogImage::new().package(&package).image();
    let catalog = registry.push(&format!("{name}/catalog"), "latest", &image).await?;
    world.catalog(&catalog.by_digest()).await?;

    let refused = |image: &str| {
        format!(
            "error copying image: Source image rejected: A signature was required, but no signature exists; sign \
             {image} as the default of {policy} demands, or change the policy"
        )
    };
    let progressing = world.catalog_progressing("Retrying", "Source image rejected").await?;
    let full = format!("source catalog content: {}", refused(&catalog.by_digest()));
    assert_eq!(progressing.message.lines().last(), Some(full.as_str()));
    let first = progressing.message.lines().next().unwrap_or_default();
    let client = stack.cluster.client().await?;
    let catalogs: Api<ClusterCatalog> = Api::all(client.clone());
    let events: Api<Event> = Api::all(client);
    let event = async |reason: &str, words: &str| -> Result<String> {
        eventually(&format!("event {reason}: …{words}…"), LIMIT, || async {
            let all = events.list(&ListParams::default()).await?;
            all.items
                .into_iter()
                .find(|event| {
                    event.reason.as_deref() == Some(reason)
                        && event.regarding.as_ref().is_some_and(|about| about.name.as_ref() == Some(name))
                        && event.note.as_ref().is_some_and(|note| note.contains(words))
                })
                .and_then(|event| event.note)
                .context("not reported yet")
        })
        .await
    };
    assert_eq!(event("Retrying", first).await?, first);

    registry.sign(&catalog, signer).await?;
    let now = Patch::Merge(json!({"metadata": {"annotations": {annotations::REQUESTED_AT: "now"}}}));
    catalogs.patch(name, &PatchParams::default(), &now).await?;
    let served = |catalog: &ClusterCatalog| {
        let status = catalog.status.clone().unwrap_or_default();
        condition::is_true(&status.conditions, condition::SERVING)
    };
    Wait::new(&catalogs, name).within(LIMIT).until("is served", served).await?;
    let verified = format!("{} is signed by key keyData", catalog.by_digest());
    assert_eq!(event("SignatureVerified", &verified).await?, verified);

    world.want(json!({})).await?;
    let message = world.progressing("Retrying", &refused(&bundle.by_digest())).await?;
    assert!(message.ends_with(&refused(&bundle.by_digest())), "{message}");
    let ready = world.extensions.get(name).await?;
    let ready = crate::world::current(&ready, condition::READY).context("no Ready")?;
    assert_eq!(ready.status.as_str(), "False");
    event("SignatureRefused", "").await?;
    assert!(world.revisions().await?.is_empty(), "nothing is made of it");

    registry.sign(&bundle, signer).await?;
    world.extensions.patch(name, &PatchParams::default(), &now).await?;
    world.installed("1.0.0").await?;
    Ok(())
}
