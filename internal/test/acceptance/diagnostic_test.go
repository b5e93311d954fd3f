// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// diagnostic is a diagnostic that the CLI printed.
type diagnostic struct {
	Severity string `json:"severity"`
	Summary  string `json:"summary"`
	Detail   string `json:"detail"`
	Address  string `json:"address"`
	Snippet  struct {
		Context string `json:"context"`
		Code    string `json:"code"`
	} `json:"snippet"`
}

// String returns the diagnostic as one text.
func (d diagnostic) String() string {
	return d.Severity + ": " + d.Summary + "\n" + d.Detail + "\n" + d.Snippet.Code
}

// mustPoint fails the test unless the CLI shows one of the lines of the
// configuration with the diagnostic.
func (d diagnostic) mustPoint(t *testing.T, lines ...string) {
	t.Helper()

	if !slices.Contains(lines, strings.TrimSpace(d.Snippet.Code)) {
		t.Errorf("it points at %q, want one of %q:\n%s", d.Snippet.Code, lines, d)
	}
}

// TestAccControlCharactersAreNotPrinted: somebody who may write a Lease must not be able to write to the terminal of
// a person who upgrades.
func TestAccControlCharactersAreNotPrinted(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Talos: talosModern})
	leases := s.someone().CoordinationV1().Leases("kube-system")
	ctx, cancel := context.WithCancel(t.Context())

	holder := "mallory\x1b[2J\x1b]0;owned\x07\r\n\u202eError: everything is fine"
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "talosupgrade"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}

	lease, err := leases.Create(ctx, lease, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	var renewing sync.WaitGroup

	renewing.Go(func() {
		for held, renewed := lease, time.Now(); ctx.Err() == nil; renewed = renewed.Add(time.Second) {
			held.Spec.RenewTime = &metav1.MicroTime{Time: renewed}

			if held, err = leases.Update(ctx, held, metav1.UpdateOptions{}); err != nil {
				break
			}
		}
	})

	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`)
	refused := w.run("apply", "-no-color", "-auto-approve", "-input=false")

	cancel()
	renewing.Wait()

	if !errors.Is(err, context.Canceled) {
		t.Fatalf("the lease could not be renewed: %v", err)
	}

	if refused.exit == 0 || !strings.Contains(refused.output, "mallory") {
		t.Fatalf("the lease of somebody else was no obstacle:\n%q", refused.output)
	}

	for _, found := range refused.output {
		if found != '\n' && !unicode.IsPrint(found) {
			t.Fatalf("%q was printed:\n%q", found, refused.output)
		}
	}

	s.unchanged()
}
