use super::*;

/// Hands out one byte at a time.
struct Drip<'a>(&'a [u8]);
impl Read for Drip<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.0.len().min(1).min(buffer.len());
        let (now, later) = self.0.split_at(count);
        buffer[..count].copy_from_slice(now);
        self.0 = later;
        Ok(count)
    }
}

fn objects_only(document: &Document<'_>) -> Result<String, String> {
    match document.kind() {
        "object" | "null" => Ok(String::from_utf8_lossy(document.json).into_owned()),
        kind => Err(format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}")),
    }
}

fn all<R: Read>(reader: R) -> (Vec<String>, Option<String>) {
    let mut documents = Documents::new(reader, Limits::default());
    let mut found = Vec::new();
    loop {
        match documents.next_with(objects_only) {
            Ok(Some(json)) => found.push(json),
            Ok(None) => return (found, None),
            Err(ReadError::Parse(error)) => return (found, Some(error.message)),
            Err(error) => return (found, Some(error.to_string())),
        }
    }
}

#[test]
fn documents_of_fbc_3_2() {
    let array = "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}";
    #[rustfmt::skip]
    let cases: &[(&str, &[&str], Option<&str>)] = &[
        (r#"{"s":"a"}{"s":"b"} {"s":"c"}"#, &[r#"{"s":"a"}"#, r#"{"s":"b"}"#, r#"{"s":"c"}"#], None),
        ("{\"s\":\"a\"}\n---\n{\"s\":\"b\"}\n---\n{\"s\":\"c\"}", &[r#"{"s":"a"}"#, r#"{"s":"b"}"#, r#"{"s":"c"}"#], None),
        ("{\"s\":\"a\"}\n{\"s\":\"b\"}\n---\n{\"s\":\"c\"}", &[r#"{"s":"a"}"#, r#"{"s":"b"}"#],
            Some("invalid character '-' in numeric literal")),
        ("---\n{\"s\":\"a\"}\n{\"s\":\"b\"}", &[r#"{"s":"a"}"#], None),
        ("{\"s\":\"a\",}\n{\"s\":\"b\"}", &[r#"{"s":"a"}"#], None),
        ("{\"s\":\"a\"}\n{\"s\":\"b\",}", &[r#"{"s":"a"}"#, r#"{"s":"b"}"#], None),
        ("{\"s\":\"a\"}\n{\"s\":\"b\"}\n{\"s\":\"c\",}", &[r#"{"s":"a"}"#, r#"{"s":"b"}"#],
            Some("invalid character '}' looking for beginning of object key string")),
        ("s: a\n...\ns: b", &[r#"{"s":"a"}"#], None),
        ("# c\n{\"s\":\"a\"}", &[r#"{"s":"a"}"#], None),
        (r#"{"s":"a"} garbage"#, &[r#"{"s":"a"}"#], Some("json: offset 11: invalid character 'g' looking for beginning of value")),
        (r#"[{"s":"a"}]"#, &[], Some(array)),
        (r#"{"s":"a""#, &[], Some("unexpected EOF")),
        ("{}", &["{}"], None),
        ("", &[], None),
        ("\n", &[""], None),
        ("# only\n---\na: 1", &["", r#"{"a":1}"#], None),
        ("{\"a\":1E400}", &[r#"{"a":"1E400"}"#], None),
        ("{\"a\":\"x\ny\"}", &[r#"{"a":"x y"}"#], None),
        ("\u{feff}{\"a\":1}", &[r#"{"a":1}"#], None),
        ("{\"a\":1}[1]", &[r#"{"a":1}"#], Some("json: cannot unmarshal array into Go value of type map[string]interface {}")),
        ("{\"a\":1}\n#c\n", &[r#"{"a":1}"#, ""], None),
    ];
    for (input, want, error) in cases {
        let want: Vec<String> = want.iter().map(|&w| w.to_owned()).collect();
        let want = (want, error.map(str::to_owned));
        assert_eq!(all(input.as_bytes()), want, "{input}");
        assert_eq!(all(Drip(input.as_bytes())), want, "{input}, one byte at a time");
    }
}

#[test]
fn documents_errors_have_a_position() {
    let mut documents = Documents::from_bytes(b"{\"a\":1}\n{\"b\":2}\n{\"c\":\n tru}", Limits::default());
    documents.next();
    documents.next();
    let Some(Err(ReadError::Parse(error))) = documents.next() else { panic!("no error") };
    assert_eq!((error.offset, error.line), (26, 4), "{error}");
    assert!(documents.next().is_none(), "the stream has ended");
    let mut documents = Documents::from_bytes(b"a: 1\n---\nb: 2\nc: : 3\n", Limits::default());
    documents.next();
    let Some(Err(ReadError::Parse(error))) = documents.next() else { panic!("no error") };
    assert_eq!((error.offset, error.line), (17, 4), "{error}");
}

#[test]
fn documents_count_bytes_that_are_never_read() {
    let mut documents = Documents::from_bytes(b"---\na: 1\n...\nb: 2\n---\nc: 3\n", Limits::default());
    let mut origins = Vec::new();
    while let Some(origin) = documents.next_with(|d| Ok(d.origin)).unwrap() {
        origins.push((origin.position.line, origin.ignored_from));
    }
    assert_eq!(origins, [(2, Some(4)), (6, None)]);
}

#[test]
fn documents_have_the_position_of_their_value() {
    for (input, want) in [
        ("{}", &[(1, 1)][..]),
        ("{\"é\":1} {\"b\":[\n1]}\t{}\n  {}", &[(1, 1), (1, 9), (2, 5), (3, 3)]),
        ("a: 1\n---\n# comment\n\n  b: 2\n", &[(1, 1), (5, 3)]),
        ("---\na: 1\n--- \n{b: 1}\n", &[(2, 1), (4, 1)]),
        ("{}\n---\nb: 2\n", &[(1, 1), (3, 1)]),
    ] {
        let mut documents = Documents::from_bytes(input.as_bytes(), Limits::default());
        let mut found = Vec::new();
        while let Some(at) = documents.next_with(|document| Ok(document.origin.position)).unwrap() {
            found.push((at.line, at.column));
        }
        assert_eq!(found, want, "{input}");
    }
}

#[test]
fn documents_keep_integers_when_asked() {
    for (input, exact, double) in [
        ("{\"a\":9007199254740993}", "{\"a\":9007199254740993}", "{\"a\":9007199254740992}"),
        ("- 9223372036854775807", "[9223372036854775807]", "[9223372036854776000]"),
        ("- +9223372036854775807", "[9223372036854775807]", "[9223372036854776000]"),
        ("- 0x7fff_ffff_ffff_ffff", "[9223372036854775807]", "[9223372036854776000]"),
        ("- -9223372036854775808", "[-9223372036854775808]", "[-9223372036854776000]"),
        ("- !!int 9007199254740993", "[9007199254740993]", "[9007199254740992]"),
        (
            "- &n 9007199254740993\n- *n",
            "[9007199254740993,9007199254740993]",
            "[9007199254740992,9007199254740992]",
        ),
        (
            "- &n {a: 9007199254740993}\n- {<<: [*n]}",
            "[{\"a\":9007199254740993},{\"a\":9007199254740993}]",
            "[{\"a\":9007199254740992},{\"a\":9007199254740992}]",
        ),
        ("- !!float 9007199254740993", "[9007199254740992]", "[9007199254740992]"),
        ("- 18446744073709551615", "[18446744073709552000]", "[18446744073709552000]"),
        ("- -9223372036854775809", "[-9223372036854776000]", "[-9223372036854776000]"),
        (
            "- 9007199254740993.0\n- 1e18\n- -0",
            "[9007199254740992,1000000000000000000,0]",
            "[9007199254740992,1000000000000000000,0]",
        ),
    ] {
        let documents = || Documents::from_bytes(input.as_bytes(), Limits::default());
        let restarted = documents().with_exact_integers().restart(input.as_bytes());
        for (documents, want) in
            [(documents().with_exact_integers(), exact), (restarted, exact), (documents(), double)]
        {
            let found: Vec<Vec<u8>> = documents.collect::<Result<_, _>>().unwrap();
            assert_eq!(found, [want.as_bytes()], "{input}");
        }
    }
}

#[test]
fn documents_have_the_first_rounded_integer() {
    for (input, want) in [
        ("{\"a\": 9007199254740992}", None),
        ("{\"a\": [1,\n 9007199254740993, 9007199254740995]}", Some((2, 2))),
        ("{\"a\": -18446744073709551615}", Some((1, 7))),
        ("{\"a\": 0.12345678901234567890}", None),
        ("{\"a\": 9007199254740993.0}", None),
        ("{\"a\": 100000000000000000000000}", None),
        ("{\"a\": \"9007199254740993\"}", None),
        ("a: 9007199254740992\nb: '9007199254740993'", None),
        ("a: 1\nb:\n- 9007199254740993\n", Some((3, 3))),
        ("a: 0x20000000000001", Some((1, 4))),
        ("a: 18446744073709551615", Some((1, 4))),
        ("a: 123456789012345678901234", Some((1, 4))),
        ("a: &n 9007199254740993\nb: *n", Some((1, 4))),
    ] {
        let mut documents = Documents::from_bytes(input.as_bytes(), Limits::default());
        let found = documents.next_with(|document| Ok(document.origin.rounded)).unwrap().unwrap();
        assert_eq!(found.map(|at| (at.line, at.column)), want, "{input}");
    }
    for input in
        ["{\"a\": 9223372036854775807}", "a: 9223372036854775807", "a: &n 9223372036854775807\nb: *n"]
    {
        let mut documents = Documents::from_bytes(input.as_bytes(), Limits::default()).with_exact_integers();
        assert_eq!(
            documents.next_with(|document| Ok(document.origin.rounded)).unwrap(),
            Some(None),
            "{input}"
        );
    }
    let invalid = b"{\"\xff\xff\xff\":9007199254740993}";
    let mut documents = Documents::from_bytes(invalid, Limits::default());
    let rounded = documents.next_with(|document| Ok(document.origin.rounded)).unwrap().unwrap();
    assert!(rounded.is_some_and(|at| at.line == 1));
}

#[test]
fn documents_name_the_limit_that_is_exceeded() {
    let small = Limits { document_bytes: 40_000, documents: 2, stream_bytes: 200_000, ..Limits::default() };
    let last_error = |input: &[u8]| {
        Documents::from_bytes(input, small).filter_map(Result::err).last().map(|e| e.to_string())
    };
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(100_000));
    assert!(last_error(long.as_bytes()).unwrap().contains("larger than the limit of 40000 bytes"));
    let long = format!("a: {}", "x".repeat(100_000));
    assert!(last_error(long.as_bytes()).unwrap().contains("larger than the limit of 40000 bytes"));
    assert!(last_error(b"{}{}{}").unwrap().contains("more documents than the limit of 2"));
    let spaces = " ".repeat(300_000);
    assert!(last_error(spaces.as_bytes()).is_some());
}

fn nodes_of(input: &str, limits: Limits) -> (u64, Option<String>) {
    let mut documents = Documents::from_bytes(input.as_bytes(), limits);
    let error = documents.by_ref().find_map(Result::err).map(|error| error.to_string());
    (documents.nodes(), error)
}

#[test]
fn limits_count_values_keys_and_expanded_aliases() {
    for (input, want) in [
        ("", 0),
        ("{}", 1),
        (r#"{"a":[1,{"b":null},"x"]}"#, 8),
        (r#"{"a":1,"a":2}"#, 5),
        ("{\"a\":\"\u{ff}\"}{\"a\":1} {}", 7),
        ("- a\n- [b, {c: d}]\n", 7),
        ("a: 1\n---\n# nothing\n---\nb: 2\n", 6),
        ("a: &x [1, 2]\nb: *x\nc: {d: *x}\n", 15),
        ("a: &x 1\n? *x\n: *x\n", 5),
        ("a: &x {b: &y [1, 2]}\nc: *y\nd: *x\n", 17),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", 11),
        // read as JSON first, counted once
        ("{\"a\":1,}", 3),
    ] {
        let limits = Limits { stream_nodes: want, ..Limits::default() };
        assert_eq!(nodes_of(input, limits), (want, None), "{input:?}");
    }
}

#[test]
fn limits_hold_for_documents_and_streams() {
    let json = r#"{"a":[0,0,0]}"#;
    let yaml = "a: [0, 0, 0]\n";
    let aliases = "a: &x [0]\nb: *x\n";
    let document =
        "the document has more than the limit of 5 nodes (values and keys); split it into smaller documents";
    let stream = "the file has more than the limit of 7 nodes (values and keys); split it into smaller files";
    for (input, limits, want) in [
        (json.to_owned(), (6, 7), None),
        (json.to_owned(), (5, 7), Some(format!("line 1 (byte 10): {document}"))),
        (yaml.to_owned(), (6, 7), None),
        (yaml.to_owned(), (5, 7), Some(format!("line 1 (byte 10): {document}"))),
        (aliases.to_owned(), (7, 7), None),
        (aliases.to_owned(), (5, 7), Some(format!("line 2 (byte 13): {document}"))),
        (format!("{json}{json}"), (6, 12), None),
        (format!("{json}\n{json}"), (6, 7), Some(format!("line 2 (byte 15): {stream}"))),
        (format!("{yaml}---\n{yaml}"), (6, 12), None),
        (format!("{yaml}---\n{yaml}"), (6, 7), Some(format!("line 3 (byte 17): {stream}"))),
    ] {
        let (document_nodes, stream_nodes) = limits;
        let limits = Limits { document_nodes, stream_nodes, ..Limits::default() };
        let (_, error) = nodes_of(&input, limits);
        assert_eq!(error, want, "{input:?} within {document_nodes} and {stream_nodes}");
    }
}

#[test]
fn limits_hold_for_keys_of_json_and_yaml() {
    let limits = Limits { key_bytes: 4, ..Limits::default() };
    let long = "a key of 5 bytes begins with \"kkkkk\"; keys have at most 4 bytes: shorten it";
    for (input, want) in [
        (r#"{"a":{"kkkk":1}}"#, None),
        (r#"{"a":[{"kkkkk":1}]}"#, Some(format!("line 1 (byte 7): {long}"))),
        ("a:\n- kkkk: 1\n", None),
        ("a:\n- kkkkk: 1\n", Some(format!("line 2 (byte 5): {long}"))),
        ("a: &k kkkkk\n? *k\n: 1\n", Some(format!("line 2 (byte 14): {long}"))),
        // a value may have any length
        (r#"{"a":"kkkkk"}"#, None),
    ] {
        assert_eq!(nodes_of(input, limits).1, want, "{input:?}");
    }
}

#[test]
fn limits_default_to_500_000_nodes_a_document() {
    // an array and its numbers
    let array = |nodes: usize| format!("[{}0]", "0,".repeat(nodes - 2));
    let rejected = |nodes| nodes_of(&array(nodes), Limits::default()).1.is_some();
    assert!(!rejected(500_000));
    assert!(rejected(500_001));
}

/// A file that is refused as JSON is not read once more as YAML.
#[test]
fn limits_end_a_json_file_without_a_yaml_attempt() {
    let bomb = format!("{{\"items\":[{}0]}}", "{\"a\":0},".repeat(200_000));
    let limits = Limits { document_nodes: 1_000, ..Limits::default() };
    let mut documents = Documents::from_bytes(bomb.as_bytes(), limits);
    let error = documents.next().unwrap().unwrap_err().to_string();
    assert!(error.contains("more than the limit of 1000 nodes"), "{error}");
    assert_eq!(documents.nodes(), 1_001);
    assert!(documents.window.len() <= FIRST_WINDOW, "{} bytes were read", documents.window.len());
}

#[test]
fn documents_free_the_window_of_a_huge_last_document() {
    let huge = format!("{{\"a\":\"{}\"}}\n", "v".repeat(LARGE_WINDOW));
    let small = "{\"b\":1}\n";
    for (input, want) in [(format!("{huge}{small}"), 2), (format!("{small}{huge}"), 2), (huge.clone(), 1)] {
        let mut documents = Documents::from_bytes(input.as_bytes(), Limits::default());
        let read: Vec<Vec<u8>> = documents.by_ref().map(|document| document.unwrap()).collect();
        assert_eq!(read.len(), want);
        let texts = read.iter().map(|it| String::from_utf8_lossy(it));
        assert_eq!(texts.map(|it| format!("{it}\n")).collect::<String>(), input);
        assert_eq!(documents.window.len(), FIRST_WINDOW);
    }
}
