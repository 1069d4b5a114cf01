//! The objects rendered so far, each identity once.
//!
//! Equal objects collapse. Where one only adds members to the other (a shipped ServiceAccount with labels and the bare
//! one made for its permissions), the richer one stays. Anything else is a contradiction that the caller gets
//! (bundle-rendering §16 rows 13 and 14).

use std::collections::HashMap;

use olm_core::{Cancellation, Object, ObjectKey};
use serde_json::{Map, Value};

use crate::error::RenderError;

pub(super) struct Objects<'a> {
    made: Vec<(&'static str, Object)>,
    index: HashMap<ObjectKey, usize>,
    cancellation: &'a Cancellation,
}

impl<'a> Objects<'a> {
    pub(super) fn new(cancellation: &'a Cancellation) -> Self {
        Self { made: Vec::new(), index: HashMap::new(), cancellation }
    }

    pub(super) fn add(&mut self, source: &'static str, objects: Vec<Object>) -> Result<(), RenderError> {
        for object in objects {
            if self.cancellation.is_cancelled() {
                return Err(RenderError::Cancelled);
            }
            // the same object in another version of its group is still the same object
            let key = ObjectKey { version: String::new(), ..object.key() };
            let Some(&at) = self.index.get(&key) else {
                self.index.insert(key, self.made.len());
                self.made.push((source, object));
                continue;
            };
            let (first, known) = &mut self.made[at];
            if contains_all(&known.0, &object.0) {
                continue;
            }
            if !contains_all(&object.0, &known.0) {
                return Err(RenderError::Duplicate { object: object.key().objref(), first, second: source });
            }
            *known = object;
        }
        Ok(())
    }

    pub(super) fn into_vec(self) -> Vec<Object> {
        self.made.into_iter().map(|(_, object)| object).collect()
    }
}

/// Whether `whole` has every member of `part` with the same content. Takes as long as the smaller of the two is large.
fn contains_all(whole: &Map<String, Value>, part: &Map<String, Value>) -> bool {
    part.iter().all(|(name, member)| whole.get(name).is_some_and(|known| contains(known, member)))
}

fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => contains_all(whole, part),
        (whole, part) => whole == part,
    }
}
