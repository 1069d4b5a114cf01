//! Ctrl-C between the changes of two extensions, with a stand-in for an apiserver.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};

/// The answer to a method with its address.
type Handler = dyn Fn(&str) -> Value + Send + Sync;

/// Starts a server and returns its address.
fn start(handler: Arc<Handler>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let handler = Arc::clone(&handler);
            std::thread::spawn(move || serve(stream.unwrap(), &*handler));
        }
    });
    address
}

/// Answers the requests of one connection; a watch stays open.
fn serve(mut stream: TcpStream, handler: &Handler) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut request = String::new();
        if reader.read_line(&mut request).unwrap_or(0) == 0 {
            return;
        }
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        if request.contains("watch=true") {
            return std::thread::sleep(Duration::from_secs(60));
        }
        let body = handler(&request).to_string();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
        if write!(stream, "{head} {}\r\n\r\n{body}", body.len()).is_err() {
            return;
        }
    }
}

/// An extension that is Ready.
fn extension(name: &str) -> Value {
    json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
        "metadata": {"name": name, "uid": name, "generation": 1, "resourceVersion": "1"},
        "spec": {"namespace": "n", "source": {"sourceType": "Catalog", "catalog": {"packageName": name}}},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Succeeded", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}]},
    })
}

#[test]
fn interrupt_keeps_the_next_extension_unchanged() {
    static CHILD: OnceLock<u32> = OnceLock::new();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requests);
    let handler = move |request: &str| {
        recorded.lock().unwrap().push(request.trim_end().to_owned());
        if request.contains("/clusterextensions/a") {
            return extension("a");
        }
        if request.contains("/clusterextensions/b") {
            // Ctrl-C after the wait for the first one
            let child = CHILD.wait().to_string();
            assert!(Command::new("kill").args(["-INT", &child]).status().unwrap().success());
            std::thread::sleep(Duration::from_millis(500));
            return extension("b");
        }
        let items = match (request.contains("/clusterextensions?"), request.contains("fieldSelector=")) {
            (true, false) => vec![extension("a"), extension("b")],
            (true, true) => vec![extension("a")],
            (false, _) => Vec::new(),
        };
        json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items})
    };
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = home.path().join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": start(Arc::new(handler))}}],
        "users": [{"name": "x", "user": {}}],
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();

    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-olm"));
    for proxy in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        command.env_remove(proxy);
    }
    let child = command
        .args(["upgrade", "--all", "--any-version", "--force", "--wait", "--settle", "0s", "--kubeconfig"])
        .arg(&kubeconfig)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    CHILD.set(child.id()).unwrap();
    let output = child.wait_with_output().unwrap();
    let [out, error] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!((output.status.code(), out.as_str()), (Some(130), "a is Ready\n"), "{error}");
    assert!(error.contains("interrupted; ClusterExtension \"b\" is not changed"), "{error}");
    let requests = requests.lock().unwrap();
    let changes: Vec<&String> = requests.iter().filter(|request| request.starts_with("PATCH ")).collect();
    assert!(changes.len() == 1 && changes[0].contains("/clusterextensions/a"), "{requests:?}");
}
