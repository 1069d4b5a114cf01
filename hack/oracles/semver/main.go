// Prints what the Go libraries say about versions and ranges, as the second opinion for the Rust parsers.
//
// Reads lines of JSON: ["masterminds"|"olm"|"blang", RANGE, VERSION]. Writes one JSON string a line: "true", "false",
// "range-error: TEXT", "version-error: TEXT", or "panic: TEXT" where a library crashes.
//
// masterminds: both sides by Masterminds semver (loose versions). blang: both sides by blang semver. olm: the range by
// Masterminds, the version read by blang and handed over part by part, as operator-controller does.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	masterminds "github.com/Masterminds/semver/v3"
	blang "github.com/blang/semver/v4"
)

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			var asked [3]string
			if err := json.Unmarshal(line, &asked); err != nil {
				fmt.Fprintln(os.Stderr, "bad request:", err)
				os.Exit(2)
			}
			said, _ := json.Marshal(answer(asked[0], asked[1], asked[2]))
			out.Write(append(said, '\n'))
		}
		if err != nil {
			return
		}
	}
}

func answer(dialect, rangeText, versionText string) (said string) {
	defer func() {
		if crash := recover(); crash != nil {
			said = fmt.Sprintf("panic: %v", crash)
		}
	}()
	if dialect == "blang" {
		in, err := blang.ParseRange(rangeText)
		if err != nil {
			return "range-error: " + err.Error()
		}
		version, err := blang.Parse(versionText)
		if err != nil {
			return "version-error: " + err.Error()
		}
		return fmt.Sprint(in(version))
	}
	constraint, err := masterminds.NewConstraint(rangeText)
	if err != nil {
		return "range-error: " + err.Error()
	}
	if dialect == "masterminds" {
		version, err := masterminds.NewVersion(versionText)
		if err != nil {
			return "version-error: " + err.Error()
		}
		return fmt.Sprint(constraint.Check(version))
	}
	version, err := blang.Parse(versionText)
	if err != nil {
		return "version-error: " + err.Error()
	}
	var pre []string
	for _, identifier := range version.Pre {
		pre = append(pre, identifier.String())
	}
	return fmt.Sprint(constraint.Check(masterminds.New(
		version.Major, version.Minor, version.Patch, strings.Join(pre, "."), strings.Join(version.Build, "."))))
}
