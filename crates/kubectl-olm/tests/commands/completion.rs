//! Completion scripts in the real shells: bash, and those that `OLM_COMPLETION_SHELLS` lists, as `make test-completion` does.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::path::Path;
use std::process::Command;

/// The candidates that a shell prints when it runs `commands` with the plugin in `PATH` and its script in `$script`.
fn candidates(shell: &str, commands: &str) -> Vec<String> {
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
    let output = output.unwrap_or_else(|error| panic!("{shell} cannot be started, install it: {error}"));
    let (out, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success() && error.is_empty(), "{shell}: {commands}: {out}{error}");
    out.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
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
fn completion_has_verbs_flags_and_names() {
    let others = std::env::var("OLM_COMPLETION_SHELLS").unwrap_or_default();
    for shell in std::iter::once("bash").chain(others.split_whitespace()) {
        match shell {
            "bash" => bash(),
            "zsh" => zsh(),
            "fish" => fish(),
            other => panic!("{other} in OLM_COMPLETION_SHELLS is none of bash, zsh and fish"),
        }
    }
}

fn bash() {
    for (words, want) in LINES {
        let commands = format!(
            ". \"$script\"; COMP_WORDS=(kubectl-olm {}); COMP_CWORD={}; _kubectl_olm; printf '%s\\n' \"${{COMPREPLY[@]}}\"; \
             complete -p kubectl-olm >/dev/null",
            quoted(words),
            words.len()
        );
        let mut found = candidates("bash", &commands);
        found.retain(|name| !name.is_empty());
        assert_eq!(found, *want, "{words:?}");
    }
}

fn zsh() {
    for (words, want) in LINES {
        // what the completion system would show
        let stub = "compdef() { : }; _describe() { print -rl -- ${candidates%%:*} }; _files() { : }";
        let commands = format!(
            "{stub}; . \"$script\"; words=(kubectl-olm {}); CURRENT={}; _kubectl_olm; true",
            quoted(words),
            words.len() + 1
        );
        let found = candidates("zsh", &commands);
        assert_eq!(found, *want, "{words:?}");
    }
}

fn fish() {
    for (words, want) in LINES {
        let (last, earlier) = words.split_last().unwrap();
        let line = [&["kubectl-olm"], earlier, &[last]].concat().join(" ");
        let mut found = candidates("fish", &format!("source $script; complete -C '{line}'"));
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
    assert_eq!(candidates("bash", commands), ["show", ":4", ":0"]);
}

/// What is open at the end of a PowerShell script, and whether everything was closed in order. Strings may stand within `$(…)` of strings.
fn open_at_the_end(script: &str) -> Result<Vec<char>, String> {
    let mut open: Vec<char> = Vec::new();
    let mut letters = script.chars().peekable();
    while let Some(letter) = letters.next() {
        match (open.last(), letter) {
            // the backtick takes the next one as it is, but for single quotes
            (last, '`') if last != Some(&'\'') => drop(letters.next()),
            (Some('\''), '\'') | (Some('"'), '"') => drop(open.pop()),
            (Some('\''), _) => {}
            (Some('"'), '$') if letters.peek() == Some(&'(') => {
                letters.next();
                open.push('(');
            }
            (Some('"'), _) => {}
            (_, '#') => while letters.next_if(|next| *next != '\n').is_some() {},
            (_, '\'' | '"' | '(' | '[' | '{') => open.push(letter),
            (last, ')' | ']' | '}') => {
                let opening = match letter {
                    ')' => '(',
                    ']' => '[',
                    _ => '{',
                };
                if last != Some(&opening) {
                    return Err(format!("{letter} closes {last:?}"));
                }
                open.pop();
            }
            _ => {}
        }
    }
    Ok(open)
}

/// PowerShell itself is not at hand: quotes and brackets are what a change of the script breaks first.
#[test]
fn powershell_script_closes_quotes_and_brackets() {
    for (script, closed) in [
        ("{ \"$($a[0]) )\" } # it's", true),
        ("'a \" `' \"`\"\" ''", true),
        ("{ \"$(\" }", false),
        ("{ ( } )", false),
        ("'it''s", false),
    ] {
        assert_eq!(open_at_the_end(script).is_ok_and(|open| open.is_empty()), closed, "{script}");
    }
    let script = Command::new(env!("CARGO_BIN_EXE_kubectl-olm")).args(["completion", "powershell"]).output();
    let script = String::from_utf8(script.unwrap().stdout).unwrap();
    assert_eq!(open_at_the_end(&script), Ok(Vec::new()), "{script}");
    assert!(script.contains("Register-ArgumentCompleter"));
}
