// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// TestAccControlCharactersAreNotPrinted: whoever may write a Lease must not be able
// to write to the terminal of whoever upgrades.
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

// TestAccPlatformIsKept: a UKI of the installer that everybody gets is built for
// metal. The plan says which one is used instead, and an override that would lose
// the platform is refused.
func TestAccPlatformIsKept(t *testing.T) {
	full(t)

	const factory = "factory.talos.dev/aws-installer/" + model.EmptySchematic

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern, Platform: "aws", UKI: true})
	w := newWorkspace(t)

	w.write(use(s), "talos_version = \"1.13.4\"\ninstaller_image = \"ghcr.io/siderolabs/installer\"")
	w.apply().mustFail("ghcr.io/siderolabs/installer", "metal", "aws")
	s.unchanged()

	w.write(use(s), `talos_version = "1.13.4"`)
	w.plan().mustSucceed(2).mustWarn(factory)
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))

	for _, install := range s.installs() {
		if install.Detail["image"] != factory+":v"+talosTarget {
			t.Errorf("%s: %v", install.Node, install.Detail)
		}
	}

	for _, boot := range s.history() {
		if boot.Kind == history.KindBoot && boot.Detail["platform"] != "aws" {
			t.Errorf("%s: %v", boot.Node, boot.Detail)
		}
	}

	w.plan().mustSucceed(0)
}
