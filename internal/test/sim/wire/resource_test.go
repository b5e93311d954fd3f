// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	"google.golang.org/grpc/codes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestResource_MachinesTellWhoTheyAre(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1, Schematic: schematic, SecureBoot: true}, func(r *rig) {
		c := r.client("-reader").COSI
		ctx := r.at("10.5.0.3")

		want, err := r.world.Node("worker-0")
		if err != nil {
			r.Fatal(err)
		}

		info, err := safe.StateGetByID[*cluster.Info](ctx, c, cluster.InfoID)
		if err != nil || info.TypedSpec().ClusterID != r.world.ClusterID() {
			r.Fatalf("cluster: %v, %v", info, err)
		}

		identity, err := safe.StateGetByID[*cluster.Identity](ctx, c, cluster.LocalIdentity)
		if err != nil || identity.TypedSpec().NodeID != want.Identity {
			r.Fatalf("identity: %v, %v", identity, err)
		}

		system, err := safe.StateGetByID[*hardware.SystemInformation](ctx, c, hardware.SystemInformationID)
		if err != nil || system.TypedSpec().UUID != want.UUID {
			r.Fatalf("hardware: %v, %v", system, err)
		}

		name, err := safe.StateGetByID[*k8s.Nodename](ctx, c, k8s.NodenameID)
		if err != nil || name.TypedSpec().Nodename != "worker-0" {
			r.Fatalf("node name: %v, %v", name, err)
		}

		kind, err := safe.StateGetByID[*config.MachineType](ctx, c, config.MachineTypeID)
		if err != nil || kind.MachineType().String() != "worker" {
			r.Fatalf("type: %v, %v", kind, err)
		}

		platform, err := safe.StateGetByID[*runtime.PlatformMetadata](ctx, c, runtime.PlatformMetadataID)
		if err != nil || platform.TypedSpec().Platform != "metal" {
			r.Fatalf("platform: %v, %v", platform, err)
		}

		security, err := safe.StateGetByID[*runtime.SecurityState](ctx, c, runtime.SecurityStateID)
		if err != nil || !security.TypedSpec().SecureBoot {
			r.Fatalf("security: %v, %v", security, err)
		}

		extensions, err := safe.StateListAll[*runtime.ExtensionStatus](ctx, c)
		if err != nil || extensions.Len() != 2 || extensions.Get(1).TypedSpec().Metadata.Version != schematic {
			r.Fatalf("extensions: %v, %v", extensions, err)
		}
	})
}

func TestResource_KubeletConfigIsForAdmins(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r *rig) {
		ask := func(suffix string) (*k8s.KubeletConfig, error) {
			return safe.StateGetByID[*k8s.KubeletConfig](r.at(firstAddress), r.client(suffix).COSI, k8s.KubeletID)
		}

		got, err := ask("")
		if err != nil || !strings.HasSuffix(got.TypedSpec().Image, "kubelet:v1.34.2") || got.TypedSpec().SkipNodeRegistration {
			r.Errorf("got %v, %v", got, err)
		}

		_, err = ask("-reader")
		r.wantCode("a reader", err, codes.PermissionDenied, "not authorized")
	})
}

func TestResource_MachineConfigurationIsForAdminsAndReadable(t *testing.T) {
	for _, unpinned := range []bool{false, true} {
		inBubble(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2", Unpinned: unpinned}, func(r *rig) {
			got, err := safe.StateGetByID[*config.MachineConfig](r.at("10.5.0.2"), r.client("").COSI, config.ActiveID)
			if err != nil {
				r.Fatal(err)
			}

			text, err := got.Provider().Bytes()
			if err != nil || !strings.Contains(string(text), "# Set by the platform team.") {
				r.Fatalf("comments are lost: %v", err)
			}

			if pinned := strings.Contains(string(text), "kube-apiserver:v1.34.2"); pinned == unpinned {
				r.Fatalf("unpinned %t, but an image is named: %t", unpinned, pinned)
			}

			if got.Config().Cluster() == nil || got.Config().Machine().Install().Image() != "ghcr.io/siderolabs/installer:v1.13.2" {
				r.Fatalf("configuration: %s", text)
			}

			for _, suffix := range []string{"-operator", "-reader"} {
				_, err = safe.StateGetByID[*config.MachineConfig](r.at("10.5.0.2"), r.client(suffix).COSI, config.ActiveID)
				r.wantCode(suffix, err, codes.PermissionDenied, "not authorized")
			}
		})
	}
}

func TestResource_UnknownTypesAndNamespaces(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Talos: "1.13.2", Schematic: schematic}, func(r *rig) {
		c := r.client("").COSI
		ctx := r.at("10.5.0.2")

		_, err := safe.StateGetByID[*runtime.ImageFactorySchematic](ctx, c, runtime.ImageFactorySchematicID)
		r.wantCode("a type of 1.14", err, codes.PermissionDenied, "is not supported")

		_, err = safe.StateListAll[*network.AddressStatus](ctx, c)
		r.wantCode("a type nobody serves", err, codes.PermissionDenied, "is not supported")

		_, err = safe.StateListAll[*secrets.OSRoot](ctx, c)
		r.wantCode("secrets", err, codes.PermissionDenied, "")

		_, err = c.Get(ctx, k8s.NewNodename("elsewhere", k8s.NodenameID).Metadata())
		r.wantCode("a namespace", err, codes.PermissionDenied, `namespace "elsewhere" is not supported`)

		err = c.Create(ctx, k8s.NewNodename(k8s.NamespaceName, "mine"))
		if err == nil || !strings.Contains(err.Error(), "write access is not allowed") {
			r.Errorf("a write: %v", err)
		}
	})

	inBubble(t, model.Options{ControlPlanes: 1, Talos: "1.14.1"}, func(r *rig) {
		got, err := safe.StateGetByID[*runtime.ImageFactorySchematic](
			r.at("10.5.0.2"), r.client("").COSI, runtime.ImageFactorySchematicID)
		if err != nil || got.TypedSpec().SchematicID != model.EmptySchematic {
			r.Fatalf("schematic: %v, %v", got, err)
		}
	})
}

func TestResource_WatchBeginsAnewAfterAReboot(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r *rig) {
		c := r.client("").COSI
		events := make(chan state.Event)

		if err := c.Watch(r.at("10.5.0.3"), runtime.NewMachineStatus().Metadata(), events); err != nil {
			r.Fatal(err)
		}

		if _, err := r.world.Reboot(r.Context(), "worker-0", model.RebootDefault); err != nil {
			r.Fatal(err)
		}

		for event := range events {
			if event.Type == state.Errored {
				r.Fatal(event.Error)
			}

			status, ok := event.Resource.(*runtime.MachineStatus)
			if ok && status.TypedSpec().Stage == runtime.MachineStageRebooting {
				if version := status.Metadata().Version().Value(); version != 2 {
					r.Fatalf("version %d after one change", version)
				}

				break
			}
		}

		r.until("worker-0", "down", time.Minute, down)
		r.until("worker-0", "up", 5*time.Minute, func(s model.NodeState) bool { return s.Up })
		time.Sleep(16 * time.Second) // the proxies' pause

		status, err := safe.StateGetByID[*runtime.Version](r.at("10.5.0.3"), c, "version")
		if err != nil || status.Metadata().Version().Value() != 1 {
			r.Fatalf("after the reboot: %v, %v", status, err)
		}

		r.until("worker-0", "ready", 5*time.Minute, ready)
	})
}

func TestResource_DefinitionsAreListed(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1}, func(r *rig) {
		list, err := safe.StateListAll[*meta.ResourceDefinition](r.at("10.5.0.2"), r.client("-reader").COSI)
		if err != nil || list.Len() < 15 {
			r.Fatalf("%d definitions, %v", list.Len(), err)
		}
	})
}

func TestResource_LooksAreRecorded(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1}, func(r *rig) {
		c := r.client("")

		if _, err := safe.StateGetByID[*runtime.MachineStatus](r.at("10.5.0.2"), c.COSI, runtime.MachineStatusID); err != nil {
			r.Fatal(err)
		}

		if _, err := r.version(c, "10.5.0.2"); err != nil {
			r.Fatal(err)
		}

		seen := map[string]bool{}

		for _, event := range r.log.soFar() {
			if event.Kind == history.KindRead {
				seen[event.Detail["what"]] = true
			}
		}

		if !seen["machine"] || !seen["version"] {
			r.Fatalf("recorded: %v", seen)
		}
	})
}
