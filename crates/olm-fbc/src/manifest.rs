//! The manifests that a catalog has of a bundle, as JSON text: the inline ones, or the ClusterServiceVersion that `olm.csv.metadata`
//! describes.
//!
//! The texts are what OLM Classic's registries serve, byte for byte: members in the order of Go's types, characters escaped as Go's
//! encoder does. Rule: fbc §10.7.

use base64::Engine as _;
use olm_core::go;
use serde_json::{Value, json};

use crate::{
    Bundle, Icon,
    decode::read,
    property::{
        ApiResource, ApiService, BUNDLE_OBJECT, CSV_METADATA, Crd, CsvMetadata, Descriptor, GroupVersionKind,
        InstallMode, Link, Maintainer, ManifestKind,
    },
    schema::RelatedImage,
};

/// The manifests of one bundle.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Manifests {
    /// JSON texts, in catalog order.
    pub objects: Vec<String>,
    /// The first ClusterServiceVersion among them, if there is one.
    pub csv: Option<usize>,
}

impl Bundle {
    /// The inline manifests, or, if there are none, the ClusterServiceVersion that `olm.csv.metadata` describes. `icon` is the package's.
    ///
    /// # Errors
    /// A property or an inline manifest that does not decode, or a bundle with metadata and without a version.
    pub fn manifests(&self, icon: Option<&Icon>) -> Result<Manifests, String> {
        let mut objects = Vec::new();
        let mut metadata = None;
        for (index, property) in self.properties.iter().enumerate() {
            match property.kind.as_str() {
                BUNDLE_OBJECT => objects.push(json_text(property.manifest(index)?)?),
                CSV_METADATA if metadata.is_none() => metadata = Some(property.read::<CsvMetadata>(index)?),
                _ => {}
            }
        }
        if let (true, Some(metadata)) = (objects.is_empty(), metadata) {
            let csv = metadata.service_version(self, icon)?;
            return Ok(Manifests { objects: vec![csv], csv: Some(0) });
        }
        let csv = objects.iter().position(|object| {
            read::<ManifestKind>(object.as_bytes()).is_ok_and(|found| found.kind == "ClusterServiceVersion")
        });
        Ok(Manifests { objects, csv })
    }
}

/// JSON as it is, YAML converted.
fn json_text(manifest: Vec<u8>) -> Result<String, String> {
    if manifest.trim_ascii_start().starts_with(b"{") {
        return String::from_utf8(manifest).map_err(|_| "an inline manifest is not UTF-8".to_owned());
    }
    let mut json = Vec::new();
    olm_yaml::yaml_to_json_exact(&manifest, &mut json, &olm_yaml::Limits::default())
        .map_err(|error| error.message)?;
    let json = String::from_utf8(json).map_err(|_| "an inline manifest is not UTF-8".to_owned())?;
    Ok(html_escaped(&json))
}

impl CsvMetadata {
    fn service_version(&self, bundle: &Bundle, icon: Option<&Icon>) -> Result<String, String> {
        let version = bundle.package_property()?.version;
        let has = |values: &std::collections::BTreeMap<String, String>| !values.is_empty();
        let metadata = Members::new()
            .text("name", &bundle.name)
            .raw_if(has(&self.labels), "labels", || go::json_string(&json!(self.labels)))
            .raw_if(has(&self.annotations), "annotations", || go::json_string(&json!(self.annotations)))
            .end();
        let crds = Members::new()
            .list("owned", &self.crd_descriptions.owned, crd)
            .list("required", &self.crd_descriptions.required, crd)
            .end();
        let api_services = Members::new()
            .list("owned", &self.api_service_definitions.owned, api_service)
            .list("required", &self.api_service_definitions.required, api_service)
            .end();
        let icons = icon.map(|found| vec![found]).unwrap_or_default();
        let spec = Members::new()
            .raw("install", r#"{"strategy":"deployment","spec":{"deployments":null}}"#)
            .text("version", &version)
            .some_text("maturity", &self.maturity)
            .raw("customresourcedefinitions", &crds)
            .raw("apiservicedefinitions", &api_services)
            .list("nativeAPIs", &self.native_apis, native_api)
            .some_text("minKubeVersion", &self.min_kube_version)
            .text("displayName", &self.display_name)
            .some_text("description", &self.description)
            .list("keywords", &self.keywords, |word| quoted(word))
            .list("maintainers", &self.maintainers, maintainer)
            .raw("provider", &link(&self.provider))
            .list("links", &self.links, link)
            .list("icon", &icons, |found| icon_text(found))
            .list("installModes", &self.install_modes, install_mode)
            .raw("cleanup", r#"{"enabled":false}"#)
            .list("relatedImages", &bundle.related_images, related_image)
            .end();
        Ok(Members::new()
            .text("kind", "ClusterServiceVersion")
            .text("apiVersion", "operators.coreos.com/v1alpha1")
            .raw("metadata", &metadata)
            .raw("spec", &spec)
            .raw("status", r#"{"cleanup":{}}"#)
            .end())
    }
}

fn crd(crd: &Crd) -> String {
    Members::new()
        .text("name", &crd.name)
        .text("version", &crd.version)
        .text("kind", &crd.kind)
        .some_text("displayName", &crd.display_name)
        .some_text("description", &crd.description)
        .list("resources", &crd.resources, resource)
        .list("statusDescriptors", &crd.status_descriptors, descriptor)
        .list("specDescriptors", &crd.spec_descriptors, descriptor)
        .list("actionDescriptors", &crd.action_descriptors, descriptor)
        .end()
}

fn api_service(service: &ApiService) -> String {
    Members::new()
        .text("name", &service.name)
        .text("group", &service.group)
        .text("version", &service.version)
        .text("kind", &service.kind)
        .some_text("deploymentName", &service.deployment_name)
        .raw_if(service.container_port != 0, "containerPort", || service.container_port.to_string())
        .some_text("displayName", &service.display_name)
        .some_text("description", &service.description)
        .list("resources", &service.resources, resource)
        .list("statusDescriptors", &service.status_descriptors, descriptor)
        .list("specDescriptors", &service.spec_descriptors, descriptor)
        .list("actionDescriptors", &service.action_descriptors, descriptor)
        .end()
}

fn resource(resource: &ApiResource) -> String {
    Members::new()
        .text("name", &resource.name)
        .text("kind", &resource.kind)
        .text("version", &resource.version)
        .end()
}

fn descriptor(descriptor: &Descriptor) -> String {
    let value = descriptor.value.as_ref().map(|value| html_escaped(value.as_str()));
    Members::new()
        .text("path", &descriptor.path)
        .some_text("displayName", &descriptor.display_name)
        .some_text("description", &descriptor.description)
        .list("x-descriptors", &descriptor.x_descriptors, |text| quoted(text))
        .raw_if(value.is_some(), "value", || value.unwrap_or_default())
        .end()
}

fn native_api(api: &GroupVersionKind) -> String {
    Members::new().text("group", &api.group).text("version", &api.version).text("kind", &api.kind).end()
}

fn maintainer(maintainer: &Maintainer) -> String {
    Members::new().some_text("name", &maintainer.name).some_text("email", &maintainer.email).end()
}

fn link(link: &Link) -> String {
    Members::new().some_text("name", &link.name).some_text("url", &link.url).end()
}

fn icon_text(icon: &Icon) -> String {
    let data = base64::engine::general_purpose::STANDARD.encode(&icon.data.0);
    Members::new().text("base64data", &data).text("mediatype", &icon.media_type).end()
}

fn install_mode(mode: &InstallMode) -> String {
    Members::new().text("type", &mode.kind).raw("supported", &mode.supported.to_string()).end()
}

fn related_image(image: &RelatedImage) -> String {
    Members::new().text("name", &image.name).text("image", &image.image).end()
}

fn quoted(text: &str) -> String {
    go::json_string(&Value::from(text))
}

/// JSON text with the escapes that Go's encoder adds to text that is JSON already.
fn html_escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", character as u32))
            }
            other => out.push(other),
        }
    }
    out
}

/// An object's members in the order in which they are added.
struct Members(String);

impl Members {
    fn new() -> Self {
        Self(String::from("{"))
    }

    fn raw(mut self, name: &str, json: &str) -> Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&quoted(name));
        self.0.push(':');
        self.0.push_str(json);
        self
    }

    fn raw_if(self, present: bool, name: &str, json: impl FnOnce() -> String) -> Self {
        if present { self.raw(name, &json()) } else { self }
    }

    fn text(self, name: &str, text: &str) -> Self {
        self.raw(name, &quoted(text))
    }

    /// Left out if empty.
    fn some_text(self, name: &str, text: &str) -> Self {
        if text.is_empty() { self } else { self.text(name, text) }
    }

    /// Left out if empty.
    fn list<T>(self, name: &str, items: &[T], write: impl Fn(&T) -> String) -> Self {
        let texts = || items.iter().map(&write).collect::<Vec<_>>().join(",");
        self.raw_if(!items.is_empty(), name, || format!("[{}]", texts()))
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(properties: Value) -> Bundle {
        let mut all = vec![json!({"type": "olm.package", "value": {"packageName": "p", "version": "1.0.0"}})];
        all.extend(properties.as_array().unwrap().iter().cloned());
        let images = json!([{"name": "op", "image": "example.io/op"}]);
        let text = json!({"schema": "olm.bundle", "package": "p", "name": "p.v1", "image": "example.io/p",
            "properties": all, "relatedImages": images});
        Bundle::from_json(text.to_string().as_bytes()).unwrap()
    }

    fn inline(manifest: &str) -> Value {
        let data = base64::engine::general_purpose::STANDARD.encode(manifest);
        json!({"type": "olm.bundle.object", "value": {"data": data}})
    }

    #[test]
    #[rustfmt::skip]
    fn manifests_inline_ones_win_over_metadata() {
        let csv = "{ \"kind\": \"ClusterServiceVersion\" }";
        let metadata = json!({"type": "olm.csv.metadata", "value": {"displayName": "x"}});
        for (properties, objects, at) in [
            (json!([]), vec![], None),
            (json!([inline("kind: Service\na: y\nb: <\n")]), vec![r#"{"a":true,"b":"\u003c","kind":"Service"}"#], None),
            (json!([inline("kind: A\na: 9223372036854775807\n")]), vec![r#"{"a":9223372036854775807,"kind":"A"}"#], None),
            (json!([inline("{\"b\": 1}"), inline(csv), metadata, inline(csv)]), vec!["{\"b\": 1}", csv, csv], Some(1)),
        ] {
            let found = bundle(properties).manifests(None).unwrap();
            assert_eq!((found.objects, found.csv), (objects.into_iter().map(str::to_owned).collect(), at));
        }
        assert!(bundle(json!([inline("a: [")])).manifests(None).is_err());
    }

    #[test]
    fn manifests_csv_is_what_the_metadata_describe() {
        let icon = Icon { data: crate::Base64(b"<svg/>".to_vec()), media_type: "image/svg+xml".to_owned() };
        for (metadata, spec) in [
            (
                json!({"maintainers": [{}], "links": [{}], "keywords": [], "labels": {}}),
                r#""customresourcedefinitions":{},"apiservicedefinitions":{},"displayName":"","maintainers":[{}],"provider":{},"links":[{}],"#,
            ),
            (
                json!({"description": "<&>", "maturity": "alpha", "nativeAPIs": [{"group": "", "version": "v1", "kind": "Pod"}],
                    "crdDescriptions": {"owned": [{"name": "a", "version": "v1", "kind": "A", "specDescriptors":
                        [{"path": "p", "value": {"a": "<"}}, {"path": "q", "value": null}]}]},
                    "apiServiceDefinitions": {"required": [{"name": "n", "containerPort": 8443}]}}),
                r#""maturity":"alpha","customresourcedefinitions":{"owned":[{"name":"a","version":"v1","kind":"A","specDescriptors":[{"path":"p","value":{"a":"\u003c"}},{"path":"q","value":null}]}]},"apiservicedefinitions":{"required":[{"name":"n","group":"","version":"","kind":"","containerPort":8443}]},"nativeAPIs":[{"group":"","version":"v1","kind":"Pod"}],"displayName":"","description":"\u003c\u0026\u003e","provider":{},"#,
            ),
        ] {
            let found =
                bundle(json!([{"type": "olm.csv.metadata", "value": metadata}])).manifests(Some(&icon));
            let want = format!(
                "{{\"kind\":\"ClusterServiceVersion\",\"apiVersion\":\"operators.coreos.com/v1alpha1\",\"metadata\":{{\"name\":\"p.v1\"}},\
                 \"spec\":{{\"install\":{{\"strategy\":\"deployment\",\"spec\":{{\"deployments\":null}}}},\"version\":\"1.0.0\",{spec}\
                 \"icon\":[{{\"base64data\":\"PHN2Zy8+\",\"mediatype\":\"image/svg+xml\"}}],\"cleanup\":{{\"enabled\":false}},\
                 \"relatedImages\":[{{\"name\":\"op\",\"image\":\"example.io/op\"}}]}},\"status\":{{\"cleanup\":{{}}}}}}"
            );
            assert_eq!(found.unwrap(), Manifests { objects: vec![want], csv: Some(0) });
        }
    }
}
