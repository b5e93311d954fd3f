// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// failedPull begins what a node says of a pull that failed.
const failedPull = `failed to pull image "` + catalogueWant + `": `

// frame is the progress of a pull, which need not be any.
func frame() *machineapi.ImageServicePullResponse {
	return &machineapi.ImageServicePullResponse{Response: &machineapi.ImageServicePullResponse_PullProgress{
		PullProgress: &machineapi.ImageServicePullProgress{LayerId: "sha256:1", Progress: &machineapi.ImageServicePullLayerProgress{Offset: 1 << 20, Total: 100 << 20}},
	}}
}

func pulledImage() *machineapi.ImageServicePullResponse {
	return &machineapi.ImageServicePullResponse{Response: &machineapi.ImageServicePullResponse_Name{Name: catalogueWant + "@sha256:1"}}
}

// pulls are the ways to bring an image onto a node.
func pulls(c *Client) map[string]func(context.Context) error {
	all := changes(c)
	delete(all, wireReboot)
	delete(all, wireInstall)

	return all
}

// Waiting does not bring an image that does not exist, by whichever call.
func TestCatalogue04ImageNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &wireNode{answers: map[string]wireAnswer{
			wirePull:    ends(codes.NotFound, "error pulling image: "+failedPull+"failed to resolve image: "+catalogueWant+": not found"),
			wireOldPull: ends(codes.Unknown, failedPull+"failed to resolve reference: "+catalogueWant+": not found"),
			wireUpgrade: ends(codes.Unknown, `error validating installer image "`+catalogueWant+`": `+failedPull+catalogueWant+": not found"),
		}}

		for method, call := range pulls(node.client(t)) {
			only(cluster.ErrNotFound, catalogueWant).check(t, method, call(t.Context()))

			if count := len(node.of(method)); count != 1 {
				t.Errorf("%s was sent %d times", method, count)
			}
		}
	})
}

// A registry that is down heals or does not; nothing was done either way. Talos
// 1.13 tries for 20 minutes in silence, 1.14 says so at once.
func TestCatalogue05RegistryDown(t *testing.T) {
	for name, text := range map[string]string{
		"down":   "failed to do request: dial tcp 1.2.3.4:443: connect: connection refused",
		"broken": "unexpected status from HEAD request: 503 Service Unavailable",
		"busy":   "unexpected status from HEAD request: 429 Too Many Requests",
	} {
		for age, pause := range map[string]time.Duration{"1.13": 20 * time.Minute, "1.14": time.Second} {
			t.Run(name+" "+age, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					node := sameAnswer(after(pause, ends(codes.Unknown, failedPull+text)))
					c := node.client(t)

					for _, method := range []string{wirePull, wireOldPull} {
						err := changes(c)[method](t.Context())
						meant{heals: true, not: []error{cluster.ErrNotFound, cluster.ErrRefused, cluster.ErrOutcomeUnknown}, says: []string{text}}.check(t, method, err)
					}
				})
			})
		}
	}
}

// Who may not have an image, or asks for none, is not served by waiting.
func TestCatalogue05RegistrySaysNo(t *testing.T) {
	for _, text := range []string{
		failedPull + "failed to authorize: failed to fetch anonymous token: unexpected status: 401 Unauthorized",
		failedPull + "unexpected status from HEAD request: 403 Forbidden",
		`failed to parse image reference "` + catalogueWant + `": invalid reference format`,
	} {
		synctest.Test(t, func(t *testing.T) {
			node := sameAnswer(ends(codes.Unknown, text))

			for method, call := range pulls(node.client(t)) {
				only(cluster.ErrRefused, text).check(t, method, call(t.Context()))
			}
		})
	}
}

// A node that verifies images says no for good.
func TestCatalogue06SignatureDenied(t *testing.T) {
	for _, text := range []string{
		"verification denied by matched rule (0010-registry)",
		"image verification failed: no matching signatures: invalid signature when validating ASN.1 encoded signature",
	} {
		synctest.Test(t, func(t *testing.T) {
			node := sameAnswer(ends(codes.Unknown, text))
			node.answers[wireUpgrade] = ends(codes.Unknown, `error validating installer image "`+catalogueWant+`": `+text)

			for method, call := range pulls(node.client(t)) {
				only(cluster.ErrRefused, text).check(t, method, call(t.Context()))
			}
		})
	}
}

// Frames that are all the same are neither progress nor an end: what counts is
// the name that comes last, and the deadline.
func TestCatalogue07SlowPull(t *testing.T) {
	for name, test := range map[string]struct {
		frames int
		last   bool
	}{
		"in the end": {280, true},
		"never":      {400, true},
		"no name":    {280, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := &wireNode{answers: map[string]wireAnswer{wirePull: func(stream grpc.ServerStream) error {
					for range test.frames {
						if err := after(5*time.Second, sends(frame()))(stream); err != nil {
							return err
						}
					}

					if test.last {
						return sends(pulledImage())(stream)
					}

					return nil
				}}}
				started := time.Now()
				err := node.client(t).Pull(t.Context(), catalogueNode, catalogueWant, cluster.LifecycleAPI)

				if name == "in the end" && err != nil {
					t.Errorf("after %s: %v", time.Since(started), err)
				}

				if name != "in the end" {
					unknownOutcome().check(t, "pull", err)
				}

				if took := time.Since(started); took > cluster.PullTimeout+time.Second {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// An installer image that is not there was not run.
func TestCatalogue08ImageNotPulled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := `upgrade failed: installer image "` + catalogueWant + `" not found in containerd store: image "x": not found`
		node := &wireNode{answers: map[string]wireAnswer{wireInstall: ends(codes.Internal, text)}}

		_, err := node.client(t).Install(t.Context(), catalogueNode, catalogueWant)
		only(cluster.ErrRefused, "not found in containerd store").check(t, "install", err)
	})

	// Pull and install name the same containerd, or the one misses what the other
	// brought.
	synctest.Test(t, func(t *testing.T) {
		node := &wireNode{answers: map[string]wireAnswer{wirePull: sends(pulledImage()), wireInstall: sends(exited(0))}}
		c := node.client(t)

		if err := c.Pull(t.Context(), catalogueNode, catalogueWant, cluster.LifecycleAPI); err != nil {
			t.Fatal(err)
		}

		if _, err := c.Install(t.Context(), catalogueNode, catalogueWant); err != nil {
			t.Fatal(err)
		}

		var (
			pull    machineapi.ImageServicePullRequest
			install machineapi.LifecycleServiceUpgradeRequest
		)

		decode(t, node.of(wirePull)[0], &pull)
		decode(t, node.of(wireInstall)[0], &install)

		if pull.GetContainerd().String() != install.GetContainerd().String() || pull.GetContainerd().GetNamespace() != common.ContainerdNamespace_NS_SYSTEM {
			t.Errorf("pulled into %v, installed from %v", pull.GetContainerd(), install.GetContainerd())
		}

		if pull.GetImageRef() != install.GetSource().GetImageName() {
			t.Errorf("pulled %q, installed %q", pull.GetImageRef(), install.GetSource().GetImageName())
		}
	})
}

// A full disk does not become empty by trying again.
func TestCatalogue40DiskFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := failedPull + "failed to extract layer sha256:1: write /var/lib/containerd/io.containerd.snapshotter: no space left on device"
		node := sameAnswer(ends(codes.Unknown, text))
		node.answers[wireUpgrade] = ends(codes.Unknown, `error validating installer image "`+catalogueWant+`": `+text)

		for method, call := range pulls(node.client(t)) {
			only(cluster.ErrRefused, "no space left on device", catalogueWant).check(t, method, call(t.Context()))
		}
	})

	// Of an installer that was begun it tells nothing about what was written.
	synctest.Test(t, func(t *testing.T) {
		node := sameAnswer(ends(codes.Internal, "upgrade failed: task exited with error: no space left on device"))

		_, err := node.client(t).Install(t.Context(), catalogueNode, catalogueWant)
		if errors.Is(err, cluster.ErrRefused) || !cluster.Heals(err) {
			t.Errorf("install: %v, want it left open", err)
		}
	})
}
