// rule-test checks alerts as `promtool check rules` and `promtool test rules` do, with the same packages, and the queries of dashboards.
//
//	rule-test RULES TESTS [DASHBOARD…]
//
// RULES is a PrometheusRule of the Prometheus Operator. TESTS has the format of promtool's unit tests, without `rule_files`; of
// `exp_annotations` those that are given are compared. Every alert needs a test in which it fires and one in which it does not.
// DASHBOARD is the JSON of a Grafana dashboard: each of its queries must be PromQL.
package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: rule-test RULES TESTS [DASHBOARD…]")
		os.Exit(2)
	}
	problems, summary := run(os.Args[1], os.Args[2], os.Args[3:])
	for _, problem := range problems {
		fmt.Fprintln(os.Stderr, problem)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
	fmt.Println(summary)
}

func run(rulesPath, testsPath string, dashboards []string) (problems []error, summary string) {
	alerts, errs := readRules(rulesPath)
	if len(errs) > 0 {
		return errs, ""
	}
	tests, err := readTests(testsPath)
	if err != nil {
		return []error{err}, ""
	}
	for _, test := range tests.Tests {
		for _, err := range test.run(alerts, time.Duration(tests.Interval)) {
			problems = append(problems, fmt.Errorf("%s: test %q: %w", testsPath, test.Name, err))
		}
	}
	for _, err := range uncovered(alerts, tests) {
		problems = append(problems, fmt.Errorf("%s: %w", testsPath, err))
	}
	queries := 0
	for _, path := range dashboards {
		count, errs := checkDashboard(path)
		problems = append(problems, errs...)
		queries += count
	}
	return problems, fmt.Sprintf("%d alerts in %d tests, %d queries of dashboards", len(alerts), len(tests.Tests), queries)
}
