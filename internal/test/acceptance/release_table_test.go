// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// TestAccReleaseTable upgrades a cluster through a patch release that only a table at an address has. If the table is
// not available, the plan, and the apply of a plan that was made with it, have to be refused before anything is
// touched; what needs no table has to work.
func TestAccReleaseTable(t *testing.T) {
	full(t)

	const (
		through = "1.12.98"
		text    = "as-of 2026-12-01\ntalos 1.12.98 1.12.99\nstop 1.12.99 | withdrawn | was broken | Choose another. | x#1\nstop 1.13.5 | withdrawn | was broken too | Choose 1.13.4. | x#2\n"
	)

	var away atomic.Bool

	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		} else {
			_, _ = fmt.Fprint(w, text)
		}
	}))
	t.Cleanup(server.Close)

	trusted := filepath.Join(t.TempDir(), "trusted.pem")
	if err := os.WriteFile(trusted, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosBehind})
	w := newWorkspace(t)
	w.env = append(w.env, "SSL_CERT_FILE="+trusted)

	named := func(sum string) string {
		return use(s) + fmt.Sprintf("\n  release_source = {\n    table        = %q\n    table_sha256 = %q\n  }", server.URL+"/releases.txt", sum)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))

	w.write(named(""), "talos_version = \"1.13.4\"")
	w.plan().mustFail("Invalid table of releases", "table_sha256")

	const walks = "talos_version = \"1.13.4\"\nallow_intermediate_versions = true"

	w.write(named(strings.Repeat("0", len(sum))), walks)

	other := w.plan()
	other.mustFail("its SHA-256 is "+sum, "intermediate_versions")
	other.mustWarn("Table of releases not read")

	w.write(named(sum), "talos_version = \"1.13.5\"\nallow_intermediate_versions = true")
	w.plan().mustFail("Talos 1.13.5 was broken too (x#2)")

	w.write(named(sum), walks)
	w.run("plan", "-json", "-input=false", "-out=planned").mustSucceed(0).mustWarn("Hop 2 of 2: Talos " + through)

	away.Store(true)
	w.run("apply", "-json", "-input=false", "planned").mustFail("status 503", "the built-in table would give Talos "+between(t))
	s.unchanged()

	away.Store(false)
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, each(2, 1, 1))

	for _, event := range s.installs() {
		if talos := event.Detail["talos"]; talos != through && talos != talosTarget {
			t.Errorf("%s was brought to Talos %s, which is not on the way", event.Node, talos)
		}
	}

	away.Store(true)
	w.plan().mustSucceed(0).mustWarn("Table of releases not read")
}
