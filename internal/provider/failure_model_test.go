// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"math/big"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// failing is a change to what happens when something fails; repeating is one to
// how often it is tried before.
func failing(how string) func(*clusterModel) {
	return func(m *clusterModel) { m.OnFailure = types.StringValue(how) }
}

func repeating(attempts types.Number, backoff types.String) func(*clusterModel) {
	return func(m *clusterModel) {
		m.Retry = types.ObjectValueMust(retryTypes(), map[string]attr.Value{attrAttempts: attempts, attrBackoff: backoff})
	}
}

func times(count float64) types.Number { return types.NumberValue(big.NewFloat(count)) }

func TestValidationOfFailures(t *testing.T) {
	attempts := func(count float64) func(*clusterModel) { return repeating(times(count), types.StringNull()) }
	backoff := func(text string) func(*clusterModel) { return repeating(types.NumberNull(), types.StringValue(text)) }

	checkValidation(t, map[string]validationCase{
		"stop":     {failing("stop"), "", ""},
		"rollback": {failing("rollback"), "", ""},
		"nothing is known": {func(m *clusterModel) {
			m.TalosVersion, m.OnFailure, m.Retry = types.StringUnknown(), types.StringUnknown(), types.ObjectUnknown(retryTypes())
		}, "", ""},
		"values are not known":           {repeating(types.NumberUnknown(), types.StringUnknown()), "", ""},
		"retry that says nothing":        {repeating(types.NumberNull(), types.StringNull()), "", ""},
		"one attempt without a pause":    {repeating(times(1), types.StringValue("0s")), "", ""},
		"as many attempts as there are":  {repeating(times(maxAttempts), types.StringValue("1h30m")), "", ""},
		"another word":                   {failing("revert"), attrOnFailure, `on_failure is "revert".` + "\n\n" + `Write "stop" to leave`},
		"almost the word":                {failing("roll-back"), attrOnFailure, `on_failure is "roll-back". Did you mean "rollback"?`},
		"other capitals":                 {failing("Stop"), attrOnFailure, `Did you mean "stop"?`},
		"no word":                        {failing(""), attrOnFailure, `on_failure is ""`},
		"rollback of Kubernetes":         {onlyKubernetes("rollback"), attrOnFailure, "without talos_version no node gets another one"},
		"Kubernetes that stops":          {onlyKubernetes("stop"), "", ""},
		"no attempt":                     {attempts(0), attrRetry, "retry.attempts is 0: value must be a whole number from 1 to 10.\n\nThe first attempt counts: write 1"},
		"fewer attempts than none":       {attempts(-3), attrRetry, "retry.attempts is -3"},
		"half an attempt":                {attempts(1.5), attrRetry, "retry.attempts is 1.5: value must be a whole number"},
		"attempts without end":           {attempts(1e30), attrRetry, "retry.attempts is 1e+30"},
		"more attempts than of any use":  {attempts(11), attrRetry, "retry.attempts is 11: value must be a whole number from 1 to 10.\n\nWhat fails that often"},
		"pause without a unit":           {backoff("30"), attrRetry, `retry.backoff is "30": value must be a duration such as "0s"`},
		"pause that goes back in time":   {backoff("-1s"), attrRetry, `retry.backoff is "-1s"`},
		"pause that is said with a word": {backoff("soon"), attrRetry, `retry.backoff is "soon"`},
	})
}

func onlyKubernetes(how string) func(*clusterModel) {
	return func(m *clusterModel) {
		m.TalosVersion, m.KubernetesVersion, m.OnFailure = types.StringNull(), types.StringValue("1.35.2"), types.StringValue(how)
	}
}

// TestRetryIsPlannedWithItsDefaults: state says what will be done, whatever of it
// the configuration leaves out.
func TestRetryIsPlannedWithItsDefaults(t *testing.T) {
	d := drive(t, threeNodes("1.13.4", "1.34.2"))
	state := d.refreshed()
	retry := d.object(d.kind.AttributeTypes[attrRetry])
	number := func(value int64) tftypes.Value { return tftypes.NewValue(tftypes.Number, value) }
	text := func(value string) tftypes.Value { return tftypes.NewValue(tftypes.String, value) }

	for name, test := range map[string]struct {
		given    map[string]tftypes.Value
		attempts tftypes.Value
		backoff  tftypes.Value
	}{
		"nothing":  {nil, number(2), text("30s")},
		"attempts": {map[string]tftypes.Value{attrAttempts: number(4)}, number(4), text("30s")},
		"backoff":  {map[string]tftypes.Value{attrBackoff: text("1m")}, number(2), text("1m")},
	} {
		t.Run(name, func(t *testing.T) {
			given := map[string]tftypes.Value{attrTalosVersion: text("1.13.4"), attrOnFailure: text("rollback"), attrRetry: empty(retry, test.given)}

			proposed := map[string]tftypes.Value{}
			if err := d.value(state).As(&proposed); err != nil {
				t.Fatal(err)
			}

			proposed[attrOnFailure], proposed[attrRetry] = given[attrOnFailure], given[attrRetry]

			resp, err := d.server.PlanResourceChange(t.Context(), &tfprotov6.PlanResourceChangeRequest{
				TypeName: typeName + "_cluster", PriorState: state, ProposedNewState: d.dynamic(tftypes.NewValue(d.kind, proposed)), Config: d.dynamic(empty(d.kind, given)),
			})
			if err != nil {
				t.Fatal(err)
			}

			// It says how, not what: a plan in which nodes move would say which.
			d.silent(resp.Diagnostics)

			planned := d.value(resp.PlannedState)
			want := empty(retry, map[string]tftypes.Value{attrAttempts: test.attempts, attrBackoff: test.backoff})

			if got := d.attribute(planned, attrRetry); !got.Equal(want) {
				t.Errorf("retry is planned as %s, want %s", got, want)
			}
		})
	}
}
