#!/usr/bin/env bash
# Builds the programs that tests, the demo and `make cluster-up` run, and prints the folder that holds them (last line of
# standard output; progress goes to standard error).
#
# Each folder beside this file with a go.mod is one Go module: the programs are its `tool` directives, and the module's own
# main package (named like the folder) if it has one; so are the folders of hack/oracles/. A `build.conf` in the folder may say
# `tags=…`, `ldflags=…`, and `on-demand=yes`: built only where OLM_TOOLS_ONLY names it. Adding a tool is adding a folder.
# Lines `files=MODULE PATH` or `files=MODULE@VERSION PATH` put a file of a Go module beside the programs, under its own name;
# `suffix=…` ends the names of the programs. `variant=…` builds each program once more, with this end of its name, and with the file changed
# that `variant-edit=MODULE PATH EXPRESSION` names (an expression of sed).
#
# Where: ${XDG_CACHE_HOME:-$HOME/.cache}/olm-rs/tools/<hash of all module files>/bin. A module is built once for its own
# hash into a temporary folder that is renamed when complete, so that an interrupted or failed build is never taken for a
# finished one, and changing one module does not rebuild the others.
#
# KUBEBUILDER_ASSETS, when it holds all of the control plane, is used instead of building the `kubernetes` module.
# OLM_TOOLS_ONLY="kubernetes kwok registry" limits the work to these modules.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/olm-rs/tools
control_plane="etcd kube-apiserver kube-controller-manager kube-scheduler kubectl"

say() { printf '%s\n' "$*" >&2; }
fail() { say "tools: $*"; exit 1; }
# macOS before 15 has no sha256sum
sha256() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }

command -v go >/dev/null || fail "the Go tool chain is needed to build them; install Go and put \`go\` on PATH"
export GOWORK=off CGO_ENABLED=0

conf() { if [ -f "$1/build.conf" ]; then sed -n "s/^$2=//p" "$1/build.conf"; fi; }

modules=()
for dir in "$here"/*/ "$root"/hack/oracles/*/; do
    dir=${dir%/}
    [ -f "$dir/go.mod" ] || continue
    name=$(basename "$dir")
    if [ -z "${OLM_TOOLS_ONLY:-}" ]; then
        [ "$(conf "$dir" on-demand)" = yes ] || modules+=("$dir")
    else
        case " $OLM_TOOLS_ONLY " in *" $name "*) modules+=("$dir") ;; esac
    fi
done

assets=
if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
    assets=$KUBEBUILDER_ASSETS
    for program in $control_plane; do
        if [ ! -x "$assets/$program" ]; then
            say "tools: KUBEBUILDER_ASSETS has no $program; building the control plane instead"
            assets=
            break
        fi
    done
fi

# the hash of what decides a module's programs: its files (not documentation), the flags below, the Go version and platform
hash_of() {
    local dir=$1
    {
        go env GOVERSION GOOS GOARCH
        echo "-trimpath -s -w, no cgo"
        cd "$dir"
        find . -type f ! -name '*.md' ! -name '*_test.go' -print | LC_ALL=C sort | while read -r file; do
            printf '%s\n' "$file"
            cat "$file"
        done
    } | sha256 | cut -c1-16
}

# the folder of a Go module; one without a version is that of go.mod
folder_of() {
    case $2 in *@*) cd / ;; *) cd "$1" ;; esac
    go mod download -json "$2" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",\{0,1\}$/\1/p'
}

# copies what `files=…` names
copy_files() {
    local dir=$1 to=$2 module path root
    while read -r module path; do
        root=$(folder_of "$dir" "$module")
        install -m 644 "$root/$path" "$to/" || fail "$dir/build.conf: $module has no $path"
    done < <(conf "$dir" files)
}

# a go.mod that has a copy of a module instead of it, with the change that `variant-edit=…` makes (go refuses to replace a file of its
# module cache by -overlay)
variant_of() {
    local dir=$1 to=$2 module path expression
    read -r module path expression < <(conf "$dir" variant-edit)
    rm -rf "$to"
    mkdir "$to"
    cp -R "$(folder_of "$dir" "$module")" "$to/module"
    chmod -R u+w "$to/module"
    sed "$expression" "$to/module/$path" >"$to/edited"
    if cmp -s "$to/edited" "$to/module/$path"; then fail "$dir/build.conf: variant-edit changes nothing in $path of $module"; fi
    mv "$to/edited" "$to/module/$path"
    cp "$dir/go.mod" "$dir/go.sum" "$to/"
    go mod edit -replace="$module=$to/module" "$to/go.mod"
}

# the import paths that a module builds, one a line
programs_of() {
    (
        cd "$1"
        awk '/^tool \(/ { block = 1; next } block && /^\)/ { block = 0 } block { print $1 } /^tool [^(]/ { print $2 }' go.mod
        # (`go list` reads a package only where there is Go source)
        if ls ./*.go >/dev/null 2>&1; then
            [ "$(go list -f '{{.Name}}' . )" != main ] || echo .
        fi
    )
}

# k8s.io/…/cmd/kubectl -> kubectl; …/server/v3 -> etcd; . -> the folder's name (hack/oracles/x -> oracle-x)
program_name() {
    case $2 in
        .) case $1 in */oracles/*) printf 'oracle-' ;; esac; basename "$1" ;;
        go.etcd.io/etcd/server/v3) echo etcd ;;
        *) basename "$2" ;;
    esac
}

mkdir -p "$cache/modules"
exec 9>"$cache/lock"
if command -v flock >/dev/null && ! flock -n 9; then
    say "tools: another build is running; waiting for it"
    flock 9
fi

# what is to do: "<module folder> <import path> <end of the variant's name, or -> <staging folder>"
plan=()
folders=()
hashes=
for dir in "${modules[@]}"; do
    name=$(basename "$dir")
    if [ "$name" = kubernetes ] && [ -n "$assets" ]; then
        hashes+="assets $assets"$'\n'
        continue
    fi
    hash=$(hash_of "$dir")
    hashes+="$name $hash"$'\n'
    done_dir=$cache/modules/$name-$hash
    folders+=("$done_dir")
    [ -d "$done_dir" ] && continue
    for variant in - $(conf "$dir" variant); do
        while read -r path; do plan+=("$dir $path $variant $done_dir"); done < <(programs_of "$dir")
    done
done

total=${#plan[@]}
number=0
for item in ${plan[@]+"${plan[@]}"}; do
    read -r dir path variant done_dir <<<"$item"
    number=$((number + 1))
    staging=$done_dir.partial
    program=$(program_name "$dir" "$path")$(conf "$dir" suffix)
    mkdir -p "$staging"
    of_variant=()
    if [ "$variant" != - ]; then
        variant_of "$dir" "$staging/.variant"
        program=$program$variant of_variant=(-modfile "$staging/.variant/go.mod")
    fi
    started=$SECONDS
    log=$staging/.$program.log
    (
        cd "$dir"
        exec go build ${of_variant[@]+"${of_variant[@]}"} -trimpath -tags "$(conf "$dir" tags)" -ldflags "-s -w $(conf "$dir" ldflags)" \
            -o "$staging/$program" "$path" >"$log" 2>&1 9>&-
    ) &
    pid=$!
    # an interrupted build must not go on in the background
    trap 'kill "$pid" 2>/dev/null; exit 130' INT TERM
    if [ -t 2 ]; then
        while kill -0 "$pid" 2>/dev/null; do
            printf '\r[%d/%d] building %s … %ds' "$number" "$total" "$program" $((SECONDS - started)) >&2
            sleep 1
        done
    else
        printf '[%d/%d] building %s …' "$number" "$total" "$program" >&2
    fi
    status=0
    wait "$pid" || status=$?
    trap - INT TERM
    if [ "$status" -ne 0 ]; then
        say " failed after $((SECONDS - started))s"
        tail -40 "$log" >&2
        fail "building $program failed (the output above is also in $log)"
    fi
    [ -t 2 ] && printf '\r[%d/%d] building %s …' "$number" "$total" "$program" >&2
    say " $((SECONDS - started))s"
    rm -f "$log"
    # the last program of a module completes it
    case ${plan[$number]:-} in
        *" $done_dir") ;;
        *) (copy_files "$dir" "$staging"); rm -rf "$staging/.variant"; mv "$staging" "$done_dir" ;;
    esac
done

bin=$cache/$(printf '%s' "$hashes" | sha256 | cut -c1-16)/bin
if [ ! -d "$bin" ]; then
    staging=$(dirname "$bin").partial
    rm -rf "$staging"
    mkdir -p "$staging/bin"
    for folder in ${folders[@]+"${folders[@]}"}; do
        ln -f "$folder"/* "$staging/bin/" 2>/dev/null || cp -a "$folder"/* "$staging/bin/"
    done
    if [ -n "$assets" ]; then
        for program in $control_plane; do ln -s "$assets/$program" "$staging/bin/$program"; done
    fi
    mv "$staging" "$(dirname "$bin")"
fi
printf '%s\n' "$bin"
