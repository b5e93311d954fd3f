// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"runtime"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
)

// onNode are clusters as a process knows them that runs on the node.
func onNode(t *testing.T, fake *fakeCluster, node string) *connection.Clusters {
	t.Helper()

	made := fake.clusters(t)
	made.Settings.BootID = "boot-" + node

	return made
}

// TestOwnNode_IsWarnedOfByThePlanAndRefusedByTheApply, and a failed check of the data
// source.
func TestOwnNode_IsWarnedOfByThePlanAndRefusedByTheApply(t *testing.T) {
	const says = "worker-1: the provider runs on this node itself"

	fake := threeNodes("1.12.6", "1.34.2")
	fake.store = refusing{t}

	_, diagnostics := planned(t, onNode(t, fake, "worker-1"), nil, desired("1.13.4", ""))
	check(t, diagnostics,
		outcome{diag.SeverityWarning, says}, outcome{diag.SeverityWarning, "one control plane"}, outcome{diag.SeverityWarning, "Rolling upgrade of 3 of 3 nodes"})

	_, diagnostics = create(t, onNode(t, fake, "worker-1"), desired("1.13.4", ""))
	check(t, diagnostics, outcome{diag.SeverityError, says})

	asked := map[string]attr.Value{attrname.TalosVersion: types.StringValue("1.13.4")}

	got, diagnostics := readPreflight(t, onNode(t, fake, "worker-1"), asked)
	check(t, diagnostics)

	if found := got.found(cluster.CheckOwnNode); len(found) != 1 || found[0].status != checkFailed || found[0].node != "worker-1" || got.Passed.ValueBool() {
		t.Errorf("passed is %s: %+v", got.Passed, found)
	}

	asked[attrname.Preflight] = skipping(t, cluster.CheckOwnNode)

	got, diagnostics = readPreflight(t, onNode(t, fake, "worker-1"), asked)
	check(t, diagnostics)

	if found := got.found(cluster.CheckOwnNode); len(found) != 1 || found[0].status != checkSkipped || !got.Passed.ValueBool() {
		t.Errorf("skipped, passed is %s: %+v", got.Passed, found)
	}
}

// TestOwnNode_IsNoCheckWhereItCannotBeKnown, and one that passes elsewhere.
func TestOwnNode_IsNoCheckWhereItCannotBeKnown(t *testing.T) {
	asked := map[string]attr.Value{attrname.TalosVersion: types.StringValue("1.13.4")}

	got, diagnostics := readPreflight(t, threeNodes("1.12.6", "1.34.2").clusters(t), asked)
	check(t, diagnostics)

	if found := got.found(cluster.CheckOwnNode); len(found) > 0 {
		t.Errorf("not known: %+v", found)
	}

	got, diagnostics = readPreflight(t, onNode(t, threeNodes("1.12.6", "1.34.2"), "elsewhere"), asked)
	check(t, diagnostics)

	if found := got.found(cluster.CheckOwnNode); len(found) != 1 || found[0].status != checkPassed {
		t.Errorf("elsewhere: %+v", found)
	}
}

// TestOwnNode_IsNoMatterOfARunThatDelegates: the operator goes on without it.
func TestOwnNode_IsNoMatterOfARunThatDelegates(t *testing.T) {
	clusters := onNode(t, threeNodes("1.12.6", "1.34.2"), "worker-1")
	model := desired("1.13.4", "")

	request, diagnostics := model.requestOf(t.Context(), clusters, nil)
	wellDone(t, diagnostics)

	if request.Policy.OwnBootID != "boot-worker-1" {
		t.Errorf("direct: %q", request.Policy.OwnBootID)
	}

	model.Mode = types.StringValue(modeDelegate)

	request, diagnostics = model.requestOf(t.Context(), clusters, nil)
	wellDone(t, diagnostics)

	if !request.Delegated || request.Policy.OwnBootID != "" {
		t.Errorf("delegated: %t, %q", request.Delegated, request.Policy.OwnBootID)
	}
}

// TestBootID_IsThatOfTheKernelBelow a provider as the command line starts it.
func TestBootID_IsThatOfTheKernelBelow(t *testing.T) {
	made, is := New("test")().(*talosUpgrade)
	if !is {
		t.Fatal("it is another provider")
	}

	if got := made.settings.BootID; (got == "") != (runtime.GOOS != "linux") {
		t.Errorf("got %q", got)
	}
}
