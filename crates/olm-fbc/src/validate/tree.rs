//! Findings of the graph rules as the tree that `opm validate` prints (fbc §8.4).

use crate::{Finding, Severity};

#[derive(Default)]
struct Node {
    message: String,
    children: Vec<Node>,
}

/// The tree of the errors that have a path, or `None` if there is none.
pub fn tree(findings: &[Finding]) -> Option<String> {
    let mut root = Node { message: "invalid index".to_owned(), ..Node::default() };
    for finding in findings.iter().filter(|f| f.severity == Severity::Error && !f.path.is_empty()) {
        let mut at = &mut root;
        for level in finding.path.iter().chain([&finding.message]) {
            let known = at.children.iter().position(|child| child.message == *level);
            let index = known.unwrap_or_else(|| {
                at.children.push(Node { message: level.clone(), ..Node::default() });
                at.children.len() - 1
            });
            at = &mut at.children[index];
        }
    }
    if root.children.is_empty() {
        return None;
    }
    let mut out = String::new();
    root.print("", "", &mut out);
    Some(out.trim_end().to_owned())
}

impl Node {
    fn print(&self, head: &str, rest: &str, out: &mut String) {
        let end = if self.children.is_empty() { "" } else { ":" };
        out.push_str(&format!("{head}{}{end}\n", self.message));
        for (index, child) in self.children.iter().enumerate() {
            let last = index + 1 == self.children.len();
            let (branch, below) = if last { ("└── ", "    ") } else { ("├── ", "│   ") };
            child.print(&format!("{rest}{branch}"), &format!("{rest}{below}"), out);
        }
    }
}
