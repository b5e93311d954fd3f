// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/report"
)

// flushTimeout bounds how long the end of an upgrade waits for its last
// annotations; hurriedFlush does after a cancel, when everything together has
// 15 seconds.
const (
	flushTimeout = 5 * time.Second
	hurriedFlush = 2 * time.Second
)

// outlets are where others see what an upgrade does; each is nil where there is
// none.
type outlets struct {
	publisher *publish.Publisher
	events    *publish.Events
	report    *report.Report
	trace     *runTrace
}

// observers are the outlets that there are.
func (o *outlets) observers() []cluster.Observer {
	var observers []cluster.Observer

	if o.publisher != nil {
		observers = append(observers, o.publisher)
	}

	if o.events != nil {
		observers = append(observers, o.events)
	}

	if o.report != nil {
		observers = append(observers, o.report)
	}

	return append(observers, o.trace.observers()...)
}

// close makes what was published of the cluster with the name true, also after a
// cancellation, and says what of it is not. The snapshot and the error are those with
// which the run ended.
func (o *outlets) close(ctx context.Context, to publication, name string, snapshot cluster.Snapshot, ended error) diag.Diagnostics {
	limit := flushTimeout
	if ctx.Err() != nil {
		limit = hurriedFlush
	}

	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()

	untraced := o.trace.end(bounded, ended)
	undrawn := o.undrawn(bounded, endingOf(snapshot, ended))

	var (
		published, told error
		notes           []string
	)

	if o.publisher != nil {
		published, notes = o.publisher.Close(bounded), o.publisher.Notes()
	}

	if o.events != nil {
		told = o.events.Close(bounded)
	}

	diagnostics := unsaid(published, told, to, name)
	diagnostics.Append(untraced(name)...)
	diagnostics.Append(undrawn(name)...)

	if len(notes) > 0 {
		diagnostics.AddWarning(about("The progress was not published undisturbed", name),
			strings.Join(notes, "\n\n")+"\n\nThe upgrade itself does not depend on it.")
	}

	return diagnostics
}

// unpublishedRemedy is what to do about an object that could not be written.
func unpublishedRemedy(err error) string {
	switch {
	case errors.Is(err, cluster.ErrDenied):
		return "Allow the credentials to get and patch it; the next apply writes all of it."
	case errors.Is(err, cluster.ErrNotFound):
		return "Create it, or correct " + attrPublishTo + "; the next apply writes all of it."
	default:
		return "Look at why its API does not take that; the next apply writes all of it."
	}
}

// untoldRemedy is what to do about Events that could not be written.
func untoldRemedy(err error) string {
	if errors.Is(err, cluster.ErrDenied) {
		return "Allow the credentials to create and patch Events there."
	}

	return "Look at why its API does not take Events; those of this run are lost."
}

// unsaid is one warning for what could not be published, and for Events that could
// not be told: one cause, such as an object that is not there, is often behind both.
func unsaid(published, told error, to publication, name string) diag.Diagnostics {
	var (
		diagnostics diag.Diagnostics
		sentences   []string
	)

	summary := "Unable to write Kubernetes Events"

	if published != nil {
		summary = "Unable to publish the progress"
		sentences = append(sentences, sentence(published.Error())+" What "+to.String()+" says of the upgrade may lag behind. "+unpublishedRemedy(published))
	}

	if told != nil {
		sentences = append(sentences, sentence(told.Error())+" "+untoldRemedy(told))
	}

	if len(sentences) > 0 {
		diagnostics.AddWarning(about(summary, name), strings.Join(sentences, "\n\n")+"\n\nThe upgrade itself does not depend on it.")
	}

	return diagnostics
}

// undrawn begins to end the report. What it returns waits until that is done, and
// says of the cluster with the name what could not be written.
func (o *outlets) undrawn(ctx context.Context, ending report.Ending) func(name string) diag.Diagnostics {
	missing := make(chan error, 1)

	go func() {
		if o.report == nil {
			missing <- nil

			return
		}

		missing <- o.report.Close(ctx, ending)
	}()

	return func(name string) diag.Diagnostics {
		var diagnostics diag.Diagnostics

		if err := <-missing; err != nil {
			diagnostics.AddWarning(about("Unable to write the report", name),
				sentence(err.Error())+" What it shows may lag behind. Make room for it, or name another file with "+attrReportPath+"; the next apply that has something to do draws its own.\n\nThe upgrade itself does not depend on it.")
		}

		return diagnostics
	}
}
