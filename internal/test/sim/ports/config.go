// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	keyImage   = "image"
	keyKind    = "kind"
	keyCluster = "cluster"
)

// section is where a machine configuration names a component: in its own document, at the top or below a key, or,
// without such a document, below a path of the v1alpha1 document.
type section struct {
	kind string
	path []string
	own  string
}

// sectionOf returns the section of a component; false if it has none.
func sectionOf(component cluster.Component) (section, bool) {
	switch component {
	case cluster.Kubelet:
		return section{"KubeletConfig", []string{"machine", "kubelet"}, ""}, true
	case cluster.APIServer:
		return section{"KubeAPIServerConfig", []string{keyCluster, "apiServer"}, ""}, true
	case cluster.ControllerManager:
		return section{"KubeControllerManagerConfig", []string{keyCluster, "controllerManager"}, ""}, true
	case cluster.Scheduler:
		return section{"KubeSchedulerConfig", []string{keyCluster, "scheduler"}, ""}, true
	case cluster.Proxy:
		return section{"KubeProxyConfig", []string{keyCluster, "proxy"}, ""}, true
	case cluster.Installer:
		return section{"UnattendedInstallConfig", []string{"machine", "install"}, "installer"}, true
	default:
		return section{}, false
	}
}

// configuration is a stored machine configuration with the trees of its documents, which have the lines that they
// came from.
type configuration struct {
	text      []byte
	documents []*yaml.Node
}

func parseConfiguration(text []byte) (configuration, error) {
	parsed := configuration{text: text}

	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var document yaml.Node

		err := decoder.Decode(&document)

		switch {
		case errors.Is(err, io.EOF):
			return parsed, nil
		case err != nil:
			return configuration{}, fmt.Errorf("unable to read a machine configuration: %w", err)
		case len(document.Content) > 0:
			parsed.documents = append(parsed.documents, document.Content[0])
		}
	}
}

// summary returns what an upgrade needs to know about the configuration.
func (c configuration) summary() *cluster.MachineConfig {
	read := &cluster.MachineConfig{Images: map[cluster.Component]string{}}

	read.InstallImage = c.image(cluster.Installer)
	_, read.Installs = c.place(cluster.Installer)
	read.EtcdQuota = c.etcdQuota()
	read.UKIArguments = c.ukiArguments()

	for _, component := range cluster.Components(cluster.ControlPlane) {
		if named := c.image(component); named != "" {
			read.Images[component] = named
		}
	}

	for _, component := range append(cluster.Components(cluster.ControlPlane), cluster.Installer) {
		where, known := sectionOf(component)
		if !known || c.document(where.kind) == nil {
			continue
		}

		if read.Documents == nil {
			read.Documents = map[cluster.Component]string{}
		}

		read.Documents[component] = where.kind
	}

	for _, component := range []cluster.Component{cluster.ControllerManager, cluster.Scheduler, cluster.Proxy} {
		if !c.disabled(component) {
			continue
		}

		if read.Disabled == nil {
			read.Disabled = map[cluster.Component]bool{}
		}

		read.Disabled[component] = true
	}

	read.Registries = c.registries()

	return read
}

// registries returns a text that is the same for two configurations if they name the same registries.
func (c configuration) registries() string {
	var sections []string

	for _, document := range c.documents {
		found := document
		if kind := text(child(document, keyKind)); kind == "" {
			found = child(child(document, "machine"), "registries")
		} else if !strings.HasPrefix(kind, "Registry") {
			continue
		}

		if written, err := yaml.Marshal(found); found != nil && err == nil {
			sections = append(sections, string(written))
		}
	}

	return strings.Join(sections, "")
}

// disabled reports whether the configuration switches a component off. If the component has its own document, that
// decides.
func (c configuration) disabled(component cluster.Component) bool {
	where, known := sectionOf(component)
	if !known {
		return false
	}

	if own := c.document(where.kind); own != nil {
		return text(child(own, "enabled")) == "false"
	}

	path := where.path
	if component.Static() {
		path = []string{"machine", "controlPlane", path[len(path)-1]}
	}

	return text(child(child(c.document(""), path...), "disabled")) == "true"
}

// summaries remembers the summaries of configurations: a run reads the same few thousands of times.
type summaries struct {
	mu    sync.Mutex
	known map[string]cluster.MachineConfig
}

// of returns the summary of a configuration, which the caller may keep.
func (s *summaries) of(text []byte) (*cluster.MachineConfig, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	found, known := s.known[string(text)]
	if !known {
		stored, err := parseConfiguration(text)
		if err != nil {
			return nil, err
		}

		if s.known == nil {
			s.known = map[string]cluster.MachineConfig{}
		}

		found = *stored.summary()
		s.known[string(text)] = found
	}

	found.Images, found.Disabled = maps.Clone(found.Images), maps.Clone(found.Disabled)

	return &found, nil
}

// document returns a document by its kind; that of v1alpha1 has none.
func (c configuration) document(kind string) *yaml.Node {
	index := slices.IndexFunc(c.documents, func(d *yaml.Node) bool { return text(child(d, keyKind)) == kind })
	if index < 0 {
		return nil
	}

	return c.documents[index]
}

// place returns the mapping that may name the image of a component: in its own document, if there is one. It is
// nil, and found is false, if there is none.
func (c configuration) place(component cluster.Component) (mapping *yaml.Node, found bool) {
	where, known := sectionOf(component)
	if !known {
		return nil, false
	}

	mapping = child(c.document(""), where.path...)

	if own := c.document(where.kind); own != nil {
		mapping = own
		if where.own != "" {
			mapping = child(own, where.own)
		}
	}

	return mapping, mapping != nil
}

// image returns the image that the configuration names for a component; empty if it names none.
func (c configuration) image(component cluster.Component) string {
	mapping, _ := c.place(component)

	return text(child(mapping, keyImage))
}

// ukiArguments reports whether GRUB takes the kernel arguments from the UKI, which is also the case if the
// configuration says nothing about the installation.
func (c configuration) ukiArguments() bool {
	install := child(c.document(""), "machine", "install")
	unattended := c.document("UnattendedInstallConfig") != nil

	return unattended || install == nil || text(child(install, "grubUseUKICmdline")) == "true"
}

// unlimited is the quota of an etcd database without a limit.
const unlimited = 1 << 56

// etcdQuota returns the largest size of the etcd database; 0 if none is configured. In a list, the last value
// counts.
func (c configuration) etcdQuota() int64 {
	value := child(c.document(""), keyCluster, "etcd", "extraArgs", "quota-backend-bytes")
	if value != nil && value.Kind == yaml.SequenceNode && len(value.Content) > 0 {
		value = value.Content[len(value.Content)-1]
	}

	quota, err := strconv.ParseInt(text(value), 0, 64)

	switch {
	case err != nil:
		return 0
	case quota < 0:
		return unlimited
	default:
		return min(quota, unlimited)
	}
}

// withImage returns the text with another image for a component; all other bytes stay.
func (c configuration) withImage(component cluster.Component, image string) ([]byte, error) {
	where, known := sectionOf(component)
	if !known {
		return nil, fmt.Errorf("%w: no machine configuration names an image of %s", cluster.ErrRefused, component)
	}

	edit := lines(strings.SplitAfter(string(c.text), "\n"))
	own := c.document(where.kind)
	mapping, _ := c.place(component)

	switch {
	case own != nil && child(mapping, keyImage) != nil:
		edit.replace(child(mapping, keyImage), image)
	case own != nil && where.own == "":
		edit.insert(child(own, keyKind).Line, own.Column, keyImage+": "+image)
	case own != nil && edit.below(own, where.own, image):
	case own != nil, !edit.below(child(c.document(""), where.path[0]), where.path[1], image):
		return nil, fmt.Errorf("%w: the machine configuration has no place for an image of %s", cluster.ErrRefused, component)
	}

	return []byte(strings.Join(edit, "")), nil
}

// child follows keys through mappings; nil if there is nothing.
func child(node *yaml.Node, path ...string) *yaml.Node {
	for _, name := range path {
		_, node = member(node, name)
	}

	return node
}

func member(node *yaml.Node, name string) (key, value *yaml.Node) {
	if node == nil || node.Kind != yaml.MappingNode {
		return nil, nil
	}

	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i], node.Content[i+1]
		}
	}

	return nil, nil
}

// text returns the value of a scalar; empty for everything else and for null.
func text(node *yaml.Node) string {
	if node == nil || node.Kind != yaml.ScalarNode || node.Tag == "!!null" {
		return ""
	}

	return node.Value
}

// lines are the lines of a text, each with its end.
type lines []string

// replace replaces the value of a scalar.
func (l lines) replace(scalar *yaml.Node, value string) {
	line := l[scalar.Line-1]
	start, length := scalar.Column-1, len(scalar.Value)

	if quote := line[start]; quote == '"' || quote == '\'' {
		length = strings.IndexByte(line[start+1:], quote) + len(`""`)
	}

	l[scalar.Line-1] = line[:start] + value + line[start+length:]
}

// insert adds lines of text after the line with a number, counted from 1, at a column.
func (l *lines) insert(after, column int, texts ...string) {
	for i, added := range texts {
		*l = slices.Insert(*l, after+i, strings.Repeat(" ", column-1)+added+"\n")
	}
}

// open adds to a mapping between braces.
func (l lines) open(mapping *yaml.Node, member string) {
	if len(mapping.Content) > 0 {
		member += ", "
	}

	line := l[mapping.Line-1]
	l[mapping.Line-1] = line[:mapping.Column] + member + line[mapping.Column:]
}

const indent = 2

// below makes the section of a v1alpha1 document name an image. It returns false if the parent has no block of
// lines to add to.
func (l *lines) below(parent *yaml.Node, name, image string) bool {
	if parent == nil || parent.Kind != yaml.MappingNode || len(parent.Content) == 0 {
		return false
	}

	key, value := member(parent, name)
	named := keyImage + ": " + image

	switch {
	case key == nil:
		first := parent.Content[0]
		l.insert(first.Line-1, first.Column, name+":", strings.Repeat(" ", indent)+named)
	case child(value, keyImage) != nil:
		l.replace(child(value, keyImage), image)
	case value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle != 0:
		l.open(value, fmt.Sprintf("%s: %q", keyImage, image))
	case len(value.Content) > 0:
		l.insert(value.Content[0].Line-1, value.Content[0].Column, named)
	default:
		l.insert(key.Line, key.Column+indent, named)
	}

	return true
}
