package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"math/rand"

	"github.com/blang/semver/v4"
	libversion "github.com/operator-framework/api/pkg/lib/version"
	operatorsv1 "github.com/operator-framework/api/pkg/operators/v1"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/api/client/clientset/versioned"
	typed "github.com/operator-framework/operator-lifecycle-manager/pkg/api/client/clientset/versioned/typed/operators/v1alpha1"
	listersv1 "github.com/operator-framework/operator-lifecycle-manager/pkg/api/client/listers/operators/v1"
	listers "github.com/operator-framework/operator-lifecycle-manager/pkg/api/client/listers/operators/v1alpha1"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/controller/registry"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/controller/registry/resolver/projection"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/lib/operatorlister"
	"github.com/operator-framework/operator-registry/pkg/api"
	"github.com/operator-framework/operator-registry/pkg/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// Case is a namespace to resolve.
type Case struct {
	ID              string         `json:"id"`
	Namespace       string         `json:"namespace"`
	GlobalNamespace string         `json:"globalNamespace"`
	ExcludeGlobal   bool           `json:"excludeGlobal"`
	FailForward     bool           `json:"failForward"`
	Catalogs        []Catalog      `json:"catalogs"`
	Subscriptions   []Subscription `json:"subscriptions"`
	Installed       []Installed    `json:"installed"`
	// the key of the answer after which no further order is tried
	Until string `json:"until"`
}

type Catalog struct {
	Name      string    `json:"name"`
	Namespace string    `json:"namespace"`
	Priority  int       `json:"priority"`
	Unhealthy bool      `json:"unhealthy"`
	Packages  []Package `json:"packages"`
}

type Package struct {
	Name           string    `json:"name"`
	DefaultChannel string    `json:"defaultChannel"`
	Deprecation    string    `json:"deprecation"`
	Channels       []Channel `json:"channels"`
	Bundles        []Content `json:"bundles"`
}

type Channel struct {
	Name        string `json:"name"`
	Deprecation string `json:"deprecation"`
	Entries     []struct {
		Name      string   `json:"name"`
		Replaces  string   `json:"replaces"`
		Skips     []string `json:"skips"`
		SkipRange string   `json:"skipRange"`
	} `json:"entries"`
}

type Content struct {
	Name         string     `json:"name"`
	Version      string     `json:"version"`
	Properties   []Property `json:"properties"`
	Dependencies []Property `json:"dependencies"`
	ProvidedAPIs []API      `json:"providedAPIs"`
	RequiredAPIs []API      `json:"requiredAPIs"`
	Deprecation  string     `json:"deprecation"`
}

type Property struct {
	Type  string          `json:"type"`
	Value json.RawMessage `json:"value"`
}

type API struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

type Subscription struct {
	Name             string `json:"name"`
	Package          string `json:"package"`
	Channel          string `json:"channel"`
	Catalog          string `json:"catalog"`
	CatalogNamespace string `json:"catalogNamespace"`
	StartingCSV      string `json:"startingCSV"`
	InstalledCSV     string `json:"installedCSV"`
	CurrentCSV       string `json:"currentCSV"`
}

type Installed struct {
	Name         string      `json:"name"`
	Version      string      `json:"version"`
	Replaces     string      `json:"replaces"`
	Phase        string      `json:"phase"`
	Copied       bool        `json:"copied"`
	Properties   *[]Property `json:"properties"`
	ProvidedAPIs []API       `json:"providedAPIs"`
	RequiredAPIs []API       `json:"requiredAPIs"`
}

func shuffle[T any](dice *rand.Rand, list []T) {
	dice.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

// shuffle changes the order of the lists whose order means nothing.
func (c *Case) shuffle(dice *rand.Rand) {
	shuffle(dice, c.Subscriptions)
	shuffle(dice, c.Installed)
	shuffle(dice, c.Catalogs)
	for _, catalog := range c.Catalogs {
		shuffle(dice, catalog.Packages)
		for _, it := range catalog.Packages {
			shuffle(dice, it.Channels)
			for _, channel := range it.Channels {
				shuffle(dice, channel.Entries)
			}
		}
	}
}

func (c *Case) namespaces() []string {
	if c.ExcludeGlobal {
		return []string{c.Namespace}
	}
	return []string{c.Namespace, c.GlobalNamespace}
}

// world is what the resolver reads: the objects of the namespace, and the registries of its catalogs.
type world struct {
	lister        operatorlister.OperatorLister
	subscriptions []*v1alpha1.Subscription
	registries    map[registry.CatalogKey]client.Interface
}

func newWorld(c *Case) *world {
	w := &world{lister: operatorlister.NewLister(), registries: map[registry.CatalogKey]client.Interface{}}
	indexer := func() toolscache.Indexer {
		return toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc,
			toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
	}
	add := func(to toolscache.Indexer, object any) {
		if err := to.Add(object); err != nil {
			log.Fatalf("%s: %v", c.ID, err)
		}
	}
	groups, catalogs, subscriptions, csvs := indexer(), indexer(), indexer(), indexer()
	group := &operatorsv1.OperatorGroup{ObjectMeta: metav1.ObjectMeta{Name: "group", Namespace: c.Namespace}}
	if c.FailForward {
		group.Spec.UpgradeStrategy = "TechPreviewUnsafeFailForward"
	}
	add(groups, group)
	for _, catalog := range c.Catalogs {
		meta := metav1.ObjectMeta{Name: catalog.Name, Namespace: catalog.Namespace}
		add(catalogs, &v1alpha1.CatalogSource{ObjectMeta: meta, Spec: v1alpha1.CatalogSourceSpec{Priority: catalog.Priority}})
		if !catalog.Unhealthy {
			key := registry.CatalogKey{Name: catalog.Name, Namespace: catalog.Namespace}
			w.registries[key] = &reader{catalog: catalog}
		}
	}
	for _, it := range c.Subscriptions {
		w.subscriptions = append(w.subscriptions, &v1alpha1.Subscription{
			ObjectMeta: metav1.ObjectMeta{Name: it.Name, Namespace: c.Namespace},
			Spec: &v1alpha1.SubscriptionSpec{
				CatalogSource: it.Catalog, CatalogSourceNamespace: it.CatalogNamespace,
				Package: it.Package, Channel: it.Channel, StartingCSV: it.StartingCSV,
			},
			Status: v1alpha1.SubscriptionStatus{InstalledCSV: it.InstalledCSV, CurrentCSV: it.CurrentCSV},
		})
		add(subscriptions, w.subscriptions[len(w.subscriptions)-1])
	}
	for _, it := range c.Installed {
		add(csvs, it.csv(c.Namespace))
	}
	w.lister.OperatorsV1().RegisterOperatorGroupLister(c.Namespace, listersv1.NewOperatorGroupLister(groups))
	w.lister.OperatorsV1alpha1().RegisterSubscriptionLister(c.Namespace, listers.NewSubscriptionLister(subscriptions))
	w.lister.OperatorsV1alpha1().RegisterClusterServiceVersionLister(c.Namespace, listers.NewClusterServiceVersionLister(csvs))
	w.lister.OperatorsV1alpha1().RegisterCatalogSourceLister(metav1.NamespaceAll, listers.NewCatalogSourceLister(catalogs))
	return w
}

func (i Installed) csv(namespace string) *v1alpha1.ClusterServiceVersion {
	csv := &v1alpha1.ClusterServiceVersion{ObjectMeta: metav1.ObjectMeta{Name: i.Name, Namespace: namespace}}
	csv.Spec.Replaces = i.Replaces
	if version, err := semver.Parse(i.Version); err == nil {
		csv.Spec.Version = libversion.OperatorVersion{Version: version}
	}
	csv.Status.Phase = v1alpha1.CSVPhaseSucceeded
	if i.Phase != "" {
		csv.Status.Phase = v1alpha1.ClusterServiceVersionPhase(i.Phase)
	}
	if i.Copied {
		csv.Labels = map[string]string{v1alpha1.CopiedLabelKey: "elsewhere"}
		csv.Status.Reason = v1alpha1.CSVReasonCopied
	}
	if i.Properties != nil {
		text, err := projection.PropertiesAnnotationFromPropertyList(properties(*i.Properties))
		if err != nil {
			log.Fatalf("properties of %s: %v", i.Name, err)
		}
		csv.Annotations = map[string]string{projection.PropertiesAnnotationKey: text}
	}
	described := func(apis []API) (list []v1alpha1.CRDDescription) {
		for _, it := range apis {
			list = append(list, v1alpha1.CRDDescription{Name: "plural." + it.Group, Version: it.Version, Kind: it.Kind})
		}
		return list
	}
	csv.Spec.CustomResourceDefinitions.Owned = described(i.ProvidedAPIs)
	csv.Spec.CustomResourceDefinitions.Required = described(i.RequiredAPIs)
	return csv
}

func properties(from []Property) (list []*api.Property) {
	for _, it := range from {
		list = append(list, &api.Property{Type: it.Type, Value: string(it.Value)})
	}
	return list
}

// ClientsForNamespaces makes world a RegistryClientProvider.
func (w *world) ClientsForNamespaces(namespaces ...string) map[registry.CatalogKey]client.Interface {
	found := map[registry.CatalogKey]client.Interface{}
	for _, namespace := range namespaces {
		for key, it := range w.registries {
			if key.Namespace == namespace {
				found[key] = it
			}
		}
	}
	return found
}

// apiserver answers the one request that the resolver sends: the list of Subscriptions.
type apiserver struct {
	versioned.Interface
	typed.OperatorsV1alpha1Interface
	typed.SubscriptionInterface
	subscriptions []*v1alpha1.Subscription
}

func (a apiserver) OperatorsV1alpha1() typed.OperatorsV1alpha1Interface { return a }

func (a apiserver) Subscriptions(string) typed.SubscriptionInterface { return a }

func (a apiserver) List(context.Context, metav1.ListOptions) (*v1alpha1.SubscriptionList, error) {
	list := &v1alpha1.SubscriptionList{}
	for _, it := range a.subscriptions {
		list.Items = append(list.Items, *it)
	}
	return list, nil
}

// reader is the registry of a catalog, as far as the resolver reads it.
type reader struct {
	client.Interface
	catalog Catalog
}

func deprecation(text string) *api.Deprecation {
	if text == "" {
		return nil
	}
	return &api.Deprecation{Message: text}
}

func (r *reader) GetPackage(_ context.Context, name string) (*api.Package, error) {
	for _, it := range r.catalog.Packages {
		if it.Name == name {
			found := &api.Package{Name: name, DefaultChannelName: it.DefaultChannel, Deprecation: deprecation(it.Deprecation)}
			for _, channel := range it.Channels {
				found.Channels = append(found.Channels, &api.Channel{Name: channel.Name, Deprecation: deprecation(channel.Deprecation)})
			}
			return found, nil
		}
	}
	return nil, errors.New("no such package")
}

func (r *reader) ListBundles(context.Context) (*client.BundleIterator, error) {
	apis := func(from []API) (list []*api.GroupVersionKind) {
		for _, it := range from {
			list = append(list, &api.GroupVersionKind{Group: it.Group, Version: it.Version, Kind: it.Kind, Plural: "plural"})
		}
		return list
	}
	found := &bundles{}
	for _, it := range r.catalog.Packages {
		contents := map[string]Content{}
		for _, content := range it.Bundles {
			contents[content.Name] = content
		}
		for _, channel := range it.Channels {
			for _, entry := range channel.Entries {
				content, ok := contents[entry.Name]
				if !ok {
					continue
				}
				bundle := &api.Bundle{
					CsvName: entry.Name, PackageName: it.Name, ChannelName: channel.Name, Version: content.Version, BundlePath: "image/" + entry.Name,
					Replaces: entry.Replaces, Skips: entry.Skips, SkipRange: entry.SkipRange, Deprecation: deprecation(content.Deprecation),
					ProvidedApis: apis(content.ProvidedAPIs), RequiredApis: apis(content.RequiredAPIs), Properties: properties(content.Properties),
				}
				for _, it := range content.Dependencies {
					bundle.Dependencies = append(bundle.Dependencies, &api.Dependency{Type: it.Type, Value: string(it.Value)})
				}
				*found = append(*found, bundle)
			}
		}
	}
	return client.NewBundleIterator(found), nil
}

// bundles is a stream of them.
type bundles []*api.Bundle

func (b *bundles) Recv() (*api.Bundle, error) {
	if len(*b) == 0 {
		return nil, io.EOF
	}
	first := (*b)[0]
	*b = (*b)[1:]
	return first, nil
}
