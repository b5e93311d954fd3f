// SPDX-License-Identifier: MPL-2.0

// Package say words how a run ends: why it stopped, how the nodes and the cluster are left, and
// what to do. It makes texts of values. It calls no port, and reads nothing that the engine shares
// between its upgrades.
package say
