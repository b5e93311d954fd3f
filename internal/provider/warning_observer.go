// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

var _ cluster.Observer = (*warningLog)(nil)

// warningsMost is how many different warnings of a run are shown.
const warningsMost = 20

// warningLog keeps the warnings of a run for the end of it: a person who reads
// nothing but the output of Terraform would never see them otherwise.
type warningLog struct {
	mu    sync.Mutex
	lines []*warningLine
	// more is how many came when there was no room left.
	more int
}

// warningLine is a warning about the cluster, or about the nodes that it is the
// same for.
type warningLine struct {
	text  string
	nodes []string
}

// Observe implements [cluster.Observer].
func (w *warningLog) Observe(event cluster.Event) {
	// A finding names its node itself.
	text := strings.TrimPrefix(event.Text, event.Node+": ")

	switch event.Kind {
	case cluster.EventWarning:
	case cluster.EventRollingBack:
		// Why is in the error that the run ends with, or in the log.
		text = "to be sent back to Talos " + event.To.String() + ", because it did not become healthy with its new system"
	default:
		return
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	index := slices.IndexFunc(w.lines, func(line *warningLine) bool {
		return line.text == text && (len(line.nodes) == 0) == (event.Node == "")
	})

	switch {
	case index < 0 && len(w.lines) == warningsMost:
		w.more++

		return
	case index < 0:
		index = len(w.lines)
		w.lines = append(w.lines, &warningLine{text: text})
	}

	if line := w.lines[index]; event.Node != "" && !slices.Contains(line.nodes, event.Node) {
		line.nodes = append(line.nodes, event.Node)
	}
}

// diagnostics is one warning for everything that was kept about the cluster with
// the name; none where there is nothing.
func (w *warningLog) diagnostics(name string) diag.Diagnostics {
	w.mu.Lock()
	defer w.mu.Unlock()

	var (
		diagnostics diag.Diagnostics
		texts       []string
	)

	for _, line := range w.lines {
		texts = append(texts, "- "+hanging(line.String()))
	}

	if w.more > 0 {
		texts = append(texts, fmt.Sprintf("- and %d more, which are in the log (TF_LOG_PROVIDER=WARN)", w.more))
	}

	if len(texts) > 0 {
		diagnostics.AddWarning(about("Worth knowing about what was done", name), strings.Join(texts, "\n"))
	}

	return diagnostics
}

// String is the warning as a sentence.
func (l *warningLine) String() string {
	if len(l.nodes) == 0 {
		return sentence(l.text)
	}

	return strings.TrimSuffix(nameList(l.nodes)+": "+l.text, ".") + "."
}
