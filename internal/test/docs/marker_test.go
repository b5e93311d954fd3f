// SPDX-License-Identifier: MPL-2.0

package docs

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// marker is what a comment above a block says about it:
//
//	<!-- validate: in resource -->           the arguments of a talosupgrade_cluster
//	<!-- validate: in provider -->           the arguments of the provider
//	<!-- validate: only tofu >= 1.9 -->      something that the other command line lacks
//	<!-- validate: not run: WHY -->          something that the simulator has no cluster for
//	<!-- validate: parse only: WHY -->       something that cannot be validated here
//
// One comment can have several of them, separated by semicolons.
type marker struct {
	// within is "resource" or "provider".
	within string
	only   requirement
	// notRun and parseOnly are the reasons; empty if the block is run, and if it is validated.
	notRun, parseOnly string
}

// requirement is a command line from a version on; the zero value is any.
type requirement struct {
	name   string
	oldest version.Minor
}

var (
	openTofuOnly = requirement{name: toolchain.NameOpenTofu}
	// actionsOnly is what a configuration with actions needs, even without a marker.
	actionsOnly = requirement{name: toolchain.NameTerraform, oldest: version.Minor{Major: 1, Minor: 14}}
)

func (r requirement) met(by toolchain.CLI) bool {
	return r.name == "" || r.name == by.Name && by.Version.Minor().Compare(r.oldest) >= 0
}

func (r requirement) String() string {
	if (r.oldest == version.Minor{}) {
		return r.name
	}

	return fmt.Sprintf("%s %s or newer", r.name, r.oldest)
}

var (
	inMark   = regexp.MustCompile(`^in (resource|provider)$`)
	onlyMark = regexp.MustCompile(`^only (terraform|tofu)(?: >= (\d+)\.(\d+))?$`)
)

func parseMarker(text string) (marker, error) {
	var mark marker

	for part := range strings.SplitSeq(text, "; ") {
		if err := mark.read(part); err != nil {
			return marker{}, err
		}
	}

	return mark, nil
}

func (m *marker) read(text string) error {
	if why, ok := strings.CutPrefix(text, "parse only: "); ok {
		m.parseOnly = why

		return nil
	}

	if why, ok := strings.CutPrefix(text, "not run: "); ok {
		m.notRun = why

		return nil
	}

	if found := inMark.FindStringSubmatch(text); found != nil {
		m.within = found[1]

		return nil
	}

	found := onlyMark.FindStringSubmatch(text)
	if found == nil {
		return fmt.Errorf("%q says nothing about a block: write in resource, in provider, only tofu, only terraform (with >= 1.9), "+
			"not run: and why, or parse only: and why", text)
	}

	m.only.name = found[1]

	if found[2] == "" {
		return nil
	}

	oldest, err := version.Parse(found[2] + "." + found[3] + ".0")
	m.only.oldest = oldest.Minor()

	return err
}

// validated reports whether the block is validated, not only parsed.
func (m marker) validated() bool { return m.parseOnly == "" }

// around returns a whole configuration from the arguments of a block.
func (m marker) around(text string) string {
	switch m.within {
	case "resource":
		if !regexp.MustCompile(`(?m)^(talos|kubernetes)_version\s*=`).MatchString(text) {
			text += "talos_version = \"1.13.4\"\n"
		}

		return "resource \"talosupgrade_cluster\" \"this\" {\n" + text + "}\n"
	case "provider":
		return "provider \"talosupgrade\" {\n" + text + "}\n"
	default:
		return text
	}
}
