//! `.indexignore` patterns beside what `opm render` v1.73.0 left out of the same tree.

use olm_fbc::indexignore::IndexIgnore;

#[rustfmt::skip]
const TREE: [&str; 14] = [
    "a.yaml", "b", "dir.yaml", "dir/a.yaml", "dir/b", "dir/sub/a.yaml", "dir/sub/b/c", "a/b/c", "a/a/b",
    "a/a/a/b", "x/a/b", "x/dir/a.yaml", "a/dir/sub/a", "b1/[x]/a",
];

#[test]
fn indexignore_leaves_out_the_files_that_opm_does() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in include_str!("indexignore.vectors").lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [directory, patterns, want] = fields.as_slice() else { panic!("{line}") };
        let mut ignore = IndexIgnore::default();
        ignore.add(directory, patterns.replace(',', "\n").as_bytes());
        let found: Vec<&str> = TREE.iter().copied().filter(|path| ignore.ignores(path)).collect();
        count += 1;
        if found.join(" ") != *want {
            wrong.push(format!("{directory:?} {patterns:?}\n  want {want}\n  got  {}", found.join(" ")));
        }
    }
    assert!(count > 50, "only {count} vectors");
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}
