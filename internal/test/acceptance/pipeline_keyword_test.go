// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"
)

// atlantisStep is a built-in step of a workflow of Atlantis.
type atlantisStep struct {
	ExtraArgs []string `yaml:"extra_args"`
}

// atlantisStage has the steps of a plan or an apply.
type atlantisStage struct {
	Steps []struct {
		Env *struct {
			Name  string `yaml:"name"`
			Value string `yaml:"value"`
		} `yaml:"env"`
		Init  *atlantisStep `yaml:"init"`
		Plan  *atlantisStep `yaml:"plan"`
		Apply *atlantisStep `yaml:"apply"`
	} `yaml:"steps"`
}

// TestPipelines_AtlantisKnowsEveryWord wants the example to have only keys in the reference of atlantis.yaml, and its
// project to use a workflow that exists.
func TestPipelines_AtlantisKnowsEveryWord(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(pipelines(), "atlantis.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	var read struct {
		Version       int  `yaml:"version"`
		Automerge     bool `yaml:"automerge"`
		ParallelPlan  bool `yaml:"parallel_plan"`
		ParallelApply bool `yaml:"parallel_apply"`
		Projects      []struct {
			Name     string `yaml:"name"`
			Dir      string `yaml:"dir"`
			Autoplan struct {
				Enabled      bool     `yaml:"enabled"`
				WhenModified []string `yaml:"when_modified"`
			} `yaml:"autoplan"`
			ApplyRequirements []string `yaml:"apply_requirements"`
			Workflow          string   `yaml:"workflow"`
		} `yaml:"projects"`
		Workflows map[string]struct {
			Plan, Apply atlantisStage
		} `yaml:"workflows"`
	}

	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)

	if err := decoder.Decode(&read); err != nil {
		t.Fatal(err)
	}

	if read.Version != 3 || len(read.Projects) != 1 {
		t.Fatalf("version %d with %d projects", read.Version, len(read.Projects))
	}

	project := read.Projects[0]

	workflow, known := read.Workflows[project.Workflow]
	if !known || len(workflow.Plan.Steps) != 3 || len(workflow.Apply.Steps) != 2 {
		t.Errorf("the workflow %q is %+v", project.Workflow, workflow)
	}

	for _, requirement := range project.ApplyRequirements {
		if !slices.Contains([]string{"approved", "mergeable", "undiverged"}, requirement) {
			t.Errorf("apply_requirements has %q", requirement)
		}
	}
}

// TestPipelines_GitLabKnowsEveryWord wants the jobs to have only keywords in GitLab's reference, and to use stages
// and jobs that exist.
func TestPipelines_GitLabKnowsEveryWord(t *testing.T) {
	file := documents(t, filepath.Join(pipelines(), "gitlab.yaml"))[0]
	stages, _ := file["stages"].([]any)

	for name, job := range file {
		if slices.Contains([]string{"stages", "default", "variables"}, name) {
			continue
		}

		keys, isJob := job.(map[string]any)
		if !isJob || keys["script"] == nil || keys["rules"] == nil {
			t.Errorf("%s is no job with script and rules", name)
		}

		for key := range keys {
			if !slices.Contains([]string{"stage", "needs", "rules", "image", "timeout", "interruptible", "environment", "resource_group", "retry", "script", "artifacts"}, key) {
				t.Errorf("job %s has %q", name, key)
			}
		}

		if !slices.Contains(stages, keys["stage"]) {
			t.Errorf("job %s is in the stage %v", name, keys["stage"])
		}

		needs, _ := keys["needs"].([]any)
		for _, need := range needs {
			if needed, _ := need.(string); file[needed] == nil {
				t.Errorf("job %s needs %v", name, need)
			}
		}
	}
}
