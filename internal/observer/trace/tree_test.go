// SPDX-License-Identifier: MPL-2.0

package trace_test

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// tree is a span with those below it.
type tree struct {
	*tracepb.Span

	below []*tree
}

// grow puts spans together. What is wrong with them is returned.
func grow(spans []*tracepb.Span) (*tree, []string) {
	var (
		roots []*tree
		wrong []string
		all   = map[string]*tree{}
	)

	for _, span := range spans {
		all[string(span.GetSpanId())] = &tree{Span: span}
	}

	for _, span := range spans {
		one := all[string(span.GetSpanId())]

		if span.GetStartTimeUnixNano() > span.GetEndTimeUnixNano() {
			wrong = append(wrong, span.GetName()+" ends before it begins")
		}

		parent := all[string(span.GetParentSpanId())]
		if parent == nil {
			roots = append(roots, one)

			continue
		}

		parent.below = append(parent.below, one)

		if span.GetStartTimeUnixNano() < parent.GetStartTimeUnixNano() || span.GetEndTimeUnixNano() > parent.GetEndTimeUnixNano() {
			wrong = append(wrong, span.GetName()+" is not within "+parent.GetName())
		}

		if !bytes.Equal(span.GetTraceId(), parent.GetTraceId()) {
			wrong = append(wrong, span.GetName()+" is in another trace than "+parent.GetName())
		}
	}

	if len(all) != len(spans) {
		wrong = append(wrong, "a span came twice")
	}

	if len(roots) != 1 {
		return nil, append(wrong, fmt.Sprintf("%d roots", len(roots)))
	}

	for _, one := range all {
		slices.SortFunc(one.below, func(a, b *tree) int {
			return cmp.Or(cmp.Compare(a.GetStartTimeUnixNano(), b.GetStartTimeUnixNano()),
				cmp.Compare(a.GetEndTimeUnixNano(), b.GetEndTimeUnixNano()), cmp.Compare(a.GetName(), b.GetName()))
		})
	}

	return roots[0], wrong
}

// judge compares a tree with the events that it was made of.
func judge(root *tree, events []cluster.Event) []string {
	var wrong []string

	upgrades := map[string]int{}
	done := map[string]int{}
	failed := map[string]int{}
	steps := 0

	for _, event := range events {
		switch event.Kind {
		case cluster.EventNodeStarted:
			upgrades[spotOf(event)]++
		case cluster.EventNodeDone:
			done[spotOf(event)]++
		case cluster.EventNodeStopped:
			if event.Err != nil {
				failed[spotOf(event)]++
			}
		case cluster.EventNodeStep:
			steps++
		}
	}

	for _, lane := range root.below {
		attributes := words(lane.GetAttributes())

		for index, step := range lane.below {
			if len(step.below) > 0 {
				wrong = append(wrong, step.GetName()+" has spans below it")
			}

			if index > 0 && step.GetStartTimeUnixNano() < lane.below[index-1].GetEndTimeUnixNano() {
				wrong = append(wrong, fmt.Sprintf("%s: %s begins before %s ends", lane.GetName(), step.GetName(), lane.below[index-1].GetName()))
			}
		}

		component, isTurn := attributes["talosupgrade.component"]
		if !isTurn || lane.GetName() == "etcd-snapshot" {
			continue
		}

		at := attributes["k8s.node.name"] + "/" + component
		upgrades[at]--

		switch code := lane.GetStatus().GetCode(); attributes["talosupgrade.outcome"] {
		case "done":
			done[at]--

			if code != tracepb.Status_STATUS_CODE_OK {
				wrong = append(wrong, at+" is done and its status is "+code.String())
			}
		case "failed":
			failed[at]--

			if code != tracepb.Status_STATUS_CODE_ERROR || lane.GetStatus().GetMessage() == "" {
				wrong = append(wrong, at+" failed and its status is "+lane.GetStatus().String())
			}
		}
	}

	for title, counts := range map[string]map[string]int{"upgrades": upgrades, "upgrades that are done": done, "upgrades that failed": failed} {
		for at, more := range counts {
			if more != 0 {
				wrong = append(wrong, fmt.Sprintf("%s: %s: %d more events than spans", at, title, more))
			}
		}
	}

	if len(root.below) == 0 && steps > 0 {
		wrong = append(wrong, "nothing is below the root")
	}

	return wrong
}

// spotOf is what the event is about, as attributes say it.
func spotOf(event cluster.Event) string {
	return event.Node + "/" + cmp.Or(string(event.Component), "talos")
}

// picture is the tree as text, with times from the beginning of the root.
func (t *tree) picture() string {
	var text strings.Builder

	t.draw(&text, "", t.GetStartTimeUnixNano())

	return text.String()
}

func (t *tree) draw(to *strings.Builder, indent string, zero uint64) {
	status := ""
	if t.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
		status = "  ERROR " + t.GetStatus().GetMessage()
	}

	since := func(at uint64) time.Duration { return time.Duration(at - zero).Round(time.Second) }

	fmt.Fprintf(to, "%-40s%9s  %s%s\n", indent+t.GetName(), since(t.GetStartTimeUnixNano()),
		time.Duration(t.GetEndTimeUnixNano()-t.GetStartTimeUnixNano()).Round(time.Second), status)

	for _, event := range t.GetEvents() {
		if event.GetName() == "exception" || event.GetName() == "apply" {
			continue
		}

		fmt.Fprintf(to, "%-40s%9s  %s\n", indent+"  · "+event.GetName(), since(event.GetTimeUnixNano()), words(event.GetAttributes())["talosupgrade.message"])
	}

	for _, one := range t.below {
		one.draw(to, indent+"  ", zero)
	}
}
