package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// variables are those of Grafana and of the dashboard, with a value each.
var variables = strings.NewReplacer(
	"$__rate_interval", "5m", "$__interval", "1m", "$__range", "1h", "$namespace", "olmv1-system", "$job", ".+",
)

// checkDashboard parses every query, and counts them.
func checkDashboard(path string) (count int, problems []error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, []error{err}
	}
	var dashboard any
	if err := json.Unmarshal(text, &dashboard); err != nil {
		return 0, []error{fmt.Errorf("%s: %w", path, err)}
	}
	for _, query := range queries(dashboard) {
		count++
		if _, err := parseExpr(variables.Replace(query)); err != nil {
			problems = append(problems, fmt.Errorf("%s: %s: %w", path, query, err))
		}
	}
	if count == 0 {
		problems = append(problems, fmt.Errorf("%s: no query", path))
	}
	return count, problems
}

// queries are the members `expr`, at any depth.
func queries(value any) (found []string) {
	switch value := value.(type) {
	case map[string]any:
		for key, member := range value {
			if query, ok := member.(string); ok && key == "expr" {
				found = append(found, query)
			} else {
				found = append(found, queries(member)...)
			}
		}
	case []any:
		for _, item := range value {
			found = append(found, queries(item)...)
		}
	}
	return found
}
