//! The server that catalogd is compared with over TLS: a Go `net/http` file server, or nginx if it is requested and in PATH.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use olm_kit::{Child, Identity};

/// A running static file server.
#[derive(Debug)]
pub(crate) struct Anchor {
    /// What it is, with its version.
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    child: Child,
}

impl Anchor {
    /// Serves the files of `dir`. `scratch` takes settings, log and program.
    pub(crate) fn start(want_nginx: bool, dir: &Path, scratch: &Path, identity: &Identity) -> Result<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], olm_kit::free_port()?));
        let (name, mut command) = match version("nginx", "-v").filter(|_| want_nginx) {
            Some(version) => (version, nginx(dir, scratch, identity, address)?),
            None => {
                let version = version("go", "version").context("go is not in PATH")?;
                let name = format!("a Go net/http file server ({version})");
                (name, go(dir, scratch, identity, address)?)
            }
        };
        let child = Child::spawn("anchor", &mut command, &scratch.join("anchor.log"))?;
        Ok(Self { name, address, child })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }
}

/// The line in which a program prints its version, if it is there.
fn version(program: &str, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).output().ok()?;
    // nginx prints it on standard error
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).lines().next().map(str::to_owned)
}

fn go(dir: &Path, scratch: &Path, identity: &Identity, address: SocketAddr) -> Result<Command> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/content/anchor/main.go");
    let program = scratch.join("anchor");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(&source)
        // the standard library is all it needs: nothing is to be fetched
        .envs([("GOPROXY", "off"), ("GOTOOLCHAIN", "local"), ("GOFLAGS", "-mod=mod")])
        .output()?;
    ensure!(built.status.success(), "go build: {}", String::from_utf8_lossy(&built.stderr));
    let mut command = Command::new(program);
    command.arg("-dir").arg(dir).arg("-address").arg(address.to_string());
    command.arg("-cert").arg(&identity.certificate).arg("-key").arg(&identity.key);
    Ok(command)
}

fn nginx(dir: &Path, scratch: &Path, identity: &Identity, address: SocketAddr) -> Result<Command> {
    let settings: PathBuf = scratch.join("nginx.conf");
    let scratch_text = scratch.display();
    std::fs::write(
        &settings,
        format!(
            "daemon off; pid {scratch_text}/nginx.pid; error_log {scratch_text}/nginx.err; worker_processes 2;
events {{ worker_connections 256; }}
http {{
  client_body_temp_path {scratch_text}/nginx-body; proxy_temp_path {scratch_text}/nginx-proxy;
  fastcgi_temp_path {scratch_text}/nginx-fastcgi; uwsgi_temp_path {scratch_text}/nginx-uwsgi;
  scgi_temp_path {scratch_text}/nginx-scgi;
  access_log {scratch_text}/nginx.log; sendfile on; tcp_nopush on; keepalive_requests 1000000; default_type application/jsonl;
  server {{
    listen {address} ssl; root {};
    ssl_certificate {}; ssl_certificate_key {}; ssl_protocols TLSv1.2 TLSv1.3;
    gzip_static on;
  }}
}}
",
            dir.display(),
            identity.certificate.display(),
            identity.key.display()
        ),
    )?;
    let mut command = Command::new("nginx");
    command.arg("-c").arg(settings).arg("-p").arg(scratch);
    Ok(command)
}
