// SPDX-License-Identifier: MPL-2.0

package gate_test

import (
	"slices"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/gate"
)

// volume returns a Longhorn volume as its controller writes it.
func volume(name, state, robustness string) string {
	return `{
		"apiVersion": "longhorn.io/v1beta2", "kind": "Volume",
		"metadata": {"name": "` + name + `", "namespace": "longhorn-system", "labels": {"longhornvolume": "` + name + `"}, "finalizers": ["longhorn.io"]},
		"spec": {"numberOfReplicas": 3, "size": "10737418240", "frontend": "blockdev", "dataLocality": "disabled", "nodeID": "worker-1"},
		"status": {
			"state": "` + state + `", "robustness": "` + robustness + `", "currentNodeID": "worker-1", "actualSize": 241172480,
			"conditions": [{"type": "Scheduled", "status": "True"}, {"type": "Restore", "status": "False"}],
			"kubernetesStatus": {"namespace": "default", "pvcName": "data-db-0", "pvStatus": "Bound"}
		}
	}`
}

// cephCluster returns a Ceph cluster as Rook writes it.
func cephCluster(name, health string) string {
	return `{
		"apiVersion": "ceph.rook.io/v1", "kind": "CephCluster", "metadata": {"name": "` + name + `", "namespace": "rook-ceph"},
		"spec": {"dataDirHostPath": "/var/lib/rook", "mon": {"count": 3}},
		"status": {
			"phase": "Ready", "state": "Created", "message": "Cluster created successfully", "observedGeneration": 2,
			"ceph": {
				"fsid": "4336ab3b-2025-4c7b-b9a9-3999944853c8", "health": "` + health + `", "lastChecked": "2025-06-11T20:00:12Z",
				"capacity": {"bytesTotal": 322122547200, "bytesUsed": 1073741824, "bytesAvailable": 321048805376}
			}
		}
	}`
}

// postgres returns a cluster as CloudNativePG writes it; status are the fields that
// differ.
func postgres(name, status string) string {
	return `{
		"apiVersion": "postgresql.cnpg.io/v1", "kind": "Cluster", "metadata": {"name": "` + name + `", "namespace": "apps"},
		"spec": {"instances": 3, "imageName": "ghcr.io/cloudnative-pg/postgresql:17.5", "storage": {"size": "5Gi"}},
		"status": {"instances": 3, "currentPrimary": "` + name + `-1", "targetPrimary": "` + name + `-1", "instanceNames": ["` + name + `-1"], ` + status + `}
	}`
}

func TestPreset_HoldsWhereTheStorageIsHealthy(t *testing.T) {
	const (
		healthy = `"phase": "Cluster in healthy state", "readyInstances": 3`
		asleep  = `"phase": "Cluster in healthy state", "conditions": [{"type": "Ready", "status": "False"}, {"type": "cnpg.io/hibernation", "status": "True"}]`
		awake   = `"phase": "Cluster in healthy state", "readyInstances": 2, "conditions": [{"type": "cnpg.io/hibernation", "status": "False"}]`
	)

	for name, given := range map[string]struct {
		preset  string
		objects string
		holds   bool
		seen    string
	}{
		"longhorn, no volumes":          {preset: "longhorn", objects: "", holds: true},
		"longhorn, healthy":             {preset: "longhorn", objects: volume("pvc-1", "attached", "healthy") + "," + volume("pvc-2", "detached", "unknown"), holds: true},
		"longhorn, rebuilding":          {preset: "longhorn", objects: volume("pvc-1", "attached", "healthy") + "," + volume("pvc-2", "attached", "degraded"), seen: "not healthy: Volume longhorn-system/pvc-2 (attached, degraded)"},
		"longhorn, nobody knows":        {preset: "longhorn", objects: volume("pvc-1", "attached", "unknown"), seen: "not healthy: Volume longhorn-system/pvc-1 (attached, unknown)"},
		"longhorn, data lost":           {preset: "longhorn", objects: volume("pvc-1", "detached", "faulted"), seen: "not healthy: Volume longhorn-system/pvc-1 (detached, faulted)"},
		"longhorn, on its way":          {preset: "longhorn", objects: volume("pvc-1", "attaching", "unknown"), seen: "not healthy: Volume longhorn-system/pvc-1 (attaching, unknown)"},
		"longhorn, lost on its way":     {preset: "longhorn", objects: volume("pvc-1", "detaching", "faulted"), seen: "not healthy: Volume longhorn-system/pvc-1 (detaching, faulted)"},
		"longhorn, not looked at yet":   {preset: "longhorn", objects: `{"metadata": {"name": "pvc-1", "namespace": "longhorn-system"}}`, seen: "not healthy: Volume longhorn-system/pvc-1 (state unknown, robustness unknown)"},
		"rook-ceph, no cluster":         {preset: "rook-ceph", objects: "", seen: "the cluster has no CephCluster"},
		"rook-ceph, healthy":            {preset: "rook-ceph", objects: cephCluster("rook-ceph", "HEALTH_OK"), holds: true},
		"rook-ceph, recovering":         {preset: "rook-ceph", objects: cephCluster("rook-ceph", "HEALTH_WARN"), seen: "not healthy: CephCluster rook-ceph/rook-ceph (HEALTH_WARN)"},
		"rook-ceph, one of two":         {preset: "rook-ceph", objects: cephCluster("a", "HEALTH_OK") + "," + cephCluster("b", "HEALTH_ERR"), seen: "not healthy: CephCluster rook-ceph/b (HEALTH_ERR)"},
		"rook-ceph, not looked at yet":  {preset: "rook-ceph", objects: `{"metadata": {"name": "rook-ceph", "namespace": "rook-ceph"}, "status": {"phase": "Progressing"}}`, seen: "not healthy: CephCluster rook-ceph/rook-ceph (health unknown)"},
		"cloudnative-pg, no cluster":    {preset: "cloudnative-pg", objects: "", holds: true},
		"cloudnative-pg, healthy":       {preset: "cloudnative-pg", objects: postgres("db", healthy), holds: true},
		"cloudnative-pg, one short":     {preset: "cloudnative-pg", objects: postgres("db", `"phase": "Cluster in healthy state", "readyInstances": 2`), seen: "not healthy: Cluster apps/db (2 of 3 instances ready, Cluster in healthy state)"},
		"cloudnative-pg, none ready":    {preset: "cloudnative-pg", objects: postgres("db", `"phase": "Waiting for the instances to become active"`), seen: "not healthy: Cluster apps/db (0 of 3 instances ready, Waiting for the instances to become active)"},
		"cloudnative-pg, switchover":    {preset: "cloudnative-pg", objects: postgres("db", `"phase": "Switchover in progress", "readyInstances": 3`), seen: "not healthy: Cluster apps/db (3 of 3 instances ready, Switchover in progress)"},
		"cloudnative-pg, failover":      {preset: "cloudnative-pg", objects: postgres("db", `"phase": "Failing over", "readyInstances": 3`) + "," + postgres("other", healthy), seen: "not healthy: Cluster apps/db (3 of 3 instances ready, Failing over)"},
		"cloudnative-pg, hibernated":    {preset: "cloudnative-pg", objects: postgres("db", asleep), holds: true},
		"cloudnative-pg, awake again":   {preset: "cloudnative-pg", objects: postgres("db", awake), seen: "not healthy: Cluster apps/db (2 of 3 instances ready, Cluster in healthy state)"},
		"cloudnative-pg, just made":     {preset: "cloudnative-pg", objects: `{"metadata": {"name": "db", "namespace": "apps"}, "spec": {"instances": 1}}`, seen: "not healthy: Cluster apps/db (0 of 1 instances ready, phase unknown)"},
		"longhorn, fields are not text": {preset: "longhorn", objects: `{"metadata": {"name": "pvc-1"}, "status": {"state": ["attached"], "robustness": 7}}`, seen: "not healthy: Volume pvc-1"},
	} {
		t.Run(name, func(t *testing.T) {
			served := &shelf{objects: decode(t, "["+given.objects+"]")}

			holds, seen, err := compiled(t, gate.Spec{Preset: given.preset}).On(served).Holds(t.Context(), "worker-1")
			if err != nil || holds != given.holds || seen != given.seen {
				t.Errorf("Holds: %v, %q, %v\nwant   %v, %q", holds, seen, err, given.holds, given.seen)
			}
		})
	}
}

func TestPreset_ListIsComplete(t *testing.T) {
	if want := []string{"longhorn", "rook-ceph", "cloudnative-pg"}; !slices.Equal(gate.Presets(), want) {
		t.Errorf("Presets() = %v, want %v", gate.Presets(), want)
	}
}
