// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
)

// TestEventQueue_AbsentAPIServerHoldsNothingUp, and everything is told when it is back.
func TestEventQueue_AbsentAPIServerHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &eventAPI{answer: away(time.Now().Add(2 * time.Minute))}
		events := events(t, api)
		begun := time.Now()

		observe(events, tale())

		if took := time.Since(begun); took != 0 {
			t.Errorf("observing took %s", took)
		}

		time.Sleep(119 * time.Second)

		if attempts := api.count(); attempts > 2*40 {
			t.Errorf("%d attempts in two minutes", attempts)
		}

		if err := events.Close(t.Context()); err != nil {
			t.Error(err)
		}

		if told := api.told(); len(told) != 26 {
			t.Errorf("%d Events: %q", len(told), told)
		}
	})
}

// TestEventQueue_EndIsNotCrowdedOut by the steps of a long run.
func TestEventQueue_EndIsNotCrowdedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &eventAPI{answer: away(time.Now().Add(time.Hour))}
		events := events(t, api)

		observe(events, tale()[1:2])

		for i := range 3000 {
			observe(events, []cluster.Event{
				{Kind: cluster.EventNodeStep, Node: fmt.Sprintf("worker-%d", i), Step: cluster.StepDrain},
				{Kind: cluster.EventWaiting, Node: fmt.Sprintf("worker-%d", i), Text: "a pod"},
			})
		}

		observe(events, []cluster.Event{{Kind: cluster.EventWarning, Text: "look here"}, tale()[15]})

		for range 1000 {
			observe(events, []cluster.Event{{Kind: cluster.EventNodeStep, Node: "late", Step: cluster.StepDrain}})
		}

		time.Sleep(time.Hour)

		err := events.Close(t.Context())
		if err == nil || !strings.Contains(err.Error(), "could not be written in time") {
			t.Errorf("%v, want it to say how many were given up", err)
		}

		told := strings.Join(api.told(), "\n")
		for _, want := range []string{"UpgradeStarted", "UpgradeCompleted", "look here"} {
			if !strings.Contains(told, want) {
				t.Errorf("%s was given up", want)
			}
		}
	})
}

// TestEventQueue_AThousandThrottledHoldNothingUp: an API server that takes one request in eight
// seconds is asked no more often than it says. What there was no time for is counted, said
// once, and is not how the run ended.
func TestEventQueue_AThousandThrottledHoldNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open time.Time

		api := &eventAPI{answer: func(string, string) (int, error) {
			if time.Now().Before(open) {
				return http.StatusTooManyRequests, nil
			}

			open = time.Now().Add(8 * time.Second)

			return 0, nil
		}}
		events := publish.NewEvents(publish.EventTargets{Object: sink(t, api), Of: publishedCluster})
		begun := time.Now()
		told := tale()

		observe(events, told[:2])

		for number := range 1000 {
			node := fmt.Sprintf("worker-%04d", number)
			observe(events, []cluster.Event{
				{Kind: cluster.EventNodeStarted, Node: node, Target: told[1].Target}, {Kind: cluster.EventNodeDone, Node: node, Target: told[1].Target},
			})
		}

		if took := time.Since(begun); took != 0 {
			t.Errorf("observing took %s", took)
		}

		// The run ends while an attempt pauses.
		time.Sleep(10*time.Minute + 4*time.Second)

		// Each is tried, refused, and tried again after the pause that was asked for.
		if attempts := api.count(); attempts > 2*600/8+2 {
			t.Errorf("%d attempts in ten minutes", attempts)
		}

		observe(events, []cluster.Event{{Kind: cluster.EventRunFailed, Text: "worker-0999 did not come back", Target: told[1].Target}})

		begun = time.Now()
		err := events.Close(t.Context())

		if took := time.Since(begun); took > 15*time.Second {
			t.Errorf("closing took %s", took)
		}

		var unwritten int
		if _, scanned := fmt.Sscanf(after(fmt.Sprint(err), "are missing: "), "%d of them could not be written in time", &unwritten); scanned != nil || unwritten < 1000 || unwritten > 2000 {
			t.Errorf("said %v", err)
		}

		if strings.Count(err.Error(), "could not be written") != 1 || !strings.Contains(err.Error(), "too many requests") {
			t.Errorf("said %v", err)
		}

		if all := strings.Join(api.told(), "\n"); !strings.Contains(all, "worker-0999 did not come back") {
			t.Errorf("the end is missing:\n%s", all)
		}
	})
}

// after is the text after what it is cut at.
func after(text, at string) string {
	_, rest, _ := strings.Cut(text, at)

	return rest
}

// TestEventQueue_MissingPermissionIsSaidOnce, and asked for no further.
func TestEventQueue_MissingPermissionIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &eventAPI{answer: func(_, path string) (int, error) {
			if strings.Contains(path, "/tenant-a/") {
				return 403, nil
			}

			return 0, nil
		}}
		events := events(t, api)

		observe(events, tale())

		err := events.Close(t.Context())
		if !errors.Is(err, cluster.ErrDenied) || !strings.Contains(err.Error(), "create events in the namespace tenant-a") ||
			!strings.Contains(err.Error(), "KubernetesCluster tenant-a/prod") || strings.Contains(err.Error(), "default") || strings.Count(err.Error(), "missing") != 2 {
			t.Errorf("%v, want one permission in one namespace", err)
		}

		denied := 0

		for _, request := range api.requests {
			if strings.Contains(request, "/tenant-a/") {
				denied++
			}
		}

		if told := api.told(); denied != 1 || len(told) != 10 {
			t.Errorf("asked %d times for what is denied, and told %q", denied, told)
		}
	})
}

func TestEventQueue_EventsAreToldWherePatchingIsDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &eventAPI{answer: func(method, _ string) (int, error) {
			if method == "PATCH" {
				return 403, nil
			}

			return 0, nil
		}}
		events := events(t, api)

		observe(events, tale()[:5])
		observe(events, tale()[4:5])
		observe(events, tale()[4:5])
		observe(events, tale()[15:])

		err := events.Close(t.Context())
		if !errors.Is(err, cluster.ErrDenied) || !strings.Contains(err.Error(), "patch events in the namespace tenant-a") || !strings.Contains(err.Error(), "patch events in the namespace default") {
			t.Errorf("%v, want the permission to patch missing", err)
		}

		patches := 0

		for _, request := range api.requests {
			if strings.HasPrefix(request, "PATCH") {
				patches++
			}
		}

		if told := api.told(); patches != 2 || len(told) != 9 {
			t.Errorf("%d patches, told %q", patches, told)
		}
	})
}

// TestEventQueue_LostReplyMakesNoSecondEvent, and neither does one that was forgotten.
func TestEventQueue_LostReplyMakesNoSecondEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &eventAPI{loses: 1}
		events := publish.NewEvents(publish.EventTargets{Nodes: sink(t, api)})

		observe(events, tale()[1:5])
		observe(events, tale()[4:5])
		synctest.Wait()
		time.Sleep(time.Minute)
		api.change(func() { api.loses = 1 })
		observe(events, tale()[4:5])
		time.Sleep(time.Minute)

		compare(t, "told", api.told(), []string{
			"default worker-0: Normal NodeUpgradeStarted: Upgrading the node to Talos 1.13.4",
			"default worker-0: Normal Pulling: Pulling the image: factory/installer:v1.13.4",
			"default worker-0: Normal Draining: Draining the node (x3)",
		})

		api.change(func() { api.events, api.order = nil, nil })
		observe(events, tale()[4:5])

		if err := events.Close(t.Context()); err != nil {
			t.Error(err)
		}

		compare(t, "told after it was forgotten", api.told(), []string{"default worker-0: Normal Draining: Draining the node (x4)"})
	})
}

// TestEventQueue_RefusedEventIsGivenUp, and those after it are not.
func TestEventQueue_RefusedEventIsGivenUp(t *testing.T) {
	for name, code := range map[string]int{"invalid": 422, "an error of its own": 500, "a namespace that is not there": 404} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &eventAPI{}
				refusals := 0
				api.answer = func(string, string) (int, error) {
					if len(api.events) == 1 && refusals < 3 {
						refusals++
						if code != 500 {
							refusals = 3
						}

						return code, nil
					}

					return 0, nil
				}
				events := publish.NewEvents(publish.EventTargets{Nodes: sink(t, api)})

				observe(events, tale()[1:6])

				err := events.Close(t.Context())
				if err == nil || !strings.Contains(err.Error(), "refused 1 of them") || !strings.Contains(err.Error(), fmt.Sprint(code)) {
					t.Errorf("%v, want one refused", err)
				}

				if told := api.told(); len(told) != 3 {
					t.Errorf("told %q", told)
				}
			})
		})
	}
}

// TestAFlushIsTheLastWord: the next run may have begun.
func TestEventQueue_FlushIsTheLastWord(t *testing.T) {
	for name, test := range map[string]struct {
		away time.Duration
		told int
	}{"said": {5 * time.Second, 26}, "not said": {time.Hour, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &eventAPI{answer: away(time.Now().Add(test.away))}
				events := events(t, api)

				observe(events, tale())

				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()

				events.Flush(ctx)
				synctest.Wait()

				before := api.count()
				api.change(func() { api.answer = nil })

				observe(events, tale())
				time.Sleep(time.Minute)

				err := events.Close(t.Context())
				if (err == nil) != (test.told > 0) {
					t.Errorf("closing: %v", err)
				}

				if err != nil && (!strings.Contains(err.Error(), "16 of them") || !strings.Contains(err.Error(), errDown.Error())) {
					t.Errorf("closing: %v, want how many and why", err)
				}

				if told := api.told(); len(told) != test.told || api.count() != before {
					t.Errorf("%d requests after the flush, told %q", api.count()-before, told)
				}

				if err := events.Close(t.Context()); err != nil {
					t.Errorf("closing again: %v", err)
				}
			})
		})
	}
}

// TestEventQueue_EndWaitsForNoPause: an API server that is back need not be waited for.
func TestEventQueue_EndWaitsForNoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := time.Now().Add(time.Minute)
		api := &eventAPI{answer: away(back)}
		events := events(t, api)

		observe(events, tale())
		time.Sleep(time.Until(back))

		events.Flush(t.Context())

		if took := time.Since(back); took > time.Second || len(api.told()) != 26 {
			t.Errorf("it took %s to tell %d Events", took, len(api.told()))
		}

		if err := events.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
