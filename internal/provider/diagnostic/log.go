// SPDX-License-Identifier: MPL-2.0

package diagnostic

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

var _ cluster.Observer = (*Warnings)(nil)

// maxWarnings is the maximum number of different warnings of a run that are shown.
const maxWarnings = 20

// Warnings collects the warnings of a run, to show them at its end: a person who reads only the output of
// Terraform would never see them otherwise.
type Warnings struct {
	mu    sync.Mutex
	lines []*warningLine
	// more is the number of warnings beyond maxWarnings.
	more int
}

// warningLine is a warning about the cluster, or about all nodes with the same one.
type warningLine struct {
	text  string
	nodes []string
}

// Observe implements [cluster.Observer].
func (w *Warnings) Observe(event cluster.Event) {
	// The text of a finding already contains its node.
	text := strings.TrimPrefix(event.Text, event.Node+": ")

	switch event.Kind {
	case cluster.EventWarning, cluster.EventSuspended:
	case cluster.EventRollingBack:
		if event.Asked {
			// A requested rollback is no surprise.
			return
		}

		// The reason is in the error that the run ends with, or in the log.
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
	case index < 0 && len(w.lines) == maxWarnings:
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

// Diagnostics returns one warning with everything that was collected about the named cluster; none if there is
// nothing.
func (w *Warnings) Diagnostics(name string) diag.Diagnostics {
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
		diagnostics.AddWarning(About("Worth knowing about what was done", name), strings.Join(texts, "\n"))
	}

	return diagnostics
}

// String returns the warning as a sentence.
func (l *warningLine) String() string {
	if len(l.nodes) == 0 {
		return Sentence(l.text)
	}

	return strings.TrimSuffix(readable.List(l.nodes)+": "+l.text, ".") + "."
}

var _ cluster.Observer = Progress{}

// Progress writes the events of a run to Terraform's log.
type Progress struct {
	// ctx carries the logger of the request.
	ctx context.Context
}

// NewProgress returns a log that writes to the logger in the context.
func NewProgress(ctx context.Context) Progress { return Progress{ctx: ctx} }

// Observe implements [cluster.Observer].
func (p Progress) Observe(event cluster.Event) {
	fields := map[string]any{"event": string(event.Kind)}
	if event.Node != "" {
		fields["node"] = readable.Printable(event.Node)
	}

	if event.Component != "" {
		fields["component"] = string(event.Component)
	}

	if event.Step != "" {
		fields["step"] = string(event.Step)
	}

	if !event.To.IsZero() {
		fields["to"] = event.To.String()
	}

	for name, half := range map[string]cluster.Progress{"talos": event.Talos, "kubernetes": event.Kubernetes} {
		if half.Managed && half.Total > 0 {
			fields[name+"_progress"] = fmt.Sprintf("%d/%d", half.Done, half.Total)
		}
	}

	if event.Err != nil {
		fields["error"] = readable.Printable(event.Err.Error())
	}

	message := "upgrade: " + string(event.Kind)
	if event.Text != "" {
		message += ": " + readable.Printable(event.Text)
	}

	switch event.Kind {
	case cluster.EventWarning, cluster.EventSuspended, cluster.EventRollingBack, cluster.EventRunFailed:
		tflog.Warn(p.ctx, message, fields)
	default:
		tflog.Info(p.ctx, message, fields)
	}
}

// Permitted logs why something may be done to a node.
func (p Progress) Permitted(line string) {
	tflog.Debug(p.ctx, "upgrade: "+readable.Printable(line))
}
