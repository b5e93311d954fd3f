// SPDX-License-Identifier: MPL-2.0

// Package e2e checks and upgrades a cluster of real machines, and nothing but a
// cluster that was made for it: it refuses every cluster whose name does not start
// with e2e-, as the talosconfig has it and as the machines themselves say, before
// anything is written.
//
// make e2e runs it. On what was admitted it holds the adapters to the contract
// that the simulator keeps, with requests that read and requests that write, and
// then has the provider, as it is in the source tree, upgrade the cluster through
// Terraform or OpenTofu.
//
// The acceptance suite runs all of this against a simulated cluster, over sockets.
// It has never been run against real machines.
package e2e
