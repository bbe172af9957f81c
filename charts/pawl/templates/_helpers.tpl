{{/* Names are fixed: the admission policies of pawl-crds know the controller's account by its name, and people type
     `deploy/pawl-worker`. One install per cluster, so nothing can collide. */}}

{{- define "pawl.labels" -}}
app.kubernetes.io/name: pawl
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: pawl
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end -}}

{{/* What selectors use: never changes, because a Deployment's selector may not. */}}
{{- define "pawl.selector" -}}
app.kubernetes.io/name: pawl
app.kubernetes.io/component: {{ . }}
{{- end -}}

{{- define "pawl.image" -}}
{{ .Values.images.pawl }}
{{- end -}}

{{/* The Secret that holds the ledger's URL, and its key. */}}
{{- define "pawl.database.secret" -}}
{{- if .Values.database.existingSecret.name -}}
name: {{ .Values.database.existingSecret.name }}
key: {{ .Values.database.existingSecret.key }}
{{- else if .Values.database.url -}}
name: pawl-database
key: url
{{- else -}}
name: pawl-postgres
key: url
{{- end -}}
{{- end -}}

{{- define "pawl.restricted.pod" -}}
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "pawl.restricted.container" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "pawl.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Where a pod runs. */}}
{{- define "pawl.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "pawl.agentNamespaces" -}}
{{- join "," .Values.agentNamespaces -}}
{{- end -}}

{{/* Without what is empty, so that an empty word never stands for a choice. */}}
{{- define "pawl.defaults" -}}
{{- $interrupt := .Values.defaults.interrupt | default dict -}}
{{- if not $interrupt.whoInterrupts }}{{ $interrupt = omit $interrupt "whoInterrupts" }}{{ end -}}
{{- $all := dict -}}
{{- with .Values.defaults.models }}{{ $_ := set $all "models" . }}{{ end -}}
{{- with $interrupt }}{{ $_ := set $all "interrupt" . }}{{ end -}}
{{- with .Values.defaults.budgets }}{{ $_ := set $all "budgets" . }}{{ end -}}
{{- toJson $all -}}
{{- end -}}

{{/* The environment both roles share. */}}
{{- define "pawl.environment" -}}
- name: PAWL_LEDGER_URL
  valueFrom:
    secretKeyRef: {{- include "pawl.database.secret" . | nindent 6 }}
- name: PAWL_INSTANCE
  valueFrom:
    fieldRef: { fieldPath: metadata.name }
- name: PAWL_KUBERNETES
  value: cluster
- name: PAWL_LISTEN
  value: 0.0.0.0:8080
- name: PAWL_LOG_LEVEL
  value: {{ .Values.logLevel }}
- name: PAWL_AGENT_NAMESPACES
  value: {{ include "pawl.agentNamespaces" . | quote }}
- name: PAWL_DEFAULTS
  value: {{ include "pawl.defaults" . | quote }}
- name: PAWL_MAX_RUNS
  value: {{ .Values.limits.maxRuns | int | toString | quote }}
{{- end -}}

{{/* A Deployment of one role. {root, role, settings, environment} */}}
{{- define "pawl.deployment" -}}
{{- $root := .root -}}
{{- include "pawl.checks" $root -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: pawl-{{ .role }}
  labels: {{- include "pawl.labels" (dict "root" $root "component" .role) | nindent 4 }}
spec:
  replicas: {{ .settings.replicas }}
  selector:
    matchLabels: {{- include "pawl.selector" .role | nindent 6 }}
  template:
    metadata:
      labels: {{- include "pawl.labels" (dict "root" $root "component" .role) | nindent 8 }}
      annotations:
        kubectl.kubernetes.io/default-container: pawl
    spec:
      serviceAccountName: pawl-{{ .role }}
      enableServiceLinks: false
      shareProcessNamespace: {{ $root.Values.shareProcessNamespace }}
      securityContext: {{- include "pawl.restricted.pod" $root | nindent 8 }}
      {{- include "pawl.pullSecrets" $root | nindent 6 }}
      {{- include "pawl.placement" .settings | nindent 6 }}
      initContainers:
        # Twenty at once end in one schema, so every pod may try; none serves before it is there.
        - name: migrate
          image: {{ include "pawl.image" $root }}
          imagePullPolicy: {{ $root.Values.images.pullPolicy }}
          args: [migrate, --wait]
          env:
            - name: PAWL_LEDGER_URL
              valueFrom:
                secretKeyRef: {{- include "pawl.database.secret" $root | nindent 18 }}
          securityContext: {{- include "pawl.restricted.container" $root | nindent 12 }}
          resources: {{- toYaml .settings.resources | nindent 12 }}
          volumeMounts:
            - { name: tmp, mountPath: /tmp }
      containers:
        - name: pawl
          image: {{ include "pawl.image" $root }}
          imagePullPolicy: {{ $root.Values.images.pullPolicy }}
          args: [run, --roles={{ .role }}]
          env:
            {{- include "pawl.environment" $root | nindent 12 }}
            {{- with .environment }}
            {{- . | nindent 12 }}
            {{- end }}
          ports:
            - { name: http, containerPort: 8080 }
          # Long enough for a process that starts while the node is busy; afterwards a dead one is replaced in 30 s.
          startupProbe:
            httpGet: { path: /healthz, port: http }
            periodSeconds: 1
            failureThreshold: 120
          livenessProbe:
            httpGet: { path: /healthz, port: http }
            periodSeconds: 10
            timeoutSeconds: 5
          readinessProbe:
            httpGet: { path: /readyz, port: http }
            periodSeconds: 2
            timeoutSeconds: 2
          securityContext: {{- include "pawl.restricted.container" $root | nindent 12 }}
          resources: {{- toYaml .settings.resources | nindent 12 }}
          volumeMounts:
            - { name: tmp, mountPath: /tmp }
      volumes:
        - name: tmp
          emptyDir: { sizeLimit: 64Mi }
{{- end -}}

{{- define "pawl.pdb" -}}
{{- if .settings.podDisruptionBudget }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: pawl-{{ .role }}
  labels: {{- include "pawl.labels" (dict "root" .root "component" .role) | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "pawl.selector" .role | nindent 6 }}
{{- end }}
{{- end -}}
