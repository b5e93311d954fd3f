// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// document is a machine configuration as it is served; false for none.
func (r *rig) document(c *client.Client, address, id string) (text []byte, version uint64, found bool) {
	r.Helper()

	stored, err := safe.StateGetByID[*config.MachineConfig](r.at(address), c.COSI, id)
	if state.IsNotFoundError(err) {
		return nil, 0, false
	}

	if err != nil {
		r.Fatal(err)
	}

	if text, err = stored.Provider().Bytes(); err != nil {
		r.Fatal(err)
	}

	return text, stored.Metadata().Version().Value(), true
}

func TestStoredConfigurationIsServedBesideTheOneInEffect(t *testing.T) {
	const target = "10.5.0.2"

	for name, test := range map[string]struct {
		mode             machine.ApplyConfigurationRequest_Mode
		inEffect, stored bool // the new one
		version          uint64
	}{
		"at once": {machine.ApplyConfigurationRequest_NO_REBOOT, true, true, 2},
		"staged":  {machine.ApplyConfigurationRequest_STAGED, false, true, 1},
		"tried":   {machine.ApplyConfigurationRequest_TRY, true, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, model.Options{ControlPlanes: 1, Talos: "1.13.4", Kubernetes: "1.34.2"}, func(r *rig) {
				c := r.client("")

				if _, _, found := r.document(c, target, config.PersistentID); found {
					r.Error("something is stored although nothing was applied since the boot")
				}

				before, wanted := r.configOf("cp-0", oldKubelet, oldKubelet), r.configOf("cp-0", oldKubelet, newKubelet)

				if _, err := r.submitWith(c, target, &machine.ApplyConfigurationRequest{Data: wanted, Mode: test.mode}); err != nil {
					r.Fatal(err)
				}

				time.Sleep(time.Minute)

				inEffect := before
				if test.inEffect {
					inEffect = wanted
				}

				if text, version, _ := r.document(c, target, config.ActiveID); !bytes.Equal(text, inEffect) || version != test.version {
					r.Errorf("in effect is version %d, want %d:\n%s", version, test.version, text)
				}

				text, _, found := r.document(c, target, config.PersistentID)
				if found != test.stored || found && !bytes.Equal(text, wanted) {
					r.Errorf("stored is (%t):\n%s", found, text)
				}
			})
		})
	}
}

func TestPodsHaveTheVersionOfTheFinalConfiguration(t *testing.T) {
	const target = "10.5.0.2"

	inBubble(t, model.Options{ControlPlanes: 1, Talos: "1.14.1", Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")
		check := func(image, version string) {
			r.Helper()

			final, err := safe.StateGetByID[*k8s.APIServerConfig](r.at(target), c.COSI, k8s.FinalAPIServerConfigID)
			if err != nil || final.TypedSpec().Image != image || final.Metadata().Version().String() != version {
				r.Errorf("the final configuration: %v, %v; want version %s with %s", final, err, version, image)
			}

			source, err := safe.StateGetByID[*k8s.APIServerConfig](r.at(target), c.COSI, k8s.APIServerConfigID)
			if err != nil || source.TypedSpec().Image != image || source.Metadata().Version().String() == version {
				r.Errorf("its source: %v, %v; want another version than %s", source, err, version)
			}

			pod, err := safe.StateGetByID[*k8s.StaticPod](r.at(target), c.COSI, k8s.APIServerID)
			if err != nil || !strings.Contains(describe(pod.TypedSpec().Pod), `"talos.dev/config-version":"`+version+`"`) {
				r.Errorf("the pod: %v, %v; want version %s", pod, err, version)
			}
		}

		check(oldAPIServer, "1")

		for range 2 {
			if _, err := r.submit(c, target, r.configOf("cp-0", oldKubelet, newKubelet)); err != nil {
				r.Fatal(err)
			}

			if _, err := r.submit(c, target, r.configOf("cp-0", newKubelet, oldKubelet)); err != nil {
				r.Fatal(err)
			}
		}

		time.Sleep(time.Minute)
		check(oldAPIServer, "1")

		if _, err := r.submit(c, target, r.configOf("cp-0", oldAPIServer, newAPIServer)); err != nil {
			r.Fatal(err)
		}

		time.Sleep(time.Minute)
		check(newAPIServer, "2")
	})

	inBubble(t, model.Options{ControlPlanes: 1, Talos: "1.13.4", Kubernetes: "1.34.2"}, func(r *rig) {
		_, err := safe.StateGetByID[*k8s.APIServerConfig](r.at(target), r.client("").COSI, k8s.FinalAPIServerConfigID)
		if !state.IsNotFoundError(err) {
			r.Errorf("before 1.14: %v, want no final configuration", err)
		}
	})
}

func TestDisabledComponentIsConfiguredWithoutAPod(t *testing.T) {
	const target = "10.5.0.2"

	for _, talos := range []string{"1.13.4", "1.14.1"} {
		t.Run(talos, func(t *testing.T) {
			options := model.Options{
				ControlPlanes: 1, Talos: talos, Kubernetes: "1.34.2", DisabledComponents: []string{model.ControllerManagerName},
			}

			inBubble(t, options, func(r *rig) {
				c := r.client("")

				spec, err := safe.StateGetByID[*k8s.ControllerManagerConfig](r.at(target), c.COSI, k8s.ControllerManagerConfigID)
				if err != nil || spec.TypedSpec().Enabled || spec.TypedSpec().Image == "" {
					r.Errorf("its configuration: %v, %v", spec, err)
				}

				pods, err := safe.StateListAll[*k8s.StaticPod](r.at(target), c.COSI)
				if err != nil || pods.Len() != 2 {
					r.Errorf("%d pods are wanted, %v", pods.Len(), err)
				}

				statuses, err := safe.StateListAll[*k8s.StaticPodStatus](r.at(target), c.COSI)
				if err != nil || statuses.Len() != 2 {
					r.Errorf("%d pods run, %v", statuses.Len(), err)
				}
			})
		})
	}
}
