//! Listening sockets from addresses as Go flags write them: `:8443`, `127.0.0.1:0`, `localhost:80`; empty or `0` is off.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpListener;

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Not `host:port`.
    #[error("invalid address {0:?}; write it like :8443 or 127.0.0.1:8443")]
    Invalid(String),
    /// The system refuses.
    #[error("cannot listen on {address}")]
    Bind {
        address: String,
        #[source]
        source: std::io::Error,
    },
}

/// Whether the address means "do not listen".
#[must_use]
pub fn is_off(address: &str) -> bool {
    address.is_empty() || address == "0"
}

/// Listens on the address. Without a host it is every address of the machine, both IPv6 and IPv4 where there is IPv6.
///
/// # Errors
/// If the text is no address or the system refuses to listen.
pub async fn bind(address: &str) -> Result<TcpListener, ListenError> {
    let invalid = || ListenError::Invalid(address.to_owned());
    let (host, port) = address.rsplit_once(':').ok_or_else(invalid)?;
    let port: u16 = port.parse().map_err(|_| invalid())?;
    let bound = if host.is_empty() {
        match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
            Ok(listener) => Ok(listener),
            Err(_) => TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await,
        }
    } else {
        TcpListener::bind(address).await
    };
    bound.map_err(|source| ListenError::Bind { address: address.to_owned(), source })
}

/// Listens on the address, unless it is off.
///
/// # Errors
/// As [`bind`].
pub async fn optional(address: &str) -> Result<Option<TcpListener>, ListenError> {
    if is_off(address) { Ok(None) } else { bind(address).await.map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn listen_binds_or_reports_the_cause() {
        assert!(is_off("") && is_off("0") && !is_off(":0"));
        let listener = bind("127.0.0.1:0").await.unwrap();
        let taken = listener.local_addr().unwrap().to_string();
        assert_eq!(bind(&taken).await.unwrap_err().to_string(), format!("cannot listen on {taken}"));
        for address in ["8443", "localhost:http", ":99999", "nonsense"] {
            let want = format!("invalid address {address:?}; write it like :8443 or 127.0.0.1:8443");
            assert_eq!(bind(address).await.unwrap_err().to_string(), want);
        }
    }
}
