//! `completion`: scripts for shells, and the script with which kubectl completes its plugin. All ask the hidden verb `__complete`.

use clap::{Args, ValueEnum};

use crate::CommandOutput;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  source <(kubectl-olm completion bash)\n  \
                  kubectl-olm completion plugin > ~/.local/bin/kubectl_complete-olm && chmod +x ~/.local/bin/kubectl_complete-olm\n\n\
                  Exit codes: 0 printed, 2 bad input.")]
pub(crate) struct Arguments {
    /// Which shell; plugin prints kubectl_complete-olm, which kubectl runs for `kubectl olm`
    #[arg(value_enum)]
    shell: Dialect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Dialect {
    Bash,
    Zsh,
    Fish,
    #[value(name = "powershell")]
    Power,
    Plugin,
}

const BASH: &str = r#"# bash completion for kubectl-olm
_kubectl_olm() {
    local line directive=4
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :*) directive=${line#:} ;;
            *) COMPREPLY+=("${line%%$'\t'*}") ;;
        esac
    done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ $directive = 0 && ${#COMPREPLY[@]} = 0 ]]; then
        compopt -o default 2>/dev/null
    fi
}
complete -o nosort -F _kubectl_olm kubectl-olm olm
"#;

const ZSH: &str = r#"#compdef kubectl-olm olm
_kubectl_olm() {
    local line name about directive=4
    local -a candidates
    while IFS= read -r line; do
        case $line in
            :*) directive=${line#:} ;;
            *)
                name=${line%%$'\t'*} about=
                [[ $line = *$'\t'* ]] && about=${line#*$'\t'}
                candidates+=("${name//:/\\:}${about:+:$about}")
                ;;
        esac
    done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#candidates} )); then
        _describe 'kubectl olm' candidates
    elif [[ $directive = 0 ]]; then
        _files
    fi
}
if [[ ${funcstack[1]} = _kubectl_olm ]]; then
    _kubectl_olm "$@"
else
    compdef _kubectl_olm kubectl-olm olm
fi
"#;

const FISH: &str = r#"# fish completion for kubectl-olm
function __kubectl_olm_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines (command $words[1] __complete $words[2..-1] "$current" 2>/dev/null)
    if test (count $lines) -eq 1; and test "$lines[1]" = ":0"
        __fish_complete_path "$current"
        return
    end
    string match -v -r '^:[0-9]+$' -- $lines
end
for program in kubectl-olm olm
    complete -c $program -f -a '(__kubectl_olm_complete)'
end
"#;

const POWERSHELL: &str = r#"# PowerShell completion for kubectl-olm
Register-ArgumentCompleter -Native -CommandName 'kubectl-olm', 'olm' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $elements = @($commandAst.CommandElements | Select-Object -Skip 1 | Where-Object { $_.Extent.EndOffset -lt $cursorPosition })
    $words = @($elements | ForEach-Object { "$_" })
    $program = "$($commandAst.CommandElements[0])"
    & $program __complete @words "$wordToComplete" 2>$null | Where-Object { $_ -notmatch '^:\d+$' } | ForEach-Object {
        $name, $about = $_ -split "`t", 2
        if (-not $about) { $about = $name }
        [System.Management.Automation.CompletionResult]::new($name, $name, 'ParameterValue', $about)
    }
}
"#;

const PLUGIN: &str = "#!/bin/sh
# kubectl runs this for `kubectl olm <TAB>`: an executable file kubectl_complete-olm in PATH
exec kubectl-olm __complete \"$@\"
";

pub(crate) fn run(arguments: &Arguments) -> CommandOutput {
    let text = match arguments.shell {
        Dialect::Bash => BASH,
        Dialect::Zsh => ZSH,
        Dialect::Fish => FISH,
        Dialect::Power => POWERSHELL,
        Dialect::Plugin => PLUGIN,
    };
    CommandOutput { text: text.to_owned(), yes: true }
}
