//! Typed decoding of normalised objects as Go decodes into structs (fbc §5): member names match whatever
//! their case, unknown members are ignored, `null` leaves the zero value, a wrong type is an error in Go's
//! words. Of several spellings of one member the last in byte order wins.

use std::{borrow::Cow, collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize,
    de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// Where a value sits, for error texts: the innermost struct and the members from the root.
#[derive(Clone, Copy)]
pub struct Path<'a> {
    pub(crate) parent: Option<&'a Path<'a>>,
    pub(crate) owner: &'static str,
    pub(crate) member: &'static str,
}

impl Path<'_> {
    /// `json: cannot unmarshal <found> into Go struct field <path> of type <expected>`.
    pub(crate) fn mismatch<E: de::Error>(&self, found: &str, expected: &str) -> E {
        E::custom(format_args!(
            "json: cannot unmarshal {found} into Go struct field {self} of type {expected}"
        ))
    }

    fn members(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.members(f)?;
        }
        write!(f, ".{}", self.member)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.owner)?;
        self.members(f)
    }
}

/// A type that can be read as Go would read it: each kind of JSON value is refused unless the type
/// accepts it, and `null` is no value at all.
pub trait Decode: Sized {
    /// The type's name in Go's error texts.
    fn go_type() -> String;

    fn from_bool<E: de::Error>(_: bool, path: &Path<'_>) -> Result<Self, E> {
        Err(path.mismatch("bool", &Self::go_type()))
    }

    fn from_text<E: de::Error>(_: &str, path: &Path<'_>) -> Result<Self, E> {
        Err(path.mismatch("string", &Self::go_type()))
    }

    fn from_number<E: de::Error>(_: f64, path: &Path<'_>) -> Result<Self, E> {
        Err(path.mismatch("number", &Self::go_type()))
    }

    fn from_list<'de, A: SeqAccess<'de>>(_: A, path: &Path<'_>) -> Result<Self, A::Error> {
        Err(path.mismatch("array", &Self::go_type()))
    }

    fn from_object<'de, A: MapAccess<'de>>(_: A, path: &Path<'_>) -> Result<Self, A::Error> {
        Err(path.mismatch("object", &Self::go_type()))
    }

    fn decode<'de, D: Deserializer<'de>>(value: D, path: &Path<'_>) -> Result<Option<Self>, D::Error> {
        value.deserialize_any(Kinds::new(path))
    }
}

/// Sends each kind of JSON value to its method of [`Decode`].
pub(crate) struct Kinds<'p, T> {
    path: &'p Path<'p>,
    expected: PhantomData<T>,
}

impl<'de, T: Decode> Visitor<'de> for Kinds<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&T::go_type())
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
        T::from_bool(value, self.path).map(Some)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        T::from_number(number as f64, self.path).map(Some)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        T::from_number(number as f64, self.path).map(Some)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Self::Value, E> {
        T::from_number(number, self.path).map(Some)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        T::from_text(text, self.path).map(Some)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        T::from_list(items, self.path).map(Some)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
        T::from_object(members, self.path).map(Some)
    }
}

impl<'p, T> Kinds<'p, T> {
    pub(crate) fn new(path: &'p Path<'p>) -> Self {
        Self { path, expected: PhantomData }
    }
}

impl<'de, T: Decode> DeserializeSeed<'de> for Kinds<'_, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<Option<T>, D::Error> {
        T::decode(value, self.path)
    }
}

impl Decode for String {
    fn go_type() -> String {
        "string".to_owned()
    }

    fn from_text<E: de::Error>(text: &str, _: &Path<'_>) -> Result<Self, E> {
        Ok(text.to_owned())
    }
}

impl Decode for bool {
    fn go_type() -> String {
        "bool".to_owned()
    }

    fn from_bool<E: de::Error>(value: bool, _: &Path<'_>) -> Result<Self, E> {
        Ok(value)
    }
}

macro_rules! integers {
    ($($type:ty = $go:literal),*) => { $(
        impl Decode for $type {
            fn go_type() -> String {
                $go.to_owned()
            }

            fn from_number<E: de::Error>(number: f64, path: &Path<'_>) -> Result<Self, E> {
                let whole = number as Self;
                if whole as f64 == number {
                    return Ok(whole);
                }
                Err(path.mismatch(&format!("number {}", olm_core::go::json_number(number)), $go))
            }
        }
    )* };
}
integers!(i32 = "int32", i64 = "int");

/// Bytes written as base64; line ends inside are tolerated.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Base64(pub Vec<u8>);

impl Decode for Base64 {
    fn go_type() -> String {
        "[]uint8".to_owned()
    }

    fn from_text<E: de::Error>(text: &str, _: &Path<'_>) -> Result<Self, E> {
        let illegal = |at| E::custom(format_args!("illegal base64 data at input byte {at}"));
        olm_yaml::decode_base64(text).map(Base64).map_err(illegal)
    }
}

/// Any JSON value, kept as its normalised text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json(Box<str>);

impl Default for Json {
    fn default() -> Self {
        Self("null".into())
    }
}

impl From<Json> for String {
    fn from(json: Json) -> Self {
        json.0.into()
    }
}

impl Json {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn to_value(&self) -> serde_json::Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    pub(crate) fn read<T: GoStruct>(&self) -> Result<T, String> {
        read(self.0.as_bytes())
    }
}

impl Decode for Json {
    fn decode<'de, D: Deserializer<'de>>(value: D, _: &Path<'_>) -> Result<Option<Self>, D::Error> {
        Ok(Some(Self(Box::<RawValue>::deserialize(value)?.into())))
    }

    fn go_type() -> String {
        "json.RawMessage".to_owned()
    }
}

impl<T: Decode + Default> Decode for Vec<T> {
    fn go_type() -> String {
        format!("[]{}", T::go_type())
    }

    fn from_list<'de, A: SeqAccess<'de>>(mut items: A, path: &Path<'_>) -> Result<Self, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Kinds::<T>::new(path))? {
            list.push(item.unwrap_or_default());
        }
        Ok(list)
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode<'de, D: Deserializer<'de>>(value: D, path: &Path<'_>) -> Result<Option<Self>, D::Error> {
        T::decode(value, path).map(|value| value.map(Some))
    }

    fn go_type() -> String {
        T::go_type()
    }
}

impl<T: Decode + Default> Decode for BTreeMap<String, T> {
    fn go_type() -> String {
        format!("map[string]{}", T::go_type())
    }

    fn from_object<'de, A: MapAccess<'de>>(mut members: A, path: &Path<'_>) -> Result<Self, A::Error> {
        let mut map = BTreeMap::new();
        while let Some(key) = members.next_key::<String>()? {
            let value = members.next_value_seed(Kinds::<T>::new(path))?;
            map.insert(key, value.unwrap_or_default());
        }
        Ok(map)
    }
}

/// A member name, without a copy unless it has escapes: serde always copies a bare `Cow`.
#[derive(Deserialize)]
pub(crate) struct MemberName<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// Whether a member name is `name` (ASCII) under Go's simple folding.
pub(crate) fn folds_to(key: &str, name: &str) -> bool {
    if key.len() == name.len() {
        return key.eq_ignore_ascii_case(name);
    }
    let fold = |c: char| match c {
        '\u{17F}' => 's',
        '\u{212A}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    !key.is_ascii() && key.chars().map(fold).eq(name.chars().map(fold))
}

pub trait GoStruct: Decode + Default {
    /// The name that Go's messages give to the root.
    const OWNER: &'static str;
}

/// Declares structs whose members are read as Go reads them.
macro_rules! go_struct {
    ($(
        $(#[$doc:meta])*
        $vis:vis struct $name:ident ($owner:literal, $go:literal) {
            $( $(#[$member_doc:meta])* $field_vis:vis $field:ident : $type:ty = $member:literal ),* $(,)?
        }
    )*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        $vis struct $name { $( $(#[$member_doc])* $field_vis $field: $type ),* }

        impl $crate::decode::Decode for $name {
            fn go_type() -> String {
                $go.to_owned()
            }

            fn from_object<'de, A: serde::de::MapAccess<'de>>(
                mut members: A,
                path: &$crate::decode::Path<'_>,
            ) -> Result<Self, A::Error> {
                let mut found = $name::default();
                let parent = (!path.member.is_empty()).then_some(path);
                while let Some(key) = members.next_key::<$crate::decode::MemberName<'de>>()? {
                    $( if $crate::decode::folds_to(&key.0, $member) {
                        let path = $crate::decode::Path { parent, owner: $owner, member: $member };
                        if let Some(value) = members.next_value_seed($crate::decode::Kinds::<$type>::new(&path))? {
                            found.$field = value;
                        }
                        continue;
                    } )*
                    members.next_value::<serde::de::IgnoredAny>()?;
                }
                Ok(found)
            }
        }

        impl $crate::decode::GoStruct for $name {
            const OWNER: &'static str = $owner;
        }
    )* };
}
pub(crate) use go_struct;

pub(crate) fn read<T: GoStruct>(json: &[u8]) -> Result<T, String> {
    let owner = T::OWNER;
    let root = Path { parent: None, owner, member: "" };
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = T::decode(&mut deserializer, &root).map_err(|error| {
        let text = error.to_string();
        // serde_json adds where in the line it was; Go does not
        let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
        let root = format!("into Go struct field {owner}. of type ");
        text.replace(&root, "into Go value of type ")
    })?;
    Ok(value.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    go_struct! {
        struct Inner("E", "main.E") {
                name: String = "name",
                skips: Vec<String> = "skips",
                data: Base64 = "base64data",
        }
        struct Outer("C", "main.C") {
                name: String = "name",
                entries: Vec<Inner> = "entries",
        }
    }

    #[test]
    fn base64_is_read_as_go_reads_it() {
        // long enough for vector instructions
        let (long, decoded) = ("aGVs".repeat(40), "hel".repeat(40));
        let wrong = format!("{long}-GVs{long}");
        for (text, want) in [
            (long.as_str(), Ok(decoded.as_str())),
            (wrong.as_str(), Err(160)),
            ("aGVsbG8=", Ok("hello")),
            ("aGVs\nbG8=\n", Ok("hello")),
            ("aG\r\nVsbG\r\n8=\r\n", Ok("hello")),
            ("", Ok("")),
            ("aGVsbG8", Err(4)),
            ("aGVs bG8=", Err(4)),
            ("aGVs-G8=", Err(4)),
        ] {
            let json = serde_json::json!({"entries": [{"base64data": text}]}).to_string();
            let got = read::<Outer>(json.as_bytes()).map(|outer| outer.entries[0].data.0.clone());
            let want = want
                .map(|bytes| bytes.as_bytes().to_vec())
                .map_err(|at: usize| format!("illegal base64 data at input byte {at}"));
            assert_eq!(got, want, "{text:?}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn decode_errors_are_those_of_go() {
        for (input, want) in [
            (r#"{"name":5}"#, "json: cannot unmarshal number into Go struct field C.name of type string"),
            (r#"{"entries":[{"name":5}]}"#, "json: cannot unmarshal number into Go struct field E.entries.name of type string"),
            (r#"{"entries":{"a":1}}"#, "json: cannot unmarshal object into Go struct field C.entries of type []main.E"),
            (r#"{"entries":["x"]}"#, "json: cannot unmarshal string into Go struct field C.entries of type main.E"),
            (r#"{"entries":[{"skips":[true]}]}"#, "json: cannot unmarshal bool into Go struct field E.entries.skips of type string"),
            (r#"[]"#, "json: cannot unmarshal array into Go value of type main.C"),
            (r#"{"entries":[{"base64data":"@@"}]}"#, "illegal base64 data at input byte 0"),
        ] {
            assert_eq!(read::<Outer>(input.as_bytes()).unwrap_err(), want, "{input}");
        }
    }

    #[test]
    fn names_match_whatever_their_case() {
        let json = "{\"ENTRIES\":[{\"Name\":\"e\",\"name\":null,\"\u{17f}kip\u{17f}\":[\"a\",null]},null],\"Name\":\"x\",\"nAME\":\"y\",\"other\":[{}]}";
        let found: Outer = read(json.as_bytes()).unwrap();
        assert_eq!(found.name, "y");
        assert_eq!(found.entries.len(), 2);
        assert_eq!(found.entries[0].name, "e");
        assert_eq!(found.entries[0].skips, ["a", ""]);
        assert_eq!(read::<Outer>(b"null").unwrap(), Outer::default());
    }
}
