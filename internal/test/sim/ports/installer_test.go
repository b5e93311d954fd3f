// SPDX-License-Identifier: MPL-2.0

package ports_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// installs is what a machine says about the image to install from.
func installs(t *testing.T, c *ports.Client, address string) *cluster.MachineConfig {
	t.Helper()

	machine, err := c.Machine(context.Background(), address, nil)
	if err != nil || machine.Config == nil {
		t.Fatalf("got %+v, %v", machine, err)
	}

	return machine.Config
}

func TestConfigureNamesAnotherImageToInstallFrom(t *testing.T) {
	const newer = "ghcr.io/siderolabs/installer:v1.14.1"

	for name, options := range map[string]model.Options{
		"in the one document":         {},
		"in a document about nothing": {Talos: "1.14.1", Documents: true},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, options, func(s *ports.Cluster, c *ports.Client) {
				ctx := context.Background()
				before, named := config(t, s, "worker-0"), installs(t, c, workerAt).InstallImage
				boot := bootID(t, c, workerAt)

				if !installs(t, c, workerAt).Installs || named == "" {
					t.Fatalf("a machine as it was made names %q", named)
				}

				means(t, c.Configure(ctx, workerAt, cluster.ImageChange{Component: cluster.Installer, From: newer, To: "other"}), cluster.ErrConflict)

				if err := c.Configure(ctx, workerAt, cluster.ImageChange{Component: cluster.Installer, From: named, To: newer}); err != nil {
					t.Fatal(err)
				}

				time.Sleep(time.Minute)

				gone, added := changedLines(before, config(t, s, "worker-0"))
				if len(gone) != 1 || len(added) != 1 || installs(t, c, workerAt).InstallImage != newer {
					t.Errorf("took away %q and added %q", gone, added)
				}

				if bootID(t, c, workerAt) != boot {
					t.Error("the machine rebooted")
				}
			})
		})
	}
}

func bootID(t *testing.T, c *ports.Client, address string) string {
	t.Helper()

	machine, err := c.Machine(context.Background(), address, nil)
	if err != nil {
		t.Fatal(err)
	}

	return machine.BootID
}

func TestImageToInstallFromNeedsAPlace(t *testing.T) {
	inCluster(t, model.Options{}, func(s *ports.Cluster, c *ports.Client) {
		named := installs(t, c, workerAt).InstallImage
		byHand(t, s, "worker-0", "  install:\n    disk: /dev/sda # The disk used for installations.\n    image: "+named+"\n    wipe: false\n", "")
		byHand(t, s, "worker-1", "    image: "+named+"\n    wipe", "    wipe")

		if got := installs(t, c, workerAt); got.Installs || got.InstallImage != "" {
			t.Errorf("without a section it says %+v", got)
		}

		change := cluster.ImageChange{Component: cluster.Installer, From: named, To: image}
		means(t, c.Configure(context.Background(), workerAt, change), cluster.ErrNotFound)

		const otherAt = "10.5.0.6"
		if got := installs(t, c, otherAt); !got.Installs || got.InstallImage != "" {
			t.Errorf("without an image it says %+v", got)
		}

		change.From = ""
		if err := c.Configure(context.Background(), otherAt, change); err != nil {
			t.Fatal(err)
		}

		if got := installs(t, c, otherAt); got.InstallImage != image {
			t.Errorf("it names %q", got.InstallImage)
		}
	})
}

func TestControlPlaneTellsTheQuotaOfEtcd(t *testing.T) {
	for value, want := range map[string]int64{
		"": 0, `"4294967296"`: 4 << 30, "4294967296": 4 << 30, "0x100": 256, `["1", "2"]`: 2, `"-1"`: 1 << 56, "much": 0, "[]": 0,
	} {
		inCluster(t, model.Options{}, func(s *ports.Cluster, c *ports.Client) {
			if value != "" {
				byHand(t, s, "cp-0", "cluster:\n", "cluster:\n  etcd:\n    extraArgs:\n      quota-backend-bytes: "+value+"\n")
			}

			if got := installs(t, c, firstAt).EtcdQuota; got != want {
				t.Errorf("%q: got %d, want %d", value, got, want)
			}
		})
	}
}

func TestNodeTellsWhoCordonedItAndWhatPressesIt(t *testing.T) {
	disk := []model.Fault{{Node: "worker-1", Step: model.StepDisk, Effect: model.EffectPressure}}

	inCluster(t, model.Options{Faults: disk}, func(s *ports.Cluster, c *ports.Client) {
		if got := kubeNode(t, c, "worker-1").Pressure; !slices.Equal(got, []string{"DiskPressure"}) {
			t.Errorf("worker-1 complains of %q", got)
		}

		if got := kubeNode(t, c, "worker-0").Pressure; len(got) != 0 {
			t.Errorf("worker-0 complains of %q", got)
		}

		s.World().SetFaults(nil)
		time.Sleep(time.Minute)

		if got := kubeNode(t, c, "worker-1").Pressure; len(got) != 0 {
			t.Errorf("worker-1 still complains of %q", got)
		}

		if err := s.World().UpgradeByHand("worker-0", image); err != nil {
			t.Fatal(err)
		}

		var during bool

		for range 200 {
			node := kubeNode(t, c, "worker-0")
			during = during || node.CordonedByTalos && node.Unschedulable

			time.Sleep(time.Second)
		}

		if after := kubeNode(t, c, "worker-0"); !during || after.CordonedByTalos || after.Unschedulable {
			t.Errorf("cordoned by the machine meanwhile: %t, and then %+v", during, after)
		}

		if err := s.CordonAsPerson("worker-1", true); err != nil {
			t.Fatal(err)
		}

		if kubeNode(t, c, "worker-1").CordonedByTalos {
			t.Error("the cordon of a person counts as the machine's")
		}
	})
}

// leaveTheMark has a person uncordon a node whose machine upgrades, and waits
// until that upgrade is over.
func leaveTheMark(t *testing.T, s *ports.Cluster, c *ports.Client, node string) {
	t.Helper()

	if err := s.World().UpgradeByHand(node, image); err != nil {
		t.Fatal(err)
	}

	for range 60 {
		if kubeNode(t, c, node).CordonedByTalos {
			break
		}

		time.Sleep(time.Second)
	}

	if err := s.CordonAsPerson(node, false); err != nil {
		t.Fatal(err)
	}

	time.Sleep(10 * time.Minute)
}

// TestMarkOfAMachineOutlivesItsCordon: kubectl uncordon leaves the annotation, and
// whoever cordons the node next finds it there.
func TestMarkOfAMachineOutlivesItsCordon(t *testing.T) {
	for name, test := range map[string]struct {
		cordon  func(*ports.Cluster, *ports.Client) error
		machine bool
		by      string
	}{
		"a person": {cordon: func(s *ports.Cluster, _ *ports.Client) error { return s.CordonAsPerson("worker-0", true) }, machine: true},
		"a run of ours": {cordon: func(_ *ports.Cluster, c *ports.Client) error {
			_, err := c.Cordon(context.Background(), "worker-0", "run-1")

			return err
		}, by: "run-1"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, model.Options{}, func(s *ports.Cluster, c *ports.Client) {
				leaveTheMark(t, s, c, "worker-0")

				if node := kubeNode(t, c, "worker-0"); node.Unschedulable || node.CordonedByTalos {
					t.Fatalf("after the upgrade %+v", node)
				}

				if err := test.cordon(s, c); err != nil {
					t.Fatal(err)
				}

				if node := kubeNode(t, c, "worker-0"); !node.Unschedulable || node.CordonedByTalos != test.machine || node.CordonedBy != test.by {
					t.Errorf("cordoned %+v, want by the machine %t, by %q", node, test.machine, test.by)
				}

				// At the end of the next one the machine lifts what it takes for its own.
				if err := s.World().UpgradeByHand("worker-0", image); err != nil {
					t.Fatal(err)
				}

				time.Sleep(10 * time.Minute)

				if node := kubeNode(t, c, "worker-0"); node.Unschedulable == test.machine || node.CordonedByTalos {
					t.Errorf("after another boot %+v", node)
				}
			})
		})
	}
}

func TestMachineThatDoesNotTellHowItBooted(t *testing.T) {
	unread := []model.Fault{{Node: "worker-0", Step: model.StepSecurityState, Effect: model.EffectUnreadable}}

	inCluster(t, model.Options{SecureBoot: true, Faults: unread}, func(_ *ports.Cluster, c *ports.Client) {
		for address, unknown := range map[string]bool{workerAt: true, firstAt: false} {
			machine, err := c.Machine(context.Background(), address, nil)
			if err != nil || machine.BootUnknown != unknown || machine.SecureBoot == unknown {
				t.Errorf("%s says secure boot %t, unknown %t, %v", address, machine.SecureBoot, machine.BootUnknown, err)
			}
		}
	})
}
