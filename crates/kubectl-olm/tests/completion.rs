//! Completion scripts in the real shells: bash always, zsh and fish where they are installed.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::Command;

/// The candidates that a shell prints when it runs `commands` with the plugin in `PATH` and its script in `$script`; none if the
/// shell is not installed.
fn candidates(shell: &str, commands: &str) -> Option<Vec<String>> {
    let program = Path::new(env!("CARGO_BIN_EXE_kubectl-olm"));
    let directory = program.parent().unwrap().display().to_string();
    let path = format!("{directory}:{}", std::env::var("PATH").unwrap_or_default());
    let script = Command::new(program).args(["completion", shell]).output().unwrap().stdout;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("script");
    std::fs::write(&file, script).unwrap();
    let mut command = Command::new(shell);
    if shell == "bash" {
        command.args(["--noprofile", "--norc"]);
    }
    let output = command
        .args(["-c", commands])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures"))
        .env("PATH", path)
        .env("script", &file)
        .env("KUBECONFIG", "/no/such/kubeconfig")
        .output();
    if output.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return None;
    }
    let output = output.unwrap();
    let (out, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success() && error.is_empty(), "{shell}: {commands}: {out}{error}");
    Some(out.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect())
}

/// Words before the cursor, and candidates that the last one has to have.
const LINES: &[(&[&str], &[&str])] = &[
    (&["sh"], &["show"]),
    (&["bundle", ""], &["render", "inspect", "lint"]),
    (&["status", "--lim"], &["--limit"]),
    (&["list", "-o", "w"], &["wide"]),
    (&["show", "--dir", "catalog", "k"], &["kiln-operator"]),
    (&["show", "kiln-operator", "--dir", "catalog", "--channel", ""], &["stable", "candidate"]),
    (&["versions", "kiln-operator", "--dir", "catalog", "--version", "1.0"], &["1.0.1", "1.0.0"]),
    // an unreachable cluster gives no candidates and no error
    (&["status", ""], &[]),
];

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
}

#[test]
fn bash_completes_verbs_flags_and_names() {
    for (words, want) in LINES {
        let commands = format!(
            ". \"$script\"; COMP_WORDS=(kubectl-olm {}); COMP_CWORD={}; _kubectl_olm; printf '%s\\n' \"${{COMPREPLY[@]}}\"; \
             complete -p kubectl-olm >/dev/null",
            quoted(words),
            words.len()
        );
        let mut found = candidates("bash", &commands).expect("bash runs");
        found.retain(|name| !name.is_empty());
        assert_eq!(found, *want, "{words:?}");
    }
}

#[test]
fn zsh_completes_verbs_flags_and_names() {
    for (words, want) in LINES {
        // what the completion system would show
        let stub = "compdef() { : }; _describe() { print -rl -- ${candidates%%:*} }; _files() { : }";
        let commands = format!(
            "{stub}; . \"$script\"; words=(kubectl-olm {}); CURRENT={}; _kubectl_olm; true",
            quoted(words),
            words.len() + 1
        );
        let Some(found) = candidates("zsh", &commands) else {
            println!("SKIPPED: zsh is not installed");
            return;
        };
        assert_eq!(found, *want, "{words:?}");
    }
}

#[test]
fn fish_completes_verbs_flags_and_names() {
    for (words, want) in LINES {
        let (last, earlier) = words.split_last().unwrap();
        let line = [&["kubectl-olm"], earlier, &[last]].concat().join(" ");
        let Some(mut found) = candidates("fish", &format!("source $script; complete -C '{line}'")) else {
            println!("SKIPPED: fish is not installed");
            return;
        };
        // fish sorts
        found.sort_unstable();
        let mut want = want.to_vec();
        want.sort_unstable();
        assert_eq!(found, want, "{words:?}");
    }
}

/// What kubectl runs, and the format that it reads.
#[test]
fn kubectl_plugin_script_prints_candidates() {
    let commands = "chmod +x \"$script\"; cd \"${script%/*}\"; kubectl-olm completion plugin > kubectl_complete-olm; \
                    chmod +x kubectl_complete-olm; ./kubectl_complete-olm sh; ./kubectl_complete-olm bundle render ''";
    assert_eq!(candidates("bash", commands).expect("bash runs"), ["show", ":4", ":0"]);
}
