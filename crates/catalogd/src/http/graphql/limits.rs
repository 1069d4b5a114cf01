//! Bounds on a query's text, checked before any catalog is read (rule: catalogd §8.1). Pure.

use std::collections::HashMap;

use async_graphql::Name;
use async_graphql::parser::types::{
    DocumentOperations, ExecutableDocument, FragmentDefinition, Selection, SelectionSet,
};
use async_graphql::{Positioned, parser};

/// Nested selections; a fragment counts as one.
const MAX_DEPTH: usize = 10;
/// Aliases in all operations.
const MAX_ALIASES: usize = 50;
/// Fields in all operations; a fragment counts once an operation.
const MAX_FIELDS: usize = 500;

/// Selections of one operation or fragment once every spread is replaced by its fragment. The bounds above count a fragment
/// once, as the reference does, but execution visits it at every spread: thirty fragments that each spread the next one
/// twice are a billion selections, in a kilobyte.
const MAX_EXPANDED: u64 = 10_000;

/// Reads a query and checks its bounds.
///
/// # Errors
/// The message for the client.
pub(super) fn parse(query: &str) -> Result<ExecutableDocument, String> {
    let document = parser::parse_query(query).map_err(|error| {
        let place = error.positions().next().map(|at| format!("({}:{}) ", at.line, at.column));
        // the parser draws a picture of the position; its last line has the error
        let text = error.to_string();
        let why = text.rsplit_once("= ").map_or(text.as_str(), |(_, why)| why);
        format!("query parse error: Syntax Error GraphQL {}{why}", place.unwrap_or_default())
    })?;
    let mut walk = Walk { fragments: &document.fragments, seen: Vec::new(), aliases: 0, fields: 0 };
    for (_, operation) in document.operations.iter() {
        walk.seen.clear();
        walk.set(&operation.node.selection_set, 1)?;
    }
    let mut expansion = Expansion { fragments: &document.fragments, known: HashMap::new() };
    for (_, operation) in document.operations.iter() {
        bounded(expansion.set(&operation.node.selection_set)?)?;
    }
    // validation visits also fragments that are never spread; one order, so that one query has one answer
    let mut all: Vec<&Name> = document.fragments.keys().collect();
    all.sort_unstable();
    for name in all {
        bounded(expansion.fragment(name)?)?;
    }
    Ok(document)
}

fn bounded(selections: u64) -> Result<(), String> {
    if selections > MAX_EXPANDED {
        return Err(format!(
            "query exceeds maximum of {MAX_EXPANDED} selections with its fragments expanded"
        ));
    }
    Ok(())
}

/// Whether the document leaves open which operation is meant.
pub(super) fn ambiguous(document: &ExecutableDocument) -> bool {
    matches!(&document.operations, DocumentOperations::Multiple(operations) if operations.len() > 1)
}

struct Walk<'a> {
    fragments: &'a HashMap<Name, Positioned<FragmentDefinition>>,
    /// Fragments of the present operation.
    seen: Vec<&'a Name>,
    aliases: usize,
    fields: usize,
}

impl<'a> Walk<'a> {
    fn set(&mut self, set: &'a Positioned<SelectionSet>, depth: usize) -> Result<(), String> {
        if set.node.items.is_empty() {
            return Ok(());
        }
        if depth > MAX_DEPTH {
            return Err(format!("query exceeds maximum depth of {MAX_DEPTH}"));
        }
        for item in &set.node.items {
            match &item.node {
                Selection::Field(field) => {
                    self.fields += 1;
                    self.aliases += usize::from(field.node.alias.is_some());
                    if self.aliases > MAX_ALIASES {
                        return Err(format!("query exceeds maximum alias count of {MAX_ALIASES}"));
                    }
                    if self.fields > MAX_FIELDS {
                        return Err(format!("query exceeds maximum field count of {MAX_FIELDS}"));
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

/// How large selections are when they are run.
struct Expansion<'a> {
    fragments: &'a HashMap<Name, Positioned<FragmentDefinition>>,
    /// The size of each fragment seen so far; none while it is being counted.
    known: HashMap<&'a Name, Option<u64>>,
}

impl<'a> Expansion<'a> {
    fn set(&mut self, set: &'a Positioned<SelectionSet>) -> Result<u64, String> {
        let mut size: u64 = 0;
        for item in &set.node.items {
            let within = match &item.node {
                Selection::Field(field) => self.set(&field.node.selection_set)?,
                Selection::InlineFragment(fragment) => self.set(&fragment.node.selection_set)?,
                Selection::FragmentSpread(spread) => self.fragment(&spread.node.fragment_name.node)?,
            };
            size = size.saturating_add(within).saturating_add(1);
        }
        Ok(size)
    }

    fn fragment(&mut self, name: &'a Name) -> Result<u64, String> {
        let Some(fragment) = self.fragments.get(name) else { return Ok(0) };
        match self.known.get(name) {
            Some(Some(size)) => return Ok(*size),
            Some(None) => return Err(format!("Cannot spread fragment \"{name}\" within itself.")),
            None => {}
        }
        self.known.insert(name, None);
        let size = self.set(&fragment.node.selection_set)?;
        self.known.insert(name, Some(size));
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn graphql_limits_are_reported() {
        let nested = |depth: usize| format!("{}a{}", "{ a ".repeat(depth - 1) + "{ ", " }".repeat(depth));
        let aliases =
            |count: usize| format!("{{ {} }}", (0..count).map(|n| format!("a{n}: a ")).collect::<String>());
        let fields = |count: usize| format!("{{ {} }}", "a ".repeat(count));
        // the last one is spread first, so that none is met deep down
        let bomb = |count: usize| {
            let spreads: String = (0..count).rev().map(|n| format!("...f{n} ")).collect();
            let fragment = |n: usize| format!(" fragment f{n} on Query {{ ...f{} ...f{} }}", n + 1, n + 1);
            let fragments: String = (0..count - 1).map(fragment).collect();
            format!("{{ {spreads}}}{fragments} fragment f{} on Query {{ a }}", count - 1)
        };
        let too_deep = "query exceeds maximum depth of 10";
        for (query, want) in [
            (nested(10), ""),
            (nested(11), too_deep),
            (aliases(50), ""),
            (aliases(51), "query exceeds maximum alias count of 50"),
            (fields(500), ""),
            (fields(501), "query exceeds maximum field count of 500"),
            ("{ ...f } fragment f on Query { ...f a }".to_owned(), "Cannot spread fragment \"f\" within itself."),
            ("{ a } fragment g on Query { ...f } fragment f on Query { a ...g }".to_owned(), "Cannot spread fragment \"f\" within itself."),
            (bomb(11), ""),
            (bomb(12), "query exceeds maximum of 10000 selections with its fragments expanded"),
            (bomb(2_000), "query exceeds maximum of 10000 selections with its fragments expanded"),
            (format!("{{ a }} {}", bomb(15).split_once('}').unwrap().1),
                "query exceeds maximum of 10000 selections with its fragments expanded"),
            (format!("query x {} query y {}", fields(300), fields(300)), "query exceeds maximum field count of 500"),
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
