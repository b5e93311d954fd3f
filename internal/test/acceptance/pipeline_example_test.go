// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	client "k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// pipelines returns the directory of the files of the guide about pipelines.
func pipelines() string { return filepath.Join("..", "..", "..", "examples", "guides", "ci-pipelines") }

// documents returns the documents in a YAML file.
func documents(t *testing.T, path string) []map[string]any {
	t.Helper()

	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	var found []map[string]any

	for decoder := yaml.NewDecoder(bytes.NewReader(content)); ; {
		var one map[string]any

		err := decoder.Decode(&one)
		if errors.Is(err, io.EOF) {
			return found
		}

		if err != nil {
			t.Fatalf("%s: %s", path, err)
		}

		found = append(found, one)
	}
}

// TestExamplesAreYAML wants all YAML files of the examples to parse.
func TestExamplesAreYAML(t *testing.T) {
	var read int

	err := filepath.WalkDir(filepath.Join("..", "..", "..", "examples"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}

		read++

		for at, one := range documents(t, path) {
			if len(one) == 0 {
				t.Errorf("%s: document %d is empty", path, at)
			}
		}

		return nil
	})
	if err != nil || read < 8 {
		t.Fatalf("%d files, %v", read, err)
	}
}

// TestPipelinesGiveAnApplyItsTime compares the limits of the jobs with those of the resource that they apply: a job
// that ends first kills the run in the middle.
func TestPipelinesGiveAnApplyItsTime(t *testing.T) {
	const minutes = 3*60 + 2*30 + 30 // timeouts.update, node_timeout twice, and the rest.

	github := documents(t, filepath.Join(pipelines(), "github-actions.yaml"))[0]
	if got := within(github, "jobs", "apply", "timeout-minutes"); got != minutes {
		t.Errorf("GitHub: %v minutes, want %d", got, minutes)
	}

	gitlab := documents(t, filepath.Join(pipelines(), "gitlab.yaml"))[0]
	if got := within(gitlab, "apply", "timeout"); got != "4h 30m" {
		t.Errorf("GitLab: %v, want %d minutes", got, minutes)
	}

	job := documents(t, filepath.Join(pipelines(), "in-cluster", "job.yaml"))[0]
	if got := within(job, "spec", "activeDeadlineSeconds"); got != minutes*60 {
		t.Errorf("Job: %v s, want %d minutes", got, minutes)
	}
}

func within(of any, path ...string) any {
	for _, key := range path {
		inner, _ := of.(map[string]any)
		of = inner[key]
	}

	return of
}

// TestAccPipelineJob creates the objects of the Job in a real API server: they have to be valid, and the Job may
// write its state and nothing else.
func TestAccPipelineJob(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Talos: talosModern, Management: true, Speed: unhurried})

	config, err := s.ManagementConfig()
	if err != nil {
		t.Fatal(err)
	}

	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	resources := map[string]schema.GroupVersionResource{
		"Namespace":      {Version: "v1", Resource: "namespaces"},
		"ServiceAccount": {Version: "v1", Resource: "serviceaccounts"},
		"Role":           {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
		"RoleBinding":    {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
		"Job":            {Group: "batch", Version: "v1", Resource: "jobs"},
	}

	for _, name := range []string{"access.yaml", "job.yaml"} {
		for _, one := range documents(t, filepath.Join(pipelines(), "in-cluster", name)) {
			object := &unstructured.Unstructured{Object: one}

			resource, known := resources[object.GetKind()]
			if !known {
				t.Fatalf("%s: kind %s", name, object.GetKind())
			}

			made := objects.Resource(resource).Namespace(object.GetNamespace())
			if _, err := made.Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
				t.Errorf("%s: %s: %s", name, object.GetKind(), err)
			}
		}
	}

	config.Impersonate.UserName = "system:serviceaccount:upgrades:talosupgrade"

	access, err := client.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	for _, asked := range []struct {
		allowed               bool
		namespace, verb, kind string
		group                 string
	}{
		{true, "upgrades", "update", "secrets", ""},
		{true, "upgrades", "create", "leases", "coordination.k8s.io"},
		{false, "upgrades", "create", "pods", ""},
		{false, "kube-system", "get", "secrets", ""},
	} {
		answer, err := access.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: asked.namespace, Verb: asked.verb, Resource: asked.kind, Group: asked.group,
			}},
		}, metav1.CreateOptions{})
		if err != nil || answer.Status.Allowed != asked.allowed {
			t.Errorf("%s %s in %s: allowed %t, want %t (%v)", asked.verb, asked.kind, asked.namespace, answer.Status.Allowed, asked.allowed, err)
		}
	}
}
