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

/// A name that a registry gives is as good as its address.
#[tokio::test]
async fn redirect_names_are_checked_by_address() {
    fn lookup(name: String) -> guard::Found {
        let address = if name == "far.test" { [192, 0, 2, 1] } else { [127, 0, 0, 1] };
        Box::pin(async move { Ok(vec![(address, 0).into()]) })
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let came = tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(tokio::io::AsyncReadExt::read_u8(&mut socket).await.unwrap());
            }
            let answer = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
            tokio::io::AsyncWriteExt::write_all(&mut socket, answer).await.unwrap();
        }
    });
    let get = async |registry: &str, proxy: Option<&str>| {
        let config = Config {
            proxies: Proxies { http: proxy.map(str::to_owned), ..Proxies::default() },
            ..Config::default()
        };
        let mut transport = Transport::new(config);
        transport.lookup = lookup;
        let location = Location { reference: format!("{registry}/cat:1").parse().unwrap(), insecure: true };
        let endpoint = Endpoint { location, credential: None };
        let pair = transport.clients(&endpoint).unwrap();
        let sent = pair.other.get(format!("http://spy.test:{port}/")).send().await;
        sent.map(|answer| answer.status().as_u16()).map_err(|error| chain(&error))
    };
    let refused = get("far.test", None).await.unwrap_err();
    assert!(
        refused
            .contains("spy.test, named by far.test, leads to 127.0.0.1, an address of this machine or link"),
        "{refused}"
    );
    assert_eq!(get("near.test", None).await, Ok(204), "a registry on this machine may name this machine");
    let proxy = format!("http://proxy.test:{port}");
    assert_eq!(get("far.test", Some(&proxy)).await, Ok(204), "a proxy is the administrator's word");
    came.abort();
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
