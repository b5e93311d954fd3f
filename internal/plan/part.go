// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// part is a component on a node that the machine configuration of the node
// decides about: it is as far as the lower of what runs and what is named.
type part struct {
	component cluster.Component
	// image is what the machine configuration names, empty where it names
	// nothing or cannot be read.
	image string
	// running is what runs. For kube-proxy, whose pods are moved by the
	// manifests, it counts only where nothing is named.
	running version.Version
	// named is the version that image stands for; zero where it says none.
	named version.Version
}

// lowest is what the component is at; zero where nobody can tell.
func (t *part) lowest() version.Version { return version.Lowest(t.running, t.named) }

// differs tells that what runs is not what the machine configuration names.
func (t *part) differs() bool {
	return !t.running.IsZero() && !t.named.IsZero() && !t.running.Equal(t.named)
}

// untold tells that nobody can say what the component is at. The kube-proxy of a
// node that names nothing readable is no matter of the node.
func (s *subject) untold(t *part) bool {
	return t.lowest().IsZero() && (s.read() || t.component != cluster.Proxy)
}

// read tells whether the machine configuration of the node could be read.
func (s *subject) read() bool { return s.Machine != nil && s.Machine.Config != nil }

// reaches moves the component, as a turn does. Without a reference it is not
// known what is named then.
func (t *part) reaches(to version.Version, reference string) {
	t.running, t.named = to, to

	if reference != "" {
		t.image = reference
	}
}

// partsOf are the components of the node, in the order in which they move. What
// the machine configuration switches off is none, whatever still runs of it.
func (p *planner) partsOf(s *subject) []part {
	var config cluster.MachineConfig

	if s.read() {
		config = *s.Machine.Config
	}

	ordered := componentOrder()
	parts := make([]part, 0, len(ordered))

	for _, component := range ordered {
		if !component.Configured(s.Role) || config.Disabled[component] || (component == cluster.Proxy && p.proxyless) {
			continue
		}

		t := part{component: component, image: config.Images[component], running: s.Versions[component]}
		t.named = namedVersion(t.image)

		switch {
		case component != cluster.Proxy:
		case !s.read():
			// Nobody knows what the node names, and its pod may be left behind on
			// purpose.
			t.running = s.pod
		case !t.named.IsZero():
			t.running = version.Version{}
		}

		parts = append(parts, t)
	}

	return parts
}

// namedVersion is the version of an image; zero where its tag is none, as that of
// "stable", and what runs has to be enough.
func namedVersion(reference string) version.Version {
	_, tag, err := image.Split(reference)
	if err != nil {
		return version.Version{}
	}

	named, err := image.TagVersion(tag)
	if err != nil {
		return version.Version{}
	}

	return named
}

// wants tells whether the configuration demands another repository for the
// component than the machine configuration names.
func (p *planner) wants(node *subject, t *part) bool {
	wanted := p.policy.Kubernetes.Images[t.component]
	if wanted == "" || p.target.Kubernetes.IsZero() || node.Machine == nil || node.Machine.Config == nil {
		return false
	}

	if t.image == "" {
		return !image.SameRepository(image.DefaultComponent(string(t.component)), wanted)
	}

	return !image.SameRepository(t.image, wanted)
}
