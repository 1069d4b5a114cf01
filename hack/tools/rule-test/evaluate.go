package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/util/annotations"
)

// Prometheus' own packages read the rules and series, evaluate the expressions and expand the templates. Its packages `rules` and
// `promqltest` are not used: they come with the storage on disk and the clients of cloud providers, and build for minutes. What they would
// do is the rest of this file: samples in memory, and the time for which an expression holds.

var engine = promql.NewEngine(promql.EngineOpts{
	MaxSamples: 1_000_000, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true, Parser: promqlParser,
})

// readSeries reads series in the notation of promtool; samples are `interval` apart, from 0.
func readSeries(descriptions []inputSeries, interval time.Duration) (storage.Queryable, error) {
	var all []promql.Series
	for _, description := range descriptions {
		metric, values, err := promqlParser.ParseSeriesDesc(description.Series + " " + description.Values)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", description.Series, err)
		}
		series := promql.Series{Metric: metric}
		for at, value := range values {
			if !value.Omitted {
				series.Floats = append(series.Floats, promql.FPoint{T: int64(at) * interval.Milliseconds(), F: value.Value})
			}
		}
		all = append(all, series)
	}
	find := func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		var found []storage.Series
		for _, series := range all {
			if matches(series.Metric, matchers) {
				found = append(found, promql.NewStorageSeries(series))
			}
		}
		return &seriesSet{series: found, at: -1}
	}
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: find}}, nil
}

type seriesSet struct {
	series []storage.Series
	at     int
}

func (set *seriesSet) Next() bool                        { set.at++; return set.at < len(set.series) }
func (set *seriesSet) At() storage.Series                { return set.series[set.at] }
func (set *seriesSet) Err() error                        { return nil }
func (set *seriesSet) Warnings() annotations.Annotations { return nil }

func matches(metric labels.Labels, matchers []*labels.Matcher) bool {
	for _, matcher := range matchers {
		if !matcher.Matches(metric.Get(matcher.Name)) {
			return false
		}
	}
	return true
}

// evaluation is an alert that is evaluated again and again.
type evaluation struct {
	rule rulefmt.Rule
	// since when each result has been there, by its labels
	active map[string]time.Time
	// the annotations of the alerts that fire, by labels
	firing map[string]map[string]string
}

func (e *evaluation) at(now time.Time, series storage.Queryable) error {
	query, err := engine.NewInstantQuery(context.Background(), series, nil, e.rule.Expr, now)
	if err != nil {
		return err
	}
	defer query.Close()
	results, err := query.Exec(context.Background()).Vector()
	if err != nil {
		return err
	}
	before := e.active
	e.active, e.firing = map[string]time.Time{}, map[string]map[string]string{}
	for _, result := range results {
		key, texts, err := e.expand(result, now)
		if err != nil {
			return err
		}
		if _, found := e.active[key]; found {
			return fmt.Errorf("two results with the labels %s", key)
		}
		since, found := before[key]
		if !found {
			since = now
		}
		e.active[key] = since
		if now.Sub(since) >= time.Duration(e.rule.For) {
			e.firing[key] = texts
		}
	}
	return nil
}

// expand gives the labels and annotations of an alert. A label that the result does not have is an error.
func (e *evaluation) expand(result promql.Sample, now time.Time) (key string, texts map[string]string, err error) {
	data := template.AlertTemplateData(result.Metric.Map(), nil, "", result)
	expand := func(text string) (string, error) {
		const variables = "{{$labels := .Labels}}{{$value := .Value}}"
		expander := template.NewTemplateExpander(context.Background(), variables+text, e.rule.Alert, data,
			model.Time(timestamp.FromTime(now)), nil, &url.URL{}, []string{"missingkey=error"})
		return expander.Expand()
	}
	all := labels.NewBuilder(result.Metric).Del(labels.MetricName)
	for name, text := range e.rule.Labels {
		value, err := expand(text)
		if err != nil {
			return "", nil, fmt.Errorf("label %s: %w", name, err)
		}
		all.Set(name, value)
	}
	texts = map[string]string{}
	for name, text := range e.rule.Annotations {
		if texts[name], err = expand(text); err != nil {
			return "", nil, fmt.Errorf("annotation %s: %w", name, err)
		}
	}
	return all.Labels().String(), texts, nil
}

func parseExpr(query string) (parser.Expr, error) { return promqlParser.ParseExpr(query) }
