// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// prefix begins the name of every attribute for which there is no semantic convention.
const prefix = "talosupgrade."

// The attributes without a semantic convention.
const (
	keyRun       = attribute.Key(prefix + "run.id")
	keyMode      = attribute.Key(prefix + "mode")
	keyClusterID = attribute.Key(prefix + "cluster.id")

	keyTargetTalos      = attribute.Key(prefix + "target.talos")
	keyTargetKubernetes = attribute.Key(prefix + "target.kubernetes")
	keyUpgrades         = attribute.Key(prefix + "planned.upgrades")
	keyEstimate         = attribute.Key(prefix + "planned.seconds")

	keyComponent = attribute.Key(prefix + "component")
	keyRole      = attribute.Key(prefix + "node.role")
	keyCanary    = attribute.Key(prefix + "canary")
	keyFrom      = attribute.Key(prefix + "version.from")
	keyTo        = attribute.Key(prefix + "version.to")
	keyStep      = attribute.Key(prefix + "step")
	keyOutcome   = attribute.Key(prefix + "outcome")
	keyMessage   = attribute.Key(prefix + "message")
)

// The outcomes of an upgrade.
const (
	outcomeDone = "done"
	// outcomeLeft: the node was left as it is for now.
	outcomeLeft   = "left"
	outcomeFailed = "failed"
	// outcomeCut: the run ended before the upgrade did.
	outcomeCut = "cut-off"
)

// componentTalos is the value of [keyComponent] for an upgrade of Talos itself.
const componentTalos = "talos"

// place returns the attributes that say where something happens.
func place(node string, component cluster.Component) []attribute.KeyValue {
	name := componentTalos
	if component != "" {
		name = string(component)
	}

	return append(onNode(node), keyComponent.String(name))
}

// onNode returns the attribute with the name of a node, or nil if the name is empty.
func onNode(node string) []attribute.KeyValue {
	if node == "" {
		return nil
	}

	return []attribute.KeyValue{semconv.K8SNodeName(node)}
}

// versioned returns the attribute with a version, or nil if the version is zero.
func versioned(key attribute.Key, v version.Version) []attribute.KeyValue {
	if v.IsZero() {
		return nil
	}

	return []attribute.KeyValue{key.String(v.String())}
}

// image returns the attributes of an image reference.
func image(reference string) []attribute.KeyValue {
	name, _, _ := strings.Cut(reference, "@")

	tag := ""
	if colon := strings.LastIndex(name, ":"); colon > strings.LastIndex(name, "/") {
		name, tag = name[:colon], name[colon+1:]
	}

	attributes := []attribute.KeyValue{semconv.ContainerImageName(name)}
	if tag != "" {
		attributes = append(attributes, semconv.ContainerImageTags(tag))
	}

	return attributes
}

// stepText returns the attributes for the text of a step. Most texts are image references.
func stepText(step cluster.NodeStep, text string) []attribute.KeyValue {
	if text == "" {
		return nil
	}

	switch step {
	case cluster.StepPull, cluster.StepInstall, cluster.StepLegacy, cluster.StepInstallImage, cluster.StepConfigure, cluster.StepRestart:
		return image(text)
	default:
		return []attribute.KeyValue{keyMessage.String(shortened(text, textMost))}
	}
}

// progress returns the attributes for the progress of a half, or nil if the half is not managed or has no nodes.
func progress(half string, at cluster.Progress) []attribute.KeyValue {
	if !at.Managed || at.Total == 0 {
		return nil
	}

	return []attribute.KeyValue{
		attribute.Int(prefix+half+".nodes.done", at.Done), attribute.Int(prefix+half+".nodes.total", at.Total),
	}
}
