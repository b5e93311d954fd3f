// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// table lists what is served.
func (s *Server) table() []*resource {
	core, apps, batch := corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion, batchv1.SchemeGroupVersion

	return []*resource{
		{
			version: core, name: "namespaces", kind: "Namespace", objects: s.namespaces,
			list: func() runtime.Object { return &corev1.NamespaceList{} },
		},
		{
			version: core, name: resourceNodes, kind: "Node", objects: s.nodes, update: s.updateNode,
			list: func() runtime.Object { return &corev1.NodeList{} }, empty: func() object { return &corev1.Node{} },
		},
		{
			version: core, name: resourcePods, kind: "Pod", namespaced: true, objects: s.pods, remove: s.removePod,
			list: func() runtime.Object { return &corev1.PodList{} },
		},
		{
			version: core, name: resourceConfigMaps, kind: "ConfigMap", namespaced: true, objects: s.configMaps,
			create: s.createConfigMap, update: s.updateConfigMap, remove: s.removeConfigMap,
			list: func() runtime.Object { return &corev1.ConfigMapList{} }, empty: func() object { return &corev1.ConfigMap{} },
		},
		{
			version: coordinationv1.SchemeGroupVersion, name: resourceLeases, kind: "Lease", namespaced: true, objects: s.leases,
			create: s.createLease, update: s.updateLease, remove: s.removeLease,
			list: func() runtime.Object { return &coordinationv1.LeaseList{} }, empty: func() object { return &coordinationv1.Lease{} },
		},
		{
			version: policyv1.SchemeGroupVersion, name: "poddisruptionbudgets", kind: "PodDisruptionBudget", namespaced: true, objects: s.budgets,
			list: func() runtime.Object { return &policyv1.PodDisruptionBudgetList{} },
		},
		{
			version: apps, name: "replicasets", kind: "ReplicaSet", namespaced: true, objects: s.replicaSets,
			list: func() runtime.Object { return &appsv1.ReplicaSetList{} },
		},
		{
			version: apps, name: "daemonsets", kind: "DaemonSet", namespaced: true, objects: s.daemonSets,
			list: func() runtime.Object { return &appsv1.DaemonSetList{} },
		},
		{
			version: apps, name: "statefulsets", kind: "StatefulSet", namespaced: true, objects: none,
			list: func() runtime.Object { return &appsv1.StatefulSetList{} },
		},
		{
			version: batch, name: "jobs", kind: "Job", namespaced: true, objects: none,
			list: func() runtime.Object { return &batchv1.JobList{} },
		},
		{
			version: core, name: "replicationcontrollers", kind: "ReplicationController", namespaced: true, objects: none,
			list: func() runtime.Object { return &corev1.ReplicationControllerList{} },
		},
		{
			version: core, name: "persistentvolumeclaims", kind: "PersistentVolumeClaim", namespaced: true, objects: none,
			list: func() runtime.Object { return &corev1.PersistentVolumeClaimList{} },
		},
		{
			version: core, name: "persistentvolumes", kind: "PersistentVolume", objects: none,
			list: func() runtime.Object { return &corev1.PersistentVolumeList{} },
		},
	}
}

func none() ([]object, error) { return nil, nil }
