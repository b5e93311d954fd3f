// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	configpb "github.com/siderolabs/talos/pkg/machinery/api/resource/config"
	"go.yaml.in/yaml/v3"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func (c *Client) readConfig(ctx context.Context, machine *cluster.Machine) error {
	if !c.config.certificate.admin() {
		return nil
	}

	var spec configpb.MachineConfigSpec

	found, err := c.resource(ctx, machine.Address, kindMachineConfig(), "v1alpha1", &spec)
	if err != nil || !found {
		return err
	}

	machine.Config, err = parseMachineConfig(spec.GetYamlMarshalled())
	if err != nil {
		return fmt.Errorf("unable to read the machine configuration of %s: %w", place(machine.Address), err)
	}

	return nil
}

// machineConfigDocument is the union of the few fields that matter in any
// document of a machine configuration. Everything else is ignored on purpose:
// nodes may be newer than this code.
type machineConfigDocument struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`

	// Documents of Talos 1.14 and later.
	Image     string         `yaml:"image"`
	Enabled   *bool          `yaml:"enabled"`
	Installer imageReference `yaml:"installer"`

	// The v1alpha1 document, which has no kind.
	Machine struct {
		Install imageReference `yaml:"install"`
		Kubelet imageReference `yaml:"kubelet"`
	} `yaml:"machine"`
	Cluster struct {
		APIServer         imageReference `yaml:"apiServer"`
		ControllerManager imageReference `yaml:"controllerManager"`
		Scheduler         imageReference `yaml:"scheduler"`
		Proxy             struct {
			imageReference `yaml:",inline"`

			Disabled bool `yaml:"disabled"`
		} `yaml:"proxy"`
	} `yaml:"cluster"`
}

type imageReference struct {
	Image string `yaml:"image"`
}

// parseMachineConfig reads what an upgrade needs from a machine configuration
// of one or more YAML documents. Errors do not quote the content.
func parseMachineConfig(content []byte) (*cluster.MachineConfig, error) {
	config := &cluster.MachineConfig{Images: map[cluster.Component]string{}}

	for decoder := yaml.NewDecoder(bytes.NewReader(content)); ; {
		var document machineConfigDocument

		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return config, nil
		}

		var mismatch *yaml.TypeError
		if err != nil && !errors.As(err, &mismatch) {
			return nil, errors.New("it is not valid YAML: " + withoutQuotes(err.Error()))
		}

		// A field of another type than expected belongs to a document that
		// merely shares a name with ours.
		if mismatch != nil && document.Kind == "" {
			return nil, errors.New("unexpected content: " + withoutQuotes(mismatch.Error()))
		}

		document.add(config)
	}
}

func (d machineConfigDocument) add(config *cluster.MachineConfig) {
	if d.Kind != "" {
		d.addNamed(config)

		return
	}

	setText(&config.InstallImage, d.Machine.Install.Image)
	setImage(config, cluster.Kubelet, d.Machine.Kubelet.Image)
	setImage(config, cluster.APIServer, d.Cluster.APIServer.Image)
	setImage(config, cluster.ControllerManager, d.Cluster.ControllerManager.Image)
	setImage(config, cluster.Scheduler, d.Cluster.Scheduler.Image)
	setImage(config, cluster.Proxy, d.Cluster.Proxy.Image)

	config.ProxyDisabled = config.ProxyDisabled || d.Cluster.Proxy.Disabled
}

// addNamed reads the documents that took over from v1alpha1 in Talos 1.14.
func (d machineConfigDocument) addNamed(config *cluster.MachineConfig) {
	switch d.Kind {
	case "UnattendedInstallConfig":
		setText(&config.InstallImage, d.Installer.Image)
	case "KubeletConfig":
		setImage(config, cluster.Kubelet, d.Image)
	case "KubeAPIServerConfig":
		setImage(config, cluster.APIServer, d.Image)
	case "KubeControllerManagerConfig":
		setImage(config, cluster.ControllerManager, d.Image)
	case "KubeSchedulerConfig":
		setImage(config, cluster.Scheduler, d.Image)
	case "KubeProxyConfig":
		setImage(config, cluster.Proxy, d.Image)

		if d.Enabled != nil && !*d.Enabled {
			config.ProxyDisabled = true
		}
	}
}

func setText(field *string, value string) {
	if value != "" {
		*field = value
	}
}

func setImage(config *cluster.MachineConfig, component cluster.Component, image string) {
	if image != "" {
		config.Images[component] = image
	}
}
