// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// An endpoint that is a worker forwards nothing, which is about the endpoint and
// not about the node; and a worker has no etcd.
func TestCatalogue24EndpointIsAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := sameAnswer(ends(codes.PermissionDenied, "no request forwarding"))

		for method, call := range changes(node.client(t)) {
			only(cluster.ErrDenied, "endpoints must be control planes").check(t, method, call(t.Context()))
		}
	})

	synctest.Test(t, func(t *testing.T) {
		unimplemented := ends(codes.Unimplemented, "etcd status is only available on control plane nodes")

		_, err := etcdNode(map[string]wireAnswer{wireStatus: unimplemented, wireMembers: unimplemented}).client(t).Etcd(t.Context(), catalogueNode, true)
		only(cluster.ErrUnsupported, "only available on control plane nodes").check(t, "etcd", err)
	})
}

// Roles are refused before anything is done, whichever way the call answers.
func TestCatalogue29RoleMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := sameAnswer(ends(codes.PermissionDenied, "not authorized"))

		for method, call := range changes(node.client(t)) {
			only(cluster.ErrDenied, "not authorized").check(t, method, call(t.Context()))
		}
	})
}

// An old node does not know new calls, and denies resources that it has not
// heard of in the words in which it denies those that are not for us.
func TestCatalogue30OldNodeNewCall(t *testing.T) {
	for _, text := range []string{"unknown service machine.LifecycleService", "method Upgrade not implemented"} {
		synctest.Test(t, func(t *testing.T) {
			node := &wireNode{answers: map[string]wireAnswer{wireInstall: ends(codes.Unimplemented, text)}}
			c := node.client(t)

			_, err := c.Install(t.Context(), catalogueNode, catalogueWant)
			only(cluster.ErrUnsupported, text).check(t, "install", err)

			if _, err = c.InstallerIdle(t.Context(), catalogueNode); err != nil {
				only(cluster.ErrUnsupported, text).check(t, "installer", err)
			} else {
				t.Error("an installer that does not exist is idle")
			}

			if count := len(node.of(wireUpgrade)); count != 0 {
				t.Errorf("%d legacy upgrades: only the version decides", count)
			}
		})
	}

	for _, text := range []string{
		`resource type "ImageFactorySchematics.runtime.talos.dev" is not supported`, `namespace "runtime" is not supported`, "not authorized",
	} {
		synctest.Test(t, func(t *testing.T) {
			node := &wireNode{answers: map[string]wireAnswer{wireGet: ends(codes.PermissionDenied, text)}}

			found, err := node.client(t).resource(t.Context(), catalogueNode, kindImageSchematic(), "image-factory-schematic", &machineapi.Version{})
			if found || err != nil {
				t.Errorf("%s: found is %t, %v; want that there is none", text, found, err)
			}
		})
	}
}

// What a node of an old Talos cannot tell about itself is not known, and is no error.
func TestOldTalosHasNoIdentityAndNoStaticPods(t *testing.T) {
	for text, answer := range map[string]wireAnswer{
		"no such type": ends(codes.PermissionDenied, `resource type "Identities.cluster.talos.dev" is not supported`),
		"none there":   ends(codes.NotFound, `resource Identities.cluster.talos.dev(cluster/local@undefined) doesn't exist`),
	} {
		synctest.Test(t, func(t *testing.T) {
			c := (&wireNode{answers: map[string]wireAnswer{wireGet: answer}}).client(t)

			machine := cluster.Machine{Address: catalogueNode, MachineID: "of another look"}
			if err := errors.Join(c.readIdentity(t.Context(), &machine), c.readStaticPods(t.Context(), &machine)); err != nil {
				t.Errorf("%s: %v", text, err)
			}

			if machine.MachineID != "" || machine.FilesVersion != "" || !machine.PodsSince.IsZero() {
				t.Errorf("%s: %+v", text, machine)
			}
		})
	}

	synctest.Test(t, func(t *testing.T) {
		c := (&wireNode{answers: map[string]wireAnswer{wireGet: ends(codes.Unavailable, "connection refused")}}).client(t)

		machine := cluster.Machine{Address: catalogueNode}
		if c.readIdentity(t.Context(), &machine) == nil || c.readStaticPods(t.Context(), &machine) == nil {
			t.Error("a node that does not answer passes for one without an identity")
		}
	})
}

// A call is about one node. We never send the key that makes it about several,
// which the new services refuse, and which hides errors within an answer.
func TestCatalogue31NeverManyNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := etcdNode(map[string]wireAnswer{
			wirePull: sends(pulledImage()), wireInstall: sends(exited(0)), wireOldPull: sends(&machineapi.ImagePullResponse{}),
			wireUpgrade: accepted(), wireEvents: ends(codes.Unavailable, "error reading from server: EOF"),
			wireReboot: sends(&machineapi.RebootResponse{}),
			wireGet:    sends(&cosi.GetResponse{}),
		})
		c := node.client(t)

		for _, call := range changes(c) {
			_ = call(t.Context())
		}

		// Whatever they answer: it is how they ask that counts.
		_, _ = c.Machine(t.Context(), catalogueNode, nil)
		_, _ = c.Etcd(t.Context(), catalogueNode, true)
		_, _ = c.Vitals(t.Context(), catalogueNode)
		_, _ = c.Members(t.Context())
		_, _ = c.ClusterID(t.Context())
		_, _ = c.Component(t.Context(), catalogueNode, cluster.Kubelet)
		_, _ = c.InstallerIdle(t.Context(), catalogueNode)
		_ = c.EtcdSnapshot(t.Context(), catalogueNode, &bytes.Buffer{})
		_ = c.ForfeitLeadership(t.Context(), catalogueNode)
		_ = c.Rollback(t.Context(), catalogueNode)
		_, _ = c.Logs(t.Context(), catalogueNode, "machined", 20)
		_, _ = c.Kubeconfig(t.Context())
		_ = c.Configure(t.Context(), catalogueNode, cluster.ImageChange{Component: cluster.Kubelet})

		node.mu.Lock()
		defer node.mu.Unlock()

		const least = 15

		if len(node.calls) < least {
			t.Errorf("only %d calls were made", len(node.calls))
		}

		for _, call := range node.calls {
			if many, one := call.routing["nodes"], call.routing["node"]; len(many) != 0 || len(one) > 1 || len(one) == 1 && one[0] != catalogueNode {
				t.Errorf("%s went to nodes %q and node %q", call.method, many, one)
			}
		}
	})

	// Somebody on the way may add it; then nothing was done.
	synctest.Test(t, func(t *testing.T) {
		node := sameAnswer(ends(codes.InvalidArgument, "one-2-many proxying is not supported for method /machine.LifecycleService/Upgrade"))

		_, err := node.client(t).Install(t.Context(), catalogueNode, catalogueWant)
		only(cluster.ErrRefused, "one-2-many").check(t, "install", err)
	})
}

// A node in a container cannot be upgraded, and says so before it begins.
func TestCatalogue32ContainerMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const text = "method is not supported in container mode"

		node := sameAnswer(ends(codes.FailedPrecondition, text))

		for method, call := range changes(node.client(t)) {
			only(cluster.ErrRefused, text).check(t, method, call(t.Context()))
		}
	})
}

// A configuration that comes at a bad time is worth another try, one that is
// wrong is not; neither was applied.
func TestCatalogue33ConfigurationRefused(t *testing.T) {
	for text, test := range map[string]struct {
		code codes.Code
		want error
	}{
		"another apply configuration is already in progress":               {codes.FailedPrecondition, cluster.ErrBusy},
		"configuration was already applied and node is rebooting":          {codes.FailedPrecondition, cluster.ErrBusy},
		"1 error occurred:\n\t* kubelet image is not valid\n":              {codes.InvalidArgument, cluster.ErrRefused},
		"not registered: unknown kind":                                     {codes.InvalidArgument, cluster.ErrRefused},
		"this config change can't be applied in immediate mode\ndiff:\n-a": {codes.InvalidArgument, cluster.ErrRefused},
	} {
		synctest.Test(t, func(t *testing.T) {
			var request machineapi.ApplyConfigurationRequest

			node := &wireNode{answers: map[string]wireAnswer{wireApply: func(grpc.ServerStream) error { return status.Error(test.code, text) }}}
			op := operation{what: "change node " + catalogueNode, node: catalogueNode, timeout: applyTimeout, mutates: true}

			only(test.want).check(t, text, node.client(t).applyConfig(t.Context(), op, []byte("machine: {}")))
			decode(t, node.of(wireApply)[0], &request)

			// The zero value of the mode is a reboot.
			if request.GetMode() != machineapi.ApplyConfigurationRequest_NO_REBOOT {
				t.Errorf("applied in mode %s", request.GetMode())
			}
		})
	}
}
