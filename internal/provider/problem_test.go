// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
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
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestDiagnostic_SaysWhatToDo(t *testing.T) {
	t.Setenv(talosconfigEnv, "")

	for name, test := range map[string]struct {
		err     error
		access  credentials
		summary string
		details []string
	}{
		"no credentials": {
			errMissing,
			credentials{},
			"Missing credentials for the Talos API",
			[]string{"talosconfig (not set)", "TALOSCONFIG (not set)", "provider block"},
		},
		"unknown configuration": {
			errUnknown,
			credentials{Unknown: []string{"talosconfig"}},
			"Unable to read the cluster",
			[]string{"known only after an apply (talosconfig)", "-target"},
		},
		"malformed talosconfig": {
			fmt.Errorf("%w: provider attribute talosconfig: malformed YAML", errUnusable),
			credentials{},
			"Unusable credentials",
			[]string{"provider attribute talosconfig: malformed YAML", "Correct them"},
		},
		"expired certificate": {
			fmt.Errorf("endpoint 10.5.0.2: %w: expired on 2026-01-01", cluster.ErrCredentials),
			credentials{},
			"Unable to read the cluster",
			[]string{"expired on 2026-01-01", "Waiting does not help"},
		},
		"role too low": {
			fmt.Errorf("install: %w", cluster.ErrDenied),
			credentials{},
			"Unable to read the cluster",
			[]string{"os:admin", "os:reader"},
		},
		"no kubeconfig, and no discovery": {
			fmt.Errorf("%w: %w: %w", errUnlisted, cluster.ErrNoKubeconfig, cluster.ErrDenied),
			credentials{},
			"Unable to read the cluster",
			[]string{"no kubeconfig was configured", "Set kubeconfig in the provider block", "os:admin"},
		},
		"nothing answers": {
			fmt.Errorf("endpoint 10.5.0.2: %w", cluster.ErrUnreachable),
			credentials{},
			"Unable to read the cluster",
			[]string{"10.5.0.2", "talosctl version"},
		},
		"too slow": {
			context.DeadlineExceeded, credentials{}, "Unable to read the cluster", []string{"timeouts.read"},
		},
		"interrupted": {
			context.Canceled, credentials{}, "Unable to read the cluster", []string{"Run the command again"},
		},
		"something else": {
			errors.New("boom"), credentials{}, "Unable to read the cluster", []string{"Boom."},
		},
		"failed upgrade": {
			fmt.Errorf("wrapped: %w", &say.Failure{Summary: "Unable to upgrade node cp-0", Seen: "Seen.", State: "State.", Remedy: "Remedy."}),
			credentials{},
			"Unable to upgrade node cp-0",
			[]string{"Seen.", "State.", "Remedy."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := problem("read the cluster", test.access, test.err)
			if name != "something else" && name != "failed upgrade" {
				noted(t, diag.Diagnostics{got})
			}

			if got.Severity() != diag.SeverityError || got.Summary() != test.summary {
				t.Errorf("%s: %s", got.Severity(), got.Summary())
			}

			for _, detail := range test.details {
				if !strings.Contains(got.Detail(), detail) {
					t.Errorf("does not say %q: %s", detail, got.Detail())
				}
			}
		})
	}
}

func TestDiagnostic_FailureOfManyNodesStaysReadable(t *testing.T) {
	failure := &say.Failure{Summary: "Unable to upgrade the cluster", Seen: "Seen.", State: "State.", Remedy: "Remedy."}

	for index := range 1000 {
		failure.Findings = append(failure.Findings, cluster.Finding{Check: "disk-space", Node: fmt.Sprintf("worker-%d", index), Found: "/var is full"})
	}

	want := "Seen.\n\n- worker-0, worker-1, worker-2, worker-3, worker-4, worker-5, worker-6, worker-7, worker-8, worker-9 and 990 more: /var is full (check disk-space).\n\n" +
		"State.\n\nRemedy."
	if got := problem("upgrade the cluster", credentials{}, failure).Detail(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	failure.Seen = ""
	if got := problem("upgrade the cluster", credentials{}, failure).Detail(); got != strings.TrimPrefix(want, "Seen.\n\n") {
		t.Errorf("got\n%s", got)
	}
}

// TestDiagnostic_LinesOfALogStayAsTheyAre: the command line wraps what is not indented, and a
// list is only one while its elements stand out.
func TestDiagnostic_LinesOfALogStayAsTheyAre(t *testing.T) {
	failure := &say.Failure{
		Summary: "Unable to upgrade node worker-1", Seen: "It is not ready.", State: "It was rolled back.", Remedy: "Look at it.",
		Excerpts: []say.Excerpt{{Source: "the log of machined on worker-1", Lines: []string{"[talos] task startAllServices failed", "  error=\"timeout\""}}},
	}

	want := "It is not ready.\n\nThe last lines of the log of machined on worker-1:\n  [talos] task startAllServices failed\n    error=\"timeout\"\n\n" +
		"It was rolled back.\n\nLook at it."
	if got := problem("upgrade the cluster", credentials{}, failure).Detail(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	failure.Excerpts = nil
	failure.Seen, failure.Findings = "", []cluster.Finding{{Check: "node-upgrade", Node: "worker-2", Found: "its log ends with\n[talos] failed\n  error=x"}}

	want = "- worker-2: its log ends with\n    [talos] failed\n      error=x (check node-upgrade).\n\nIt was rolled back.\n\nLook at it."
	if got := problem("upgrade the cluster", credentials{}, failure).Detail(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestDiagnostic_PointsAtTheAttributeThatAllFindingsBlame(t *testing.T) {
	blame := func(attributes ...string) *say.Failure {
		failure := &say.Failure{Summary: "Unable to upgrade the cluster"}
		for _, attribute := range attributes {
			failure.Findings = append(failure.Findings, cluster.Finding{Attribute: attribute, Found: "found"})
		}

		return failure
	}

	deep := func(indices ...cluster.Index) *say.Failure {
		failure := &say.Failure{}
		for _, index := range indices {
			failure.Findings = append(failure.Findings, cluster.Finding{Attribute: "canary", Within: []cluster.Within{index}})
		}

		return failure
	}

	for name, test := range map[string]struct {
		failure *say.Failure
		at      path.Path
	}{
		"none":      {blame(), path.Empty()},
		"one":       {blame("node_overrides"), path.Root("node_overrides")},
		"agreeing":  {blame("drain", "drain"), path.Root("drain")},
		"different": {blame("drain", "talos_version"), path.Empty()},
		"some":      {blame("drain", ""), path.Empty()},
		"one deep":  {deep(0), path.Root("canary").AtListIndex(0)},
		"same deep": {deep(1, 1), path.Root("canary").AtListIndex(1)},
		"two deep":  {deep(0, 1), path.Empty()},
	} {
		t.Run(name, func(t *testing.T) {
			at := path.Empty()
			if located, ok := failed(test.failure).(diag.DiagnosticWithPath); ok {
				at = located.Path()
			}

			if !at.Equal(test.at) {
				t.Errorf("points at %q, want %q", at, test.at)
			}
		})
	}
}

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

// TestDiagnostic_NamesEachEndpointThatDoesNotAnswerOnce once each, with what came of them, in words that
// say nothing of gRPC or of resources.
func TestDiagnostic_NamesEachEndpointThatDoesNotAnswerOnce(t *testing.T) {
	for name, test := range map[string]struct {
		endpoints []string
		want      string
	}{
		"one":                      {[]string{"127.0.0.1:1"}, "No endpoint answered: 127.0.0.1:1 connection refused."},
		"one of them twice":        {[]string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:1"}, "No endpoint answered: 127.0.0.1:1 connection refused; 127.0.0.1:2 connection refused."},
		"a name that nobody knows": {[]string{"nowhere.invalid", "127.0.0.1:2"}, "No endpoint answered: nowhere.invalid no such host; 127.0.0.1:2 connection refused."},
	} {
		t.Run(name, func(t *testing.T) {
			access := credentials{Endpoints: test.endpoints, Certificate: signedFor(t, time.Now().Add(time.Hour), "os:admin")}
			shared := testSettings()
			shared.dial = dial

			_, err := newClusters(shared, access).observe(t.Context(), "")

			found := noted(t, diag.Diagnostics{problem("plan the upgrade", access, err)})[0]
			if detail, _, _ := strings.Cut(found.Detail(), "\n\n"); detail != test.want {
				t.Errorf("got %s, want %s", detail, test.want)
			}
		})
	}
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

		seen, err := fake.clusters(outer).observe(t.Context(), "")
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

	length := map[string]int{attrCanary: len(policy.Canary), attrIntermediateVersions: len(policy.Intermediate)}

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
			clusters.releases = defaults(t, types.StringValue(server.URL), providerSourceOf(map[string]tftypes.Value{"talos": textOf("factory")}))

			_, diagnostics := readAvailable(t, clusters, map[string]tftypes.Value{"talos_version": textOf("1.13.0")})
			check(t, diagnostics, outcome{diag.SeverityError, test.says})
		})
	}

	check(t, noted(t, diag.Diagnostics{unlisted(version.Talos, context.Canceled)}), outcome{diag.SeverityError, "Interrupted before the source answered"})
}

func TestDiagnostic_ImportOutOfReachSaysWhatToDo(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	fake.down = cluster.ErrUnreachable

	resp := resource.ImportStateResponse{State: stateOf(t, nil), Identity: identityOf(t, nil)}
	(&clusterResource{clusters: fake.clusters(t)}).ImportState(t.Context(), resource.ImportStateRequest{ID: importCurrent}, &resp)

	check(t, noted(t, resp.Diagnostics), outcome{diag.SeverityError, "talosctl version --nodes"})
}

func TestDiagnostic_ForeignProviderDataIsADefect(t *testing.T) {
	var diagnostics diag.Diagnostics

	configured("something else", &diagnostics)
	check(t, noted(t, diagnostics), outcome{diag.SeverityError, "please report it"})
}

// TestDiagnostic_UnvalidatedDurationIsRefused: values that are unknown at first come
// past the validators.
func TestDiagnostic_UnvalidatedDurationIsRefused(t *testing.T) {
	var diagnostics diag.Diagnostics

	duration(path.Root(attrNodeTimeout), types.StringValue("soon"), time.Minute, &diagnostics)
	check(t, noted(t, diagnostics), outcome{diag.SeverityError, `node_timeout is "soon": value must be a duration`})
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

		found := noted(t, diagnostic.OfFindings(cluster.Blocking(examine(t.Context(), clusters, *planned, seen, made).Findings), true, true, seen.name, seen.Nodes))
		check(t, found, outcome{diag.SeverityWarning, "the cluster could not be asked what stands in the way"})
		check(t, found, outcome{diag.SeverityWarning, remedy})
	}
}

func TestDiagnostic_ClusterIsNamedAfterWhoLendsItsCredentials(t *testing.T) {
	clusters := threeNodes("1.13.4", "1.34.2").clusters(t)
	clusters.access.From = &credentialsSource{"tenant-a", "prod"}

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
