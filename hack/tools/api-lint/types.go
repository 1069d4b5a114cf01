package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// schema is the part of an OpenAPI schema that Go types and their markers come from.
type schema struct {
	Type                 string             `json:"type"`
	Format               string             `json:"format"`
	Properties           map[string]*schema `json:"properties"`
	Required             []string           `json:"required"`
	Items                *schema            `json:"items"`
	AdditionalProperties json.RawMessage    `json:"additionalProperties"`
	Default              json.RawMessage    `json:"default"`
	Enum                 []any              `json:"enum"`
	Pattern              string             `json:"pattern"`
	MinLength            *int64             `json:"minLength"`
	MaxLength            *int64             `json:"maxLength"`
	Minimum              *float64           `json:"minimum"`
	Maximum              *float64           `json:"maximum"`
	MinItems             *int64             `json:"minItems"`
	MaxItems             *int64             `json:"maxItems"`
	MinProperties        *int64             `json:"minProperties"`
	MaxProperties        *int64             `json:"maxProperties"`
	Nullable             bool               `json:"nullable"`
	ListType             string             `json:"x-kubernetes-list-type"`
	ListMapKeys          []string           `json:"x-kubernetes-list-map-keys"`
	MapType              string             `json:"x-kubernetes-map-type"`
	IntOrString          bool               `json:"x-kubernetes-int-or-string"`
	PreserveUnknown      bool               `json:"x-kubernetes-preserve-unknown-fields"`
	Validations          []struct {
		Rule    string `json:"rule"`
		Message string `json:"message"`
	} `json:"x-kubernetes-validations"`
}

type crd struct {
	Spec struct {
		Names    struct{ Kind string }
		Versions []struct {
			Schema struct {
				OpenAPIV3Schema *schema `json:"openAPIV3Schema"`
			}
			Subresources struct {
				Status *struct{} `json:"status"`
			}
		}
	}
}

// generator writes Go types and remembers which field of the CRD each line is.
type generator struct {
	lines   []string
	paths   map[int]string
	pending []pending
}

type pending struct {
	name, path string
	schema     *schema
}

// metav1 stands in for k8s.io/apimachinery/pkg/apis/meta/v1: the linters know its types by their names.
const metav1 = `package v1
type TypeMeta struct{}
type ObjectMeta struct{}
type ListMeta struct{}
type Time struct{}
type Condition struct{}
`

// generate returns Go source with a type for each object of the CRDs, and the path in the CRD of each line.
func generate(files [][]byte) (string, map[int]string, error) {
	g := &generator{paths: map[int]string{}}
	g.line("", "package v1")
	g.line("", `import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"`)
	g.line("", "")
	g.line("", "// Any is any JSON.")
	g.line("", "type Any struct {")
	g.line("", "\tmetav1.TypeMeta `json:\",inline\"`")
	g.line("", "}")
	for _, file := range files {
		var crd crd
		if err := yaml.Unmarshal(file, &crd); err != nil {
			return "", nil, err
		}
		if crd.Spec.Names.Kind == "" || len(crd.Spec.Versions) == 0 {
			return "", nil, fmt.Errorf("no CustomResourceDefinition")
		}
		version := crd.Spec.Versions[len(crd.Spec.Versions)-1]
		kind, root := crd.Spec.Names.Kind, version.Schema.OpenAPIV3Schema
		g.line("", "")
		g.line(kind, "// "+kind+" is made from its CRD.")
		g.line(kind, "// +kubebuilder:object:root=true")
		if version.Subresources.Status != nil {
			g.line(kind, "// +kubebuilder:subresource:status")
		}
		g.line(kind, "type "+kind+" struct {")
		g.line(kind, "\tmetav1.TypeMeta `json:\",inline\"`")
		g.line(kind, "\t// metadata is the metadata.")
		g.line(kind, "\t// +optional")
		g.line(kind, "\tmetav1.ObjectMeta `json:\"metadata,omitempty\"`")
		g.fields(kind, kind, &schema{Properties: only(root.Properties, "spec", "status"), Required: root.Required})
		g.line(kind, "}")
		for len(g.pending) > 0 {
			next := g.pending[0]
			g.pending = g.pending[1:]
			g.line("", "")
			g.line(next.path, "// "+next.name+" is one object of the CRD.")
			g.markers(next.path, "", next.schema)
			g.line(next.path, "type "+next.name+" struct {")
			g.fields(next.path, next.name, next.schema)
			g.line(next.path, "}")
		}
	}
	return strings.Join(g.lines, "\n") + "\n", g.paths, nil
}

func only(all map[string]*schema, names ...string) map[string]*schema {
	found := map[string]*schema{}
	for _, name := range names {
		if all[name] != nil {
			found[name] = all[name]
		}
	}
	return found
}

func (g *generator) line(path, text string) {
	g.lines = append(g.lines, text)
	g.paths[len(g.lines)] = path
}

// fields writes the fields of a struct, conditions first: CRDs have no order.
func (g *generator) fields(path, owner string, object *schema) {
	names := slices.Sorted(maps.Keys(object.Properties))
	slices.SortStableFunc(names, func(a, b string) int {
		return rank(a) - rank(b)
	})
	for _, name := range names {
		field, at := object.Properties[name], path+"."+name
		required := slices.Contains(object.Required, name)
		g.line(at, "\t// "+name+" is a field of the CRD.")
		kind := g.kind(at, owner+title(name), field)
		isStruct := kind == owner+title(name)
		if !isStruct { // a struct has them at its type
			g.markers(at, "\t", field)
		}
		if required {
			g.line(at, "\t// +required")
		} else {
			g.line(at, "\t// +optional")
		}
		if !required && isStruct {
			kind = "*" + kind
		}
		tag := name
		if !required {
			tag += ",omitempty"
		}
		g.line(at, fmt.Sprintf("\t%s %s `json:\"%s\"`", title(name), kind, tag))
	}
}

func rank(name string) int {
	if name == "conditions" {
		return 0
	}
	return 1
}

func title(name string) string {
	return strings.ToUpper(name[:1]) + name[1:]
}

// kind is the Go type of a schema; a struct is written later.
func (g *generator) kind(path, name string, field *schema) string {
	var values *schema
	if err := json.Unmarshal(field.AdditionalProperties, &values); err != nil {
		values = nil // a boolean
	}
	switch {
	case field.Type == "array" && strings.HasSuffix(path, ".conditions"):
		return "[]metav1.Condition"
	case field.Type == "array" && field.Items != nil:
		return "[]" + g.kind(path+"[]", name, field.Items)
	case field.Type == "object" && values != nil:
		return "map[string]" + g.kind(path+"{}", name, values)
	case field.Type == "object" && len(field.Properties) > 0:
		g.pending = append(g.pending, pending{name, path, field})
		return name
	case field.Type == "string" && field.Format == "date-time":
		return "metav1.Time"
	case field.Type == "string":
		return "string"
	case field.Type == "boolean":
		return "bool"
	case field.Type == "integer" && field.Format == "int32":
		return "int32"
	case field.Type == "integer" && field.Format == "int64":
		return "int64"
	case field.Type == "integer":
		return "int"
	case field.Type == "number":
		return "float64"
	default:
		return "Any"
	}
}

// markers writes what a schema says beside its type, and what the items of a list say.
func (g *generator) markers(path, indent string, field *schema) {
	g.validation(path, indent, "+kubebuilder:validation:", field)
	if field.Items != nil && len(field.Items.Properties) == 0 {
		g.validation(path, indent, "+kubebuilder:validation:items:", field.Items)
	}
	if len(field.Default) > 0 {
		g.line(path, indent+"// +default="+string(field.Default))
	}
	if field.ListType != "" {
		g.line(path, indent+"// +listType="+field.ListType)
	}
	for _, key := range field.ListMapKeys {
		g.line(path, indent+"// +listMapKey="+key)
	}
	if field.MapType != "" {
		g.line(path, indent+"// +mapType="+field.MapType)
	}
	if field.Nullable {
		g.line(path, indent+"// +nullable")
	}
}

func (g *generator) validation(path, indent, prefix string, field *schema) {
	mark := func(name string, value any) {
		g.line(path, fmt.Sprintf("%s// %s%s=%v", indent, prefix, name, value))
	}
	for name, bound := range map[string]*int64{
		"MinLength": field.MinLength, "MaxLength": field.MaxLength, "MinItems": field.MinItems, "MaxItems": field.MaxItems,
		"MinProperties": field.MinProperties, "MaxProperties": field.MaxProperties,
	} {
		if bound != nil {
			mark(name, *bound)
		}
	}
	for name, bound := range map[string]*float64{"Minimum": field.Minimum, "Maximum": field.Maximum} {
		if bound != nil {
			mark(name, int64(*bound))
		}
	}
	if field.Format != "" {
		mark("Format", field.Format)
	}
	if len(field.Enum) > 0 {
		var values []string
		for _, value := range field.Enum {
			values = append(values, fmt.Sprint(value))
		}
		mark("Enum", strings.Join(values, ";"))
	}
	for _, rule := range field.Validations {
		text, _ := json.Marshal(rule.Rule)
		message, _ := json.Marshal(rule.Message)
		g.line(path, fmt.Sprintf("%s// %sXValidation:rule=%s,message=%s", indent, prefix, text, message))
	}
}
