// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// The paths of Longhorn's volumes, and of one of them.
const (
	longhornVolumes = "/apis/longhorn.io/v1beta2/namespaces/default/volumes"
	longhornVolume  = longhornVolumes + "/data"
)

// longhornKind is the part of Longhorn's own CustomResourceDefinition of a volume that an API server needs to serve
// it.
const longhornKind = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
	"metadata": {"name": "volumes.longhorn.io"},
	"spec": {"group": "longhorn.io", "scope": "Namespaced",
		"names": {"kind": "Volume", "listKind": "VolumeList", "plural": "volumes", "singular": "volume"},
		"versions": [{"name": "v1beta2", "served": true, "storage": true, "subresources": {"status": {}},
			"schema": {"openAPIV3Schema": {"type": "object", "properties": {
				"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				"status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}}`

// send sends JSON to a path of the Kubernetes API as another user.
func (s *simulated) send(verb, path, body string) error {
	request := s.someone().CoreV1().RESTClient().Verb(verb).AbsPath(path).SetHeader("Content-Type", "application/json").Body([]byte(body))
	if verb == "PATCH" {
		request.SetHeader("Content-Type", "application/merge-patch+json")
	}

	return request.Do(s.t.Context()).Error()
}

// longhorn installs the CustomResourceDefinition of volumes and creates a volume that is attached and healthy.
func (s *simulated) longhorn() {
	s.t.Helper()

	if err := s.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", longhornKind); err != nil {
		s.t.Fatal(err)
	}

	const volume = `{"apiVersion": "longhorn.io/v1beta2", "kind": "Volume", "metadata": {"name": "data"}, "spec": {"numberOfReplicas": 3}}`

	deadline := time.Now().Add(awaitPatience)
	poll := time.NewTicker(20 * time.Millisecond)

	defer poll.Stop()

	for range poll.C {
		// The API server serves the kind only a moment after it was created.
		err := s.send("POST", longhornVolumes, volume)

		switch {
		case err == nil:
			s.robust("healthy")

			return
		case !apierrors.IsNotFound(err) || time.Now().After(deadline):
			s.t.Fatal(err)
		}
	}
}

// robust sets the robustness of the volume, as Longhorn does.
func (s *simulated) robust(robustness string) {
	s.t.Helper()

	if err := s.send("PATCH", longhornVolume+"/status", `{"status": {"state": "attached", "robustness": "`+robustness+`"}}`); err != nil {
		s.t.Fatal(err)
	}
}

// TestAccGateOfLonghorn: at first the cluster has no Longhorn, and then a volume that loses replicas before the roll,
// and between two nodes.
func TestAccGateOfLonghorn(t *testing.T) {
	fullOverReal(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\ngates = [{\n preset = \"longhorn\"\n timeout = \"12h\"\n}]")

	w.plan().mustSucceed(2).mustWarn("gates[0] (preset longhorn)")

	// Waiting would take minutes of real time.
	begun := time.Now()

	w.apply().mustFail("gates[0] (preset longhorn)", "longhorn.io/v1beta2 Volume")
	s.untouched("cp-0", "worker-0")

	if took := time.Since(begun); took > 12*time.Hour/speed {
		t.Errorf("it took %s to find out that there is no Longhorn", took)
	}

	s.longhorn()
	w.plan().mustSucceed(2).mustNotWarn("gates[0]")

	s.robust("degraded")
	w.plan().mustSucceed(2).mustWarn("not healthy: Volume default/data (attached, degraded)")

	s.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	s.renewals(aWhile)
	s.onlyLocked()
	s.robust("healthy")

	s.await("worker-0 going down", func(e history.Event) bool { return e.Kind == history.KindDown && e.Node == "worker-0" })
	s.robust("degraded")
	s.await("worker-0 being uncordoned", func(e history.Event) bool {
		return e.Kind == history.KindCordon && e.Node == "worker-0" && e.Detail["unschedulable"] == "false"
	})
	s.renewals(aWhile)
	s.untouched("cp-0")

	if cordons := s.cordons(); cordons != 1 {
		t.Errorf("%d nodes were cordoned while the volume was degraded, want one", cordons)
	}

	s.robust("healthy")
	run.wait().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))

	// There is nothing to do, so there is nothing to wait for.
	s.robust("degraded")
	w.plan().mustSucceed(0).mustNotWarn("gates[0]")
	w.write(use(s), "talos_version = \"1.13.4\"\ngates = [{\n preset = \"longhorn\"\n timeout = \"11h\"\n}]")
	w.apply().mustSucceed(0).mustNotWarn("gates[0]")
}
