// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
)

var (
	_ validator.String = modeValidator{}
	_ validator.String = apiVersionValidator{}
	_ validator.String = objectKindValidator{}
	_ validator.String = objectNameValidator{}
)

// knownKinds are the kinds whose API version is known.
func knownKinds() []string { return []string{"KubernetesCluster", "TalosControlPlane", "ConfigMap"} }

// validatePublishing wants an object that can be annotated, and an operator where
// one is to act. It looks at what the configuration says, without the defaults.
func (m clusterModel) validatePublishing() diag.Diagnostics {
	diagnostics := m.validatePublishTo()
	if diagnostics.HasError() {
		return diagnostics
	}

	diagnostics.Append(m.validateMode()...)

	if m.Mode.ValueString() == modeDelegate {
		diagnostics.Append(m.validateDelegated()...)
	}

	return diagnostics
}

// validatePublishTo wants an object whose API version is known.
func (m clusterModel) validatePublishTo() diag.Diagnostics {
	var diagnostics diag.Diagnostics

	attributes := m.PublishTo.Attributes()
	kind, version := attributes[attrKind], attributes[attrAPIVersion]

	if m.PublishTo.IsNull() || m.PublishTo.IsUnknown() || kind.IsUnknown() || version.IsUnknown() {
		return diagnostics
	}

	of := m.published()
	if _, complete := operator.Complete(of); complete || !objectKindText.MatchString(of.Kind) {
		return diagnostics
	}

	hint := ""
	if meant := nearest(of.Kind, knownKinds()); meant != "" {
		hint = fmt.Sprintf(" Did you mean %q?", meant)
	}

	diagnostics.AddAttributeError(path.Root(attrPublishTo), "Missing API version",
		fmt.Sprintf("%s.%s is %q, a kind of which no API version is known.%s\n\nSet %s.%s, such as \"example.com/v1\": kubectl api-resources lists it. It is known of %s.",
			attrPublishTo, attrKind, of.Kind, hint, attrPublishTo, attrAPIVersion, strings.Join(knownKinds(), ", ")))

	return diagnostics
}

// validateMode wants an operator where one is to act, and one that can be held
// where it is not.
func (m clusterModel) validateMode() diag.Diagnostics {
	var diagnostics diag.Diagnostics

	if m.Mode.IsUnknown() || m.PublishTo.IsUnknown() {
		return diagnostics
	}

	delegated, of := m.Mode.ValueString() == modeDelegate, m.published()

	if m.PublishTo.IsNull() {
		if delegated {
			diagnostics.AddAttributeError(path.Root(attrMode), "No operator to delegate to",
				fmt.Sprintf("%s = %q has an operator upgrade the cluster, and without %s there is none to ask.\n\n"+
					"Set %s to the object that the operator acts on, such as { kind = \"KubernetesCluster\", namespace = ..., name = ... }, or remove %s.",
					attrMode, modeDelegate, attrPublishTo, attrPublishTo, attrMode))
		}

		return diagnostics
	}

	if of.Kind == "" {
		return diagnostics
	}

	switch kind := operator.KindOf(of); {
	case delegated && (kind == operator.Plain || kind == operator.Annotated):
		diagnostics.AddAttributeError(path.Root(attrMode), "No operator to delegate to",
			fmt.Sprintf("%s = %q has an operator upgrade the cluster, and of no operator is it known that it acts on a %s, as %s names one. Those of KubernetesCluster and TalosControlPlane can be asked.\n\n"+
				"Have %s name one of these, or remove %s.", attrMode, modeDelegate, of.Kind, attrPublishTo, attrPublishTo, attrMode))
	case !delegated && kind == operator.Declarative:
		diagnostics.AddAttributeError(path.Root(attrPublishTo), "Operator that cannot be held",
			fmt.Sprintf("%s names a %s, whose operator takes every node to what the object says and cannot be held: it would undo what this provider does.\n\n"+
				"Set %s = %q to have that operator upgrade the cluster, or remove %s and make sure that the operator is not running.",
				attrPublishTo, of.Kind, attrMode, modeDelegate, attrPublishTo))
	}

	return diagnostics
}

// validateDelegated refuses what an operator decides by itself.
func (m clusterModel) validateDelegated() diag.Diagnostics {
	var (
		diagnostics diag.Diagnostics
		idle        []string
	)

	for _, one := range []struct {
		name  string
		value attr.Value
	}{
		{attrOrder, m.Order},
		{attrRebootMode, m.RebootMode},
		{attrDrain, m.Drain},
		{attrInstallerImage, m.InstallerImage},
		{attrMaxUnavailable, m.MaxUnavailable},
		{attrCanary, m.Canary},
		{attrSettle, m.Settle},
		{attrNodeOverrides, m.NodeOverrides},
		{attrKubernetes, m.Kubernetes},
		{attrSyncInstallImage, m.SyncInstallImage},
		{attrOnFailure, m.OnFailure},
		{attrRetry, m.Repeat},
	} {
		if stated(one.value) {
			idle = append(idle, one.name)
		}
	}

	if len(idle) > 0 {
		diagnostics.AddAttributeError(path.Root(idle[0]), "Attributes that the operator decides about",
			fmt.Sprintf("With %s = %q the operator decides how the nodes are upgraded, and nothing looks at %s.\n\nRemove %s, or set %s = %q to have this provider upgrade the nodes.",
				attrMode, modeDelegate, strings.Join(idle, ", "), strings.Join(idle, ", "), attrMode, modeDirect))
	}

	return diagnostics
}

// modeValidator accepts who may upgrade a cluster.
type modeValidator struct{}

// Description implements [validator.String].
func (modeValidator) Description(context.Context) string {
	return fmt.Sprintf("value must be %q or %q", modeDirect, modeDelegate)
}

// MarkdownDescription implements [validator.String].
func (v modeValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateString implements [validator.String].
func (modeValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	written, given := plainText(req.ConfigValue)
	if !given || written == modeDirect || written == modeDelegate {
		return
	}

	hint := ""
	if meant := nearest(written, []string{modeDirect, modeDelegate}); meant != "" {
		hint = fmt.Sprintf(" Did you mean %q?", meant)
	}

	resp.Diagnostics.AddAttributeError(visible(req.Path), "Invalid mode",
		fmt.Sprintf("%s is %q.%s\n\nWrite %q to have this provider upgrade the nodes, or %q to have the operator of the object in %s do it.",
			req.Path, written, hint, modeDirect, modeDelegate, attrPublishTo))
}

// apiVersionValidator accepts API versions as manifests have them.
type apiVersionValidator struct{}

// apiVersionText is a version, with the group in front where it has one.
var apiVersionText = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9][a-z0-9]*$`)

// Description implements [validator.String].
func (apiVersionValidator) Description(context.Context) string {
	return "value must be an API version such as v1 or example.com/v1beta1"
}

// MarkdownDescription implements [validator.String].
func (v apiVersionValidator) MarkdownDescription(ctx context.Context) string {
	return v.Description(ctx)
}

// ValidateString implements [validator.String].
func (v apiVersionValidator) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if written, given := plainText(req.ConfigValue); given && !apiVersionText.MatchString(written) {
		resp.Diagnostics.AddAttributeError(visible(req.Path), "Invalid API version", fmt.Sprintf("%s is %q: %s.", req.Path, written, v.Description(ctx)))
	}
}

// objectKindValidator accepts kinds of objects that may be annotated.
type objectKindValidator struct{}

// objectKindText is a kind as manifests have it.
var objectKindText = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

// Description implements [validator.String].
func (objectKindValidator) Description(context.Context) string {
	return "value must be the kind of an object as in its manifest, such as KubernetesCluster, and not Secret"
}

// MarkdownDescription implements [validator.String].
func (v objectKindValidator) MarkdownDescription(ctx context.Context) string {
	return v.Description(ctx)
}

// ValidateString implements [validator.String].
func (v objectKindValidator) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	written, given := plainText(req.ConfigValue)

	switch {
	case !given:
	case written == "Secret":
		resp.Diagnostics.AddAttributeError(visible(req.Path), "Invalid kind",
			req.Path.String()+" is \"Secret\": Secrets are neither read nor written for this. Name an object that others may read, such as a ConfigMap.")
	case !objectKindText.MatchString(written):
		hint := ""
		if meant := nearest(written, knownKinds()); meant != "" {
			hint = fmt.Sprintf(" Did you mean %q?", meant)
		}

		resp.Diagnostics.AddAttributeError(visible(req.Path), "Invalid kind", fmt.Sprintf("%s is %q: %s.%s", req.Path, written, v.Description(ctx), hint))
	}
}

// objectNameValidator accepts names of objects and of namespaces.
type objectNameValidator struct{}

// objectNameText is a DNS name, as most kinds of objects want it, and objectNameMost
// how long one may be.
var objectNameText = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

const objectNameMost = 253

// Description implements [validator.String].
func (objectNameValidator) Description(context.Context) string {
	return "value must be the name of an object: lower-case letters, digits, hyphens and dots"
}

// MarkdownDescription implements [validator.String].
func (v objectNameValidator) MarkdownDescription(ctx context.Context) string {
	return v.Description(ctx)
}

// ValidateString implements [validator.String].
func (v objectNameValidator) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	written, given := plainText(req.ConfigValue)
	if given && (!objectNameText.MatchString(written) || len(written) > objectNameMost) {
		resp.Diagnostics.AddAttributeError(visible(req.Path), "Invalid name", fmt.Sprintf("%s is %q: %s.", req.Path, written, v.Description(ctx)))
	}
}

// plainText is the text, and whether one is given and known.
func plainText(value types.String) (string, bool) {
	return value.ValueString(), !value.IsNull() && !value.IsUnknown()
}
