//! The signature policy with a registry: the search for signatures, the cache of results, and the read that follows.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use olm_core::{Digest, ImageRef};
use olm_oci::{Error, Puller, Retry, SignaturePolicy};
use serde_json::{Value, json};

use crate::support::{self, Client, INDEX, MANIFEST, Pushed, Registry, Reply, layer};
use olm_signature::testing::{self as signing, BEGIN, EMAIL, Fulcio, ISSUER, Key, Rekor};

const SIMPLE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

fn image(content: &str) -> Pushed {
    Pushed::new([layer(&[("catalog.json", content)])])
}

/// A client whose policy has this requirement for every image.
fn client(registries: &[&Registry], mut requirement: Value) -> Client {
    let mut client = Client::new(registries);
    requirement["type"] = json!("sigstoreSigned");
    demand(&client, requirement);
    client.config.signature_policy = client.path("policy.json").to_str().unwrap().parse().unwrap();
    client.config.verdicts = Some(client.path("verdicts"));
    client
}

fn demand(client: &Client, requirement: Value) {
    std::fs::write(client.path("policy.json"), json!({ "default": [requirement] }).to_string()).unwrap();
}

fn by_key(key: &Key) -> Value {
    json!({ "keyData": STANDARD.encode(key.public()), "signedIdentity": { "type": "matchRepository" } })
}

fn payload(reference: &ImageRef, digest: &Digest) -> Vec<u8> {
    signing::payload(&reference.name(), digest.as_str())
}

/// Puts signatures where cosign does.
fn attach(registry: &Registry, repository: &str, image: &Digest, signatures: &[(Vec<u8>, Value)]) {
    let layers: Vec<Value> = signatures
        .iter()
        .map(|(payload, annotations)| {
            let digest = registry.blob(payload);
            json!({ "mediaType": SIMPLE, "digest": digest.to_string(), "size": payload.len(), "annotations": annotations })
        })
        .collect();
    let config = registry.blob(b"{}");
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": config.to_string(), "size": 2 },
        "layers": layers,
    });
    let tag = format!("sha256-{}.sig", image.hex());
    registry.manifest(repository, Some(&tag), MANIFEST, manifest.to_string().as_bytes());
}

fn annotations(signature: &[u8]) -> Value {
    json!({ "dev.cosignproject.cosign/signature": STANDARD.encode(signature) })
}

fn sign(registry: &Registry, reference: &ImageRef, image: &Digest, key: &Key) {
    let payload = payload(reference, image);
    let signature = annotations(&key.sign(&payload));
    attach(registry, reference.repository(), image, &[(payload, signature)]);
}

async fn verify(puller: &Puller, reference: &ImageRef) -> Result<olm_oci::Verified, Error> {
    let canonical = puller.resolve(reference).await?;
    puller.verify(reference, &canonical).await
}

fn rejected(got: Result<impl std::fmt::Debug, Error>) -> String {
    let error = got.unwrap_err();
    assert!(error.is_rejection(), "{error}");
    assert_eq!(error.retry(), Retry::Slow);
    let text = error.to_string();
    assert!(text.starts_with("error copying image: Source image rejected: "), "{text}");
    text
}

/// The error of a policy that cannot be used names file and flag. GPG fails only the images that need it.
#[tokio::test]
async fn policy_that_cannot_be_used_names_file_and_flag() {
    let (registry, mut client) = support::start().await;
    registry.push("cat", Some("1"), &image("x"));
    let file = client.path("policy.json");
    client.config.signature_policy = SignaturePolicy::File(file.clone());
    let puller = client.puller();
    let reference = registry.reference("cat:1");
    let gpg = json!({"type": "signedBy", "keyType": "GPGKeys", "keyPath": "/k"});
    let missing_key = json!({"type": "sigstoreSigned", "keyPath": "/nonexistent"});
    for requirement in [None, Some(json!({"type": "unknown"})), Some(missing_key)] {
        if let Some(requirement) = &requirement {
            demand(&client, requirement.clone());
        }
        let error = puller.check_policy().unwrap_err().to_string();
        assert!(error.contains(&file.display().to_string()), "{requirement:?}: {error}");
        assert!(error.contains("--signature-policy"), "{requirement:?}: {error}");
        let error = puller.open(&reference).await.unwrap_err();
        assert!(error.is_of_policy(), "{requirement:?}: {error}");
    }
    for requirement in [json!({"type": "reject"}), gpg] {
        demand(&client, requirement);
        puller.check_policy().unwrap();
        let error = puller.open(&reference).await.unwrap_err();
        assert!(error.is_rejection(), "{error}");
    }
    assert!(registry.take_log().is_empty());
    demand(&client, json!({"type": "insecureAcceptAnything"}));
    puller.open(&reference).await.unwrap();
}

#[tokio::test]
async fn signature_is_verified_once_before_reading() {
    let registry = Registry::start().await;
    let (key, other) = (Key::new(), Key::new());
    let digest = registry.push("cat", Some("1"), &image("one"));
    let client = client(&[&registry], by_key(&key));
    let puller = client.puller();
    let reference = registry.reference("cat:1");

    let text = rejected(puller.open(&reference).await);
    assert_eq!(
        text,
        format!(
            "error copying image: Source image rejected: A signature was required, but no signature exists; sign \
             {}@{digest} as the default of {} demands, or change the policy",
            reference.name(),
            client.path("policy.json").display()
        )
    );
    let asked = registry.take_log();
    assert!(asked.iter().all(|line| !line.contains("/blobs/")), "nothing of the image is read: {asked:?}");
    assert!(asked.contains(&format!("GET /v2/cat/manifests/sha256-{}.sig", digest.hex())), "{asked:?}");
    assert!(asked.contains(&format!("GET /v2/cat/referrers/{digest}")), "{asked:?}");

    sign(&registry, &reference, &digest, &other);
    let text = rejected(puller.open(&reference).await);
    assert!(text.contains("reasons: signature 1 of sha256-"), "{text}");
    assert!(!puller.accepts_stored(&reference, &digest).unwrap());
    sign(&registry, &reference, &digest, &key);
    puller.open(&reference).await.unwrap();
    assert_eq!(verify(&puller, &reference).await.unwrap().canonical().digest(), Some(&digest));
    assert!(puller.accepts_stored(&reference, &digest).unwrap());

    registry.take_log();
    let canonical = puller.resolve(&reference).await.unwrap();
    puller.verify(&reference, &canonical).await.unwrap();
    assert_eq!(registry.take_log().len(), 1, "only the tag is asked for");
    // another process finds the cached result, and verifies again if the policy differs
    let restarted = client.puller();
    restarted.verify(&reference, &canonical).await.unwrap();
    assert!(registry.take_log().is_empty());
    demand(&client, json!({ "type": "sigstoreSigned", "keyData": STANDARD.encode(other.public()) }));
    assert!(!restarted.accepts_stored(&reference, &digest).unwrap());
    rejected(restarted.verify(&reference, &canonical).await);
}

#[tokio::test]
async fn signature_verified_digest_is_read() {
    let registry = Registry::start().await;
    let key = Key::new();
    let signed = registry.push("cat", Some("1"), &image("signed"));
    let client = client(&[&registry], by_key(&key));
    let puller = client.puller();
    let reference = registry.reference("cat:1");
    sign(&registry, &reference, &signed, &key);
    let verified = verify(&puller, &reference).await.unwrap();
    // the tag moves to an unsigned image between the check and the reading
    let evil = registry.push("cat", Some("1"), &image("evil"));
    assert_eq!(puller.open_verified(&verified).await.unwrap().canonical.digest(), Some(&signed));
    rejected(puller.open(&reference).await);
    // nor does it help to hand out the signature of the other image
    let payload = payload(&reference, &signed);
    let replayed = annotations(&key.sign(&payload));
    attach(&registry, "cat", &evil, &[(payload, replayed)]);
    let text = rejected(puller.open(&reference).await);
    assert!(text.contains(&format!("it is for the digest {signed}, not for {evil}")), "{text}");
    // nor to move the tag during the verification
    let (flip, target) = (std::sync::atomic::AtomicBool::new(false), signed.clone());
    let (bytes, other) = (signed.to_string(), evil.to_string());
    registry.hook(move |request| {
        if request.method != "HEAD" || !request.target.ends_with("/manifests/1") {
            return None;
        }
        let first = !flip.swap(true, std::sync::atomic::Ordering::SeqCst);
        Some(Reply::new(200, "").header("Docker-Content-Digest", if first { &bytes } else { &other }))
    });
    assert_eq!(puller.open(&reference).await.unwrap().canonical.digest(), Some(&target));
    rejected(puller.open(&reference).await);
}

#[tokio::test]
async fn signature_may_be_of_index_or_image() {
    let registry = Registry::start().await;
    let key = Key::new();
    let index = |name: &str, content: &str| {
        let child = registry.push(name, None, &image(content));
        let size = 1;
        let index = json!({
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": [{
                "mediaType": MANIFEST, "digest": child.to_string(), "size": size,
                "platform": { "os": "linux", "architecture": "amd64" },
            }],
        });
        (registry.manifest(name, Some("1"), INDEX, index.to_string().as_bytes()), child)
    };
    let (whole, _) = index("whole", "a");
    let (_, child) = index("each", "b");
    let client = client(&[&registry], by_key(&key));
    let puller = client.puller();
    for (repository, signed) in [("whole", whole), ("each", child)] {
        let reference = registry.reference(&format!("{repository}:1"));
        rejected(puller.open(&reference).await);
        sign(&registry, &reference, &signed, &key);
        puller.open(&reference).await.unwrap();
    }
}

/// Attaches a bundle as cosign 3 does; the digest of its manifest.
fn refer(registry: &Registry, repository: &str, bundle: &Value) -> Digest {
    let bytes = bundle.to_string();
    let blob = registry.blob(bytes.as_bytes());
    let config = registry.blob(b"{}");
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": BUNDLE,
        "config": { "mediaType": "application/vnd.oci.empty.v1+json", "digest": config.to_string(), "size": 2 },
        "layers": [{ "mediaType": BUNDLE, "digest": blob.to_string(), "size": bytes.len() }],
    });
    registry.manifest(repository, None, MANIFEST, manifest.to_string().as_bytes())
}

fn referrers(manifests: &[Digest]) -> String {
    let manifests: Vec<Value> = manifests
        .iter()
        .map(|digest| json!({ "mediaType": MANIFEST, "digest": digest.to_string(), "size": 9, "artifactType": BUNDLE }))
        .chain([json!({ "mediaType": MANIFEST, "digest": format!("sha256:{}", "0".repeat(64)), "size": 9, "artifactType": "sbom" })])
        .collect();
    json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests }).to_string()
}

#[tokio::test]
async fn signature_bundles_are_found_by_api_and_tag() {
    let registry = Registry::start().await;
    let (fulcio, rekor) = (Fulcio::new(), Rekor::new());
    let who = fulcio.certify(signing::email(EMAIL), ISSUER);
    let client = client(
        &[&registry],
        json!({
            "fulcio": {
                "caData": STANDARD.encode(format!("{}{}", fulcio.root, fulcio.intermediate)),
                "oidcIssuer": ISSUER,
                "subjectEmail": EMAIL,
            },
            "rekorPublicKeyData": STANDARD.encode(rekor.0.public()),
            "signedIdentity": { "type": "matchDigest" },
        }),
    );
    let puller = client.puller();
    let made = |digest: &Digest| {
        let statement = signing::statement("", digest.as_str());
        let signature = who.key.sign(&signing::envelope(&statement));
        let entry = signing::dsse_entry(&statement, &signature, &who.pem);
        signing::bundle(&statement, &signature, Some(&who.der), Some(rekor.bundled(&entry, BEGIN)))
    };
    let (one, two) =
        (registry.push("cat", Some("1"), &image("1")), registry.push("cat", Some("2"), &image("2")));
    // a signature of the other image precedes the right one
    let manifests = [refer(&registry, "cat", &made(&two)), refer(&registry, "cat", &made(&one))];
    registry.manifest("cat", Some(&format!("sha256-{}", one.hex())), INDEX, referrers(&manifests).as_bytes());
    let by_tag = registry.reference("cat:1");
    let verified = verify(&puller, &by_tag).await.unwrap();
    assert_eq!(verified.signer(), Some(format!("{EMAIL:?} of {ISSUER}").as_str()));

    let list = referrers(&[refer(&registry, "cat", &made(&two))]);
    let asked = format!("/v2/cat/referrers/{two}");
    registry.hook(move |request| {
        (request.target == asked).then(|| Reply::new(200, list.clone()).header("Content-Type", INDEX))
    });
    verify(&puller, &registry.reference("cat:2")).await.unwrap();
}

#[tokio::test]
async fn signature_lookup_continues_after_mirror() {
    let (registry, mirror) = (Registry::start().await, Registry::start().await);
    let key = Key::new();
    let digest = registry.push("cat", Some("1"), &image("one"));
    mirror.push("copy/cat", Some("1"), &image("one"));
    let client = client(&[&registry], by_key(&key));
    client.registries_conf(&format!(
        "[[registry]]\nlocation = '{}'\ninsecure = true\n[[registry.mirror]]\nlocation = '{}/copy'\ninsecure = true\n",
        registry.address, mirror.address
    ));
    let puller = client.puller();
    let reference = registry.reference("cat:1");
    sign(&registry, &reference, &digest, &key);
    puller.open(&reference).await.unwrap();
    assert!(mirror.take_log().iter().any(|line| line.ends_with(".sig")));
    // the name in the signature is that of the image, wherever it was found
    sign(&mirror, &"mirror.test/copy/cat:1".parse().unwrap(), &digest, &key);
    registry.hook(|request| request.target.contains(".sig").then(|| Reply::error(404, "MANIFEST_UNKNOWN")));
    std::fs::remove_file(client.path("verdicts")).unwrap();
    rejected(client.puller().open(&reference).await);
}

#[tokio::test]
async fn signature_lookup_errors_are_not_rejections() {
    let registry = Registry::start().await;
    let key = Key::new();
    let digest = registry.push("cat", Some("1"), &image("one"));
    let client = client(&[&registry], by_key(&key));
    let puller = client.puller();
    let reference = registry.reference("cat:1");
    let good = || {
        let payload = payload(&reference, &digest);
        let signature = annotations(&key.sign(&payload));
        (payload, signature)
    };
    for broken in ["sig", "referrers"] {
        registry.hook(move |request| request.target.contains(broken).then(|| Reply::error(403, "DENIED")));
        let error = puller.open(&reference).await.unwrap_err();
        assert!(!error.is_rejection() && error.retry() == Retry::Backoff, "{broken}: {error}");
    }
    registry.hook(|_| None);

    let tag = format!("sha256-{}.sig", digest.hex());
    registry.manifest("cat", Some(&tag), MANIFEST, b"{\"layers\":7}");
    assert!(rejected(puller.open(&reference).await).contains("it is no manifest"));
    let large = vec![b' '; (128 << 10) + 1];
    attach(&registry, "cat", &digest, &[(large.clone(), annotations(&key.sign(&large)))]);
    assert!(rejected(puller.open(&reference).await).contains("exceeds the limit of 131072 bytes"));
    let many: Vec<_> = (0..65).map(|_| good()).collect();
    attach(&registry, "cat", &digest, &many);
    assert!(rejected(puller.open(&reference).await).contains("exceeds the limit of 64 signatures"));
    let referred = vec![digest.clone(); 65];
    registry.manifest(
        "cat",
        Some(&format!("sha256-{}", digest.hex())),
        INDEX,
        referrers(&referred).as_bytes(),
    );
    assert!(rejected(puller.open(&reference).await).contains("exceeds the limit of 64 signatures"));
    registry.manifest("cat", Some(&format!("sha256-{}", digest.hex())), INDEX, b"[]");
    assert!(rejected(puller.open(&reference).await).contains("exceeds the limit of 64 signatures"));

    // a payload that the registry lost is a reason; the good one behind it counts
    attach(&registry, "cat", &digest, &[good(), (b"{}".to_vec(), json!({})), good()]);
    puller.open(&reference).await.unwrap();
}

#[tokio::test]
async fn signature_is_needed_for_each_requirement() {
    let registry = Registry::start().await;
    let (first, second) = (Key::new(), Key::new());
    let digest = registry.push("cat", Some("1"), &image("one"));
    let client = client(&[&registry], by_key(&first));
    let both: Vec<Value> = [&first, &second]
        .into_iter()
        .map(|key| {
            let mut requirement = by_key(key);
            requirement["type"] = json!("sigstoreSigned");
            requirement
        })
        .collect();
    std::fs::write(client.path("policy.json"), json!({ "default": both }).to_string()).unwrap();
    let puller = client.puller();
    let reference = registry.reference("cat:1");
    let payload = payload(&reference, &digest);
    let signed = |key: &Key| (payload.clone(), annotations(&key.sign(&payload)));
    attach(&registry, "cat", &digest, &[signed(&first)]);
    rejected(puller.open(&reference).await);
    attach(&registry, "cat", &digest, &[signed(&first), signed(&second)]);
    let verified = verify(&puller, &reference).await.unwrap();
    assert_eq!(verified.signer(), Some("key keyData and key keyData"));
}

/// A certificate without a transparency log is valid until it expires, so it is verified each time.
#[tokio::test]
async fn signature_that_may_expire_is_verified_each_time() {
    let registry = Registry::start().await;
    let authority = Fulcio::valid_from(2024);
    let who = authority.certify_with(signing::email(EMAIL), |params| {
        params.not_before = rcgen::date_time_ymd(2024, 2, 1);
        params.not_after = rcgen::date_time_ymd(2033, 1, 1);
    });
    let pki = json!({
        "caRootsData": STANDARD.encode(&authority.root),
        "caIntermediatesData": STANDARD.encode(&authority.intermediate),
        "subjectEmail": EMAIL,
    });
    let client = client(&[&registry], json!({ "pki": pki, "signedIdentity": { "type": "matchRepository" } }));
    let puller = client.puller();
    let digest = registry.push("cat", Some("1"), &image("one"));
    let reference = registry.reference("cat:1");
    let payload = payload(&reference, &digest);
    let mut signed = annotations(&who.key.sign(&payload));
    signed["dev.sigstore.cosign/certificate"] = json!(who.pem);
    attach(&registry, "cat", &digest, &[(payload, signed)]);
    for _ in 0..2 {
        registry.take_log();
        let canonical = puller.resolve(&reference).await.unwrap();
        puller.verify(&reference, &canonical).await.unwrap();
        let asked = registry.take_log();
        assert!(asked.iter().any(|line| line.ends_with(".sig")), "{asked:?}");
        assert!(!puller.accepts_stored(&reference, &digest).unwrap());
    }
    assert!(!client.path("verdicts").exists());
}
