//! `image verify` against a real registry: answers and exit codes.

use std::process::Command;

use anyhow::{Context as _, Result};
use olm_kit::{Ca, CatalogImage, Registry, RunDir, Signer};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_applies_the_signature_policy_of_the_controllers() -> Result<()> {
    let registry = Registry::shared().await?;
    let home = RunDir::new("home")?;
    let policy = home.path().join("policy.json");
    let ca = Ca::shared()?.certificate();
    let verify = |image: &str| -> Result<(i32, String, String)> {
        let output = Command::new(olm_kit::built("kubectl-olm")?)
            .args(["image", "verify", image, "--signature-policy"])
            .arg(&policy)
            .arg("--ca-file")
            .arg(&ca)
            .env("HOME", home.path())
            .env_remove("XDG_RUNTIME_DIR")
            .env_remove("REGISTRY_AUTH_FILE")
            .env_remove("DOCKER_CONFIG")
            .output()?;
        let code = output.status.code().context("killed")?;
        Ok((code, String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?))
    };
    let image = CatalogImage::from_text("schema: olm.package\nname: one\n").image();
    let pushed = registry.push("verify/one", "v1", &image).await?;
    let signer = Signer::new()?;

    let (code, _, error) = verify(&pushed.by_tag())?;
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("policy.json: "), "{error}");
    std::fs::write(&policy, json!({"default": [signer.requirement()]}).to_string())?;
    let (code, out, error) = verify(&pushed.by_tag())?;
    assert_eq!(code, 1, "{error}");
    assert!(out.contains("A signature was required, but no signature exists; sign "), "{out}");
    registry.sign(&pushed, &signer).await?;
    for reference in [pushed.by_tag(), pushed.by_digest()] {
        let (code, out, error) = verify(&reference)?;
        let want = format!("{} is accepted: signed by key keyData\n", pushed.by_digest());
        assert_eq!((code, out), (0, want), "{error}");
    }
    let (code, _, error) = verify(&format!("{}/verify/none:v1", registry.address()))?;
    assert_eq!(code, 3, "{error}");
    let (code, _, error) = verify("one")?;
    assert_eq!(code, 2, "{error}");
    std::fs::write(&policy, r#"{"default": [{"type": "insecureAcceptAnything"}]}"#)?;
    let (code, out, _) = verify(&pushed.by_tag())?;
    assert!(code == 0 && out.contains("the policy asks for no signature of it"), "{out}");
    Ok(())
}
