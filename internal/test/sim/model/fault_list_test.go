// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"fmt"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// TestFaultsListsWhatScriptsCanSay reads a script of each fault, with a duration
// and without one.
func TestFaultsListsWhatScriptsCanSay(t *testing.T) {
	seen := map[string]bool{}

	for _, fault := range model.Faults() {
		pair := fmt.Sprintf("step: %s, effect: %s", fault.Step, fault.Effect)
		if seen[pair] {
			t.Errorf("%s is listed twice", pair)
		}

		seen[pair] = true

		if _, err := model.LoadFaults([]byte("faults: [{node: cp-0, " + pair + "}]")); err != nil {
			t.Errorf("%s: %v", pair, err)
		}

		if _, err := model.LoadFaults([]byte("faults: [{node: cp-0, for: 3m, " + pair + "}]")); (err == nil) != fault.Lasting() {
			t.Errorf("%s: lasting is %t, but with a duration: %v", pair, fault.Lasting(), err)
		}
	}

	for _, fault := range []model.Fault{
		{Step: model.StepObserve, Effect: model.EffectUnreachable},
		{Step: model.StepBoot, Effect: model.EffectFallback},
		{Step: model.StepSecurityState, Effect: model.EffectUnreadable},
	} {
		if !seen[fmt.Sprintf("step: %s, effect: %s", fault.Step, fault.Effect)] {
			t.Errorf("%s %s is not listed", fault.Step, fault.Effect)
		}
	}
}
