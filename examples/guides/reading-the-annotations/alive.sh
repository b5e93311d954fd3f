#!/bin/sh
# Prints what stands in the annotations of an object, and exits with
# 0 when nothing is going on, 1 when the last upgrade failed, 2 when one is going on, 3 when one was cut off.
# Usage: alive.sh configmap talosupgrade -n kube-system
set -eu

kubectl get "$@" -o json | jq -r '
  (.metadata.annotations // {}) as $all
  | def key($name): $all["upgrade.vitistack.io/" + $name] // "";
  [key("talos-status"), key("kubernetes-status")] as $status
  | (key("talosupgrade-last-update") | if . == "" then 0 else fromdate end) as $said
  | (if ($status | any(. == "in-progress" or . == "rolling-back")) then
       (if now - $said > 60 then {word: "cut off", exit: 3} else {word: "going on", exit: 2} end)
     elif ($status | any(. == "failed")) then {word: "failed", exit: 1}
     else {word: "at rest", exit: 0} end) as $judged
  | "\($judged.word): Talos \(key("talos-current")) \($status[0]) \(key("talos-progress")), Kubernetes \(key("kubernetes-current")) \($status[1]) \(key("kubernetes-progress")) \(key("failed-nodes"))",
    "\($judged.exit)"' | {
  read -r line
  read -r code
  echo "$line"
  exit "$code"
}
