// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The commands of the document of the annotation protocol, word for word.
const (
	seedAnnotations       = `kubectl get kubernetescluster my-cluster -o jsonpath='{.metadata.annotations}' | jq`
	seedVersions          = `kubectl get kubernetescluster my-cluster -o yaml | grep -A5 "annotations:"`
	seedWatch             = `kubectl get kubernetescluster my-cluster -w -o jsonpath='{.metadata.annotations.upgrade\.vitistack\.io/talos-message}{"\n"}'`
	seedPhase             = `kubectl get kubernetescluster my-cluster -o jsonpath='{.status.phase}'`
	seedTalosProgress     = `kubectl get kubernetescluster my-cluster -o jsonpath='{.metadata.annotations.upgrade\.vitistack\.io/talos-progress}'`
	seedTalosCurrent      = `kubectl get kubernetescluster my-cluster -o jsonpath='{.metadata.annotations.upgrade\.vitistack\.io/talos-current}'`
	seedTalosStatus       = `kubectl get kubernetescluster my-cluster -o jsonpath='{.metadata.annotations.upgrade\.vitistack\.io/talos-status}'`
	seedTalosWait         = `kubectl wait kubernetescluster my-cluster --for=jsonpath='{.metadata.annotations.upgrade\.vitistack\.io/talos-status}'=completed --timeout=30m`
	seedKubernetesMessage = `kubectl get kubernetescluster my-cluster -o jsonpath='{.metadata.annotations.upgrade\.vitistack\.io/kubernetes-message}'`
	seedKubernetesCurrent = `kubectl get kubernetescluster my-cluster -o jsonpath='{.metadata.annotations.upgrade\.vitistack\.io/kubernetes-current}'`
	seedKubernetesWait    = `kubectl wait kubernetescluster my-cluster --for=jsonpath='{.metadata.annotations.upgrade\.vitistack\.io/kubernetes-status}'=completed --timeout=30m`
)

// The commands that the guide adds.
const (
	guideConditions    = `kubectl get kubernetescluster my-cluster -o jsonpath='{range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}'`
	guideHeartbeat     = `kubectl get kubernetescluster my-cluster -o jsonpath='{.metadata.annotations.upgrade\.vitistack\.io/talosupgrade-last-update}'`
	guideObjectEvents  = `kubectl events --for kubernetescluster/my-cluster`
	guideNodeEvents    = `kubectl -n default events --for node/cp-0`
	guideConfigMap     = `kubectl -n kube-system get configmap talosupgrade -o jsonpath='{.metadata.annotations}' | jq`
	guideConfigMapWait = `kubectl -n kube-system wait configmap talosupgrade --for=jsonpath='{.metadata.annotations.upgrade\.vitistack\.io/talos-status}'=completed --timeout=30m`
	guideFollow        = `while sleep 1; do kubectl -n kube-system get configmaps --field-selector metadata.name=talosupgrade -w -o jsonpath='{.metadata.annotations.upgrade\.vitistack\.io/talos-message}{"\n"}'; done`
)

func seedCommands() []string {
	return []string{
		seedAnnotations, seedVersions, seedWatch, seedPhase, seedTalosProgress, seedTalosCurrent, seedTalosStatus, seedTalosWait,
		seedKubernetesMessage, seedKubernetesCurrent, seedKubernetesWait,
	}
}

// guideCommands returns the commands in the shell blocks of the guide, one per line.
func guideCommands(t *testing.T) []string {
	t.Helper()

	content, err := os.ReadFile(filepath.Join("..", "..", "..", "templates", "guides", "watching-an-upgrade.md.tmpl"))
	if err != nil {
		t.Fatal(err)
	}

	var commands []string

	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(content), -1) {
		joined := regexp.MustCompile(`\s*\\\n\s*`).ReplaceAllString(block[1], " ")

		for line := range strings.Lines(joined) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				commands = append(commands, line)
			}
		}
	}

	return commands
}

// TestGuideShowsWhatIsTested wants the guide to show the commands that the tests run, and no others.
func TestGuideShowsWhatIsTested(t *testing.T) {
	tested := append(seedCommands(), guideConditions, guideHeartbeat, guideObjectEvents, guideNodeEvents,
		guideConfigMap, guideConfigMapWait, guideFollow)
	shown := guideCommands(t)

	for _, command := range tested {
		if !slices.Contains(shown, command) {
			t.Errorf("the guide does not show\n%s", command)
		}
	}

	for _, command := range shown {
		if !slices.Contains(tested, command) {
			t.Errorf("nothing runs what the guide shows:\n%s", command)
		}
	}
}
