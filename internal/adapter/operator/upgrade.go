// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// state is how far the operator is with an upgrade, as its Secret has it.
type state struct {
	Half   string `json:"upgradeType"`
	Target string `json:"targetVersion"`
	Phase  string `json:"phase"`
}

// underway is the half on which the operator is at work by its Secret, and to which
// version; empty where it is not. What it takes the cluster to run, as the object
// has it, is asked for by half: who is there already is not on the way.
func underway(secret cluster.Secret, current func(cluster.Half) string) (half cluster.Half, target string) {
	if string(secret.Data[busyKey]) != "true" || ended(secret) {
		return "", ""
	}

	half, target = cluster.Half(secret.Data[busyHalfKey]), plain(shortened(string(secret.Data[busyTargetKey])))

	if to, err := version.Parse(target); err == nil {
		if says(current(half), to) || says(string(secret.Data[versionKey(half)]), to) {
			return "", ""
		}
	}

	return half, target
}

// ended tells whether the upgrade that the Secret names is over although it is said
// to be in progress: the operator leaves that so when it fails. What it knows of
// another upgrade is of an earlier one.
func ended(secret cluster.Secret) bool {
	var found state

	if json.Unmarshal(secret.Data[busyStateKey], &found) != nil {
		return false
	}

	if found.Half != "" && found.Half != string(secret.Data[busyHalfKey]) {
		return false
	}

	if found.Target != "" && plain(found.Target) != plain(string(secret.Data[busyTargetKey])) {
		return false
	}

	return slices.Contains([]string{"failed", "completed", "cancelled", "idle"}, strings.ToLower(strings.TrimSpace(found.Phase)))
}

// reached tells whether the version to which the operator was on the way runs.
func reached(secret cluster.Secret, known map[string]version.Version) bool {
	half := cluster.Half(secret.Data[busyHalfKey])
	runs, isKnown := known[versionKey(half)]

	return isKnown && (half == cluster.HalfTalos || half == cluster.HalfKubernetes) && says(string(secret.Data[busyTargetKey]), runs)
}

func versionKey(half cluster.Half) string {
	return field(half, talosVersionKey, kubernetesVersionKey)
}
