//! Sorts of namespaces: how many of each thing, and how often.

/// Numbers of a namespace of one sort. Percentages are chances.
pub(super) struct Shape {
    pub(super) profile: &'static str,
    pub(super) packages: (usize, usize),
    pub(super) versions: (usize, usize),
    pub(super) catalogs: (usize, usize),
    pub(super) channels: (usize, usize),
    pub(super) subscriptions: (usize, usize),
    /// APIs that packages have in common; fewer are more conflicts.
    pub(super) apis: (usize, usize),
    /// Of a package to need something.
    pub(super) needs: u32,
    /// Of a dependency to be an `olm.constraint`.
    pub(super) constraints: u32,
    /// Of a Subscription to have a CSV.
    pub(super) installed: u32,
    /// Of a channel to have invalid edges.
    pub(super) invalid_graph: u32,
    /// Of a package to provide another version of its API in each of its versions, and of its dependencies to follow.
    pub(super) in_step: u32,
}

#[rustfmt::skip]
pub(super) const SHAPES: [Shape; 6] = [
    Shape { profile: "general", packages: (2, 7), versions: (1, 5), catalogs: (1, 3), channels: (1, 3), subscriptions: (1, 4),
        apis: (6, 12), needs: 55, constraints: 30, installed: 30, invalid_graph: 1, in_step: 10 },
    Shape { profile: "constraints", packages: (3, 6), versions: (1, 4), catalogs: (1, 2), channels: (1, 2), subscriptions: (1, 2),
        apis: (4, 8), needs: 70, constraints: 90, installed: 15, invalid_graph: 0, in_step: 0 },
    Shape { profile: "conflict", packages: (3, 8), versions: (1, 4), catalogs: (1, 3), channels: (1, 2), subscriptions: (2, 4),
        apis: (3, 5), needs: 60, constraints: 20, installed: 25, invalid_graph: 0, in_step: 0 },
    Shape { profile: "upgrade", packages: (2, 5), versions: (2, 5), catalogs: (1, 2), channels: (1, 1), subscriptions: (2, 4), apis: (5, 8),
        needs: 70, constraints: 10, installed: 90, invalid_graph: 0, in_step: 80 },
    Shape { profile: "graph", packages: (1, 2), versions: (2, 7), catalogs: (1, 2), channels: (1, 3), subscriptions: (1, 2), apis: (2, 4),
        needs: 20, constraints: 20, installed: 60, invalid_graph: 15, in_step: 0 },
    Shape { profile: "prefs", packages: (3, 8), versions: (1, 3), catalogs: (3, 5), channels: (1, 3), subscriptions: (1, 3), apis: (3, 6),
        needs: 65, constraints: 30, installed: 20, invalid_graph: 0, in_step: 0 },
];

/// 300 to 700 entries of channels, most of which can be reached.
pub(super) const LARGE: Shape = Shape {
    profile: "large",
    packages: (9, 12),
    versions: (11, 15),
    catalogs: (2, 3),
    channels: (2, 3),
    subscriptions: (5, 5),
    apis: (12, 18),
    needs: 80,
    constraints: 20,
    installed: 30,
    invalid_graph: 0,
    in_step: 0,
};
