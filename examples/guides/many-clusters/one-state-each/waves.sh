#!/bin/sh
# waves.sh CANARY CLUSTER...
set -eu
# The shell gets the signal too: it ends once Terraform has.
trap 'exit 143' INT TERM

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

# Add checks of your own, such as a page that has to answer.
holds() {
  echo "== $1: check"
  tf "$1" plan -input=false -lock=false -detailed-exitcode -var-file="$1.tfvars"
  kubectl --context="admin@$1" wait nodes --all --for=condition=Ready --timeout=1m
}

canary=$1
shift
upgrade "$canary"

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
