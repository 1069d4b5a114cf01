//! A stand-in for an apiserver, which answers by a function.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// Starts one and returns the path of its kubeconfig, which is written to `home`. Requests are answered by method and address, such as
/// `GET /api/v1/pods?limit=500 HTTP/1.1`, and a Status with its code; a watch stays open.
pub(crate) fn start(home: &Path, answer: impl Fn(&str) -> Value + Send + Sync + 'static) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": format!("http://{}", listener.local_addr()?)}}],
        "users": [{"name": "x", "user": {}}],
    });
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            // an error is the end of a connection
            std::thread::spawn(move || serve(stream, &*answer));
        }
    });
    let path = home.join("kubeconfig");
    std::fs::write(&path, config.to_string())?;
    Ok(path.to_str().context("path")?.to_owned())
}

/// Answers the requests of one connection.
fn serve(mut stream: TcpStream, answer: &dyn Fn(&str) -> Value) -> Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut request = String::new();
        if reader.read_line(&mut request)? == 0 {
            return Ok(());
        }
        let mut length: usize = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            if line.trim().is_empty() {
                break;
            }
        }
        reader.read_exact(&mut vec![0; length])?;
        if request.contains("watch=true") {
            std::thread::sleep(Duration::from_secs(60));
            return Ok(());
        }
        let answer = answer(request.trim_end());
        let code = answer["code"].as_u64().filter(|_| answer["kind"] == "Status").unwrap_or(200);
        let body = answer.to_string();
        let head = format!("HTTP/1.1 {code} -\r\ncontent-type: application/json\r\ncontent-length:");
        write!(stream, "{head} {}\r\n\r\n{body}", body.len())?;
    }
}
