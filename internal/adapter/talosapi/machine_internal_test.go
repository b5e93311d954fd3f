// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestMachineConfig_ParseReadsBothGenerationsOfDocuments(t *testing.T) {
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
  apiServer: {image: "registry.k8s.io/kube-apiserver:v1.34.2", extraArgs: {tls-min-version: VersionTLS13, audit-log-maxage: [1, 2]}}
  controllerManager: {image: "registry.k8s.io/kube-controller-manager:v1.34.2"}
  scheduler: {image: "registry.k8s.io/kube-scheduler:v1.34.2"}
  proxy: {image: "registry.k8s.io/kube-proxy:v1.34.2", disabled: true}
`,
			want: cluster.MachineConfig{
				InstallImage: "factory.talos.dev/metal-installer/abc:v1.12.6",
				Installs:     true,
				EtcdQuota:    8589934592,

				APIServerArguments: []string{"audit-log-maxage", "tls-min-version"},
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
		"IPVS and its modules": {
			content: "machine: {kernel: {modules: [{name: br_netfilter}, {name: ip_vs}]}}\ncluster: {proxy: {mode: ipvs}}\n---\nkind: KernelModuleConfig\nname: ip_vs_rr\n",
			want:    cluster.MachineConfig{UKIArguments: true, IPVS: true, KernelModules: []string{"br_netfilter", "ip_vs", "ip_vs_rr"}},
		},
		"IPVS as an argument": {
			content: "cluster: {proxy: {mode: iptables, extraArgs: {proxy-mode: ipvs}}}\n",
			want:    cluster.MachineConfig{UKIArguments: true, IPVS: true},
		},
		"another mode as an argument": {
			content: "cluster: {proxy: {mode: ipvs, extraArgs: {proxy-mode: nftables}}}\n",
			want:    cluster.MachineConfig{UKIArguments: true},
		},
		"IPVS as the last value of an argument": {
			content: "cluster: {proxy: {extraArgs: {proxy-mode: [iptables, ipvs]}}}\n",
			want:    cluster.MachineConfig{UKIArguments: true, IPVS: true},
		},
		"a document about kube-proxy decides": {
			content: "kind: KubeProxyConfig\nmode: ipvs\nextraArgs: {proxy-mode: nftables}\n---\ncluster: {proxy: {mode: iptables}}\n",
			want:    cluster.MachineConfig{UKIArguments: true, IPVS: true, Documents: map[cluster.Component]string{cluster.Proxy: "KubeProxyConfig"}},
		},
		"the configuration in the document goes before its mode": {
			content: "kind: KubeProxyConfig\nmode: nftables\nconfig: {mode: ipvs}\n",
			want:    cluster.MachineConfig{IPVS: true, Documents: map[cluster.Component]string{cluster.Proxy: "KubeProxyConfig"}},
		},
		"an argument beside the configuration says nothing": {
			content: "kind: KubeProxyConfig\nextraArgs: {proxy-mode: ipvs}\n",
			want:    cluster.MachineConfig{Documents: map[cluster.Component]string{cluster.Proxy: "KubeProxyConfig"}},
		},
		"a document about kube-proxy decides against IPVS": {
			content: "cluster: {proxy: {mode: ipvs}}\n---\nkind: KubeProxyConfig\n",
			want:    cluster.MachineConfig{UKIArguments: true, Documents: map[cluster.Component]string{cluster.Proxy: "KubeProxyConfig"}},
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
			got.IPVS != test.want.IPVS || !slices.Equal(got.KernelModules, test.want.KernelModules) || !maps.Equal(got.Documents, test.want.Documents) || !slices.Equal(got.APIServerArguments, test.want.APIServerArguments) {
			t.Errorf("%s: %+v, want %+v", name, *got, test.want)
		}
	}
}

func TestMachineConfig_ParseErrorsDoNotQuoteTheContent(t *testing.T) {
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
func TestMachineConfig_EtcdQuotaIsReadAsEtcdDoes(t *testing.T) {
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

func TestMachine_StageIsSpelledAsTalosPrintsIt(t *testing.T) {
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

// TestMachine_IDIsWhatTalosMakesOfAnIdentity uses a first pair from the tests of Talos.
func TestMachine_IDIsWhatTalosMakesOfAnIdentity(t *testing.T) {
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

func TestVitals_DiskIsThatOfImages(t *testing.T) {
	t.Parallel()

	mount := func(at string, size uint64) *machineapi.MountStat {
		return &machineapi.MountStat{MountedOn: at, Size: size, Available: size / 2}
	}

	for name, test := range map[string]struct {
		mounts []*machineapi.MountStat
		// size is that of the file system; zero if it is not known.
		size int64
	}{
		"nothing mounted":            {},
		"the root alone":             {[]*machineapi.MountStat{mount("/", 8)}, 0},
		"one volume":                 {[]*machineapi.MountStat{mount("/", 8), mount("/var", 100)}, 100},
		"a volume for images":        {[]*machineapi.MountStat{mount("/var", 100), mount("/var/lib/containerd", 40)}, 40},
		"listed first":               {[]*machineapi.MountStat{mount("/var/lib/containerd", 40), mount("/var", 100)}, 40},
		"a volume in between":        {[]*machineapi.MountStat{mount("/var/lib", 60), mount("/var", 100)}, 60},
		"volumes for others":         {[]*machineapi.MountStat{mount("/var", 100), mount("/var/lib/kubelet", 40), mount("/var/lib/etcd", 5), mount("/var/log", 3)}, 100},
		"a similar name":             {[]*machineapi.MountStat{mount("/var", 100), mount("/var/lib/containerd2", 40), mount("/var/li", 4), mount("/variable", 9)}, 100},
		"mounts of containers":       {[]*machineapi.MountStat{mount("/var", 100), mount("/var/lib/containerd/io.containerd.snapshotter/1", 7)}, 100},
		"twice in one place":         {[]*machineapi.MountStat{mount("/var", 100), mount("/var", 200)}, 200},
		"twice, the later one empty": {[]*machineapi.MountStat{mount("/var", 100), mount("/var", 0)}, 100},
		"a volume of unknown size":   {[]*machineapi.MountStat{mount("/var", 100), mount("/var/lib/containerd", 0)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got := spaceForImages(&machineapi.MountsResponse{Messages: []*machineapi.Mounts{{Stats: test.mounts}}})

			if test.size == 0 {
				if got != nil {
					t.Errorf("got %+v, want it unknown", *got)
				}

				return
			}

			if want := (cluster.DiskSpace{Size: test.size, Available: test.size / 2}); got == nil || *got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// TestVitals_HangingMountsAreAskedForOnce, and only for a short time.
func TestVitals_HangingMountsAreAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32

		c := connect(t, &nodeFake{mounts: func(ctx context.Context) (*machineapi.MountsResponse, error) {
			asked.Add(1)

			return silence[*machineapi.MountsResponse](ctx)
		}})
		begun := time.Now()

		for range 3 {
			vitals, err := c.Vitals(t.Context(), "10.5.0.5")
			if err != nil || vitals.Disk != nil || vitals.Time != nil {
				t.Fatalf("%+v, %v", vitals, err)
			}

			if !errors.Is(vitals.DiskError, cluster.ErrUnreachable) || !strings.Contains(vitals.DiskError.Error(), "mounts of node 10.5.0.5") {
				t.Errorf("the disk is not known because of %v", vitals.DiskError)
			}

			if !errors.Is(vitals.TimeError, cluster.ErrUnsupported) {
				t.Errorf("the clock is not known because of %v", vitals.TimeError)
			}
		}

		if took := time.Since(begun); asked.Load() != 1 || took >= readTimeout {
			t.Errorf("asked %d times in %s", asked.Load(), took)
		}

		// It may only have been busy, and is asked again later, however often it was not asked in between.
		for range 3 {
			time.Sleep(hungTime / 2)

			if _, err := c.Vitals(t.Context(), "10.5.0.5"); err != nil {
				t.Fatal(err)
			}
		}

		if asked.Load() != 2 {
			t.Errorf("asked %d times in 15 minutes, want twice", asked.Load())
		}
	})
}
