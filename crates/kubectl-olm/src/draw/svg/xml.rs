//! Writing XML so that it cannot come out wrong: elements are closed by scope, texts and attributes are escaped here
//! and nowhere else.

use std::fmt::Display;

use crate::draw::plain;

/// An XML text in the making.
#[derive(Debug, Default)]
pub(super) struct Xml {
    text: String,
}

/// Name and value of an attribute.
pub(super) type Attribute<'a> = (&'static str, &'a dyn Display);

impl Xml {
    /// An element with content.
    pub(super) fn element(
        &mut self,
        name: &'static str,
        attributes: &[Attribute<'_>],
        content: impl FnOnce(&mut Self),
    ) {
        self.start(name, attributes);
        self.text.push('>');
        content(self);
        self.text += &format!("</{name}>\n");
    }

    /// An element without content.
    pub(super) fn empty(&mut self, name: &'static str, attributes: &[Attribute<'_>]) {
        self.start(name, attributes);
        self.text.push_str("/>\n");
    }

    /// An element that holds only text.
    pub(super) fn leaf(&mut self, name: &'static str, attributes: &[Attribute<'_>], text: &str) {
        self.element(name, attributes, |xml| xml.text(text));
    }

    pub(super) fn text(&mut self, text: &str) {
        self.text.push_str(&escaped(text));
    }

    /// A constant style sheet, never foreign text.
    pub(super) fn style(&mut self, sheet: &'static str) {
        self.element("style", &[], |xml| xml.text(sheet));
    }

    pub(super) fn append(&mut self, other: Self) {
        self.text.push_str(&other.text);
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    fn start(&mut self, name: &'static str, attributes: &[Attribute<'_>]) {
        self.text.push('<');
        self.text.push_str(name);
        for (name, value) in attributes {
            self.text += &format!(" {name}=\"{}\"", escaped(&value.to_string()));
        }
    }
}

/// Without characters that XML does not allow, and with those that mean something to it as entities.
fn escaped(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(plain).collect();
    let entities =
        [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;"), ('\'', "&#39;")].into_iter();
    entities.fold(lines.join("\n"), |text, (c, entity)| text.replace(c, entity))
}
