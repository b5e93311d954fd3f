// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// noticeboard is a Kubernetes API with one object, whose annotations can be
// written.
type noticeboard struct {
	fakeHome

	mutex       sync.Mutex
	annotations map[string]any
	// others are patches of anything else.
	others int
}

// Object implements [cluster.ObjectAccess].
func (n *noticeboard) Object(context.Context, cluster.Reference) (map[string]any, error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()

	return annotated(maps.Clone(n.annotations)), nil
}

// PatchObject implements [cluster.ObjectAccess].
func (n *noticeboard) PatchObject(_ context.Context, of cluster.Reference, part string, patch map[string]any) (map[string]any, error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()

	metadata, is := patch["metadata"].(map[string]any)
	if !is || part != "" || of.Name != "prod" {
		n.others++

		return nil, cluster.ErrRefused
	}

	switch changes := metadata["annotations"].(type) {
	case map[string]any:
		n.write(changes)
	case map[string]*string:
		for key, value := range changes {
			if value == nil {
				delete(n.annotations, key)
			} else {
				n.annotations[key] = *value
			}
		}
	default:
		n.others++
	}

	return annotated(maps.Clone(n.annotations)), nil
}

func (n *noticeboard) write(changes map[string]any) {
	for key, value := range changes {
		if value == nil {
			delete(n.annotations, key)
		} else {
			n.annotations[key] = value
		}
	}
}

// leased is a cluster whose lease can be had.
type leased struct {
	*fakeCluster

	mutex  sync.Mutex
	stands cluster.Lease
}

// Lease implements [cluster.Kubernetes].
func (l *leased) Lease(context.Context) (cluster.Lease, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	return l.stands, nil
}

// WriteJournal implements [cluster.Kubernetes]: who has the lease says so there.
func (l *leased) WriteJournal(_ context.Context, journal cluster.Journal) (cluster.Journal, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	journal.ResourceVersion = "1"
	l.journal = journal

	return journal, nil
}

// WriteLease implements [cluster.Kubernetes].
func (l *leased) WriteLease(_ context.Context, lease cluster.Lease) (cluster.Lease, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	lease.ResourceVersion = "1"
	l.stands = lease

	return lease, nil
}

// beside is a provider instance that reaches only the cluster, and the board in a
// management cluster.
func beside(held *leased, board *noticeboard) *clusters {
	shared := testSettings()
	shared.dial = func(ctx context.Context, shared *settings, access credentials, wanted string, remembered kubeconfigCache) (*connection, error) {
		made, err := held.dial(ctx, shared, access, wanted, remembered)
		made.kubernetes, made.management = held, &managementCluster{access: board}

		return made, err
	}

	return newClusters(shared, credentials{})
}

// TestNamingAnObjectTellsItOfTheCluster: nothing is upgraded for that, and what is
// not ours to write stays.
func TestNamingAnObjectTellsItOfTheCluster(t *testing.T) {
	fake := threeNodes("1.12.0", "1.33.0")
	board := &noticeboard{annotations: map[string]any{"example.com/owner": "team-a"}}
	held := &leased{fakeCluster: fake}
	clusters := beside(held, board)

	prior := stored(t, fake, "1.12.0", "1.33.0")
	plan := *prior
	plan.PublishTo = publishedTo("", "KubernetesCluster", "tenant-a", "prod")

	got, diagnostics := apply(t, clusters, prior, &plan)
	check(t, diagnostics, outcome{diag.SeverityWarning, "in the Secret of KubernetesCluster tenant-a/prod up to date: permission denied"})

	if !got.PublishTo.Equal(plan.PublishTo) {
		t.Errorf("stored %s", got.PublishTo)
	}

	talos, kubernetes := next(version.MustParse("1.12.0"), version.MustParse("1.33.0"), releasesOf(t, "talos"), releasesOf(t, "kubernetes"))

	for key, want := range map[string]string{
		protocol.KeyTalosCurrent: "1.12.0", protocol.KeyTalosStatus: "idle", protocol.KeyTalosAvailable: talos.String(),
		protocol.KeyKubernetesCurrent: "1.33.0", protocol.KeyKubernetesStatus: "idle", protocol.KeyKubernetesAvailable: kubernetes.String(),
		"example.com/owner": "team-a",
	} {
		if board.annotations[key] != want {
			t.Errorf("%s is %v, want %s", key, board.annotations[key], want)
		}
	}

	if _, stands := board.annotations["upgrade.vitistack.io/do-not-reconcile"]; stands {
		t.Error("the operator is still held")
	}

	if held.stands.Holder != "" {
		t.Errorf("the lease is held by %s", held.stands.Holder)
	}

	for key := range board.annotations {
		if strings.HasSuffix(key, "-target") {
			t.Errorf("%s was written", key)
		}
	}
}

// releasesOf are the releases of a product that need no network.
func releasesOf(t *testing.T, product string) []version.Version {
	t.Helper()

	known, end := releaseDefaults{}.outlook(t.Context(), "test")
	end()

	if product == "talos" {
		return known.talos
	}

	return known.kubernetes
}

// TestWhatCouldNotBePublishedIsSaid: the upgrade was done all the same, and nobody
// waits long for an API that does not answer.
func TestWhatCouldNotBePublishedIsSaid(t *testing.T) {
	for name, test := range map[string]struct {
		of     publication
		cancel bool
		within time.Duration
		says   string
	}{
		"named":    {publication{to: &cluster.Reference{APIVersion: "vitistack.io/v1alpha1", Kind: "KubernetesCluster", Namespace: "a", Name: "b"}}, false, flushTimeout, "The upgrade status in KubernetesCluster a/b may be out of date"},
		"default":  {publication{}, false, flushTimeout, "The upgrade status in ConfigMap kube-system/talosupgrade may be out of date"},
		"hurrying": {publication{}, true, hurriedFlush, "may be out of date"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reached := &connection{own: &managementCluster{access: &fakeHome{err: cluster.ErrUnreachable}}, store: func(string) (publish.Store, error) { return unwritable{}, nil }}
				out := &runObservers{publisher: reached.publisher("id", test.of, nil)}

				for _, observer := range out.observers() {
					observer.Observe(cluster.Event{
						Kind: cluster.EventRunStarted, Target: cluster.Target{Talos: version.MustParse("1.13.0")},
						Talos: cluster.Progress{Managed: true, Total: 3, Steps: 3, Lowest: version.MustParse("1.12.0")},
					})
				}

				synctest.Wait()

				ctx, cancel := context.WithCancel(t.Context())
				if test.cancel {
					cancel()
				}

				defer cancel()

				began := time.Now()
				diagnostics := noted(t, out.close(ctx, test.of, "prod", cluster.Observation{}, nil))

				if took := time.Since(began); took > test.within {
					t.Errorf("it took %s, want %s at most", took, test.within)
				}

				if len(diagnostics) != 1 || diagnostics.HasError() || !strings.Contains(diagnostics[0].Detail(), test.says) || diagnostics[0].Summary() != "Unable to publish the progress (prod)" {
					t.Errorf("got %v", diagnostics)
				}
			})
		})
	}
}

var errUnwritable = errors.New("no way")

// unwritable is a store that nobody can write to.
type unwritable struct{}

func (unwritable) Patch(context.Context, map[string]*string) error { return errUnwritable }

func (unwritable) Read(context.Context) (map[string]string, error) { return nil, errUnwritable }

func (unwritable) String() string { return defaultObject }

// TestDelegatedRequestSaysSo: what Talos renders into the cluster is the operator's
// affair then.
func TestDelegatedRequestSaysSo(t *testing.T) {
	plan := desired("1.13.4", "")

	request, diagnostics := plan.request(t.Context(), "", nil)
	wellDone(t, diagnostics)

	if request.Delegated || request.Policy.Kubernetes.Manifests == (cluster.ManifestPolicy{}) {
		t.Error("what nobody delegates is delegated")
	}

	plan.Mode, plan.PublishTo = types.StringValue(modeDelegate), publishedTo("", "KubernetesCluster", "tenant-a", "prod")

	request, diagnostics = plan.request(t.Context(), "", nil)
	wellDone(t, diagnostics)

	if !request.Delegated || request.Policy.Kubernetes.Manifests != (cluster.ManifestPolicy{}) {
		t.Errorf("asked for is %+v", request)
	}
}

// TestWhatCouldNotBePublishedIsSaidOnce: an object that is not there keeps two from
// speaking, and is one thing to know.
func TestWhatCouldNotBePublishedIsSaidOnce(t *testing.T) {
	of := publication{to: &cluster.Reference{APIVersion: "vitistack.io/v1alpha1", Kind: "KubernetesCluster", Namespace: "a", Name: "b"}}

	const progress, told = "Unable to publish the progress (prod)", "Unable to write Kubernetes Events (prod)"

	for name, test := range map[string]struct {
		published, told error
		summary         string
		says            []string
	}{
		"nothing":       {nil, nil, "", nil},
		"neither":       {cluster.ErrNotFound, cluster.ErrDenied, progress, []string{"Not found", "The upgrade status in KubernetesCluster a/b", "Permission denied."}},
		"only progress": {cluster.ErrDenied, nil, progress, []string{"Permission denied", "The upgrade status in KubernetesCluster a/b", "Allow the credentials to get and patch it"}},
		"only Events":   {nil, cluster.ErrUnreachable, told, []string{"Unreachable.", "those of this run are lost"}},
	} {
		t.Run(name, func(t *testing.T) {
			diagnostics := noted(t, unsaid(test.published, test.told, of, "prod"))
			if test.summary == "" {
				check(t, diagnostics)

				return
			}

			check(t, diagnostics, outcome{diag.SeverityWarning, "The upgrade itself does not depend on it."})

			if summary := diagnostics[0].Summary(); summary != test.summary {
				t.Errorf("the summary is %q", summary)
			}

			for _, text := range test.says {
				if !strings.Contains(diagnostics[0].Detail(), text) {
					t.Errorf("it does not say %q", text)
				}
			}
		})
	}
}
