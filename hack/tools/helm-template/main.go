// helm-template renders a chart as `helm template` does, with Helm's own engine and values rules, and prints YAML.
//
//	helm-template <chart folder> <release> <namespace> [values file …]
//
// Only what rendering needs is linked: no cluster, no registry, no plugins, no dependencies of charts.
package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"sort"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "helm-template:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("usage: helm-template <chart folder> <release> <namespace> [values file …]")
	}
	// (the loader tells of symbolic links)
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	loaded, err := loader.Load(args[0])
	if err != nil {
		return err
	}
	if len(loaded.Metadata.Dependencies) > 0 {
		return fmt.Errorf("%s has dependencies, which are not read here", loaded.Name())
	}
	given := map[string]any{}
	for _, file := range args[3:] {
		opened, err := os.Open(file)
		if err != nil {
			return err
		}
		values, err := loader.LoadValues(opened)
		opened.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		given = loader.MergeMaps(given, values)
	}
	release := common.ReleaseOptions{Name: args[1], Namespace: args[2], Revision: 1, IsInstall: true}
	// this checks the values against the chart's schema
	values, err := util.ToRenderValues(loaded, given, release, common.DefaultCapabilities)
	if err != nil {
		return err
	}
	return render(loaded, values)
}

func render(loaded *chart.Chart, values common.Values) error {
	rendered, err := engine.Engine{Strict: true}.Render(loaded, values)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(rendered))
	for name := range rendered {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		text := rendered[name]
		if path.Ext(name) == ".txt" || strings.HasPrefix(path.Base(name), "_") || strings.TrimSpace(text) == "" {
			continue
		}
		fmt.Printf("---\n# Source: %s\n%s\n", name, strings.TrimSpace(text))
	}
	return nil
}
