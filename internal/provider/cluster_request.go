// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
)

// request is what the model asks the engine for, with images from the factory
// where nothing names them, and with gates over the objects; nil objects are
// those of a Kubernetes API that cannot be asked. The model must be known.
func (m clusterModel) request(ctx context.Context, factory string, objects cluster.Objects) (engine.Request, diag.Diagnostics) {
	target, diagnostics := m.target(factory)

	policy, more := m.policy(ctx)
	diagnostics.Append(more...)

	rules, more := m.rules(ctx)
	diagnostics.Append(more...)

	window, more := m.window(ctx)
	diagnostics.Append(more...)

	if objects == nil {
		objects = noObjects{}
	}

	made := engine.Request{Target: target, Policy: policy, Window: window, Snapshots: m.snapshots(), Delegated: m.publication().delegated}

	if made.Delegated {
		// What Talos renders into the cluster is the operator's affair.
		made.Policy.Kubernetes.Manifests = cluster.ManifestPolicy{}
	}

	for _, rule := range rules {
		made.Gates = append(made.Gates, rule.On(objects))
	}

	return made, diagnostics
}

// noObjects are the objects of a cluster whose Kubernetes API is not to be had.
type noObjects struct{}

// Objects implements [cluster.Objects].
func (noObjects) Objects(context.Context, cluster.ObjectQuery) ([]map[string]any, error) {
	return nil, fmt.Errorf("there is no connection to the Kubernetes API: %w", cluster.ErrUnreachable)
}
