// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestApplyFaults(t *testing.T) {
	for _, test := range []struct {
		fault   model.Fault
		want    error
		version int
		applied string
		moves   bool
	}{
		{model.Fault{Effect: model.EffectFail, Message: "no such thing"}, model.ErrApplyInvalid, 1, "InvalidArgument/kubelet/client", false},
		{model.Fault{Effect: model.EffectBusy}, model.ErrApplyBusy, 1, "FailedPrecondition/kubelet/client", false},
		{model.Fault{Effect: model.EffectConnectionLost}, model.ErrConnectionLost, 2, "OK/kubelet/client", true},
		{model.Fault{Effect: model.EffectOverwritten}, nil, 3, "OK/kubelet/client OK/kubelet/fault", false},
		{model.Fault{Effect: model.EffectFail, Component: model.SchedulerName}, nil, 2, "OK/kubelet/client", true},
		{model.Fault{Effect: model.EffectFail, Component: model.KubeletName}, model.ErrApplyInvalid, 1, "InvalidArgument/kubelet/client", false},
	} {
		test.fault.Node, test.fault.Step, test.fault.Times = "cp-0", model.StepApply, 1

		t.Run(string(test.fault.Effect)+" "+test.fault.Component, func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r rig) {
				before := r.node("cp-0")
				r.SetFaults([]model.Fault{test.fault})

				err := r.apply("cp-0", "kubelet:v1.34.2", "kubelet:v1.35.2")
				if !errors.Is(err, test.want) || !strings.Contains(errorText(err), test.fault.Message) {
					r.t.Errorf("got %v, want %v", err, test.want)
				}

				state := r.node("cp-0")
				if state.ConfigVersion != test.version || r.applied("cp-0") != test.applied {
					r.t.Errorf("version %d, history %s", state.ConfigVersion, r.applied("cp-0"))
				}

				if !test.moves && !bytes.HasPrefix(state.Config, before.Config) {
					r.t.Errorf("the old configuration is lost:\n%s", state.Config)
				}

				r.pass(2 * time.Minute)

				if moved := kubeletRuns("1.35.2")(r.node("cp-0")); moved != test.moves {
					r.t.Errorf("moved: %t, %+v", moved, r.node("cp-0").KubeletService)
				}
			})
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}

	return err.Error()
}

func TestHandsAreNotStruckByFaults(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r rig) {
		r.SetFaults([]model.Fault{{Node: "*", Step: model.StepApply, Effect: model.EffectFail}})

		if err := r.SetImage("cp-0", model.KubeletName, newKubelet); err != nil {
			r.t.Fatal(err)
		}

		if applied := r.applied("cp-0"); applied != "OK/kubelet/other" {
			r.t.Errorf("history: %s", applied)
		}

		refusal := errors.New("not today")
		if err := r.SetConfigByHand("cp-0", func(string) (string, error) { return "", refusal }); !errors.Is(err, refusal) {
			r.t.Errorf("got %v", err)
		}
	})
}
