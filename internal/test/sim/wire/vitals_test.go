// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	timeresource "github.com/siderolabs/talos/pkg/machinery/resources/time"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const firstAddress, secondAddress = "10.5.0.2", "10.5.0.3"

func struck(node string, step model.Step, effect model.Effect) []model.Fault {
	return []model.Fault{{Node: node, Step: step, Effect: effect, Times: 1}}
}

// mounted finds one file system of a machine, nil where it has none there.
func (r *rig) mounted(c *client.Client, address, on string) (*machine.MountStat, error) {
	response, err := c.MachineClient.Mounts(r.at(address), &emptypb.Empty{})
	if err != nil {
		return nil, err
	}

	for _, mount := range response.GetMessages()[0].GetStats() {
		if mount.GetMountedOn() == on {
			return mount, nil
		}
	}

	return nil, nil
}

func TestDiskSpace(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r *rig) {
		c := r.client("-reader")

		mount, err := r.mounted(c, secondAddress, "/var")
		if err != nil || mount.GetSize() != model.DiskSize || mount.GetAvailable() != model.DiskFree {
			r.Errorf("at rest: %v, %v", mount, err)
		}

		if root, err := r.mounted(c, secondAddress, "/"); err != nil || root.GetAvailable() != 0 || root.GetSize() == 0 {
			r.Errorf("the root: %v, %v", root, err)
		}

		r.world.SetFaults(struck("worker-0", model.StepDisk, model.EffectFull))

		if mount, err := r.mounted(c, secondAddress, "/var"); err != nil || mount.GetAvailable() != 100<<20 {
			r.Errorf("a full disk: %v, %v", mount, err)
		}

		r.world.SetFaults(struck("worker-0", model.StepDisk, model.EffectUnreadable))

		_, err = r.mounted(c, secondAddress, "/var")
		r.wantCode("a disk that cannot be read", err, codes.Unknown, "input/output error")
	})
}

func TestImagesOnAVolumeOfTheirOwn(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1, ContainerdVolume: true}, func(r *rig) {
		const images = "/var/lib/containerd"

		c := r.client("-reader")

		if mount, err := r.mounted(c, secondAddress, images); err != nil || mount.GetSize() != model.ContainerdSize || mount.GetAvailable() != model.ContainerdFree {
			r.Errorf("at rest: %v, %v", mount, err)
		}

		r.world.SetFaults(struck("worker-0", model.StepDisk, model.EffectFull))

		if mount, err := r.mounted(c, secondAddress, images); err != nil || mount.GetAvailable() != model.FullDisk {
			r.Errorf("full: %v, %v", mount, err)
		}

		if mount, err := r.mounted(c, secondAddress, "/var"); err != nil || mount.GetAvailable() != model.DiskFree {
			r.Errorf("the rest: %v, %v", mount, err)
		}
	})

	inBubble(t, model.Options{ControlPlanes: 1}, func(r *rig) {
		if mount, err := r.mounted(r.client(""), firstAddress, "/var/lib/containerd"); mount != nil || err != nil {
			r.Errorf("without one: %v, %v", mount, err)
		}
	})
}

func TestDiskThatStallsKeepsNothingElseWaiting(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1, Faults: struck("worker-0", model.StepDisk, model.EffectStall)}, func(r *rig) {
		c, begun := r.client(""), time.Now()

		status, err := safe.StateGetByID[*timeresource.Status](r.at(secondAddress), c.COSI, timeresource.StatusID)
		if err != nil || !status.TypedSpec().Synced || time.Since(begun) > time.Minute {
			r.Errorf("the clock: %v, %v after %s", status, err, time.Since(begun))
		}

		_, err = r.mounted(c, secondAddress, "/var")
		r.wantCode("a disk that stalls", err, codes.DeadlineExceeded, "")

		if took := time.Since(begun); took < 5*time.Minute {
			r.Errorf("its caller gave up after %s", took)
		}

		r.world.SetFaults(nil)

		if mount, err := r.mounted(c, secondAddress, "/var"); err != nil || mount.GetSize() != model.DiskSize {
			r.Errorf("afterwards: %v, %v", mount, err)
		}
	})
}

func TestTimeStatus(t *testing.T) {
	for name, test := range map[string]struct {
		faults []model.Fault
		want   timeresource.StatusSpec
	}{
		"at rest":     {nil, timeresource.StatusSpec{Synced: true}},
		"unsynced":    {struck("worker-0", model.StepClock, model.EffectUnsynced), timeresource.StatusSpec{}},
		"not kept":    {struck("worker-0", model.StepClock, model.EffectDisabled), timeresource.StatusSpec{Synced: true, SyncDisabled: true}},
		"another one": {struck("cp-0", model.StepClock, model.EffectUnsynced), timeresource.StatusSpec{Synced: true}},
	} {
		inBubble(t, model.Options{ControlPlanes: 1, Workers: 1, Faults: test.faults}, func(r *rig) {
			status, err := safe.StateGetByID[*timeresource.Status](r.at(secondAddress), r.client("-reader").COSI, timeresource.StatusID)
			if err != nil || *status.TypedSpec() != test.want {
				r.Errorf("%s: %v, %v", name, status, err)
			}
		})
	}
}

func TestUnsyncedMachineSaysWhyItIsNotReady(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1, Faults: struck("worker-0", model.StepClock, model.EffectUnsynced)}, func(r *rig) {
		status, err := safe.StateGetByID[*runtime.MachineStatus](r.at(secondAddress), r.client("").COSI, runtime.MachineStatusID)
		if err != nil || status.TypedSpec().Status.Ready || status.TypedSpec().Status.UnmetConditions[0].Name != "time" {
			r.Errorf("got %v, %v", status, err)
		}
	})
}

func TestWhatAMachineKeepsToItselfIsNotThere(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1, SecureBoot: true}, func(r *rig) {
		c := r.client("").COSI

		for step, ask := range map[model.Step]func() error{
			model.StepClock: func() error {
				_, err := safe.StateGetByID[*timeresource.Status](r.at(secondAddress), c, timeresource.StatusID)

				return err
			},
			model.StepSecurityState: func() error {
				_, err := safe.StateGetByID[*runtime.SecurityState](r.at(secondAddress), c, runtime.SecurityStateID)

				return err
			},
		} {
			if err := ask(); err != nil {
				r.Errorf("%s: %v", step, err)
			}

			r.world.SetFaults(struck("worker-0", step, model.EffectUnreadable))

			if err := ask(); !state.IsNotFoundError(err) {
				r.Errorf("%s: got %v, want that there is none", step, err)
			}
		}
	})
}

func TestStagesOfAPersonsUpgrade(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r *rig) {
		stage := func() runtime.MachineStage {
			status, err := safe.StateGetByID[*runtime.MachineStatus](r.at(secondAddress), r.client("").COSI, runtime.MachineStatusID)
			if err != nil {
				r.Fatal(err)
			}

			return status.TypedSpec().Stage
		}

		if err := r.world.UpgradeByHand("worker-0", "ghcr.io/siderolabs/installer:v1.13.4"); err != nil {
			r.Fatal(err)
		}

		if got := stage(); got != runtime.MachineStageUpgrading {
			r.Errorf("at its beginning: %s", got)
		}

		r.until("worker-0", "rebooting", 3*time.Minute, func(s model.NodeState) bool { return s.Stage == model.StageRebooting })

		if got := stage(); got != runtime.MachineStageRebooting {
			r.Errorf("at its end: %s", got)
		}
	})
}

func TestInstallerImageOfSeparateDocuments(t *testing.T) {
	options := model.Options{ControlPlanes: 1, Talos: "1.14.1", Kubernetes: "1.35.0", Documents: true, SecureBoot: true}

	inBubble(t, options, func(r *rig) {
		const other = "factory.talos.dev/metal-installer-secureboot/" + schematic + ":v1.14.2"

		before, err := r.world.Node("cp-0")
		if err != nil {
			r.Fatal(err)
		}

		c := r.client("")
		wanted := r.configOf("cp-0", before.InstallImage, other)

		if _, err := r.submit(c, firstAddress, wanted); err != nil {
			r.Fatal(err)
		}

		stored, err := safe.StateGetByID[*config.MachineConfig](r.at(firstAddress), c.COSI, config.ActiveID)
		if err != nil {
			r.Fatal(err)
		}

		text, err := stored.Provider().Bytes()
		if err != nil || !bytes.Equal(text, wanted) {
			r.Errorf("%v, served:\n%s", err, text)
		}

		after, err := r.world.Node("cp-0")
		if err != nil || after.InstallImage != other || after.BootID != before.BootID || after.Stage != model.StageRunning {
			r.Errorf("%v, afterwards: %+v", err, after)
		}
	})
}
