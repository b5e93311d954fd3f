// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	timeresource "github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const (
	oldAPIServer = "registry.k8s.io/kube-apiserver:v1.34.2"
	newAPIServer = "registry.k8s.io/kube-apiserver:v1.35.0"
	oldKubelet   = "ghcr.io/siderolabs/kubelet:v1.34.2"
	newKubelet   = "ghcr.io/siderolabs/kubelet:v1.35.0"
	// longest is more than anything takes that a machine does.
	longest = 5 * time.Minute
)

// configOf returns a machine's configuration with a text replaced.
func (r *rig) configOf(node, old, replacement string) []byte {
	r.Helper()

	text, err := r.world.MachineConfig(node)
	if err != nil {
		r.Fatal(err)
	}

	if !bytes.Contains(text, []byte(old)) {
		r.Fatalf("%s: no %q in\n%s", node, old, text)
	}

	return bytes.Replace(text, []byte(old), []byte(replacement), 1)
}

// submit applies a configuration without a reboot.
func (r *rig) submit(c *client.Client, address string, data []byte) (*machine.ApplyConfiguration, error) {
	return r.submitWith(c, address, &machine.ApplyConfigurationRequest{
		Data: data, Mode: machine.ApplyConfigurationRequest_NO_REBOOT,
	})
}

func (r *rig) submitWith(
	c *client.Client, address string, request *machine.ApplyConfigurationRequest,
) (*machine.ApplyConfiguration, error) {
	response, err := c.ApplyConfiguration(r.at(address), request)
	if err != nil {
		return nil, err
	}

	return response.GetMessages()[0], nil
}

// watch follows one resource of a machine.
func (r *rig) watch(c *client.Client, address string, of resource.Pointer) <-chan state.Event {
	r.Helper()

	events := make(chan state.Event)
	if err := c.COSI.Watch(r.at(address), of, events); err != nil {
		r.Fatal(err)
	}

	return events
}

// next returns the resource of the next event, which must be of the given type.
func (r *rig) next(events <-chan state.Event, want state.EventType) resource.Resource {
	r.Helper()

	select {
	case event := <-events:
		if event.Type != want {
			r.Fatalf("got %s %v (%v), want %s", event.Type, event.Resource, event.Error, want)
		}

		return event.Resource
	case <-time.After(3 * time.Minute):
		r.Fatalf("nothing happened, want %s", want)

		return nil
	}
}

func TestMachine_NewImageGivesTheConfigurationANewVersion(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 3, Kubernetes: "1.34.2"}, func(r *rig) {
		const target = "10.5.0.3"

		c := r.client("")
		events := r.watch(c, target, k8s.NewAPIServerConfig(k8s.APIServerConfigID).Metadata())
		before := r.next(events, state.Created)

		if before.Metadata().Version().Value() != 1 {
			r.Fatalf("version %s at the start", before.Metadata().Version())
		}

		reply, err := r.submit(c, target, r.configOf("cp-1", oldAPIServer, newAPIServer))
		if err != nil || reply.GetMode() != machine.ApplyConfigurationRequest_NO_REBOOT {
			r.Fatalf("apply: %v, %v", reply, err)
		}

		updated, ok := r.next(events, state.Updated).(*k8s.APIServerConfig)
		if !ok || updated.Metadata().Version().Value() != 2 || updated.TypedSpec().Image != newAPIServer {
			r.Fatalf("after the change: %v", updated)
		}

		stored, err := safe.StateGetByID[*config.MachineConfig](r.at(target), c.COSI, config.ActiveID)
		if err != nil || stored.Metadata().Version().Value() != 2 {
			r.Fatalf("the configuration itself: %v, %v", stored.Metadata(), err)
		}

		pod, err := safe.StateGetByID[*k8s.StaticPod](r.at(target), c.COSI, k8s.APIServerID)
		if err != nil || !strings.Contains(describe(pod.TypedSpec().Pod), `"talos.dev/config-version":"2"`) {
			r.Errorf("the pod that is wanted: %v, %v", pod, err)
		}

		r.until("cp-1", "running the new API server", longest, func(s model.NodeState) bool {
			running := s.StaticPods[model.APIServerName]

			return running.PodImage == newAPIServer && running.PodConfigVersion == 2 && running.Ready
		})

		status, err := safe.StateGetByID[*k8s.StaticPodStatus](r.at(target), c.COSI, "kube-system/kube-apiserver-cp-1")
		if err != nil {
			r.Fatal(err)
		}

		if text := describe(status.TypedSpec().PodStatus); !strings.Contains(text, newAPIServer) || !strings.Contains(text, `{"status":"True","type":"Ready"}`) {
			r.Errorf("the pod that runs: %s", text)
		}

		other, err := safe.StateGetByID[*k8s.SchedulerConfig](r.at(target), c.COSI, k8s.SchedulerConfigID)
		if err != nil || other.Metadata().Version().Value() != 1 {
			r.Errorf("a component nobody touched: %v, %v", other.Metadata(), err)
		}
	})
}

func TestMachine_KubeletServiceGoesAndReturns(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1, Kubernetes: "1.34.2"}, func(r *rig) {
		const target = "10.5.0.3"

		c := r.client("")
		events := r.watch(c, target, v1alpha1.NewService(model.KubeletName).Metadata())

		before, ok := r.next(events, state.Created).(*v1alpha1.Service)
		if !ok || !before.TypedSpec().Running || !before.TypedSpec().Healthy {
			r.Fatalf("at the start: %v", before)
		}

		if _, err := r.submit(c, target, r.configOf("worker-0", oldKubelet, newKubelet)); err != nil {
			r.Fatal(err)
		}

		var seen []state.EventType

		for {
			event := <-events
			seen = append(seen, event.Type)

			if event.Type == state.Errored {
				r.Fatal(event.Error)
			}

			after, ok := event.Resource.(*v1alpha1.Service)
			if slices.Contains(seen, state.Destroyed) && event.Type != state.Destroyed && ok && after.TypedSpec().Healthy {
				break
			}
		}

		r.until("worker-0", "running the new kubelet", 3*time.Minute, func(s model.NodeState) bool {
			return s.Kubelet.Version == "1.35.0" && s.KubeletService.Healthy
		})

		spec, err := safe.StateGetByID[*k8s.KubeletSpec](r.at(target), c.COSI, k8s.KubeletID)
		if err != nil || spec.TypedSpec().Image != newKubelet {
			r.Errorf("after %v: %v, %v", seen, spec, err)
		}

		info, err := c.ServiceInfo(r.at(target), model.KubeletName)
		if err != nil || len(info) != 1 {
			r.Fatalf("service: %v, %v", info, err)
		}

		past := info[0].Service.GetEvents().GetEvents()
		if len(past) == 0 || past[len(past)-1].GetState() != "Running" {
			r.Errorf("events of the service: %v", past)
		}
	})
}

func TestMachine_RefusedConfigurations(t *testing.T) {
	const target = "10.5.0.2"

	for name, test := range map[string]struct {
		talos, context string
		mode           machine.ApplyConfigurationRequest_Mode
		data           string
		code           codes.Code
		text           string
	}{
		"by an operator": {
			talos: "1.13.2", context: "-operator", mode: machine.ApplyConfigurationRequest_NO_REBOOT,
			code: codes.PermissionDenied, text: "not authorized",
		},
		"by a reader": {
			talos: "1.13.2", context: "-reader", mode: machine.ApplyConfigurationRequest_NO_REBOOT,
			code: codes.PermissionDenied, text: "not authorized",
		},
		"no YAML": {
			talos: "1.13.2", mode: machine.ApplyConfigurationRequest_NO_REBOOT, data: "a: [",
			code: codes.InvalidArgument,
		},
		"nothing": {
			talos: "1.14.1", mode: machine.ApplyConfigurationRequest_NO_REBOOT, data: "\n",
			code: codes.InvalidArgument,
		},
		"the mode of old": {
			talos: "1.14.1", mode: machine.ApplyConfigurationRequest_REBOOT, //nolint:staticcheck // on purpose
			code: codes.Unimplemented, text: "REBOOT mode is not supported",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, model.Options{ControlPlanes: 1, Talos: test.talos, Kubernetes: "1.34.2"}, func(r *rig) {
				data := []byte(test.data)
				if test.data == "" {
					data = r.configOf("cp-0", oldAPIServer, newAPIServer)
				}

				_, err := r.submitWith(r.client(test.context), target, &machine.ApplyConfigurationRequest{Data: data, Mode: test.mode})
				r.wantCode(name, err, test.code, test.text)

				after, err := r.world.Node("cp-0")
				if err != nil || after.ConfigVersion != 1 {
					r.Errorf("the configuration changed: version %d, %v", after.ConfigVersion, err)
				}
			})
		})
	}
}

func TestMachine_DryRunChangesNothing(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")

		_, err := r.submitWith(c, "10.5.0.2", &machine.ApplyConfigurationRequest{
			Data: r.configOf("cp-0", oldAPIServer, newAPIServer), DryRun: true,
			Mode: machine.ApplyConfigurationRequest_NO_REBOOT,
		})
		if err != nil {
			r.Fatal(err)
		}

		time.Sleep(time.Minute)

		now, err := safe.StateGetByID[*k8s.APIServerConfig](r.at("10.5.0.2"), c.COSI, k8s.APIServerConfigID)
		if err != nil || now.TypedSpec().Image != oldAPIServer || now.Metadata().Version().Value() != 1 {
			r.Fatalf("after a dry run: %v, %v", now, err)
		}
	})
}

func TestMachine_SecondConfigurationAtOnceIsRefused(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Talos: "1.13.4", Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")
		first := r.configOf("cp-0", oldAPIServer, newAPIServer)
		second := r.configOf("cp-0", oldKubelet, newKubelet)
		ended := make(chan error, 1)

		go func() {
			_, err := r.submit(c, "10.5.0.2", first)
			ended <- err
		}()

		time.Sleep(100 * time.Millisecond)

		_, err := r.submit(c, "10.5.0.2", second)
		r.wantCode("the second", err, codes.FailedPrecondition, "already in progress")

		if err := <-ended; err != nil {
			r.Errorf("the first: %v", err)
		}
	})
}

// health returns how many messages came, and how the check ended.
func (r *rig) health(suffix string, limit time.Duration) (int, error) {
	stream, err := r.client(suffix).ClusterClient.HealthCheck(r.within(time.Hour),
		&cluster.HealthCheckRequest{WaitTimeout: durationpb.New(limit)})
	if err != nil {
		return 0, err
	}

	for count := 0; ; count++ {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return count, nil
		} else if err != nil {
			return count, err
		}
	}
}

func TestMachine_HealthCheckWaits(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r *rig) {
		if count, err := r.health("-reader", time.Minute); err != nil || count != 1 {
			r.Fatalf("a healthy cluster: %d messages, %v", count, err)
		}

		if _, err := r.world.Reboot(r.Context(), "worker-0", model.RebootDefault); err != nil {
			r.Fatal(err)
		}

		time.Sleep(5 * time.Second)

		_, err := r.health("", 10*time.Second)
		r.wantCode("too short", err, codes.DeadlineExceeded, "worker-0")

		if count, err := r.health("", 10*time.Minute); err != nil || count < 5 {
			r.Fatalf("a machine reboots: %d messages, %v", count, err)
		}

		_, err = r.health("-worker", time.Minute)
		r.wantCode("from a worker", err, codes.Unimplemented, "only available on control plane nodes")
	})
}

// logs reads a log as talosctl does, and returns in how many messages it came.
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

func TestMachine_LogsOfServices(t *testing.T) {
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

func TestMachine_DmesgTellsOfTheBoot(t *testing.T) {
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

// TestMachine_MachinedRecordsTheCallsToItsAPI: in the log of a real machine, too, nearly all of the last lines are
// about the calls of those who watch it.
func TestMachine_MachinedRecordsTheCallsToItsAPI(t *testing.T) {
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

func TestMachine_Rollback(t *testing.T) {
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

const firstAddress, secondAddress = "10.5.0.2", "10.5.0.3"

func struck(node string, step model.Step, effect model.Effect) []model.Fault {
	return []model.Fault{{Node: node, Step: step, Effect: effect, Times: 1}}
}

// mounted returns one file system of a machine; nil if nothing is mounted there.
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

func TestMachine_DiskSpace(t *testing.T) {
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

func TestMachine_ImagesOnAVolumeOfTheirOwn(t *testing.T) {
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

func TestMachine_StalledDiskKeepsNothingElseWaiting(t *testing.T) {
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

func TestMachine_TimeStatus(t *testing.T) {
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

func TestMachine_UnsyncedSaysWhyItIsNotReady(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1, Faults: struck("worker-0", model.StepClock, model.EffectUnsynced)}, func(r *rig) {
		status, err := safe.StateGetByID[*runtime.MachineStatus](r.at(secondAddress), r.client("").COSI, runtime.MachineStatusID)
		if err != nil || status.TypedSpec().Status.Ready || status.TypedSpec().Status.UnmetConditions[0].Name != "time" {
			r.Errorf("got %v, %v", status, err)
		}
	})
}

func TestMachine_WithheldResourcesAreNotFound(t *testing.T) {
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

func TestMachine_StagesOfAPersonsUpgrade(t *testing.T) {
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

func TestMachine_InstallerImageOfSeparateDocuments(t *testing.T) {
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

// TestMachine_HasTheServicesOfItsVersion upgrades a machine from 1.10 over 1.13, which adds the new services, to
// 1.15.
func TestMachine_HasTheServicesOfItsVersion(t *testing.T) {
	const factory, node = "factory.talos.dev/metal-installer/" + model.EmptySchematic, "10.5.0.3"

	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1, Talos: "1.10.7", Kubernetes: "1.33.4"}, func(r *rig) {
		c := r.client("")

		for _, to := range []string{"1.11.5", "1.12.6", "1.13.4"} {
			_, err := r.pull(c, node, factory+":v"+to)
			r.wantCode("pull before "+to, err, codes.Unimplemented, "unknown service machine.ImageService")

			_, err = c.UpgradeWithOptions(r.at(node), client.WithUpgradeImage(factory+":v"+to)) //nolint:staticcheck // the only way on these versions
			if err != nil {
				r.Fatalf("upgrade to %s: %v", to, err)
			}

			r.awaitVersion(c, node, to)
		}

		for _, to := range []string{"1.14.1", "1.15.0"} {
			if _, err := r.pull(c, node, factory+":v"+to); err != nil {
				r.Fatalf("pull of %s: %v", to, err)
			}

			if exit, err := r.install(c, node, factory+":v"+to); err != nil || exit != 0 {
				r.Fatalf("install of %s: %d, %v", to, exit, err)
			}

			if err := c.Reboot(r.at(node)); err != nil {
				r.Fatal(err)
			}

			r.awaitVersion(c, node, to)
		}
	})
}

// awaitVersion waits for the boot of worker-0 and for what it runs then.
func (r *rig) awaitVersion(c *client.Client, node, want string) {
	r.Helper()
	r.until("worker-0", "down", 3*time.Minute, down)
	r.until("worker-0", "ready", 5*time.Minute, ready)
	time.Sleep(15 * time.Second) // the proxies' pause

	if got, err := r.version(c, node); err != nil || got != "v"+want {
		r.Fatalf("runs %q, %v, want %s", got, err, want)
	}
}
