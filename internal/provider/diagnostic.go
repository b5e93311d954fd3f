// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// errSilent is wrapped if nodes are known and none of them answered, errUnlisted if it is not even known which nodes
// exist.
var (
	errSilent   = errors.New("no node answered over the Talos API")
	errUnlisted = errors.New("which nodes there are is not known, because discovery lists none and the Kubernetes API did not answer")
)

// summaryUnobserved is the summary of every warning about an unreachable cluster. With the name of the cluster, the
// command line folds the warnings of refresh and plan into one.
const summaryUnobserved = "Unable to observe the cluster"

// problem turns an error into the one diagnostic that a person sees. doing completes "Unable to", such as "upgrade
// the cluster".
func problem(doing string, access credentials, err error) diag.Diagnostic {
	var failure *say.Failure
	if errors.As(err, &failure) {
		return failed(failure)
	}

	summary, detail := "Unable to "+doing, sentence(cluster.Plain(err.Error()))

	switch {
	case errors.Is(err, errUnknown):
		return diag.NewErrorDiagnostic(summary, "The provider configuration depends on values that are known only after an apply ("+
			strings.Join(access.Unknown, ", ")+").\n\nApply what they come from first, for example with -target.")
	case errors.Is(err, errMissing):
		return diag.NewErrorDiagnostic("Missing credentials for the Talos API", summary+": there are no credentials. "+lookedAt(access)+
			"\n\nSet one of them, for example talosconfig = data.talos_client_configuration.this.talos_config in the provider block.")
	case errors.Is(err, errUnusable):
		return unusableCredentials(err)
	case errors.Is(err, errLent) && !errors.Is(err, context.Canceled):
		return diag.NewErrorDiagnostic("Missing credentials from the management cluster", summary+": "+err.Error()+".\n\n"+lentRemedy(err))
	case errors.Is(err, errClaimed):
		return diag.NewErrorDiagnostic(summary+": another resource does", detail+" Nothing was touched for this one.\n\n"+
			"Keep one resource per cluster: remove this one or the other. Where for_each makes them, look for two contexts of the talosconfig that reach the same cluster.")
	case errors.Is(err, errReport):
		return diag.NewAttributeErrorDiagnostic(path.Root(attrReportPath), "Unable to write the report", detail+" Nothing was touched.\n\n"+
			"Let "+attrReportPath+" name a file that can be written on the machine that runs this, one for each resource, or remove it; then run the command again.")
	case errors.Is(err, errLate):
		return diag.NewErrorDiagnostic(summary, detail+"\n\nRaise "+attrTimeout+" of the action, or look at what it was waiting for; then invoke it again.")
	case errors.Is(err, context.Canceled):
		return diag.NewErrorDiagnostic(summary, "Interrupted before it was done. Run the command again to continue.")
	}

	if silence := unanswered(err); silence != "" {
		// It is irrelevant which call failed first.
		detail = sentence(silence)
	}

	return diag.NewErrorDiagnostic(summary, detail+"\n\n"+cmp.Or(remedy(err), "Correct what it names, then run the command again."))
}

// unusableCredentials returns the error of credentials with which nothing can be reached.
func unusableCredentials(err error) diag.Diagnostic {
	return diag.NewErrorDiagnostic("Unusable credentials", sentence(err.Error())+"\n\nCorrect them and run the command again; nothing was contacted.")
}

// remedy returns what to do about an error of a port; empty if its meaning is not known.
func remedy(err error) string {
	switch {
	case errors.Is(err, cluster.ErrCredentials):
		return "Waiting does not help. Check that the talosconfig belongs to this cluster, and renew its certificate if it expired (talosctl config new, " +
			"or a refresh of the data source that it comes from)."
	case errors.Is(err, errUnlisted) && errors.Is(err, cluster.ErrNoKubeconfig):
		return "Set " + attrKubeconfig + " in the provider block: without discovery Kubernetes alone tells which nodes there are, and only os:admin may ask the Talos API for a kubeconfig."
	case errors.Is(err, cluster.ErrDenied):
		return "Use credentials that are allowed to do this: reading needs os:reader, upgrading needs os:admin, and endpoints must be control planes."
	case errors.Is(err, errUnlisted):
		return "Make the Kubernetes API answer, or let the nodes find each other (talosctl get members, cluster.discovery in the machine configurations), then run the command again."
	case errors.Is(err, cluster.ErrUnreachable), errors.Is(err, errSilent):
		return "Check that at least one endpoint of the talosconfig is a control plane that is up and reachable from here " +
			"(talosctl version --nodes <address>), then run the command again."
	case errors.Is(err, context.DeadlineExceeded):
		return "Raise timeouts.read, or look at why the cluster is slow."
	default:
		return ""
	}
}

// lentRemedy returns what to do about credentials that could not be read from the management cluster.
func lentRemedy(err error) string {
	switch {
	case errors.Is(err, cluster.ErrNotFound):
		return "Correct " + attrCredentialsFrom + " and " + attrManagement + " in the provider block: the one names the KubernetesCluster, the other the cluster that holds it. " +
			"The Secret beside it is there once its operator has made the cluster."
	case errors.Is(err, cluster.ErrCredentials):
		return "Waiting does not help. Check that the kubeconfig of " + attrManagement + " in the provider block belongs to the management cluster, and renew it if it expired."
	case errors.Is(err, cluster.ErrDenied):
		return "Use a kubeconfig in " + attrManagement + " in the provider block that may get the KubernetesCluster, and get and list Secrets in its namespace."
	case errors.Is(err, cluster.ErrUnreachable), errors.Is(err, context.DeadlineExceeded):
		return "Check that the API server in the kubeconfig of " + attrManagement + " in the provider block is up and can be reached from here, then run the command again."
	default:
		return "Look at that Secret, or give the credentials themselves, for example with " + attrTalosconfig + " in the provider block."
	}
}

// lookedAt lists the ways to give credentials, in the order in which they are tried.
func lookedAt(access credentials) string {
	state := func(set bool) string {
		if set {
			return "set"
		}

		return "not set"
	}

	return fmt.Sprintf("Looked at, in this order: provider attributes talosconfig (%s), talosconfig_path (%s), endpoints with client_configuration (%s), "+
		"and the environment variable %s (%s).",
		state(access.Talosconfig != ""), state(access.TalosconfigPath != ""), state(access.Certificate != nil),
		talosconfigEnv, state(os.Getenv(talosconfigEnv) != ""))
}

// failed returns the diagnostic of an upgrade that stopped. It points at a place in the configuration if all
// findings agree on it.
func failed(failure *say.Failure) diag.Diagnostic {
	at := path.Empty()

	for index, finding := range failure.Findings {
		if index > 0 && !findingPath(finding).Equal(at) {
			at = path.Empty()

			break
		}

		at = findingPath(finding)
	}

	if silence := unanswered(failure.Err); silence != "" && failure.Node == "" && failure.Component == "" && len(failure.Findings) == 0 {
		// It is irrelevant which call failed first.
		reworded := *failure
		reworded.Seen, failure = sentence(silence), &reworded
	}

	detail := folded(*failure).Detail()
	if advice := remedy(failure.Err); advice != "" && failure.Remedy == "" && len(failure.Findings) == 0 {
		detail += "\n\n" + advice
	}

	return errorAt(at, failure.Summary, detail)
}

// folded returns the failure with its findings merged into readable text, however many nodes they are about.
func folded(failure say.Failure) *say.Failure {
	if len(failure.Findings) > 0 {
		failure.Seen = strings.TrimPrefix(failure.Seen+"\n\n"+findingList(byCause(failure.Findings)), "\n\n")
		failure.Findings = nil
	}

	return &failure
}

// withDetail returns the diagnostic with another detail.
func withDetail(of diag.Diagnostic, detail string) diag.Diagnostic {
	if located, ok := of.(diag.DiagnosticWithPath); ok {
		return diag.NewAttributeErrorDiagnostic(located.Path(), of.Summary(), detail)
	}

	return diag.NewErrorDiagnostic(of.Summary(), detail)
}

// warning returns the problem as a warning, for operations that can continue despite it.
func warning(problem diag.Diagnostic, summary, consequence string) diag.Diagnostic {
	return diag.NewWarningDiagnostic(summary, problem.Detail()+"\n\n"+consequence)
}

// wrongCluster returns the error of a state that belongs to another cluster than the one that was reached. name is
// that of the context that reached it.
func wrongCluster(stateID, reachedID, name string) diag.Diagnostic {
	return diag.NewErrorDiagnostic("Wrong cluster",
		fmt.Sprintf("The state belongs to cluster %s, but this provider reaches cluster %s (%s). Nothing was touched.\n\n"+
			"Correct the talosconfig or the context. If the cluster was rebuilt on purpose, remove the resource from state (terraform state rm) and apply again.",
			stateID, reachedID, name))
}

// planFindings turns the findings of a plan into diagnostics: one error per place in the configuration for those
// that waiting does not resolve; one warning for those that would stop an apply now; one for those whose checks are
// skipped; and, if there is work and no error, one for advice. seen is the observation that the plan is for.
func planFindings(findings []cluster.Finding, work bool, seen observation) diag.Diagnostics {
	var (
		diagnostics diag.Diagnostics
		places      []string
		skipped     []cluster.Finding
	)

	bySeverity := map[cluster.Severity][]cluster.Finding{}
	byPlace := map[string][]cluster.Finding{}

	for _, finding := range byCause(findings) {
		if finding.Skipped {
			skipped = append(skipped, finding)

			continue
		}

		bySeverity[finding.Severity] = append(bySeverity[finding.Severity], finding)

		if finding.Severity != cluster.Permanent {
			continue
		}

		place := findingPath(finding).String()
		if !slices.Contains(places, place) {
			places = append(places, place)
		}

		byPlace[place] = append(byPlace[place], finding)
	}

	for _, place := range places {
		diagnostics.Append(permanent(byPlace[place], seen))
	}

	if observed := bySeverity[cluster.Observed]; len(observed) > 0 {
		summary := "An apply would be refused as things stand"
		if !work {
			summary = "Not everything about the cluster is as it should be"
		}

		diagnostics.AddWarning(about(summary, seen.name), findingList(observed)+"\n\nThis was observed while planning and is checked again by apply.")
	}

	if len(skipped) > 0 {
		diagnostics.AddWarning(about("Checks that are skipped did not pass", seen.name),
			findingList(skipped)+"\n\nAn apply continues despite them, because "+path.Root(attrPreflight).AtName(attrSkip).String()+" names their checks.")
	}

	if advice := bySeverity[cluster.Advice]; len(advice) > 0 && work && !diagnostics.HasError() {
		diagnostics.AddWarning(about("Worth knowing about the upgrade", seen.name), findingList(advice))
	}

	return diagnostics
}

// byCause returns the findings without those of checks that could not be made because of another finding. That
// finding names the checks.
func byCause(findings []cluster.Finding) []cluster.Finding {
	causes := map[string]string{} // By check, if its cause is a finding as well.

	for _, finding := range findings {
		if finding.Cause != "" && slices.ContainsFunc(findings, func(one cluster.Finding) bool { return one.Check == finding.Cause && !one.Skipped }) {
			causes[finding.Check] = finding.Cause
		}
	}

	var kept []cluster.Finding

	for _, finding := range findings {
		if finding.Cause != "" && causes[finding.Check] == finding.Cause {
			continue
		}

		var unmade []string

		for check := range causes {
			root := check
			for causes[root] != "" {
				root = causes[root]
			}

			if root == finding.Check {
				unmade = append(unmade, check)
			}
		}

		if len(unmade) > 0 && !finding.Skipped {
			slices.Sort(unmade)
			finding.Found += "; because of that, " + strings.Join(unmade, ", ") + " could not be checked"
		}

		kept = append(kept, finding)
	}

	return kept
}

// findingPath returns the place in the configuration that a finding is about; empty if there is none.
func findingPath(finding cluster.Finding) path.Path {
	if finding.Attribute == "" {
		return path.Empty()
	}

	at := path.Root(finding.Attribute)

	for _, step := range finding.Within {
		switch step := step.(type) {
		case cluster.Key:
			at = at.AtMapKey(string(step))
		case cluster.Index:
			at = at.AtListIndex(int(step))
		case cluster.Field:
			at = at.AtName(string(step))
		}
	}

	return at
}

// permanent returns the error for findings about one place.
func permanent(findings []cluster.Finding, seen observation) diag.Diagnostic {
	at := findingPath(findings[0])
	summary, detail := "Unable to plan the upgrade", findingList(findings)

	if len(findings) == 1 {
		names := make([]string, 0, len(seen.Nodes))
		for _, node := range seen.Nodes {
			names = append(names, node.Name)
		}

		detail = sentence(findings[0].Found, names...)
		if findings[0].Node != "" {
			summary += " of node " + findings[0].Node
		}

		if findings[0].Remedy != "" {
			detail += "\n\n" + findings[0].Remedy
		}
	}

	return errorAt(at, summary, detail)
}

// errorAt returns an error about a place in the configuration, or about none if the path is empty.
func errorAt(at path.Path, summary, detail string) diag.Diagnostic {
	if len(at.Steps()) == 0 {
		return diag.NewErrorDiagnostic(summary, detail)
	}

	// The command line only shows an attribute as a whole.
	if len(at.Steps()) > 1 {
		detail += "\n\nThe value at fault is " + at.String() + "."
	}

	return diag.NewAttributeErrorDiagnostic(visible(at), summary, detail)
}

// visible returns as much of the path as the command line finds in a configuration: an attribute of the resource, or
// one element of it. For anything deeper it shows the first line of the resource, which is the wrong one.
func visible(at path.Path) path.Path {
	var shown path.Path

	for index, step := range at.Steps() {
		switch step := step.(type) {
		case path.PathStepAttributeName:
			if index > 0 {
				return shown
			}

			shown = path.Root(string(step))
		case path.PathStepElementKeyString:
			return shown.AtMapKey(string(step))
		case path.PathStepElementKeyInt:
			return shown.AtListIndex(int(step))
		}
	}

	return shown
}

// maxLines is the maximum number of different findings of one check that are listed.
const maxLines = 10

// findingLine is a finding that is the same on one or several nodes.
type findingLine struct {
	cluster.Finding

	nodes []string
}

// count returns the number of findings that the line stands for.
func (l *findingLine) count() int { return max(len(l.nodes), 1) }

// findingList lists the findings, one per line. Equal findings of several nodes are one line, and those of a check
// beyond maxLines are only counted.
func findingList(findings []cluster.Finding) string {
	var (
		lines  []string
		checks []string
	)

	listed, hidden := map[string]int{}, map[string]int{}

	for _, line := range merged(findings) {
		if listed[line.Check] == maxLines {
			if hidden[line.Check] == 0 {
				checks = append(checks, line.Check)
			}

			hidden[line.Check] += line.count()

			continue
		}

		listed[line.Check]++

		line.Node = readable.List(line.nodes)
		lines = append(lines, "- "+hanging(line.String()))
	}

	for _, check := range checks {
		noun := "findings"
		if hidden[check] == 1 {
			noun = "finding"
		}

		lines = append(lines, fmt.Sprintf("- and %d more %s of check %s", hidden[check], noun, check))
	}

	return strings.Join(lines, "\n")
}

// merged folds findings that differ only in their node, in the order of the first of each.
func merged(findings []cluster.Finding) []*findingLine {
	type likeness struct{ check, found, remedy string }

	var lines []*findingLine

	byLikeness := map[likeness]*findingLine{}

	for _, finding := range findings {
		if finding.Node == "" {
			lines = append(lines, &findingLine{Finding: finding})

			continue
		}

		key := likeness{finding.Check, finding.Found, finding.Remedy}

		line := byLikeness[key]
		if line == nil {
			line = &findingLine{Finding: finding}
			byLikeness[key] = line
			lines = append(lines, line)
		}

		line.nodes = append(line.nodes, finding.Node)
	}

	return lines
}

var _ cluster.Observer = (*warningLog)(nil)

// maxWarnings is the maximum number of different warnings of a run that are shown.
const maxWarnings = 20

// warningLog collects the warnings of a run, to show them at its end: a person who reads only the output of
// Terraform would never see them otherwise.
type warningLog struct {
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
func (w *warningLog) Observe(event cluster.Event) {
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

// diagnostics returns one warning with everything that was collected about the named cluster; none if there is
// nothing.
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

// String returns the warning as a sentence.
func (l *warningLine) String() string {
	if len(l.nodes) == 0 {
		return sentence(l.text)
	}

	return strings.TrimSuffix(readable.List(l.nodes)+": "+l.text, ".") + "."
}

var _ cluster.Observer = progressLog{}

// progressLog writes the events of a run to Terraform's log.
type progressLog struct {
	// ctx carries the logger of the request.
	ctx context.Context
}

// Observe implements [cluster.Observer].
func (p progressLog) Observe(event cluster.Event) {
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

// permitted logs why something may be done to a node, for [engine.Options].
func (p progressLog) permitted(line string) {
	tflog.Debug(p.ctx, "upgrade: "+readable.Printable(line))
}

// sentence turns an error text into a sentence. The first word keeps its spelling if it is one of the names, or
// contains more than letters and so may be a name, such as cp-0 or talos_version.
func sentence(text string, names ...string) string {
	if text == "" {
		return text
	}

	word, _, _ := strings.Cut(text, " ")
	word = strings.TrimRight(word, ",:;.")

	if !slices.Contains(names, word) && !strings.ContainsFunc(word, func(r rune) bool { return !unicode.IsLetter(r) }) {
		first, size := utf8.DecodeRuneInString(text)
		text = string(unicode.ToUpper(first)) + text[size:]
	}

	if !strings.HasSuffix(text, ".") {
		text += "."
	}

	return text
}

// hanging indents the lines of a list element after the first, such as those of a log: the command line wraps all
// lines that are not indented.
func hanging(text string) string { return strings.ReplaceAll(text, "\n", "\n    ") }

// about adds the name of the cluster, if it has one, to a summary: the command line folds warnings with the same
// summary.
func about(summary, name string) string {
	if name == "" {
		return summary
	}

	return summary + " (" + name + ")"
}

// durationText formats a duration without zero units: 30m, not 30m0s.
func durationText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}

	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}

	return text
}
