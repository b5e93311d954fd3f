// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// imagesOf is what Talos itself takes the images in a machine configuration
// for.
func imagesOf(t *testing.T, content []byte) map[cluster.Component]string {
	t.Helper()

	loaded, err := configloader.NewFromBytes(content)
	if err != nil {
		t.Fatal(err)
	}

	return map[cluster.Component]string{
		cluster.Kubelet:           loaded.K8sKubeletConfig().Image(),
		cluster.APIServer:         loaded.K8sAPIServerConfig().Image(),
		cluster.ControllerManager: loaded.K8sControllerManagerConfig().Image(),
		cluster.Scheduler:         loaded.K8sSchedulerConfig().Image(),
		cluster.Proxy:             loaded.K8sProxyConfig().Image(),
	}
}

// TestConfigurationsThatTalosGeneratesAreEditedWhereTalosLooks: with all their
// comments and examples, of both generations.
func TestConfigurationsThatTalosGeneratesAreEditedWhereTalosLooks(t *testing.T) {
	t.Parallel()

	bundle, err := secrets.NewBundle(secrets.NewClock(), config.TalosVersion1_12)
	if err != nil {
		t.Fatal(err)
	}

	for name, contract := range map[string]*config.VersionContract{"1.12": config.TalosVersion1_12, "1.13": config.TalosVersion1_13, "1.14": config.TalosVersion1_14} {
		input, err := generate.NewInput("test", "https://10.5.0.2:6443", "1.34.2",
			generate.WithVersionContract(contract), generate.WithSecretsBundle(bundle), generate.WithInstallDisk("/dev/sda"))
		if err != nil {
			t.Fatal(err)
		}

		generated, err := input.Config(machine.TypeControlPlane)
		if err != nil {
			t.Fatal(err)
		}

		for comments, option := range map[string]encoder.CommentsFlags{"all comments": encoder.CommentsAll, "no comments": encoder.CommentsDisabled} {
			content, err := generated.EncodeBytes(encoder.WithComments(option))
			if err != nil {
				t.Fatal(err)
			}

			for _, component := range cluster.Components(cluster.ControlPlane) {
				from := imagesOf(t, content)[component]
				to := strings.ReplaceAll(from, "1.34.2", "1.35.0")

				edited, err := editImage(content, cluster.ImageChange{Component: component, From: from, To: to})
				if err != nil {
					t.Errorf("%s, %s, %s: %v", name, comments, component, err)

					continue
				}

				if from == to || string(edited) != strings.Replace(string(content), from, to, 1) {
					t.Errorf("%s, %s, %s: %s became something else than %s", name, comments, component, from, to)
				}

				if got := imagesOf(t, edited)[component]; got != to {
					t.Errorf("%s, %s, %s: Talos reads %s, want %s", name, comments, component, got, to)
				}
			}
		}
	}
}
