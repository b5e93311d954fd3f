// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	played "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
)

// operatorExaminations are about the object of an operator that may upgrade the
// same cluster.
func operatorExaminations() []examination {
	saying := func(key, value string) func(*examined) {
		return func(e *examined) { e.beside.annotate(key, value) }
	}
	refusing := func(err error) func(*examined) {
		return func(e *examined) {
			e.beside.api.Inject(func(context.Context, played.Operation, func() error) error { return err })
		}
	}
	delegated := func(prepare func(*examined)) func(*examined) {
		return func(e *examined) {
			e.request.Delegated = true

			prepare(e)
		}
	}

	return []examination{
		{check: cluster.CheckOperator, condition: "it is asked to upgrade", prepare: saying(keyTarget, "v1.13.4"), want: failed, says: []string{"tenant-a/prod", "Talos to 1.13.4"}},
		{check: cluster.CheckOperator, condition: "it is upgrading", prepare: saying(keyStatus, "in-progress"), want: failed, says: []string{"in-progress", "remove that status"}},
		{check: cluster.CheckOperator, condition: "a run that died said so", want: passed, prepare: func(e *examined) {
			e.beside.annotate(keyStatus, "in-progress")
			e.beside.annotate(keyHold, cluster.RunPrefix+"dead")
		}},
		{check: cluster.CheckOperator, condition: "it is held by a person", prepare: saying(keyHold, "maintenance"), want: passed},
		{check: cluster.CheckOperator, condition: "no such object", prepare: refusing(cluster.ErrNotFound), want: untold, says: []string{"Create the object"}},
		{check: cluster.CheckOperator, condition: "no permission", prepare: refusing(cluster.ErrDenied), want: untold, says: []string{"Allow the credentials"}},
		{check: cluster.CheckOperator, condition: "credentials are too old", prepare: refusing(cluster.ErrCredentials), want: untold, says: []string{"Renew or correct the credentials"}},
		{check: cluster.CheckOperator, condition: "nothing answers", prepare: refusing(cluster.ErrUnreachable), want: untold, says: []string{"management"}},
		{check: cluster.CheckOperator, condition: "the object is on its way out", want: failed, says: []string{"is being deleted"}, prepare: func(e *examined) {
			if err := e.beside.api.Delete(e.beside.of, "example.org/keep"); err != nil {
				e.T.Fatal(err)
			}
		}},
		{check: cluster.CheckOperator, condition: "it would be asked, and is held by a person", prepare: delegated(saying(keyHold, "maintenance")), want: failed, says: []string{"maintenance", "kubectl"}},
		{check: cluster.CheckOperator, condition: "it would be asked, and there is no such object", prepare: delegated(refusing(cluster.ErrNotFound)), want: untold, says: []string{"can only be asked through it"}},
	}
}
