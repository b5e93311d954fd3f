// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
)

// inKubernetes changes the kubernetes object of a model, which says nothing but
// the defaults where it is null.
func inKubernetes(t *testing.T, change func(*kubernetesModel)) func(*clusterModel) {
	t.Helper()

	return func(model *clusterModel) {
		made := kubernetesModel{
			Images: types.ObjectNull(overrideImageTypes()), UnavailableKubelets: types.StringNull(), Manifests: types.ObjectNull(manifestsTypes()),
		}
		if !model.Kubernetes.IsNull() {
			wellDone(t, model.Kubernetes.As(t.Context(), &made, basetypes.ObjectAsOptions{}))
		}

		change(&made)

		value, diagnostics := types.ObjectValueFrom(t.Context(), kubernetesTypes(), made)
		wellDone(t, diagnostics)

		model.Kubernetes = value
	}
}

// inManifests changes kubernetes.manifests of a model.
func inManifests(t *testing.T, change func(*manifestsModel)) func(*clusterModel) {
	t.Helper()

	return inKubernetes(t, func(kubernetes *kubernetesModel) {
		made := manifestsModel{Sync: types.BoolNull(), Prune: types.BoolNull(), Timeout: types.StringNull(), Force: types.BoolNull()}
		if !kubernetes.Manifests.IsNull() {
			wellDone(t, kubernetes.Manifests.As(t.Context(), &made, basetypes.ObjectAsOptions{}))
		}

		change(&made)

		value, diagnostics := types.ObjectValueFrom(t.Context(), manifestsTypes(), made)
		wellDone(t, diagnostics)

		kubernetes.Manifests = value
	})
}

// overriding is kubernetes.images; what is not given is null.
func overriding(t *testing.T, repositories map[string]string) types.Object {
	t.Helper()

	values := map[string]attr.Value{}
	for _, image := range imageAttributes() {
		values[image.name] = textValue(repositories[image.name])
	}

	return types.ObjectValueMust(overrideImageTypes(), values)
}

func managing(change func(*clusterModel)) func(*clusterModel) {
	return func(model *clusterModel) {
		model.KubernetesVersion = types.StringValue("1.35.2")

		change(model)
	}
}

func TestValidationOfKubernetes(t *testing.T) {
	image := func(name, repository string) func(*clusterModel) {
		return inKubernetes(t, func(k *kubernetesModel) { k.Images = overriding(t, map[string]string{name: repository}) })
	}

	kubelets := func(share string) func(*clusterModel) {
		return inKubernetes(t, func(k *kubernetesModel) { k.UnavailableKubelets = types.StringValue(share) })
	}

	off := func(change func(*manifestsModel)) func(*clusterModel) {
		return inManifests(t, func(m *manifestsModel) {
			m.Sync = types.BoolValue(false)

			change(m)
		})
	}

	everything := func(model *clusterModel) {
		image(attrProxy, "registry.example.com:5000/kube-proxy")(model)
		kubelets("25%")(model)
		inManifests(t, func(m *manifestsModel) {
			m.Sync, m.Prune, m.Force, m.Timeout = types.BoolValue(true), types.BoolValue(true), types.BoolValue(true), types.StringValue("0s")
		})(model)
	}

	checkValidation(t, map[string]validationCase{
		"everything":                  {managing(everything), "", ""},
		"image with a tag":            {managing(image(attrKubelet, "ghcr.io/siderolabs/kubelet:v1.35.2")), "kubernetes", "kubernetes.images.kubelet: not an image reference without tag"},
		"the tag has another owner":   {managing(image(attrKubelet, "ghcr.io/siderolabs/kubelet:v1.35.2")), "kubernetes", "the tag is chosen by kubernetes_version"},
		"image with a digest":         {managing(image(attrProxy, "r.io/p@sha256:376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba")), "kubernetes", "kubernetes.images.kube_proxy"},
		"image that is none":          {managing(image(attrScheduler, "Not A Reference")), "kubernetes", "not an image reference"},
		"half a kubelet":              {managing(kubelets("0.5")), "kubernetes", "kubernetes.max_unavailable_kubelets"},
		"timeout without unit":        {managing(inManifests(t, func(m *manifestsModel) { m.Timeout = types.StringValue("5") })), "kubernetes", "kubernetes.manifests.timeout"},
		"timeout below zero":          {managing(inManifests(t, func(m *manifestsModel) { m.Timeout = types.StringValue("-5m") })), "kubernetes", `"0s"`},
		"image without a version":     {image(attrAPIServer, "registry.example.com/apiserver"), "kubernetes", "kubernetes.images.kube_apiserver"},
		"kubelets without a version":  {kubelets("2"), "kubernetes", "set kubernetes_version"},
		"no image without a version":  {inKubernetes(t, func(k *kubernetesModel) { k.Images = overriding(t, nil) }), "", ""},
		"manifests without a version": {inManifests(t, func(m *manifestsModel) { m.Prune = types.BoolValue(true) }), "kubernetes", "without kubernetes_version the bootstrap manifests are not synced unless kubernetes.manifests.sync = true says so"},
		"manifests without a version, asked for": {inManifests(t, func(m *manifestsModel) {
			m.Sync, m.Prune = types.BoolValue(true), types.BoolValue(true)
		}), "", ""},
		"no sync":                {off(func(*manifestsModel) {}), "", ""},
		"no sync, and no prune":  {off(func(m *manifestsModel) { m.Prune, m.Force = types.BoolValue(false), types.BoolValue(false) }), "", ""},
		"no sync with prune":     {off(func(m *manifestsModel) { m.Prune = types.BoolValue(true) }), "kubernetes", "kubernetes.manifests says sync = false"},
		"no sync with force":     {off(func(m *manifestsModel) { m.Force = types.BoolValue(true) }), "kubernetes", "force = true"},
		"no sync with a timeout": {off(func(m *manifestsModel) { m.Timeout = types.StringValue("5m") }), "kubernetes", "remove timeout"},
		"no sync with all of them": {off(func(m *manifestsModel) {
			m.Prune, m.Force, m.Timeout = types.BoolValue(true), types.BoolValue(true), types.StringValue("5m")
		}), "kubernetes", "prune = true and force = true and timeout"},
		"nothing is known": {func(model *clusterModel) { model.Kubernetes = types.ObjectUnknown(kubernetesTypes()) }, "", ""},
		"nothing in it is known": {inKubernetes(t, func(k *kubernetesModel) {
			k.Images, k.UnavailableKubelets, k.Manifests = types.ObjectUnknown(overrideImageTypes()), types.StringUnknown(), types.ObjectUnknown(manifestsTypes())
		}), "", ""},
		"whether to sync is not known": {inManifests(t, func(m *manifestsModel) {
			m.Sync, m.Prune = types.BoolUnknown(), types.BoolValue(true)
		}), "", ""},
		"what not to sync is not known": {off(func(m *manifestsModel) { m.Prune, m.Timeout = types.BoolUnknown(), types.StringUnknown() }), "", ""},
		"the version is not known": {func(model *clusterModel) {
			everything(model)

			model.KubernetesVersion = types.StringUnknown()
		}, "", ""},
	})
}
