// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// publishedTo is publish_to; a part that is empty is not set.
func publishedTo(apiVersion, kind, namespace, name string) types.Object {
	return types.ObjectValueMust(publishToTypes(), map[string]attr.Value{
		attrAPIVersion: textValue(apiVersion), attrKind: textValue(kind), attrNamespace: textValue(namespace), attrName: textValue(name),
	})
}

// publishing is a change to where progress is published.
func publishing(to types.Object) func(*clusterModel) {
	return func(m *clusterModel) { m.PublishTo = to }
}

// delegating is a configuration that leaves everything to the operator of the
// object that may be left to it, but for the change.
func delegating(to types.Object, change func(*clusterModel)) func(*clusterModel) {
	return func(m *clusterModel) {
		m.PublishTo, m.Mode = to, types.StringValue(modeDelegate)
		m.Order, m.RebootMode, m.MaxUnavailable, m.Settle = types.StringNull(), types.StringNull(), types.StringNull(), types.StringNull()
		m.Drain, m.SyncInstallImage = types.ObjectNull(drainTypes()), types.BoolNull()
		m.OnFailure, m.Retry = types.StringNull(), types.ObjectNull(retryTypes())

		change(m)
	}
}

func nothingElse(*clusterModel) {}

func TestValidationOfPublishing(t *testing.T) {
	vitistack := publishedTo("", "KubernetesCluster", "tenant-a", "prod")
	declarative := publishedTo("", "TalosControlPlane", "tenant-a", "prod")
	mode := func(value types.String) func(*clusterModel) { return func(m *clusterModel) { m.Mode = value } }
	part := func(name string, value types.String) func(*clusterModel) {
		return func(m *clusterModel) {
			parts := vitistack.Attributes()
			parts[name] = value
			m.PublishTo = types.ObjectValueMust(publishToTypes(), parts)
		}
	}

	checkValidation(t, map[string]validationCase{
		"a KubernetesCluster":        {publishing(vitistack), "", ""},
		"one of another API version": {publishing(publishedTo("vitistack.io/v1", "KubernetesCluster", "tenant-a", "prod")), "", ""},
		"a ConfigMap":                {publishing(publishedTo("", "ConfigMap", "kube-system", "progress")), "", ""},
		"another kind":               {publishing(publishedTo("example.com/v1beta1", "Site", "tenant-a", "prod.example")), "", ""},
		"nothing is known": {func(m *clusterModel) {
			m.PublishTo, m.Mode = types.ObjectUnknown(publishToTypes()), types.StringUnknown()
		}, "", ""},
		"an unknown kind":                  {part(attrKind, types.StringUnknown()), "", ""},
		"an unknown API version":           {part(attrAPIVersion, types.StringUnknown()), "", ""},
		"an unknown name":                  {part(attrName, types.StringUnknown()), "", ""},
		"direct":                           {mode(types.StringValue("direct")), "", ""},
		"direct beside an operator":        {func(m *clusterModel) { m.PublishTo, m.Mode = vitistack, types.StringValue("direct") }, "", ""},
		"a kind without an API version":    {publishing(publishedTo("", "Site", "tenant-a", "prod")), attrPublishTo, `publish_to.kind is "Site", and the API version of that kind is not known`},
		"almost a kind":                    {publishing(publishedTo("", "KubernetesClusters", "tenant-a", "prod")), attrPublishTo, `Did you mean "KubernetesCluster"?`},
		"a kind in other capitals":         {publishing(publishedTo("", "kubernetesCluster", "tenant-a", "prod")), attrPublishTo, `Did you mean "KubernetesCluster"?`},
		"no kind":                          {part(attrKind, types.StringValue("")), attrPublishTo, `publish_to.kind is ""`},
		"a Secret":                         {publishing(publishedTo("v1", "Secret", "tenant-a", "prod")), attrPublishTo, "Secrets are neither read nor written"},
		"a name with a path":               {part(attrName, types.StringValue("../secrets/prod")), attrPublishTo, `publish_to.name is "../secrets/prod"`},
		"no name":                          {part(attrName, types.StringValue("")), attrPublishTo, `publish_to.name is ""`},
		"a name without end":               {part(attrName, types.StringValue(strings.Repeat("a", 254))), attrPublishTo, "must be the name of an object"},
		"no namespace":                     {part(attrNamespace, types.StringValue("")), attrPublishTo, `publish_to.namespace is ""`},
		"an API version without a version": {part(attrAPIVersion, types.StringValue("vitistack.io")), attrPublishTo, `publish_to.api_version is "vitistack.io"`},
		"an API version with a path":       {part(attrAPIVersion, types.StringValue("a/b/v1")), attrPublishTo, "must be an API version such as v1"},
		"another mode":                     {mode(types.StringValue("operator")), attrMode, `mode is "operator".` + "\n\n" + `Write "direct"`},
		"almost a mode":                    {mode(types.StringValue("delegated")), attrMode, `Did you mean "delegate"?`},
		"delegate without an object":       {delegating(types.ObjectNull(publishToTypes()), nothingElse), attrMode, "without publish_to there is none to ask"},
		"delegate to a ConfigMap":          {delegating(publishedTo("", "ConfigMap", "a", "b"), nothingElse), attrMode, "acts on a ConfigMap"},
		"delegate to another kind":         {delegating(publishedTo("example.com/v1", "Site", "a", "b"), nothingElse), attrMode, "acts on a Site"},
		"delegate to an unknown object":    {delegating(types.ObjectUnknown(publishToTypes()), nothingElse), "", ""},
		"delegate to Vitistack":            {delegating(vitistack, nothingElse), "", ""},
		"delegate to the other operator":   {delegating(declarative, nothingElse), "", ""},
		"one that cannot be held":          {publishing(declarative), attrPublishTo, `Set mode = "delegate"`},
		"one that may be asked":            {func(m *clusterModel) { m.PublishTo, m.Mode = declarative, types.StringUnknown() }, "", ""},
		"one that cannot be held, directly": {
			func(m *clusterModel) { m.PublishTo, m.Mode = declarative, types.StringValue("direct") },
			attrPublishTo, "cannot be held",
		},
		"delegate with what is allowed": {delegating(vitistack, func(m *clusterModel) {
			m.AllowIntermediate, m.IntermediateVersions, m.AllowUnknown = types.BoolValue(true), texts("1.12.8"), types.BoolValue(true)
			m.NodeTimeout = types.StringValue("10m")
			m.Preflight, m.EtcdSnapshot = skippingChecks(types.StringValue(cluster.CheckDiskSpace)), saving("snapshots")
			windowed(leapDay())(m)
		}), "", ""},
	})
}

func saving(directory string) types.Object {
	return types.ObjectValueMust(directoryTypes(), map[string]attr.Value{attrDirectory: types.StringValue(directory)})
}

// TestDelegationTakesNoOrders: an attribute that nothing looks at would be a
// promise that is not kept.
func TestDelegationTakesNoOrders(t *testing.T) {
	vitistack := publishedTo("", "KubernetesCluster", "tenant-a", "prod")
	defaults := desired("1.13.4", "")
	cases := map[string]validationCase{}

	for name, change := range map[string]func(*clusterModel){
		attrOrder:          func(m *clusterModel) { m.Order = defaults.Order },
		attrRebootMode:     func(m *clusterModel) { m.RebootMode = defaults.RebootMode },
		attrDrain:          func(m *clusterModel) { m.Drain = defaults.Drain },
		attrInstallerImage: func(m *clusterModel) { m.InstallerImage = types.StringValue("ghcr.io/siderolabs/installer") },
		attrMaxUnavailable: func(m *clusterModel) { m.MaxUnavailable = defaults.MaxUnavailable },
		attrParallelPulls:  func(m *clusterModel) { m.ParallelPulls = times(7) },
		attrCanary:         func(m *clusterModel) { m.Canary = texts("worker-0") },
		attrSettle:         func(m *clusterModel) { m.Settle = defaults.Settle },
		attrNodeOverrides:  func(m *clusterModel) { m.NodeOverrides = holding(t, "worker-0") },
		attrKubernetes: func(m *clusterModel) {
			m.KubernetesVersion, m.Kubernetes = types.StringValue("1.35.2"), desired("1.13.4", "1.35.2").Kubernetes
		},
		attrSyncInstallImage: func(m *clusterModel) { m.SyncInstallImage = types.BoolValue(false) },
		attrOnFailure:        failing("stop"),
		attrRetry:            repeating(times(1), types.StringNull()),
	} {
		cases[name] = validationCase{delegating(vitistack, change), name, "nothing looks at " + name + "."}
	}

	cases["several of them"] = validationCase{
		delegating(vitistack, func(m *clusterModel) { m.Order, m.OnFailure = defaults.Order, types.StringValue("rollback") }),
		attrOrder, "Remove order, on_failure, or set",
	}

	checkValidation(t, cases)
}

func TestObjectIsCompleted(t *testing.T) {
	for name, test := range map[string]struct {
		to        types.Object
		mode      string
		want      string
		version   string
		delegated bool
	}{
		"default":           {types.ObjectNull(publishToTypes()), "", defaultObject, "", false},
		"KubernetesCluster": {publishedTo("", "KubernetesCluster", "a", "b"), "", "KubernetesCluster a/b", "vitistack.io/v1alpha1", false},
		"as written":        {publishedTo("vitistack.io/v1", "KubernetesCluster", "a", "b"), modeDirect, "KubernetesCluster a/b", "vitistack.io/v1", false},
		"delegated":         {publishedTo("", "TalosControlPlane", "a", "b"), modeDelegate, "TalosControlPlane a/b", "talos.alperen.cloud/v1alpha1", true},
	} {
		t.Run(name, func(t *testing.T) {
			model := clusterModel{optionsModel: optionsModel{PublishTo: test.to, Mode: textValue(test.mode)}}

			got := model.publication()
			if got.String() != test.want || got.delegated != test.delegated {
				t.Errorf("got %s, delegated %t", got, got.delegated)
			}

			if got.to != nil && got.to.APIVersion != test.version {
				t.Errorf("API version %s, want %s", got.to.APIVersion, test.version)
			}

			if !model.PublishTo.Equal(test.to) {
				t.Error("what was written changed")
			}
		})
	}
}

// TestPublicationDecidesAboutTheUpdate: who names another object has it told of the
// cluster by the next apply, and who leaves it out sees no change.
func TestPublicationDecidesAboutTheUpdate(t *testing.T) {
	before := desired("1.13.4", "")

	for name, change := range map[string]func(*clusterModel){
		"object": publishing(publishedTo("", "KubernetesCluster", "a", "b")),
		"mode":   func(m *clusterModel) { m.Mode = types.StringValue(modeDelegate) },
	} {
		after := desired("1.13.4", "")
		if !after.sameAs(*before) {
			t.Fatal("two models of the same configuration differ")
		}

		change(after)

		if after.sameAs(*before) {
			t.Errorf("another %s is no change", name)
		}
	}

	unknown := desired("1.13.4", "")
	unknown.PublishTo = basetypes.NewObjectUnknown(publishToTypes())

	if unknown.known(t.Context()) {
		t.Error("an object that is not known counts as known")
	}
}
