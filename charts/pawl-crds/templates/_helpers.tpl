{{- define "pawl-crds.controllerUsername" -}}
system:serviceaccount:{{ .Values.controller.namespace | default .Release.Namespace }}:{{ .Values.controller.serviceAccount }}
{{- end -}}
