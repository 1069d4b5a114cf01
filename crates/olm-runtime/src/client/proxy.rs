//! The proxy for the apiserver, as kubectl chooses it: `proxy-url` of the kubeconfig, else `HTTPS_PROXY`, unless `NO_PROXY` names the
//! apiserver or it is on this machine. kube compares `NO_PROXY` with the address of the proxy.

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

/// Hosts that are reached directly in any case, as with Go's client.
const DIRECT: &str = "localhost,127.0.0.0/8,::1";

/// The configuration of a kubeconfig, with the proxy that kubectl would use.
///
/// # Errors
/// If it cannot be used, or a variable of the environment is no proxy.
pub async fn config_from(file: Kubeconfig, options: &KubeConfigOptions) -> Result<Config, KubeconfigError> {
    let own = proxy_url(&file, options);
    let mut config = Config::from_custom_kubeconfig(file, options).await?;
    config.proxy_url = own.or_else(|| from_environment(&config.cluster_url, |name| std::env::var(name).ok()));
    Ok(config)
}

/// `proxy-url` of the cluster.
fn proxy_url(file: &Kubeconfig, options: &KubeConfigOptions) -> Option<Uri> {
    let context = options.context.as_ref().or(file.current_context.as_ref())?;
    let context = file.contexts.iter().find(|named| &named.name == context)?.context.as_ref()?;
    let cluster = options.cluster.as_ref().unwrap_or(&context.cluster);
    let cluster = file.clusters.iter().find(|named| &named.name == cluster)?.cluster.as_ref()?;
    cluster.proxy_url.as_ref()?.parse().ok()
}

/// The proxy that the variables name for this apiserver.
fn from_environment(apiserver: &Uri, variable: impl Fn(&str) -> Option<String>) -> Option<Uri> {
    let value = |name: &str| {
        let names = [name.to_owned(), name.to_lowercase()];
        names.iter().find_map(|name| variable(name).filter(|value| !value.is_empty()))
    };
    let proxy = value("HTTPS_PROXY").filter(|_| apiserver.scheme_str() == Some("https"))?;
    let port = apiserver.port_u16().unwrap_or(443).to_string();
    let listed = value("NO_PROXY").unwrap_or_default();
    let listed: Vec<&str> = listed.split(',').map(|entry| host_of(entry.trim(), &port)).collect();
    if listed.contains(&"*") {
        return None;
    }
    let direct = format!("{DIRECT},{}", listed.join(","));
    // only whether there is one: a matcher takes the user out of the address
    Matcher::builder().https("http://proxy").no(direct).build().intercept(apiserver)?;
    let url = if proxy.contains("://") { proxy } else { format!("http://{proxy}") };
    url.parse().ok()
}

/// An entry of `NO_PROXY` without this port, and without the star of `*.example.com`.
fn host_of<'a>(entry: &'a str, port: &str) -> &'a str {
    let host = match entry.rsplit_once(':') {
        Some((host, found)) if found == port && !host.contains(':') => host,
        _ => entry,
    };
    host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_of_the_environment_as_kubectl() {
        let proxy = "http://proxy.example.com:3128";
        for (apiserver, https, no, want) in [
            ("https://api.example.com:6443", proxy, "", Some(proxy)),
            ("https://api.example.com:6443", "", "", None),
            // not the address of the proxy counts
            ("https://api.example.com:6443", proxy, "proxy.example.com", Some(proxy)),
            ("https://api.example.com:6443", proxy, "api.example.com", None),
            ("https://api.example.com:6443", proxy, "localhost, example.com,", None),
            ("https://api.example.com:6443", proxy, ".example.com", None),
            ("https://api.example.com:6443", proxy, "*.example.com", None),
            ("https://api.example.com:6443", proxy, "api.example.com:6443", None),
            ("https://api.example.com:6443", proxy, "api.example.com:443", Some(proxy)),
            ("https://api.example.com", proxy, "api.example.com:443", None),
            ("https://api.example.com:6443", proxy, "*", None),
            ("https://10.1.2.3:6443", proxy, "10.0.0.0/8", None),
            ("https://10.1.2.3:6443", proxy, "*", None),
            ("https://10.1.2.3:6443", proxy, "10.1.2.4", Some(proxy)),
            ("https://[fd00::1]:6443", proxy, "fd00::/8", None),
            ("https://127.0.0.1:6443", proxy, "", None),
            ("https://localhost:6443", proxy, "", None),
            ("https://[::1]:6443", proxy, "", None),
            ("http://api.example.com", proxy, "", None),
            ("https://api.example.com", "proxy.example.com:3128", "", Some(proxy)),
            ("https://api.example.com", "http://u:p@proxy:3128", "", Some("http://u:p@proxy:3128")),
        ] {
            for lower in [false, true] {
                let variable = |name: &str| {
                    let is_case = name.chars().any(char::is_lowercase) == lower;
                    let values = [("https_proxy", https), ("no_proxy", no)];
                    let (_, value) = values.into_iter().find(|(key, _)| *key == name.to_lowercase())?;
                    is_case.then(|| value.to_owned())
                };
                let found = from_environment(&apiserver.parse().unwrap(), variable);
                let want = want.map(|url| url.parse::<Uri>().unwrap());
                assert_eq!(found, want, "{apiserver} {https} {no}");
            }
        }
    }

    #[test]
    fn proxy_of_the_kubeconfig_is_that_of_the_cluster() {
        let text = "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: u}}], \
                    clusters: [{name: a, cluster: {server: 'https://a', proxy-url: 'socks5://localhost:1080'}}, \
                    {name: b, cluster: {server: 'https://b'}}], users: []}";
        let file = Kubeconfig::from_yaml(text).unwrap();
        let found = |context: Option<&str>, cluster: Option<&str>| {
            let options = KubeConfigOptions {
                context: context.map(str::to_owned),
                cluster: cluster.map(str::to_owned),
                ..KubeConfigOptions::default()
            };
            proxy_url(&file, &options).map(|url| url.to_string())
        };
        let own = Some("socks5://localhost:1080/".to_owned());
        for (context, cluster, want) in
            [(None, None, &own), (Some("a"), None, &own), (None, Some("b"), &None), (Some("c"), None, &None)]
        {
            assert_eq!(&found(context, cluster), want, "{context:?} {cluster:?}");
        }
    }

    /// Documented by Kubernetes for apiservers behind an SSH tunnel.
    #[tokio::test]
    async fn proxy_may_speak_socks5() {
        crate::tls::install_provider();
        let mut config = Config::new("https://api.example.com".parse().unwrap());
        config.proxy_url = Some("socks5://localhost:1080".parse().unwrap());
        crate::client::client(config, &crate::metrics::Metrics::new()).unwrap();
    }
}
