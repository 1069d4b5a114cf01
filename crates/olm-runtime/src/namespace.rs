//! The namespace in which a process keeps its own objects.
//!
//! Rule: operator-controller §7.1 (`--system-namespace`).

use std::path::Path;

/// Where Kubernetes mounts the pod's own namespace.
pub(crate) const POD_NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// The namespace when nothing else is known.
pub const DEFAULT: &str = "olmv1-system";

/// The flag if set, else the pod's namespace, else [`DEFAULT`].
pub fn system_namespace(flag: &str) -> String {
    choose(flag, Path::new(POD_NAMESPACE_FILE))
}

fn choose(flag: &str, file: &Path) -> String {
    if !flag.is_empty() {
        return flag.to_owned();
    }
    std::fs::read_to_string(file)
        .ok()
        .map(|text| text.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| DEFAULT.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_is_flag_then_file_then_default() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("namespace");
        assert_eq!(choose("", &file), "olmv1-system");
        std::fs::write(&file, "\n").unwrap();
        assert_eq!(choose("", &file), "olmv1-system");
        std::fs::write(&file, "from-pod\n").unwrap();
        assert_eq!(choose("", &file), "from-pod");
        assert_eq!(choose("from-flag", &file), "from-flag");
    }
}
