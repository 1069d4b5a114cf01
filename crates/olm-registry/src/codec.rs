//! The encoding of messages: protobuf, with a limit on the fields of a message that is received.
//!
//! A field of two bytes may take a hundred in memory, so the bytes of a message do not limit its size there.

use std::marker::PhantomData;

use prost::bytes::Buf as _;
use prost::{Message, decode_length_delimiter};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstDecoder, ProstEncoder};

/// Fields of one message: for a bundle its skipped entries, properties, APIs and manifests, for a package its channels.
const MAX_FIELDS: usize = 100_000;

/// [`tonic_prost::ProstCodec`] with the limit.
#[derive(Debug)]
pub(crate) struct LimitedCodec<T, U>(PhantomData<(T, U)>);

/// Decodes messages within the limit.
#[derive(Debug)]
pub(crate) struct LimitedDecoder<U>(ProstDecoder<U>);

impl<T, U> Default for LimitedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for LimitedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = LimitedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        LimitedDecoder(ProstDecoder::default())
    }
}

impl<U: Message + Default> Decoder for LimitedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // the bytes of one message follow each other in memory
        check_fields(message.chunk())?;
        self.0.decode(message)
    }
}

/// Fields of a field are not counted: none of them is a list.
fn check_fields(mut message: &[u8]) -> Result<(), Status> {
    let mut count = 0;
    while !message.is_empty() {
        count += 1;
        if count > MAX_FIELDS {
            let problem = format!("a message has more than the limit of {MAX_FIELDS} fields");
            return Err(Status::resource_exhausted(problem));
        }
        let unreadable = || Status::internal("a message has a field that cannot be read");
        message = after_field(message).ok_or_else(unreadable)?;
    }
    Ok(())
}

/// What follows the first field of a message. `None`: it ends before that, or the field is a group, which no message of the protocol has.
fn after_field(mut message: &[u8]) -> Option<&[u8]> {
    let key = decode_length_delimiter(&mut message).ok()?;
    let length = match key & 7 {
        0 => decode_length_delimiter(&mut message).ok().map(|_| 0)?,
        1 => 8,
        2 => decode_length_delimiter(&mut message).ok()?,
        5 => 4,
        _ => return None,
    };
    message.get(length..)
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::proto;

    #[test]
    fn message_fields_are_limited() {
        let bundle = |skips: usize| proto::Bundle {
            csv_name: "p.v1".to_owned(),
            skips: vec![String::new(); skips],
            properties: vec![proto::Property { r#type: "t".to_owned(), value: "{}".to_owned() }],
            ..proto::Bundle::default()
        };
        assert!(check_fields(&bundle(MAX_FIELDS - 2).encode_to_vec()).is_ok());
        let error = check_fields(&bundle(MAX_FIELDS - 1).encode_to_vec()).unwrap_err();
        let want = (Code::ResourceExhausted, "a message has more than the limit of 100000 fields");
        assert_eq!((error.code(), error.message()), want);
        // a number, eight bytes and four bytes of fields that a later version of the protocol may add
        let others = [&[8, 200, 1][..], &[17, 0, 0, 0, 0, 0, 0, 0, 0][..], &[29, 0, 0, 0, 0][..]].concat();
        assert!(check_fields(&others).is_ok());
        for (case, message) in
            [("group", &[11, 12][..]), ("end in a field", &[10, 5, 0][..]), ("end", &[10][..])]
        {
            assert_eq!(check_fields(message).unwrap_err().code(), Code::Internal, "{case}");
        }
    }
}
