// Prints src/csv/go_members.json: the members of the structs that Go encodes for the specification of a Deployment, in their order.
//
//	cd crates/olm-classic/examples/go_members && go mod init members && go get k8s.io/api@v0.36.4 && go run . > ../../src/csv/go_members.json
package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
)

var types = map[string][][3]string{}

func ref(t reflect.Type) string {
	switch t.String() {
	case "resource.Quantity":
		return "quantity"
	case "intstr.IntOrString":
		return "int-or-string"
	case "v1.Time", "v1.MicroTime":
		return "time"
	case "v1.FieldsV1":
		return "any"
	}
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int32, reflect.Int64, reflect.Int:
		return "int"
	case reflect.Pointer:
		return "*" + ref(t.Elem())
	case reflect.Slice:
		return "[]" + ref(t.Elem())
	case reflect.Map:
		return "{}" + ref(t.Elem())
	case reflect.Struct:
		name := t.Name()
		if _, ok := types[name]; !ok {
			types[name] = nil
			types[name] = members(t)
		}
		return name
	}
	panic(t.String())
}

func members(t reflect.Type) (out [][3]string) {
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("json"), ",")
		if tag[0] == "" {
			out = append(out, members(f.Type)...)
			continue
		}
		when := "always"
		for _, o := range tag[1:] {
			if o == "omitempty" && when == "always" {
				when = "set"
			}
			if o == "omitzero" {
				when = "nonzero"
			}
		}
		out = append(out, [3]string{tag[0], when, ref(f.Type)})
	}
	return out
}

func main() {
	ref(reflect.TypeOf(appsv1.DeploymentSpec{}))
	// of the admission API and of OLM: what the hash of a webhook covers
	types["RuleWithOperations"] = [][3]string{
		{"operations", "set", "[]string"}, {"apiGroups", "set", "[]string"}, {"apiVersions", "set", "[]string"},
		{"resources", "set", "[]string"}, {"scope", "set", "*string"},
	}
	types["WebhookDescription"] = [][3]string{
		{"generateName", "always", "string"}, {"type", "always", "string"}, {"deploymentName", "set", "string"},
		{"containerPort", "set", "int"}, {"targetPort", "set", "*int-or-string"}, {"rules", "set", "[]RuleWithOperations"},
		{"failurePolicy", "set", "*string"}, {"matchPolicy", "set", "*string"}, {"objectSelector", "set", "*LabelSelector"},
		{"sideEffects", "always", "*string"}, {"timeoutSeconds", "set", "*int"}, {"admissionReviewVersions", "always", "[]string"},
		{"reinvocationPolicy", "set", "*string"}, {"webhookPath", "set", "*string"}, {"conversionCRDs", "set", "[]string"},
	}
	names := []string{}
	for name := range types {
		names = append(names, name)
	}
	sort.Strings(names)
	lines := []string{}
	for _, name := range names {
		text, _ := json.Marshal(types[name])
		lines = append(lines, fmt.Sprintf("%q: %s", name, text))
	}
	fmt.Println("{\n" + strings.Join(lines, ",\n") + "\n}")
}
