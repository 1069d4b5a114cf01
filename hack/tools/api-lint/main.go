// api-lint runs kube-api-linter over CustomResourceDefinitions.
//
// The linter reads Go types. These APIs have none, so this program makes some from the CRDs (types.go), in memory, with the markers
// that controller-gen would read. Rules about Go source alone are switched off: they would judge this program.
//
//	api-lint ACCEPTED CRD...
//
// ACCEPTED is a list of findings that stay, one a line: linter, field, reason, separated by tabs; a field may end in `*`. Exits with 1
// for a finding that is not in the list, and for a line of the list that no finding needs.
package main

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"

	"sigs.k8s.io/kube-api-linter/pkg/analysis/registry"
	"sigs.k8s.io/kube-api-linter/pkg/config"
	_ "sigs.k8s.io/kube-api-linter/pkg/registration"
)

// enabled are the rules about an API. Not among them: commentstart, dependenttags, forbiddenmarkers, jsontags, namingconventions,
// nonpointerstructs, optionalfields, preferredmarkers, requiredfields: about comments, tags and pointers of Go, or without rules of their own.
var enabled = []string{
	"arrayofstruct", "conditions", "defaultorrequired", "defaults", "duplicatemarkers", "integers", "maxlength", "minlength", "nobools",
	"nodurations", "nofloats", "nomaps", "nonullable", "nophase", "noreferences", "notimestamp", "optionalorrequired", "ssatags",
	"statusoptional", "statussubresource", "uniquemarkers",
}

// settings are those for CRDs; the others are for APIs of Kubernetes itself.
var settings = config.LintersConfig{
	"conditions":     map[string]any{"useProtobuf": "Ignore", "usePatchStrategy": "Ignore"},
	"statusoptional": map[string]any{"preferredOptionalMarker": "optional"},
}

func main() {
	if len(os.Args) < 3 {
		fail("usage: api-lint ACCEPTED CRD...")
	}
	accepted, err := readAccepted(os.Args[1])
	check(err)
	var files [][]byte
	for _, name := range os.Args[2:] {
		file, err := os.ReadFile(name)
		check(err)
		files = append(files, file)
	}
	source, paths, err := generate(files)
	check(err)
	findings, err := lint(source, paths)
	if err != nil {
		fmt.Fprint(os.Stderr, source)
	}
	check(err)
	failed := 0
	for _, finding := range findings {
		if !accept(accepted, finding) {
			failed++
			fmt.Println(finding)
		}
	}
	for _, line := range accepted {
		if !line.used {
			failed++
			fmt.Printf("%s: no finding needs the line %q %q any more\n", os.Args[1], line.linter, line.field)
		}
	}
	fmt.Printf("%d rules, %d findings, %d of them accepted\n", len(enabled), len(findings), len(findings)-min(failed, len(findings)))
	if failed > 0 {
		os.Exit(1)
	}
}

type finding struct{ linter, field, message string }

func (f finding) String() string { return f.linter + "\t" + f.field + "\t" + f.message }

// lint type-checks the source and runs the rules over it.
func lint(source string, paths map[int]string) ([]finding, error) {
	fset := token.NewFileSet()
	parse := func(name, text string) (*ast.File, error) {
		return parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	}
	meta, err := parse("metav1.go", metav1)
	if err != nil {
		return nil, err
	}
	const metaPath = "k8s.io/apimachinery/pkg/apis/meta/v1"
	metaTypes, err := (&types.Config{Importer: importer.Default()}).Check(metaPath, fset, []*ast.File{meta}, nil)
	if err != nil {
		return nil, err
	}
	file, err := parse("types.go", source)
	if err != nil {
		return nil, err
	}
	info := &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Implicits: map[ast.Node]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
		Scopes: map[ast.Node]*types.Scope{}, Instances: map[*ast.Ident]types.Instance{},
	}
	checked, err := (&types.Config{Importer: imports{metaPath: metaTypes}}).Check("olm/v1", fset, []*ast.File{file}, info)
	if err != nil {
		return nil, err
	}
	analyzers, err := registry.DefaultRegistry().InitializeLinters(
		config.Linters{Disable: []string{"*"}, Enable: enabled}, settings)
	if err != nil {
		return nil, err
	}
	graph, err := checker.Analyze(analyzers, []*packages.Package{{
		ID: "olm/v1", PkgPath: "olm/v1", Name: "v1", Fset: fset, Syntax: []*ast.File{file}, Types: checked, TypesInfo: info,
		TypesSizes: types.SizesFor("gc", "amd64"), Module: &packages.Module{Path: "olm", GoVersion: "1.26"},
	}}, nil)
	if err != nil {
		return nil, err
	}
	var findings []finding
	for _, action := range graph.Roots {
		if action.Err != nil {
			return nil, fmt.Errorf("%s: %w", action.Analyzer.Name, action.Err)
		}
		for _, diagnostic := range action.Diagnostics {
			field := paths[fset.Position(diagnostic.Pos).Line]
			findings = append(findings, finding{action.Analyzer.Name, field, diagnostic.Message})
		}
	}
	slices.SortFunc(findings, func(a, b finding) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(findings), nil
}

// imports are the packages that the types import.
type imports map[string]*types.Package

func (i imports) Import(name string) (*types.Package, error) {
	if found := i[name]; found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("no package %s", name)
}

type line struct {
	linter, field string
	used          bool
}

func readAccepted(name string) ([]*line, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var lines []*line
	for number, row := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if row == "" || strings.HasPrefix(row, "#") {
			continue
		}
		cells := strings.Split(row, "\t")
		if len(cells) != 3 || slices.Contains(cells, "") {
			return nil, fmt.Errorf("%s:%d: want linter, field and reason, separated by tabs", name, number+1)
		}
		lines = append(lines, &line{linter: cells[0], field: cells[1]})
	}
	return lines, nil
}

// accept marks the lines that name the finding.
func accept(lines []*line, found finding) bool {
	accepted := false
	for _, line := range lines {
		matches := line.field == found.field
		if begins, ok := strings.CutSuffix(line.field, "*"); ok {
			matches = strings.HasPrefix(found.field, begins)
		}
		if line.linter == found.linter && matches {
			line.used, accepted = true, true
		}
	}
	return accepted
}

func check(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, path.Base(os.Args[0])+":", text)
	os.Exit(2)
}
