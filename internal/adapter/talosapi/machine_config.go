// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

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

// machineConfigDocument is the union of the few fields that matter in any document of a machine configuration.
// Everything else is ignored on purpose: nodes may be newer than this code.
type machineConfigDocument struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`

	// Documents of Talos 1.14 and later.
	Name      string         `yaml:"name"`
	Image     string         `yaml:"image"`
	Enabled   *bool          `yaml:"enabled"`
	Installer imageReference `yaml:"installer"`
	Mode      string         `yaml:"mode"`
	Config    map[string]any `yaml:"config"`

	// The v1alpha1 document, which has no kind.
	Machine struct {
		Install *installSection `yaml:"install"`
		Kubelet imageReference  `yaml:"kubelet"`
		Kernel  struct {
			Modules []struct {
				Name string `yaml:"name"`
			} `yaml:"modules"`
		} `yaml:"kernel"`

		ControlPlane struct {
			ControllerManager componentSwitch `yaml:"controllerManager"`
			Scheduler         componentSwitch `yaml:"scheduler"`
		} `yaml:"controlPlane"`
	} `yaml:"machine"`
	Cluster struct {
		APIServer struct {
			imageReference `yaml:",inline"`

			ExtraArgs map[string]any `yaml:"extraArgs"`
		} `yaml:"apiServer"`
		ControllerManager imageReference `yaml:"controllerManager"`
		Scheduler         imageReference `yaml:"scheduler"`
		Etcd              struct {
			ExtraArgs map[string]any `yaml:"extraArgs"`
		} `yaml:"etcd"`
		Proxy struct {
			imageReference `yaml:",inline"`

			Mode      string         `yaml:"mode"`
			ExtraArgs map[string]any `yaml:"extraArgs"`
			Disabled  bool           `yaml:"disabled"`
		} `yaml:"proxy"`
	} `yaml:"cluster"`
}

// ipvs is the mode of kube-proxy that needs kernel modules.
const ipvs = "ipvs"

// ipvsByArgument reports whether v1alpha1 makes kube-proxy run in IPVS mode: Talos turns the field into an
// argument, and an explicit argument of that name takes precedence. An argument may have several values, of which
// the last counts.
func ipvsByArgument(mode string, arguments map[string]any) bool {
	argument, given := arguments["proxy-mode"]
	if !given {
		return mode == ipvs
	}

	if values, several := argument.([]any); several && len(values) > 0 {
		argument = values[len(values)-1]
	}

	return argument == ipvs
}

// ipvsByConfig reports whether a KubeProxyConfig makes kube-proxy run in IPVS mode: Talos turns it into a
// configuration file, with which kube-proxy ignores the argument (manageProxyConfigArgs in control_plane.go of
// Talos 1.14).
func ipvsByConfig(mode string, config map[string]any) bool {
	if given, found := config["mode"]; found {
		return given == ipvs
	}

	return mode == ipvs
}

// componentSwitch is how v1alpha1 disables a component.
type componentSwitch struct {
	Disabled bool `yaml:"disabled"`
}

// installSection has the image to install, and whether GRUB starts it with the kernel arguments of its UKI.
type installSection struct {
	imageReference `yaml:",inline"`

	GrubUseUKICmdline bool `yaml:"grubUseUKICmdline"`
}

type imageReference struct {
	Image string `yaml:"image"`
}

// parseMachineConfig reads what an upgrade needs from a machine configuration of one or more YAML documents. Errors
// do not quote the content.
func parseMachineConfig(content []byte) (*cluster.MachineConfig, error) {
	var (
		documents []machineConfigDocument
		sources   []any
	)

	for decoder := yaml.NewDecoder(bytes.NewReader(content)); ; {
		var (
			node     yaml.Node
			document machineConfigDocument
		)

		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			config := newMachineConfig(documents)
			config.Registries, err = fingerprint(sources)

			return config, err
		}

		if err == nil {
			err = node.Decode(&document)
		}

		var mismatch *yaml.TypeError
		if err != nil && !errors.As(err, &mismatch) {
			return nil, errors.New("it is not valid YAML: " + withoutQuotes(err.Error()))
		}

		sources = append(sources, imageSources(&node)...)

		// A field of another type than expected belongs to a document that only has fields of the same name.
		if mismatch != nil && document.Kind == "" {
			return nil, errors.New("unexpected content: " + withoutQuotes(mismatch.Error()))
		}

		documents = append(documents, document)
	}
}

// imageSources returns the parts of a document that decide where images come from and which of them are accepted:
// registries, their mirrors and credentials, certificates, caches, verification rules, and the environment, which
// may name a proxy.
func imageSources(document *yaml.Node) []any {
	var whole struct {
		Kind    string         `yaml:"kind"`
		Name    string         `yaml:"name"`
		Rest    map[string]any `yaml:",inline"`
		Machine struct {
			Registries any `yaml:"registries"`
			Env        any `yaml:"env"`
			Features   struct {
				ImageCache any `yaml:"imageCache"`
			} `yaml:"features"`
		} `yaml:"machine"`
	}

	// A document of another shape says nothing about images.
	if document.Decode(&whole) != nil {
		return nil
	}

	named := []string{"EnvironmentConfig", "TrustedRootsConfig", "ImageCacheConfig"}
	machine := whole.Machine

	switch {
	case strings.HasPrefix(whole.Kind, "Registry"), strings.HasPrefix(whole.Kind, "ImageVerification"), slices.Contains(named, whole.Kind):
		return []any{whole.Kind, whole.Name, whole.Rest}
	case whole.Kind != "" || machine.Registries == nil && machine.Env == nil && machine.Features.ImageCache == nil:
		return nil
	default:
		return []any{machine.Registries, machine.Env, machine.Features.ImageCache}
	}
}

// fingerprint returns a hash of the given values, from which they cannot be recovered; empty if there are none.
func fingerprint(sources []any) (string, error) {
	if len(sources) == 0 {
		return "", nil
	}

	text, err := yaml.Marshal(sources)
	if err != nil {
		return "", fmt.Errorf("unable to tell its registries from those of others: %w", err)
	}

	return fmt.Sprintf("%x", sha256.Sum256(text)), nil
}

// newMachineConfig merges documents. Those with a kind decide about their component wherever they stand, even if
// they do not name its image.
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
	// Without an install section the kernel arguments come from the UKI, as Talos decides from 1.14 on.
	config.UKIArguments = true

	if install := d.Machine.Install; install != nil {
		config.Installs, config.InstallImage, config.UKIArguments = true, install.Image, install.GrubUseUKICmdline
	}

	if quota := etcdQuota(d.Cluster.Etcd.ExtraArgs[quotaArgument]); quota != 0 {
		config.EtcdQuota = quota
	}

	config.APIServerArguments = slices.Sorted(maps.Keys(d.Cluster.APIServer.ExtraArgs))

	config.IPVS = ipvsByArgument(d.Cluster.Proxy.Mode, d.Cluster.Proxy.ExtraArgs)

	for _, module := range d.Machine.Kernel.Modules {
		config.KernelModules = append(config.KernelModules, module.Name)
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

// addNamed reads the documents that replaced parts of v1alpha1 in Talos 1.14, and kernel modules that have a
// document of their own.
func (d machineConfigDocument) addNamed(config *cluster.MachineConfig) {
	switch d.Kind {
	case installKind:
		config.Installs, config.InstallImage, config.UKIArguments = true, d.Installer.Image, true
		document(config, cluster.Installer, d.Kind)

		return
	case moduleKind:
		config.KernelModules = append(config.KernelModules, d.Name)

		return
	}

	component, ok := documentNames()[d.Kind]
	if !ok {
		return
	}

	if component == cluster.Proxy {
		config.IPVS = ipvsByConfig(d.Mode, d.Config)
	}

	document(config, component, d.Kind)
	delete(config.Images, component)
	setImage(config, component, d.Image)

	delete(config.Disabled, component)
	disable(config, component, d.Enabled != nil && !*d.Enabled)
}

// document records the document that decides about a component.
func document(config *cluster.MachineConfig, component cluster.Component, kind string) {
	if config.Documents == nil {
		config.Documents = map[cluster.Component]string{}
	}

	config.Documents[component] = kind
}

// disable records that a component is disabled.
func disable(config *cluster.MachineConfig, component cluster.Component, off bool) {
	if !off {
		return
	}

	if config.Disabled == nil {
		config.Disabled = map[cluster.Component]bool{}
	}

	config.Disabled[component] = true
}

// setImage sets the image of a component, unless it is empty.
func setImage(config *cluster.MachineConfig, component cluster.Component, image string) {
	if image != "" {
		config.Images[component] = image
	}
}

const (
	// imageKey is the field that names an image, in documents of both generations.
	imageKey = "image"
	// installKind is the document of Talos 1.14 and later for what a machine is installed from.
	installKind = "UnattendedInstallConfig"
	// moduleKind is the document that names a kernel module to load.
	moduleKind = "KernelModuleConfig"
)

// imagePlace is where a machine configuration names the image of a component.
type imagePlace struct {
	// kind is the document of Talos 1.14 and later for the component. If there is one, v1alpha1 does not count.
	kind string
	// named is the path in that document.
	named []string
	// path is the path in the v1alpha1 document, which has no kind.
	path []string
	// section is how many keys of path must exist. If they do not, the configuration has no place for the image,
	// and none is added.
	section int
}

// placeOf returns where the image of a component is named; false for a component without one.
func placeOf(component cluster.Component) (imagePlace, bool) {
	inRoot := []string{imageKey}

	switch component {
	case cluster.Kubelet:
		return imagePlace{kind: "KubeletConfig", named: inRoot, path: []string{"machine", "kubelet", imageKey}}, true
	case cluster.APIServer:
		return imagePlace{kind: "KubeAPIServerConfig", named: inRoot, path: []string{"cluster", "apiServer", imageKey}}, true
	case cluster.ControllerManager:
		return imagePlace{kind: "KubeControllerManagerConfig", named: inRoot, path: []string{"cluster", "controllerManager", imageKey}}, true
	case cluster.Scheduler:
		return imagePlace{kind: "KubeSchedulerConfig", named: inRoot, path: []string{"cluster", "scheduler", imageKey}}, true
	case cluster.Proxy:
		return imagePlace{kind: "KubeProxyConfig", named: inRoot, path: []string{"cluster", "proxy", imageKey}}, true
	case cluster.Installer:
		// The section of v1alpha1 also names a disk: with an image alone, the node might be installed to any disk.
		return imagePlace{kind: installKind, named: []string{"installer", imageKey}, path: []string{"machine", "install", imageKey}, section: 2}, true
	case cluster.Manifests:
		return imagePlace{}, false
	default:
		return imagePlace{}, false
	}
}

// documentNames returns the components by the kind of their document from Talos 1.14 on.
func documentNames() map[string]cluster.Component {
	names := map[string]cluster.Component{}

	for _, component := range cluster.Components(cluster.ControlPlane) {
		if place, ok := placeOf(component); ok {
			names[place.kind] = component
		}
	}

	return names
}

// pick returns the document that decides about the image, and the path of the image in it.
func (p imagePlace) pick(documents []*yaml.Node) (index int, path []string, err error) {
	named, general := -1, -1

	for i, document := range documents {
		switch kind := kindOf(document); {
		case document.Kind != yaml.MappingNode:
		case kind == p.kind && named >= 0:
			return 0, nil, fmt.Errorf("%w: it has more than one document %s", cluster.ErrRefused, kind)
		case kind == p.kind:
			named = i
		case kind == "" && general >= 0:
			return 0, nil, fmt.Errorf("%w: it has more than one document without a kind", cluster.ErrRefused)
		case kind == "":
			general = i
		}
	}

	switch {
	case named >= 0:
		return named, p.named, nil
	case general >= 0:
		return general, p.path, nil
	case p.section > 0:
		return 0, nil, p.noSection()
	default:
		return 0, nil, fmt.Errorf("%w: it has neither a document %s nor one of v1alpha1", cluster.ErrRefused, p.kind)
	}
}

// assertSection makes sure that the section exists that the image belongs to.
func (p imagePlace) assertSection(found spot, path []string) error {
	if p.section == 0 || !slices.Equal(path, p.path) {
		return nil
	}

	there := len(path) - len(found.missing)
	if len(found.missing) > 0 && isNull(found.at) {
		there--
	}

	if there < p.section {
		return p.noSection()
	}

	return nil
}

func (p imagePlace) noSection() error {
	return fmt.Errorf("%w: it has neither %s nor a document %s, and none is added",
		cluster.ErrNotFound, strings.Join(p.path[:p.section], "."), p.kind)
}

// kindOf returns the kind of a document; empty for v1alpha1.
func kindOf(document *yaml.Node) string {
	if _, value := child(document, "kind"); value != nil && value.Kind == yaml.ScalarNode {
		return value.Value
	}

	return ""
}

// child returns a key of a mapping and its value; nil if there is none.
func child(mapping *yaml.Node, name string) (key, value *yaml.Node) {
	if mapping.Kind != yaml.MappingNode {
		return nil, nil
	}

	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if at := mapping.Content[i]; at.Kind == yaml.ScalarNode && at.Value == name {
			return at, mapping.Content[i+1]
		}
	}

	return nil, nil
}

const (
	// quotaArgument is etcd's argument for the maximum size of its database.
	quotaArgument = "quota-backend-bytes"
	// unlimitedQuota stands for a quota that is disabled: more than any disk has, and little enough to calculate
	// with.
	unlimitedQuota = 1 << 56
)

// etcdQuota returns etcd's quota in bytes from the value in a machine configuration: a text, a number, or from
// Talos 1.14 on a list, of which the last value counts. It is 0 if none is set or if it is not a number, with which
// etcd would not start, and [unlimitedQuota] if it is negative, which disables the limit.
func etcdQuota(value any) int64 {
	if list, ok := value.([]any); ok {
		if len(list) == 0 {
			return 0
		}

		value = list[len(list)-1]
	}

	var text string

	switch value := value.(type) {
	case string:
		text = value
	case int, int64, uint64:
		text = fmt.Sprint(value)
	}

	// etcd parses its flags the same way.
	quota, err := strconv.ParseInt(text, 0, 64)

	switch {
	case err != nil:
		return 0
	case quota < 0:
		return unlimitedQuota
	default:
		return min(quota, unlimitedQuota)
	}
}

func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" }
