use super::*;

#[test]
fn error_body_becomes_one_short_line() {
    let long = format!(r#"{{"errors":[{{"code":"DENIED","message":"{}\n"}}]}}"#, "x".repeat(500));
    let (code, message) = explain(long.as_bytes());
    assert_eq!(code.as_deref(), Some("DENIED"));
    assert_eq!(message.unwrap(), "x".repeat(200));
    assert_eq!(explain(b"<html>"), (None, None));
    assert_eq!(explain(br#"{"details":"incorrect username"}"#).1.as_deref(), Some("incorrect username"));
}

/// 127.0.0.2 stands for another machine, 127.0.0.3 for an address of the link.
fn distance(address: std::net::IpAddr) -> Distance {
    match address.to_string().as_str() {
        "127.0.0.2" => Distance::Network,
        "127.0.0.3" => Distance::Link,
        _ => Distance::Machine,
    }
}

/// The addresses written in the name.
fn lookup(name: String) -> guard::Found {
    if name == "gone.test" {
        let error = "failed to lookup address information: Name or service not known";
        return Box::pin(async move { Err(std::io::Error::other(error)) });
    }
    let spelt = |label: &str| match label {
        "far" => Some([127, 0, 0, 2]),
        "near" => Some([127, 0, 0, 1]),
        "link" => Some([127, 0, 0, 3]),
        _ => None,
    };
    let found = name.split(['-', '.']).filter_map(spelt).map(|address| (address, 0).into()).collect();
    Box::pin(async move { Ok(found) })
}

/// Servers on all three addresses and one port; `/v2/` of each redirects to the host that the repository names.
async fn servers() -> (u16, Vec<tokio::task::JoinHandle<()>>) {
    let first = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = first.local_addr().unwrap().port();
    let second = tokio::net::TcpListener::bind(("127.0.0.2", port)).await.unwrap();
    let third = tokio::net::TcpListener::bind(("127.0.0.3", port)).await.unwrap();
    let serve = |listener: tokio::net::TcpListener| {
        tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match tokio::io::AsyncReadExt::read_u8(&mut socket).await {
                        Ok(byte) => head.push(byte),
                        Err(_) => break,
                    }
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let to = head.split_once("/v2/to/").and_then(|(_, rest)| rest.split('/').next());
                let answer = match to {
                    Some(to) => {
                        format!("307 Temporary Redirect\r\nLocation: http://{to}.test:{port}/content")
                    }
                    None => "200 OK".to_owned(),
                };
                let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                let _ = tokio::io::AsyncWriteExt::write_all(&mut socket, answer.as_bytes()).await;
            }
        })
    };
    (port, vec![serve(first), serve(second), serve(third)])
}

/// The answer to a request to `registry`, which redirects to `to`.
async fn redirected(
    registry: &str,
    port: u16,
    to: &str,
    proxy: bool,
    configured: bool,
) -> Result<u16, String> {
    let proxy = proxy.then(|| format!("http://link-proxy.test:{port}"));
    let config = Config { proxies: Proxies { http: proxy, ..Proxies::default() }, ..Config::default() };
    let mut transport = Transport::new(config);
    transport.network = Network { lookup, distance };
    transport.plain.lock().insert(format!("{registry}.test:{port}"), true);
    let reference = format!("{registry}.test:{port}/to/{to}:1").parse().unwrap();
    let endpoint =
        Endpoint { location: Location { reference, insecure: true, configured }, credential: None };
    let ask = Ask::manifest(Method::GET, "manifests/1".into(), "reading");
    let sent = transport.send(&endpoint, &ask).await;
    sent.map(|answer| answer.status().as_u16()).map_err(|error| chain(&error))
}

/// The connection decides which names a registry may give, and the addresses that a name leads to are those that are judged.
#[tokio::test]
#[rustfmt::skip]
async fn redirect_names_are_checked_by_address() {
    let (port, servers) = servers().await;
    for (registry, to, want) in [
        ("far", "far", Ok(200)),
        ("far", "near", Err("near.test, named by far.test:{port}, leads to 127.0.0.1, an address of this machine or link")),
        // a further address of the registry's name changes nothing: the connection was made to the other one
        ("far-near", "near", Err("leads to 127.0.0.1")),
        ("far", "far-near", Err("leads to 127.0.0.1")),
        ("far", "link", Err("leads to 127.0.0.3")),
        ("near", "near", Ok(200)),
        ("near", "far", Ok(200)),
        ("near", "link", Err("leads to 127.0.0.3")),
    ] {
        let got = redirected(registry, port, to, false, false).await;
        match want {
            Ok(status) => assert_eq!(got, Ok(status), "{registry} to {to}"),
            Err(why) => {
                let (got, why) = (got.unwrap_err(), why.replace("{port}", &port.to_string()));
                assert!(got.contains(&why), "{registry} to {to}: {got}");
            }
        }
    }
    assert_eq!(redirected("far", port, "near", true, false).await, Ok(200), "the proxy judges names");
    servers.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn host_without_address_is_named() {
    let error = redirected("gone", 1, "far", false, false).await.unwrap_err();
    assert_eq!(error, "reading: lookup gone.test: no such host");
}

/// Metadata services answer on the link: only the administrator's own configuration leads there.
#[tokio::test]
async fn registry_on_the_link_needs_configuration() {
    let (port, servers) = servers().await;
    for registry in ["link", "far-link"] {
        let error = redirected(registry, port, "far", false, false).await.unwrap_err();
        assert!(error.contains("only a location in registries.conf may be there"), "{registry}: {error}");
    }
    assert_eq!(redirected("link", port, "far", false, true).await, Ok(200));
    for host in ["169.254.169.254", "[fe80::1]", "metadata.google.internal", "0xa9fea9fe:80"] {
        let reference = format!("{host}/cat:1").parse().unwrap();
        let location = Location { reference, insecure: false, configured: false };
        let ask = Ask::manifest(Method::GET, "manifests/1".into(), "reading");
        let transport = Transport::new(Config::default());
        let sent = transport.send(&Endpoint { location, credential: None }, &ask).await;
        let error = sent.unwrap_err().to_string();
        assert!(error.contains("only a location in registries.conf may be there"), "{host}: {error}");
    }
    servers.iter().for_each(tokio::task::JoinHandle::abort);
}

#[test]
fn retry_after_is_seconds() {
    for (text, want) in
        [("7", Some(7)), (" 0 ", Some(0)), ("Wed, 21 Oct 2015 07:28:00 GMT", None), ("-1", None)]
    {
        let got = pause_of(&HeaderValue::from_static(text));
        assert_eq!(got, want.map(Duration::from_secs), "{text}");
    }
}
