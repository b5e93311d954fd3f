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
	"pgregory.net/rapid"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/publication"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/releases"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording/told"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestDiagnostic_OneCauseIsOneFinding: a reader may neither read machine configurations nor have a
// kubeconfig, and hears of the role alone.
func TestDiagnostic_OneCauseIsOneFinding(t *testing.T) {
	reader := threeNodes("1.12.6", "1.34.2")
	reader.roles, reader.kubernetesDown = []string{"os:reader"}, fmt.Errorf("%w: %w", cluster.ErrNoKubeconfig, cluster.ErrDenied)

	for index := range reader.nodes {
		reader.nodes[index].unread = true
	}

	_, diagnostics := planned(t, reader.clusters(t), nil, desired("1.13.4", ""))
	check(t, diagnostics,
		outcome{diag.SeverityWarning, "carry os:reader; an upgrade needs os:admin; because of that, component-images, control-plane-components, kubernetes-api, lock, nodes-ready, schematic could not be checked (check roles)"},
		outcome{diag.SeverityWarning, "one control plane"}, outcome{diag.SeverityWarning, "Rolling upgrade"})

	if lines := strings.Count(diagnostics[0].Detail(), "\n- "); lines != 0 {
		t.Errorf("%d more findings:\n%s", lines, diagnostics[0].Detail())
	}

	away := threeNodes("1.12.6", "1.34.2")
	away.kubernetesDown = cluster.ErrUnreachable

	_, diagnostics = planned(t, away.clusters(t), nil, desired("1.13.4", ""))
	check(t, diagnostics,
		outcome{diag.SeverityWarning, "because of that, control-plane-components, lock, nodes-ready could not be checked (check kubernetes-api)"},
		outcome{diag.SeverityWarning, "one control plane"}, outcome{diag.SeverityWarning, "Rolling upgrade"})
}

// pathText is the path of a diagnostic as a configuration would write it; empty
// for one without.
func pathText(diagnostic diag.Diagnostic) string {
	located, ok := diagnostic.(diag.DiagnosticWithPath)
	if !ok {
		return ""
	}

	return located.Path().String()
}

// TestFinding_PointsAtAnAttributeThatExists: whatever a configuration asks
// for, the plan's objections point at a value that is in it.
func TestFinding_PointsAtAnAttributeThatExists(outer *testing.T) {
	schema := testSchema(outer)

	rapid.Check(outer, func(t *rapid.T) {
		fake := threeNodes(drawVersion(t, "runs"), "1.34."+rapid.SampledFrom([]string{"0", "2"}).Draw(t, "kubernetes patch"))
		fake.nodes[1].talos = drawVersion(t, "worker-0 runs")

		node := rapid.SampledFrom([]string{"cp-0", "worker-0", "worker-1", "ghost"})
		image := rapid.SampledFrom([]string{"", genericImage, factoryImage, "factory.talos.dev/aws-installer/" + factoryImage[len(factoryImage)-64:], "Not A Reference"})

		target := cluster.Target{Talos: version.MustParse(drawVersion(t, "target")), InstallerImage: image.Draw(t, "image")}
		if rapid.Bool().Draw(t, "manages Kubernetes") {
			target.Kubernetes = version.MustParse(rapid.SampledFrom([]string{"1.33.0", "1.34.2", "1.35.1", "1.36.0", "1.60.0"}).Draw(t, "Kubernetes"))
		}

		policy := cluster.DefaultPolicy()
		policy.Canary = rapid.SliceOfNDistinct(node, 0, 3, rapid.ID).Draw(t, "canary")
		policy.Hold = rapid.MapOfN(node, rapid.Bool(), 0, 2).Draw(t, "hold")
		policy.Images = rapid.MapOfN(node, image, 0, 2).Draw(t, "images")
		policy.Retry = rapid.MapOfN(node, rapid.Just("boot"), 0, 1).Draw(t, "retry")
		policy.Kubernetes.Images = rapid.MapOfN(rapid.SampledFrom(cluster.Components(cluster.ControlPlane)), image, 0, 2).Draw(t, "images of components")
		policy.Drain.Enabled = rapid.Bool().Draw(t, "drain")
		policy.AllowIntermediate = rapid.Bool().Draw(t, "intermediate")
		policy.AllowUnknown = rapid.Bool().Draw(t, "unknown")

		for range rapid.IntRange(0, 2).Draw(t, "number of intermediate versions") {
			policy.Intermediate = append(policy.Intermediate, version.MustParse(drawVersion(t, "through")))
		}

		seen, err := fake.clusters(outer).Observe(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}

		for _, finding := range plan.Make(seen.Observation, target, policy).Findings {
			if finding.Attribute == "" {
				if len(finding.Within) > 0 {
					t.Fatalf("within nothing: %v", finding)
				}

				continue
			}

			if _, diagnostics := schema.TypeAtPath(t.Context(), diagnostic.PathOf(finding)); diagnostics.HasError() {
				t.Fatalf("%s does not exist: %v", diagnostic.PathOf(finding), diagnostics)
			}

			if problem := absent(finding, policy); problem != "" {
				t.Fatalf("%s: %s", problem, finding)
			}
		}
	})
}

func drawVersion(t *rapid.T, label string) string {
	return rapid.SampledFrom([]string{"1.9.4", "1.11.3", "1.12.6", "1.13.0", "1.13.4", "1.14.0", "1.15.0", "1.99.0"}).Draw(t, label)
}

// absent says what is wrong with the place of a finding: the policy has no such
// element. Empty means that it is there.
func absent(finding cluster.Finding, policy cluster.Policy) string {
	if len(finding.Within) == 0 {
		return ""
	}

	length := map[string]int{attrname.Canary: len(policy.Canary), attrname.IntermediateVersions: len(policy.Intermediate)}

	switch step := finding.Within[0].(type) {
	case cluster.Index:
		if int(step) >= length[finding.Attribute] {
			return fmt.Sprintf("there is no element %d", step)
		}
	case cluster.Key:
		_, held := policy.Hold[string(step)]
		_, image := policy.Images[string(step)]
		_, retry := policy.Retry[string(step)]

		if !held && !image && !retry {
			return fmt.Sprintf("there is no override for %q", string(step))
		}
	}

	return ""
}

// TestDiagnostic_SourceThatGivesNoListSaysWhatToDo asks an Image Factory that answers in every
// way but the right one.
func TestDiagnostic_SourceThatGivesNoListSaysWhatToDo(t *testing.T) {
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
			clusters.Releases = defaults(t, types.StringValue(server.URL), providerSourceOf(map[string]tftypes.Value{"talos": textOf("factory")}))

			_, diagnostics := readAvailable(t, clusters, map[string]tftypes.Value{"talos_version": textOf("1.13.0")})
			check(t, diagnostics, outcome{diag.SeverityError, test.says})
		})
	}

	check(t, told.Noted(t, diag.Diagnostics{releases.Unlisted(version.Talos, context.Canceled)}), outcome{diag.SeverityError, "Interrupted before the source answered"})
}

func TestDiagnostic_ImportOutOfReachSaysWhatToDo(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	fake.down = cluster.ErrUnreachable

	resp := resource.ImportStateResponse{State: stateOf(t, nil), Identity: identityOf(t, nil)}
	(&clusterResource{clusters: fake.clusters(t)}).ImportState(t.Context(), resource.ImportStateRequest{ID: importCurrent}, &resp)

	check(t, told.Noted(t, resp.Diagnostics), outcome{diag.SeverityError, "talosctl version --nodes"})
}

func TestDiagnostic_ForeignProviderDataIsADefect(t *testing.T) {
	var diagnostics diag.Diagnostics

	connection.FromProviderData("something else", &diagnostics)
	check(t, told.Noted(t, diagnostics), outcome{diag.SeverityError, "please report it"})
}

// TestDiagnostic_UnvalidatedDurationIsRefused: values that are unknown at first come
// past the validators.
func TestDiagnostic_UnvalidatedDurationIsRefused(t *testing.T) {
	var diagnostics diag.Diagnostics

	duration(path.Root(attrname.NodeTimeout), types.StringValue("soon"), time.Minute, &diagnostics)
	check(t, told.Noted(t, diagnostics), outcome{diag.SeverityError, `node_timeout is "soon": value must be a duration`})
}

func TestDiagnostic_ObjectionToOneNodeNamesIt(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	fake.nodes[1].talos = "1.13.5"

	_, diagnostics := planned(t, fake.clusters(t), nil, desired("1.13.4", ""))
	check(t, diagnostics, outcome{diag.SeverityError, "Unable to plan the upgrade of node worker-0"})
}

// TestDiagnostic_NamesAClusterThatIsGoneAfterTheLook: the plan stands, and says what nobody
// could look at.
func TestDiagnostic_NamesAClusterThatIsGoneAfterTheLook(t *testing.T) {
	fake := threeNodes("1.13.0", "1.34.2")
	clusters := fake.clusters(t)

	seen, err := clusters.Observe(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}

	planned := desired("1.13.4", "")
	made := plan.Make(seen.Observation, cluster.Target{Talos: version.MustParse("1.13.4")}, cluster.DefaultPolicy())

	for remedy, because := range map[string]error{"up and reachable from here": cluster.ErrUnreachable, "Run the plan again": io.ErrUnexpectedEOF} {
		clusters.Settings.Dial = func(context.Context, *connection.Settings, connection.Credentials, string, connection.KubeconfigCache) (*connection.Connection, error) {
			return nil, fmt.Errorf("endpoint 10.5.0.2: %w", because)
		}

		found := told.Noted(t, diagnostic.OfFindings(cluster.Blocking(examine(t.Context(), clusters, *planned, seen, made).Findings), true, true, seen.Name, seen.Nodes))
		check(t, found, outcome{diag.SeverityWarning, "the cluster could not be asked what stands in the way"})
		check(t, found, outcome{diag.SeverityWarning, remedy})
	}
}

func TestDiagnostic_ClusterIsNamedAfterWhoLendsItsCredentials(t *testing.T) {
	clusters := threeNodes("1.13.4", "1.34.2").clusters(t)
	clusters.Access.From = &connection.CredentialsSource{Namespace: "tenant-a", Name: "prod"}

	prior := desired("1.13.4", "")
	prior.ID = types.StringNull()

	_, diagnostics := planned(t, clusters, prior, nil)
	check(t, diagnostics, outcome{diag.SeverityWarning, "(cluster of tenant-a/prod)"})
}

// TestDiagnostic_DueManifestsAreAPlanOfTheirOwn: no node has anything to do.
func TestDiagnostic_DueManifestsAreAPlanOfTheirOwn(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "1.34.2")
	fake.journal = cluster.Journal{Manifests: &cluster.ManifestsDue{Run: "run"}}

	_, diagnostics := planned(t, fake.clusters(t), state, desired("1.13.4", "1.34.2"))
	check(t, diagnostics, outcome{diag.SeverityWarning, "Planned: Sync of the bootstrap manifests"})
}

// TestDiagnostic_AnotherWriterOfTheObjectIsAWarning: the notes of the publisher become a warning.
func TestDiagnostic_AnotherWriterOfTheObjectIsAWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &noticeboard{annotations: map[string]any{}}
		of := publication.Publication{To: &cluster.Reference{APIVersion: "vitistack.io/v1alpha1", Kind: "KubernetesCluster", Namespace: "tenant-a", Name: "prod"}}
		reached := &connection.Connection{Own: &connection.ManagementCluster{Access: board}}
		out := &publication.Observers{Publisher: reached.Publisher("id", of, nil)}

		for _, observer := range out.All() {
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

		diagnostics := told.Noted(t, out.Close(t.Context(), of, "prod", cluster.Observation{}, nil))
		if len(diagnostics) != 1 || diagnostics.HasError() || !strings.HasPrefix(diagnostics[0].Summary(), "The progress was overwritten by another writer") {
			t.Errorf("got %v", diagnostics)
		}
	})
}
