package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// readRules checks the rules of a PrometheusRule as Prometheus does when it reads them: fields, durations, names, expressions and templates.
func readRules(path string) ([]rulefmt.Rule, []error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, []error{err}
	}
	var resource struct {
		Spec yaml.Node `yaml:"spec"`
	}
	if err := yaml.Unmarshal(text, &resource); err != nil {
		return nil, []error{fmt.Errorf("%s: %w", path, err)}
	}
	spec, err := yaml.Marshal(&resource.Spec)
	if err != nil {
		return nil, []error{fmt.Errorf("%s: %w", path, err)}
	}
	groups, errs := rulefmt.Parse(spec, false, model.UTF8Validation, promqlParser, silent)
	for at, err := range errs {
		errs[at] = fmt.Errorf("%s: %w", path, err)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	var alerts []rulefmt.Rule
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			if rule.Alert == "" {
				return nil, []error{fmt.Errorf("%s: %s: only alerts have tests here", path, rule.Record)}
			}
			alerts = append(alerts, rule)
		}
	}
	if len(alerts) == 0 {
		return nil, []error{fmt.Errorf("%s: no alerts", path)}
	}
	return alerts, nil
}

var silent = slog.New(slog.DiscardHandler)

var promqlParser = parser.NewParser(parser.Options{})
