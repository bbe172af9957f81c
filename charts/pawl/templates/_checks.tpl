{{/* What a schema cannot say in words that help. */}}
{{- define "pawl.checks" -}}
{{- if not .Values.images.pawl -}}
{{- fail "no image: set images.pawl to the reference of Pawl's image (npm run images says it)" -}}
{{- end -}}
{{- $given := list -}}
{{- if .Values.database.url }}{{ $given = append $given "database.url" }}{{ end -}}
{{- if .Values.database.existingSecret.name }}{{ $given = append $given "database.existingSecret.name" }}{{ end -}}
{{- if .Values.postgres.enabled }}{{ $given = append $given "postgres.enabled" }}{{ end -}}
{{- if eq (len $given) 0 -}}
{{- fail "no ledger: set database.existingSecret.name (a Secret whose key `url` is postgres://…), database.url, or, to try it out, postgres.enabled=true" -}}
{{- else if gt (len $given) 1 -}}
{{- fail (printf "one ledger only: %s are all set" (join ", " $given)) -}}
{{- end -}}
{{- if not .Values.agentNamespaces -}}
{{- fail "no namespace to serve: set agentNamespaces to those whose Agents this install serves, for example agentNamespaces={default}" -}}
{{- end -}}
{{- if and .Values.defaultModel.existingSecret.name (not (dig "primary" "baseURL" "" (.Values.defaults.models | default dict))) -}}
{{- fail "defaultModel.existingSecret is a key without an endpoint: set defaults.models.primary too" -}}
{{- end -}}
{{- end -}}
