//! Pull secrets from the cluster: the one named by `--global-pull-secret` first, then those of the process's own service account.
//!
//! Returns documents without reading them: the part that pulls images knows docker configurations. A secret that does not exist is
//! none. Rule: catalogd §5.2, operator-controller §7.8.

use std::path::Path;

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::{Api, Client};

/// Where a pod finds its own token.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// What to do when a registry refuses the credentials of a program.
#[must_use]
pub fn remedy(program: &str) -> String {
    format!("set --global-pull-secret of {program}, or imagePullSecrets of its ServiceAccount")
}

/// The namespace and name of something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespacedName {
    pub namespace: String,
    pub name: String,
}

impl std::fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What a pull secret holds.
#[derive(Clone)]
pub struct Document {
    secret: NamespacedName,
    key: &'static str,
    content: Vec<u8>,
}

impl Document {
    /// The secret, the key of the document in it, and its content.
    #[must_use]
    pub fn parts(&self) -> (&NamespacedName, &str, &[u8]) {
        (&self.secret, self.key, &self.content)
    }
}

/// The apiserver does not give one of them.
#[derive(Debug, thiserror::Error)]
#[error("error reading {what} {place}: {source}")]
pub struct ReadError {
    what: &'static str,
    place: NamespacedName,
    source: Box<kube::Error>,
}

/// All pull secrets, in the order in which later ones win.
///
/// # Errors
/// When one of them cannot be read.
pub async fn read(
    client: &Client,
    global: Option<&NamespacedName>,
    account: Option<&NamespacedName>,
) -> Result<Vec<Document>, ReadError> {
    documents(client, places(client, global, account).await?).await
}

/// Where the pull secrets are, whether they exist or not: the global one, and those that the account names.
///
/// # Errors
/// When the account cannot be read.
pub async fn places(
    client: &Client,
    global: Option<&NamespacedName>,
    account: Option<&NamespacedName>,
) -> Result<Vec<NamespacedName>, ReadError> {
    let mut places: Vec<NamespacedName> = global.into_iter().cloned().collect();
    if let Some(account) = account {
        let api: Api<ServiceAccount> = Api::namespaced(client.clone(), &account.namespace);
        let found =
            api.get_opt(&account.name).await.map_err(|source| failed("service account", account, source))?;
        let names = found.and_then(|account| account.image_pull_secrets).unwrap_or_default();
        places.extend(
            names
                .into_iter()
                .map(|secret| NamespacedName { namespace: account.namespace.clone(), name: secret.name }),
        );
    }
    Ok(places)
}

/// The pull secrets at these places.
///
/// # Errors
/// When one of them cannot be read.
pub async fn documents(client: &Client, places: Vec<NamespacedName>) -> Result<Vec<Document>, ReadError> {
    let mut documents = Vec::new();
    for place in places {
        let api: Api<Secret> = Api::namespaced(client.clone(), &place.namespace);
        match api.get_opt(&place.name).await.map_err(|source| failed("pull secret", &place, source))? {
            Some(secret) => documents.extend(document(secret, place)),
            None => tracing::debug!(secret = %place, "pull secret does not exist"),
        }
    }
    Ok(documents)
}

fn failed(what: &'static str, place: &NamespacedName, source: kube::Error) -> ReadError {
    ReadError { what, place: place.clone(), source: Box::new(source) }
}

fn document(secret: Secret, place: NamespacedName) -> Option<Document> {
    let mut data = secret.data.unwrap_or_default();
    let found =
        [".dockerconfigjson", ".dockercfg"].into_iter().find_map(|key| Some((key, data.remove(key)?.0)));
    let Some((key, content)) = found else {
        tracing::info!(
            secret = place.name,
            "pull secret has neither .dockerconfigjson nor .dockercfg; it is passed over"
        );
        return None;
    };
    Some(Document { secret: place, key, content })
}

/// The account that the process runs as, if it runs in a pod.
pub fn own_account() -> Option<NamespacedName> {
    account_of_file(Path::new(TOKEN))
}

fn account_of_file(token: &Path) -> Option<NamespacedName> {
    let token = std::fs::read_to_string(token).ok()?;
    match account_of_token(&token) {
        Ok(account) => Some(account),
        Err(error) => {
            tracing::warn!(error, "cannot read the own service account; its pull secrets are not used");
            None
        }
    }
}

/// The service account of a token, from its `sub`; the token is not verified, it is our own.
fn account_of_token(token: &str) -> Result<NamespacedName, String> {
    use base64::Engine as _;
    let malformed = || "service account token is not a JSON web token".to_owned();
    let payload = token.trim().split('.').nth(1).ok_or_else(malformed)?;
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(payload).map_err(|_| malformed())?;
    let claims: serde_json::Value = serde_json::from_slice(&bytes).map_err(|_| malformed())?;
    let subject = claims.get("sub").and_then(serde_json::Value::as_str).unwrap_or_default();
    let mut parts =
        subject.strip_prefix("system:serviceaccount:").into_iter().flat_map(|rest| rest.split(':'));
    match (parts.next(), parts.next(), parts.next()) {
        (Some(namespace), Some(name), None) if !namespace.is_empty() && !name.is_empty() => {
            Ok(NamespacedName { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err(format!(
            "badly formatted subject: expected system:serviceaccount:<namespace>:<name>, got {subject}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use base64::Engine as _;

    fn token(subject: &str) -> String {
        let claims = serde_json::json!({ "sub": subject }).to_string();
        format!("x.{}.y\n", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn pull_secrets_account_is_none_outside_of_a_pod() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        assert_eq!(account_of_file(&file), None, "there is no token");
        for (content, want) in [
            (token("system:serviceaccount:ns:name"), Some("ns/name")),
            (token("user"), None),
            ("x".into(), None),
        ] {
            std::fs::write(&file, &content).unwrap();
            assert_eq!(account_of_file(&file).map(|place| place.to_string()).as_deref(), want, "{content}");
        }
    }

    #[test]
    fn pull_secrets_account_is_the_subject_of_the_token() {
        let place = account_of_token(&token("system:serviceaccount:olmv1-system:catalogd")).unwrap();
        assert_eq!(place.to_string(), "olmv1-system/catalogd");
        for subject in
            ["system:serviceaccount:a", "system:serviceaccount:a:b:c", "user", "system:serviceaccount::x"]
        {
            let error = account_of_token(&token(subject)).unwrap_err();
            assert!(error.starts_with("badly formatted subject: "), "{error}");
        }
        assert!(account_of_token("abc").is_err() && account_of_token("a.b.c").is_err());
    }

    /// An apiserver with the Secrets `global` and `second`, and the account `own`, which names three.
    fn apiserver() -> Client {
        testing::client(|request| {
            std::future::ready(match request.uri().path() {
                "/api/v1/namespaces/olm/serviceaccounts/own" => {
                    let named = serde_json::json!([{"name": "gone"}, {"name": "second"}, {"name": "other"}]);
                    (200, serde_json::json!({"metadata": {"name": "own"}, "imagePullSecrets": named}))
                }
                "/api/v1/namespaces/olm/secrets/other" => {
                    (200, serde_json::json!({"data": {"password": "eA=="}}))
                }
                "/api/v1/namespaces/registries/secrets/global" => {
                    (200, serde_json::json!({"data": {".dockerconfigjson": "YQ=="}}))
                }
                "/api/v1/namespaces/olm/secrets/second" => {
                    (200, serde_json::json!({"data": {".dockercfg": "Yg=="}}))
                }
                _ => testing::failure(404, "NotFound"),
            })
        })
    }

    #[tokio::test]
    async fn pull_secrets_of_the_account_follow_the_global_one() {
        let place = |namespace: &str, name: &str| NamespacedName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let client = apiserver();
        let (global, own) = (place("registries", "global"), place("olm", "own"));
        let (absent, unknown) = (place("olm", "absent"), place("olm", "unknown"));
        let (first, second) =
            ("registries/global .dockerconfigjson a".to_owned(), "olm/second .dockercfg b".to_owned());
        for (global, account, want) in [
            (Some(&global), Some(&own), vec![first.clone(), second.clone()]),
            (None, Some(&own), vec![second.clone()]),
            (Some(&global), None, vec![first]),
            (Some(&absent), Some(&own), vec![second]),
            (None, Some(&unknown), Vec::new()),
        ] {
            let documents = read(&client, global, account).await.unwrap();
            let texts = documents.iter().map(|document| {
                let (secret, key, content) = document.parts();
                format!("{secret} {key} {}", String::from_utf8_lossy(content))
            });
            assert_eq!(texts.collect::<Vec<_>>(), want);
        }
    }
}
