//! The compression of an answer (rule: catalogd §7.8): gzip or zstd, the higher weight wins, zstd at a tie; `*` is
//! not understood and weight zero excludes.

use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

/// How a representation is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// As it is.
    Identity,
    Gzip,
    Zstd,
}

impl Encoding {
    /// Value of `Content-Encoding`; none for identity.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Identity => None,
            Self::Gzip => Some("gzip"),
            Self::Zstd => Some("zstd"),
        }
    }

    /// What the entity tag of this representation ends with.
    #[must_use]
    pub(crate) fn tag_suffix(self) -> &'static str {
        match self {
            Self::Identity => "",
            Self::Gzip => "-gzip",
            Self::Zstd => "-zstd",
        }
    }
}

/// The encoding for these request headers.
#[must_use]
pub(super) fn negotiate(headers: &HeaderMap) -> Encoding {
    accepted(headers).next().unwrap_or(Encoding::Identity)
}

/// The encodings that these request headers accept, the preferred one first.
pub(super) fn accepted(headers: &HeaderMap) -> impl Iterator<Item = Encoding> {
    let (mut gzip, mut zstd) = (0_u16, 0_u16);
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    for item in values.flat_map(|value| value.split(',')) {
        let mut parts = item.split(';').map(str::trim);
        let weight = match parts.next().unwrap_or("") {
            name if name.eq_ignore_ascii_case("gzip") => &mut gzip,
            name if name.eq_ignore_ascii_case("zstd") => &mut zstd,
            _ => continue,
        };
        let given = parts.find_map(|part| {
            let (key, value) = part.split_once('=')?;
            key.trim().eq_ignore_ascii_case("q").then_some(value.trim())
        });
        *weight = given.map_or(1000, thousandths);
    }
    let mut both = [(zstd, Encoding::Zstd), (gzip, Encoding::Gzip)];
    if gzip > zstd {
        both.reverse();
    }
    both.into_iter().filter(|(weight, _)| *weight > 0).map(|(_, encoding)| encoding)
}

/// A weight between 0 and 1 in thousandths; what is none excludes.
fn thousandths(text: &str) -> u16 {
    match text.parse::<f32>() {
        Ok(weight) if (0.0..=1.0).contains(&weight) => {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000 fits")]
            let thousandths = (weight * 1000.0) as u16;
            thousandths
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_follows_weights_and_prefers_zstd() {
        for (header, want) in [
            ("", Encoding::Identity),
            ("gzip", Encoding::Gzip),
            ("GZIP", Encoding::Gzip),
            ("zstd", Encoding::Zstd),
            ("gzip, zstd", Encoding::Zstd),
            ("zstd;q=0.5, gzip;q=0.8", Encoding::Gzip),
            ("br, gzip;q=0.5", Encoding::Gzip),
            ("gzip;q=0", Encoding::Identity),
            ("gzip;q=0, zstd;q=0", Encoding::Identity),
            ("zstd;q=0, gzip", Encoding::Gzip),
            ("*", Encoding::Identity),
            ("br, deflate", Encoding::Identity),
            ("gzip;q=x", Encoding::Identity),
            ("gzip ; q=0.2", Encoding::Gzip),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, header.parse().unwrap());
            assert_eq!(negotiate(&headers), want, "{header:?}");
        }
    }
}
