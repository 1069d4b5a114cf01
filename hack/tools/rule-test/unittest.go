package main

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"go.yaml.in/yaml/v3"
)

type testFile struct {
	Interval model.Duration `yaml:"evaluation_interval"`
	Tests    []unitTest     `yaml:"tests"`
}

type unitTest struct {
	Name     string         `yaml:"name"`
	Interval model.Duration `yaml:"interval"`
	Series   []inputSeries  `yaml:"input_series"`
	Cases    []alertCase    `yaml:"alert_rule_test"`
}

type inputSeries struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

type alertCase struct {
	At       model.Duration  `yaml:"eval_time"`
	Alert    string          `yaml:"alertname"`
	Expected []expectedAlert `yaml:"exp_alerts"`
}

type expectedAlert struct {
	Labels      map[string]string `yaml:"exp_labels"`
	Annotations map[string]string `yaml:"exp_annotations"`
}

func readTests(path string) (*testFile, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	decoder := yaml.NewDecoder(file)
	decoder.KnownFields(true)
	tests := testFile{Interval: model.Duration(time.Minute)}
	if err := decoder.Decode(&tests); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &tests, nil
}

// run evaluates the alerts over the series of the test, and compares those that fire with what its cases expect.
func (test *unitTest) run(alerts []rulefmt.Rule, interval time.Duration) (problems []error) {
	series, err := readSeries(test.Series, time.Duration(test.Interval))
	if err != nil {
		return []error{err}
	}
	evaluations := map[string]*evaluation{}
	end := time.Duration(0)
	for _, expectation := range test.Cases {
		at := slices.IndexFunc(alerts, func(rule rulefmt.Rule) bool { return rule.Alert == expectation.Alert })
		if at < 0 {
			return []error{fmt.Errorf("there is no alert %q", expectation.Alert)}
		}
		if time.Duration(expectation.At)%interval != 0 {
			return []error{fmt.Errorf("%s: %s is not a multiple of %s", expectation.Alert, expectation.At, interval)}
		}
		evaluations[expectation.Alert] = &evaluation{rule: alerts[at]}
		end = max(end, time.Duration(expectation.At))
	}
	for elapsed := time.Duration(0); elapsed <= end; elapsed += interval {
		for name, evaluation := range evaluations {
			if err := evaluation.at(time.Unix(0, 0).UTC().Add(elapsed), series); err != nil {
				return append(problems, fmt.Errorf("%s at %s: %w", name, model.Duration(elapsed), err))
			}
		}
		for _, expectation := range test.Cases {
			if time.Duration(expectation.At) == elapsed {
				problems = append(problems, expectation.compare(evaluations[expectation.Alert].firing)...)
			}
		}
	}
	return problems
}

// compare reports firing alerts that are not expected, and expected ones that do not fire.
func (expectation *alertCase) compare(firing map[string]map[string]string) (problems []error) {
	report := func(format string, arguments ...any) {
		text := fmt.Sprintf(format, arguments...)
		problems = append(problems, fmt.Errorf("%s at %s: %s", expectation.Alert, expectation.At, text))
	}
	expected := map[string]map[string]string{}
	for _, alert := range expectation.Expected {
		expected[labels.FromMap(alert.Labels).String()] = alert.Annotations
	}
	for key, annotations := range firing {
		if _, found := expected[key]; !found {
			report("fires, but is not expected: %s", key)
		}
		for name, text := range expected[key] {
			if annotations[name] != text {
				report("annotation %s is %q instead of %q", name, annotations[name], text)
			}
		}
	}
	for key := range expected {
		if _, found := firing[key]; !found {
			report("does not fire: %s", key)
		}
	}
	return problems
}

// uncovered reports alerts that no test lets fire, and those that no test expects not to fire.
func uncovered(alerts []rulefmt.Rule, tests *testFile) (problems []error) {
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, test := range tests.Tests {
		for _, expectation := range test.Cases {
			fires[expectation.Alert] = fires[expectation.Alert] || len(expectation.Expected) > 0
			rests[expectation.Alert] = rests[expectation.Alert] || len(expectation.Expected) == 0
		}
	}
	for _, rule := range alerts {
		if !fires[rule.Alert] {
			problems = append(problems, fmt.Errorf("%s fires in no test", rule.Alert))
		}
		if !rests[rule.Alert] {
			problems = append(problems, fmt.Errorf("no test expects that %s does not fire", rule.Alert))
		}
	}
	return problems
}
