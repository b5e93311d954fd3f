// SPDX-License-Identifier: MPL-2.0

package history

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

// Table returns a table of events for people: the simulated time in seconds, the node, and what happened.
func Table(events []Event) string {
	var text strings.Builder

	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)

	fmt.Fprintf(table, "%10s\tNODE\tWHAT\n", "TIME")

	for _, event := range events {
		fmt.Fprintf(table, "%10.3f\t%s\t%s\n", event.Sim, cmp.Or(event.Node, "-"), event)
	}

	_ = table.Flush() // A builder takes everything.

	return text.String()
}

// Idle reports whether an event is only an observation, or only renews the lease.
func (e Event) Idle() bool {
	return e.Kind == KindRead || e.Kind == KindTold || e.Detail["mutating"] == "false" || e.Detail["action"] == "renew"
}

// sentence describes an event of a kind, with values of its detail; $who is who did it. A sentence with a
// condition, as "key=value", is only for those events.
type sentence struct {
	kind            Kind
	condition, text string
}

// sentences returns them in the order in which they are tried. They omit identities and the text of journal
// entries.
func sentences() []sentence {
	return []sentence{
		{KindNode, "joins=true", "joins as a $role with Talos $talos and kubelet $kubelet"},
		{KindNode, "", "is a $role with Talos $talos and kubelet $kubelet"},
		{KindRPC, "", "call of $method$who: $code"},
		{KindPull, "ok=true", "pulled $image"},
		{KindPull, "", "could not pull $image"},
		{KindInstall, "exit=0", "installed $talos into slot $slot$who"},
		{KindInstall, "", "the installer of $talos, run$who, failed with exit code $exit"},
		{KindStage, "ready=true", "went from $from to $to$who, ready"},
		{KindStage, "", "went from $from to $to$who, not ready"},
		{KindDown, "", "taken down$who"},
		{KindBoot, "", "booted $talos from slot $slot ($cause)"},
		{KindEtcd, "", "etcd member $state, leader $leader"},
		{KindKubelet, "ready=true", "kubelet $version ready"},
		{KindKubelet, "", "kubelet $version not ready"},
		{KindComponent, "", "component $component $version: $state"},
		{KindCordon, "unschedulable=true", "cordoned$who"},
		{KindCordon, "", "uncordoned$who"},
		{KindEvict, "outcome=blocked", "eviction of $namespace/$pod$who: blocked by the budget $budget"},
		{KindEvict, "", "eviction of $namespace/$pod$who: $outcome"},
		{KindDelete, "budget=", "deleted $namespace/$pod$who"},
		{KindDelete, "", "deleted $namespace/$pod$who, against the budget $budget"},
		{KindVolume, "state=unused", "volume $volume is attached, and no pod here uses it"},
		{KindVolume, "", "volume $volume $state"},
		{KindLease, "action=renew", "lease renewed$who, holder $holder"},
		{KindLease, "holder=", "lease given back$who"},
		{KindLease, "", "lease taken$who, holder $holder"},
		{KindJournal, "value=", "journal$who: $key removed"},
		{KindJournal, "phase=", "journal$who: $key is $value"},
		{KindJournal, "", "journal$who: $phase, of $run"},
		{KindAnnotation, "value=", "annotation $key of $object$who: removed"},
		{KindAnnotation, "", "annotation $key of $object$who: $value"},
		{KindConfig, "dry_run=true", "tried a configuration of $changed$who, $mode: $code"},
		{KindConfig, "", "configured $changed$who, $mode: $code"},
		{KindSnapshot, "whole=false", "snapshot of etcd, broken off after $bytes bytes"},
		{KindSnapshot, "", "snapshot of etcd, $bytes bytes"},
		{KindFault, "outcome=over", "fault is over: $step $effect"},
		{KindFault, "", "fault: $step $effect $info"},
	}
}

// placeholder matches a value of the detail in a sentence.
var placeholder = regexp.MustCompile(`\$[a-z]+`)

// String returns what happened, on one line.
func (e Event) String() string {
	values := maps.Clone(e.Detail)
	if who := cmp.Or(values["client"], values["by"]); who != "" {
		values["who"] = " by " + who
	}

	text := string(e.Kind)
	for _, key := range slices.Sorted(maps.Keys(e.Detail)) {
		text += " " + key + "=" + e.Detail[key]
	}

	for _, one := range sentences() {
		if key, value, _ := strings.Cut(one.condition, "="); one.kind == e.Kind && values[key] == value {
			text = placeholder.ReplaceAllStringFunc(one.text, func(name string) string { return values[name[1:]] })

			break
		}
	}

	return strings.Join(strings.Fields(text), " ")
}
