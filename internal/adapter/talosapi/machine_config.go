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
		Install *installSection `yaml:"install"`
		Kubelet imageReference  `yaml:"kubelet"`

		ControlPlane struct {
			ControllerManager componentSwitch `yaml:"controllerManager"`
			Scheduler         componentSwitch `yaml:"scheduler"`
		} `yaml:"controlPlane"`
	} `yaml:"machine"`
	Cluster struct {
		APIServer         imageReference `yaml:"apiServer"`
		ControllerManager imageReference `yaml:"controllerManager"`
		Scheduler         imageReference `yaml:"scheduler"`
		Etcd              struct {
			ExtraArgs map[string]any `yaml:"extraArgs"`
		} `yaml:"etcd"`
		Proxy struct {
			imageReference `yaml:",inline"`

			Disabled bool `yaml:"disabled"`
		} `yaml:"proxy"`
	} `yaml:"cluster"`
}

// componentSwitch is how v1alpha1 switches a component off.
type componentSwitch struct {
	Disabled bool `yaml:"disabled"`
}

// installSection says which image is installed, and whether GRUB starts it with the
// kernel arguments of its UKI.
type installSection struct {
	imageReference `yaml:",inline"`

	GrubUseUKICmdline bool `yaml:"grubUseUKICmdline"`
}

type imageReference struct {
	Image string `yaml:"image"`
}

// parseMachineConfig reads what an upgrade needs from a machine configuration
// of one or more YAML documents. Errors do not quote the content.
func parseMachineConfig(content []byte) (*cluster.MachineConfig, error) {
	var documents []machineConfigDocument

	for decoder := yaml.NewDecoder(bytes.NewReader(content)); ; {
		var document machineConfigDocument

		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return newMachineConfig(documents), nil
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

		documents = append(documents, document)
	}
}

// newMachineConfig puts documents together. Those with a kind decide about
// their component wherever they stand, even when they say nothing about its
// image.
func newMachineConfig(documents []machineConfigDocument) *cluster.MachineConfig {
	config := &cluster.MachineConfig{Images: map[cluster.Component]string{}}

	for _, document := range documents {
		if document.Kind == "" {
			document.addGeneral(config)
		}
	}

	for _, document := range documents {
		if document.Kind != "" {
			document.addNamed(config)
		}
	}

	return config
}

func (d machineConfigDocument) addGeneral(config *cluster.MachineConfig) {
	// What says nothing of it at all leaves the kernel arguments to the UKI, as
	// Talos reads it from 1.14 on.
	config.UKIArguments = true

	if install := d.Machine.Install; install != nil {
		config.Installs, config.InstallImage, config.UKIArguments = true, install.Image, install.GrubUseUKICmdline
	}

	if quota := etcdQuota(d.Cluster.Etcd.ExtraArgs[quotaArgument]); quota != 0 {
		config.EtcdQuota = quota
	}

	setImage(config, cluster.Kubelet, d.Machine.Kubelet.Image)
	setImage(config, cluster.APIServer, d.Cluster.APIServer.Image)
	setImage(config, cluster.ControllerManager, d.Cluster.ControllerManager.Image)
	setImage(config, cluster.Scheduler, d.Cluster.Scheduler.Image)
	setImage(config, cluster.Proxy, d.Cluster.Proxy.Image)

	disable(config, cluster.Proxy, d.Cluster.Proxy.Disabled)
	disable(config, cluster.ControllerManager, d.Machine.ControlPlane.ControllerManager.Disabled)
	disable(config, cluster.Scheduler, d.Machine.ControlPlane.Scheduler.Disabled)
}

// addNamed reads the documents that took over from v1alpha1 in Talos 1.14.
func (d machineConfigDocument) addNamed(config *cluster.MachineConfig) {
	if d.Kind == installKind {
		config.Installs, config.InstallImage, config.UKIArguments = true, d.Installer.Image, true
		document(config, cluster.Installer, d.Kind)

		return
	}

	component, ok := documentNames()[d.Kind]
	if !ok {
		return
	}

	document(config, component, d.Kind)
	delete(config.Images, component)
	setImage(config, component, d.Image)

	delete(config.Disabled, component)
	disable(config, component, d.Enabled != nil && !*d.Enabled)
}

// document notes the document that decides about a component.
func document(config *cluster.MachineConfig, component cluster.Component, kind string) {
	if config.Documents == nil {
		config.Documents = map[cluster.Component]string{}
	}

	config.Documents[component] = kind
}

// disable notes a component that is switched off.
func disable(config *cluster.MachineConfig, component cluster.Component, off bool) {
	if !off {
		return
	}

	if config.Disabled == nil {
		config.Disabled = map[cluster.Component]bool{}
	}

	config.Disabled[component] = true
}

// setImage leaves out an empty image, which is none.
func setImage(config *cluster.MachineConfig, component cluster.Component, image string) {
	if image != "" {
		config.Images[component] = image
	}
}
