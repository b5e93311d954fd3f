// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"math/big"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/numberdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Names of the attributes that say what happens when something fails, beside
// [attrRetry].
const (
	attrOnFailure = "on_failure"
	attrAttempts  = "attempts"
	attrBackoff   = "backoff"
)

// attemptsMost bounds retry.attempts: what failed so often does not heal by being
// repeated.
const attemptsMost = 10

// failureSchema are the attributes that say what happens when something fails.
// As those of [guardSchema] they have no defaults of their own.
func failureSchema() map[string]schema.Attribute {
	policy := cluster.DefaultPolicy()

	return map[string]schema.Attribute{
		attrOnFailure: schema.StringAttribute{
			MarkdownDescription: "What happens to a node that runs the new Talos and does not become healthy with it within `node_timeout`: `stop` (default) leaves it as it is, cordoned, for somebody to look at; " +
				"`rollback` sends it back to the system it ran before, once, where that is safe, and does as `stop` does otherwise and says why. The run fails in either case. " +
				"Kubernetes is never rolled back.",
			Optional:   true,
			Validators: []validator.String{onFailureValidator{}},
		},
		attrRetry: schema.SingleNestedAttribute{
			MarkdownDescription: "How often what is safe to repeat is tried within one apply: pulls of images, and installs that a reboot showed never to have taken. " +
				"An image with which a node did not come up is not tried again by this; see `node_overrides`.",
			Optional: true,
			Attributes: map[string]schema.Attribute{
				attrAttempts: schema.NumberAttribute{
					MarkdownDescription: "How many attempts, the first one included, from 1 to " + strconv.Itoa(attemptsMost) + ", default `" + strconv.Itoa(policy.Repeat.Attempts) + "`. " +
						"A pull that waiting may cure is tried again for five minutes in any case.",
					Optional:   true,
					Computed:   true,
					Default:    numberdefault.StaticBigFloat(big.NewFloat(float64(policy.Repeat.Attempts))),
					Validators: []validator.Number{attemptsValidator{}},
				},
				attrBackoff: schema.StringAttribute{
					MarkdownDescription: "The pause before the second attempt, default `" + durationText(policy.Repeat.Backoff) + "`; each further one is twice as long as the one before it, up to five minutes. " +
						"However many attempts there are, a pull has 25 minutes and a node has `node_timeout`.",
					Optional:      true,
					Computed:      true,
					Default:       stringdefault.StaticString(durationText(policy.Repeat.Backoff)),
					Validators:    []validator.String{durationValidator{zero: true}},
					PlanModifiers: []planmodifier.String{keepSpelling{sameDuration}},
				},
			},
		},
	}
}
