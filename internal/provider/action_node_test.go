// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestActionsAboutANodeThatThereIsNot(t *testing.T) {
	for name, summary := range map[string]string{
		"rollback": "Unable to roll back node worker-9", "retry_node": "Unable to allow another try on node worker-9",
	} {
		fake := threeNodes("1.12.6", "1.34.1")

		failed := fake.invoke(t.Context(), t, name, map[string]tftypes.Value{"node": wireText("worker-9")}, nil).failed(t)
		if failed.Summary != summary || !strings.Contains(failed.Detail, `No node of this cluster is called "worker-9". There are: `) || !strings.Contains(failed.Detail, "Nothing was touched.") {
			t.Errorf("%s says %s: %s", name, failed.Summary, failed.Detail)
		}
	}
}

// TestActionsAboutANodeSayWhatIsMissing: nothing was ever upgraded by an apply.
func TestActionsAboutANodeSayWhatIsMissing(t *testing.T) {
	for name, want := range map[string]string{
		"rollback": "it remembers that of nodes that terraform apply has upgraded", "retry_node": "no image is kept from it",
	} {
		fake := threeNodes("1.12.6", "1.34.1")
		fake.journal = cluster.Journal{}

		failed := fake.invoke(t.Context(), t, name, map[string]tftypes.Value{"node": wireText("worker-0")}, nil).failed(t)
		if !strings.Contains(failed.Detail, want) {
			t.Errorf("%s says %s: %s", name, failed.Summary, failed.Detail)
		}
	}
}

// TestRollbackRefusesWhatIsNoDrain, before anything is asked.
func TestRollbackRefusesWhatIsNoDrain(t *testing.T) {
	kind := tftypes.Object{AttributeTypes: map[string]tftypes.Type{"enabled": tftypes.Bool, "timeout": tftypes.String, "on_timeout": tftypes.String}}
	fake := threeNodes("1.12.6", "1.34.1")

	for name, value := range map[string]string{"timeout": "soon", "on_timeout": "hope"} {
		values := map[string]tftypes.Value{"enabled": tftypes.NewValue(tftypes.Bool, nil), "timeout": tftypes.NewValue(tftypes.String, nil), "on_timeout": tftypes.NewValue(tftypes.String, nil)}
		values[name] = wireText(value)

		failed := fake.invoke(t.Context(), t, "rollback", map[string]tftypes.Value{"node": wireText("worker-0"), "drain": tftypes.NewValue(kind, values)}, nil).failed(t)
		if !strings.Contains(failed.Detail, "drain."+name) || fake.dialled > 0 {
			t.Errorf("it says %q at %s, and dialled %d times", failed.Detail, failed.Attribute, fake.dialled)
		}
	}
}
