// SPDX-License-Identifier: MPL-2.0

package bootstrap

import (
	"io/fs"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func controlPlane() model.NodeState {
	return model.NodeState{
		KubeState: model.KubeState{Role: model.ControlPlane}, ProxyImage: "mirror.example:5000/k8s/kube-proxy:v1.34.2@sha256:0123",
		CoreDNSImage: "registry.k8s.io/coredns/coredns:v1.13.1",
	}
}

func ids(manifests []Manifest) []string {
	var found []string
	for _, manifest := range manifests {
		found = append(found, manifest.ID)
	}

	return found
}

func TestBootstrap_ManifestsFollowTheState(t *testing.T) {
	always := []string{
		"00-kubelet-bootstrapping-token", "01-csr-approver-role-binding", "01-csr-node-bootstrap",
		"01-csr-renewal-role-binding", "11-kube-config-in-cluster", "11-talos-node-rbac-template",
	}

	for name, test := range map[string]struct {
		change func(s *model.NodeState)
		want   []string
	}{
		"of a control plane": {func(*model.NodeState) {}, append(slices.Clone(always), "10-kube-proxy", "11-core-dns", "11-core-dns-svc")},
		"without kube-proxy": {func(s *model.NodeState) { s.ProxyImage = "" }, append(slices.Clone(always), "11-core-dns", "11-core-dns-svc")},
		"without CoreDNS":    {func(s *model.NodeState) { s.CoreDNSImage = "" }, append(slices.Clone(always), "10-kube-proxy")},
		"of a worker":        {func(s *model.NodeState) { s.Role = model.Worker }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			state := controlPlane()
			test.change(&state)
			slices.Sort(test.want)

			if found := ids(Render(state)); !slices.Equal(found, test.want) {
				t.Errorf("manifests %v, want %v", found, test.want)
			}
		})
	}
}

func TestBootstrap_EachFileRendersStrictlyIntoItsKind(t *testing.T) {
	names, err := fs.Glob(files, "manifests/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d files: %v", len(names), err)
	}

	for _, name := range names {
		objects, err := render(name, controlPlane())
		if err != nil || len(objects) == 0 {
			t.Errorf("%s has %d objects: %v", name, len(objects), err)
		}

		for _, object := range objects {
			// DeepCopyJSON panics if a number is neither int64 nor float64.
			object := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(object)}

			typed, err := scheme.Scheme.New(object.GroupVersionKind())
			if err != nil {
				t.Errorf("%s: %v", name, err)

				continue
			}

			err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, typed, true)
			if err != nil {
				t.Errorf("%s: %s %s: %v", name, object.GetKind(), object.GetName(), err)
			}
		}
	}
}

func TestBootstrap_ImagesAreTakenAsTheyAre(t *testing.T) {
	images := map[string]string{}

	for _, manifest := range Render(controlPlane()) {
		for _, object := range manifest.Objects {
			var workload appsv1.DaemonSet

			if kind := object["kind"]; kind != "DaemonSet" && kind != "Deployment" {
				continue
			}

			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &workload); err != nil {
				t.Fatal(err)
			}

			images[workload.Name] = workload.Spec.Template.Spec.Containers[0].Image
		}
	}

	if images["kube-proxy"] != controlPlane().ProxyImage || images["coredns"] != controlPlane().CoreDNSImage {
		t.Errorf("images %v", images)
	}
}

func TestBootstrap_EachCallMakesObjectsOfItsOwn(t *testing.T) {
	first, second := Render(controlPlane()), Render(controlPlane())
	first[0].Objects[0]["kind"] = "Changed"

	if second[0].Objects[0]["kind"] != "Secret" {
		t.Error("two calls share their objects")
	}
}
