{{- define "natoutgoing.labels" -}}
app.kubernetes.io/name: natoutgoing
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- end }}

{{/* What selectors ask for; it must never change. */}}
{{- define "natoutgoing.selector" -}}
app.kubernetes.io/name: natoutgoing
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- define "natoutgoing.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{- end -}}
{{- end -}}
{{- end }}

{{- define "natoutgoing.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Where a pod of a component goes. */}}
{{- define "natoutgoing.scheduling" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Of a container that needs no right at all. */}}
{{- define "natoutgoing.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities: { drop: [ALL] }
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{/* A ServiceAccount that reads or writes over the whole cluster: (list $ name rules annotations). */}}
{{- define "natoutgoing.clusterAccount" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}{{- $rules := index . 2 -}}{{- $annotations := index . 3 -}}
{{- range $kind := list "ServiceAccount" "ClusterRole" "ClusterRoleBinding" }}
---
apiVersion: {{ if eq $kind "ServiceAccount" }}v1{{ else }}rbac.authorization.k8s.io/v1{{ end }}
kind: {{ $kind }}
metadata:
  name: {{ $name }}
  {{- if eq $kind "ServiceAccount" }}
  namespace: {{ $root.Release.Namespace }}
  {{- end }}
  labels: {{- include "natoutgoing.labels" $root | nindent 4 }}
  {{- with $annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- if eq $kind "ServiceAccount" }}
automountServiceAccountToken: false
{{- else if eq $kind "ClusterRole" }}
rules:
{{ $rules }}
{{- else }}
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $name }} }
subjects:
- { kind: ServiceAccount, name: {{ $name }}, namespace: {{ $root.Release.Namespace | quote }} }
{{- end }}
{{- end }}
{{- end }}

{{/* Rights within the release's namespace for an account: (list $ name rules annotations). */}}
{{- define "natoutgoing.namespaceRights" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}{{- $rules := index . 2 -}}{{- $annotations := index . 3 -}}
{{- range $kind := list "Role" "RoleBinding" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "natoutgoing.labels" $root | nindent 4 }}
  {{- with $annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- if eq $kind "Role" }}
rules:
{{ $rules }}
{{- else }}
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $name }} }
subjects:
- { kind: ServiceAccount, name: {{ $name }}, namespace: {{ $root.Release.Namespace | quote }} }
{{- end }}
{{- end }}
{{- end }}
