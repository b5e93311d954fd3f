// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const (
	newServer    = "registry.k8s.io/kube-apiserver:v1.35.2"
	newScheduler = "registry.k8s.io/kube-scheduler:v1.35.2"
	newKubelet   = "ghcr.io/siderolabs/kubelet:v1.35.2"
)

// edited is a machine's configuration with texts replaced, in pairs.
func (r rig) edited(node string, pairs ...string) []byte {
	r.t.Helper()

	text, err := r.MachineConfig(node)
	if err != nil {
		r.t.Fatal(err)
	}

	edited := strings.NewReplacer(pairs...).Replace(string(text))
	if edited == string(text) && len(pairs) > 0 {
		r.t.Fatalf("%v are not in\n%s", pairs, text)
	}

	return []byte(edited)
}

// apply changes a machine's configuration as a client does, without a reboot.
func (r rig) apply(node string, pairs ...string) error {
	r.t.Helper()

	_, err := r.ApplyConfig(r.t.Context(), node, r.edited(node, pairs...), model.ApplyNoReboot, false)

	return err
}

func (r rig) mustApply(node string, pairs ...string) {
	r.t.Helper()

	if err := r.apply(node, pairs...); err != nil {
		r.t.Fatal(err)
	}
}

// components are the changes of a component on a node, as state@version.
func (r rig) components(node, component string) string {
	var states []string

	for _, event := range r.log.of(node, history.KindComponent) {
		if event.Detail["component"] == component {
			states = append(states, event.Detail["state"]+"@"+event.Detail["version"])
		}
	}

	return strings.Join(states, " ")
}

// applied are the configurations that a machine was given, as code/changed/by.
func (r rig) applied(node string) string {
	var applied []string

	for _, event := range r.log.of(node, history.KindConfig) {
		applied = append(applied, event.Detail["code"]+"/"+event.Detail["changed"]+"/"+event.Detail["by"])
	}

	return strings.Join(applied, " ")
}

func (r rig) pass(length time.Duration) { time.Sleep(length) }

// serves tells whether a static pod of that image is ready.
func serves(component, image string) func(model.NodeState) bool {
	return func(state model.NodeState) bool {
		pod := state.StaticPods[component]

		return pod.Ready && pod.PodImage == image && pod.PodConfigVersion == pod.ConfigVersion
	}
}

// kubeletRuns tells whether a kubelet of that version is healthy.
func kubeletRuns(version string) func(model.NodeState) bool {
	return func(state model.NodeState) bool {
		return state.KubeletService.Healthy && state.Kubelet.Running && state.Kubelet.Version == version
	}
}
