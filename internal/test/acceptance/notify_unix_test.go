// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// TestAccNotify runs the script of the guide with the permissions of the guide beside an upgrade: the chat has to get
// one message about its start and one about either end, even if it was away.
func TestAccNotify(t *testing.T) {
	fullOverReal(t)

	chat := newReceiver(t, bodyOf)
	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	k := newKubectl(t, s.Kubeconfig())
	example := filepath.Join(pipelines(), "notify")

	// The API server accepts the manifest without warnings.
	k.says("kubectl create --validate=strict -f " + filepath.Join(example, "cronjob.yaml"))

	notifier := &kubectl{t: t, env: append(slices.Clone(k.env), "WEBHOOK="+chat.URL,
		"KUBECONFIG="+k.with(s.Kubeconfig(), "kube-system", "talosupgrade-notify"))}
	notify := "sh " + filepath.Join(example, "notify.sh")

	notifier.says(notify)

	if got := chat.taken(); len(got) != 0 {
		t.Errorf("the chat was told %q of nothing", got)
	}

	s.faults(`faults: [{node: worker-0, step: install, effect: fail, times: 0}]`)

	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\nnode_timeout = \"12m\"")
	w.apply().mustFail("worker-0")

	// The chat is away: no message is lost.
	chat.refuse(true)

	if said, err := notifier.run(notify); err == nil {
		t.Errorf("a chat that refuses is no failure: %s", said)
	}

	chat.refuse(false)
	notifier.says(notify)
	chat.wantOnce(t, "Upgrade started: Talos "+talosModern+" → "+talosTarget, "Upgrade failed: ")

	s.faults("")
	s.settle()
	w.apply().mustSucceed(0)
	notifier.says(notify)
	chat.wantOnce(t, "Upgrade started: ", "Upgrade completed: now running Talos "+talosTarget)

	notifier.says(notify)

	if again := chat.taken(); len(again) != 0 {
		t.Errorf("told once more: %q", again)
	}
}

// wantOnce fails the test unless exactly one message since the last call begins with each of these.
func (r *receiver) wantOnce(t *testing.T, beginnings ...string) {
	t.Helper()

	told := texts(t, r.taken())

	for _, want := range beginnings {
		count := 0

		for _, text := range told {
			if strings.HasPrefix(text, want) {
				count++
			}
		}

		if count != 1 {
			t.Errorf("%q was told %d times: %q", want, count, told)
		}
	}
}

// texts returns the texts of the messages, each of which has to have one.
func texts(t *testing.T, bodies []string) []string {
	t.Helper()

	var all []string

	for _, body := range bodies {
		var message struct{ Text string }
		if err := json.Unmarshal([]byte(body), &message); err != nil || message.Text == "" {
			t.Errorf("%q is no message: %v", body, err)
		}

		all = append(all, message.Text)
	}

	return all
}
