// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// extraArguments are what a configuration adds to the command lines, by
// component and flag.
type extraArguments map[string]map[string]argument

// argument is the value of a flag, or several.
type argument []string

// UnmarshalYAML implements yaml.Unmarshaler: a list is given several times.
func (a *argument) UnmarshalYAML(value *yaml.Node) error {
	if value.Kind == yaml.SequenceNode {
		return value.Decode((*[]string)(a))
	}

	var single string
	if err := value.Decode(&single); err != nil {
		return err
	}

	*a = argument{single}

	return nil
}

// section is the part of a configuration that belongs to one component.
type section struct {
	ExtraArgs map[string]argument `yaml:"extraArgs"`
}

// readArguments finds the extra arguments in a configuration of either form.
// What cannot be read has none: a machine does not take such a configuration.
func readArguments(config []byte) extraArguments {
	found := extraArguments{}

	for decoder := yaml.NewDecoder(bytes.NewReader(config)); ; {
		var document yaml.Node
		if err := decoder.Decode(&document); err != nil {
			return found
		}

		var head struct {
			Kind string `yaml:"kind"`
		}

		_ = document.Decode(&head)

		switch component := documentOf(head.Kind); {
		case component != "":
			var only section
			_ = document.Decode(&only)
			found[component] = only.ExtraArgs
		case head.Kind == "":
			found.addClassic(&document)
		}
	}
}

// addClassic reads the document that has everything in one.
func (e extraArguments) addClassic(document *yaml.Node) {
	var classic struct {
		Machine struct {
			Kubelet section `yaml:"kubelet"`
		} `yaml:"machine"`
		Cluster struct {
			APIServer         section `yaml:"apiServer"`
			ControllerManager section `yaml:"controllerManager"`
			Scheduler         section `yaml:"scheduler"`
		} `yaml:"cluster"`
	}

	_ = document.Decode(&classic)

	for component, args := range map[string]map[string]argument{
		model.KubeletName:           classic.Machine.Kubelet.ExtraArgs,
		model.APIServerName:         classic.Cluster.APIServer.ExtraArgs,
		model.ControllerManagerName: classic.Cluster.ControllerManager.ExtraArgs,
		model.SchedulerName:         classic.Cluster.Scheduler.ExtraArgs,
	} {
		if len(args) > 0 {
			e[component] = args
		}
	}
}

// documentOf is the component that a kind of document configures.
func documentOf(kind string) string {
	return map[string]string{
		"KubeletConfig":               model.KubeletName,
		"KubeAPIServerConfig":         model.APIServerName,
		"KubeControllerManagerConfig": model.ControllerManagerName,
		"KubeSchedulerConfig":         model.SchedulerName,
	}[kind]
}

// flagsOf is the command line of a component without its program: what Talos
// sets, and what the configuration adds or sets otherwise, in order of the
// flags' names.
func flagsOf(own map[string]string, extra map[string]argument) []string {
	merged := map[string]argument{}
	for name, value := range own {
		merged[name] = argument{value}
	}

	for name, values := range extra {
		if before := merged[name]; additive(name) && len(before) > 0 {
			values = argument{strings.Join(append(before, values...), ",")}
		}

		merged[name] = values
	}

	var flags []string

	for _, name := range slices.Sorted(maps.Keys(merged)) {
		for _, value := range merged[name] {
			flags = append(flags, "--"+name+"="+value)
		}
	}

	return flags
}

// additive flags take what is configured besides what Talos sets.
func additive(flag string) bool {
	return slices.Contains([]string{"enable-admission-plugins", "authorization-mode", "feature-gates"}, flag)
}
