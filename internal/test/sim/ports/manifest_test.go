// SPDX-License-Identifier: MPL-2.0

package ports_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	proxyTo     = "registry.k8s.io/kube-proxy:v" + wanted
	proxyObject = "DaemonSet/kube-system/kube-proxy"
)

// renderNewProxy makes every control plane render another kube-proxy.
func renderNewProxy(t *testing.T, c *ports.Client) {
	t.Helper()

	for _, address := range []string{firstAt, "10.5.0.3", thirdAt} {
		if err := c.Configure(context.Background(), address, from(cluster.Proxy, proxyTo)); err != nil {
			t.Fatal(err)
		}
	}
}

func actions(changes []cluster.ManifestChange) map[string]cluster.ManifestAction {
	found := map[string]cluster.ManifestAction{}
	for _, change := range changes {
		found[change.Object] = change.Action
	}

	return found
}

func TestManifest_IsDueWhenTheRenderedChanges(t *testing.T) {
	inCluster(t, on134(), func(s *ports.Cluster, c *ports.Client) {
		ctx := context.Background()
		options := cluster.ManifestOptions{ServerSide: true}

		if changes, err := c.Diff(ctx, firstAt, options); err != nil || len(changes) != 0 {
			t.Fatalf("at rest: %+v, %v", changes, err)
		}

		renderNewProxy(t, c)

		before := s.Rendered()

		changes, err := c.Diff(ctx, firstAt, options)
		if err != nil || !maps.Equal(actions(changes), map[string]cluster.ManifestAction{proxyObject: cluster.ManifestConfigured}) {
			t.Fatalf("got %+v, %v, want one change", changes, err)
		}

		if !strings.Contains(changes[0].Diff, "+        image: "+proxyTo) {
			t.Errorf("the difference is %q", changes[0].Diff)
		}

		if after := s.Rendered(); !maps.Equal(after, before) {
			t.Errorf("comparing changed %v to %v", before, after)
		}

		if pod, _ := componentPod(t, c, "worker-0", cluster.Proxy); strings.Contains(pod.Image, wanted) {
			t.Errorf("the pod moved with its configuration: %+v", pod)
		}
	})
}

func TestManifest_ProxyIsRolledOutNodeByNode(t *testing.T) {
	inCluster(t, on134(), func(s *ports.Cluster, c *ports.Client) {
		ctx := context.Background()
		renderNewProxy(t, c)

		if _, err := c.Apply(ctx, firstAt, cluster.ManifestOptions{ServerSide: true}); err != nil {
			t.Fatal(err)
		}

		var rolled int

		for range 400 {
			lacking, err := c.Unready(ctx, firstAt)
			if err != nil {
				t.Fatal(err)
			}

			if len(lacking) == 0 {
				break
			}

			away := 0

			for _, node := range []string{"cp-0", "cp-1", "cp-2", "worker-0", "worker-1"} {
				if pod, _ := componentPod(t, c, node, cluster.Proxy); !pod.Ready {
					away++
				}
			}

			if away > 1 {
				t.Fatalf("%d pods were away at a time", away)
			}

			rolled++

			time.Sleep(307 * time.Millisecond)
		}

		if rolled < 20 {
			t.Errorf("the rollout was seen %d times, want seconds for each node", rolled)
		}

		for _, node := range []string{"cp-0", "worker-1"} {
			state, err := s.World().Node(node)
			if err != nil {
				t.Fatal(err)
			}

			pod, _ := componentPod(t, c, node, cluster.Proxy)
			if pod.Image != proxyTo || !pod.Ready || state.Components.Proxy != wanted {
				t.Errorf("%s: %+v, the model says %s", node, pod, state.Components.Proxy)
			}
		}

		if changes, err := c.Apply(ctx, firstAt, cluster.ManifestOptions{ServerSide: true}); err != nil || len(changes) != 0 {
			t.Errorf("a second sync: %+v, %v, want no change", changes, err)
		}
	})
}

// TestManifest_ControllerTakesNoticeALittleLater keeps runs reproducible: if the pod changed at the instant of its
// manifest, it would depend on the scheduler whether the change is observed.
func TestManifest_ControllerTakesNoticeALittleLater(t *testing.T) {
	inCluster(t, on134(), func(_ *ports.Cluster, c *ports.Client) {
		renderNewProxy(t, c)

		if _, err := c.Apply(context.Background(), firstAt, cluster.ManifestOptions{ServerSide: true}); err != nil {
			t.Fatal(err)
		}

		synctest.Wait()

		if pod, _ := componentPod(t, c, "cp-0", cluster.Proxy); pod.Image == proxyTo {
			t.Error("the pod was replaced at once")
		}

		time.Sleep(time.Second)

		if pod, _ := componentPod(t, c, "cp-0", cluster.Proxy); pod.Image != proxyTo {
			t.Errorf("after a second the pod has %s", pod.Image)
		}
	})
}

func TestManifest_RolloutWaitsForANodeThatIsAway(t *testing.T) {
	inCluster(t, on134(), func(_ *ports.Cluster, c *ports.Client) {
		ctx := context.Background()
		renderNewProxy(t, c)

		if err := c.Reboot(ctx, workerAt, cluster.RebootDefault); err != nil {
			t.Fatal(err)
		}

		time.Sleep(20 * time.Second)

		if _, err := c.Apply(ctx, firstAt, cluster.ManifestOptions{}); err != nil {
			t.Fatal(err)
		}

		time.Sleep(15 * time.Second)

		if pod, _ := componentPod(t, c, "cp-0", cluster.Proxy); pod.Image == proxyTo {
			t.Errorf("%+v moved although a node is away", pod)
		}

		time.Sleep(5 * time.Minute)

		if lacking, err := c.Unready(ctx, firstAt); err != nil || len(lacking) != 0 {
			t.Errorf("once the node is back: %q, %v", lacking, err)
		}
	})
}

func TestManifest_NewerRolloutTakesOver(t *testing.T) {
	inCluster(t, on134(), func(_ *ports.Cluster, c *ports.Client) {
		ctx := context.Background()
		renderNewProxy(t, c)

		if _, err := c.Apply(ctx, firstAt, cluster.ManifestOptions{}); err != nil {
			t.Fatal(err)
		}

		time.Sleep(6 * time.Second)

		back := cluster.ImageChange{Component: cluster.Proxy, From: proxyTo, To: "registry.k8s.io/kube-proxy:v1.35.3"}
		if err := c.Configure(ctx, firstAt, back); err != nil {
			t.Fatal(err)
		}

		if _, err := c.Apply(ctx, firstAt, cluster.ManifestOptions{}); err != nil {
			t.Fatal(err)
		}

		time.Sleep(2 * time.Minute)

		for _, node := range []string{"cp-0", "cp-2", "worker-1"} {
			if pod, _ := componentPod(t, c, node, cluster.Proxy); pod.Image != back.To {
				t.Errorf("%s: %+v, want %s", node, pod, back.To)
			}
		}
	})
}

func TestManifest_CoreDNSFollowsTalos(t *testing.T) {
	inCluster(t, on134(func(o *model.Options) { o.Talos = "1.12.6" }), func(s *ports.Cluster, c *ports.Client) {
		ctx := context.Background()

		if _, err := c.Upgrade(ctx, firstAt, image, cluster.RebootDefault, nil); err != nil {
			t.Fatal(err)
		}

		time.Sleep(5 * time.Minute)

		changes, err := c.Apply(ctx, firstAt, cluster.ManifestOptions{})
		if err != nil || !maps.Equal(actions(changes), map[string]cluster.ManifestAction{"Deployment/kube-system/coredns": cluster.ManifestConfigured}) {
			t.Fatalf("got %+v, %v, want CoreDNS", changes, err)
		}

		if lacking, err := c.Unready(ctx, firstAt); err != nil || len(lacking) != 1 {
			t.Errorf("right afterwards: %q, %v, want CoreDNS", lacking, err)
		}

		time.Sleep(30 * time.Second)

		if lacking, err := c.Unready(ctx, firstAt); err != nil || len(lacking) != 0 {
			t.Errorf("half a minute later: %q, %v", lacking, err)
		}

		if state, err := s.World().Node("cp-0"); err != nil || s.Rendered()["Deployment/kube-system/coredns"] != state.CoreDNSImage {
			t.Errorf("%v, want %s", s.Rendered(), state.CoreDNSImage)
		}
	})
}

func TestManifest_OnlyPruningDeletes(t *testing.T) {
	const old = "ConfigMap/kube-system/left-over"

	for name, given := range map[string]struct {
		options cluster.ManifestOptions
		stays   bool
	}{
		"without pruning":              {cluster.ManifestOptions{ServerSide: true}, true},
		"pruning without an inventory": {cluster.ManifestOptions{Prune: true}, true},
		"pruning":                      {cluster.ManifestOptions{ServerSide: true, Prune: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, on134(), func(s *ports.Cluster, c *ports.Client) {
				s.AddOldObject(old)

				planned, err := c.Diff(context.Background(), firstAt, given.options)
				if err != nil {
					t.Fatal(err)
				}

				applied, err := c.Apply(context.Background(), firstAt, given.options)
				if err != nil || !slices.Equal(applied, planned) {
					t.Errorf("applied %+v, %v, planned %+v", applied, err, planned)
				}

				if _, stays := s.Rendered()[old]; stays != given.stays {
					t.Errorf("the object is there: %t, want %t", stays, given.stays)
				}
			})
		})
	}
}

func TestManifest_ComesFromAControlPlaneThatAnswers(t *testing.T) {
	inCluster(t, on134(), func(_ *ports.Cluster, c *ports.Client) {
		_, err := c.Diff(context.Background(), workerAt, cluster.ManifestOptions{})
		means(t, err, cluster.ErrNotFound)

		_, err = c.Apply(context.Background(), "10.5.0.99", cluster.ManifestOptions{})
		means(t, err, cluster.ErrUnreachable)
	})
}

func TestRemoval_FindsThoseOfThePath(t *testing.T) {
	flag := cluster.Removal{Kind: "flag", Name: "pod-infra-container-image", Address: workerAt, Component: cluster.Kubelet, In: version.MustParse("1.35.0")}
	api := cluster.Removal{Kind: "API", Name: "workloads.v1alpha2.scheduling.k8s.io", Objects: 3, In: version.MustParse("1.36.0")}

	for name, given := range map[string]struct {
		from, to string
		workers  []string
		want     []string
	}{
		"of the next minor": {runs, wanted, []string{workerAt}, []string{flag.Name}},
		"of another node":   {runs, wanted, []string{"10.5.0.6"}, nil},
		"of a later minor":  {wanted, "1.36.0", []string{workerAt}, []string{api.Name}},
		"of a patch":        {wanted, "1.35.9", []string{workerAt}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, on134(), func(s *ports.Cluster, c *ports.Client) {
				s.SetRemovals([]cluster.Removal{flag, api})

				found, err := c.Removals(context.Background(), version.MustParse(given.from), version.MustParse(given.to), []string{firstAt}, given.workers)
				if err != nil {
					t.Fatal(err)
				}

				var names []string
				for _, removal := range found {
					names = append(names, removal.Name)
				}

				if !slices.Equal(names, given.want) {
					t.Errorf("got %v, want %v", names, given.want)
				}
			})
		})
	}
}
