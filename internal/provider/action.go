// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/action/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// An action is a manual operation on one cluster: terraform apply -invoke=action.talosupgrade_suspend.prod.
// Terraform has actions from 1.14 on; older versions, and OpenTofu, do not request them.

var (
	_ provider.ProviderWithActions    = (*talosUpgrade)(nil)
	_ action.ActionWithConfigure      = (*clusterAction)(nil)
	_ action.ActionWithValidateConfig = (*clusterAction)(nil)
)

// Actions implements [provider.ProviderWithActions].
func (p *talosUpgrade) Actions(context.Context) []func() action.Action {
	return []func() action.Action{
		newEtcdSnapshotAction, newResumeAction, newRetryNodeAction, newRollbackAction, newSuspendAction,
	}
}

// clusterAction is one action, with what all actions share: the attributes context and timeout, the connection, the
// progress lines and the diagnostics.
type clusterAction struct {
	// name follows the name of the provider. doing completes "Unable to", such as "roll back the node".
	name, doing string
	// text is the description, in Markdown.
	text string
	// limit is the default of the attribute timeout.
	limit time.Duration
	// attributes returns the attributes besides context and timeout; nil if there are none.
	attributes func(ctx context.Context) map[string]schema.Attribute
	// validate returns contradictions in a configuration that may be partly unknown; nil if there can be none.
	validate func(ctx context.Context, config tfsdk.Config) diag.Diagnostics
	// invoke performs the action. An error becomes the one diagnostic that a person sees, as in the resource. The
	// context ends with the timeout, and if the user interrupts.
	invoke func(ctx context.Context, on *invocation) error

	clusters *connection.Clusters
}

// invocation is one running action.
type invocation struct {
	clusters *connection.Clusters
	reached  *connection.Connection
	// config is fully known.
	config tfsdk.Config
	// limit is the timeout, after which the context ends.
	limit time.Duration
	// diagnostics are those besides the error with which the action ends. An error among them fails the action.
	diagnostics diag.Diagnostics

	lines *progressLines
}

// say reports progress in one line. It does not wait until the line is read.
func (i *invocation) say(format string, values ...any) {
	i.lines.add(readable.Printable(fmt.Sprintf(format, values...)))
}

// Observe implements [cluster.Observer]. Each event that is worth a Kubernetes Event becomes a line.
func (i *invocation) Observe(event cluster.Event) {
	if text := publish.Text(event); text != "" {
		i.lines.add(text)
	}
}

// Metadata implements [action.Action].
func (a *clusterAction) Metadata(_ context.Context, _ action.MetadataRequest, resp *action.MetadataResponse) {
	resp.TypeName = attrname.TypeName + "_" + a.name
}

// Schema implements [action.Action].
func (a *clusterAction) Schema(ctx context.Context, _ action.SchemaRequest, resp *action.SchemaResponse) {
	attributes := map[string]schema.Attribute{
		attrname.Context: schema.StringAttribute{
			MarkdownDescription: "Context of the talosconfig. Default: the provider's.",
			Optional:            true,
			Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
		},
		attrname.Timeout: schema.StringAttribute{
			MarkdownDescription: "Limit for the action, such as `\"90s\"`. Default: `" + readable.Duration(a.limit) + "`.",
			Optional:            true,
			Validators:          []validator.String{attribute.Duration()},
		},
	}

	if a.attributes != nil {
		maps.Copy(attributes, a.attributes(ctx))
	}

	resp.Schema = schema.Schema{MarkdownDescription: a.text, Attributes: attributes}
}

// Configure implements [action.ActionWithConfigure].
func (a *clusterAction) Configure(_ context.Context, req action.ConfigureRequest, resp *action.ConfigureResponse) {
	a.clusters = connection.FromProviderData(req.ProviderData, &resp.Diagnostics)
}

// ValidateConfig implements [action.ActionWithValidateConfig].
func (a *clusterAction) ValidateConfig(ctx context.Context, req action.ValidateConfigRequest, resp *action.ValidateConfigResponse) {
	if a.validate != nil {
		resp.Diagnostics.Append(a.validate(ctx, req.Config)...)
	}
}

// Invoke implements [action.Action]. The configuration is valid: package serve has it validated again once it is known.
func (a *clusterAction) Invoke(ctx context.Context, req action.InvokeRequest, resp *action.InvokeResponse) {
	var named, timeout types.String

	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(attrname.Context), &named)...)
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(attrname.Timeout), &timeout)...)

	limit := duration(path.Root(attrname.Timeout), timeout, a.limit, &resp.Diagnostics)

	if resp.Diagnostics.HasError() {
		return
	}

	if access, undecided := a.clusters.Undecided(ctx); undecided || !req.Config.Raw.IsFullyKnown() {
		if !undecided {
			access.Unknown = []string{"of the action itself"}
		}

		resp.Diagnostics.Append(connection.Problem(a.doing, access, connection.ErrCredentialsUnknown))

		return
	}

	lines := newProgressLines(func(line string) { resp.SendProgress(action.InvokeProgressEvent{Message: line}) })
	on := &invocation{clusters: a.clusters, config: req.Config, limit: limit, lines: lines}

	err := a.carryOut(ctx, on, named.ValueString())

	lines.close()
	resp.Diagnostics.Append(on.diagnostics...)

	if err != nil {
		resp.Diagnostics.Append(a.problem(err))
	}
}

// errLate is wrapped if an action exceeds its timeout.
var errLate = errors.New("it took longer than " + attrname.Timeout)

// problem is [connection.Problem] of the action. If the action exceeded its timeout, it says so.
func (a *clusterAction) problem(err error) diag.Diagnostic {
	var failure *say.Failure

	switch late := errors.Is(err, errLate); {
	case late && errors.As(err, &failure):
		return connection.FailureProblem(lateFailure(a.doing, failure, err))
	case late:
		return diag.NewErrorDiagnostic("Unable to "+a.doing, diagnostic.Sentence(cluster.Plain(err.Error()))+"\n\n"+lateRemedy)
	default:
		return connection.Problem(a.doing, a.clusters.Access, err)
	}
}

// lateRemedy says what to do about an action that exceeded its timeout.
const lateRemedy = "Raise " + attrname.Timeout + " of the action, or look at what it was waiting for; then invoke it again."

// lateFailure returns the failure of an action that exceeded its timeout: it says so, and how things were left.
func lateFailure(doing string, failure *say.Failure, err error) *say.Failure {
	late := *failure
	text, _, _ := strings.Cut(err.Error(), ": ")

	late.Summary, late.Remedy, late.Err = "Unable to "+doing, lateRemedy, nil
	late.Seen = strings.TrimSpace(diagnostic.Sentence(text) + " " + failure.Seen)

	return &late
}

// carryOut connects to the cluster of the named context, and invokes the action.
func (a *clusterAction) carryOut(ctx context.Context, on *invocation, named string) error {
	bounded, cancel := a.clusters.Settings.Clock.WithTimeout(ctx, on.limit)
	defer cancel()

	reached, release, err := a.clusters.Connect(bounded, named)
	if err != nil {
		return err
	}

	defer release()

	on.reached = reached

	err = a.invoke(bounded, on)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		late := fmt.Errorf("%w = %s", errLate, readable.Duration(on.limit))
		if err.Error() == cluster.Ended(bounded).Error() {
			return late
		}

		return fmt.Errorf("%w: %w", late, err)
	}

	return err
}

// validatePublishTo refuses publish_to without api_version if its kind has no default one, and a kind whose operator
// would undo a rollback.
func validatePublishTo(ctx context.Context, config tfsdk.Config) diag.Diagnostics {
	var model clusterModel

	diagnostics := config.GetAttribute(ctx, path.Root(attrname.PublishTo), &model.PublishTo)
	diagnostics.Append(model.validatePublishTo()...)

	if diagnostics.HasError() || model.PublishTo.IsNull() || model.PublishTo.IsUnknown() || model.PublishTo.Attributes()[attrname.APIVersion].IsUnknown() {
		return diagnostics
	}

	if of := model.published(); of.Kind != "" && operator.KindOf(of) == operator.Declarative {
		diagnostics.AddAttributeError(path.Root(attrname.PublishTo), "Operator that cannot be held",
			fmt.Sprintf("%s names a %s, whose operator takes every node to what the object says and cannot be held: it would undo the rollback.\n\n"+
				"Change the version in the object instead, or remove %s and make sure that the operator is not running.", attrname.PublishTo, of.Kind, attrname.PublishTo))
	}

	return diagnostics
}

// identify passes the ID of the cluster to the connection, so that written objects carry it. If the ID is unknown,
// the engine finds out why.
func (i *invocation) identify(ctx context.Context) string {
	id, err := connection.ClusterID(ctx, i.reached)
	if err == nil {
		i.reached.Identify(id)
	}

	var named types.String

	// The cached observation is about to become outdated.
	if !i.config.GetAttribute(ctx, path.Root(attrname.Context), &named).HasError() {
		i.clusters.Forget(named.ValueString())
	}

	return id
}

// options returns the options of an engine that changes something on behalf of the owner.
func (i *invocation) options(beside cluster.Operator, owner string) engine.Options {
	options := i.clusters.EngineOptions(i.reached, beside)
	options.Run, options.Owner = cluster.RunPrefix+rand.Text(), owner

	return options
}

// linesPatience bounds how long an action that has ended waits until its last lines are read.
const linesPatience = 5 * time.Second

// progressLines passes lines to the command line, in order. Adding a line does not wait until it is read: a command
// line that is gone reads none any more, and that must not stop an upgrade.
type progressLines struct {
	send func(line string)
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex
	waiting []string
	closed  bool
}

// newProgressLines starts passing lines on. close must be called.
func newProgressLines(send func(line string)) *progressLines {
	made := &progressLines{send: send, wake: make(chan struct{}, 1), done: make(chan struct{})}

	go made.pass()

	return made
}

func (l *progressLines) add(line string) {
	l.mu.Lock()
	l.waiting = append(l.waiting, line)
	l.mu.Unlock()

	l.look()
}

// look wakes up the goroutine that passes the lines on.
func (l *progressLines) look() {
	select {
	case l.wake <- struct{}{}:
	default: // It has been woken up already.
	}
}

func (l *progressLines) pass() {
	defer close(l.done)

	for range l.wake {
		lines, closed := l.take()
		for _, line := range lines {
			l.send(line)
		}

		if closed {
			return
		}
	}
}

func (l *progressLines) take() (lines []string, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	lines, l.waiting = l.waiting, nil

	return lines, l.closed
}

// close returns once all lines are read, or nobody seems to read them.
func (l *progressLines) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()

	l.look()

	select {
	case <-l.done:
	case <-time.After(linesPatience):
	}
}
