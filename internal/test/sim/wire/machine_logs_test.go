// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// logs reads a log as talosctl does; messages counts what it came in.
func (r *rig) logs(c *client.Client, address, service string, lines int32) (text string, messages int, err error) {
	stream, err := c.Logs(r.at(address), "system", common.ContainerDriver_CONTAINERD, service, false, lines)
	if err != nil {
		return "", 0, err
	}

	for ; ; messages++ {
		data, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return text, messages, nil
		}

		if err != nil {
			return text, messages, err
		}

		text += string(data.GetBytes())
	}
}

func TestLogsOfServices(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1, Faults: []model.Fault{
		{Node: "worker-0", Step: model.StepKubelet, Effect: model.EffectNotReady, Times: 1, Message: strings.Repeat("x", 2500)},
	}}, func(r *rig) {
		c := r.client("-reader")

		text, messages, err := r.logs(c, secondAddress, "kubelet", 1)
		if err != nil || messages != 3 || strings.Count(text, "\n") != 1 || !strings.Contains(text, `node "worker-0" is not ready: xxx`) {
			r.Errorf("the kubelet, in %d messages: %q, %v", messages, text, err)
		}

		if text, _, err := r.logs(c, secondAddress, "machined", -1); err != nil || !strings.Contains(text, "machined v1.13.2 starts") {
			r.Errorf("machined: %q, %v", text, err)
		}

		if text, _, err := r.logs(c, firstAddress, "etcd", 10); err != nil || !strings.Contains(text, "ready to serve") {
			r.Errorf("etcd: %q, %v", text, err)
		}

		_, _, err = r.logs(c, secondAddress, "etcd", 10)
		r.wantCode("etcd on a worker", err, codes.Unknown, `log "etcd" was not registered`)

		stream, err := c.Logs(r.at(secondAddress), "k8s.io", common.ContainerDriver_CRI, "kube-system/coredns", false, 1)
		if err == nil {
			_, err = stream.Recv()
		}

		r.wantCode("a container", err, codes.Unknown, "not found")

		reads := 0

		for _, event := range r.log.soFar() {
			if event.Kind != history.KindRPC || event.Detail["method"] != "/machine.MachineService/Logs" {
				continue
			}

			if reads++; event.Detail["mutating"] != "false" {
				r.Errorf("to read a log changes something: %v", event)
			}
		}

		if reads == 0 {
			r.Error("no call to read a log is in the history")
		}
	})
}

func TestDmesgTellsOfTheBoot(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1}, func(r *rig) {
		if err := r.world.RebootByHand("cp-0", model.RebootDefault); err != nil {
			r.Fatal(err)
		}

		time.Sleep(10 * time.Minute)

		stream, err := r.client("-reader").Dmesg(r.at(firstAddress), false, false)
		if err != nil {
			r.Fatal(err)
		}

		text := ""

		for {
			data, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}

			if err != nil {
				r.Fatal(err)
			}

			text += string(data.GetBytes())
		}

		for _, want := range []string{"kern:  notice: [2000-01-01T", "]: Linux version", "user: warning: [", "]: [talos] machine is running and ready\n"} {
			if !strings.Contains(text, want) {
				r.Errorf("%q is not in it: %s", want, text)
			}
		}

		stream, err = r.client("-reader").Dmesg(r.at(firstAddress), true, false)
		if err == nil {
			_, err = stream.Recv()
		}

		r.wantCode("following it", err, codes.Unimplemented, "not simulated")
	})
}

// TestMachinedRecordsTheCallsToItsAPI: in a real machine's log too nearly all of
// the last lines are about the calls of those who watch it.
func TestMachinedRecordsTheCallsToItsAPI(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r *rig) {
		c := r.client("")

		for range 100 {
			if _, err := c.Version(r.at(secondAddress)); err != nil {
				r.Fatal(err)
			}
		}

		const call = "machined OK [/machine.MachineService/Version] 154.451µs unary Success"

		text, _, err := r.logs(c, secondAddress, "machined", 200)
		if recorded := strings.Count(text, call); err != nil || recorded < 65 || strings.Count(text, "\n") != 200 {
			r.Errorf("%d calls are recorded in %q, %v", recorded, text, err)
		}

		if text, _, err = r.logs(c, secondAddress, "machined", -1); err != nil || strings.Count(text, call) != 100 || !strings.Contains(text, "[talos] machined v1.13.2 starts") {
			r.Errorf("the whole log is %q, %v", text, err)
		}
	})
}

func TestRollbackOverTheWire(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r *rig) {
		c := r.client("")
		ask := func(c *client.Client) error {
			_, err := c.MachineClient.Rollback(r.at(secondAddress), &machine.RollbackRequest{})

			return err
		}

		r.wantCode("an operator", ask(r.client("-operator")), codes.PermissionDenied, "not authorized")
		r.wantCode("nothing to return to", ask(c), codes.Unknown, `cannot rollback to "B", label does not exist`)

		if _, err := r.pull(c, secondAddress, factoryImage); err != nil {
			r.Fatal(err)
		}

		if exit, err := r.install(c, secondAddress, factoryImage); err != nil || exit != 0 {
			r.Fatalf("install: exit %d, %v", exit, err)
		}

		r.world.SetFaults(struck("worker-0", model.StepRollback, model.EffectFail))
		r.wantCode("a bootloader without an entry", ask(c), codes.Unknown, "previous UKI not found")

		r.world.SetFaults(struck("worker-0", model.StepRollback, model.EffectConnectionLost))
		r.wantCode("a lost reply", ask(c), codes.Unavailable, "EOF")

		time.Sleep(10 * time.Minute)

		if state, err := r.world.Node("worker-0"); err != nil || state.Talos != "1.13.2" || state.Reboots != 1 {
			r.Errorf("afterwards: %+v, %v", state, err)
		}
	})
}
