//! The signature policy against `opm`, which verifies with containers/image: the same policy, the same image with the same
//! signatures on a real registry, the same answer.
//!
//! Bundles of cosign 3, `subjectURI` and `matchDigest` are ours alone and not here.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use olm_kit::{Ca, CatalogImage, Pushed, Registry, Tools};
use olm_oci::{CertificateDirs, Config, Puller, RegistriesFiles, SignaturePolicy};
use olm_signature::testing::{self as signing, BEGIN, EMAIL, Fulcio, ISSUER, Key, LIFE, Rekor};
use serde_json::{Value, json};

const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
const CHAIN: &str = "dev.sigstore.cosign/chain";
const ENTRY: &str = "dev.sigstore.cosign/bundle";

type Layer = (Vec<u8>, Value);

/// The signers of all cases.
struct Cast {
    key: Key,
    other: Key,
    fulcio: Fulcio,
    rekor: Rekor,
    /// Certified like the first ones, by authorities that the policy does not name.
    foreign: (Fulcio, Rekor),
}

impl Cast {
    fn by_key(&self, key: &Key, payload: &[u8]) -> Layer {
        (payload.to_owned(), json!({ SIGNATURE: STANDARD.encode(key.sign(payload)) }))
    }

    fn logged(&self, key: &Key, payload: &[u8], rekor: &Rekor) -> Layer {
        let signature = key.sign(payload);
        let entry = signing::hashedrekord(payload, &signature, &key.public());
        let entry = rekor.annotation(&entry, BEGIN);
        (payload.to_owned(), json!({ SIGNATURE: STANDARD.encode(signature), ENTRY: entry }))
    }

    fn keyless(&self, fulcio: &Fulcio, email: &str, issuer: &str, at: i64, payload: &[u8]) -> Layer {
        let who = fulcio.certify(signing::email(email), issuer);
        let signature = who.key.sign(payload);
        let entry = signing::hashedrekord(payload, &signature, &who.pem);
        let annotations = json!({
            SIGNATURE: STANDARD.encode(signature), CERTIFICATE: who.pem, CHAIN: format!("{}{}", fulcio.intermediate, fulcio.root),
            ENTRY: self.rekor.annotation(&entry, at),
        });
        (payload.to_owned(), annotations)
    }
}

fn encoded(pem: &str) -> String {
    STANDARD.encode(pem)
}

/// Whether opm accepts the image under this policy, and its output.
async fn opm(home: &Path, image: &str) -> Result<(bool, String)> {
    let command = Tools::locate()?.command("opm")?;
    let output = tokio::process::Command::from(command)
        .args(["render", image, "--output", "json"])
        .env("HOME", home)
        .env("XDG_RUNTIME_DIR", home)
        .env_remove("XDG_CONFIG_HOME")
        .env("SSL_CERT_FILE", Ca::shared()?.certificate())
        .stdin(Stdio::null())
        .output()
        .await?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

async fn ours(policy: &Path, image: &str) -> Result<(bool, String)> {
    let puller = Puller::new(Config {
        certificates: CertificateDirs { every_host: Some(Ca::shared()?.dir()), ..CertificateDirs::default() },
        registries: RegistriesFiles::default(),
        signature_policy: SignaturePolicy::File(policy.to_owned()),
        ..Config::default()
    });
    Ok(match puller.open(&image.parse()?).await {
        Ok(_) => (true, String::new()),
        Err(error) => (false, error.to_string()),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn opm_accepts_and_rejects_the_same_images() -> Result<()> {
    if Tools::locate().and_then(|tools| tools.program("opm")).is_err() {
        eprintln!("SKIPPED: there is no opm to compare with");
        return Ok(());
    }
    let registry = Registry::start().await?;
    let home = tempfile::tempdir()?;
    let containers = home.path().join(".config/containers");
    std::fs::create_dir_all(containers.join("registries.d"))?;
    std::fs::write(
        containers.join("registries.d/default.yaml"),
        "default-docker: {use-sigstore-attachments: true}\n",
    )?;
    let policy = containers.join("policy.json");
    let cast = Cast {
        key: Key::new(),
        other: Key::new(),
        fulcio: Fulcio::new(),
        rekor: Rekor::new(),
        foreign: (Fulcio::new(), Rekor::new()),
    };
    let by_key = json!({ "keyData": encoded(&cast.key.public()) });
    let logged = json!({"keyData": encoded(&cast.key.public()), "rekorPublicKeyData": encoded(&cast.rekor.0.public())});
    let keyless = json!({
        "fulcio": { "caData": encoded(&cast.fulcio.root), "oidcIssuer": ISSUER, "subjectEmail": EMAIL },
        "rekorPublicKeyData": encoded(&cast.rekor.0.public()),
    });
    let as_ = |requirement: &Value, identity: Value| {
        let mut requirement = requirement.clone();
        requirement["signedIdentity"] = identity;
        requirement
    };
    let repository = |requirement: &Value| as_(requirement, json!({ "type": "matchRepository" }));
    let pki = json!({"pki": {
        "caRootsData": encoded(&cast.fulcio.root), "caIntermediatesData": encoded(&cast.fulcio.intermediate), "subjectEmail": EMAIL,
    }});
    let end = BEGIN + i64::try_from(LIFE)?;
    let text = "schema: olm.package\nname: one\ndefaultChannel: stable\n";
    let push = async |name: &str| registry.push(name, "v1", &CatalogImage::from_text(text).image()).await;

    type Payload = fn(&Pushed) -> Vec<u8>;
    type Signatures<'a> = Box<dyn Fn(&Pushed) -> Vec<Layer> + 'a>;
    let plain = |pushed: &Pushed| signing::payload(&pushed.repository, &pushed.digest);
    let tagged = |pushed: &Pushed| signing::payload(&pushed.by_tag(), &pushed.digest);
    let foreign =
        |pushed: &Pushed| signing::payload(&pushed.repository, &pushed.digest.replace(['0', '1'], "2"));
    let cast = &cast;
    let key = |payload: Payload| -> Signatures<'_> {
        Box::new(move |pushed| vec![cast.by_key(&cast.key, &payload(pushed))])
    };
    let repo_payload: Payload = |pushed| signing::payload(&pushed.repository, &pushed.digest);
    let tag_payload: Payload = |pushed| signing::payload(&pushed.by_tag(), &pushed.digest);
    let person = |email: &'static str, issuer: &'static str, at: i64| -> Signatures<'_> {
        Box::new(move |pushed| vec![cast.keyless(&cast.fulcio, email, issuer, at, &plain(pushed))])
    };
    #[rustfmt::skip]
    let cases: Vec<(&str, Value, bool, Signatures<'_>, bool)> = vec![
        // name, requirement, by digest (else by tag), signatures, accepted
        ("unsigned", repository(&by_key), false, Box::new(|_| Vec::new()), false),
        ("by key", repository(&by_key), false, key(repo_payload), true),
        ("by digest", repository(&by_key), true, key(repo_payload), true),
        ("default identity, by tag, cosign's name", by_key.clone(), false, key(repo_payload), false),
        ("default identity, by tag, with tag", by_key.clone(), false, key(tag_payload), true),
        ("default identity, by digest, cosign's name", by_key.clone(), true, key(repo_payload), false),
        ("default identity, by digest, with tag", by_key.clone(), true, key(tag_payload), true),
        ("exact, by tag", as_(&by_key, json!({ "type": "matchExact" })), false, key(tag_payload), true),
        ("exact, by digest", as_(&by_key, json!({ "type": "matchExact" })), true, key(tag_payload), false),
        ("exact repository elsewhere", as_(&by_key, json!({ "type": "exactRepository", "dockerRepository": "busybox" })), false,
            Box::new(|pushed| { vec![cast.by_key(&cast.key, &signing::payload("index.docker.io/library/busybox", &pushed.digest))] }),
            true),
        (
            "remapped",
            as_(
                &by_key,
                json!({ "type": "remapIdentity", "prefix": registry.address(), "signedPrefix": "up.test/x" }),
            ),
            false,
            Box::new(|pushed| {
                let name = pushed.by_tag().replace(registry.address(), "up.test/x");
                vec![cast.by_key(&cast.key, &signing::payload(&name, &pushed.digest))]
            }),
            true,
        ),
        ("another key", repository(&by_key), false, Box::new(|pushed| vec![cast.by_key(&cast.other, &plain(pushed))]), false),
        ("another and the right one", repository(&by_key), false,
            Box::new(|pushed| { vec![cast.by_key(&cast.other, &plain(pushed)), cast.by_key(&cast.key, &tagged(pushed))] }), true),
        ("another image", repository(&by_key), false, Box::new(|pushed| vec![cast.by_key(&cast.key, &foreign(pushed))]), false),
        ("logged", repository(&logged), false, Box::new(|pushed| vec![cast.logged(&cast.key, &plain(pushed), &cast.rekor)]), true),
        ("not logged", repository(&logged), false, key(repo_payload), false),
        ("logged elsewhere", repository(&logged), false, Box::new(|pushed| vec![cast.logged(&cast.key, &plain(pushed), &cast.foreign.1)]),
            false),
        (
            "the entry of another signature",
            repository(&logged),
            false,
            Box::new(|pushed| {
                let mut layer = cast.by_key(&cast.key, &plain(pushed));
                layer.1[ENTRY] = cast.logged(&cast.key, &plain(pushed), &cast.rekor).1[ENTRY].take();
                vec![layer]
            }),
            false,
        ),
        ("keyless", repository(&keyless), false, person(EMAIL, ISSUER, BEGIN + 9), true),
        ("keyless, too late", repository(&keyless), false, person(EMAIL, ISSUER, end + 1), false),
        ("keyless, too early", repository(&keyless), false, person(EMAIL, ISSUER, BEGIN - 1), false),
        ("keyless, another identity", repository(&keyless), false, person("x@y.test", ISSUER, BEGIN), false),
        ("keyless, elsewhere signed in", repository(&keyless), false, person(EMAIL, "https://x.test", BEGIN), false),
        ("keyless, another authority", repository(&keyless), false,
            Box::new(|pushed| vec![cast.keyless(&cast.foreign.0, EMAIL, ISSUER, BEGIN, &plain(pushed))]), false),
        ("pki, ended", repository(&pki), false, person(EMAIL, ISSUER, BEGIN), false),
    ];
    let mut differing = Vec::new();
    for (index, (name, mut requirement, by_digest, signatures, accepted)) in cases.into_iter().enumerate() {
        requirement["type"] = json!("sigstoreSigned");
        std::fs::write(&policy, json!({ "default": [requirement] }).to_string())?;
        let pushed = push(&format!("case{index}")).await?;
        let layers = signatures(&pushed);
        if !layers.is_empty() {
            registry.attach_signatures(&pushed, &layers).await?;
        }
        let image = if by_digest { pushed.by_digest() } else { pushed.by_tag() };
        let (theirs, output) = opm(home.path(), &image).await.context(name)?;
        ensure!(theirs || output.contains("Source image rejected"), "{name}: opm failed otherwise: {output}");
        let (ours, error) = ours(&policy, &image).await.context(name)?;
        ensure!(ours || error.contains("Source image rejected"), "{name}: failed otherwise: {error}");
        if (theirs, ours) != (accepted, accepted) {
            differing
                .push(format!("{name}: want {accepted}, opm {theirs} ({output}), ours {ours} ({error})"));
        }
    }
    ensure!(differing.is_empty(), "{}", differing.join("\n"));
    Ok(())
}
