#!/bin/sh
# waves.sh CANARY CLUSTER...: upgrades the canary, and the others once it has held. Each has CLUSTER.tfvars, and the context
# admin@CLUSTER in KUBECONFIG. Killed: run it again; what is done is left alone, what was in the middle goes on.
set -eu
# The shell gets the signal too, and waits until Terraform has ended.
trap 'exit 143' INT TERM

# tf CLUSTER COMMAND...
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

# The first command that fails ends the script. Add yours, such as a page that has to answer.
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
