// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"maps"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestParseMachineConfigReadsBothGenerationsOfDocuments(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		content string
		want    cluster.MachineConfig
	}{
		"v1alpha1": {
			content: `# a comment
version: v1alpha1
machine:
  type: controlplane
  install: {disk: /dev/sda, image: "factory.talos.dev/metal-installer/abc:v1.12.6"}
  kubelet: {image: "ghcr.io/siderolabs/kubelet:v1.34.2", extraArgs: {a: b}}
cluster:
  etcd: {subnet: "", extraArgs: {quota-backend-bytes: "8589934592", other: [a]}}
  apiServer: {image: "registry.k8s.io/kube-apiserver:v1.34.2"}
  controllerManager: {image: "registry.k8s.io/kube-controller-manager:v1.34.2"}
  scheduler: {image: "registry.k8s.io/kube-scheduler:v1.34.2"}
  proxy: {image: "registry.k8s.io/kube-proxy:v1.34.2", disabled: true}
`,
			want: cluster.MachineConfig{
				InstallImage: "factory.talos.dev/metal-installer/abc:v1.12.6",
				Installs:     true,
				EtcdQuota:    8589934592,
				Images: map[cluster.Component]string{
					cluster.Kubelet:           "ghcr.io/siderolabs/kubelet:v1.34.2",
					cluster.APIServer:         "registry.k8s.io/kube-apiserver:v1.34.2",
					cluster.ControllerManager: "registry.k8s.io/kube-controller-manager:v1.34.2",
					cluster.Scheduler:         "registry.k8s.io/kube-scheduler:v1.34.2",
					cluster.Proxy:             "registry.k8s.io/kube-proxy:v1.34.2",
				},
				Disabled: map[cluster.Component]bool{cluster.Proxy: true},
			},
		},
		"nothing pinned": {
			content: "version: v1alpha1\nmachine: {type: worker, kubelet: {}}\ncluster: {}\n",
			want:    cluster.MachineConfig{UKIArguments: true, Images: map[cluster.Component]string{}},
		},
		"empty images are none": {
			content: "machine: {kubelet: {image: \"\"}}\ncluster: {scheduler: {image: }, proxy: {image: ~}}\n",
			want:    cluster.MachineConfig{UKIArguments: true, Images: map[cluster.Component]string{}},
		},
		"documents decide, wherever they stand": {
			content: `apiVersion: v1alpha1
kind: KubeletConfig
image: ghcr.io/siderolabs/kubelet:v1.36.0
---
version: v1alpha1
machine:
  kubelet: {image: "ghcr.io/siderolabs/kubelet:v1.35.0"}
  install: {image: "ghcr.io/siderolabs/installer:v1.13.0"}
cluster:
  proxy: {disabled: true, image: "registry.k8s.io/kube-proxy:v1.35.0"}
---
apiVersion: v1alpha1
kind: KubeProxyConfig
mode: nftables
`,
			want: cluster.MachineConfig{
				InstallImage: "ghcr.io/siderolabs/installer:v1.13.0",
				Installs:     true,
				Images:       map[cluster.Component]string{cluster.Kubelet: "ghcr.io/siderolabs/kubelet:v1.36.0"},
				Documents:    map[cluster.Component]string{cluster.Kubelet: "KubeletConfig", cluster.Proxy: "KubeProxyConfig"},
			},
		},
		"a place for an installer without an image": {
			content: "machine: {install: {disk: /dev/sda}}\n",
			want:    cluster.MachineConfig{Installs: true},
		},
		"a document for an installer without an image": {
			content: "machine: {}\n---\napiVersion: v1alpha1\nkind: UnattendedInstallConfig\nprovisioning: {diskSelector: {match: disk.size > 1u}}\n",
			want:    cluster.MachineConfig{Installs: true, UKIArguments: true, Documents: map[cluster.Component]string{cluster.Installer: "UnattendedInstallConfig"}},
		},
		"no place for an installer": {
			content: "machine:\n  install:\ncluster: {etcd: }\n",
			want:    cluster.MachineConfig{UKIArguments: true},
		},
		"GRUB takes the kernel arguments from the UKI": {
			content: "machine: {install: {image: \"ghcr.io/siderolabs/installer:v1.13.0\", grubUseUKICmdline: true}}\n",
			want:    cluster.MachineConfig{Installs: true, InstallImage: "ghcr.io/siderolabs/installer:v1.13.0", UKIArguments: true},
		},
		"GRUB has kernel arguments of its own": {
			content: "machine: {install: {grubUseUKICmdline: false}}\n",
			want:    cluster.MachineConfig{Installs: true},
		},
		"a document about the installer decides": {
			content: "kind: UnattendedInstallConfig\ninstaller: {}\n---\nmachine: {install: {image: \"ghcr.io/siderolabs/installer:v1.13.0\"}}\n",
			want:    cluster.MachineConfig{Installs: true, UKIArguments: true, Documents: map[cluster.Component]string{cluster.Installer: "UnattendedInstallConfig"}},
		},
		"components switched off": {
			content: `version: v1alpha1
machine:
  controlPlane:
    controllerManager: {disabled: true}
    scheduler: {disabled: true}
cluster:
  scheduler: {image: "registry.k8s.io/kube-scheduler:v1.35.0"}
`,
			want: cluster.MachineConfig{
				UKIArguments: true,
				Images:       map[cluster.Component]string{cluster.Scheduler: "registry.k8s.io/kube-scheduler:v1.35.0"},
				Disabled:     map[cluster.Component]bool{cluster.ControllerManager: true, cluster.Scheduler: true},
			},
		},
		"components not switched off": {
			content: `machine:
  controlPlane: {controllerManager: {disabled: false}, scheduler: {}}
cluster:
  controllerManager: {disabled: true}
---
apiVersion: v1alpha1
kind: KubeSchedulerConfig
enabled: true
`,
			want: cluster.MachineConfig{UKIArguments: true, Documents: map[cluster.Component]string{cluster.Scheduler: "KubeSchedulerConfig"}},
		},
		"documents decide about what is switched off": {
			content: `apiVersion: v1alpha1
kind: KubeControllerManagerConfig
image: registry.k8s.io/kube-controller-manager:v1.36.0
---
machine:
  controlPlane: {controllerManager: {disabled: true}}
---
apiVersion: v1alpha1
kind: KubeSchedulerConfig
enabled: false
image: registry.k8s.io/kube-scheduler:v1.36.0
`,
			want: cluster.MachineConfig{
				UKIArguments: true,
				Images: map[cluster.Component]string{
					cluster.ControllerManager: "registry.k8s.io/kube-controller-manager:v1.36.0",
					cluster.Scheduler:         "registry.k8s.io/kube-scheduler:v1.36.0",
				},
				Disabled: map[cluster.Component]bool{cluster.Scheduler: true},
				Documents: map[cluster.Component]string{
					cluster.ControllerManager: "KubeControllerManagerConfig", cluster.Scheduler: "KubeSchedulerConfig",
				},
			},
		},
		"documents of 1.14 beside unknown ones": {
			content: `version: v1alpha1
machine: {type: controlplane}
---
apiVersion: v1alpha1
kind: KubeletConfig
image: ghcr.io/siderolabs/kubelet:v1.36.0
---
apiVersion: v1alpha1
kind: SomethingFromTheFuture
image: {not: "a string"}
machine: 17
---
apiVersion: v1alpha1
kind: KubeProxyConfig
enabled: false
---
apiVersion: v1alpha1
kind: UnattendedInstallConfig
installer: {image: "factory.talos.dev/metal-installer/abc:v1.14.0"}
`,
			want: cluster.MachineConfig{
				InstallImage: "factory.talos.dev/metal-installer/abc:v1.14.0",
				Installs:     true,
				UKIArguments: true,
				Images:       map[cluster.Component]string{cluster.Kubelet: "ghcr.io/siderolabs/kubelet:v1.36.0"},
				Disabled:     map[cluster.Component]bool{cluster.Proxy: true},
				Documents: map[cluster.Component]string{
					cluster.Kubelet: "KubeletConfig", cluster.Proxy: "KubeProxyConfig", cluster.Installer: "UnattendedInstallConfig",
				},
			},
		},
	} {
		got, err := parseMachineConfig([]byte(test.content))
		if err != nil {
			t.Errorf("%s: %v", name, err)

			continue
		}

		if got.InstallImage != test.want.InstallImage || got.Installs != test.want.Installs || got.UKIArguments != test.want.UKIArguments || got.EtcdQuota != test.want.EtcdQuota ||
			!maps.Equal(got.Disabled, test.want.Disabled) || !maps.Equal(got.Images, test.want.Images) ||
			!maps.Equal(got.Documents, test.want.Documents) {
			t.Errorf("%s: %+v, want %+v", name, *got, test.want)
		}
	}
}

func TestParseMachineConfigErrorsDoNotQuoteTheContent(t *testing.T) {
	t.Parallel()

	for name, content := range map[string]string{
		"not YAML":      "machine: {token: verysecret\n  x: [",
		"another shape": "machine: verysecret\n",
		"not an alias":  "machine: {token: *verysecret}\n",
	} {
		_, err := parseMachineConfig([]byte(content))
		if err == nil {
			t.Errorf("%s: accepted", name)

			continue
		}

		if strings.Contains(err.Error(), "verysecret") {
			t.Errorf("%s: %v quotes the configuration", name, err)
		}
	}
}

// The spellings are those that a configuration can have.
func TestQuotasOfEtcdAreReadAsEtcdDoes(t *testing.T) {
	t.Parallel()

	for arguments, want := range map[string]int64{
		`quota-backend-bytes: "4294967296"`:           4 << 30,
		`quota-backend-bytes: 4294967296`:             4 << 30,
		`quota-backend-bytes: 0x100000000`:            4 << 30,
		`quota-backend-bytes: "0x100000000"`:          4 << 30,
		`quota-backend-bytes: ["1", "4294967296"]`:    4 << 30,
		`quota-backend-bytes: "9223372036854775807"`:  unlimitedQuota,
		`quota-backend-bytes: "-1"`:                   unlimitedQuota,
		`quota-backend-bytes: -1`:                     unlimitedQuota,
		`quota-backend-bytes: "0"`:                    0,
		`quota-backend-bytes: "4Gi"`:                  0,
		`quota-backend-bytes: ""`:                     0,
		`quota-backend-bytes: `:                       0,
		`quota-backend-bytes: []`:                     0,
		`quota-backend-bytes: {a: b}`:                 0,
		`quota-backend-bytes: "99999999999999999999"`: 0,
		`auto-compaction-retention: "5m"`:             0,
	} {
		config, err := parseMachineConfig([]byte("cluster: {etcd: {extraArgs: {" + arguments + "}}}\n"))
		if err != nil || config.EtcdQuota != want {
			t.Errorf("%s: %+v, %v; want %d", arguments, config, err, want)
		}
	}
}

func TestStageIsSpelledAsTalosPrintsIt(t *testing.T) {
	t.Parallel()

	for number, want := range map[int32]cluster.Stage{
		1: cluster.StageBooting, 4: cluster.StageRunning, 5: cluster.StageRebooting, 6: cluster.StageShuttingDown, 7: cluster.StageResetting,
		8: cluster.StageUpgrading,
		9: "stage 9", -1: "stage -1",
	} {
		if got := stage(number); got != want {
			t.Errorf("stage %d is %q, want %q", number, got, want)
		}
	}
}

// TestTheMachineIDIsWhatTalosMakesOfAnIdentity; the first pair is of Talos' own
// tests.
func TestTheMachineIDIsWhatTalosMakesOfAnIdentity(t *testing.T) {
	for identity, want := range map[string]string{
		"sou7yy34ykX3n373Zw1DXKb8zD7UnyKT6HT3QDsGH6L": "be871ac0d0dd31fa4caca753b0f3f1b2",
		"":                 "",
		"short":            "",
		"not base62 (=+/)": "",
	} {
		if got := machineID(identity); got != want {
			t.Errorf("%q: %q, want %q", identity, got, want)
		}
	}
}
