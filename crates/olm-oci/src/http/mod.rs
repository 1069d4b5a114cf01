//! Requests to registries: connections, credentials, redirects, timeouts.
//!
//! Thin HTTP on `reqwest` and not `oci-client` (decision 37): the reference's rules need each answer of the
//! registry as it is. Mirrors with their own security settings, `Retry-After`, resumed and stall-checked blob
//! streams, redirects without credentials, per-host certificates that rotate, and one manifest request for an unchanged
//! tag cannot be had through that crate's client without building all of it again around it.
//!
//! HTTP/1.1 on purpose: blobs are few and large, and one connection each is what flow control should see.

mod cause;
pub(crate) mod challenge;
mod guard;
pub(crate) mod redirect;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use base64::Engine as _;
use olm_core::Digest;
use parking_lot::Mutex;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue, LOCATION, RANGE, RETRY_AFTER, WWW_AUTHENTICATE};
use reqwest::{Client, Method, Response, StatusCode};
use rustls::RootCertStore;
use serde::Deserialize;
use url::Url;

pub(crate) use self::cause::connection_error;
use self::challenge::Challenge;
use self::guard::{Guard, Network};
use self::redirect::Distance;
use crate::config::certs::{Material, system_roots};
use crate::config::registries::Location;
use crate::config::{Config, Credential, Keyring, Proxies};
use crate::error::{ImageError, chain, check_limit};
use crate::manifest::ACCEPT as ACCEPT_MANIFESTS;

/// Largest token response and largest error body that is read.
const MAX_TOKEN: usize = 1 << 20;
const MAX_ERROR: usize = 64 << 10;
/// Most cached tokens.
const MAX_TOKENS: usize = 1000;
/// Tokens without a stated lifetime live so long.
const DEFAULT_TOKEN_LIFE: Duration = Duration::from_secs(60);

/// A request to an endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    /// Below `/v2/<repository>/`.
    pub(crate) path: String,
    pub(crate) accept: &'static str,
    /// First byte to download, for resuming.
    pub(crate) from: u64,
    /// For messages: `reading manifest v1 in host/repo`.
    pub(crate) what: &'a str,
}

impl<'a> Ask<'a> {
    /// A request for a manifest, or a list of them.
    pub(crate) fn manifest(method: Method, path: String, what: &'a str) -> Self {
        Self { method, path, accept: ACCEPT_MANIFESTS, from: 0, what }
    }

    pub(crate) fn blob(digest: &Digest, from: u64, what: &'a str) -> Self {
        Self { method: Method::GET, path: format!("blobs/{digest}"), accept: "*/*", from, what }
    }
}

/// A location and the credential for it.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) location: Location,
    pub(crate) credential: Option<Credential>,
}

impl Endpoint {
    pub(crate) fn new(location: Location, keyring: &Keyring) -> Self {
        let reference = &location.reference;
        let credential = keyring.lookup(reference.registry(), reference.repository()).cloned();
        Self { location, credential }
    }

    fn host(&self) -> &str {
        self.location.reference.registry()
    }

    fn repository(&self) -> &str {
        self.location.reference.repository()
    }
}

/// Connections and tokens of all pulls.
pub(crate) struct Transport {
    pub(crate) config: Config,
    system: OnceLock<RootCertStore>,
    clients: Mutex<HashMap<String, Client>>,
    tokens: Mutex<HashMap<TokenKey, Token>>,
    /// Hosts called insecure that were found to speak plain HTTP.
    plain: Mutex<HashMap<String, bool>>,
    network: Network,
}

/// Host, repository, and a hash of the credential: a changed pull secret must not find the old token.
type TokenKey = (String, String, u64);

#[derive(Clone)]
struct Token {
    header: HeaderValue,
    until: Option<Instant>,
}

/// Why there is no response; `None`: the time is over.
type Unanswered = Option<reqwest::Error>;

/// The client for an endpoint, and what the clients for hosts that it names are made of.
struct Clients {
    own: Client,
    /// The host of the registry.
    registry: String,
    insecure: bool,
    material: Material,
    fingerprint: String,
}

impl Transport {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            system: OnceLock::new(),
            clients: Mutex::default(),
            tokens: Mutex::default(),
            plain: Mutex::default(),
            network: Network::system(),
        }
    }

    /// Sends a request and follows it to a response with status 200 or 206.
    pub(crate) async fn send(&self, endpoint: &Endpoint, ask: &Ask<'_>) -> Result<Response, ImageError> {
        let clients = self.clients(endpoint)?;
        let retries = &self.config.retries;
        let mut pause = retries.first_pause;
        let (mut busy, mut broken, mut waited) = (0, 0, Duration::ZERO);
        loop {
            let mut cause = match self.send_once(endpoint, &clients, ask).await {
                Ok(response) => return Ok(response),
                Err(cause) => cause,
            };
            let ImageError::Status { status, retry_after, .. } = &mut cause else { return Err(cause) };
            let status = *status;
            let again = match status {
                429 => {
                    busy += 1;
                    busy <= retries.too_many_requests
                }
                500 | 502..=504 => {
                    broken += 1;
                    broken <= retries.server_error
                }
                _ => false,
            };
            if !again {
                return Err(cause);
            }
            let wait = retry_after.unwrap_or(pause);
            waited = waited.saturating_add(wait);
            if waited > retries.longest_pause {
                // the caller waits, and other locations are asked meanwhile
                *retry_after = Some(wait);
                return Err(cause);
            }
            tracing::debug!(what = ask.what, status, wait_ms = wait.as_millis(), "registry asks to wait");
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(retries.longest_pause);
        }
    }

    async fn send_once(
        &self,
        endpoint: &Endpoint,
        clients: &Clients,
        ask: &Ask<'_>,
    ) -> Result<Response, ImageError> {
        let base = self.base(endpoint, clients, ask).await?;
        let url = base
            .join(&format!("/v2/{}/{}", endpoint.repository(), ask.path))
            .map_err(|_| ImageError::Config(format!("{:?} is not a registry host", endpoint.host())))?;
        let mut authorization = self.cached_authorization(endpoint);
        // the first challenge, and one more for another scope
        for round in 0..3 {
            let response =
                self.follow(clients, &url, endpoint.location.insecure, authorization.as_ref(), ask).await;
            if endpoint.location.insecure {
                // remember the scheme that the host answers on, and probe it again after a failure
                let mut plain = self.plain.lock();
                match &response {
                    Ok(_) => plain.insert(endpoint.host().to_owned(), url.scheme() == "http"),
                    Err(_) => plain.remove(endpoint.host()),
                };
            }
            let response = response?;
            let status = response.status();
            if status == StatusCode::OK || status == StatusCode::PARTIAL_CONTENT {
                return Ok(response);
            }
            let asked = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
                && redirect::same_origin(response.url(), &url);
            let challenges = response.headers().get_all(WWW_AUTHENTICATE).iter();
            let challenge = challenge::choose(challenges.filter_map(|value| value.to_str().ok()));
            let Some(challenge) = challenge.filter(|_| asked && round < 2) else {
                return Err(self.status_error(response, &url, ask.what).await);
            };
            let fresh = self.authorize(endpoint, clients, &response, &challenge, ask.what).await?;
            match fresh {
                Some(header) if authorization.as_ref() != Some(&header) => authorization = Some(header),
                _ => return Err(self.status_error(response, &url, ask.what).await),
            }
        }
        Err(ImageError::network(ask.what, "the registry keeps asking for credentials"))
    }

    /// `https://host/`, or `http://host/` for an insecure registry without TLS.
    async fn base(&self, endpoint: &Endpoint, clients: &Clients, ask: &Ask<'_>) -> Result<Url, ImageError> {
        // docker.io's registry lives under another name
        let host = if endpoint.host() == "docker.io" { "registry-1.docker.io" } else { endpoint.host() };
        let at = |scheme: &str| {
            Url::parse(&format!("{scheme}://{host}/"))
                .map_err(|_| ImageError::Config(format!("{host:?} is not a registry host")))
        };
        let secure = at("https")?;
        // a name is judged when it is looked up
        if redirect::url_distance(&secure) < nearest(endpoint) {
            return Err(ImageError::Unsupported(guard::on_the_link(&format!("{host} is"))));
        }
        if !endpoint.location.insecure {
            return Ok(secure);
        }
        let known = self.plain.lock().get(endpoint.host()).copied();
        let plain = match known {
            Some(plain) => plain,
            None => {
                let probe = clients.own.get(secure.join("/v2/").unwrap_or_else(|_| secure.clone()));
                match self.in_time(probe.send()).await {
                    Ok(_) => false,
                    Err(unanswered) => {
                        let cause = self.no_response(unanswered, ask.what);
                        tracing::debug!(host, %cause, "no TLS; trying plain HTTP, as the registry is called insecure");
                        true
                    }
                }
            }
        };
        if plain { at("http") } else { Ok(secure) }
    }

    /// Sends once and follows redirects; any status but a redirect is returned.
    async fn follow(
        &self,
        clients: &Clients,
        url: &Url,
        insecure: bool,
        authorization: Option<&HeaderValue>,
        ask: &Ask<'_>,
    ) -> Result<Response, ImageError> {
        let mut at = url.clone();
        let mut near = Distance::Network;
        for _ in 0..=redirect::MAX_REDIRECTS {
            let home = redirect::same_origin(&at, url);
            let client = if home { clients.own.clone() } else { self.other(clients, near)? };
            let request = || {
                let mut request = client.request(ask.method.clone(), at.clone()).header(ACCEPT, ask.accept);
                if ask.from > 0 {
                    request = request.header(RANGE, format!("bytes={}-", ask.from));
                }
                if let Some(header) = authorization.filter(|_| home) {
                    request = request.header(AUTHORIZATION, header.clone());
                }
                self.in_time(request.send())
            };
            let response = match request().await {
                // the registry closed a connection that was kept for later; every request here may be repeated
                Err(Some(error)) if !error.is_connect() && !error.is_timeout() => request().await,
                other => other,
            };
            let response = response.map_err(|unanswered| self.no_response(unanswered, ask.what))?;
            let moved = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
            let location = response.headers().get(LOCATION).filter(|_| moved);
            let Some(location) = location.map(|value| value.to_str().map(str::to_owned)) else {
                return Ok(response);
            };
            let location = location.unwrap_or_default();
            near = self.near(&response);
            at = redirect::target(&at, near, &location, insecure)?;
        }
        Err(ImageError::Unsupported(format!("{}: more than {} redirects", ask.what, redirect::MAX_REDIRECTS)))
    }

    async fn in_time(
        &self,
        sending: impl Future<Output = reqwest::Result<Response>>,
    ) -> Result<Response, Unanswered> {
        let answer = tokio::time::timeout(self.config.timeouts.answer, sending).await;
        answer.map_err(|_| None)?.map_err(Some)
    }

    fn no_response(&self, unanswered: Unanswered, what: &str) -> ImageError {
        let why = match unanswered {
            Some(error) => connection_error(error),
            None => format!("no answer within {} s", self.config.timeouts.answer.as_secs()),
        };
        ImageError::network(what, why)
    }

    /// Reads a whole small body.
    pub(crate) async fn body(
        &self,
        response: Response,
        max: usize,
        what: &str,
    ) -> Result<Vec<u8>, ImageError> {
        let limit = self.config.timeouts.answer;
        match tokio::time::timeout(limit, bounded(response, max, what)).await {
            Ok(result) => result,
            Err(_) => Err(ImageError::Stalled { what: what.to_owned(), got: 0, waited: limit }),
        }
    }

    async fn status_error(&self, response: Response, url: &Url, what: &str) -> ImageError {
        let status = response.status().as_u16();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(pause_of);
        let own = redirect::same_origin(response.url(), url);
        // the response of a foreign host is not shown: it may be an internal page
        let (code, message) = match own {
            true => self.body(response, MAX_ERROR, what).await.map(|body| explain(&body)).unwrap_or_default(),
            false => (None, None),
        };
        ImageError::Status { what: what.to_owned(), status, code, message, retry_after }
    }

    fn cached_authorization(&self, endpoint: &Endpoint) -> Option<HeaderValue> {
        if let Some(Credential::Registry(token)) = &endpoint.credential {
            return header(&format!("Bearer {token}"));
        }
        let mut tokens = self.tokens.lock();
        let now = Instant::now();
        tokens.retain(|_, token| token.until.is_none_or(|until| until > now));
        tokens.get(&token_key(endpoint)).map(|token| token.header.clone())
    }

    /// Turns a challenge into an `Authorization` header; `None` without a suitable credential.
    async fn authorize(
        &self,
        endpoint: &Endpoint,
        clients: &Clients,
        answer: &Response,
        challenge: &Challenge,
        what: &str,
    ) -> Result<Option<HeaderValue>, ImageError> {
        let (value, until) = match challenge {
            Challenge::Basic => match &endpoint.credential {
                Some(Credential::Basic { username, password }) => (header(&basic(username, password)), None),
                _ => return Ok(None),
            },
            Challenge::Bearer { realm, service, scope } => {
                let token = self.token(endpoint, clients, answer, (realm, service, scope), what).await?;
                let life = token.expires_in.map_or(DEFAULT_TOKEN_LIFE, Duration::from_secs);
                // a little less, so that it does not run out on the way
                let life = life.saturating_sub(life / 10).min(Duration::from_secs(24 * 3600));
                let text = token.token.or(token.access_token).unwrap_or_default();
                if text.is_empty() {
                    return Err(ImageError::network(what, "the token service answered without a token"));
                }
                (header(&format!("Bearer {text}")), Some(Instant::now() + life))
            }
        };
        let value = value.ok_or_else(|| ImageError::Config("credentials hold control characters".into()))?;
        let mut tokens = self.tokens.lock();
        if tokens.len() >= MAX_TOKENS {
            tokens.clear(); // secrets that rotate for years leave nothing behind
        }
        tokens.insert(token_key(endpoint), Token { header: value.clone(), until });
        Ok(Some(value))
    }

    async fn token(
        &self,
        endpoint: &Endpoint,
        clients: &Clients,
        answer: &Response,
        (realm, service, scope): (&str, &Option<String>, &Option<String>),
        what: &str,
    ) -> Result<TokenAnswer, ImageError> {
        let what = format!("{what}: requesting a token");
        let refused =
            |why: String| ImageError::Unsupported(format!("{what}: token service is refused: {why}"));
        let realm = Url::parse(realm).map_err(|_| refused("it is not a URL".into()))?;
        // a registry with TLS may not redirect credentials to plain HTTP
        let near = self.near(answer);
        redirect::check(&realm, near, endpoint.location.insecure).map_err(refused)?;
        let scope = scope.clone().unwrap_or_else(|| format!("repository:{}:pull", endpoint.repository()));
        let mut parameters = vec![("scope", scope)];
        parameters.extend(service.clone().map(|service| ("service", service)));
        let home = redirect::same_origin(&realm, answer.url());
        let client = if home { clients.own.clone() } else { self.other(clients, near)? };
        let request = match &endpoint.credential {
            Some(Credential::Identity(token)) => {
                parameters.push(("grant_type", "refresh_token".into()));
                parameters.push(("client_id", self.config.user_agent.clone()));
                parameters.push(("refresh_token", token.clone()));
                let mut form = url::form_urlencoded::Serializer::new(String::new());
                form.extend_pairs(&parameters);
                client
                    .post(realm.clone())
                    .header(reqwest::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
                    .body(form.finish())
            }
            credential => {
                let mut url = realm.clone();
                url.query_pairs_mut().extend_pairs(&parameters);
                let request = client.get(url);
                match credential {
                    Some(Credential::Basic { username, password }) => {
                        request.header(AUTHORIZATION, basic(username, password))
                    }
                    _ => request,
                }
            }
        };
        // never redirected: the credentials are for this service alone
        let response = self.in_time(request.send()).await;
        let response = response.map_err(|unanswered| self.no_response(unanswered, &what))?;
        if response.status() != StatusCode::OK {
            return Err(self.status_error(response, &realm, &what).await);
        }
        let body = self.body(response, MAX_TOKEN, &what).await.map_err(|cause| match cause {
            // it is no limit on the image
            ImageError::Limit { limit, .. } => {
                ImageError::network(&what, format!("the answer exceeds the limit of {limit} bytes"))
            }
            cause => cause,
        })?;
        serde_json::from_slice(&body)
            .map_err(|_| ImageError::network(what, "the token service did not answer with a JSON token"))
    }

    fn clients(&self, endpoint: &Endpoint) -> Result<Clients, ImageError> {
        let material = self.config.certificates.read(endpoint.host())?;
        let (fingerprint, insecure) = (material.fingerprint(), endpoint.location.insecure);
        let guard = self.guard(None, nearest(endpoint));
        let own =
            self.cached_client(&material, &fingerprint, insecure, material.has_client_certificate(), guard)?;
        Ok(Clients { own, registry: endpoint.host().to_owned(), insecure, material, fingerprint })
    }

    /// The client for hosts that the registry named over a connection to somewhere at the distance `near`.
    fn other(&self, clients: &Clients, near: Distance) -> Result<Client, ImageError> {
        let Clients { registry, insecure, material, fingerprint, .. } = clients;
        let guard = self.guard(Some(registry.clone()), near);
        self.cached_client(material, fingerprint, *insecure, false, guard)
    }

    fn cached_client(
        &self,
        material: &Material,
        fingerprint: &str,
        insecure: bool,
        identify: bool,
        guard: Guard,
    ) -> Result<Client, ImageError> {
        let (registry, nearest) = (guard.named_by.as_deref().unwrap_or_default(), guard.nearest);
        let key = format!("{fingerprint} {insecure} {identify} {registry} {nearest:?}");
        if let Some(client) = self.clients.lock().get(&key) {
            return Ok(client.clone());
        }
        let system = self.system.get_or_init(system_roots);
        let client = self.client(material.client_config(system, identify, insecure)?, guard)?;
        let mut clients = self.clients.lock();
        if clients.len() >= 64 {
            clients.clear(); // certificates that rotate for years leave nothing behind
        }
        clients.insert(key, client.clone());
        Ok(client)
    }

    fn guard(&self, named_by: Option<String>, nearest: Distance) -> Guard {
        let proxies = [&self.config.proxies.http, &self.config.proxies.https].into_iter().flatten();
        let trusted = proxies.filter_map(|proxy| Some(Url::parse(proxy).ok()?.host_str()?.to_owned()));
        Guard { named_by, nearest, trusted: trusted.collect(), network: self.network }
    }

    /// How far the peer is that sent the response. Where a proxy may stand between, only its URL shows it.
    fn near(&self, response: &Response) -> Distance {
        let Proxies { http, https, .. } = &self.config.proxies;
        match response.remote_addr() {
            Some(peer) if http.is_none() && https.is_none() => (self.network.distance)(peer.ip()),
            _ => redirect::url_distance(response.url()),
        }
    }

    fn client(&self, tls: rustls::ClientConfig, guard: Guard) -> Result<Client, ImageError> {
        let Config { timeouts, user_agent, proxies, .. } = &self.config;
        let mut builder = Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(user_agent)
            .connect_timeout(timeouts.connect)
            .pool_idle_timeout(Duration::from_secs(90))
            .http1_only()
            .retry(reqwest::retry::never())
            .dns_resolver(guard)
            .no_proxy();
        for proxy in proxies.build()? {
            builder = builder.proxy(proxy);
        }
        builder.build().map_err(|error| ImageError::Config(format!("cannot set up HTTP: {}", chain(&error))))
    }
}

/// How near the registry may be.
fn nearest(endpoint: &Endpoint) -> Distance {
    if endpoint.location.configured { Distance::Link } else { Distance::Machine }
}

impl Proxies {
    fn build(&self) -> Result<Vec<reqwest::Proxy>, ImageError> {
        let direct = format!("localhost,127.0.0.0/8,::1,{}", self.no_proxy);
        let direct = reqwest::NoProxy::from_string(&direct);
        let bad = |name: &str| ImageError::Config(format!("{name} is not a proxy URL"));
        let http = self.http.as_ref().map(|url| reqwest::Proxy::http(url).map_err(|_| bad("HTTP_PROXY")));
        let https = self.https.as_ref().map(|url| reqwest::Proxy::https(url).map_err(|_| bad("HTTPS_PROXY")));
        http.into_iter().chain(https).map(|proxy| Ok(proxy?.no_proxy(direct.clone()))).collect()
    }
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<u64>,
}

fn token_key(endpoint: &Endpoint) -> TokenKey {
    let secret = BuildHasherDefault::<DefaultHasher>::new().hash_one(&endpoint.credential);
    (endpoint.host().to_owned(), endpoint.repository().to_owned(), secret)
}

fn basic(username: &str, password: &str) -> String {
    let pair = format!("{username}:{password}");
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
}

fn header(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// `Retry-After` in seconds; dates are not read (no registry writes them), the usual pause applies then.
fn pause_of(value: &HeaderValue) -> Option<Duration> {
    value.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

async fn bounded(mut response: Response, max: usize, what: &str) -> Result<Vec<u8>, ImageError> {
    let mut body = Vec::new();
    let broken = |error: reqwest::Error| ImageError::network(what, connection_error(error));
    while let Some(chunk) = response.chunk().await.map_err(broken)? {
        check_limit((body.len() + chunk.len()) as u64, max as u64, "bytes", what)?;
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Code and message of a registry's error body, made safe for a condition message.
fn explain(body: &[u8]) -> (Option<String>, Option<String>) {
    #[derive(Deserialize)]
    struct Body {
        #[serde(default)]
        errors: Vec<Entry>,
        /// What token services write.
        details: Option<String>,
    }
    #[derive(Deserialize)]
    struct Entry {
        code: Option<String>,
        message: Option<String>,
    }
    let Ok(body) = serde_json::from_slice::<Body>(body) else { return (None, None) };
    let first = body.errors.into_iter().next();
    let (code, message) = first.map_or((None, None), |entry| (entry.code, entry.message));
    let short = |text: String| -> Option<String> {
        let text: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
        (!text.is_empty()).then_some(text)
    };
    (code.and_then(short), message.or(body.details).and_then(short))
}
