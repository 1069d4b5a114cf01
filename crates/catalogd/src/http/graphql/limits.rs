//! Bounds on a query's text, checked before any catalog is looked at (rule: catalogd §8.1). Pure.

use std::collections::HashMap;

use async_graphql::Name;
use async_graphql::parser::types::{
    DocumentOperations, ExecutableDocument, FragmentDefinition, Selection, SelectionSet,
};
use async_graphql::{Positioned, parser};

/// Nested selections; a fragment counts as one.
const DEPTH: usize = 10;
/// Aliases in all operations.
const ALIASES: usize = 50;
/// Fields in all operations; a fragment counts once an operation.
const FIELDS: usize = 500;

/// Reads a query and checks its bounds.
///
/// # Errors
/// The message for the client.
pub(super) fn parse(query: &str) -> Result<ExecutableDocument, String> {
    let document = parser::parse_query(query).map_err(|error| {
        let place = error.positions().next().map(|at| format!("({}:{}) ", at.line, at.column));
        // the parser draws a picture of the place; its last line says what is wrong
        let text = error.to_string();
        let why = text.rsplit_once("= ").map_or(text.as_str(), |(_, why)| why);
        format!("query parse error: Syntax Error GraphQL {}{why}", place.unwrap_or_default())
    })?;
    let mut counts = Counts { aliases: 0, fields: 0 };
    for (_, operation) in document.operations.iter() {
        let mut walk = Walk { fragments: &document.fragments, seen: Vec::new(), counts: &mut counts };
        walk.set(&operation.node.selection_set, 1)?;
    }
    Ok(document)
}

/// Whether the document leaves open which operation is meant.
pub(super) fn ambiguous(document: &ExecutableDocument) -> bool {
    matches!(&document.operations, DocumentOperations::Multiple(operations) if operations.len() > 1)
}

struct Counts {
    aliases: usize,
    fields: usize,
}

struct Walk<'a> {
    fragments: &'a HashMap<Name, Positioned<FragmentDefinition>>,
    seen: Vec<&'a Name>,
    counts: &'a mut Counts,
}

impl<'a> Walk<'a> {
    fn set(&mut self, set: &'a Positioned<SelectionSet>, depth: usize) -> Result<(), String> {
        if set.node.items.is_empty() {
            return Ok(());
        }
        if depth > DEPTH {
            return Err(format!("query exceeds maximum depth of {DEPTH}"));
        }
        for item in &set.node.items {
            match &item.node {
                Selection::Field(field) => {
                    self.counts.fields += 1;
                    self.counts.aliases += usize::from(field.node.alias.is_some());
                    if self.counts.aliases > ALIASES {
                        return Err(format!("query exceeds maximum alias count of {ALIASES}"));
                    }
                    if self.counts.fields > FIELDS {
                        return Err(format!("query exceeds maximum field count of {FIELDS}"));
                    }
                    self.set(&field.node.selection_set, depth + 1)?;
                }
                Selection::InlineFragment(fragment) => self.set(&fragment.node.selection_set, depth + 1)?,
                Selection::FragmentSpread(spread) => {
                    let name = &spread.node.fragment_name.node;
                    if self.seen.contains(&name) {
                        continue;
                    }
                    self.seen.push(name);
                    if let Some(fragment) = self.fragments.get(name) {
                        self.set(&fragment.node.selection_set, depth + 1)?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_told() {
        let nested = |depth: usize| format!("{}a{}", "{ a ".repeat(depth - 1) + "{ ", " }".repeat(depth));
        let aliases =
            |count: usize| format!("{{ {} }}", (0..count).map(|n| format!("a{n}: a ")).collect::<String>());
        let fields = |count: usize| format!("{{ {} }}", "a ".repeat(count));
        let too_deep = "query exceeds maximum depth of 10";
        for (query, want) in [
            (nested(10), ""),
            (nested(11), too_deep),
            (aliases(50), ""),
            (aliases(51), "query exceeds maximum alias count of 50"),
            (fields(500), ""),
            (fields(501), "query exceeds maximum field count of 500"),
            ("{ ...f } fragment f on Query { ...f a }".to_owned(), ""),
            (
                format!("query x {} query y {}", fields(300), fields(300)),
                "query exceeds maximum field count of 500",
            ),
        ] {
            assert_eq!(parse(&query).map(|_| ()).err().unwrap_or_default(), want, "{query:.60}");
        }
        assert_eq!(
            parse("{ a ").unwrap_err(),
            "query parse error: Syntax Error GraphQL (1:5) expected selection_set, selection, directive, or arguments"
        );
        assert!(ambiguous(&parse("query x { a } query y { a }").unwrap()));
        assert!(!ambiguous(&parse("{ a }").unwrap()));
    }
}
