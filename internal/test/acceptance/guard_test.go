// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// someone returns a client of a person with a kubeconfig.
func (s *simulated) someone() client.Interface {
	s.t.Helper()

	kubeconfig, err := os.ReadFile(s.Kubeconfig())
	if err != nil {
		s.t.Fatal(err)
	}

	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		s.t.Fatal(err)
	}

	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		s.t.Fatal(err)
	}

	s.t.Cleanup(transport.CloseIdleConnections)

	made, err := client.NewForConfigAndClient(config, transport)
	if err != nil {
		s.t.Fatal(err)
	}

	return made
}

// allow sets the value that the gates of tests read.
func (s *simulated) allow(value string) {
	s.t.Helper()

	maps := s.someone().CoreV1().ConfigMaps(metav1.NamespaceDefault)
	wanted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "upgrades"}, Data: map[string]string{"allowed": value}}

	_, err := maps.Update(s.t.Context(), wanted, metav1.UpdateOptions{})
	if err != nil {
		_, err = maps.Create(s.t.Context(), wanted, metav1.CreateOptions{})
	}

	if err != nil {
		s.t.Fatal(err)
	}
}

// checkRow is an element of the checks of a preflight.
type checkRow struct {
	Name, Status, Severity, Node, Finding, Remedy string
}

// preflight is the answer of the data source.
type preflight struct {
	t       *testing.T
	Passed  bool
	Summary string
	Checks  []checkRow
}

// ask replaces the configuration by the data source with the arguments, and
// reads it.
func (w *workspace) ask(s *simulated, arguments string) preflight {
	w.t.Helper()
	w.raw("provider \"talosupgrade\" {\n" + use(s) + "\n}\n\ndata \"talosupgrade_preflight\" \"this\" {\n" + arguments + "\n}\n\n" +
		"output \"preflight\" { value = data.talosupgrade_preflight.this }\n")
	w.apply().mustSucceed(0)

	encoded, err := json.Marshal(w.outputs()["preflight"])
	if err != nil {
		w.t.Fatal(err)
	}

	answer := preflight{t: w.t}
	if err := json.Unmarshal(encoded, &answer); err != nil {
		w.t.Fatal(err)
	}

	return answer
}

// want fails the test unless the check has such a row, with the texts in it.
func (p preflight) want(name, status, severity, node string, texts ...string) {
	p.t.Helper()

	var seen []checkRow

	for _, row := range p.Checks {
		if row.Name != name {
			continue
		}

		seen = append(seen, row)
		if row.Status != status || row.Severity != severity || row.Node != node {
			continue
		}

		for _, text := range texts {
			if !strings.Contains(row.Finding+" "+row.Remedy, text) {
				p.t.Errorf("%s of %q does not say %q: %s %s", name, node, text, row.Finding, row.Remedy)
			}
		}

		return
	}

	p.t.Errorf("%s of %q is not %s with severity %s, but %+v", name, node, status, severity, seen)
}

// cordons returns how often we cordoned a node.
func (s *simulated) cordons() int {
	s.t.Helper()

	count := 0

	for _, event := range s.changes() {
		if event.Kind == history.KindCordon && event.Detail["unschedulable"] == "true" {
			count++
		}
	}

	return count
}

// window returns a maintenance window: a short one that opens in half a year, or one that is always open.
func window(open bool) string {
	if open {
		return "\nmaintenance_window = {\n cron = \"0 * * * *\"\n duration = \"2h\"\n}"
	}

	opens := time.Now().AddDate(0, 6, 0)

	return "\nmaintenance_window = {\n cron = \"0 3 1 " + opens.Format("1") + " *\"\n duration = \"30m\"\n time_zone = \"Europe/Oslo\"\n}"
}

// mustNotWarn fails the test if a warning has the text.
func (r result) mustNotWarn(text string) {
	r.t.Helper()

	for _, found := range r.warnings {
		if strings.Contains(found.String(), text) {
			r.t.Errorf("a warning says %q: %s", text, found)
		}
	}
}
