// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// logOf returns a whole log as one text.
func (r rig) logOf(name, service string) string {
	r.t.Helper()

	lines, err := r.Logs(r.t.Context(), name, service, -1)
	if err != nil {
		r.t.Fatal(err)
	}

	return strings.Join(lines, "\n")
}

func (r rig) wantLog(name, service string, with, without []string) {
	r.t.Helper()

	text := r.logOf(name, service)

	for _, part := range with {
		if !strings.Contains(text, part) {
			r.t.Errorf("the log of %s on %s lacks %q:\n%s", service, name, part, text)
		}
	}

	for _, part := range without {
		if strings.Contains(text, part) {
			r.t.Errorf("the log of %s on %s has %q:\n%s", service, name, part, text)
		}
	}
}

func TestLog_TellsOfTheBootAndWhatIsWrong(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3, Workers: 1, Faults: []model.Fault{
		{Node: "cp-1", Step: model.StepBoot, Effect: model.EffectEtcdDown, Times: 1, Message: "panic: tocommit is out of range"},
		{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNotReady, Times: 1, Message: "cni plugin not initialized"},
	}}, func(r rig) {
		before := r.node("worker-0").BootID

		for _, name := range []string{"worker-0", "cp-1"} {
			r.pullAndInstall(name, factoryImage)
			r.wantLog(name, "machined", []string{"machined v1.13.2 starts"}, []string{"installer", "boot assets"})
			r.arrives(name)
		}

		r.wantLog("worker-0", "machined", []string{
			"machined v1.13.4 starts, boot ID " + r.node("worker-0").BootID, "boot sequence: start", "service[kubelet](Running)", "boot sequence: stop",
			`machine is running and not ready: nodeReady: node "worker-0" is not ready`,
		}, []string{before, "v1.13.2"})
		r.wantLog("worker-0", "kubelet", []string{"kubelet v", "cni plugin not initialized"}, []string{"became ready"})
		r.wantLog("cp-1", "etcd", []string{"panic: tocommit is out of range"}, []string{"ready to serve"})
		r.wantLog("cp-1", "machined", []string{"services: etcd not healthy"}, []string{"service[etcd](Running)"})
		r.wantLog("cp-0", "etcd", []string{"ready to serve client requests"}, nil)
	})
}

// TestLog_OfAFallbackIsThatOfTheOldSystem: the log of the new system is lost.
func TestLog_OfAFallbackIsThatOfTheOldSystem(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Faults: []model.Fault{
		{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectFallback, Times: 1},
	}}, func(r rig) {
		r.pullAndInstall("worker-0", factoryImage)
		r.reboot("worker-0")
		r.wantLog("worker-0", "machined", []string{"machined v1.13.2 starts", "machine is running and ready"}, []string{"1.13.4", "reboot sequence"})
	})
}

func TestLog_OfAMachineThatIsStuck(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Faults: []model.Fault{
		{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectStuck},
	}}, func(r rig) {
		r.arrives("worker-0")
		r.wantLog("worker-0", "machined", []string{"machine is booting and not ready: network: waiting on: address, connectivity"}, []string{"machine is running"})

		if _, err := r.Logs(r.t.Context(), "worker-0", "kubelet", 5); !errors.Is(err, model.ErrNoLog) {
			r.t.Errorf("a kubelet that never started: %v", err)
		}
	})
}

func TestLog_IsAskedForFromItsEnd(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		ctx := r.t.Context()

		r.reboot("worker-0")

		all := strings.Split(r.logOf("worker-0", "machined"), "\n")

		for asked, want := range map[int]int{0: 0, 1: 1, 3: 3, 1000: len(all), -1: len(all)} {
			lines, err := r.Logs(ctx, "worker-0", "machined", asked)
			if err != nil || len(lines) != want || want > 0 && lines[want-1] != all[len(all)-1] {
				r.t.Errorf("%d lines: %q, %v", asked, lines, err)
			}
		}

		if _, err := r.Logs(ctx, "worker-0", "etcd", 5); !errors.Is(err, model.ErrNoLog) || err.Error() != `log "etcd" was not registered` {
			r.t.Errorf("etcd on a worker: %v", err)
		}

		cancelled, cancel := context.WithCancel(ctx)
		cancel()

		if _, err := r.Logs(cancelled, "worker-0", "machined", 5); !errors.Is(err, context.Canceled) {
			r.t.Errorf("for somebody who has gone: %v", err)
		}

		if reads := r.log.of("worker-0", history.KindRead); len(reads) == 0 || reads[0].Detail["what"] != "logs" {
			r.t.Errorf("the history has %v", reads)
		}

		if _, err := r.Reboot(ctx, "worker-0", model.RebootDefault); err != nil {
			r.t.Fatal(err)
		}

		r.until("worker-0", "down", time.Minute, down)

		if _, err := r.Logs(ctx, "worker-0", "machined", 5); !errors.Is(err, model.ErrUnreachable) {
			r.t.Errorf("of a machine that is down: %v", err)
		}
	})
}
