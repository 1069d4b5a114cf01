//! `check`: whether a URL answers over TLS with a certificate of the given CAs. The images hold no other program, so `helm test` runs this.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio::time::Instant;

use crate::duration::GoDuration;
use crate::process;
use crate::tls::{self, CaPool, TlsError, TlsSettings};

/// The time between two attempts, and the limit of one.
const RETRY: Duration = Duration::from_secs(1);
const ATTEMPT: Duration = Duration::from_secs(5);

/// What is checked.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// The URL; a status below 500 is an answer
    url: String,

    /// A directory with the CAs to trust; those of the system are not trusted then
    #[arg(long, value_name = "DIR")]
    cas_dir: Option<PathBuf>,

    /// How long it is tried
    #[arg(long, value_name = "DURATION", default_value = "1m")]
    timeout: GoDuration,
}

/// No answer in time.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The CAs cannot be read.
    #[error("cannot read the CAs to trust: {0}")]
    Tls(#[from] TlsError),
    /// The last attempt failed.
    #[error("no answer within {limit:?}: {last}")]
    NoAnswer {
        /// The flag.
        limit: Duration,
        /// Why the last attempt failed.
        last: String,
    },
}

/// Tries the URL until it answers, and prints the status.
///
/// # Errors
/// [`CheckError`].
pub async fn run(args: CheckArgs) -> Result<(), CheckError> {
    tls::install_provider();
    let deadline = Instant::now() + args.timeout.0;
    loop {
        let last = match attempt(&args).await? {
            Ok(status) => {
                process::print_line(&format!("{}: {status}", args.url));
                return Ok(());
            }
            Err(problem) => problem,
        };
        if Instant::now() + RETRY > deadline {
            return Err(CheckError::NoAnswer { limit: args.timeout.0, last });
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// One request; the CAs are read again, because the files may follow.
async fn attempt(args: &CheckArgs) -> Result<Result<String, String>, TlsError> {
    let pool = match &args.cas_dir {
        Some(folder) => CaPool::given(Vec::new(), Some(folder))?,
        None => CaPool::load(None)?,
    };
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(pool.client_config(&TlsSettings::default())?)
        .no_proxy()
        .timeout(ATTEMPT)
        .build();
    let sent = match client {
        Ok(client) => client.get(&args.url).send().await,
        Err(error) => Err(error),
    };
    Ok(match sent {
        Ok(answer) if answer.status().as_u16() < 500 => Ok(answer.status().to_string()),
        Ok(answer) => Err(format!("{}: {}", args.url, answer.status())),
        Err(error) => Err(crate::error_text::chain(&error)),
    })
}
