// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// meaning names an answer that says no. Nil is for answers without a name: of
// a call that changes something, their effect is then not known.
func meaning(op operation, code codes.Code, text string) []error {
	if strings.Contains(text, "etcdserver: no leader") {
		return []error{cluster.ErrQuorum}
	}

	switch code {
	case codes.PermissionDenied:
		return []error{cluster.ErrDenied}
	case codes.Unauthenticated:
		return []error{cluster.ErrCredentials}
	case codes.Unimplemented:
		return []error{cluster.ErrUnsupported}
	case codes.NotFound:
		return []error{cluster.ErrNotFound}
	case codes.InvalidArgument:
		return []error{cluster.ErrRefused}
	case codes.FailedPrecondition:
		// A configuration that was applied and awaits a reboot passes, too.
		if strings.Contains(text, "already in progress") || strings.Contains(text, "configuration was already applied") {
			return []error{cluster.ErrBusy}
		}

		return []error{cluster.ErrRefused}
	default:
		return meaningOfText(op, text)
	}
}

// unpullable tells why a node will not pull an image however often it is asked:
// it verifies images and has no signature for this one, or there is no room for
// it. Talos itself does not try again after the former.
func unpullable(text string) bool {
	return strings.Contains(text, "verification denied by matched rule") || strings.Contains(text, "image verification failed: ") ||
		strings.Contains(text, "failed to pull image") && strings.Contains(text, "no space left on device")
}

// refuses tells an answer without a code of its own that a node gives before
// it has changed anything.
func refuses(text string) bool {
	return slices.ContainsFunc([]string{
		"error validating installer image",
		"error validating etcd for upgrade",
		"failed to acquire upgrade mutex",
		"failed to create etcd client",
		"not found in containerd store",
		"system disk not found",
		"only one member",
	}, func(refusal string) bool { return strings.Contains(text, refusal) })
}

// meaningOfText names answers that Talos gives as plain errors, which gRPC
// turns into the code Unknown, or Internal.
func meaningOfText(op operation, text string) []error {
	switch {
	case !op.mutates && (saysEtcd(text) || strings.Contains(text, "failed to create etcd client")):
		// etcd on a node that is still starting.
		return []error{cluster.ErrUnreachable}
	case op.mutates && unpullable(text):
		return []error{cluster.ErrRefused}
	case strings.Contains(text, "pull") && strings.Contains(text, "not found") && !strings.Contains(text, "containerd store"):
		return []error{cluster.ErrNotFound}
	case op.mutates && strings.Contains(text, "update conflict"):
		// Two configurations at a time, before Talos 1.13.3 refused the second.
		return []error{cluster.ErrBusy}
	case op.mutates && refuses(text):
		return []error{cluster.ErrRefused}
	default:
		return nil
	}
}

// saysEtcd tells that etcd answered, through Talos.
func saysEtcd(text string) bool { return strings.Contains(text, "etcdserver: ") }
