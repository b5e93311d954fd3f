// SPDX-License-Identifier: MPL-2.0

package ports_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// installs returns what a machine says about the image to install from.
func installs(t *testing.T, c *ports.Client, address string) *cluster.MachineConfig {
	t.Helper()

	machine, err := c.Machine(context.Background(), address, nil, cluster.Everything)
	if err != nil || machine.Config == nil {
		t.Fatalf("got %+v, %v", machine, err)
	}

	return machine.Config
}

func TestConfigure_NamesAnotherImageToInstallFrom(t *testing.T) {
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

	machine, err := c.Machine(context.Background(), address, nil, cluster.Everything)
	if err != nil {
		t.Fatal(err)
	}

	return machine.BootID
}

func TestConfigure_ImageToInstallFromNeedsAPlace(t *testing.T) {
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

func TestTalos_ControlPlaneTellsTheQuotaOfEtcd(t *testing.T) {
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

func TestNode_TellsWhoCordonedItAndItsPressure(t *testing.T) {
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

// leaveTheMark makes a person uncordon a node while its machine upgrades, and waits until that upgrade is over.
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

// TestNode_MarkOfAMachineOutlivesItsCordon: kubectl uncordon leaves the annotation, which is still there at the
// next cordon of the node.
func TestNode_MarkOfAMachineOutlivesItsCordon(t *testing.T) {
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

				// At the end of the next upgrade, the machine lifts the cordon if the annotation is there.
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

func TestTalos_MachineThatDoesNotTellHowItBooted(t *testing.T) {
	unread := []model.Fault{{Node: "worker-0", Step: model.StepSecurityState, Effect: model.EffectUnreadable}}

	inCluster(t, model.Options{SecureBoot: true, Faults: unread}, func(_ *ports.Cluster, c *ports.Client) {
		for address, unknown := range map[string]bool{workerAt: true, firstAt: false} {
			machine, err := c.Machine(context.Background(), address, nil, cluster.Everything)
			if err != nil || machine.BootUnknown != unknown || machine.SecureBoot == unknown {
				t.Errorf("%s says secure boot %t, unknown %t, %v", address, machine.SecureBoot, machine.BootUnknown, err)
			}
		}
	})
}

const (
	runs      = "1.34.1"
	wanted    = "1.35.2"
	thirdAt   = "10.5.0.4"
	kubeletTo = "ghcr.io/siderolabs/kubelet:v" + wanted
	serverTo  = "registry.k8s.io/kube-apiserver:v" + wanted
)

// on134 returns the options of a cluster that runs an older Kubernetes than its Talos installs.
func on134(changes ...func(*model.Options)) model.Options {
	options := model.Options{Kubernetes: runs}
	for _, change := range changes {
		change(&options)
	}

	return options
}

func from(component cluster.Component, to string) cluster.ImageChange {
	repository := "registry.k8s.io/" + string(component)
	if component == cluster.Kubelet {
		repository = "ghcr.io/siderolabs/kubelet"
	}

	return cluster.ImageChange{Component: component, From: repository + ":v" + runs, To: to}
}

// config returns the stored configuration of a machine.
func config(t *testing.T, s *ports.Cluster, name string) string {
	t.Helper()

	text, err := s.World().MachineConfig(name)
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

// changedLines returns the lines that only one of two texts has.
func changedLines(before, after string) (gone, added []string) {
	old, now := strings.Split(before, "\n"), strings.Split(after, "\n")
	only := func(lines, others []string) []string {
		return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return slices.Contains(others, line) })
	}

	return only(old, now), only(now, old)
}

func TestConfigure_ChangesOneLine(t *testing.T) {
	unpinned := func(o *model.Options) { o.Unpinned, o.Kubernetes = true, "" }
	documents := func(o *model.Options) { o.Talos, o.Documents = "1.14.1", true }
	quoted := "  kubelet:\n    image: "

	for name, given := range map[string]struct {
		options model.Options
		address string
		node    string
		change  cluster.ImageChange
		prepare func(*testing.T, *ports.Cluster)
		gone    []string
		added   []string
	}{
		"an image with a comment behind it": {
			options: on134(), address: workerAt, node: "worker-0", change: from(cluster.Kubelet, kubeletTo),
			gone:  []string{"    image: ghcr.io/siderolabs/kubelet:v1.34.1 # Changed together with the control plane."},
			added: []string{"    image: ghcr.io/siderolabs/kubelet:v1.35.2 # Changed together with the control plane."},
		},
		"an image in quotes": {
			options: on134(), address: workerAt, node: "worker-0", change: from(cluster.Kubelet, kubeletTo),
			prepare: func(t *testing.T, s *ports.Cluster) {
				t.Helper()
				byHand(t, s, "worker-0", quoted+"ghcr.io/siderolabs/kubelet:v1.34.1 #", quoted+`"ghcr.io/siderolabs/kubelet:v1.34.1" #`)
			},
			gone:  []string{`    image: "ghcr.io/siderolabs/kubelet:v1.34.1" # Changed together with the control plane.`},
			added: []string{"    image: ghcr.io/siderolabs/kubelet:v1.35.2 # Changed together with the control plane."},
		},
		"a control plane": {
			options: on134(), address: firstAt, node: "cp-0", change: from(cluster.APIServer, serverTo),
			gone:  []string{"    image: registry.k8s.io/kube-apiserver:v1.34.1"},
			added: []string{"    image: " + serverTo},
		},
		"a section with other fields": {
			options: on134(unpinned), address: firstAt, node: "cp-0",
			change: cluster.ImageChange{Component: cluster.APIServer, To: serverTo}, added: []string{"    image: " + serverTo},
		},
		"an empty section": {
			options: on134(unpinned), address: firstAt, node: "cp-0",
			change: cluster.ImageChange{Component: cluster.Scheduler, To: "registry.k8s.io/kube-scheduler:v" + wanted},
			gone:   []string{"  scheduler: {}"},
			added:  []string{`  scheduler: {image: "registry.k8s.io/kube-scheduler:v` + wanted + `"}`},
		},
		"a section between braces": {
			options: on134(unpinned), address: firstAt, node: "cp-0",
			change: cluster.ImageChange{Component: cluster.Scheduler, To: "registry.k8s.io/kube-scheduler:v" + wanted},
			prepare: func(t *testing.T, s *ports.Cluster) {
				t.Helper()
				byHand(t, s, "cp-0", "  scheduler: {}\n", "  scheduler: {extraArgs: {v: '2'}} # Verbose.\n")
			},
			gone:  []string{"  scheduler: {extraArgs: {v: '2'}} # Verbose."},
			added: []string{`  scheduler: {image: "registry.k8s.io/kube-scheduler:v` + wanted + `", extraArgs: {v: '2'}} # Verbose.`},
		},
		"a section without content": {
			options: on134(unpinned), address: firstAt, node: "cp-0",
			change: cluster.ImageChange{Component: cluster.Scheduler, To: "registry.k8s.io/kube-scheduler:v" + wanted},
			prepare: func(t *testing.T, s *ports.Cluster) {
				t.Helper()
				byHand(t, s, "cp-0", "  scheduler: {}\n", "  scheduler:\n")
			},
			added: []string{"    image: registry.k8s.io/kube-scheduler:v" + wanted},
		},
		"a section that is not there": {
			options: on134(unpinned), address: firstAt, node: "cp-0",
			change: cluster.ImageChange{Component: cluster.Scheduler, To: "registry.k8s.io/kube-scheduler:v" + wanted},
			prepare: func(t *testing.T, s *ports.Cluster) {
				t.Helper()
				byHand(t, s, "cp-0", "  scheduler: {}\n", "")
			},
			added: []string{"  scheduler:", "    image: registry.k8s.io/kube-scheduler:v" + wanted},
		},
		"a document": {
			options: on134(documents), address: workerAt, node: "worker-0", change: from(cluster.Kubelet, kubeletTo),
			gone:  []string{"image: ghcr.io/siderolabs/kubelet:v1.34.1 # Changed together with the control plane."},
			added: []string{"image: ghcr.io/siderolabs/kubelet:v1.35.2 # Changed together with the control plane."},
		},
		"a document that names none": {
			options: on134(documents, unpinned), address: workerAt, node: "worker-0",
			change: cluster.ImageChange{Component: cluster.Kubelet, To: kubeletTo}, added: []string{"image: " + kubeletTo},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, given.options, func(s *ports.Cluster, c *ports.Client) {
				if given.prepare != nil {
					given.prepare(t, s)
				}

				before := config(t, s, given.node)

				if err := c.Configure(context.Background(), given.address, given.change); err != nil {
					t.Fatal(err)
				}

				gone, added := changedLines(before, config(t, s, given.node))
				if !slices.Equal(gone, given.gone) || !slices.Equal(added, given.added) {
					t.Errorf("took away %q and added %q, want %q and %q", gone, added, given.gone, given.added)
				}

				machine, err := c.Machine(context.Background(), given.address, nil, cluster.Everything)
				if err != nil || machine.Config.Images[given.change.Component] != given.change.To {
					t.Errorf("the machine says %+v, %v", machine.Config, err)
				}
			})
		})
	}
}

// byHand makes a person change the configuration of a machine.
func byHand(t *testing.T, s *ports.Cluster, node, old, changed string) {
	t.Helper()

	err := s.World().SetConfigByHand(node, func(text string) (string, error) {
		if !strings.Contains(text, old) {
			t.Errorf("the configuration of %s has no %q:\n%s", node, old, text)
		}

		return strings.Replace(text, old, changed, 1), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestConfigure_RefusesWhatItMustNotWrite(t *testing.T) {
	ctx := context.Background()
	struck := func(effect model.Effect) []model.Fault {
		return []model.Fault{{Node: model.AnyNode, Step: model.StepApply, Effect: effect, Times: 1}}
	}

	for name, given := range map[string]struct {
		options model.Options
		address string
		change  cluster.ImageChange
		roles   []string
		want    []error
		wrote   bool
	}{
		"another image than the one expected": {
			address: workerAt, change: cluster.ImageChange{Component: cluster.Kubelet, From: "ghcr.io/siderolabs/kubelet:v1.33.0", To: kubeletTo},
			want: []error{cluster.ErrConflict},
		},
		"an image where none was expected": {
			address: workerAt, change: cluster.ImageChange{Component: cluster.Kubelet, To: kubeletTo}, want: []error{cluster.ErrConflict},
		},
		"a configuration that the node refuses": {
			options: on134(func(o *model.Options) { o.Faults = struck(model.EffectFail) }),
			address: workerAt, change: from(cluster.Kubelet, kubeletTo), want: []error{cluster.ErrRefused},
		},
		"while another one is applied": {
			options: on134(func(o *model.Options) { o.Faults = struck(model.EffectBusy) }),
			address: workerAt, change: from(cluster.Kubelet, kubeletTo), want: []error{cluster.ErrBusy},
		},
		"a reply that is lost": {
			options: on134(func(o *model.Options) { o.Faults = struck(model.EffectConnectionLost) }),
			address: workerAt, change: from(cluster.Kubelet, kubeletTo), wrote: true,
			want: []error{cluster.ErrOutcomeUnknown, cluster.ErrUnreachable},
		},
		"somebody else writes right afterwards": {
			options: on134(func(o *model.Options) { o.Faults = struck(model.EffectOverwritten) }),
			address: workerAt, change: from(cluster.Kubelet, kubeletTo), want: []error{cluster.ErrConflict},
		},
		"without the role of an administrator": {
			address: workerAt, change: from(cluster.Kubelet, kubeletTo), roles: []string{"os:reader"}, want: []error{cluster.ErrDenied},
		},
		"what no configuration names": {
			address: workerAt, change: cluster.ImageChange{Component: cluster.Manifests, To: serverTo}, want: []error{cluster.ErrRefused},
		},
		"nobody there": {
			address: "10.5.0.99", change: from(cluster.Kubelet, kubeletTo), want: []error{cluster.ErrUnreachable},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if given.options.Kubernetes == "" {
				given.options = on134()
			}

			inCluster(t, given.options, func(s *ports.Cluster, c *ports.Client) {
				if given.roles != nil {
					c.WithRoles(given.roles...)
				}

				means(t, c.Configure(ctx, given.address, given.change), given.want...)

				if wrote := strings.Contains(config(t, s, "worker-0"), kubeletTo); wrote != given.wrote {
					t.Errorf("the configuration names the image: %t, want %t", wrote, given.wrote)
				}
			})
		})
	}
}

func TestConfigure_DoesNothingTwice(t *testing.T) {
	inCluster(t, on134(), func(_ *ports.Cluster, c *ports.Client) {
		ctx := context.Background()

		if err := c.Configure(ctx, workerAt, from(cluster.Kubelet, kubeletTo)); err != nil {
			t.Fatal(err)
		}

		time.Sleep(3 * time.Minute)

		before, err := c.Component(ctx, workerAt, cluster.Kubelet)
		if err != nil || !before.Healthy || before.Image != kubeletTo {
			t.Fatalf("got %+v, %v, want a healthy kubelet from the new image", before, err)
		}

		if err := c.Configure(ctx, workerAt, from(cluster.Kubelet, kubeletTo)); err != nil {
			t.Fatal(err)
		}

		time.Sleep(10 * time.Second)

		if after, err := c.Component(ctx, workerAt, cluster.Kubelet); err != nil || after != before {
			t.Errorf("got %+v, %v, want %+v", after, err, before)
		}
	})
}

// TestComponent_KubeletRegistersBeforeItsNodeIsReady: version and readiness are reported separately.
func TestComponent_KubeletRegistersBeforeItsNodeIsReady(t *testing.T) {
	inCluster(t, on134(), func(_ *ports.Cluster, c *ports.Client) {
		ctx := context.Background()

		if err := c.PullComponent(ctx, workerAt, cluster.Kubelet, kubeletTo); err != nil {
			t.Fatal(err)
		}

		before, err := c.Component(ctx, workerAt, cluster.Kubelet)
		if err != nil || !before.Running || !before.Healthy || before.Since.IsZero() {
			t.Fatalf("at rest: %+v, %v", before, err)
		}

		if err := c.Configure(ctx, workerAt, from(cluster.Kubelet, kubeletTo)); err != nil {
			t.Fatal(err)
		}

		var away, unready bool

		for range 60 {
			status, err := c.Component(ctx, workerAt, cluster.Kubelet)
			if err != nil {
				t.Fatal(err)
			}

			away = away || !status.Running && status.Since.IsZero()

			switch node := kubeNode(t, c, "worker-0"); {
			case node.Ready && node.Kubelet.String() == wanted && !unready:
				t.Fatalf("the new kubelet is ready at once: %+v", node)
			case !node.Ready && (node.Kubelet.String() != wanted || node.ReadyReason != "KubeletNotReady"):
				t.Fatalf("a restart of seconds was noticed: %+v", node)
			case !node.Ready:
				unready = true
			}

			time.Sleep(311 * time.Millisecond)
		}

		after, err := c.Component(ctx, workerAt, cluster.Kubelet)
		if err != nil || !away || !after.Healthy || !after.Since.After(before.Since) {
			t.Errorf("got %+v, %v after being away (%t), want a new and healthy service", after, err, away)
		}

		if node := kubeNode(t, c, "worker-0"); node.Kubelet.String() != wanted || !node.Ready {
			t.Errorf("the node reports kubelet %s, ready %t", node.Kubelet, node.Ready)
		}
	})
}

func TestComponent_NewKubeletMayStayNotReady(t *testing.T) {
	faults := func(o *model.Options) {
		o.Faults = []model.Fault{{Node: "worker-0", Step: model.StepKubeletRestart, Effect: model.EffectNotReady, Times: 1}}
	}

	inCluster(t, on134(faults), func(s *ports.Cluster, c *ports.Client) {
		ctx := context.Background()

		if err := c.Configure(ctx, workerAt, from(cluster.Kubelet, kubeletTo)); err != nil {
			t.Fatal(err)
		}

		time.Sleep(10 * time.Minute)

		if status, err := c.Component(ctx, workerAt, cluster.Kubelet); err != nil || !status.Healthy {
			t.Errorf("the kubelet: %+v, %v, want it healthy", status, err)
		}

		if node := kubeNode(t, c, "worker-0"); node.Ready || node.ReadyReason != "KubeletNotReady" || node.Kubelet.String() != wanted {
			t.Errorf("the node: %+v, want it not ready with the new kubelet", node)
		}

		s.World().SetFaults(nil)

		if node := kubeNode(t, c, "worker-0"); !node.Ready {
			t.Errorf("the node once the script is replaced: %+v", node)
		}
	})
}

func TestConfigure_UndoesNothingThatIsStagedOrTried(t *testing.T) {
	for mode, want := range map[model.ApplyMode][]error{
		model.ApplyNoReboot: nil,
		model.ApplyStaged:   {cluster.ErrConflict},
		model.ApplyTry:      {cluster.ErrConflict},
	} {
		t.Run(string(mode), func(t *testing.T) {
			inCluster(t, on134(), func(s *ports.Cluster, c *ports.Client) {
				ctx := context.Background()

				if _, err := s.World().ApplyConfig(ctx, workerAt, []byte(config(t, s, "worker-0")+"# by hand\n"), mode, false); err != nil {
					t.Fatal(err)
				}

				means(t, c.Configure(ctx, workerAt, from(cluster.Kubelet, kubeletTo)), want...)
			})
		})
	}
}

func TestComponent_DisabledRunsNowhere(t *testing.T) {
	for name, documents := range map[string]bool{"v1alpha1": false, "documents": true} {
		t.Run(name, func(t *testing.T) {
			off := func(o *model.Options) {
				o.DisabledComponents = []string{model.SchedulerName}
				if o.Documents = documents; documents {
					o.Talos = "1.14.1"
				}
			}

			inCluster(t, on134(off), func(_ *ports.Cluster, c *ports.Client) {
				ctx := context.Background()

				_, err := c.Component(ctx, firstAt, cluster.Scheduler)
				means(t, err, cluster.ErrNotFound)

				machine, err := c.Machine(ctx, firstAt, nil, cluster.Everything)
				if err != nil || !machine.Config.Disabled[cluster.Scheduler] || len(machine.Config.Disabled) != 1 || machine.Config.Images[cluster.Scheduler] == "" {
					t.Errorf("got %+v, %v, want the scheduler disabled with its image", machine.Config, err)
				}

				pods, err := c.ComponentPods(ctx)
				if err != nil {
					t.Fatal(err)
				}

				for _, pod := range pods {
					if pod.Component == cluster.Scheduler {
						t.Errorf("there is a pod of it: %+v", pod)
					}
				}
			})
		})
	}
}

func TestComponent_IsWhatTheMachineKnowsOfIt(t *testing.T) {
	for name, given := range map[string]struct {
		address   string
		component cluster.Component
		disabled  bool
		image     string
		want      []error
	}{
		"a static pod":                 {firstAt, cluster.Scheduler, false, "registry.k8s.io/kube-scheduler:v" + runs, nil},
		"a static pod on a worker":     {workerAt, cluster.APIServer, false, "", []error{cluster.ErrNotFound}},
		"kube-proxy that is rendered":  {firstAt, cluster.Proxy, false, "registry.k8s.io/kube-proxy:v" + runs, nil},
		"kube-proxy that is disabled":  {firstAt, cluster.Proxy, true, "", []error{cluster.ErrNotFound}},
		"kube-proxy on a worker":       {workerAt, cluster.Proxy, false, "", []error{cluster.ErrNotFound}},
		"what is no part of a machine": {firstAt, cluster.Manifests, false, "", []error{cluster.ErrRefused}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, on134(func(o *model.Options) { o.ProxyDisabled = given.disabled }), func(_ *ports.Cluster, c *ports.Client) {
				status, err := c.Component(context.Background(), given.address, given.component)
				means(t, err, given.want...)

				if status.Image != given.image || len(given.want) == 0 && err != nil {
					t.Errorf("got %+v, %v, want %s", status, err, given.image)
				}
			})
		})
	}
}

func TestComponent_MissingImageIsNotPulled(t *testing.T) {
	inCluster(t, on134(), func(_ *ports.Cluster, c *ports.Client) {
		means(t, c.PullComponent(context.Background(), firstAt, cluster.APIServer, "registry.k8s.io/kube-apiserver:v1.99.0"), cluster.ErrNotFound)
	})
}
