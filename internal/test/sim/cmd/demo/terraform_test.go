// SPDX-License-Identifier: MPL-2.0

package main

import "testing"

// TestRollShowsWhatAPlanSaysAboutTheRoll and none of what the command line says
// around it.
func TestRollShowsWhatAPlanSaysAboutTheRoll(t *testing.T) {
	t.Parallel()

	for line, want := range map[string]bool{
		"Warning: Planned: Rolling upgrade of 5 of 5 nodes (talossim)":                                  true,
		"One node of talossim after the other, in this order:":                                          true,
		"Up to 2 workers of talossim at a time and its control planes one after the other":              true,
		"  Talos 1.12.6 -> 1.13.4 (https://github.com/siderolabs/talos/releases/tag/v1.13.4)":           true,
		"  Hop 1 of 2: Talos 1.11.5 -> 1.12.12 (https://github.com/siderolabs/talos/releases/v1.12.12)": true,
		"  step  node      role    from    to      image  estimate":                                     true,
		"  1     worker-0  worker  1.12.6  1.13.4  x      4m":                                           true,
		"Planned duration: about 20 minutes (an estimate from typical durations, not a promise).":       true,
		"Plan: 1 to add, 0 to change, 0 to destroy.":                                                    true,
		"  with talosupgrade_cluster.demo,":                                                             false,
		"Terraform will perform the following actions:":                                                 false,
		"  # talosupgrade_cluster.demo will be created":                                                 false,
	} {
		if got := roll(line); got != want {
			t.Errorf("%q: shown %t, want %t", line, got, want)
		}
	}
}
