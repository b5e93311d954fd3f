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
	"text/template"
	"time"

	"github.com/Masterminds/semver/v3"
	"go.yaml.in/yaml/v3"
)

// MachineConfig returns a machine's configuration as it was applied last: YAML with comments, and with component
// images only if the cluster pins them. Its keys and tokens are made up.
func (w *World) MachineConfig(nameOrAddress string) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	n, err := w.find(nameOrAddress)
	if err != nil {
		return nil, err
	}

	return slices.Clone(n.config), nil
}

// writeConfig gives a new machine the configuration it was installed with.
func (w *World) writeConfig(n *node, kubernetes string) error {
	source := machineConfig
	if w.options.Documents && AtLeast(n.running().talos, 1, 14) {
		source = machineDocuments
	}

	parsed, err := template.New("machine configuration").Parse(source)
	if err != nil {
		return fmt.Errorf("machine configuration: %w", err)
	}

	endpoint := n.address
	if len(w.nodes) > 0 {
		endpoint = w.nodes[0].address
	}

	var text strings.Builder

	err = parsed.Execute(&text, map[string]any{
		"Type": n.role, "ControlPlane": n.role == ControlPlane, "Name": n.name, "Install": n.running().image,
		"Images": w.options.imagesFor(kubernetes), "ProxyDisabled": w.options.ProxyDisabled,
		"Disabled": w.options.switchedOff(), "GrubUseUKICmdline": w.options.GrubUseUKICmdline,
		"ClusterName": w.options.ClusterName, "ClusterID": w.clusterID, "Endpoint": endpoint, "APIServer": hostPort(endpoint, "6443"),
		"Secret": drawToken(w.options.Seed, "secret"),
	})
	if err != nil {
		return fmt.Errorf("machine configuration: %w", err)
	}

	config, err := readConfiguration([]byte(text.String()))
	if err != nil {
		return fmt.Errorf("machine configuration: %w", err)
	}

	n.config, n.configured, n.configVersion = []byte(text.String()), config, 1

	return nil
}

// imagesFor returns the images that the configurations name: those that the options give, and the others with the
// version, unless nothing is pinned.
func (o Options) imagesFor(kubernetes string) map[string]string {
	images := map[string]string{}

	for _, component := range componentNames() {
		switch {
		case o.ConfiguredImages[component] != "":
			images[component] = o.ConfiguredImages[component]
		case o.Unpinned || component == ProxyName && o.ProxyDisabled:
		case o.ComponentImages[component] != "":
			images[component] = o.ComponentImages[component] + ":v" + kubernetes
		default:
			images[component] = defaultImage(component, kubernetes)
		}
	}

	if image := o.ConfiguredImages[CoreDNSName]; image != "" {
		images[CoreDNSName] = image
	}

	return images
}

// switchedOff returns the components that the configurations switch off.
func (o Options) switchedOff() map[string]bool {
	off := map[string]bool{}
	for _, component := range o.DisabledComponents {
		off[component] = true
	}

	return off
}

// componentNames lists the components with a version of Kubernetes, in the
// order in which the history names them.
func componentNames() []string {
	return []string{KubeletName, APIServerName, ControllerManagerName, SchedulerName, ProxyName}
}

// staticNames lists the components that are static pods of a control plane.
func staticNames() []string { return []string{APIServerName, ControllerManagerName, SchedulerName} }

// configuredNames lists the components that a machine's configuration decides about.
func (n *node) configuredNames() []string {
	if n.role == ControlPlane {
		return componentNames()
	}

	return []string{KubeletName}
}

// machineConfig is a configuration in one document, as every version of Talos
// reads it.
const machineConfig = `version: v1alpha1 # Indicates the schema used to decode the contents.
debug: false
persist: true
machine:
  type: {{ .Type }} # Defines the role of the machine within the cluster.
  token: abcdef.0123456789abcdef
  certSANs: []
  kubelet:
{{- with index .Images "kubelet" }}
    image: {{ . }} # Changed together with the control plane.
{{- end }}
    defaultRuntimeSeccompProfileEnabled: true
    disableManifestsDirectory: true
{{- with and .ControlPlane .Disabled }}
  controlPlane:
{{- if index . "kube-controller-manager" }}
    controllerManager:
      disabled: true
{{- end }}
{{- if index . "kube-scheduler" }}
    scheduler:
      disabled: true
{{- end }}
{{- end }}
  install:
    disk: /dev/sda # The disk used for installations.
    image: {{ .Install }}
    wipe: false
{{- if .GrubUseUKICmdline }}
    grubUseUKICmdline: true
{{- end }}
` + machineCluster + `{{- if .ControlPlane }}
  apiServer:
{{- with index .Images "kube-apiserver" }}
    image: {{ . }}
{{- end }}
    certSANs:
      - {{ .Endpoint }}
  controllerManager:
{{- with index .Images "kube-controller-manager" }}
    image: {{ . }}
{{- else }} {}
{{- end }}
  proxy:
{{- if .ProxyDisabled }}
    disabled: true
{{- end }}
{{- with index .Images "kube-proxy" }}
    image: {{ . }}
{{- else }}{{ if not .ProxyDisabled }} {}{{ end }}
{{- end }}
  scheduler:
{{- with index .Images "kube-scheduler" }}
    image: {{ . }}
{{- else }} {}
{{- end }}
{{- with index .Images "coredns" }}
  coreDNS:
    image: {{ . }}
{{- end }}
{{- end }}
  discovery:
    enabled: true
`

// machineCluster is the part that both forms have in common.
const machineCluster = `  features:
    rbac: true
    # Set by the platform team.
    kubePrism:
      enabled: true
      port: 7445
cluster:
  id: {{ .ClusterID }}
  secret: {{ .Secret }}
  controlPlane:
    endpoint: https://{{ .APIServer }}
  clusterName: {{ .ClusterName }}
  network:
    dnsDomain: cluster.local
    podSubnets:
      - 10.244.0.0/16
    serviceSubnets:
      - 10.96.0.0/12
  token: abcdef.0123456789abcdef
`

// machineDocuments is a configuration as Talos generates it from 1.14 on: what
// remains of the one document, and a document for each component.
const machineDocuments = `version: v1alpha1 # Indicates the schema used to decode the contents.
debug: false
persist: true
machine:
  type: {{ .Type }} # Defines the role of the machine within the cluster.
  token: abcdef.0123456789abcdef
  certSANs: []
` + machineCluster + `  discovery:
    enabled: true
---
# The name comes from the inventory.
apiVersion: v1alpha1
kind: HostnameConfig
hostname: {{ .Name }}
---
apiVersion: v1alpha1
kind: UnattendedInstallConfig
installer:
  image: {{ .Install }}
provisioning:
  diskSelector:
    match: disk.dev_path == "/dev/sda" # The disk used for installations.
  wipe: false
---
apiVersion: v1alpha1
kind: KubeletConfig
{{- with index .Images "kubelet" }}
image: {{ . }} # Changed together with the control plane.
{{- end }}
defaultRuntimeSeccompProfileEnabled: true
{{- if .ControlPlane }}
---
# Served to everybody through the endpoint.
apiVersion: v1alpha1
kind: KubeAPIServerConfig
{{- with index .Images "kube-apiserver" }}
image: {{ . }}
{{- end }}
certExtraSANs:
  - {{ .Endpoint }}
---
apiVersion: v1alpha1
kind: KubeControllerManagerConfig
{{- if index .Disabled "kube-controller-manager" }}
enabled: false
{{- end }}
{{- with index .Images "kube-controller-manager" }}
image: {{ . }}
{{- end }}
---
apiVersion: v1alpha1
kind: KubeSchedulerConfig
{{- if index .Disabled "kube-scheduler" }}
enabled: false
{{- end }}
{{- with index .Images "kube-scheduler" }}
image: {{ . }}
{{- end }}
---
apiVersion: v1alpha1
kind: KubeProxyConfig
{{- if .ProxyDisabled }}
enabled: false
{{- end }}
{{- with index .Images "kube-proxy" }}
image: {{ . }}
{{- end }}
{{- with index .Images "coredns" }}
---
apiVersion: v1alpha1
kind: KubeCoreDNSConfig
image: {{ . }}
{{- end }}
{{- end }}
`

// configuration is what the model understands of a machine configuration.
type configuration struct {
	main      map[string]any
	documents map[string]map[string]any // by kind; the last one wins
	kinds     []string                  // in their order
}

// place is the position of a component in a configuration.
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
		InstallerName:         {"machine", "install", installKind}, // in that document below installer
	}[component]
}

const installKind = "UnattendedInstallConfig"

// errNoMainDocument is the error of a configuration without the main document.
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

// section returns what the configuration says about a component, in either form; nil if it says nothing.
func (c *configuration) section(component string) map[string]any {
	at := placeOf(component)
	if document, found := c.documents[at.kind]; found {
		return document
	}

	return child(child(c.main, at.section), at.field)
}

// image returns the image that the configuration names for a component; empty if it names none.
func (c *configuration) image(component string) string {
	image, _ := c.section(component)["image"].(string)

	return image
}

// disabled reports whether the configuration switches a component off.
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

// install returns the installer image of the configuration.
func (c *configuration) install() string {
	section := child(child(c.main, "machine"), "install")
	if document, found := c.documents[installKind]; found {
		section = child(document, "installer")
	}

	image, _ := section["image"].(string)

	return image
}

// ukiArguments reports whether an installer of that version makes GRUB take the kernel arguments from the UKI.
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

// rest returns everything about a component except its image, for comparison.
func (c *configuration) rest(component string) string {
	section := maps.Clone(c.section(component))
	delete(section, "image")

	return canonical(section)
}

// slow returns everything that takes a reboot below Talos 1.14, by its path.
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

// slowChanges lists what differs from another configuration and takes a reboot, in the form of a diff.
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

// canonical returns text that is equal for equal values, whatever their order and comments are.
func canonical(value any) string {
	text, err := yaml.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}

	return strings.TrimSpace(string(text))
}

// defaultImage returns the image that Talos runs for a component if the configuration names none.
func defaultImage(component, kubernetes string) string {
	if component == KubeletName {
		return "ghcr.io/siderolabs/kubelet:v" + kubernetes
	}

	return "registry.k8s.io/" + component + ":v" + kubernetes
}

// defaultCoreDNS returns the image of CoreDNS that comes with a version of Talos.
func defaultCoreDNS(talos string) string {
	const repository = "registry.k8s.io/coredns/coredns:"

	v, err := parseVersion(talos)
	if err != nil {
		return ""
	}

	switch minor := v.Minor(); {
	case minor >= 14:
		return repository + "v1.14.0"
	case minor == 13:
		return repository + "v1.13.2"
	case minor == 12:
		return repository + "v1.13.1"
	case minor == 11:
		return repository + "v1.12.3"
	default:
		return repository + "v1.12.0"
	}
}

// image returns the image that a machine means to run for a component: the one that its configuration names, or
// Talos' own.
func (n *node) image(component string) string { return n.imageIn(n.configured, component) }

func (n *node) imageIn(config *configuration, component string) string {
	switch image := config.image(component); {
	case image != "":
		return image
	case component == CoreDNSName:
		return defaultCoreDNS(n.running().talos)
	default:
		return defaultImage(component, n.unpinned)
	}
}

// rendered returns the image in a manifest that control planes render; empty if the machine renders none.
func (n *node) rendered(component string) string {
	if n.role != ControlPlane || n.configured.disabled(component) {
		return ""
	}

	return n.image(component)
}

// splitImage splits a reference; a digest is dropped, and the tag is empty if there is none.
func splitImage(image string) (repository, tag string) {
	name, _, _ := strings.Cut(image, "@")

	colon := strings.LastIndex(name, ":")
	if colon < strings.LastIndex(name, "/") || colon < 0 {
		return name, ""
	}

	return name[:colon], name[colon+1:]
}

// imageVersion returns the version of Kubernetes, without v, from the tag of an image. Kubelets come with and
// without tools, as -fat and -slim.
func imageVersion(image string) (*semver.Version, error) {
	_, tag := splitImage(image)

	for _, suffix := range []string{"-slim", "-fat"} {
		tag = strings.TrimSuffix(tag, suffix)
	}

	number, marked := strings.CutPrefix(tag, "v")
	if !marked {
		return nil, fmt.Errorf("image %q has no version for a tag", image)
	}

	return parseVersion(number)
}

// versionOf is [imageVersion] as text, empty for an image without a version.
func versionOf(image string) string {
	v, err := imageVersion(image)
	if err != nil {
		return ""
	}

	return v.String()
}

// imageExists reports whether a registry could have an image of a component.
func imageExists(image string) bool {
	const oldest, newest = 23, 38

	v, err := imageVersion(image)

	return err == nil && v.Major() == 1 && v.Minor() >= oldest && v.Minor() <= newest
}

// accept puts a configuration into effect, stores it for the next boot, or both. Writing the same text again counts
// as a write, too.
func (w *World) accept(n *node, next *application) {
	w.touch(n)
	n.store(next)

	if next.reply.Mode == ApplyStaged {
		return
	}

	n.config, n.configured = next.text, next.config
	n.configVersion++

	if next.reply.Mode == ApplyReboot {
		n.restarting = true
		w.startReboot(n, RebootDefault, causeReboot)

		return
	}

	const least, most = 300 * time.Millisecond, time.Second

	w.later(n.life, w.spread(n, "reconcile", least, most), func() { w.reconcile(n) })
}

// store keeps what a configuration leaves for the next boot. In mode try that is the configuration from before.
// Only a boot or another configuration replaces it.
func (n *node) store(next *application) {
	switch {
	case next.mode == ApplyTry && n.staged == nil:
		n.staged = n.config
	case next.mode == ApplyTry:
	case next.reply.Mode == ApplyStaged:
		n.persistent, n.staged = next.text, next.text
	default:
		n.persistent, n.staged = next.text, nil
	}
}

// persistentConfig returns the stored configuration as the machine shows it: not below Talos 1.10.
func (n *node) persistentConfig() []byte {
	if !AtLeast(n.running().talos, 1, 10) {
		return nil
	}

	return bytes.Clone(n.persistent)
}

// overwrite plays somebody else who writes the configuration from before.
func (w *World) overwrite(n *node, text []byte) {
	other := &application{
		text: append(bytes.Clone(text), "# Changed by somebody else.\n"...),
		mode: ApplyNoReboot, by: "fault", reply: ApplyReply{Mode: ApplyNoReboot},
	}

	config, err := readConfiguration(other.text)
	if err != nil {
		return
	}

	other.config = config
	w.recordApply(n, other, n.configured, nil)
	w.accept(n, other)
}

// SetImage plays a person who changes the image of one component in the configuration of a machine, as
// [World.SetConfigByHand] does. The rest of the configuration stays as it is, comments too.
func (w *World) SetImage(node, component, image string) error {
	if placeOf(component).kind == "" || image == "" {
		return fmt.Errorf("component %q, image %q: want a component and an image", component, image)
	}

	return w.SetConfigByHand(node, func(old string) (string, error) { return withImage(old, component, image) })
}

// withImage returns a configuration that names another image for a component.
func withImage(text, component, image string) (string, error) {
	section, err := findSection(text, component)
	if err != nil {
		return "", err
	}

	lines := strings.SplitAfter(text, "\n")

	switch value := field(section, "image"); {
	case value != nil:
		at, column := value.Line-1, value.Column-1
		length := len(value.Value)

		if value.Style == yaml.DoubleQuotedStyle || value.Style == yaml.SingleQuotedStyle {
			length += 2
		}

		lines[at] = lines[at][:column] + image + lines[at][column+length:]
	case len(section.Content) == 0:
		at, column := section.Line-1, section.Column-1
		lines[at] = lines[at][:column] + "{image: " + quoted(image) + "}" + strings.TrimPrefix(lines[at][column:], "{}")
	case section.Style == yaml.FlowStyle:
		at, column := section.Line-1, section.Column-1
		lines[at] = lines[at][:column] + "{image: " + quoted(image) + ", " + lines[at][column+1:]
	default:
		last := section.Content[len(section.Content)-2]
		if first := section.Content[0]; first.Value != "apiVersion" {
			last = first
		}

		line := strings.Repeat(" ", last.Column-1) + "image: " + image + "\n"
		lines = slices.Insert(lines, last.Line-1, line)
	}

	return strings.Join(lines, ""), nil
}

// quoted returns an image in quotes, for use between braces.
func quoted(image string) string { return `"` + image + `"` }

// findSection returns the mapping that has the image of a component, or would have it.
func findSection(text, component string) (*yaml.Node, error) {
	at := placeOf(component)
	decoder := yaml.NewDecoder(strings.NewReader(text))

	var found *yaml.Node

	for {
		var document yaml.Node

		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			return nil, err
		}

		root := document.Content[0]

		switch kind := field(root, "kind"); {
		case kind == nil:
			if section := field(field(root, at.section), at.field); section != nil && section.Kind == yaml.MappingNode {
				found = section
			}
		case kind.Value == at.kind && component == InstallerName:
			found = field(root, "installer")
		case kind.Value == at.kind:
			return root, nil
		}
	}

	if found == nil {
		return nil, fmt.Errorf("the configuration says nothing about %s", component)
	}

	return found, nil
}

func field(of *yaml.Node, name string) *yaml.Node {
	if of == nil {
		return nil
	}

	for i := 0; i+1 < len(of.Content); i += 2 {
		if of.Content[i].Value == name {
			return of.Content[i+1]
		}
	}

	return nil
}
