//! The gRPC registry: processor time and memory of the real catalogd that lists every bundle of a catalog.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use olm_fbc::testing::Format;
use tokio::net::TcpStream;

use crate::Plan;
use crate::api::Api;
use crate::catalog::generated;
use crate::measure::{cpu, memory};
use crate::process::{Catalogd, preload};
use crate::serve::settle;
use crate::table::{Table, mib};

/// Processor seconds of a list of 130 MB, with what is derived from the catalog first.
const TIME_GOAL: f64 = 1.5;
/// Most resident memory of the process.
const MEMORY_GOAL: u64 = 48 << 20;

pub(crate) async fn measure(plan: &Plan, table: &mut Table) -> Result<()> {
    let dir = tempfile::tempdir_in(crate::catalog::folder())?;
    let api = Api::start().await?;
    let bytes = if plan.full { 130_000_000 } else { 10_000_000 };
    let catalog = generated(bytes, Format::Json)?;
    preload(&api, dir.path(), &[("large", &catalog)])?;
    let mut catalogd = Catalogd::start(&api, dir.path())?;
    catalogd.wait_ready()?;
    settle(catalogd.pid()).await?;
    let (mut rounds, mut answer) = (Vec::new(), (0, 0));
    for _ in 0..plan.rounds() {
        let before = cpu(catalogd.pid())?;
        answer = list(catalogd.grpc).await?;
        rounds.push((cpu(catalogd.pid())? - before).as_secs_f64());
    }
    let (_, most) = memory(catalogd.pid())?;
    let first = rounds.first().copied().context("no round")?;
    let (messages, sent) = answer;
    let what =
        format!("ListBundles of {} MB: {messages} bundles in channels, {sent} bytes", bytes / 1_000_000);
    let limit = TIME_GOAL * bytes as f64 / 130e6;
    let shown = format!("{first:.2} CPU s (rounds: {rounds:.2?})");
    table.row(&what, &format!("≤ {limit:.2} CPU s"), &shown, Some(first <= limit));
    let goal = format!("≤ {}", mib(MEMORY_GOAL));
    table.row("Most resident memory of that process", &goal, &mib(most), Some(most <= MEMORY_GOAL));
    catalogd.stop()
}

/// Lists every bundle of the catalog `large`; returns the number of messages and the bytes of the answer.
async fn list(address: SocketAddr) -> Result<(usize, usize)> {
    let stream = TcpStream::connect(address).await?;
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(1 << 20).initial_connection_window_size(1 << 20);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    let running = tokio::spawn(connection);
    let request = Request::post("http://large/api.Registry/ListBundles")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(Bytes::from_static(&[0; 5])))?;
    let answer = sender.send_request(request).await?;
    let mut body = answer.into_body();
    // only heads of messages are read: what this process does is not measured, but it shares the machine
    let (mut messages, mut bytes, mut status) = (0, 0, None);
    let (mut head, mut skip) = (Vec::with_capacity(5), 0_usize);
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(data) => {
                bytes += data.len();
                let mut rest = &data[..];
                while !rest.is_empty() {
                    let skipped = skip.min(rest.len());
                    (rest, skip) = (rest.get(skipped..).unwrap_or_default(), skip - skipped);
                    let missing = (5 - head.len()).min(rest.len());
                    let (begin, end) = rest.split_at(missing);
                    head.extend_from_slice(begin);
                    rest = end;
                    if let [_, a, b, c, d] = head[..] {
                        skip = usize::try_from(u32::from_be_bytes([a, b, c, d]))?;
                        messages += 1;
                        head.clear();
                    }
                }
            }
            Err(frame) => {
                let trailers = frame.into_trailers().ok().context("a frame without data")?;
                status = trailers.get("grpc-status").cloned();
            }
        }
    }
    ensure!(status.as_ref().is_some_and(|status| status == "0"), "the list ended with status {status:?}");
    running.abort();
    Ok((messages, bytes))
}
