// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/action/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// An action is what a person does by hand, on one cluster: terraform apply
// -invoke=action.talosupgrade_suspend.prod. Terraform has actions from 1.14 on; older
// ones, and OpenTofu, do not ask for them.

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

// clusterAction is one action, with what all of them have in common: the attributes
// context and timeout, the connection, the lines of progress and the diagnostics.
type clusterAction struct {
	// name goes after the provider's; doing completes "Unable to", such as "roll back the node".
	name, doing string
	// text is the description, in Markdown.
	text string
	// limit is the default of the attribute timeout.
	limit time.Duration
	// attributes are those beyond context and timeout; nil for none.
	attributes func(ctx context.Context) map[string]schema.Attribute
	// validate finds what contradicts itself in a configuration that may be unknown in
	// parts; nil where nothing can.
	validate func(ctx context.Context, config tfsdk.Config) diag.Diagnostics
	// invoke carries it out. An error becomes the one diagnostic that a person sees, as in
	// the resource. The context ends with the timeout, and when a person interrupts.
	invoke func(ctx context.Context, on *invocation) error

	clusters *clusters
}

// invocation is what an action works with while it is carried out.
type invocation struct {
	clusters *clusters
	reached  *connection
	// config is wholly known.
	config tfsdk.Config
	// limit is the timeout, and says how long the context lasts.
	limit time.Duration
	// diagnostics are those beyond the error with which the action ends. An error among
	// them fails it.
	diagnostics diag.Diagnostics

	lines *progressLines
}

// say tells a person what is going on, in one line. It does not wait for them.
func (i *invocation) say(format string, values ...any) {
	i.lines.add(readable.Printable(fmt.Sprintf(format, values...)))
}

// Observe implements [cluster.Observer]: what is worth a Kubernetes Event is worth a line.
func (i *invocation) Observe(event cluster.Event) {
	if text := publish.Text(event); text != "" {
		i.lines.add(text)
	}
}

// Metadata implements [action.Action].
func (a *clusterAction) Metadata(_ context.Context, _ action.MetadataRequest, resp *action.MetadataResponse) {
	resp.TypeName = typeName + "_" + a.name
}

// Schema implements [action.Action].
func (a *clusterAction) Schema(ctx context.Context, _ action.SchemaRequest, resp *action.SchemaResponse) {
	attributes := map[string]schema.Attribute{
		attrContext: schema.StringAttribute{
			MarkdownDescription: "Context of the talosconfig. Default: that of the provider block.",
			Optional:            true,
		},
		attrTimeout: schema.StringAttribute{
			MarkdownDescription: "How long it may take, such as `\"90s\"`. Default: `" + durationText(a.limit) + "`.",
			Optional:            true,
			Validators:          []validator.String{durationValidator{}},
		},
	}

	if a.attributes != nil {
		maps.Copy(attributes, a.attributes(ctx))
	}

	resp.Schema = schema.Schema{MarkdownDescription: a.text, Attributes: attributes}
}

// Configure implements [action.ActionWithConfigure].
func (a *clusterAction) Configure(_ context.Context, req action.ConfigureRequest, resp *action.ConfigureResponse) {
	a.clusters = configured(req.ProviderData, &resp.Diagnostics)
}

// ValidateConfig implements [action.ActionWithValidateConfig].
func (a *clusterAction) ValidateConfig(ctx context.Context, req action.ValidateConfigRequest, resp *action.ValidateConfigResponse) {
	if a.validate != nil {
		resp.Diagnostics.Append(a.validate(ctx, req.Config)...)
	}
}

// Invoke implements [action.Action].
func (a *clusterAction) Invoke(ctx context.Context, req action.InvokeRequest, resp *action.InvokeResponse) {
	var named, timeout types.String

	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(attrContext), &named)...)
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(attrTimeout), &timeout)...)

	limit := duration(path.Root(attrTimeout), timeout, a.limit, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}

	if access, undecided := a.clusters.undecided(ctx); undecided || !req.Config.Raw.IsFullyKnown() {
		if !undecided {
			access.Unknown = []string{"of the action itself"}
		}

		resp.Diagnostics.Append(problem(a.doing, access, errUnknown))

		return
	}

	lines := newProgressLines(func(line string) { resp.SendProgress(action.InvokeProgressEvent{Message: line}) })
	on := &invocation{clusters: a.clusters, config: req.Config, limit: limit, lines: lines}

	err := a.carryOut(ctx, on, named.ValueString())

	lines.close()
	resp.Diagnostics.Append(on.diagnostics...)

	if err != nil {
		resp.Diagnostics.Append(problem(a.doing, a.clusters.access, err))
	}
}

// errLate is wrapped when an action has used up its time.
var errLate = errors.New("it took longer than " + attrTimeout)

// carryOut connects to the cluster of the context with the name, and invokes the action.
func (a *clusterAction) carryOut(ctx context.Context, on *invocation, named string) error {
	bounded, cancel := a.clusters.settings.clock.WithTimeout(ctx, on.limit)
	defer cancel()

	reached, release, err := a.clusters.connect(bounded, named)
	if err != nil {
		return err
	}

	defer release()

	on.reached = reached

	err = a.invoke(bounded, on)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		late := fmt.Errorf("%w = %s", errLate, durationText(on.limit))
		if err.Error() == cluster.Ended(bounded).Error() {
			return late
		}

		return fmt.Errorf("%w: %w", late, err)
	}

	return err
}

// validatePublishTo wants an object to publish to whose API version is known.
func validatePublishTo(ctx context.Context, config tfsdk.Config) diag.Diagnostics {
	var model clusterModel

	diagnostics := config.GetAttribute(ctx, path.Root(attrPublishTo), &model.PublishTo)

	return append(diagnostics, model.validatePublishTo()...)
}

// identify tells the connection which cluster it is of, so that what is written says so.
// Where that cannot be had the engine finds out what is wrong.
func (i *invocation) identify(ctx context.Context) string {
	id, err := clusterID(ctx, i.reached)
	if err == nil {
		i.reached.identify(id)
	}

	var named types.String

	// What was seen of the cluster before is no longer true.
	if !i.config.GetAttribute(ctx, path.Root(attrContext), &named).HasError() {
		i.clusters.remember(named.ValueString(), nil)
	}

	return id
}

// options are those of an engine that changes something in the name of the owner.
func (i *invocation) options(beside cluster.Operator, owner string) engine.Options {
	options := i.clusters.engine(i.reached, beside)
	options.Run, options.Owner = cluster.RunPrefix+rand.Text(), owner

	return options
}

// linesPatience bounds how long an action that has ended waits for its last lines to be
// taken.
const linesPatience = 5 * time.Second

// progressLines are lines on their way to the command line, in order. Whoever adds one does
// not wait until it is taken: a command line that has gone takes none any more, and an
// upgrade must not stand still because of that.
type progressLines struct {
	send func(line string)
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex
	waiting []string
	closed  bool
}

// newProgressLines begins to pass lines on; close must be called.
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

// look has what passes the lines on look again.
func (l *progressLines) look() {
	select {
	case l.wake <- struct{}{}:
	default: // it is about to
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

// close returns when all lines are taken, or nobody seems to take them.
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
