#!/bin/sh
# Sends the beginning and the end of an upgrade, and every warning in between, to WEBHOOK as {"text": "..."}.
# What was sent gets a label. Killed, or refused by the webhook: the next run sends the rest, and one Event twice at worst.
set -eu

events=$(kubectl -n kube-system get events -l '!talosupgrade-told' --sort-by=.metadata.creationTimestamp \
  --field-selector source=talosupgrade,involvedObject.name=talosupgrade -o go-template='
  {{- range .items}}{{if or (eq .type "Warning") (eq .reason "UpgradeStarted" "UpgradeCompleted")}}
  {{- .metadata.name}} {{printf "%q" .message}}{{"\n"}}{{end}}{{end}}')

printf '%s' "${events:+$events
}" | while read -r event text; do
  printf '{"text": %s}' "$text" |
    curl -sS --fail --max-time 20 -o /dev/null -H 'Content-Type: application/json' --data-binary @- "$WEBHOOK"
  kubectl -n kube-system label event "$event" talosupgrade-told=true
done
