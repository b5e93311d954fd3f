// SPDX-License-Identifier: MPL-2.0

// Package operator plays the controllers that may own the cluster that is
// upgraded, for tests: the one whose KubernetesCluster is driven by annotations,
// and the one whose TalosControlPlane says what is to run. Both act on objects,
// in memory or in a real API server, and upgrade simulated machines the way a
// person with talosctl does, so that the history tells their work from ours.
// [Habits] are what such controllers get wrong.
//
// A player looks at its object at every pass. Between two passes machines go on
// by themselves, so that a hold, or a player that ends, never leaves one half
// installed.
package operator
