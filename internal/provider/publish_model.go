// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func publishToTypes() map[string]attr.Type {
	return map[string]attr.Type{attrAPIVersion: types.StringType, attrKind: types.StringType, attrNamespace: types.StringType, attrName: types.StringType}
}

// publication is where the progress of an upgrade is published.
type publication struct {
	// to is the object that somebody named; nil for the default.
	to *cluster.Reference
	// delegated tells that an operator upgrades the cluster, and publishes too.
	delegated bool
}

// String names the object for people.
func (p publication) String() string {
	if p.to == nil {
		return defaultObject
	}

	return p.to.String()
}

// isDefault tells whether the object is the one that progress is published to where
// nobody named one, also if somebody did. An object in a management cluster is not.
func (p publication) isDefault(managed bool) bool {
	return p.to == nil || !managed && *p.to == defaultReference()
}

// kept is what a destroy says of the object beyond what it removes.
func (c *clusters) kept(of publication) string {
	if of.isDefault(c != nil && c.access.Management != nil) {
		return ""
	}

	return " " + of.to.String() + " stays as it is, with what was published there."
}

// publication is what the model says. The model must be known and valid.
func (m clusterModel) publication() publication {
	made := publication{delegated: m.Mode.ValueString() == modeDelegate}

	if !m.PublishTo.IsNull() && !m.PublishTo.IsUnknown() {
		to, _ := operator.Complete(m.published())
		made.to = &to
	}

	return made
}

// published is the object as written, as far as it is known.
func (m clusterModel) published() cluster.Reference {
	text := func(name string) string {
		value, isText := m.PublishTo.Attributes()[name].(types.String)
		if !isText {
			return ""
		}

		return value.ValueString()
	}

	return cluster.Reference{APIVersion: text(attrAPIVersion), Kind: text(attrKind), Namespace: text(attrNamespace), Name: text(attrName)}
}

// delegatedWarning says in the table of a roll who performs it, where that is
// somebody else.
func delegatedWarning(roll diag.Diagnostic, of publication) diag.Diagnostic {
	if !of.delegated {
		return roll
	}

	return diag.NewWarningDiagnostic(roll.Summary(),
		"The operator of "+of.String()+" is asked for this and upgrades the nodes itself, in its own order and at its own pace. "+
			"It is asked for one step after the other, and every node is looked at afterwards.\n\n"+roll.Detail())
}

// unmanaged is the finding of a management cluster that cannot be asked, whatever
// it looks like there.
func unmanaged(of publication, err error) cluster.Finding {
	return cluster.Finding{
		Check: cluster.CheckOperator, Severity: cluster.Permanent, Attribute: attrPublishTo, Err: err,
		Found:  fmt.Sprintf("the management cluster, which holds %s, cannot be asked: %v", of, err),
		Remedy: "Correct " + attrManagement + " in the provider block.",
	}
}
