// SPDX-License-Identifier: MPL-2.0

package roll

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares the text with a file in testdata, or writes it with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()

	file := filepath.Join("testdata", name)

	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	if got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

const (
	genericImage = "ghcr.io/siderolabs/installer"
	factoryImage = "factory.talos.dev/metal-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
)

// talosHop is a hop of Talos with the turns of the nodes in it.
func talosHop(made *plan.Plan, from, to, image string, nodes ...string) {
	before, after := version.MustParse(from), version.MustParse(to)
	made.Hops = append(made.Hops, plan.Hop{Product: version.Talos, From: plan.State{Talos: before}, To: plan.State{Talos: after}})

	for _, node := range nodes {
		role := cluster.Worker
		if strings.HasPrefix(node, "cp-") {
			role = cluster.ControlPlane
		}

		made.Steps = append(made.Steps, plan.Step{
			Hop: len(made.Hops) - 1, Node: node, Role: role, From: before, To: after, Image: image + ":" + after.Tag(), Estimate: 4 * time.Minute,
		})
	}
}

// kubernetesHop is a hop of Kubernetes in which one kind of component moves on all
// nodes, then the next, and the manifests in the end.
func kubernetesHop(made *plan.Plan, from, to string, nodes ...string) {
	before, after := version.MustParse(from), version.MustParse(to)
	made.Hops = append(made.Hops, plan.Hop{Product: version.Kubernetes, From: plan.State{Kubernetes: before}, To: plan.State{Kubernetes: after}})

	add := func(node string, component cluster.Component, image string) {
		role := cluster.Worker
		if strings.HasPrefix(node, "cp-") {
			role = cluster.ControlPlane
		}

		made.Steps = append(made.Steps, plan.Step{
			Hop: len(made.Hops) - 1, Component: component, Node: node, Role: role, From: before, To: after,
			Image: image + ":" + after.Tag(), Estimate: 40 * time.Second,
		})
	}

	for _, component := range []cluster.Component{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Proxy, cluster.Kubelet} {
		for _, node := range nodes {
			switch {
			case component == cluster.Kubelet:
				add(node, component, "ghcr.io/siderolabs/kubelet")
			case strings.HasPrefix(node, "cp-"):
				add(node, component, "registry.k8s.io/"+string(component))
			}
		}
	}

	made.Steps = append(made.Steps, plan.Step{Hop: len(made.Hops) - 1, Component: cluster.Manifests, Estimate: time.Minute})
}

func names(prefix string, count int) []string {
	made := make([]string, 0, count)
	for number := range count {
		made = append(made, fmt.Sprintf("%s-%d", prefix, number))
	}

	return made
}

func TestTable_ShowsTheRoll(t *testing.T) {
	for name, build := range map[string]func(*plan.Plan){
		"one_hop": func(made *plan.Plan) {
			talosHop(made, "1.12.6", "1.13.4", genericImage, "worker-10", "worker-2", "cp-0")
			made.Steps[0].Image, made.Steps[0].Finish = factoryImage+":v1.13.4", true
			made.AtTarget, made.Budget = []string{"worker-1"}, 1
		},
		"two_hops": func(made *plan.Plan) {
			nodes := []string{"worker-2", "worker-0", "worker-1", "cp-0"}
			talosHop(made, "1.11.3", "1.12.8", factoryImage, nodes...)
			talosHop(made, "1.12.8", "1.13.4", factoryImage, nodes...)
			made.Steps[0].Canary, made.Steps[4].Canary = true, true
			made.Steps[1].Image = genericImage + ":v1.12.8"
			made.Held, made.Budget = []string{"worker-3", "worker-4"}, 2
		},
		"folded": func(made *plan.Plan) {
			talosHop(made, "1.12.6", "1.13.4", genericImage, append(names("worker", 60), names("cp", 5)...)...)
			made.Steps[0].Finish = true
			made.Steps[1].Canary, made.Steps[2].Canary = true, true
			made.Budget = 15
		},
		"not_folded": func(made *plan.Plan) {
			talosHop(made, "1.12.6", "1.13.4", genericImage, append(names("worker", 37), names("cp", 3)...)...)
		},
		"other_image": func(made *plan.Plan) {
			talosHop(made, "1.13.4", "1.13.4", factoryImage, "worker-0", "cp-0")
			for index := range made.Steps {
				made.Steps[index].Estimate = 0
			}
		},
		"both_halves": func(made *plan.Plan) {
			talosHop(made, "1.12.6", "1.13.4", genericImage, "worker-0", "cp-0", "cp-1")
			kubernetesHop(made, "1.34.2", "1.35.2", "cp-0", "cp-1", "worker-0")
			made.Steps[len(made.Steps)-3].From = version.MustParse("1.34.1")
		},
		"kubernetes": func(made *plan.Plan) {
			kubernetesHop(made, "1.34.2", "1.35.2", append(names("cp", 3), names("worker", 20)...)...)
			made.KubeletBudget = 5
		},
		"kubernetes_two_hops": func(made *plan.Plan) {
			kubernetesHop(made, "1.34.2", "1.35.8", "cp-0", "worker-0", "worker-1")
			made.Steps = made.Steps[:len(made.Steps)-1]
			kubernetesHop(made, "1.35.8", "1.36.1", "cp-0", "worker-0", "worker-1")

			for index := range made.Steps {
				if step := &made.Steps[index]; step.Node == "worker-1" {
					step.Canary, step.Image = true, "registry.example.com:5000/mirror/kubelet:"+step.To.Tag()+"-slim"
				} else if step.Node == "worker-0" {
					step.From = version.MustParse("1.34.1")
				}
			}
		},
		"kubelet_images": func(made *plan.Plan) {
			kubernetesHop(made, "1.35.2", "1.35.2", "cp-0", "worker-0", "worker-1")
			made.Steps[len(made.Steps)-2].Image = "registry.example.com/kubelet:v1.35.2"
		},
		"talos_and_manifests": func(made *plan.Plan) {
			talosHop(made, "1.12.6", "1.13.4", genericImage, "worker-0", "cp-0")
			made.Steps = append(made.Steps, plan.Step{Component: cluster.Manifests, Estimate: time.Minute})
		},
		"manifests_alone": func(made *plan.Plan) {
			made.Hops = []plan.Hop{{Product: version.Kubernetes}}
			made.Steps = []plan.Step{{Component: cluster.Manifests, Estimate: time.Minute}}
			made.AtTarget = []string{"cp-0"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			made := plan.Plan{}
			build(&made)

			warning := Warning(made, `talosconfig context "demo"`, nil, "")
			golden(t, name+".golden", warning.Summary()+"\n\n"+warning.Detail()+"\n")
		})
	}
}

// TestTable_OfThousandNodesStaysReadable: what is not indented is wrapped, what
// is too long is not read.
func TestTable_OfThousandNodesStaysReadable(t *testing.T) {
	var made plan.Plan

	talosHop(&made, "1.11.3", "1.12.8", factoryImage, append(names("worker", 997), names("cp", 3)...)...)
	talosHop(&made, "1.12.8", "1.13.4", factoryImage, append(names("worker", 997), names("cp", 3)...)...)

	for index := range made.Steps {
		made.Steps[index].Image = fmt.Sprintf("factory.talos.dev/metal-installer/%064x:v1.13.4", index)
	}

	lines := strings.Split(Warning(made, "demo", nil, "").Detail(), "\n")
	if len(lines) > 45 {
		t.Errorf("%d lines", len(lines))
	}

	for _, line := range lines {
		if strings.HasSuffix(line, " ") || (strings.Contains(line, "  ") && !strings.HasPrefix(line, "  ")) {
			t.Errorf("line %q would not be shown as it is", line)
		}
	}
}

func TestTable_LongDurationsAreWords(t *testing.T) {
	for want, given := range map[string]time.Duration{
		"1 minute":            20 * time.Second,
		"25 minutes":          24*time.Minute + time.Second,
		"1 hour":              time.Hour,
		"1 hour 1 minute":     61 * time.Minute,
		"26 hours 30 minutes": 26*time.Hour + 30*time.Minute,
	} {
		if got := longText(given); got != want {
			t.Errorf("%s is %q, want %q", given, got, want)
		}
	}
}

func TestTable_ManifestChangesStayReadable(t *testing.T) {
	if got := changeTexts(nil); got != nil {
		t.Errorf("nothing is %q", got)
	}

	var changes []cluster.ManifestChange

	for number := range 200 {
		changes = append(changes, cluster.ManifestChange{
			Object: fmt.Sprintf("ConfigMap/kube-system/map-%d", number), Action: cluster.ManifestCreated, Diff: strings.Repeat("+ a line\n", 300),
		})
	}

	text := strings.Join(changeTexts(changes), "\n")
	if lines := strings.Count(text, "\n"); lines > 140 {
		t.Errorf("%d lines", lines)
	}

	for _, want := range []string{"  create ConfigMap/kube-system/map-19\n", "... 280 more lines", "... 300 more lines", "... 180 more objects"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}

	const adoption = "--- a/v1.Service/x\n+++ b/v1.Service/x\n@@ -1,3 +1,5 @@\n kind: Service\n metadata:\n+  annotations:\n+    config.k8s.io/owning-inventory: y\n   name: x\n"

	adopted := []cluster.ManifestChange{
		{Object: "Service/x", Action: cluster.ManifestConfigured, Diff: adoption},
		{Object: "Service/y", Action: cluster.ManifestConfigured, Diff: adoption + "+  more: z\n"},
		{Object: "Service/z", Action: cluster.ManifestConfigured, Diff: adoption},
		// Of a Secret, only labels and annotations are ever shown.
		{Object: "Secret/kube-system/a", Action: cluster.ManifestConfigured, Diff: strings.ReplaceAll(adoption, "Service", "Secret")},
		{Object: "Secret/kube-system/b", Action: cluster.ManifestConfigured, Diff: "(the content of a Secret is not shown)\n"},
	}
	want := "  change Service/y\n      @@ -1,3 +1,5 @@\n       kind: Service\n       metadata:\n      +  annotations:\n" +
		"      +    config.k8s.io/owning-inventory: y\n         name: x\n      +  more: z\n" +
		"  change Secret/kube-system/b\n      (the content of a Secret is not shown)\n" +
		"  adopt 3 objects: nothing but the annotation config.k8s.io/owning-inventory is added to them"

	if got := changeTexts(adopted); got[1] != want {
		t.Errorf("got\n%s\nwant\n%s", got[1], want)
	}

	for _, diff := range []string{"", "\n", "+ one", "+ one\n+ two\n"} {
		if got, want := len(diffLines(diff, 1)), strings.Count(strings.Trim(diff, "\n"), "+"); got != want {
			t.Errorf("%q has %d lines, want %d", diff, got, want)
		}
	}
}
