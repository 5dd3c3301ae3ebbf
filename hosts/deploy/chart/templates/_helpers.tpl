{{- define "joulie.name" -}}
{{ default "joulie" .Values.fullnameOverride | default "joulie" | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* The labels by which pods are chosen. Arguments: root, component. */}}
{{- define "joulie.selector" -}}
app.kubernetes.io/name: {{ include "joulie.name" .root }}-{{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "joulie.labels" -}}
{{ include "joulie.selector" . }}
app.kubernetes.io/part-of: {{ default "joulie" .root.Values.nameOverride }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* name, namespace and labels. Arguments: root, component, name, and namespace unless it is the release's. */}}
{{- define "joulie.metadata" -}}
metadata:
  name: {{ .name }}
  {{- if not .clusterScoped }}
  namespace: {{ default .root.Release.Namespace .namespace }}
  {{- end }}
  labels:
    {{- include "joulie.labels" . | nindent 4 }}
{{- end }}

{{/* Arguments: root, image (a component's own). */}}
{{- define "joulie.image" -}}
{{- $image := merge (dict) (.image | default dict) .root.Values.image }}
{{- range $field, $value := .root.Values.image }}
{{- if not (get $image $field) }}{{ $_ := set $image $field $value }}{{ end }}
{{- end }}
{{- if $image.digest -}}
image: {{ printf "%s@%s" $image.repository $image.digest | quote }}
{{- else -}}
image: {{ printf "%s:%s" $image.repository (default .root.Chart.AppVersion $image.tag) | quote }}
{{- end }}
imagePullPolicy: {{ $image.pullPolicy }}
{{- end }}

{{/* Settings as variables, sorted by name; one without a value is left out. Argument: a map. A number in a file of values is a float,
which would be written with an exponent from a million on. */}}
{{- define "joulie.env" -}}
{{- $lines := list }}
{{- range $name, $value := . }}
{{- if and (hasPrefix "METRICS_TLS_" $name) (not (hasPrefix "/etc/joulie-metrics-tls/" (toString $value))) }}
{{- fail (printf "%s: set metricsTls.enabled instead, so that probes and monitors speak TLS too" $name) }}
{{- end }}
{{- if and (hasPrefix "PROMETHEUS_" $name) (hasSuffix "_FILE" $name) (not (hasPrefix "/etc/joulie-prometheus/" (toString $value))) }}
{{- fail (printf "%s: set prometheus.credentialsSecret or prometheus.authoritySecret instead, so that the file is mounted" $name) }}
{{- end }}
{{- if and (hasPrefix "NODE_METER_" $name) (hasSuffix "_FILE" $name) (not (hasPrefix "/etc/joulie-redfish/" (toString $value))) }}
{{- fail (printf "%s: set agent.redfish.credentialsSecret or agent.redfish.authoritySecret instead, so that the file is mounted" $name) }}
{{- end }}
{{- if and (hasSuffix "_TOKEN_FILE" $name) (not (hasPrefix "PROMETHEUS_" $name)) (not (hasPrefix "NODE_METER_" $name)) (not (hasPrefix "/etc/joulie-node-http/" (toString $value))) }}
{{- fail (printf "%s: set nodeHttp.tokenSecret instead, so that the file is mounted" $name) }}
{{- end }}
{{- if and (hasSuffix "_HTTP_CA_FILE" $name) (not (hasPrefix "/etc/joulie-node-http/" (toString $value))) }}
{{- fail (printf "%s: set nodeHttp.authoritySecret instead, so that the file is mounted" $name) }}
{{- end }}
{{- if not (or (kindIs "invalid" $value) (eq (toString $value) "")) }}
{{- $text := toString $value }}
{{- if and (kindIs "float64" $value) (eq (floor $value) $value) }}{{ $text = int64 $value | toString }}{{ end }}
{{- $lines = append $lines (printf "- name: %s\n  value: %s" $name (quote $text)) }}
{{- end }}
{{- end }}
{{- join "\n" $lines }}
{{- end }}

{{/* Settings as the lines of a file, sorted by name; one without a value is left out. Argument: a map. What joulie.env refuses is refused
here too. */}}
{{- define "joulie.configLines" -}}
{{- $_ := include "joulie.env" . }}
{{- $lines := list }}
{{- range $name, $value := . }}
{{- if not (or (kindIs "invalid" $value) (eq (toString $value) "")) }}
{{- $text := toString $value }}
{{- if and (kindIs "float64" $value) (eq (floor $value) $value) }}{{ $text = int64 $value | toString }}{{ end }}
{{- if contains "\n" $text }}{{ fail (printf "%s: a setting in a file is one line" $name) }}{{ end }}
{{- $lines = append $lines (printf "%s=%s" $name $text) }}
{{- end }}
{{- end }}
{{- join "\n" $lines }}
{{- end }}

{{- define "joulie.fieldEnv" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- end }}

{{/* The port at the end of an address such as :8080. */}}
{{- define "joulie.port" -}}
{{ splitList ":" (toString .) | last }}
{{- end }}

{{/* Of metricsTls: its Secret, the name in its certificate, the variables, the mount and the volume. */}}
{{- define "joulie.metricsTlsSecret" -}}
{{ default (printf "%s-metrics-tls" (include "joulie.name" .)) .Values.metricsTls.secretName }}
{{- end }}
{{- define "joulie.metricsTlsName" -}}
{{ include "joulie.name" . }}-metrics.{{ .Release.Namespace }}.svc
{{- end }}
{{- define "joulie.metricsTlsEnv" -}}
{{- if .Values.metricsTls.enabled }}
METRICS_TLS_CERT_FILE: /etc/joulie-metrics-tls/tls.crt
METRICS_TLS_KEY_FILE: /etc/joulie-metrics-tls/tls.key
{{- end }}
{{- range $where, $env := dict "agent.env" .Values.agent.env "agent.pool.env" .Values.agent.pool.env "operator.env" .Values.operator.env "schedulerExtender.env" .Values.schedulerExtender.env }}
{{- if hasKey $env "METRICS_AUTH" }}
{{- fail (printf "%s.METRICS_AUTH: set metricsAuth.enabled instead, so that the accounts may ask for reviews" $where) }}
{{- end }}
{{- end }}
{{- if .Values.metricsAuth.enabled }}
METRICS_AUTH: token
{{- end }}
{{- end }}
{{- define "joulie.metricsTlsMount" -}}
# The folder and not its files: a file that is mounted by itself never changes.
- {name: metrics-tls, mountPath: /etc/joulie-metrics-tls, readOnly: true}
{{- end }}
{{- define "joulie.metricsTlsVolume" -}}
- name: metrics-tls
  secret: {secretName: {{ include "joulie.metricsTlsSecret" . }}}
{{- end }}

{{/* Of hardwareCatalog: the variable, the mount and the volume. */}}
{{- define "joulie.catalogEnv" -}}
{{- with .Values.hardwareCatalog }}{{ if .enabled }}
HARDWARE_CATALOG_PATH: {{ printf "%s/%s" .mountPath .key | quote }}
{{- end }}{{ end }}
{{- end }}
{{- define "joulie.catalogMount" -}}
- {name: hardware-catalog, mountPath: {{ .Values.hardwareCatalog.mountPath | quote }}, readOnly: true}
{{- end }}
{{- define "joulie.catalogVolume" -}}
- name: hardware-catalog
  configMap: {name: {{ .Values.hardwareCatalog.configMapName | quote }}}
{{- end }}

{{/* Of nodeHttp: the mount and the volume. */}}
{{- define "joulie.nodeHttpMount" -}}
- {name: node-http, mountPath: /etc/joulie-node-http, readOnly: true}
{{- end }}
{{- define "joulie.nodeHttpVolume" -}}
- name: node-http
  projected:
    sources:
      {{- with .Values.nodeHttp.tokenSecret }}
      - secret: {name: {{ . }}, items: [{key: token, path: token}]}
      {{- end }}
      {{- with .Values.nodeHttp.authoritySecret }}
      - secret: {name: {{ . }}, items: [{key: ca.crt, path: ca.crt}]}
      {{- end }}
{{- end }}

{{/* Of prometheus: the variables, the mount and the volume. */}}
{{- define "joulie.prometheusEnv" -}}
{{- with .Values.prometheus }}
{{- if .address }}
PROMETHEUS_ADDRESS: {{ .address | quote }}
{{- if .authoritySecret }}
PROMETHEUS_CA_FILE: /etc/joulie-prometheus/ca.crt
{{- end }}
{{- if .user }}
PROMETHEUS_USER: {{ .user | quote }}
PROMETHEUS_PASSWORD_FILE: /etc/joulie-prometheus/password
{{- if not .credentialsSecret }}{{ fail "prometheus.user: set prometheus.credentialsSecret to the Secret with the password" }}{{ end }}
{{- else if .credentialsSecret }}
PROMETHEUS_TOKEN_FILE: /etc/joulie-prometheus/token
{{- end }}
{{- else if or .credentialsSecret .user .authoritySecret }}
{{- fail "prometheus: set prometheus.address too" }}
{{- end }}
{{- end }}
{{- end }}
{{- define "joulie.prometheusMount" -}}
- {name: prometheus, mountPath: /etc/joulie-prometheus, readOnly: true}
{{- end }}
{{- define "joulie.prometheusVolume" -}}
- name: prometheus
  projected:
    sources:
      {{- with .Values.prometheus }}
      {{- $file := ternary "password" "token" (ne .user "") }}
      {{- if .credentialsSecret }}
      - secret: {name: {{ .credentialsSecret }}, items: [{key: {{ $file }}, path: {{ $file }}}]}
      {{- end }}
      {{- if .authoritySecret }}
      - secret: {name: {{ .authoritySecret }}, items: [{key: ca.crt, path: ca.crt}]}
      {{- end }}
      {{- end }}
{{- end }}

{{/* Of agent.redfish: the variables, the mount and the volume. */}}
{{- define "joulie.redfishEnv" -}}
{{- with .Values.agent.redfish }}
{{- if .url }}
NODE_METER: acpi,dcmi,redfish
NODE_METER_REDFISH_URL: {{ .url | quote }}
{{- if .authoritySecret }}
NODE_METER_REDFISH_CA_FILE: /etc/joulie-redfish/ca.crt
{{- end }}
{{- if .user }}
NODE_METER_REDFISH_USER: {{ .user | quote }}
NODE_METER_REDFISH_PASSWORD_FILE: /etc/joulie-redfish/password
{{- if not .credentialsSecret }}{{ fail "agent.redfish.user: set agent.redfish.credentialsSecret to the Secret with the password" }}{{ end }}
{{- else if .credentialsSecret }}
NODE_METER_REDFISH_TOKEN_FILE: /etc/joulie-redfish/token
{{- end }}
{{- else if or .credentialsSecret .user .authoritySecret }}
{{- fail "agent.redfish: set agent.redfish.url too" }}
{{- end }}
{{- end }}
{{- end }}
{{- define "joulie.redfishMount" -}}
- {name: redfish, mountPath: /etc/joulie-redfish, readOnly: true}
{{- end }}
{{- define "joulie.redfishVolume" -}}
- name: redfish
  projected:
    sources:
      {{- with .Values.agent.redfish }}
      {{- $file := ternary "password" "token" (ne .user "") }}
      {{- if .credentialsSecret }}
      - secret: {name: {{ .credentialsSecret }}, items: [{key: {{ $file }}, path: {{ $file }}}]}
      {{- end }}
      {{- if .authoritySecret }}
      - secret: {name: {{ .authoritySecret }}, items: [{key: ca.crt, path: ca.crt}]}
      {{- end }}
      {{- end }}
{{- end }}

{{- define "joulie.scheme" -}}
{{ if .Values.metricsTls.enabled }}, scheme: HTTPS{{ end }}
{{- end }}
{{/* /livez fails when the program cannot mend itself; /readyz when its answers would be old. */}}
{{- define "joulie.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: metrics{{ include "joulie.scheme" . }}}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: metrics{{ include "joulie.scheme" . }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics{{ include "joulie.scheme" . }}}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
{{- end }}

{{/* Of a container that needs nothing of the machine. Argument: what wins. */}}
{{- define "joulie.plainSecurity" -}}
securityContext:
  {{- $ours := dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "readOnlyRootFilesystem" true "allowPrivilegeEscalation" false "capabilities" (dict "drop" (list "ALL")) "seccompProfile" (dict "type" "RuntimeDefault") }}
  {{- toYaml (mergeOverwrite $ours (deepCopy (default dict .))) | nindent 2 }}
{{- end }}

{{/* Replicas on nodes and in zones of their own, where there are several. Arguments: root, component, affinity. */}}
{{- define "joulie.spread" -}}
affinity:
  {{- if .affinity }}
  {{- toYaml .affinity | nindent 2 }}
  {{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "joulie.selector" . | nindent 14 }}
  {{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "joulie.selector" . | nindent 8 }}
{{- end }}

{{/* Arguments: root, component, name, kind (ClusterRole or Role), role, account, and namespace. */}}
{{- define "joulie.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ if eq .scope "Cluster" }}ClusterRoleBinding{{ else }}RoleBinding{{ end }}
{{ include "joulie.metadata" (merge (dict "clusterScoped" (eq .scope "Cluster")) .) }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ if eq .scope "Cluster" }}ClusterRole{{ else }}Role{{ end }}
  name: {{ .role }}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* A headless Service of the metrics' port. Arguments: root, component, name, service. */}}
{{- define "joulie.metricsService" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "joulie.labels" . | nindent 4 }}
  {{- $scheme := ternary (dict "prometheus.io/scheme" "https") dict .root.Values.metricsTls.enabled }}
  {{- with merge (dict) (.service.annotations | default dict) $scheme }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  clusterIP: None
  selector:
    {{- include "joulie.selector" . | nindent 4 }}
  ports:
    - name: metrics
      port: {{ .service.port }}
      targetPort: metrics
{{- end }}

{{/* How Prometheus asks: all pods have one certificate, whose name is no pod's address. */}}
{{- define "joulie.scrapeTls" -}}
{{- if .Values.metricsTls.enabled -}}
scheme: https
tlsConfig:
  serverName: {{ include "joulie.metricsTlsName" . }}
  ca:
    secret: {name: {{ include "joulie.metricsTlsSecret" . }}, key: ca.crt}
{{- with .Values.metricsAuth.tokenSecret }}
{{- if and $.Values.metricsAuth.enabled .name }}
authorization:
  credentials: {name: {{ .name }}, key: {{ .key }}}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
