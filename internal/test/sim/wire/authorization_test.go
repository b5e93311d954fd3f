// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestAuthorization_RolesComeFromTheCertificate(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r *rig) {
		const target = "10.5.0.3"

		calls := map[string]func(*client.Client) error{
			"version": func(c *client.Client) error { _, err := r.version(c, target); return err },
			"etcd status": func(c *client.Client) error {
				_, err := c.MachineClient.EtcdStatus(r.at("10.5.0.2"), &emptypb.Empty{})

				return err
			},
			"pull":    func(c *client.Client) error { _, err := r.pull(c, target, factoryImage); return err },
			"boot ID": func(c *client.Client) error { _, err := r.bootID(c, target); return err },
			"upgrade": func(c *client.Client) error { _, err := r.install(c, target, factoryImage); return err },
			"kubeconfig": func(c *client.Client) error {
				_, err := c.Kubeconfig(r.within(time.Minute))

				return err
			},
		}

		may := map[string][]string{
			"-reader":   {"version", "etcd status"},
			"-operator": {"version", "etcd status", "pull"},
			"":          {"version", "etcd status", "pull", "boot ID", "upgrade", "kubeconfig"},
		}

		for _, suffix := range []string{"-reader", "-operator", ""} {
			c := r.client(suffix)

			for _, name := range may[""] {
				err := calls[name](c)

				if slices.Contains(may[suffix], name) {
					if err != nil {
						r.Errorf("%q: %s: %v", suffix, name, err)
					}

					continue
				}

				r.wantCode(suffix+": "+name, err, codes.PermissionDenied, "not authorized")
			}
		}

		ended := r.log.calls()
		for _, want := range []string{
			"/machine.LifecycleService/Upgrade os:operator PermissionDenied",
			"/machine.LifecycleService/Upgrade os:admin OK",
			"/machine.ImageService/Pull os:operator OK",
		} {
			if !slices.Contains(ended, want) {
				r.Errorf("%q is not among the calls recorded: %s", want, strings.Join(ended, "\n"))
			}
		}
	})
}

func TestAuthorization_ClientCannotClaimARole(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1}, func(r *rig) {
		c := r.client("-reader", client.WithGRPCDialOptions())
		ctx := withRole(r.at("10.5.0.2"), "os:admin")

		_, err := c.Kubeconfig(ctx)
		r.wantCode("a role in the metadata", err, codes.PermissionDenied, "not authorized")
	})
}

func TestAuthorization_Kubeconfig(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r *rig) {
		content, err := r.client("").Kubeconfig(r.within(time.Minute))
		if err != nil || string(content) != secretText {
			r.Fatalf("got %q, %v", content, err)
		}

		_, err = r.client("-worker").Kubeconfig(r.within(time.Minute))
		r.wantCode("from a worker", err, codes.Unimplemented, "only available on control plane nodes")
	})
}
