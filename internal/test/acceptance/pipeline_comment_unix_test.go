// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// pretended is a fake gh, which records its calls. The ID of the existing comment is in OLD.
const pretended = `#!/bin/sh
case "$*" in
  *--jq*) printf '%s' "$OLD" ;;
  *) echo "$*" >> "$CALLS" ;;
esac
`

// TestPipelineComments_GitHub wants the plan to be a single comment, which later plans replace.
func TestPipelineComments_GitHub(t *testing.T) {
	w := &workspace{t: t, dir: t.TempDir()}
	runner, bin := t.TempDir(), t.TempDir()
	calls := filepath.Join(runner, "calls")

	for path, content := range map[string]string{filepath.Join(bin, "gh"): pretended, filepath.Join(runner, "plan.txt"): "Plan: 1 to change\n"} {
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	w.env = []string{before(bin), "RUNNER_TEMP=" + runner, "CALLS=" + calls, "GITHUB_REPOSITORY=acme/clusters", "NUMBER=7"}

	for _, old := range []string{"", "42"} {
		if said, failed := w.shell(step(t, "plan", "Comment"), "OLD="+old); failed {
			t.Fatal(said)
		}
	}

	body := filepath.Join(runner, "comment.md")
	want := "api --silent repos/acme/clusters/issues/7/comments -F body=@" + body + "\n" +
		"api --silent --method PATCH repos/acme/clusters/issues/comments/42 -F body=@" + body + "\n"

	if said, err := os.ReadFile(calls); err != nil || string(said) != want {
		t.Errorf("asked for\n%s(%v), want\n%s", said, err, want)
	}

	if said, err := os.ReadFile(body); err != nil || string(said) != "<!-- talos-prod -->\n~~~text\nPlan: 1 to change\n~~~\n" {
		t.Errorf("the comment is %q (%v)", said, err)
	}
}

// receiver is a server that keeps what it receives. While refuses is true, it refuses everything.
type receiver struct {
	*httptest.Server

	mutex   sync.Mutex
	refuses bool
	got     []string
}

func newReceiver(t *testing.T, read func(*http.Request) string) *receiver {
	t.Helper()

	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}

	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		r.mutex.Lock()
		defer r.mutex.Unlock()

		if r.refuses {
			answer.WriteHeader(http.StatusServiceUnavailable)

			return
		}

		r.got = append(r.got, read(request))
	}))

	t.Cleanup(r.Close)

	return r
}

// refuse sets whether the server refuses everything.
func (r *receiver) refuse(refuses bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	r.refuses = refuses
}

// taken returns what the server has received since the last call.
func (r *receiver) taken() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	got := r.got
	r.got = nil

	return got
}

// bodyOf returns the body of a request.
func bodyOf(request *http.Request) string {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return err.Error()
	}

	return string(body)
}

// TestPipelineComments_GitLab wants the plan to be a note of the merge request, as it was printed.
func TestPipelineComments_GitLab(t *testing.T) {
	server := newReceiver(t, func(r *http.Request) string {
		return r.Method + " " + r.URL.Path + " " + r.Header.Get("PRIVATE-TOKEN") + "\n" + r.FormValue("body")
	})

	w := &workspace{t: t, dir: t.TempDir(), env: append(os.Environ(),
		"COMMENT_TOKEN=secret", "CI_API_V4_URL="+server.URL, "CI_PROJECT_ID=3", "CI_MERGE_REQUEST_IID=7")}

	if err := os.Mkdir(filepath.Join(w.dir, "talos"), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(w.dir, "talos", "plan.txt"), []byte("a & b: 100% = ø\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	if said, failed := w.shell(lines(t, "comment")); failed {
		t.Fatal(said)
	}

	want := "POST /projects/3/merge_requests/7/notes secret\n```text\na & b: 100% = ø\n```\n"
	if got := strings.Join(server.taken(), "---"); got != want {
		t.Errorf("it got %q, want %q", got, want)
	}

	server.refuse(true)

	if said, failed := w.shell(lines(t, "comment")); !failed {
		t.Errorf("a note that was refused is no failure: %s", said)
	}
}
