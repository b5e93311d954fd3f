// SPDX-License-Identifier: MPL-2.0

package project

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// workflows is where GitHub looks for them.
const workflows = root + "/.github/workflows"

// An action is pinned by the full hash of a commit, with its release in a comment.
var (
	pinnedAction  = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40}$`)
	releasedAs    = regexp.MustCompile(`^# v\d+\.\d+\.\d+$`)
	interpolation = regexp.MustCompile(`\$\{\{`)
)

// TestWorkflowsKeepToThePolicy wants no workflow to breach the policy.
func TestWorkflowsKeepToThePolicy(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(workflows, "*.y*ml"))
	if err != nil {
		t.Fatal(err)
	}

	if len(files) < 5 {
		t.Fatalf("only %v below %s", files, workflows)
	}

	pins := make(map[string]string)

	for _, file := range files {
		for _, finding := range breaches(t, read(t, file), pins) {
			t.Errorf("%s: %s", filepath.Base(file), finding)
		}
	}
}

// TestWorkflowPolicyFindsBreaches checks one bad workflow after the other.
func TestWorkflowPolicyFindsBreaches(t *testing.T) {
	good := `
name: Good
on: push
permissions:
  contents: read
concurrency: good
jobs:
  one:
    runs-on: ubuntu-24.04
    timeout-minutes: 5
    steps:
      - uses: actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd # v6.0.2
        with:
          persist-credentials: false
      - run: echo "$TITLE"
        env:
          TITLE: ${{ github.event.pull_request.title }}
`

	for name, test := range map[string]struct{ from, to, want string }{
		"good": {},
		"a tag instead of a hash": {
			"@de0fac2e4500dabe0009e67214ff5f5447ce83dd # v6.0.2", "@v6",
			"line 12: actions/checkout@v6 is not pinned by the full hash of a commit",
		},
		"no release beside the hash": {" # v6.0.2", "", "line 12: actions/checkout has no comment such as # v1.2.3"},
		"a foreign fork's code with our rights": {
			"on: push", "on: pull_request_target", "on: pull_request_target runs other people's code with our secrets",
		},
		"no permissions":          {"permissions:\n  contents: read\n", "", "no permissions at the top"},
		"rights for every job":    {"contents: read", "contents: write", "permissions at the top: contents: write; give it to the job that needs it"},
		"all rights":              {"permissions:\n  contents: read", "permissions: write-all", "permissions at the top: write-all"},
		"no concurrency":          {"concurrency: good\n", "", "no concurrency at the top"},
		"no limit":                {"    timeout-minutes: 5\n", "", "job one has no timeout-minutes"},
		"a token left behind":     {"persist-credentials: false", "fetch-depth: 0", "line 12: actions/checkout without persist-credentials: false"},
		"a title becomes a shell": {`echo "$TITLE"`, `echo "${{ github.event.pull_request.title }}"`, "line 15: run with ${{ }} in it; hand it over in env"},
	} {
		t.Run(name, func(t *testing.T) {
			content := strings.Replace(good, test.from, test.to, 1)

			var want []string
			if test.want != "" {
				want = []string{test.want}
			}

			if diff := cmp.Diff(want, breaches(t, []byte(content), make(map[string]string))); diff != "" {
				t.Errorf("breaches (-want +got):\n%s", diff)
			}
		})
	}
}

// breaches returns what a workflow does against the policy. pins has the hash to which each action is pinned
// elsewhere.
func breaches(t *testing.T, content []byte, pins map[string]string) []string {
	t.Helper()

	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		t.Fatal(err)
	}

	top := document.Content[0]
	found := breachesAtTheTop(top)

	jobs := value(top, "jobs")
	for i := 0; i+1 < len(jobs.Content); i += 2 {
		job := jobs.Content[i+1]
		// A job that calls a workflow has the limits of that workflow.
		if value(job, "uses") == nil && value(job, "timeout-minutes") == nil {
			found = append(found, fmt.Sprintf("job %s has no timeout-minutes", jobs.Content[i].Value))
		}
	}

	walk(top, func(step *yaml.Node) {
		if uses := value(step, "uses"); uses != nil && uses.Kind == yaml.ScalarNode && !strings.HasPrefix(uses.Value, "./") {
			found = append(found, breachesOfAction(step, uses, pins)...)
		}

		if script := value(step, "run"); script != nil && interpolation.MatchString(script.Value) {
			found = append(found, fmt.Sprintf("line %d: run with ${{ }} in it; hand it over in env", script.Line))
		}
	})

	return found
}

func breachesAtTheTop(top *yaml.Node) []string {
	var found []string

	walk(value(top, "on"), func(node *yaml.Node) {
		if node.Value == "pull_request_target" {
			found = append(found, "on: pull_request_target runs other people's code with our secrets")
		}
	})

	permissions := value(top, "permissions")

	switch {
	case permissions == nil:
		found = append(found, "no permissions at the top")
	case permissions.Kind == yaml.ScalarNode:
		found = append(found, "permissions at the top: "+permissions.Value)
	default:
		for i := 0; i+1 < len(permissions.Content); i += 2 {
			if right := permissions.Content[i+1].Value; right != "read" && right != "none" {
				found = append(found, fmt.Sprintf("permissions at the top: %s: %s; give it to the job that needs it", permissions.Content[i].Value, right))
			}
		}
	}

	if value(top, "concurrency") == nil {
		found = append(found, "no concurrency at the top")
	}

	return found
}

func breachesOfAction(step, uses *yaml.Node, pins map[string]string) []string {
	name, hash, _ := strings.Cut(uses.Value, "@")

	if !pinnedAction.MatchString(uses.Value) {
		return []string{fmt.Sprintf("line %d: %s is not pinned by the full hash of a commit", uses.Line, uses.Value)}
	}

	var found []string

	if !releasedAs.MatchString(uses.LineComment) {
		found = append(found, fmt.Sprintf("line %d: %s has no comment such as # v1.2.3", uses.Line, name))
	}

	if other, ok := pins[name]; ok && other != hash {
		found = append(found, fmt.Sprintf("line %d: %s is pinned to another commit elsewhere", uses.Line, name))
	}

	pins[name] = hash

	if kept := value(value(step, "with"), "persist-credentials"); name == "actions/checkout" && (kept == nil || kept.Value != "false") {
		found = append(found, fmt.Sprintf("line %d: actions/checkout without persist-credentials: false", uses.Line))
	}

	return found
}

// value returns what a mapping has at a key; nil if it has nothing there, or is not a mapping.
func value(node *yaml.Node, key string) *yaml.Node {
	if node == nil || node.Kind != yaml.MappingNode {
		return nil
	}

	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}

	return nil
}

// walk visits a node and everything below it. The target of an alias is visited where it is written.
func walk(node *yaml.Node, visit func(*yaml.Node)) {
	if node == nil {
		return
	}

	visit(node)

	for _, child := range node.Content {
		walk(child, visit)
	}
}

// TestWorkflowsCoverEveryReleaseLineThatIsSupported wants the matrix to have all minor versions that the documentation
// promises: those that have provider functions.
func TestWorkflowsCoverEveryReleaseLineThatIsSupported(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(workflows, "acceptance.yml"))
	if err != nil {
		t.Fatal(err)
	}

	var workflow struct {
		Jobs map[string]struct {
			Strategy struct {
				Matrix struct {
					Version []string `yaml:"version"`
					Include []struct {
						Version string `yaml:"version"`
						Target  string `yaml:"target"`
					} `yaml:"include"`
				} `yaml:"matrix"`
			} `yaml:"strategy"`
		} `yaml:"jobs"`
	}

	if err := yaml.Unmarshal(content, &workflow); err != nil {
		t.Fatal(err)
	}

	for job, oldest := range map[string]int{"terraform": 8, "opentofu": 7} {
		matrix := workflow.Jobs[job].Strategy.Matrix
		lines, full := slices.Clone(matrix.Version), []string(nil)

		for _, included := range matrix.Include {
			lines = append(lines, included.Version)

			if included.Target == "testacc" {
				full = append(full, included.Version)
			}
		}

		var want []string
		for minor := oldest; minor < oldest+len(lines); minor++ {
			want = append(want, fmt.Sprintf("1.%d", minor))
		}

		for _, line := range want {
			if !slices.Contains(lines, line) {
				t.Errorf("%s: %v leaves out %s", job, lines, line)
			}
		}

		if ends := []string{want[0], want[len(want)-1]}; !slices.Equal(full, ends) {
			t.Errorf("%s: the whole suite runs with %v, wanted the oldest and the newest, %v", job, full, ends)
		}
	}
}
