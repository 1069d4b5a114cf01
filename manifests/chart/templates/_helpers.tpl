{{- /*
The chart holds no manifests of its own: files/ leads to those that kustomize uses, and what is here puts them together in the
same way. A check (xtask manifests) renders both and compares the objects.
*/ -}}

{{- /* the components that the values ask for, as JSON */ -}}
{{- define "olm.components" -}}
{{- $certificates := eq .Values.platform "openshift" | ternary "openshift" .Values.certificates -}}
{{- list .Values.rights $certificates | toJson -}}
{{- end -}}

{{- /* a file's text, for the namespace of the values */ -}}
{{- define "olm.text" -}}
{{- $text := .root.Files.Get (printf "files/%s" .file) -}}
{{- if not $text }}{{ fail (printf "the chart has no file %s" .file) }}{{ end -}}
{{- $text | replace "olmv1-system" .root.Values.namespace.name -}}
{{- end -}}

{{- /* applies a list of JSON patch operations (add, replace) to an object, in place */ -}}
{{- define "olm.patch" -}}
{{- $object := .object -}}
{{- range $step := .steps -}}
  {{- if not (has $step.op (list "add" "replace")) }}{{ fail (printf "patch operation %s is not known here" $step.op) }}{{ end -}}
  {{- $holder := dict -}}{{- $key := "" -}}{{- $current := $object -}}
  {{- $parts := rest (splitList "/" $step.path) -}}
  {{- range $at, $raw := $parts -}}
    {{- $part := $raw | replace "~1" "/" | replace "~0" "~" -}}
    {{- if eq $part "-" -}}
      {{- $_ := set $holder $key (append $current $step.value) -}}
    {{- else if eq (add1 $at) (len $parts) -}}
      {{- $_ := set $current $part $step.value -}}
    {{- else if kindIs "slice" $current -}}
      {{- $current = index $current (int $part) -}}
    {{- else -}}
      {{- $holder = $current -}}{{- $key = $part -}}{{- $current = get $current $part -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* an object of the base with the patches of the components, as YAML; `settings` of a process are applied last */ -}}
{{- define "olm.object" -}}
{{- $root := .root -}}
{{- $object := include "olm.text" . | fromYaml -}}
{{- range $component := include "olm.components" $root | fromJsonArray -}}
  {{- $patch := printf "components/%s/%s.patch.yaml" $component $.patch -}}
  {{- if $root.Files.Get (printf "files/%s" $patch) -}}
    {{- $steps := include "olm.text" (dict "root" $root "file" $patch) | fromYamlArray -}}
    {{- include "olm.patch" (dict "object" $object "steps" $steps) -}}
  {{- end -}}
{{- end -}}
{{- with get . "settings" -}}
  {{- $_ := set $object.spec "replicas" .replicas -}}
  {{- $pod := $object.spec.template.spec -}}
  {{- $container := index $pod.containers 0 -}}
  {{- $_ := set $container "image" .image -}}
  {{- $_ := set $container "args" (concat $container.args .args) -}}
  {{- if .resources }}{{ $_ := set $container "resources" .resources }}{{ end -}}
  {{- $_ := set $pod "nodeSelector" (merge (dict) .nodeSelector $pod.nodeSelector) -}}
  {{- with get . "cache" -}}
    {{- $cache := merge (dict "name" "cache") . -}}
    {{- $volumes := list $cache -}}
    {{- range $volume := $pod.volumes -}}
      {{- if ne $volume.name "cache" }}{{ $volumes = append $volumes $volume }}{{ end -}}
    {{- end -}}
    {{- $_ := set $pod "volumes" $volumes -}}
  {{- end -}}
{{- end -}}
{{- toYaml $object -}}
{{- end -}}
