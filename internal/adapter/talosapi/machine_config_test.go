// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestConfigure_UndoesNothingThatIsStagedOrTried(t *testing.T) {
	for name, test := range map[string]struct {
		talos string
		modes []model.ApplyMode
		want  string // part of the error, empty for none
	}{
		"nothing applied since the boot": {"1.13.4", nil, ""},
		"applied since the boot":         {"1.13.4", []model.ApplyMode{model.ApplyNoReboot}, ""},
		"staged":                         {"1.13.4", []model.ApplyMode{model.ApplyStaged}, "staged"},
		"tried":                          {"1.13.4", []model.ApplyMode{model.ApplyTry}, "reboot"},
		"tried on 1.14":                  {"1.14.0", []model.ApplyMode{model.ApplyTry}, "reboot"},
		"applied and tried":              {"1.13.4", []model.ApplyMode{model.ApplyNoReboot, model.ApplyTry}, "tried"},
		"tried and applied":              {"1.13.4", []model.ApplyMode{model.ApplyTry, model.ApplyNoReboot}, ""},
		"before it could be seen":        {"1.9.6", []model.ApplyMode{model.ApplyNoReboot}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, model.Options{Talos: test.talos, Kubernetes: "1.34.2"}, func(r *rig) {
				for _, mode := range test.modes {
					r.change("worker-0", mode)
				}

				err := r.client("").Configure(r.Context(), worker0, toNewKubelet())

				switch {
				case test.want == "" && err != nil:
					r.Errorf("%v, want it configured", err)
				case test.want == "":
					r.applies("worker-0", 1)
				case !errors.Is(err, cluster.ErrConflict) || !strings.Contains(err.Error(), test.want):
					r.Errorf("%v, want a conflict that says %q", err, test.want)
				default:
					r.applies("worker-0", 0)
				}
			})
		})
	}
}

// change applies a configuration, as somebody else does, with another meaning than the one in effect.
func (r *rig) change(node string, mode model.ApplyMode) {
	r.Helper()

	text := strings.Replace(r.config(node), "wipe: false", "wipe: true", 1)
	if text == r.config(node) {
		text = strings.Replace(text, "port: 7445", "port: 7446", 1)
	}

	if _, err := r.world.ApplyConfig(r.Context(), node, []byte(text), mode, false); err != nil {
		r.Fatal(err)
	}
}

// slowClient returns a client whose requests all take a while.
func (r *rig) slowClient(delay time.Duration) *talosapi.Client {
	r.Helper()

	text, err := r.server.Talosconfig()
	if err != nil {
		r.Fatal(err)
	}

	config, err := talosapi.ParseConfig(text, r.world.ClusterName())
	if err != nil {
		r.Fatal(err)
	}

	dial := r.server.Dialer()

	made, err := talosapi.New(config, talosapi.Options{UserAgent: "test", DialContext: func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, address)
		if err != nil {
			return nil, err
		}

		return slowConn{conn, delay}, nil
	}})
	if err != nil {
		r.Fatal(err)
	}

	r.Cleanup(func() {
		if err := made.Close(); err != nil {
			r.Error(err)
		}

		// Requests under way have to arrive before the end of the test.
		const most = 10

		<-time.After(most * delay)
	})

	return made
}

type slowConn struct {
	net.Conn

	delay time.Duration
}

func (c slowConn) Write(content []byte) (int, error) {
	<-time.After(c.delay)

	return c.Conn.Write(content)
}

// TestConfigure_StartsOverWhenSomebodyElseWrites: this client needs more than two seconds from its first look to its
// last one, and others need less than one to write.
func TestConfigure_StartsOverWhenSomebodyElseWrites(t *testing.T) {
	const delay = 700 * time.Millisecond

	same := func(old string) (string, error) { return old, nil }
	beside := func(old string) (string, error) { return strings.Replace(old, "wipe: false", "wipe: true", 1), nil }
	ours := func(old string) (string, error) { return strings.Replace(old, oldKubelet, newKubelet, 1), nil }
	other := func(old string) (string, error) {
		return strings.Replace(old, oldKubelet, "ghcr.io/siderolabs/kubelet:v1.34.9", 1), nil
	}

	for name, test := range map[string]struct {
		edit    func(string) (string, error)
		writes  int
		want    error
		applies int
	}{
		"nobody":          {nil, 0, nil, 1},
		"the same bytes":  {same, 1, nil, 1},
		"another field":   {beside, 1, nil, 1},
		"the same image":  {ours, 1, nil, 0},
		"another image":   {other, 1, cluster.ErrConflict, 0},
		"again and again": {same, 100, cluster.ErrConflict, 0},
		"a few times":     {beside, 5, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, model.Options{Talos: "1.13.4", Kubernetes: "1.34.2"}, func(r *rig) {
				c := r.slowClient(delay)
				r.component(c, worker0, cluster.Kubelet) // connects

				stop, stopped := make(chan struct{}), make(chan error, 1)

				go func() {
					// After the first look.
					<-time.After(delay)

					var err error

					for range test.writes {
						if err = r.world.SetConfigByHand("worker-0", test.edit); err != nil {
							break
						}

						select {
						case <-stop:
							stopped <- nil

							return
						default:
						}
					}

					stopped <- err
				}()

				err := c.Configure(r.Context(), worker0, toNewKubelet())
				close(stop)

				if failed := <-stopped; failed != nil {
					r.Fatal(failed)
				}

				if !errors.Is(err, test.want) {
					r.Errorf("%v, want %v", err, test.want)
				}

				r.applies("worker-0", test.applies)

				if test.want == nil && !strings.Contains(r.config("worker-0"), newKubelet) {
					r.Errorf("its image was not changed:\n%s", r.config("worker-0"))
				}

				if name == "another field" && !strings.Contains(r.config("worker-0"), "wipe: true") {
					r.Errorf("what the other changed is lost:\n%s", r.config("worker-0"))
				}
			})
		})
	}
}

const (
	oldKubelet   = "ghcr.io/siderolabs/kubelet:v1.34.2"
	newKubelet   = "ghcr.io/siderolabs/kubelet:v1.35.0"
	oldAPIServer = "registry.k8s.io/kube-apiserver:v1.34.2"
	newAPIServer = "registry.k8s.io/kube-apiserver:v1.35.0"

	applyCall = "/machine.MachineService/ApplyConfiguration"
)

func toNewKubelet() cluster.ImageChange {
	return cluster.ImageChange{Component: cluster.Kubelet, From: oldKubelet, To: newKubelet}
}

// config returns the machine configuration in the model.
func (r *rig) config(node string) string {
	r.Helper()

	state, err := r.world.Node(node)
	if err != nil {
		r.Fatal(err)
	}

	return string(state.Config)
}

// applies fails the test unless the node was sent that many configurations.
func (r *rig) applies(node string, want int) {
	r.Helper()

	if got := r.log.calls(node)[applyCall]; got != want {
		r.Errorf("%s was sent %d configurations, want %d", node, got, want)
	}
}

func TestConfigure_ChangesOneImageAndNothingElse(t *testing.T) {
	for name, options := range map[string]model.Options{
		"before 1.13":         {Talos: "1.12.6", Kubernetes: "1.34.2"},
		"1.13":                {Talos: "1.13.4", Kubernetes: "1.34.2"},
		"1.14 with v1alpha1":  {Talos: "1.14.0", Kubernetes: "1.34.2"},
		"1.14 with documents": {Talos: "1.14.0", Kubernetes: "1.34.2", Documents: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, options, func(r *rig) {
				c := r.client("")

				for node, change := range map[string]cluster.ImageChange{
					"worker-0": toNewKubelet(),
					"cp-0":     {Component: cluster.APIServer, From: oldAPIServer, To: newAPIServer},
				} {
					address := map[string]string{"worker-0": worker0, "cp-0": cp0}[node]
					before := r.config(node)

					for range 2 {
						if err := c.Configure(r.Context(), address, change); err != nil {
							r.Fatal(err)
						}
					}

					if got, want := r.config(node), strings.Replace(before, change.From, change.To, 1); got != want {
						r.Errorf("%s: the configuration became\n%s\nwant\n%s", node, got, want)
					}

					r.applies(node, 1)

					if got := r.machine(c, address).Config.Images[change.Component]; got != change.To {
						r.Errorf("%s: %s is read, want %s", node, got, change.To)
					}
				}
			})
		})
	}
}

func TestConfigure_PinsAnImageThatWasUnset(t *testing.T) {
	for name, options := range map[string]model.Options{
		"v1alpha1":  {Talos: "1.13.4", Unpinned: true},
		"documents": {Talos: "1.14.0", Unpinned: true, Documents: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, options, func(r *rig) {
				c := r.client("")

				for _, component := range cluster.Components(cluster.ControlPlane) {
					status, err := c.Component(r.Context(), cp0, component)
					if component == cluster.Proxy {
						status, err = cluster.ComponentStatus{Image: "registry.k8s.io/kube-proxy:v1.36.0"}, nil
					}

					if err != nil {
						r.Fatal(err)
					}

					if err := c.Configure(r.Context(), cp0, cluster.ImageChange{Component: component, To: status.Image}); err != nil {
						r.Errorf("%s: %v\n%s", component, err, r.config("cp-0"))

						continue
					}

					if got := r.machine(c, cp0).Config.Images[component]; got != status.Image {
						r.Errorf("%s: %q is pinned, want %q", component, got, status.Image)
					}
				}
			})
		})
	}
}

func TestConfigure_SendsNothingWhereItExpectedSomethingElse(t *testing.T) {
	inBubble(t, model.Options{Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")

		err := c.Configure(r.Context(), worker0, cluster.ImageChange{Component: cluster.Kubelet, From: newKubelet, To: "x:v1.36.0"})
		if !errors.Is(err, cluster.ErrConflict) || !strings.Contains(err.Error(), oldKubelet) {
			r.Errorf("another image: %v, want a conflict that names %s", err, oldKubelet)
		}

		if err := r.client("-operator").Configure(r.Context(), worker0, toNewKubelet()); !errors.Is(err, cluster.ErrDenied) {
			r.Errorf("an operator: %v, want it denied", err)
		}

		r.applies("worker-0", 0)
	})
}

// TestConfigure_NoticesAnotherWriter: a node with an old version accepts two configurations at a time, and the
// change of the first one is undone. A node takes between 0.5 and 0.9 seconds for one.
func TestConfigure_NoticesAnotherWriter(t *testing.T) {
	inBubble(t, model.Options{Talos: "1.12.6", Kubernetes: "1.34.2"}, func(r *rig) {
		written := make(chan error)

		go func() {
			written <- r.world.SetConfigByHand("worker-0", func(old string) (string, error) { return old + "# by hand\n", nil })
		}()

		between := time.NewTimer(450 * time.Millisecond)
		<-between.C

		err := r.client("").Configure(r.Context(), worker0, toNewKubelet())

		if failed := <-written; failed != nil {
			r.Fatal(failed)
		}

		if !errors.Is(err, cluster.ErrConflict) || !strings.Contains(err.Error(), "overwritten") {
			r.Errorf("%v, want a conflict that says what may be lost", err)
		}

		r.applies("worker-0", 1)
	})

	inBubble(t, model.Options{Kubernetes: "1.34.2"}, func(r *rig) {
		r.world.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepApply, Effect: model.EffectOverwritten, Times: 1}})

		if err := r.client("").Configure(r.Context(), worker0, toNewKubelet()); !errors.Is(err, cluster.ErrConflict) {
			r.Errorf("overwritten at once: %v, want a conflict", err)
		}
	})
}

func TestConfigure_NamesWhyANodeDidNotTakeIt(t *testing.T) {
	for effect, want := range map[model.Effect]error{
		model.EffectFail: cluster.ErrRefused,
		model.EffectBusy: cluster.ErrBusy,
	} {
		inBubble(t, model.Options{Talos: "1.13.4", Kubernetes: "1.34.2"}, func(r *rig) {
			c, before := r.client(""), r.config("worker-0")

			r.world.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepApply, Effect: effect, Times: 1}})

			if err := c.Configure(r.Context(), worker0, toNewKubelet()); !errors.Is(err, want) {
				r.Errorf("%s: %v, want %v", effect, err, want)
			}

			if after := r.config("worker-0"); after != before {
				r.Errorf("%s: the configuration changed:\n%s", effect, after)
			}

			if err := c.Configure(r.Context(), worker0, toNewKubelet()); err != nil {
				r.Errorf("%s: afterwards: %v", effect, err)
			}
		})
	}
}

func TestConfigure_LeavesTheOutcomeOpenWhenTheReplyIsLost(t *testing.T) {
	inBubble(t, model.Options{Talos: "1.13.4", Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")

		r.world.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepApply, Effect: model.EffectConnectionLost, Times: 1}})
		r.unknown("configure", c.Configure(r.Context(), worker0, toNewKubelet()))
		r.applies("worker-0", 1)

		if err := c.Configure(r.Context(), worker0, toNewKubelet()); err != nil {
			r.Errorf("afterwards: %v", err)
		}

		if !strings.Contains(r.config("worker-0"), newKubelet) {
			r.Error("the image was not changed in the end")
		}
	})
}
