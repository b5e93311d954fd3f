// SPDX-License-Identifier: MPL-2.0

package real

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	machineryconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"golang.org/x/sys/unix"
)

// etcdTag is the release of etcd that internal/tools/kube pins.
const etcdTag = "v3.6.8"

// wantedOpenFiles is how many open files a kubelet of Talos requests by default.
const wantedOpenFiles = 1000000

// configure generates the machine configurations and the administrator's talosconfig.
func (w *world) configure() error {
	// A newer Talos accepts the configuration of an older one.
	oldest := w.ground.first(w.programs.Talos.Version).Version

	contract, err := machineryconfig.ParseContractFromVersion(oldest)
	if err != nil {
		return fmt.Errorf("finding the contract of Talos %s: %w", oldest, err)
	}

	var controlPlanes []string

	for _, m := range w.machines {
		if m.controlPlane {
			controlPlanes = append(controlPlanes, m.address.String())
		}
	}

	input, err := generate.NewInput(clusterName, "https://"+controlPlanes[0]+":6443", w.ground.kubernetes().String(),
		generate.WithVersionContract(contract), generate.WithEndpointList(controlPlanes),
		generate.WithInstallImage("ghcr.io/siderolabs/installer:"+w.programs.Talos.Version))
	if err != nil {
		return fmt.Errorf("generating configurations: %w", err)
	}

	for _, m := range w.machines {
		if err := w.configureMachine(input, m); err != nil {
			return fmt.Errorf("configuring %s: %w", m.name, err)
		}
	}

	client, err := input.Talosconfig()
	if err != nil {
		return fmt.Errorf("generating the talosconfig: %w", err)
	}

	for _, context := range client.Contexts {
		for _, m := range w.machines {
			context.Nodes = append(context.Nodes, m.address.String())
		}
	}

	w.talosconfig = w.state("talosconfig")

	return client.Save(w.talosconfig)
}

func (w *world) configureMachine(input *generate.Input, m *machine) error {
	kind := machinetype.TypeWorker
	if m.controlPlane {
		kind = machinetype.TypeControlPlane
	}

	generated, err := input.Config(kind)
	if err != nil {
		return err
	}

	all, err := hierarchies()
	if err != nil {
		return err
	}

	patch, err := configpatcher.LoadPatch([]byte(w.patch(m, all)))
	if err != nil {
		return err
	}

	patched, err := configpatcher.Apply(configpatcher.WithConfig(generated), []configpatcher.Patch{patch})
	if err != nil {
		return err
	}

	if m.config, err = patched.Bytes(); err != nil {
		return err
	}

	return os.WriteFile(w.state(m.name+".yaml"), m.config, 0o600)
}

// patch returns the configuration of a machine of this suite, in addition to what every machine has.
func (w *world) patch(m *machine, all []hierarchy) string {
	kubelet, extra := map[string]any{}, map[string]any{}

	if !m.emulated {
		kubelet["extraArgs"] = map[string]string{"boot-id-file": bootIDFile}
	}

	if !m.emulated && !all[0].unified() {
		extra["failCgroupV1"] = false
	}

	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil && limit.Max < wantedOpenFiles && !m.emulated {
		extra["maxOpenFiles"] = limit.Max
	}

	if len(extra) > 0 {
		kubelet["extraConfig"] = extra
	}

	cluster := map[string]any{
		"network": map[string]any{"cni": map[string]any{"name": "none"}},
		"discovery": map[string]any{"enabled": true, "registries": map[string]any{
			"kubernetes": map[string]any{"disabled": true}, "service": map[string]any{"endpoint": w.discovery.endpoint},
		}},
	}

	if m.controlPlane {
		cluster["proxy"] = map[string]any{"disabled": true}
		cluster["coreDNS"] = map[string]any{"disabled": true}
		cluster["etcd"] = map[string]any{"image": "registry.k8s.io/etcd:" + etcdTag}
	}

	documents := []map[string]any{
		{
			"machine": map[string]any{
				"kubelet": kubelet,
				"install": map[string]any{"disk": "/dev/vda"},
				"time":    map[string]any{"disabled": true},
				// Container mode needs both.
				"features":   map[string]any{"hostDNS": map[string]any{"enabled": true, "forwardKubeDNSToHost": true}},
				"registries": map[string]any{"mirrors": map[string]any{"*": map[string]any{"endpoints": []string{"http://" + w.images.host}, "skipFallback": true}}},
			},
			"cluster": cluster,
		},
		{"apiVersion": "v1alpha1", "kind": "HostnameConfig", "auto": "off", "hostname": m.name},
	}

	var text strings.Builder

	for _, document := range documents {
		// JSON is YAML, and these maps always encode.
		content, _ := json.Marshal(document)

		fmt.Fprintf(&text, "---\n%s\n", content)
	}

	return text.String()
}

// podNetwork returns the CNI configuration of one machine: a bridge with addresses of its own.
func podNetwork(number byte) string {
	return fmt.Sprintf(`{"name": "pods", "cniVersion": "1.0.0", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true,
"ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": "10.244.%d.0/24"}]]}}]}
`, number)
}
