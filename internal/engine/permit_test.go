// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/permit"
)

// TestPermit_IsSaidWithTheAgesOfItsFacts: of each node the cordon, the install and the reboot are said, in this
// order, with how old the facts were; whoever asks why a node was rebooted finds it there.
func TestPermit_IsSaidWithTheAgesOfItsFacts(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		var (
			mu    sync.Mutex
			lines []string
		)

		w := r.Worker("run-1")
		w.TellPermits(func(line string) {
			mu.Lock()
			defer mu.Unlock()

			lines = append(lines, line)
		})

		r.Must(w, to(toLifecycle))
		r.At(toLifecycle)

		form := regexp.MustCompile(`^permitted to (cordon|install on|reboot) (\S+); ages of the facts: (.*); steps of this run before it: \d+, \d+ when the look began; lease renewed \S+ ago; other nodes under way: (.*)$`)
		done := map[string][]string{}

		for _, line := range lines {
			parts := form.FindStringSubmatch(line)
			if parts == nil {
				t.Fatalf("the line is %q", line)
			}

			done[parts[2]] = append(done[parts[2]], parts[1])

			ages := map[string]time.Duration{}

			for _, fact := range strings.Split(parts[3], ", ") {
				what, text := fact[:strings.LastIndex(fact, " ")], fact[strings.LastIndex(fact, " ")+1:]

				age, err := time.ParseDuration(text)
				if err != nil {
					t.Fatalf("the line is %q: %v", line, err)
				}

				ages[what] = age
			}

			for _, what := range []string{"nodes", "machine of " + parts[2], "machine of cp-0", "etcd on cp-0", "static pods", "members"} {
				age, said := ages[what]
				if !said || age < 0 || what != "members" && age > permit.MostAge {
					t.Errorf("%s is %s old, said %t: %q", what, age, said, line)
				}
			}
		}

		for _, node := range []string{"cp-0", "cp-1", "cp-2", "worker-0", "worker-1"} {
			if want := []string{"cordon", "install on", "reboot"}; !slices.Equal(done[node], want) {
				t.Errorf("%s: permitted %v, want %v: %s", node, done[node], want, fmt.Sprint(lines))
			}
		}
	})
}
