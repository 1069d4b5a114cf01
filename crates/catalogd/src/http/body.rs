//! Response bodies: positioned reads from open files, in frames of 128 KiB whose buffers are used again.
//!
//! Reading happens where the connection is driven: the bytes are almost always in the page cache, and handing each
//! read to another thread costs more than it saves (measured, feasibility §5). At most two frames a request exist.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};

use super::cache::{Collector, Permit};
use super::encoding::Encoding;
use crate::store::{Blob, Content, Section};

/// Bytes of one frame.
pub const FRAME: usize = olm_runtime::serve::SEND_BUFFER;

/// Which file of a [`Content`] is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentFile {
    /// `catalog.jsonl` as it is.
    Plain,
    /// The gzip copy.
    Gzip,
    /// The zstd copy.
    Zstd,
}

impl ContentFile {
    /// The file that is sent with this encoding.
    pub(super) fn in_encoding(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Identity => Self::Plain,
            Encoding::Gzip => Self::Gzip,
            Encoding::Zstd => Self::Zstd,
        }
    }

    /// The file, if the content has it.
    #[must_use]
    pub fn blob(self, content: &Content) -> Option<&Blob> {
        match self {
            Self::Plain => Some(content.jsonl()),
            Self::Gzip => content.gzip(),
            Self::Zstd => content.zstd(),
        }
    }
}

/// A piece of a body.
#[derive(Debug)]
pub enum Piece {
    /// Bytes made for this response (boundaries of multi-part answers).
    Bytes(Bytes),
    /// A run of bytes of the file.
    File(Section),
}

/// Body of a response.
pub enum Body {
    /// No bytes.
    Empty,
    /// Bytes in memory.
    Full(Bytes),
    /// Runs of a stored file.
    Stored(FileBody),
    /// Runs of a stored file, compressed on the way.
    Compressed(Box<Compressed>),
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Empty => "Empty",
            Self::Full(_) => "Full",
            Self::Stored(_) => "Stored",
            Self::Compressed(_) => "Compressed",
        })
    }
}

/// Reads pieces in order. Holds the content, so that its files stay readable while it is sent.
pub struct FileBody {
    content: Arc<Content>,
    copy: ContentFile,
    pieces: VecDeque<Piece>,
    left: u64,
    /// The frames sent last; when the connection has let go of one, its memory is used again.
    sent: [Option<Bytes>; 2],
}

impl FileBody {
    /// A body of these pieces.
    #[must_use]
    pub fn new(content: Arc<Content>, copy: ContentFile, pieces: impl IntoIterator<Item = Piece>) -> Self {
        let pieces: VecDeque<_> = pieces.into_iter().collect();
        let left = pieces.iter().map(|piece| match piece {
            Piece::Bytes(bytes) => bytes.len() as u64,
            Piece::File(section) => section.len,
        });
        let left = left.sum();
        Self { content, copy, pieces, left, sent: [None, None] }
    }

    /// Bytes still to come.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The next bytes, or `None` at the end.
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        if let Some(Piece::Bytes(_)) = self.pieces.front() {
            let Some(Piece::Bytes(bytes)) = self.pieces.pop_front() else { return Ok(None) };
            self.left -= bytes.len() as u64;
            return Ok(Some(bytes));
        }
        let want = usize::try_from(self.left).unwrap_or(FRAME).min(FRAME);
        if want == 0 || self.pieces.is_empty() {
            return Ok(None);
        }
        let mut buffer = self.buffer(want);
        let filled = self.fill(&mut buffer)?;
        buffer.truncate(filled);
        self.left -= filled as u64;
        let frame = buffer.freeze();
        if self.left > 0 && frame.len() == FRAME {
            self.sent.swap(0, 1);
            self.sent[0] = Some(frame.clone());
        }
        Ok(Some(frame))
    }

    /// Reads as many neighbouring file pieces as the buffer takes.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let blob = self.copy.blob(&self.content).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let mut filled = 0;
        while let Some(Piece::File(section)) = self.pieces.front_mut() {
            let free = buffer.get_mut(filled..).unwrap_or_default();
            if free.is_empty() {
                break;
            }
            let count = usize::try_from(section.len).unwrap_or(free.len()).min(free.len());
            blob.read_at(free.get_mut(..count).unwrap_or_default(), section.start)?;
            filled += count;
            section.start += count as u64;
            section.len -= count as u64;
            if section.len == 0 {
                self.pieces.pop_front();
            }
        }
        Ok(filled)
    }

    fn buffer(&mut self, want: usize) -> BytesMut {
        for sent in self.sent.iter_mut().rev() {
            if let Some(frame) = sent.take() {
                match frame.try_into_mut() {
                    Ok(buffer) if buffer.len() >= want => {
                        let mut buffer = buffer;
                        buffer.truncate(want);
                        return buffer;
                    }
                    Ok(_) => {}
                    Err(frame) => *sent = Some(frame),
                }
            }
        }
        BytesMut::zeroed(want)
    }
}

enum Encoder {
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

/// Compresses a [`FileBody`] while it is read; memory is one frame and the encoder's window, and what is collected for
/// the next request.
pub struct Compressed {
    source: FileBody,
    encoder: Option<Encoder>,
    collector: Option<Collector>,
    /// Held as long as this compresses.
    _permit: Option<Permit>,
}

impl Compressed {
    /// Begins to compress.
    ///
    /// # Errors
    /// When the encoder cannot be made.
    pub fn new(source: FileBody, encoding: Encoding) -> io::Result<Self> {
        let encoder = match encoding {
            Encoding::Identity => None,
            Encoding::Gzip => {
                Some(Encoder::Gzip(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast())))
            }
            Encoding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), ON_THE_FLY_ZSTD)?;
                encoder.window_log(ON_THE_FLY_WINDOW_LOG)?;
                Some(Encoder::Zstd(encoder))
            }
        };
        Ok(Self { source, encoder, collector: None, _permit: None })
    }

    /// Compresses under `permit`; what is sent is also given to `collector`.
    pub(super) fn on_the_way(self, permit: Permit, collector: Option<Collector>) -> Self {
        Self { collector, _permit: Some(permit), ..self }
    }

    /// Compresses all of it; for small bodies.
    ///
    /// # Errors
    /// When the content cannot be read.
    pub fn all(mut self) -> io::Result<Bytes> {
        let mut out = BytesMut::new();
        while let Some(bytes) = self.next()? {
            out.extend_from_slice(&bytes);
        }
        Ok(out.freeze())
    }

    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let next = self.encode()?;
        if let Some(collector) = self.collector.take() {
            match &next {
                Some(piece) => self.collector = collector.push(piece),
                None => collector.finish(),
            }
        }
        Ok(next)
    }

    fn encode(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            let Some(encoder) = &mut self.encoder else { return self.source.next() };
            match self.source.next()? {
                Some(bytes) => {
                    let out = match encoder {
                        Encoder::Gzip(encoder) => {
                            encoder.write_all(&bytes)?;
                            std::mem::take(encoder.get_mut())
                        }
                        Encoder::Zstd(encoder) => {
                            encoder.write_all(&bytes)?;
                            std::mem::take(encoder.get_mut())
                        }
                    };
                    if !out.is_empty() {
                        return Ok(Some(out.into()));
                    }
                }
                None => {
                    let rest = match self.encoder.take() {
                        Some(Encoder::Gzip(encoder)) => encoder.finish()?,
                        Some(Encoder::Zstd(encoder)) => encoder.finish()?,
                        None => Vec::new(),
                    };
                    // The source is at its end: with no encoder left the next call ends the body.
                    return Ok(Some(rest.into()));
                }
            }
        }
    }
}

/// Compresses bytes in memory.
///
/// # Errors
/// When the encoder cannot be made.
pub(crate) fn compress_all(bytes: &[u8], encoding: Encoding) -> io::Result<Bytes> {
    match encoding {
        Encoding::Identity => Ok(Bytes::copy_from_slice(bytes)),
        Encoding::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes)?;
            encoder.finish().map(Bytes::from)
        }
        Encoding::Zstd => zstd::bulk::compress(bytes, ON_THE_FLY_ZSTD).map(Bytes::from),
    }
}

/// The fastest level that is still denser than gzip.
const ON_THE_FLY_ZSTD: i32 = 1;
/// It looks back 256 KiB, so that many answers can be compressed at a time.
const ON_THE_FLY_WINDOW_LOG: u32 = 18;

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let next = match &mut *self {
            Self::Empty => Ok(None),
            Self::Full(bytes) if bytes.is_empty() => Ok(None),
            Self::Full(bytes) => Ok(Some(std::mem::take(bytes))),
            Self::Stored(file) => file.next(),
            Self::Compressed(compressed) => compressed.next(),
        };
        Poll::Ready(next.transpose().map(|next| next.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(bytes) => bytes.is_empty(),
            Self::Stored(file) => file.left == 0,
            Self::Compressed(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stored(file) => SizeHint::with_exact(file.left),
            Self::Compressed(_) => SizeHint::default(),
        }
    }
}

impl Body {
    /// Text in memory.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Full(Bytes::from(text.into()))
    }
}
