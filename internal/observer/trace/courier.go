// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// courier is an exporter that counts the spans it delivered, and whose calls can be cancelled. It keeps errors to
// itself: the libraries would print them.
type courier struct {
	sdktrace.SpanExporter

	hide func(string) string
	// cut is cancelled to end all calls.
	cut  context.Context //nolint:containedctx // it outlasts each call, and ends all of them
	give context.CancelFunc

	mutex     sync.Mutex
	delivered int
	last      error
}

func newCourier(to sdktrace.SpanExporter, hide func(string) string) *courier {
	made := &courier{SpanExporter: to, hide: hide}
	made.cut, made.give = context.WithCancel(context.Background())

	return made
}

// ExportSpans implements [sdktrace.SpanExporter].
func (c *courier) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.cut, cancel)()

	err := c.SpanExporter.ExportSpans(bounded, spans)

	c.mutex.Lock()
	defer c.mutex.Unlock()

	switch {
	case err == nil:
		c.delivered += len(spans)
	case c.cut.Err() != nil && c.last != nil:
		// A cancelled call says less than an earlier error.
	default:
		c.last = err
	}

	return nil
}

// missing returns an error that says how many of the begun spans did not arrive, and why. It returns nil if all
// arrived.
func (c *courier) missing(begun int) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()

	if c.delivered >= begun {
		return nil
	}

	why := "the collector did not take them in time"
	if c.last != nil && !errors.Is(c.last, context.Canceled) && !errors.Is(c.last, context.DeadlineExceeded) {
		why = shortened(strings.Join(strings.Fields(cluster.Plain(c.hide(c.last.Error()))), " "), reasonMost)
	}

	return fmt.Errorf("%d of %d spans of the trace did not arrive: %s", begun-c.delivered, begun, why)
}

// reasonMost bounds the error of a collector, in bytes.
const reasonMost = 500
