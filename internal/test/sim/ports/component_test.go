// SPDX-License-Identifier: MPL-2.0

package ports_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

const (
	runs      = "1.34.1"
	wanted    = "1.35.2"
	thirdAt   = "10.5.0.4"
	kubeletTo = "ghcr.io/siderolabs/kubelet:v" + wanted
	serverTo  = "registry.k8s.io/kube-apiserver:v" + wanted
)

// on134 is a cluster that runs an older Kubernetes than its Talos installs.
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

// config is the stored configuration of a machine.
func config(t *testing.T, s *ports.Cluster, name string) string {
	t.Helper()

	text, err := s.World().MachineConfig(name)
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

// changedLines are the lines that only one of two texts has.
func changedLines(before, after string) (gone, added []string) {
	old, now := strings.Split(before, "\n"), strings.Split(after, "\n")
	only := func(lines, others []string) []string {
		return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return slices.Contains(others, line) })
	}

	return only(old, now), only(now, old)
}

func TestConfigureChangesOneLine(t *testing.T) {
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

				machine, err := c.Machine(context.Background(), given.address, nil)
				if err != nil || machine.Config.Images[given.change.Component] != given.change.To {
					t.Errorf("the machine says %+v, %v", machine.Config, err)
				}
			})
		})
	}
}

// byHand has a person change the configuration of a machine.
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

func TestConfigureRefusesWhatItMustNotWrite(t *testing.T) {
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
