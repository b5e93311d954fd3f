// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestSourcesThatGiveNoListSayWhatToDo asks an Image Factory that answers in every
// way but the right one.
func TestSourcesThatGiveNoListSayWhatToDo(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		answer string
		says   string
	}{
		"not there":   {http.StatusNotFound, "", "Check image_factory_url"},
		"no login":    {http.StatusUnauthorized, "", "docker login"},
		"overloaded":  {http.StatusServiceUnavailable, "", "Check that it can be reached from here"},
		"no versions": {http.StatusOK, `["latest"]`, "Name a source that lists releases of Talos"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				_, _ = fmt.Fprint(w, test.answer)
			}))
			t.Cleanup(server.Close)

			clusters := noCluster(t)
			clusters.releases = defaults(t, types.StringValue(server.URL), sourceOf(map[string]tftypes.Value{"talos": textOf("factory")}))

			_, diagnostics := readAvailable(t, clusters, map[string]tftypes.Value{"talos_version": textOf("1.13.0")})
			check(t, diagnostics, outcome{diag.SeverityError, test.says})
		})
	}

	check(t, noted(t, diag.Diagnostics{unlisted(version.Talos, context.Canceled)}), outcome{diag.SeverityError, "Interrupted before the source answered"})
}

func TestImportOfAClusterOutOfReachSaysWhatToDo(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	fake.down = cluster.ErrUnreachable

	resp := resource.ImportStateResponse{State: stateOf(t, nil), Identity: identityOf(t, nil)}
	(&clusterResource{clusters: fake.clusters(t)}).ImportState(t.Context(), resource.ImportStateRequest{ID: importCurrent}, &resp)

	check(t, noted(t, resp.Diagnostics), outcome{diag.SeverityError, "talosctl version --nodes"})
}

func TestProviderDataOfSomethingElseIsADefect(t *testing.T) {
	var diagnostics diag.Diagnostics

	configured("something else", &diagnostics)
	check(t, noted(t, diagnostics), outcome{diag.SeverityError, "please report it"})
}

// TestDurationThatNobodyValidatedIsRefused: values that are unknown at first come
// past the validators.
func TestDurationThatNobodyValidatedIsRefused(t *testing.T) {
	var diagnostics diag.Diagnostics

	duration(path.Root(attrNodeTimeout), types.StringValue("soon"), time.Minute, &diagnostics)
	check(t, noted(t, diagnostics), outcome{diag.SeverityError, `node_timeout is "soon": value must be a duration`})
}

func TestObjectionToOneNodeNamesIt(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	fake.nodes[1].talos = "1.13.5"

	_, diagnostics := planned(t, fake.clusters(t), nil, desired("1.13.4", ""))
	check(t, diagnostics, outcome{diag.SeverityError, "Unable to plan the upgrade of node worker-0"})
}

// TestClusterThatIsGoneAfterTheLookIsNamed: the plan stands, and says what nobody
// could look at.
func TestClusterThatIsGoneAfterTheLookIsNamed(t *testing.T) {
	fake := threeNodes("1.13.0", "1.34.2")
	clusters := fake.clusters(t)

	seen, err := clusters.observe(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}

	planned := desired("1.13.4", "")
	made := plan.Make(seen.Observation, cluster.Target{Talos: version.MustParse("1.13.4")}, cluster.DefaultPolicy())

	for remedy, because := range map[string]error{"up and reachable from here": cluster.ErrUnreachable, "Run the plan again": io.ErrUnexpectedEOF} {
		clusters.settings.dial = func(context.Context, *settings, credentials, string, kubeconfigCache) (*connection, error) {
			return nil, fmt.Errorf("endpoint 10.5.0.2: %w", because)
		}

		found := noted(t, planFindings(cluster.Blocking(clusters.examine(t.Context(), *planned, seen, made).Findings), true, seen))
		check(t, found, outcome{diag.SeverityWarning, "the cluster could not be asked what stands in the way"})
		check(t, found, outcome{diag.SeverityWarning, remedy})
	}
}

func TestClusterThatIsKnownByWhoLendsItsCredentialsIsCalledByThem(t *testing.T) {
	clusters := threeNodes("1.13.4", "1.34.2").clusters(t)
	clusters.access.From = &credentialsSource{"tenant-a", "prod"}

	prior := desired("1.13.4", "")
	prior.ID = types.StringNull()

	_, diagnostics := planned(t, clusters, prior, nil)
	check(t, diagnostics, outcome{diag.SeverityWarning, "(cluster of tenant-a/prod)"})
}

// TestManifestsThatAreDueAreAPlanOfTheirOwn: no node has anything to do.
func TestManifestsThatAreDueAreAPlanOfTheirOwn(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "1.34.2")
	fake.journal = cluster.Journal{Manifests: &cluster.ManifestsDue{Run: "run"}}

	_, diagnostics := planned(t, fake.clusters(t), state, desired("1.13.4", "1.34.2"))
	check(t, diagnostics, outcome{diag.SeverityWarning, "Planned: Sync of the bootstrap manifests"})
}

// TestSomebodyWhoWritesTheSameIsTold: the notes of the publisher become a warning.
func TestSomebodyWhoWritesTheSameIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &noticeboard{annotations: map[string]any{}}
		of := publication{to: &cluster.Reference{APIVersion: "vitistack.io/v1alpha1", Kind: "KubernetesCluster", Namespace: "tenant-a", Name: "prod"}}
		reached := &connection{own: &managementCluster{access: board}}
		out := &runObservers{publisher: reached.publisher("id", of, nil)}

		for _, observer := range out.observers() {
			observer.Observe(cluster.Event{
				Kind: cluster.EventRunStarted, Target: cluster.Target{Talos: version.MustParse("1.13.0")},
				Talos: cluster.Progress{Managed: true, Total: 3, Steps: 3, Lowest: version.MustParse("1.12.0")},
			})
		}

		for range 4 {
			synctest.Wait()
			board.mutex.Lock()
			board.annotations[protocol.KeyTalosStatus] = "idle"
			board.mutex.Unlock()
			time.Sleep(time.Minute)
		}

		diagnostics := noted(t, out.close(t.Context(), of, "prod", cluster.Observation{}, nil))
		if len(diagnostics) != 1 || diagnostics.HasError() || !strings.HasPrefix(diagnostics[0].Summary(), "The progress was overwritten by another writer") {
			t.Errorf("got %v", diagnostics)
		}
	})
}
