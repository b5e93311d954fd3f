// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestSeparateDocumentsAreServedAsTheyAre(t *testing.T) {
	options := model.Options{ControlPlanes: 1, Talos: "1.14.1", Kubernetes: "1.34.2", Documents: true}

	inBubble(t, options, func(r *rig) {
		const target = "10.5.0.2"

		c := r.client("")
		events := r.watch(c, target, k8s.NewAPIServerConfig(k8s.APIServerConfigID).Metadata())
		r.next(events, state.Created)

		before, err := r.world.MachineConfig("cp-0")
		if err != nil || !strings.Contains(string(before), "kind: KubeAPIServerConfig") {
			r.Fatalf("%v, the configuration has no document of the API server:\n%s", err, before)
		}

		wanted := r.configOf("cp-0", "image: "+oldAPIServer, "image: "+newAPIServer+"\nextraArgs:\n  profiling: \"false\"")
		if _, err := r.submit(c, target, wanted); err != nil {
			r.Fatal(err)
		}

		updated, ok := r.next(events, state.Updated).(*k8s.APIServerConfig)
		if !ok || updated.TypedSpec().Image != newAPIServer {
			r.Errorf("the API server: %v", updated)
		}

		pod, err := safe.StateGetByID[*k8s.StaticPod](r.at(target), c.COSI, k8s.APIServerID)
		if err != nil || !strings.Contains(describe(pod.TypedSpec().Pod), "--profiling=false") {
			r.Errorf("its pod: %v, %v", pod, err)
		}

		stored, err := safe.StateGetByID[*config.MachineConfig](r.at(target), c.COSI, config.ActiveID)
		if err != nil {
			r.Fatal(err)
		}

		text, err := stored.Provider().Bytes()
		if err != nil || !bytes.Equal(text, wanted) {
			r.Errorf("%v, served:\n%s\nwant:\n%s", err, text, wanted)
		}

		kubelet, err := safe.StateGetByID[*k8s.KubeletStatus](r.at(target), r.client("-reader").COSI, k8s.KubeletID)
		if err != nil || kubelet.TypedSpec().Image != oldKubelet {
			r.Errorf("what a reader may know of the kubelet: %v, %v", kubelet, err)
		}
	})
}

func TestVersionsOfConfigurationsBeginAnewAfterAReboot(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")

		if _, err := r.submit(c, "10.5.0.2", r.configOf("cp-0", oldAPIServer, newAPIServer)); err != nil {
			r.Fatal(err)
		}

		r.until("cp-0", "running the new API server", longest, func(s model.NodeState) bool {
			return s.StaticPods[model.APIServerName].PodImage == newAPIServer && s.StaticPods[model.APIServerName].Ready
		})

		if err := c.Reboot(r.at("10.5.0.2")); err != nil {
			r.Fatal(err)
		}

		r.until("cp-0", "down", longest, down)
		r.until("cp-0", "ready", longest, ready)

		now, err := safe.StateGetByID[*k8s.APIServerConfig](r.at("10.5.0.2"), r.client("").COSI, k8s.APIServerConfigID)
		if err != nil || now.TypedSpec().Image != newAPIServer || now.Metadata().Version().Value() != 1 {
			r.Errorf("after the reboot: %v, %v", now, err)
		}
	})
}
