// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// defaultImage is what Talos runs for a component of which the configuration
// names no image.
func defaultImage(component, kubernetes string) string {
	if component == KubeletName {
		return "ghcr.io/siderolabs/kubelet:v" + kubernetes
	}

	return "registry.k8s.io/" + component + ":v" + kubernetes
}

// defaultCoreDNS is the image of CoreDNS that a version of Talos brings.
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

// image is the one that a machine means to run for a component: what its
// configuration names, or Talos' own.
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

// rendered is the image in a manifest that control planes render, empty where
// the machine renders none.
func (n *node) rendered(component string) string {
	if n.role != ControlPlane || n.configured.disabled(component) {
		return ""
	}

	return n.image(component)
}

// splitImage takes a reference apart; a digest is dropped, and the tag is empty
// where there is none.
func splitImage(image string) (repository, tag string) {
	name, _, _ := strings.Cut(image, "@")

	colon := strings.LastIndex(name, ":")
	if colon < strings.LastIndex(name, "/") || colon < 0 {
		return name, ""
	}

	return name[:colon], name[colon+1:]
}

// imageVersion is the version of Kubernetes, without v, that an image holds,
// from its tag: kubelets come with and without tools, as -fat and -slim.
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

// imageExists tells whether a registry could have an image of a component.
func imageExists(image string) bool {
	const oldest, newest = 23, 38

	v, err := imageVersion(image)

	return err == nil && v.Major() == 1 && v.Minor() >= oldest && v.Minor() <= newest
}

// checkSupport is the look at a version of Kubernetes that a machine takes from
// Talos 1.14 on, before it accepts an image of it.
func checkSupport(talos, image string) error {
	const newest, lines = 23, 5 // Talos 1.14 runs Kubernetes 1.32 to 1.37, and so on.

	running, err := parseVersion(talos)
	if err != nil {
		return err
	}

	v, err := imageVersion(image)
	if err != nil {
		return fmt.Errorf("error parsing Kubernetes version from image: %w", err)
	}

	switch most := running.Minor() + newest; {
	case v.Major() != 1 || v.Minor() > most:
		return fmt.Errorf("version of Kubernetes %s is too new to be used with Talos %s", v, running)
	case v.Minor()+lines < most:
		return fmt.Errorf("version of Kubernetes %s is too old to be used with Talos %s", v, running)
	default:
		return nil
	}
}
