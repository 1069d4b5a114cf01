//! Catalogs as text, findings as snapshots.

use super::*;
use crate::{IngestLimits, Severity, load_files};

fn findings(yaml: &str) -> Vec<Finding> {
    let findings = validate(&load_files([("catalog.yaml", yaml)], IngestLimits::default()).unwrap());
    for finding in &findings {
        let position = finding.position.as_ref();
        assert!(position.is_some_and(|at| at.column.is_some()), "{finding:?} in {yaml}");
    }
    findings
}

fn errors(yaml: &str) -> Vec<String> {
    let errors = findings(yaml).into_iter().filter(|f| f.severity == Severity::Error);
    errors.map(|finding| finding.message).collect()
}

const GOOD: &str = "
schema: olm.package
name: foo
defaultChannel: stable
---
schema: olm.channel
package: foo
name: stable
entries: [{name: foo.v0.1.0}]
---
schema: olm.bundle
package: foo
name: foo.v0.1.0
image: quay.io/foo/foo:v0.1.0
properties: [{type: olm.package, value: {packageName: foo, version: 0.1.0}}]
";

/// A second bundle with the version of the first.
const SAME_VERSION: &str = "defaultChannel: stable
---
schema: olm.bundle
package: foo
name: foo.b
image: foo
properties: [{type: olm.package, value: {packageName: foo, version: 0.1.0}}]
";

/// `kind: ClusterServiceVersion`, before the property that has the version.
const INLINE_CSV: &str =
    "[{type: olm.bundle.object, value: {data: a2luZDogQ2x1c3RlclNlcnZpY2VWZXJzaW9uCg==}}, {type: olm.package";

#[test]
fn validate_outcomes_are_those_of_fbc_8_5() {
    assert_eq!(findings(GOOD), []);
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
    #[rustfmt::skip]
    let cases: &[Case<'_>] = &[
        (&[("defaultChannel: stable\n", "")], &["default channel must be set"]),
        (&[("defaultChannel: stable\n", ""), ("olm.channel", "other"), ("olm.bundle", "other")],
            &["default channel must be set", "package must contain at least one channel"]),
        (&[("defaultChannel: stable\n", "defaultChannel: stable\n---\nschema: olm.channel\npackage: foo\nname: alpha\n")],
            &["channel must contain at least one bundle"]),
        (
            &[("[{name: foo.v0.1.0}]", "[{name: foo.v0.1.0}, {name: foo.b, replaces: foo.v0.1.0}]"),
                ("defaultChannel: stable\n", SAME_VERSION)],
            &["duplicate versions found in bundles: [{0.1.0: [foo.b, foo.v0.1.0]}]"]),
        (&[("image: quay.io/foo/foo:v0.1.0\n", ""), ("[{type: olm.package", INLINE_CSV)], &[]),
        (&[("defaultChannel: stable\n", "defaultChannel: stable\n---\nschema: olm.csv.metadata\npackage: absent\n")], &[]),
        (&[("defaultChannel: stable", "defaultChannel: nope")], &["channel must contain at least one bundle"]),
        (&[("version: 0.1.0", "version: 0.1.0+1")], &[]),
        (&[("image: quay.io/foo/foo:v0.1.0", "image: foo")], &[]),
        (&[("image: quay.io/foo/foo:v0.1.0\n", "")], &["bundle image must be set"]),
        (&[("version: 0.1.0", "version: 0.1.0, release: '1'")], &["name \"foo.v0.1.0\" does not match normalized name \"foo-v0.1.0-1\""]),
        (&[("version: 0.1.0", "version: 0.1.0, release: '1'"), ("foo.v0.1.0", "foo-v0.1.0-1")], &[]),
        (&[("version: 0.1.0", "version: 0.1.0, release: 1")],
            &["parse properties for bundle \"foo.v0.1.0\": parse property[0] of type \"olm.package\": json: cannot unmarshal number into Go struct field Package.release of type string"]),
        (&[("{name: foo.v0.1.0}", "{name: foo.v0.1.0, skipRange: '>=1.0'}")],
            &["invalid skipRange \">=1.0\": Could not parse Range \">=1.0\": Could not parse version \"1.0\" in \">=1.0\": No Major.Minor.Patch elements found"]),
        (&[("{name: foo.v0.1.0}", "{name: foo.v0.1.0, skipRange: '*'}")], &["invalid skipRange \"*\": Last element in range is '||'"]),
        (&[("schema: olm.package", "Schema: olm.package"), ("defaultChannel", "DefaultChannel")], &[]),
        (&[("name: foo\n", "name: foo\nunknown: [1, {a: b}]\n")], &[]),
        (&[("[{name: foo.v0.1.0}]", "[{name: other}]")],
            &["package \"foo\", bundle \"foo.v0.1.0\" not found in any channel entries",
                "no olm.bundle blobs found in package \"foo\" for olm.channel entries [other]"]),
        (&[("name: stable", "channel: stable")],
            &["package \"foo\" contains channel with no name", "package \"foo\", bundle \"foo.v0.1.0\" not found in any channel entries",
                "channel must contain at least one bundle"]),
        (&[("defaultChannel: stable", "defaultChannel: [1]")],
            &["parse package: json: cannot unmarshal array into Go struct field Package.defaultChannel of type string"]),
    ];
    for (replacements, want) in cases {
        let yaml = replacements.iter().fold(GOOD.to_owned(), |yaml, (from, to)| {
            assert!(yaml.contains(from), "{from}");
            yaml.replace(from, to)
        });
        assert_eq!(errors(&yaml), *want, "{replacements:?}");
    }
}

/// Each rule of phase B by its message (fbc §8.2), where fbc §8.5 has no case for it.
#[test]
#[rustfmt::skip]
fn validate_messages_of_fbc_8_2() {
    let silent = |reference: &str| {
        format!(
            "{GOOD}---\nschema: olm.deprecations\npackage: foo\nentries: [{{reference: {{schema: {reference}}}, message: ''}}]\n"
        )
    };
    let but = |from: &str, to: &str| {
        assert!(GOOD.contains(from), "{from}");
        GOOD.replace(from, to)
    };
    let no_message = "invalid deprecation: message must be set";
    for (catalog, path, message) in [
        (but("{name: foo.v0.1.0}", "{name: foo.v0.1.0, skips: ['']}"), "package channel bundle", "skip[0] is empty"),
        (but("version: 0.1.0", "version: 0.1.0+b, release: '1'").replace("foo.v0.1.0", "foo-v0.1.0+b-1"), "package channel bundle",
            "cannot use build metadata in version with a release version"),
        (but("foo.v0.1.0", "''"), "package channel bundle", "name must be set"),
        (silent("olm.package"), "package", no_message),
        (silent("olm.channel, name: stable"), "package channel", no_message),
        (silent("olm.bundle, name: foo.v0.1.0"), "package channel bundle", no_message),
    ] {
        let found = findings(&catalog);
        let levels = |finding: &Finding| {
            let levels = finding.path.iter().filter_map(|level| level.split(' ').nth(1));
            levels.collect::<Vec<_>>().join(" ")
        };
        assert!(
            found.iter().any(|finding| finding.message == message && levels(finding) == path),
            "{message}: {found:#?}"
        );
    }
}

#[test]
fn validate_hints_at_channel_instead_of_name() {
    let yaml = GOOD.replace("name: stable", "channel: stable");
    let found = findings(&yaml).into_iter().find(|finding| finding.rule == "A5").unwrap();
    assert_eq!(found.hint.unwrap(), "the object has \"channel: stable\"; write \"name: stable\" instead");
}

#[test]
fn validate_tree_of_fbc_8_4() {
    let yaml = "
schema: olm.package
name: foo
defaultChannel: stable
---
schema: olm.channel
package: foo
name: stable
entries: [{name: foo.v0.1.0}, {name: foo.v0.2.0}]
---
schema: olm.bundle
package: foo
name: foo.v0.1.0
properties: [{type: olm.package, value: {packageName: foo, version: 0.1.0}}]
---
schema: olm.bundle
package: foo
name: foo.v0.2.0
image: foo
properties: [{type: olm.package, value: {packageName: foo, version: 0.2.0}}]
---
schema: olm.deprecations
package: foo
entries: [{reference: {schema: olm.package}}]
";
    let want = "invalid index:
└── invalid package \"foo\":
    ├── invalid channel \"stable\":
    │   ├── multiple channel heads found in graph: foo.v0.1.0, foo.v0.2.0
    │   └── invalid bundle \"foo.v0.1.0\":
    │       └── bundle image must be set
    └── invalid deprecation: message must be set";
    assert_eq!(tree(&findings(yaml)).unwrap(), want);
    assert_eq!(tree(&findings(GOOD)), None);
}

#[test]
fn validate_reports_all_findings() {
    let yaml = "
schema: olm.package
name: Bad.Name
---
schema: olm.package
---
schema: olm.channel
name: lost
package: nowhere
---
schema: olm.bundle
name: b
image: Foo
package: Bad.Name
relatedImages: [{image: ''}, {image: 'x:'}]
properties:
- {type: olm.package, value: {packageName: q, version: v1, release: '01'}}
- {type: olm.gvk}
- {type: '', value: 1}
- {type: any, value: null}
---
schema: olm.deprecations
entries: []
---
schema: olm.deprecations
package: Bad.Name
entries:
- {message: no reference}
- {message: m, reference: {schema: olm.bundle, name: x}}
- {message: m, reference: {schema: olm.bundle, name: x}}
- {message: m, reference: {schema: olm.channel, name: x}}
- {message: m, reference: {schema: olm.package, name: x}}
- {message: m, reference: {schema: other, name: x}}
---
package: no-schema
";
    let lines: Vec<String> =
        findings(yaml).iter().map(|f| format!("{:?} {} {f}", f.severity, f.rule)).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

/// Each rule of phase A by the message that the reference has for it (fbc §8.1).
#[test]
fn validate_rules_of_fbc_8_1_have_messages() {
    let deprecated =
        |entries: &str| format!("---\nschema: olm.deprecations\npackage: foo\nentries: [{entries}]\n");
    let package = |name: &str| format!("---\nschema: olm.package\nname: {name}\ndefaultChannel: stable\n");
    let channel = |package: &str, name: &str| {
        format!(
            "---\nschema: olm.channel\npackage: {package}\nname: {name}\nentries: [{{name: foo.v0.1.0}}]\n"
        )
    };
    let bundle = |package: &str, name: &str| {
        let properties =
            format!("[{{type: olm.package, value: {{packageName: {package}, version: 0.2.0}}}}]");
        format!(
            "---\nschema: olm.bundle\npackage: {package}\nname: {name}\nimage: i\nproperties: {properties}\n"
        )
    };
    let with = |text: String| format!("{GOOD}{text}");
    let but = |from: &str, to: &str| {
        assert!(GOOD.contains(from), "{from}");
        GOOD.replace(from, to)
    };
    let bundle_ref =
        |name: &str| format!("{{reference: {{schema: olm.bundle, name: {name}}}, message: old}}");
    let whole = "{reference: {schema: olm.package}, message: old}";
    #[rustfmt::skip]
    let cases: Vec<(&str, String, &str)> = vec![
        ("A1", with(package("''")), "config contains package with no name"),
        ("A2", with(package("foo")), "duplicate package \"foo\""),
        ("A3", with(package("a.b")), "invalid package name \"a.b\": [must not contain dots"),
        ("A4", with(channel("bar", "c")), "unknown package \"bar\" for channel \"c\""),
        ("A5", with(channel("foo", "''")), "package \"foo\" contains channel with no name"),
        ("A6", with(channel("foo", "stable")), "package \"foo\" has duplicate channel \"stable\""),
        ("A7", but("[{name: foo.v0.1.0}]", "[{name: foo.v0.1.0}, {name: foo.v0.1.0}]"),
            "invalid package \"foo\", channel \"stable\": duplicate entry \"foo.v0.1.0\""),
        ("A8", with(bundle("''", "b")), "package name must be set for bundle \"b\""),
        ("A9", with(bundle("bar", "b")), "unknown package \"bar\" for bundle \"b\""),
        ("A10", with(bundle("foo", "foo.v0.1.0")), "package \"foo\" has duplicate bundle \"foo.v0.1.0\""),
        ("A12", but("properties: [{type: olm.package, value: {packageName: foo, version: 0.1.0}}]", "properties: []"),
            "package \"foo\" bundle \"foo.v0.1.0\" must have exactly 1 \"olm.package\" property, found 0"),
        ("A13", but("packageName: foo", "packageName: bar"), "package \"foo\" does not match \"olm.package\" property \"bar\""),
        ("A14", but("image: quay.io/foo/foo:v0.1.0", "image: 'Foo/x:'"),
            "package \"foo\" bundle \"foo.v0.1.0\" image: invalid image pull spec \"Foo/x:\": invalid reference format"),
        ("A15", but("image: quay.io/foo/foo:v0.1.0", "image: i\nrelatedImages: [{name: a, image: i}, {name: b, image: 'Foo/x:'}]"),
            "package \"foo\" bundle \"foo.v0.1.0\" relatedImages[1].image: invalid image pull spec \"Foo/x:\": "),
        ("A16", but("version: 0.1.0", "version: '1.0'"),
            "error parsing bundle \"foo.v0.1.0\" version \"1.0\": No Major.Minor.Patch elements found"),
        ("A17", but("version: 0.1.0", "version: 0.1.0, release: '01'"),
            "error parsing bundle \"foo.v0.1.0\" release version \"01\": invalid release"),
        ("A18", with(bundle("foo", "b")), "package \"foo\", bundle \"b\" not found in any channel entries"),
        ("A19", but("[{name: foo.v0.1.0}]", "[{name: foo.v0.1.0, replaces: gone}, {name: gone}]"),
            "no olm.bundle blobs found in package \"foo\" for olm.channel entries [gone]"),
        ("A21", with(deprecated("").replace("package: foo\n", "")), "package name must be set for deprecation item 0"),
        ("A22", with(deprecated("").replace("foo", "bar")), "cannot apply deprecations to an unknown package \"bar\""),
        ("A23", with(deprecated(whole) + &deprecated(whole)), "expected a maximum of one deprecation per package: \"foo\""),
        ("A24", with(deprecated("{message: old}")), "schema must be set for deprecation entry [0] for package \"foo\""),
        ("A25", with(deprecated(&format!("{whole}, {whole}"))),
            "duplicate deprecation entry declcfg.PackageScopedReference{Schema:\"olm.package\", Name:\"\"} for package \"foo\""),
        ("A26", with(deprecated(&bundle_ref("b"))), "cannot deprecate bundle \"b\" for package \"foo\": bundle not found"),
        ("A27", with(deprecated(&bundle_ref("c").replace("bundle", "channel"))),
            "cannot deprecate channel \"c\" for package \"foo\": channel not found"),
        ("A28", with(deprecated(&bundle_ref("whole").replace("bundle", "package"))),
            "package name must be empty for deprecated package \"foo\" (specified \"whole\")"),
        ("A29", with(deprecated("{reference: {schema: x}, message: old}")),
            "cannot deprecate object declcfg.PackageScopedReference{Schema:\"x\", Name:\"\"} referenced by entry 0 for package \"foo\": object schema unknown"),
    ];
    for (rule, catalog, text) in cases {
        let found = findings(&catalog);
        let of_rule: Vec<&str> = found
            .iter()
            .filter(|finding| finding.rule == rule)
            .map(|finding| finding.message.as_str())
            .collect();
        assert!(of_rule.iter().any(|message| message.starts_with(text)), "{rule}: {of_rule:#?}\n{found:#?}");
    }
}

/// What the format forbids or reserves for objects of any schema, whatever `opm` reports (fbc §14 row 10).
#[test]
fn validate_rules_for_any_object() {
    let package = |properties: &str| format!("schema: olm.package\nname: bar\nproperties: [{properties}]");
    let other = |members: &str| format!("schema: example.com\n{members}");
    let api = |kind: &str, value: &str| other(&format!("properties: [{{type: {kind}, value: {value}}}]"));
    #[rustfmt::skip]
    let cases: Vec<(String, &[&str])> = vec![
        (other("package: foo\nname: a\nproperties: [{type: any, value: 1}]"), &[]),
        (other("properties: null"), &[]),
        (other("package: ''"), &["Error empty-package package is empty"]),
        ("schema: olm.csv\npackage: foo".to_owned(), &["Warning reserved-schema schema \"olm.csv\" is none of OLM's"]),
        (other("properties: {type: any}"),
            &["Error properties properties are no list of properties: json: cannot unmarshal object into Go struct field Meta.properties of type []property.Property"]),
        (other("properties: [{type: 5, value: 1}]"),
            &["Error properties properties are no list of properties: json: cannot unmarshal number into Go struct field Property.properties.type of type string"]),
        (other("properties: [{type: '', value: 1}]"), &["Error property property[0] has no type"]),
        (other("properties: [{value: null}]"),
            &["Error property property[0] has no type", "Error property property[0] has the value null"]),
        (other("properties: [{type: a}]"), &["Error property parse property[0] of type \"a\": unexpected end of JSON input"]),
        (api("olm.gvk", "5"),
            &["Error property parse property[0] of type \"olm.gvk\": json: cannot unmarshal number into Go value of type property.GVK"]),
        (api("olm.gvk", "{group: example.com, version: v1, kind: Widget}"), &[]),
        (api("olm.gvk", "{group: a.b-c, version: v1beta1, kind: HTTPRoute}"), &[]),
        (api("olm.gvk", "{version: v1}"),
            &["Error property-api property[0] of type \"olm.gvk\": group is empty",
                "Error property-api property[0] of type \"olm.gvk\": kind is empty"]),
        (
            api("olm.gvk.required", "{group: Example.com, version: '1', kind: a b}"),
            &[
                "Error property-api property[0] of type \"olm.gvk.required\": group \"Example.com\" is not a DNS subdomain, such as example.com",
                "Error property-api property[0] of type \"olm.gvk.required\": version \"1\" is not a DNS label that starts with a letter, such as v1",
                "Error property-api property[0] of type \"olm.gvk.required\": kind \"a b\" is not made of at most 63 letters, digits and '-', such as Widget",
            ],
        ),
        (api("olm.package.required", "{packageName: a, versionRange: '>=1.0.0 <2.0.0'}"), &[]),
        (api("olm.package.required", "{}"),
            &["Error property-package property[0] of type \"olm.package.required\": packageName is empty",
                "Error property-package property[0] of type \"olm.package.required\": versionRange is empty"]),
        (api("olm.package.required", "{packageName: a, versionRange: '^1'}"),
            &["Error property-package property[0] of type \"olm.package.required\": invalid versionRange \"^1\": "]),
        (api("olm.label", "{}"), &[]),
        (api("olm.gkv", "{}"), &["Warning reserved-property property[0] has the type \"olm.gkv\", which is none of OLM's"]),
        ("schema: olm.deprecations\npackage: foo\nname: foo\nentries: []".to_owned(),
            &["Warning misplaced-name name \"foo\" has no meaning here"]),
        (other("package: foo\nname: a\nnumber: 9007199254740993"), &["Warning rounded-integer the integer is beyond 2^53"]),
    ];
    for (object, want) in &cases {
        let found = findings(&format!("{GOOD}---\n{object}\n"));
        let found: Vec<String> =
            found.iter().map(|f| format!("{:?} {} {}", f.severity, f.rule, f.message)).collect();
        assert_eq!(found.len(), want.len(), "{object}: {found:#?}");
        for (found, want) in found.iter().zip(*want) {
            assert!(found.starts_with(want), "{object}: {found}");
        }
    }
    // the properties of packages, channels and bundles are looked at like those of any schema
    let null = "{type: any, value: null}";
    let channel = GOOD.replace("entries:", &format!("properties: [{null}]\nentries:"));
    let bundle = GOOD.replace("properties: [", &format!("properties: [{null}, "));
    for catalog in [format!("{GOOD}---\n{}\n", package(null)), channel, bundle] {
        let rules: Vec<&str> = findings(&catalog).iter().map(|finding| finding.rule).collect();
        assert!(rules.contains(&"property"), "{catalog}{rules:?}");
    }
}

#[test]
fn findings_have_the_position_of_their_object() {
    let whole = |extra: &str| format!("{GOOD}{extra}");
    #[rustfmt::skip]
    let cases = [
        (whole("---\n# again\nschema: olm.package\nname: foo\n"), "A2", "catalog.yaml:18:1"),
        (whole("---\nschema: olm.channel\npackage: foo\nname: stable\n"), "A6", "catalog.yaml:17:1"),
        (GOOD.replace("stable\n---", "nope\n---"), "channel-empty", "catalog.yaml:2:1"),
        (GOOD.replace("name: foo.v0.1.0}", "name: foo.v0.1.0, skipRange: '! 1.0.0'}"), "skip-range-odd", "catalog.yaml:6:1"),
        (GOOD.replace("image: quay.io/foo/foo:v0.1.0\n", ""), "bundle-image", "catalog.yaml:11:1"),
        (whole("---\n{schema: x, name: nn, list: [1,\n   9007199254740993]}\n"), "rounded-integer", "catalog.yaml:18:4"),
        (whole("---\nname: nn\n"), "decode", "catalog.yaml:17:1"),
        (whole("---\nname: nn\n"), "no-schema", "catalog.yaml:17:1"),
    ];
    for (catalog, rule, want) in cases {
        let found = findings(&catalog);
        let positions: Vec<String> = found
            .iter()
            .filter(|finding| finding.rule == rule)
            .filter_map(|finding| Some(finding.position.as_ref()?.to_string()))
            .collect();
        assert_eq!(positions, [want], "{rule}: {found:#?}");
    }
    // several files, and objects of one line
    #[rustfmt::skip]
    let files = [
        ("a/x.json", "{\"schema\": \"olm.package\", \"name\": \"p\", \"defaultChannel\": \"c\"}  {\"schema\": \"x\", \"package\": \"\"}"),
        ("b.yaml", "schema: x\n---\nschema: olm.channel\npackage: q\nname: c\n"),
    ];
    let found = validate(&load_files(files, IngestLimits::default()).unwrap());
    let found: Vec<String> =
        found.iter().map(|finding| format!("{} {}", finding.rule, finding.located())).collect();
    let want = [
        "A4 b.yaml:3:1: unknown package \"q\" for channel \"c\"",
        "channel-empty a/x.json:1:1: invalid package \"p\": invalid channel \"c\": channel must contain at least one bundle",
        "empty-package a/x.json:1:64: package is empty; name the package, or leave the member out",
    ];
    assert_eq!(found, want);
}
