#!/bin/sh
# Upgrades the canary, and the other clusters one after the other once the canary has held.
# Usage: waves.sh CANARY CLUSTER...   Of each there is CLUSTER.tfvars here, and the context admin@CLUSTER in KUBECONFIG.
# Killed anywhere: run it again. A cluster that is done is left alone, one in the middle goes on, and the canary is checked again.
set -eu
# The shell gets the signal as well: it waits until Terraform has ended in good order.
trap 'exit 143' INT TERM

# tf CLUSTER COMMAND...: Terraform with what it remembers of this cluster.
tf() {
  dir=.terraform/$1
  shift
  TF_DATA_DIR=$dir terraform "$@"
}

upgrade() {
  echo "== $1: upgrade"
  tf "$1" init -input=false -lockfile=readonly -backend-config="secret_suffix=$1"
  tf "$1" apply -input=false -auto-approve -lock-timeout="${LOCK_TIMEOUT:-10m}" -var-file="$1.tfvars"
}

# What has to hold; the first command that fails ends the script. Add yours: an alert that is silent, a page that answers.
holds() {
  echo "== $1: check"
  tf "$1" plan -input=false -lock=false -detailed-exitcode -var-file="$1.tfvars"
  kubectl --context="admin@$1" wait nodes --all --for=condition=Ready --timeout=1m
}

canary=$1
shift

upgrade "$canary"

# Half an hour, a look a minute.
checks=${CHECKS:-30}
holds "$canary"
while [ "$checks" -gt 1 ]; do
  sleep 60
  holds "$canary"
  checks=$((checks - 1))
done

for cluster in "$@"; do
  upgrade "$cluster"
done
