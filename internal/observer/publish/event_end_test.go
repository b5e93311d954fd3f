// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"testing"
	"testing/synctest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestTheEndOfARunNamesWhatRuns, in one list, and nothing of nodes that are held.
func TestTheEndOfARunNamesWhatRuns(t *testing.T) {
	talos, kubernetes := progress(2, 2, "1.13.4"), progress(2, 2, "1.35.2")

	for want, test := range map[string]struct{ talos, kubernetes cluster.Progress }{
		"now running Talos 1.13.4 and Kubernetes 1.35.2":                              {talos, kubernetes},
		"now running Talos 1.13.4, 1/2 nodes show Kubernetes 1.35.2 so far":           {talos, progress(1, 2, "1.34.2")},
		"now running Kubernetes 1.35.2, 1/2 nodes show Talos 1.13.4 so far":           {progress(1, 2, "1.12.6"), kubernetes},
		"1/2 nodes show Talos 1.13.4 so far, 0/2 nodes show Kubernetes 1.35.2 so far": {progress(1, 2, "1.12.6"), progress(0, 2, "1.34.2")},
		"now running Talos 1.13.4":                                                    {talos, cluster.Progress{Managed: true}},
		"nothing is managed":                                                          {},
	} {
		synctest.Test(t, func(t *testing.T) {
			api := &eventAPI{}
			events := events(t, api)

			target := cluster.Target{Talos: version.MustParse("1.13.4"), Kubernetes: version.MustParse("1.35.2")}

			observe(events, []cluster.Event{
				{Kind: cluster.EventRunStarted, Talos: progress(0, 2, "1.12.6"), Target: target},
				{Kind: cluster.EventRunDone, Talos: test.talos, Kubernetes: test.kubernetes, Target: target},
			})

			if err := events.Close(t.Context()); err != nil {
				t.Error(err)
			}

			told := api.told()
			compare(t, want, told[max(len(told)-1, 0):], []string{"tenant-a prod: Normal UpgradeCompleted: Upgrade completed: " + want})
		})
	}
}
