// SPDX-License-Identifier: MPL-2.0

package model

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// configuration is what the model understands of a machine configuration.
type configuration struct {
	main      map[string]any
	documents map[string]map[string]any // by kind; the last one wins
	kinds     []string                  // in their order
}

// place is where a component stands in a configuration.
type place struct {
	section string // of the configuration in one document: "machine" or "cluster"
	field   string
	kind    string // of its own document
}

func placeOf(component string) place {
	return map[string]place{
		KubeletName:           {"machine", "kubelet", "KubeletConfig"},
		APIServerName:         {"cluster", "apiServer", "KubeAPIServerConfig"},
		ControllerManagerName: {"cluster", "controllerManager", "KubeControllerManagerConfig"},
		SchedulerName:         {"cluster", "scheduler", "KubeSchedulerConfig"},
		ProxyName:             {"cluster", "proxy", "KubeProxyConfig"},
		CoreDNSName:           {"cluster", "coreDNS", "KubeCoreDNSConfig"},
		InstallerName:         {"machine", "install", installKind}, // there below installer
	}[component]
}

const installKind = "UnattendedInstallConfig"

// errNoMainDocument is a configuration of documents of kinds only.
var errNoMainDocument = errors.New("the applied machine configuration doesn't contain v1alpha1 config")

// readConfiguration reads all documents. Its errors are those of a machine that
// cannot decode what it was given.
func readConfiguration(text []byte) (*configuration, error) {
	config := &configuration{documents: map[string]map[string]any{}}
	decoder := yaml.NewDecoder(bytes.NewReader(text))

	for {
		var document map[string]any

		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			return nil, fmt.Errorf("error decoding document: %w", err)
		}

		if document == nil {
			continue
		}

		if err := config.add(document); err != nil {
			return nil, err
		}
	}

	if config.main == nil {
		return nil, errNoMainDocument
	}

	return config, nil
}

func (c *configuration) add(document map[string]any) error {
	kind, isDocument := document["kind"].(string)
	if !isDocument {
		return c.addMain(document)
	}

	if document["apiVersion"] != "v1alpha1" {
		return fmt.Errorf("error decoding document %v/%s/: %q %q: not registered", document["apiVersion"], kind, kind, document["apiVersion"])
	}

	c.documents[kind] = document
	c.kinds = append(c.kinds, kind)

	return nil
}

func (c *configuration) addMain(document map[string]any) error {
	if c.main != nil {
		return errors.New("error decoding document: not allowed to have more than one v1alpha1 config")
	}

	known := []string{"version", "debug", "persist", "machine", "cluster"}

	for _, field := range slices.Sorted(maps.Keys(document)) {
		if !slices.Contains(known, field) {
			return fmt.Errorf("unknown keys found during decoding:\n%s: %v", field, document[field])
		}
	}

	if document["version"] != "v1alpha1" {
		return fmt.Errorf("error decoding document: unknown version %v", document["version"])
	}

	c.main = document

	return nil
}

// section is what the configuration says of a component, in whichever form; nil
// where it says nothing.
func (c *configuration) section(component string) map[string]any {
	at := placeOf(component)
	if document, found := c.documents[at.kind]; found {
		return document
	}

	return child(child(c.main, at.section), at.field)
}

// image is the one that the configuration names for a component, empty where it
// names none.
func (c *configuration) image(component string) string {
	image, _ := c.section(component)["image"].(string)

	return image
}

// disabled tells whether the configuration switches a component off.
func (c *configuration) disabled(component string) bool {
	at := placeOf(component)
	if document, found := c.documents[at.kind]; found {
		enabled, given := document["enabled"].(bool)

		return given && !enabled
	}

	if component == ControllerManagerName || component == SchedulerName {
		return child(child(child(c.main, "machine"), "controlPlane"), at.field)["disabled"] == true
	}

	return c.section(component)["disabled"] == true
}

// install is the installer image of the configuration.
func (c *configuration) install() string {
	section := child(child(c.main, "machine"), "install")
	if document, found := c.documents[installKind]; found {
		section = child(document, "installer")
	}

	image, _ := section["image"].(string)

	return image
}

// ukiArguments tells whether an installer of that version has GRUB take the kernel
// arguments from the UKI.
func (c *configuration) ukiArguments(talos string) bool {
	section, found := child(c.main, "machine")["install"].(map[string]any)

	switch _, unattended := c.documents[installKind]; {
	case unattended:
		return true
	case !found:
		return AtLeast(talos, 1, 14)
	default:
		return section["grubUseUKICmdline"] == true
	}
}

// rest is everything about a component but its image, to be compared.
func (c *configuration) rest(component string) string {
	section := maps.Clone(c.section(component))
	delete(section, "image")

	return canonical(section)
}

// slow is everything that takes a reboot below Talos 1.14, by its path.
func (c *configuration) slow() map[string]string {
	immediate := []string{
		"time", "ca", "acceptedCAs", "certSANs", "install", "network", "nodeAnnotations", "nodeLabels", "nodeTaints",
		"sysfs", "sysctls", "logging", "controlPlane", "kubelet", "kernel", "registries", "pods", "seccompProfiles", "features",
	}
	slow := map[string]string{}

	for field, value := range c.main {
		if field != "machine" && field != "cluster" && field != "debug" {
			slow["."+field] = canonical(value)
		}
	}

	for field, value := range child(c.main, "machine") {
		if !slices.Contains(immediate, field) {
			slow[".machine."+field] = canonical(value)
		}
	}

	return slow
}

// slowChanges lists what differs from another configuration and takes a reboot,
// as a difference is printed.
func (c *configuration) slowChanges(to *configuration) []string {
	before, after := c.slow(), to.slow()
	paths := slices.Sorted(maps.Keys(before))

	for _, path := range slices.Sorted(maps.Keys(after)) {
		if _, found := before[path]; !found {
			paths = append(paths, path)
		}
	}

	var lines []string

	for _, path := range paths {
		if before[path] != after[path] {
			lines = append(lines, fmt.Sprintf("-%s: %s", path, before[path]), fmt.Sprintf("+%s: %s", path, after[path]))
		}
	}

	return lines
}

func child(of map[string]any, field string) map[string]any {
	found, _ := of[field].(map[string]any)

	return found
}

// canonical is text that is equal for equal values, whatever their order and
// comments were.
func canonical(value any) string {
	text, err := yaml.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}

	return strings.TrimSpace(string(text))
}
