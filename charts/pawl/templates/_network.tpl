{{/* Rules that several NetworkPolicies share. */}}

{{- define "pawl.egress.dns" }}
# Names. On any port: policies see the port of the pod, not that of the Service.
- to:
    - namespaceSelector:
        matchLabels: { kubernetes.io/metadata.name: {{ .dns.namespace }} }
      podSelector:
        matchLabels: {{- toYaml .dns.podLabels | nindent 10 }}
# Names, where every node has a cache at its usual link-local address.
- to:
    - ipBlock: { cidr: 169.254.20.10/32 }
  ports:
    - { protocol: UDP, port: 53 }
    - { protocol: TCP, port: 53 }
{{- end }}
{{- define "pawl.egress.apiServer" }}
# The API server.
- {{- with .apiServer.cidrs }}
  to:
    {{- range . }}
    - ipBlock: { cidr: {{ . | quote }} }
    {{- end }}
  {{- end }}
  ports:
    {{- range .apiServer.ports }}
    - { protocol: TCP, port: {{ . }} }
    {{- end }}
{{- end }}
{{- define "pawl.egress.database" }}
# The ledger.
{{- if .Values.postgres.enabled }}
- to:
    - podSelector:
        matchLabels: {{- include "pawl.selector" "postgres" | nindent 10 }}
  ports:
    - { protocol: TCP, port: 5432 }
{{- else }}
- {{- with .Values.networkPolicy.database.cidrs }}
  to:
    {{- range . }}
    - ipBlock: { cidr: {{ . | quote }} }
    {{- end }}
  {{- end }}
  ports:
    - { protocol: TCP, port: {{ .Values.networkPolicy.database.port }} }
{{- end }}
{{- end }}
{{- define "pawl.ingress.metrics" }}
{{- with .metricsFrom }}
ingress:
  - from: {{- toYaml . | nindent 6 }}
    ports:
      - { protocol: TCP, port: 8080 }
{{- else }}
# Nobody but the node, whose probes no policy stops.
ingress: []
{{- end }}
{{- end -}}
