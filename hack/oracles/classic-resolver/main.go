// Resolves namespaces with the dependency resolver of OLM Classic, as the second opinion for olm-solver.
//
// Reads cases, one JSON object a line, and writes an answer for each, in the format of the recorded cases (package olm-solver,
// module `testing`): {"id", "solution": […]} or {"id", "error", "kind", "clauses"}.
//
//	-orders N  resolves each case N times, after the first time with its lists in another order where order means nothing.
//	           Further answers, if they differ, are in the member "others" (of the same format).
//	           It ends with the answer whose key is the member "until" of the case, if there is one.
//	-times     adds the processor time of a resolution in seconds, "cpu": with catalogs read, as in a running controller
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand"
	"os"
	"slices"
	"sort"
	"strings"
	"syscall"

	"github.com/operator-framework/operator-lifecycle-manager/pkg/controller/registry/resolver"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/controller/registry/resolver/solver"
	"github.com/sirupsen/logrus"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

type Answer struct {
	ID       string    `json:"id"`
	Solution *[]Bundle `json:"solution,omitempty"`
	Error    string    `json:"error,omitempty"`
	Kind     string    `json:"kind,omitempty"`
	Clauses  []string  `json:"clauses,omitempty"`
	Others   []Answer  `json:"others,omitempty"`
	CPU      float64   `json:"cpu,omitempty"`
}

type Bundle struct {
	Namespace string `json:"namespace"`
	Catalog   string `json:"catalog"`
	Channel   string `json:"channel"`
	Name      string `json:"name"`
	Package   string `json:"package"`
	Replaces  string `json:"replaces"`
}

func main() {
	orders := flag.Int("orders", 1, "how often each case is resolved")
	times := flag.Bool("times", false, "add the processor time of a resolution")
	flag.Parse()
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			var asked Case
			if err := json.Unmarshal(line, &asked); err != nil {
				log.Fatalf("bad case: %v", err)
			}
			text, err := json.Marshal(answer(&asked, *orders, *times))
			if err != nil {
				log.Fatalf("%s: %v", asked.ID, err)
			}
			out.Write(append(text, '\n'))
			out.Flush()
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			log.Fatal(err)
		}
	}
}

func answer(asked *Case, orders int, times bool) Answer {
	first := resolve(asked, times)
	seen := map[string]bool{first.key(): true}
	dice := rand.New(rand.NewSource(1))
	for range orders - 1 {
		if seen[asked.Until] {
			break
		}
		asked.shuffle(dice)
		other := resolve(asked, false)
		if !seen[other.key()] {
			seen[other.key()] = true
			first.Others = append(first.Others, other)
		}
	}
	return first
}

// what two answers must share
func (a Answer) key() string {
	if a.Solution == nil {
		return a.Kind
	}
	var names []string
	for _, it := range *a.Solution {
		names = append(names, strings.Join([]string{it.Namespace, it.Catalog, it.Channel, it.Name}, "/"))
	}
	slices.Sort(names)
	return "[" + strings.Join(slices.Compact(names), ", ") + "]"
}

// resolves a case; for the time, a second time, with catalogs read
func resolve(asked *Case, timed bool) Answer {
	logger := logrus.New()
	logger.SetOutput(io.Discard)
	world := newWorld(asked)
	server := apiserver{subscriptions: world.subscriptions}
	provider := resolver.SourceProviderFromRegistryClientProvider(world, world.lister.OperatorsV1alpha1().CatalogSourceLister(), logger)
	classic := resolver.NewDefaultResolver(resolver.NewOperatorCacheProvider(world.lister, server, provider, logger), logger)
	found, err := classic.Resolve(asked.namespaces(), world.subscriptions)
	var took float64
	if timed {
		before := processorTime()
		found, err = classic.Resolve(asked.namespaces(), world.subscriptions)
		took = processorTime() - before
	}
	if err != nil {
		return refusal(asked.ID, err, took)
	}
	bundles := []Bundle{}
	for _, entry := range found {
		bundles = append(bundles, Bundle{
			entry.SourceInfo.Catalog.Namespace, entry.SourceInfo.Catalog.Name, entry.Channel(), entry.Name, entry.Package(), entry.Replaces,
		})
	}
	sort.Slice(bundles, func(i, j int) bool { return fmt.Sprint(bundles[i]) < fmt.Sprint(bundles[j]) })
	return Answer{ID: asked.ID, Solution: &bundles, CPU: took}
}

// what the texts of the reference begin with when the order of a channel cannot be told, or a name is not unique
var ambiguous = []string{
	"no channel heads ",
	"a cycle exists in the chain of replacement ",
	"a unique replacement chain within a channel is required ",
	"expected exactly one operator, got ",
}

func refusal(id string, err error, took float64) Answer {
	refused := Answer{ID: id, Error: err.Error(), Kind: "other", CPU: took}
	var conflict solver.NotSatisfiable
	if errors.As(err, &conflict) {
		refused.Kind = "unsatisfiable"
		for _, clause := range conflict {
			refused.Clauses = append(refused.Clauses, clause.String())
		}
		return refused
	}
	all := []error{err}
	if several, ok := err.(utilerrors.Aggregate); ok {
		all = utilerrors.Flatten(several).Errors()
	}
	isAmbiguous := func(err error) bool {
		for _, beginning := range ambiguous {
			if strings.HasPrefix(err.Error(), beginning) {
				return true
			}
		}
		return false
	}
	for _, err := range all {
		if !isAmbiguous(err) {
			return refused
		}
	}
	refused.Kind = "ambiguous"
	return refused
}

// of this process, in seconds
func processorTime() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	seconds := func(time syscall.Timeval) float64 { return float64(time.Sec) + float64(time.Usec)/1e6 }
	return seconds(usage.Utime) + seconds(usage.Stime)
}
