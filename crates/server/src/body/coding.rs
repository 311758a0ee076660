//! [`ContentCoding`]: compressed request bodies. Decompressed bytes count against the same limits as the bytes of an uncompressed
//! body, while they are produced: a small body that would expand beyond a limit is refused at that limit.

use std::io::Read;

use axum::http::{HeaderMap, StatusCode, header};
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};

use super::incoming::{MOST_BYTES, RawBody};
use crate::error::{ApiError, Result};
use crate::fields::brief_text;

/// Compression of a body (RFC 9110, section 8.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentCoding {
    Gzip,
    /// The zlib format.
    Deflate,
}

/// Number of bytes that are decompressed at a time.
const PIECE: usize = 64 << 10;

impl ContentCoding {
    /// Reads the coding from the headers of a request; `None` if the body is not compressed.
    ///
    /// # Errors
    /// 415 for an unsupported coding, and for several codings.
    pub(super) fn of(headers: &HeaderMap) -> Result<Option<ContentCoding>> {
        let mut given = headers.get_all(header::CONTENT_ENCODING).iter();
        let coding = match (given.next(), given.next()) {
            (None, _) => return Ok(None),
            (Some(coding), None) => coding,
            _ => return Err(refused("several")),
        };
        let coding = String::from_utf8_lossy(coding.as_bytes());
        match &*coding.trim().to_ascii_lowercase() {
            "" | "identity" => Ok(None),
            "gzip" | "x-gzip" => Ok(Some(ContentCoding::Gzip)),
            "deflate" => Ok(Some(ContentCoding::Deflate)),
            _ => Err(refused(&coding)),
        }
    }

    /// Returns the decompressed body.
    ///
    /// # Errors
    /// 400 for bytes that are invalid in this coding; 413 and 503 as for an uncompressed body.
    pub(super) fn decompress(self, body: &RawBody) -> Result<RawBody> {
        let bytes = &body.bytes[..];
        match self {
            ContentCoding::Gzip => self.read(MultiGzDecoder::new(bytes), body),
            ContentCoding::Deflate => self.read(ZlibDecoder::new(bytes), body),
        }
    }

    fn read(self, decoder: impl Read, body: &RawBody) -> Result<RawBody> {
        let mut made = RawBody::empty(body.reservation.another());
        let most = MOST_BYTES as u64 + 1;
        let mut decoder = decoder.take(most);
        let mut piece = vec![0; PIECE];
        loop {
            let n = decoder.read(&mut piece).map_err(|error| {
                let name = self.name();
                ApiError::invalid(format!("the body cannot be decompressed as {name}: {error}"))
            })?;
            if n == 0 {
                return Ok(made);
            }
            made.append(&piece[..n])?;
        }
    }

    fn name(self) -> &'static str {
        match self {
            ContentCoding::Gzip => "gzip",
            ContentCoding::Deflate => "deflate",
        }
    }
}

fn refused(coding: &str) -> ApiError {
    let coding = brief_text(coding);
    let message = format!("Content-Encoding {coding} is not supported: send gzip, deflate or none");
    ApiError::invalid(message).with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use axum::http::HeaderValue;
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;
    use crate::guard::ClientId;
    use crate::intake::ByteBudget;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn one_known_coding_is_read() {
        let of = |given: &[&str]| {
            let mut headers = HeaderMap::new();
            for coding in given {
                headers.append(header::CONTENT_ENCODING, HeaderValue::from_str(coding).unwrap());
            }
            ContentCoding::of(&headers).map_err(|error| (error.status(), error.message))
        };
        assert_eq!((of(&[]), of(&["identity"])), (Ok(None), Ok(None)));
        assert_eq!(of(&["GZIP"]), Ok(Some(ContentCoding::Gzip)));
        assert_eq!(of(&["deflate"]), Ok(Some(ContentCoding::Deflate)));
        for other in [&["br"][..], &["zstd"], &["gzip, gzip"], &["gzip", "gzip"]] {
            let (status, message) = of(other).unwrap_err();
            assert!(status == 415 && message.contains("send gzip"), "{other:?}: {message}");
        }
    }

    #[test]
    fn what_is_decompressed_is_bounded_and_reserved() {
        let budget = ByteBudget::new(64 << 20, None);
        let decompressed = |coding: ContentCoding, bytes: Vec<u8>| {
            let mut body = RawBody::empty(budget.reservation(ClientId::Local));
            body.append(&bytes).unwrap();
            coding.decompress(&body).map_err(|error| (error.status(), error.message))
        };
        let gunzip = |bytes| decompressed(ContentCoding::Gzip, bytes);
        assert_eq!(gunzip(gzip(b"{\"a\": 1}")).unwrap().bytes, b"{\"a\": 1}");
        // several gzip members in sequence
        assert_eq!(gunzip([gzip(b"{"), gzip(b"}")].concat()).unwrap().bytes, b"{}");
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(b"{}").unwrap();
        let zlib = encoder.finish().unwrap();
        assert_eq!(decompressed(ContentCoding::Deflate, zlib).unwrap().bytes, b"{}");
        for wrong in [&b"{}"[..], &gzip(b"{}")[..12], &[gzip(b"{}"), b"{}".to_vec()].concat()] {
            let (status, message) = gunzip(wrong.to_vec()).err().unwrap();
            assert!(status == 400 && message.contains("as gzip"), "{message}");
        }
        let fits = gunzip(gzip(&vec![b' '; MOST_BYTES])).unwrap();
        assert_eq!((fits.bytes.len(), budget.used() >= MOST_BYTES as u64), (MOST_BYTES, true));
        drop(fits);
        let bomb = gzip(&vec![b' '; 8 * MOST_BYTES]);
        assert!(bomb.len() < MOST_BYTES / 50, "{}", bomb.len());
        assert_eq!(gunzip(bomb.clone()).err().unwrap().0, 413);
        assert_eq!(budget.used(), 0);
        // one request may hold a quarter of the budget, which is less here than the size limit of bodies
        let budget = ByteBudget::new(4 << 20, None);
        let mut body = RawBody::empty(budget.reservation(ClientId::Local));
        body.append(&bomb).unwrap();
        let refused = ContentCoding::Gzip.decompress(&body).err().unwrap();
        assert_eq!(refused.status(), 413);
    }
}
