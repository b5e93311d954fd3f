// SPDX-License-Identifier: MPL-2.0

package gate

// preset is a gate that comes with the provider.
type preset struct {
	name, apiVersion, kind string
	// expr is evaluated for each object.
	expr string
	// orNone is true if the gate holds without any object.
	orNone bool
	// detail is an expression for what a message says about an object at fault.
	detail string
}

// presets returns the gates that come with the provider. Fields that a controller has not written yet count as
// unhealthy.
//
// Controllers write what the presets read, and they may have been on the node that was disturbed last, so it may be
// some time old: Rook asks Ceph every 60 s unless spec.healthCheck.daemonHealth.status says otherwise.
func presets() []preset {
	return []preset{
		// VolumeState and VolumeRobustness of k8s/pkg/apis/longhorn/v1beta2/volume.go of longhorn/longhorn-manager:
		// attached volumes are healthy or degraded, detached ones faulted or unknown. The gate waits for a volume
		// that is being attached or detached. Without a volume there is no data to lose.
		{
			name: "longhorn", apiVersion: "longhorn.io/v1beta2", kind: "Volume", orNone: true,
			expr: `object.?status.?state.orValue("") == "attached" && object.?status.?robustness.orValue("") == "healthy"` +
				` || object.?status.?state.orValue("") == "detached" && object.?status.?robustness.orValue("") != "faulted"`,
			detail: `string(object.?status.?state.orValue("state unknown")) + ", " + string(object.?status.?robustness.orValue("robustness unknown"))`,
		},
		// CephStatus of pkg/apis/ceph.rook.io/v1/types.go of rook/rook has Ceph's own HEALTH_OK, HEALTH_WARN or
		// HEALTH_ERR. It is HEALTH_WARN while data is less redundant than it should be. Whoever configures the gate
		// has a Ceph cluster.
		{
			name: "rook-ceph", apiVersion: "ceph.rook.io/v1", kind: "CephCluster",
			expr:   `object.?status.?ceph.?health.orValue("") == "HEALTH_OK"`,
			detail: `string(object.?status.?ceph.?health.orValue("health unknown"))`,
		},
		// ClusterSpec, ClusterStatus and PhaseHealthy of api/v1/cluster_types.go of cloudnative-pg/cloudnative-pg;
		// a switchover and a failover have phases of their own. A field that is 0 is left out. A hibernated
		// cluster, which has the condition cnpg.io/hibernation, has no instances and nothing to disturb.
		{
			name: "cloudnative-pg", apiVersion: "postgresql.cnpg.io/v1", kind: "Cluster", orNone: true,
			expr: `object.?status.?readyInstances.orValue(0) == object.?spec.?instances.orValue(1)` +
				` && object.?status.?phase.orValue("") == "Cluster in healthy state"` +
				` || object.?status.?conditions.orValue([]).exists(c, c.?type.orValue("") == "cnpg.io/hibernation" && c.?status.orValue("") == "True")`,
			detail: `string(object.?status.?readyInstances.orValue(0)) + " of " + string(object.?spec.?instances.orValue(1)) + " instances ready, " + string(object.?status.?phase.orValue("phase unknown"))`,
		},
	}
}

// Presets returns the names of the gates that come with the provider.
func Presets() []string {
	var names []string

	for _, known := range presets() {
		names = append(names, known.name)
	}

	return names
}

func presetNamed(name string) (preset, bool) {
	for _, known := range presets() {
		if known.name == name {
			return known, true
		}
	}

	return preset{}, false
}
