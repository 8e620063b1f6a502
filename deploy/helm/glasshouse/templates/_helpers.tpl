{{- define "glasshouse.labels" -}}
app.kubernetes.io/name: glasshouse
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "glasshouse.environment" -}}
envFrom:
  - secretRef: {name: {{ .Values.existingSecret | quote }}}
env:
  {{- range $name, $value := .Values.env }}
  - {name: {{ $name }}, value: {{ $value | quote }}}
  {{- end }}
  - {name: DRAIN_SECONDS, value: {{ .Values.drainSeconds | quote }}}
{{- end }}

{{/* Called with a dict of root, name (of the process), command, values (its own), probe (of the web) and worker (of workers). */}}
{{- define "glasshouse.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  labels:
    {{- include "glasshouse.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .name }}
spec:
  replicas: {{ .values.replicas | default 1 }}
  selector:
    matchLabels:
      {{- include "glasshouse.labels" .root | nindent 6 }}
      app.kubernetes.io/component: {{ .name }}
  strategy:
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
  template:
    metadata:
      labels:
        {{- include "glasshouse.labels" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .name }}
    spec:
      terminationGracePeriodSeconds: {{ add .root.Values.drainSeconds 15 }}
      automountServiceAccountToken: false
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        runAsGroup: 10001
        fsGroup: 10001
        seccompProfile: {type: RuntimeDefault}
      containers:
        - name: {{ .name }}
          image: "{{ .root.Values.image.repository }}:{{ .root.Values.image.tag }}"
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          command: {{ .command | toJson }}
          {{- include "glasshouse.environment" .root | nindent 10 }}
            {{- if .worker }}
            - {name: ALIVE_FILE, value: /tmp/alive}
            {{- end }}
            {{- if and .root.Values.metricsPort .worker }}
            - {name: METRICS_PORT, value: {{ .root.Values.metricsPort | quote }}}
          ports:
            - {name: metrics, containerPort: {{ .root.Values.metricsPort }}}
            {{- end }}
          {{- if .worker }}
          # Ready is one that takes work, so that the old one is asked to end only then: it touches the file every 5 s.
          readinessProbe:
            exec: {command: ["sh", "-c", "find /tmp/alive -newermt '20 seconds ago' | grep -q ."]}
            periodSeconds: 5
            timeoutSeconds: 5
          {{- end }}
          {{- if .probe }}
          ports:
            - {name: http, containerPort: 8000}
          livenessProbe:
            httpGet: {path: /livez, port: http, httpHeaders: [{name: Host, value: localhost}]}
            periodSeconds: 10
            timeoutSeconds: 5
          readinessProbe:
            httpGet: {path: /readyz, port: http, httpHeaders: [{name: Host, value: localhost}]}
            periodSeconds: 2
            timeoutSeconds: 3
            failureThreshold: 1
          lifecycle:
            # Until every proxy knows that it is going.
            preStop: {exec: {command: ["sleep", "5"]}}
          {{- end }}
          resources: {{ .values.resources | toJson }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - {name: data, mountPath: /data}
            - {name: tmp, mountPath: /tmp}
      volumes:
        # Uploads are in the bucket of STORAGE_URL; here is what is on its way there, and translations.
        - {name: data, emptyDir: {}}
        - {name: tmp, emptyDir: {}}
{{- end }}
