//! Logs: to standard error, as text or JSON, more of them with a higher `-v`; and traces, if a collector is named.
//!
//! `RUST_LOG` wins over `-v` when it is set. Log lines are for people; nothing reads them.

pub(crate) mod traces;

use tracing_subscriber::fmt::time::SystemTime;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{EnvFilter, Layer as _};

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One line for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// `RUST_LOG` is set to something else than filter directives.
    #[error("cannot read RUST_LOG")]
    Filter(#[from] tracing_subscriber::filter::FromEnvError),
    /// Traces cannot be sent.
    #[error("cannot send traces: {0}")]
    Traces(String),
    /// Logging was started before.
    #[error("logging is set up already")]
    Twice(#[from] TryInitError),
}

/// Starts logging; called once, first in `main`. `verbosity` is the number given to `-v`: 0 and 1 log what operators need, 2 to 5 what
/// developers need, 6 and above everything. Traces go to `collector` (a URL), or to that of the environment.
///
/// # Errors
/// If `RUST_LOG` cannot be read, traces cannot be sent, or logging was started before.
pub fn init(format: LogFormat, verbosity: u8, collector: &str) -> Result<(), TelemetryError> {
    let filter = match std::env::var_os("RUST_LOG") {
        Some(value) if !value.is_empty() => EnvFilter::try_from_default_env()?,
        _ => EnvFilter::new(directives(verbosity)),
    };
    let lines = || {
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_timer(SystemTime).with_ansi(false)
    };
    let lines = match format {
        LogFormat::Text => lines().boxed(),
        LogFormat::Json => lines().json().flatten_event(true).boxed(),
    };
    if traces::is_enabled(collector) {
        // each layer has a filter of its own: what is logged and what is traced do not depend on each other
        let traces = traces::layer(collector, &program())?;
        tracing_subscriber::registry().with(lines.with_filter(filter)).with(traces).try_init()?;
    } else {
        tracing_subscriber::registry().with(lines).with(filter).try_init()?;
    }
    Ok(())
}

fn program() -> String {
    let first = std::env::args_os().next().unwrap_or_default();
    let name = std::path::Path::new(&first).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn directives(verbosity: u8) -> &'static str {
    match verbosity {
        // the client logs each failed request without its URL; the caller logs what failed
        0 | 1 => "info,kube_client::client::builder=off",
        2..=5 => {
            "debug,hyper=info,hyper_util=info,h2=info,rustls=info,tower=info,kube_client=info,reqwest=info"
        }
        _ => "trace",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn telemetry_directives_of_each_verbosity_are_valid() {
        for verbosity in [0, 1, 2, 5, 6, 255] {
            EnvFilter::builder().parse(directives(verbosity)).unwrap();
        }
    }

    #[test]
    fn telemetry_starts_once() {
        let first = init(LogFormat::Json, 0, "");
        let second = init(LogFormat::Text, 0, "");
        assert!(first.is_ok() || matches!(first, Err(TelemetryError::Twice(_))));
        assert!(matches!(second, Err(TelemetryError::Twice(_))));
    }
}
