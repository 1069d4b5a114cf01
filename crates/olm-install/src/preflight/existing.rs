//! The check that existing custom resources fit a changed schema. They are read page by page, up to a bounded number.
//!
//! Objects that the change would break block an upgrade. Objects that cannot be read do not: an upgrade may be needed to fix
//! the conversion webhook. Rule: crd-upgrade-safety §10 row 23; OLM Classic checked this before every upgrade.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, DynamicObject};
use olm_core::{Cancellation, Object};
use olm_crd_safety::{ExistingObjects, Fit, SchemaError};
use serde_json::Value;

use super::{Blocker, Found, resource};
use crate::pages::{ObjectText, Page, page};

/// Objects of one kind that are checked; a warning reports that there are more.
const MAX_OBJECTS: usize = 5_000;
/// Time in which the objects of one kind are read.
const READ_TIMEOUT: Duration = Duration::from_secs(180);
/// Objects that are named in a message.
const MAX_EXAMPLES: usize = 5;

/// The result for one kind.
#[derive(Debug, Default)]
struct Checked {
    objects: usize,
    broken: usize,
    never_fitted: usize,
    unchecked: usize,
    /// Why the first of them was not.
    why: Option<String>,
    /// `<namespace>/<name>: <problem>` of the first broken ones.
    examples: Vec<String>,
    more: bool,
}

/// Checks the objects of the CRD `live`, which has this name, with `judge`.
pub(super) async fn check(
    client: &Client,
    live: &Object,
    name: &str,
    judge: Result<Option<ExistingObjects>, SchemaError>,
    found: &mut Found,
) {
    let unknown =
        |why: String| format!("objects of CRD {name:?} were not checked against its new schema: {why}");
    let existing = match judge {
        Ok(Some(existing)) => Arc::new(existing),
        Ok(None) => return,
        Err(error) => return found.warnings.push(unknown(error.to_string())),
    };
    let api = Api::<DynamicObject>::all_with(client.clone(), &resource(live, existing.version()));
    match tokio::time::timeout(READ_TIMEOUT, read(client, api.resource_url(), &existing)).await {
        Ok(Ok(checked)) => checked.report(name, found),
        Ok(Err(error)) => found.warnings.push(unknown(error)),
        Err(_) => {
            found.warnings.push(unknown(format!("reading them took more than {} s", READ_TIMEOUT.as_secs())))
        }
    }
}

async fn read(client: &Client, url: &str, existing: &Arc<ExistingObjects>) -> Result<Checked, String> {
    let mut checked = Checked::default();
    let mut token: Option<String> = None;
    let cancellation = Cancellation::default();
    // threads cannot be dropped: they look at this
    let _cancel = cancellation.drop_guard();
    loop {
        let read = page(client, url, token.as_deref()).await;
        let Page { objects, next } = read.map_err(|error| error.to_string())?;
        let (judge, cancellation) = (Arc::clone(existing), cancellation.clone());
        checked = tokio::task::spawn_blocking(move || {
            checked.add_all(&judge, objects, &cancellation);
            checked
        })
        .await
        .map_err(|error| error.to_string())?;
        match next {
            None => return Ok(checked),
            Some(_) if checked.objects >= MAX_OBJECTS => {
                checked.more = true;
                return Ok(checked);
            }
            Some(next) => token = Some(next),
        }
    }
}

impl Checked {
    /// Stops when it is cancelled.
    fn add_all(&mut self, existing: &ExistingObjects, objects: Vec<ObjectText>, cancellation: &Cancellation) {
        let objects = objects.into_iter().take_while(|_| !cancellation.is_cancelled());
        objects.for_each(|object| self.add(existing, &object));
    }

    fn add(&mut self, existing: &ExistingObjects, object: &ObjectText) {
        self.objects += 1;
        let (object, fit) = match object.parse() {
            Ok(object) => {
                let fit = existing.check(&object);
                (object, fit)
            }
            Err(error) => (Value::Null, Fit::Unchecked(error.to_string())),
        };
        match fit {
            Fit::Fits => {}
            Fit::NeverDid => self.never_fitted += 1,
            Fit::Unchecked(why) => {
                self.unchecked += 1;
                self.why.get_or_insert(why);
            }
            Fit::Broken(problems) => {
                self.broken += 1;
                if self.examples.len() < MAX_EXAMPLES {
                    let metadata = &object["metadata"];
                    let name = metadata["name"].as_str().unwrap_or_default();
                    let namespace = metadata["namespace"].as_str();
                    let namespace = namespace.map(|n| format!("{n}/")).unwrap_or_default();
                    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
                    self.examples.push(format!("{namespace}{name}: {}", problems.join(", ")));
                }
            }
        }
    }

    fn report(self, crd: &str, found: &mut Found) {
        let Self { objects, broken, never_fitted, unchecked, why, examples, more } = self;
        if broken > 0 {
            let rest = if broken > examples.len() {
                format!("; and {} more", broken - examples.len())
            } else {
                String::new()
            };
            found.blocking.push(Blocker {
                crd: crd.to_owned(),
                check: "existingObjects",
                about: format!("validating existing objects of CRD {crd:?}: "),
                text: format!(
                    "{broken} of {objects} do not fit the new schema: {}{rest}",
                    examples.join("; ")
                ),
            });
        }
        if never_fitted > 0 {
            found.warnings.push(format!(
                "{never_fitted} of {objects} objects of CRD {crd:?} fit neither its present schema nor the new one"
            ));
        }
        if let Some(why) = why {
            found.warnings.push(format!(
                "{unchecked} of {objects} objects of CRD {crd:?} were not checked against its new schema: {why}"
            ));
        }
        if more {
            found.warnings.push(format!(
                "only the first {objects} objects of CRD {crd:?} were checked against its new schema"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::messages;
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::json;

    fn existing() -> ExistingObjects {
        let crd = |fields: Value| {
            Object::from_value(json!({"spec": {"group": "g.io", "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": {"spec": fields}}}}]}}))
            .unwrap()
        };
        let (old, new) = (crd(json!({"type": "integer"})), crd(json!({"type": "integer", "maximum": 5})));
        ExistingObjects::new(&old, &new).unwrap().unwrap()
    }

    fn judged(specs: &[Value]) -> Found {
        judged_until(specs, &Cancellation::default())
    }

    fn judged_until(specs: &[Value], cancellation: &Cancellation) -> Found {
        let existing = existing();
        let mut checked = Checked::default();
        let object = |(at, spec): (usize, &Value)| {
            let mut object = json!({"metadata": {"name": format!("o{at}"), "namespace": "n"}});
            if !spec.is_null() {
                object["spec"] = spec.clone();
            }
            ObjectText(serde_json::value::to_raw_value(&object).unwrap())
        };
        checked.add_all(&existing, specs.iter().enumerate().map(object).collect(), cancellation);
        let mut found = Found::default();
        checked.report("ws.g.io", &mut found);
        found
    }

    #[test]
    fn existing_objects_that_break_are_counted_and_named() {
        let found = judged(&[json!(1), json!(9), json!(null)]);
        assert_eq!(
            messages(&found.blocking),
            ["validating existing objects of CRD \"ws.g.io\": 1 of 3 do not fit the new schema: \
              n/o1: spec: value is greater than the maximum of 5"]
        );
        assert_eq!(
            found.warnings,
            ["1 of 3 objects of CRD \"ws.g.io\" fit neither its present schema nor the new one"]
        );
        let mut found = Found::default();
        let unchecked =
            Checked { objects: 3, unchecked: 2, why: Some("too large".to_owned()), ..Checked::default() };
        unchecked.report("ws.g.io", &mut found);
        assert_eq!(
            found.warnings,
            ["2 of 3 objects of CRD \"ws.g.io\" were not checked against its new schema: too large"]
        );
        let found = judged(&vec![json!(9); 8]);
        let blocking = messages(&found.blocking).join("\n");
        assert!(blocking.ends_with("; and 3 more"), "{blocking}");
        assert_eq!(blocking.matches("n/o").count(), MAX_EXAMPLES);
        assert!(judged(&[json!(1)]).blocking.is_empty());
        let cancellation = Cancellation::default();
        drop(cancellation.drop_guard());
        assert!(judged_until(&[json!(9)], &cancellation).blocking.is_empty(), "checked after the timeout");
    }

    /// Those of several kinds must fit into memory at the same time, and one that cannot be parsed stops nothing.
    #[tokio::test]
    async fn existing_objects_are_read_in_small_pages() {
        let sent: Arc<Mutex<Vec<String>>> = Arc::default();
        let requests = Arc::clone(&sent);
        let server = tower::service_fn(move |request: http::Request<Body>| {
            let uri = request.uri().to_string();
            let object = |name: &str, spec: &str| {
                format!(r#"{{"metadata": {{"name": "{name}", "namespace": "n"}}, "spec": {spec}}}"#)
            };
            let (next, items) = match uri.contains("continue=next") {
                false => ("next", object("fits", "1")),
                true => {
                    let deep = object("deep", &format!("{}{}", "[".repeat(200), "]".repeat(200)));
                    ("", format!("{deep}, {}", object("breaks", "9")))
                }
            };
            let list = format!(
                r#"{{"apiVersion": "g.io/v1", "kind": "WList", "metadata": {{"continue": "{next}"}}, "items": [{items}]}}"#
            );
            requests.lock().push(uri);
            async move { Ok::<_, tower::BoxError>(http::Response::new(Body::from(list.into_bytes()))) }
        });
        let client = Client::new(server, "default");
        let checked = read(&client, "/apis/g.io/v1/ws", &Arc::new(existing())).await.unwrap();
        assert_eq!((checked.objects, checked.broken, checked.unchecked), (3, 1, 1), "{checked:?}");
        assert_eq!(checked.examples, ["n/breaks: spec: value is greater than the maximum of 5"]);
        let sent = sent.lock();
        assert!(sent.len() == 2 && sent.iter().all(|uri| uri.contains("limit=20")), "{sent:?}");
    }
}
