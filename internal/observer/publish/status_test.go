// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
)

// foreign is a condition of somebody else, with a field that is not in ours.
func foreign(kind, status string) map[string]any {
	return map[string]any{"type": kind, "status": status, "reason": "Checked", "message": "it is", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 3.0}
}

func conditions(entries ...any) map[string]any {
	return map[string]any{"status": map[string]any{"conditions": entries}}
}

// types are those of the conditions that stand, in their order.
func types(shelf *shelf) string {
	var kinds []string

	for _, fields := range shelf.list() {
		kinds = append(kinds, fmt.Sprint(fields["type"]))
	}

	return strings.Join(kinds, " ")
}

// TestStatus_TransitionTimeMovesWithTheStatusOnly: the time moves when the status of the condition
// does, and not with its words.
func TestStatus_TransitionTimeMovesWithTheStatusOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf("phase", "conditions")
		publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})
		events := story()

		var moved []time.Time

		for _, event := range events {
			publisher.Observe(event)
			synctest.Wait()

			moved = append(moved, shelf.moved(t, protocol.ConditionTalos))

			time.Sleep(2 * time.Second)
		}

		first, last := moved[0], moved[len(moved)-1]

		for i, when := range moved[1 : len(moved)-1] {
			if !when.Equal(first) {
				t.Errorf("after %s the condition is said to have moved at %s, want %s", events[i+1].Kind, when, first)
			}
		}

		if took := last.Sub(first); took != 12*time.Second {
			t.Errorf("it moved after %s, want when the run was done", took)
		}

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestStatus_ConditionsOfOthersStay where somebody writes the object between each reading
// and writing of ours.
func TestStatus_ConditionsOfOthersStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf("phase", "conditions")
		shelf.write(conditions(foreign("Valid", "True"), foreign(protocol.ConditionTalos, "False"), foreign("Aged", "False")))

		rivals := 0
		shelf.before = func(part string) {
			if part == "status" && rivals < 3 {
				rivals++

				list, _ := shelf.status()["conditions"].([]any)
				shelf.write(conditions(append(list, foreign(fmt.Sprintf("Rival%d", rivals), "True"))...))
			}
		}

		publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})
		publisher.Observe(story()[0])
		synctest.Wait()

		if got := types(shelf); got != "Valid TalosUpgrade Aged Rival1 Rival2 Rival3" {
			t.Errorf("there are the conditions %s", got)
		}

		if got := shelf.condition(protocol.ConditionTalos); got != "True InProgress Talos upgrade started: 1.12.6 → 1.13.4" {
			t.Errorf("ours says %s", got)
		}

		list := shelf.list()
		for i, want := range map[int]map[string]any{0: foreign("Valid", "True"), 2: foreign("Aged", "False"), 5: foreign("Rival3", "True")} {
			if !reflect.DeepEqual(list[i], want) {
				t.Errorf("the condition of somebody else became %v, want %v", list[i], want)
			}
		}

		if list[1]["observedGeneration"] != 3.0 {
			t.Errorf("what else ours said is gone: %v", list[1])
		}

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}

		if notes := publisher.Notes(); len(notes) > 0 {
			t.Errorf("it has notes: %q", notes)
		}
	})
}

// TestStatus_ThatAlwaysChangesHoldsNothingUp, and is not tried in a tight loop.
func TestStatus_ThatAlwaysChangesHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf("phase", "conditions")
		attempts := 0
		shelf.before = func(part string) {
			if part == "status" {
				attempts++

				shelf.write(map[string]any{"spec": map[string]any{"topology": fmt.Sprint(attempts)}})
			}
		}

		publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})

		for _, event := range story() {
			publisher.Observe(event)
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}

		if got := shelf.get(protocol.KeyTalosStatus); got != "completed" {
			t.Errorf("status %q", got)
		}

		if attempts > 150 {
			t.Errorf("it tried %d times in 70 seconds", attempts)
		}

		if err := publisher.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "the status of KubernetesCluster tenant-a/prod") {
			t.Errorf("closing: %v", err)
		}
	})
}

// TestStatus_IsWrittenWhenAnnotationsFail.
func TestStatus_IsWrittenWhenAnnotationsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf("phase", "conditions")
		shelf.answer = func(call string) error {
			if call == "patch " {
				return fmt.Errorf("forbidden: %w", cluster.ErrDenied)
			}

			return nil
		}

		publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})
		publisher.Observe(story()[0])
		synctest.Wait()

		if got := shelf.status()["phase"]; got != "UpgradingTalos" {
			t.Errorf("phase %v", got)
		}

		if err := publisher.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "the annotations of KubernetesCluster tenant-a/prod could not") {
			t.Errorf("closing: %v", err)
		}
	})
}

// TestStatus_FieldsAKindDoesNotHaveAreLeftOut is left out without a word; what it has and refuses is
// named, once.
func TestStatus_FieldsAKindDoesNotHaveAreLeftOut(t *testing.T) {
	picky := func(field string) func(*shelf) {
		return func(s *shelf) {
			s.refuses = field
		}
	}

	for name, test := range map[string]struct {
		fields           []string
		spoil            func(*shelf)
		phase, condition bool
		note             string
		most             int
	}{
		"no status":              {nil, nil, false, false, "", 0},
		"neither":                {[]string{"ready"}, nil, false, false, "", 3},
		"only a phase":           {[]string{"phase"}, nil, true, false, "", 9},
		"only conditions":        {[]string{"conditions"}, nil, false, true, "", 16},
		"a phase, pruned":        {[]string{"phase"}, func(s *shelf) { s.pruning = true }, true, false, "", 9},
		"neither, pruned":        {[]string{"ready"}, func(s *shelf) { s.pruning = true }, false, false, "", 3},
		"a phase of others":      {[]string{"phase", "conditions"}, picky("phase"), false, true, "status.phase of KubernetesCluster tenant-a/prod could not", 16},
		"conditions of others":   {[]string{"phase", "conditions"}, picky("conditions"), true, false, "status.conditions of KubernetesCluster tenant-a/prod could not", 9},
		"conditions are no list": {[]string{"phase", "conditions"}, func(s *shelf) { s.write(map[string]any{"status": map[string]any{"conditions": "fine"}}) }, true, false, "", 9},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shelf := newShelf(test.fields...)
				if test.spoil != nil {
					test.spoil(shelf)
				}

				publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})

				for _, event := range story() {
					publisher.Observe(event)
					time.Sleep(15 * time.Second)
					synctest.Wait()
				}

				if err := publisher.Close(t.Context()); err != nil {
					t.Error(err)
				}

				if got := shelf.status()["phase"] == "Ready"; got != test.phase {
					t.Errorf("there is the phase: %t, want %t: %v", got, test.phase, shelf.status())
				}

				if got := strings.HasPrefix(shelf.condition(protocol.ConditionTalos), "False Completed") && types(shelf) != ""; got != test.condition {
					t.Errorf("there is the condition: %t, want %t: %v", got, test.condition, shelf.status())
				}

				notes := strings.Join(publisher.Notes(), "\n")
				if (notes == "") != (test.note == "") || !strings.HasPrefix(notes, test.note) || strings.Contains(notes, "\n") {
					t.Errorf("it has the notes %q, want %q", notes, test.note)
				}

				tries := 0

				for _, call := range shelf.calls {
					if strings.HasPrefix(call, "status ") {
						tries++
					}
				}

				if tries > test.most {
					t.Errorf("the status was written %d times, want %d at most", tries, test.most)
				}
			})
		})
	}
}

// TestStatus_PhaseOfSomebodyElseStands where nothing was done that would change it.
func TestStatus_PhaseOfSomebodyElseStands(t *testing.T) {
	for before, want := range map[string]struct{ idle, done string }{
		"": {"Ready", "Ready"}, "UpgradingTalos": {"Ready", "Ready"}, "UpgradeFailed": {"Ready", "Ready"}, "Provisioning": {"Provisioning", "Ready"},
	} {
		for _, events := range [][]cluster.Event{nothingToDo(), story()} {
			synctest.Test(t, func(t *testing.T) {
				shelf := newShelf("phase", "conditions")
				shelf.write(map[string]any{"status": map[string]any{"phase": before}})

				publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})
				for _, event := range events {
					publisher.Observe(event)
				}

				if err := publisher.Close(t.Context()); err != nil {
					t.Error(err)
				}

				wanted := want.idle
				if len(events) > 2 {
					wanted = want.done
				}

				if got := shelf.status()["phase"]; got != wanted {
					t.Errorf("phase %q became %q after %d events, want %q", before, got, len(events), wanted)
				}
			})
		}
	}
}

// TestStatus_OnlyCompletedStaysTrueAfterAnUpgrade do not stand where nothing goes on: only that
// one was completed stays true.
func TestStatus_OnlyCompletedStaysTrueAfterAnUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf("phase", "conditions")
		failed, completed := foreign(protocol.ConditionTalos, "False"), foreign(protocol.ConditionKubernetes, "False")
		failed["reason"], completed["reason"] = "Failed", "Completed"
		shelf.write(conditions(failed, foreign("Valid", "True"), completed))

		publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})
		for _, event := range nothingToDo() {
			publisher.Observe(event)
		}

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}

		if got := types(shelf); got != "Valid KubernetesUpgrade" {
			t.Errorf("there are the conditions %s", got)
		}
	})
}

// TestStatus_ForeignChangeIsMadeTrueAgain with the next heartbeat, and at the
// end.
func TestStatus_ForeignChangeIsMadeTrueAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf("phase", "conditions")
		publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})

		other := map[string]any{"status": map[string]any{"phase": "Ready", "conditions": []any{foreign(protocol.ConditionTalos, "False")}}}

		publisher.Observe(story()[0])
		synctest.Wait()
		shelf.write(other)
		time.Sleep(9 * time.Second)
		synctest.Wait()

		if got := shelf.status()["phase"]; got != "Ready" {
			t.Errorf("phase %v before the heartbeat", got)
		}

		time.Sleep(2 * time.Second)
		synctest.Wait()

		if got := shelf.status()["phase"]; got != "UpgradingTalos" || !strings.HasPrefix(shelf.condition(protocol.ConditionTalos), "True InProgress") {
			t.Errorf("status %v after the heartbeat", shelf.status())
		}

		for _, event := range story()[1:] {
			publisher.Observe(event)
		}

		synctest.Wait()
		shelf.write(map[string]any{"status": map[string]any{"phase": "UpgradingTalos", "conditions": []any{}}})

		publisher.Flush(t.Context())

		if got := shelf.status()["phase"]; got != "Ready" || !strings.HasPrefix(shelf.condition(protocol.ConditionTalos), "False Completed") {
			t.Errorf("status %v after Flush", shelf.status())
		}

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestStatus_LostRunWritesNone.
func TestStatus_LostRunWritesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf("phase", "conditions")
		away := true
		shelf.answer = func(call string) error {
			if away && call == "patch status" {
				return cluster.ErrUnreachable
			}

			return nil
		}

		publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})
		publisher.Observe(story()[0])
		synctest.Wait()
		publisher.Observe(cluster.Event{Kind: cluster.EventRunLost})

		shelf.mutex.Lock()
		away = false
		shelf.mutex.Unlock()

		time.Sleep(time.Minute)
		synctest.Wait()

		publisher.Flush(t.Context())

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}

		if got := shelf.status(); len(got) > 0 {
			t.Errorf("it says %v", got)
		}
	})
}
