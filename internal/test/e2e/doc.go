// SPDX-License-Identifier: MPL-2.0

// Package e2e checks and upgrades a cluster of real machines that was made for it: before anything is written, it
// refuses every cluster whose name does not begin with e2e-, in the talosconfig and in the configurations of the
// machines.
//
// make e2e runs it. On an admitted cluster it checks the adapters against the contract that the simulator keeps, with
// requests that read and requests that write, and then upgrades the cluster through Terraform or OpenTofu with the
// provider from the source tree.
//
// The acceptance suite runs all of this against a simulated cluster, over sockets. It has never been run against real
// machines.
package e2e
