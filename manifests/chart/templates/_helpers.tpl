{{- /* The first line of every template: gives the values that are absent their defaults. A key without a value is absent (`catalogd:` in a file
of values), and so is what an older chart did not have, with `helm upgrade --reuse-values`. */ -}}
{{- define "olm.defaults" -}}
{{- include "olm.fill" (dict "values" .Values "defaults" (.Files.Get "files/values.yaml" | fromYaml)) -}}
{{- end -}}

{{- /* By Helm's convention an empty value removes a default. That is so for what a pod can do without. */ -}}
{{- define "olm.fill" -}}
{{- range $key, $default := omit .defaults "resources" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "podSecurityContext" -}}
{{- $value := index $.values $key -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := set $.values $key $default -}}
{{- else if kindIs "map" $default -}}
{{- include "olm.fill" (dict "values" $value "defaults" $default) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The namespace of the programs. */ -}}
{{- define "olm.namespace" -}}
{{- $namespace := .Values.namespace.name | default .Release.Namespace -}}
{{- if has $namespace (list "default" "kube-system" "kube-public") -}}
{{- fail (printf "OLM needs a namespace of its own, and denies all other traffic there: not %s, but for example --namespace olmv1-system --create-namespace" $namespace) -}}
{{- end -}}
{{- $namespace -}}
{{- end -}}

{{- /* Labels of an object of the program `name`; `root` is the root context. Selectors use the labels of manifests/base only. */ -}}
{{- define "olm.labels" -}}
app.kubernetes.io/part-of: olm
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- /* `self-issued`, `cert-manager` or `openshift`. */ -}}
{{- define "olm.certificates" -}}
{{- eq .Values.platform "openshift" | ternary "openshift" .Values.certificates -}}
{{- end -}}

{{- /* Labels of the pods of the program `name` with the values `values`. Those that selectors use win. */ -}}
{{- define "olm.podLabels" -}}
{{- $fixed := dict "app.kubernetes.io/part-of" "olm" "app.kubernetes.io/name" .name "app.kubernetes.io/instance" .root.Release.Name "control-plane" (printf "%s-controller-manager" .name) -}}
{{- toYaml (merge $fixed (.values.podLabels | default dict)) -}}
{{- end -}}

{{- /* Annotations of the pods; `hostVolumes` is true if OpenShift mounts folders of the node. */ -}}
{{- define "olm.podAnnotations" -}}
{{- $annotations := dict "kubectl.kubernetes.io/default-container" "manager" -}}
{{- if .hostVolumes -}}
{{- $_ := set $annotations "openshift.io/required-scc" "privileged" -}}
{{- $_ := set $annotations "target.workload.openshift.io/management" `{"effect": "PreferredDuringScheduling"}` -}}
{{- end -}}
{{- toYaml (merge (deepCopy (.values.podAnnotations | default dict)) $annotations) -}}
{{- end -}}

{{- define "olm.image" -}}
{{- if .image.digest -}}
{{ printf "%s@%s" .image.repository .image.digest }}
{{- else -}}
{{ printf "%s:%s" .image.repository (.image.tag | default .root.Chart.AppVersion) }}
{{- end -}}
{{- end -}}

{{- /* What the pod specs of all programs have in common, but for containers and volumes. */ -}}
{{- define "olm.pod" -}}
serviceAccountName: {{ .name }}-controller-manager
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- with .values.priorityClassName | default (.hostVolumes | ternary "system-cluster-critical" "") }}
priorityClassName: {{ . }}
{{- end }}
# longer than the 30 s in which running answers may end
terminationGracePeriodSeconds: 45
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- $selector := dict "matchLabels" (dict "control-plane" (printf "%s-controller-manager" .name)) }}
{{- with .values.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range . }}
- {{- (hasKey . "labelSelector" | ternary . (merge (dict "labelSelector" $selector) .)) | toYaml | nindent 2 }}
{{- end }}
{{- end }}
{{- $context := .values.podSecurityContext }}
{{- /* the SCC restricted-v2 of OpenShift gives the pods a group of the namespace, and rejects the one of the images' user */}}
{{- if and (eq .root.Values.platform "openshift") (not .hostVolumes) (eq (dig "fsGroup" "" ($context | default dict) | toString) "65532") }}
{{- $context = omit $context "fsGroup" }}
{{- end }}
{{- with $context }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Environment variables of a container; `hostVolumes` as above: OpenShift's CAs are mounted then, too. */ -}}
{{- define "olm.env" -}}
{{- $env := list -}}
{{- if .hostVolumes -}}
{{- $env = append $env (dict "name" "SSL_CERT_DIR" "value" "/var/ca-certs") -}}
{{- end -}}
{{- with .root.Values.proxy -}}
{{- if .httpProxy }}{{ $env = append $env (dict "name" "HTTP_PROXY" "value" .httpProxy) }}{{ end -}}
{{- if .httpsProxy }}{{ $env = append $env (dict "name" "HTTPS_PROXY" "value" .httpsProxy) }}{{ end -}}
{{- if or .httpProxy .httpsProxy -}}
{{- $direct := list "$(KUBERNETES_SERVICE_HOST)" ".svc" ".cluster.local" "localhost" "127.0.0.1" -}}
{{- $env = append $env (dict "name" "NO_PROXY" "value" (concat $direct (.noProxy | default list) | join ",")) -}}
{{- end -}}
{{- end -}}
{{- with concat $env (.values.extraEnv | default list) -}}
env:
{{ toYaml . }}
{{- end -}}
{{- end -}}

{{- /* The probes and the security context of a container. */ -}}
{{- define "olm.container" -}}
livenessProbe:
  httpGet:
    path: /healthz
    port: 8081
  initialDelaySeconds: 15
  periodSeconds: 20
readinessProbe:
  httpGet:
    path: /readyz
    port: 8081
  initialDelaySeconds: 1
  periodSeconds: 5
{{- with .values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
terminationMessagePolicy: FallbackToLogsOnError
{{- end -}}

{{- /* The strategy of a Deployment. A catalogd does not start while another one uses its cache. */ -}}
{{- define "olm.strategy" -}}
{{- if dig "cache" "persistence" "enabled" false .values -}}
{{- if gt (int .values.replicas) 1 -}}
{{- fail (printf "%s.cache.persistence.enabled needs %s.replicas=1, so that two pods never use the cache at the same time" .key .key) -}}
{{- end -}}
type: Recreate
{{- else -}}
type: RollingUpdate
rollingUpdate:
  maxSurge: 1
  maxUnavailable: 0
{{- end -}}
{{- end -}}

{{- /* The volume of the cache. */ -}}
{{- define "olm.cacheVolume" -}}
{{- $cache := .values.cache -}}
{{- $persistence := $cache.persistence | default dict -}}
- name: cache
{{- if $persistence.enabled }}
  persistentVolumeClaim:
    claimName: {{ $persistence.existingClaim | default (printf "%s-cache" .name) }}
{{- else if $cache.volume }}
  {{- toYaml $cache.volume | nindent 2 }}
{{- else }}
  emptyDir:
    sizeLimit: {{ $cache.sizeLimit }}
{{- end }}
{{- end -}}

{{- /* The claim of the cache. */ -}}
{{- define "olm.cacheClaim" -}}
{{- with .values.cache.persistence -}}
{{- if and .enabled (not .existingClaim) -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ $.name }}-cache
  namespace: {{ include "olm.namespace" $.root }}
  labels:
    {{- include "olm.labels" $ | nindent 4 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  accessModes:
  {{- toYaml .accessModes | nindent 2 }}
  {{- with .storageClassName }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests:
      storage: {{ .size }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Registry configuration of OpenShift's nodes, and the CAs that the cluster trusts. */ -}}
{{- define "olm.hostVolumes" -}}
- name: etc-containers
  hostPath:
    path: /etc/containers
    type: Directory
- name: etc-docker
  hostPath:
    path: /etc/docker
    type: DirectoryOrCreate
- name: ca-certs
  projected:
    sources:
    - configMap:
        name: olmv1-service-ca
        optional: false
        items:
        - key: service-ca.crt
          path: service-ca.crt
    - configMap:
        name: olmv1-trusted-ca
        optional: false
        items:
        - key: ca-bundle.crt
          path: ca-bundle.crt
{{- end -}}

{{- define "olm.signatureVolume" -}}
{{- with .Values.signaturePolicy.configMap -}}
- name: signatures
  configMap:
    name: {{ . }}
{{- end -}}
{{- end -}}
