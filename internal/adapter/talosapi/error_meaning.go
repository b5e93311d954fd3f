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
// its registry does not let it in, the reference is none, the node verifies
// images and has no signature for this one, or there is no room for it.
func unpullable(text string) bool {
	if strings.Contains(text, "429 Too Many Requests") {
		return false
	}

	if strings.Contains(text, "verification denied by matched rule") || strings.Contains(text, "image verification failed: ") ||
		strings.Contains(text, "failed to parse image reference") {
		return true
	}

	return strings.Contains(text, "failed to pull image") && containsAny(text,
		"no space left on device", "401 Unauthorized", "403 Forbidden", "pull access denied", "authorization failed")
}

// refuses tells an answer that a node gives before it has changed anything. Its
// code says little: a deadline that passed within the node, or an etcd that it
// asked, gives it the code of an answer that was lost.
func refuses(text string) bool {
	return beforeInstaller(text) || containsAny(text,
		"error validating installer image",
		"error validating etcd for upgrade",
		"failed to acquire upgrade mutex",
		"failed to create etcd client",
		"not found in containerd store",
		"only one member",
	)
}

// beforeInstaller tells an install that failed before its container was started
// (machined's lifecycle service). A task that could not be started, or that
// nobody could wait for, may have run.
func beforeInstaller(text string) bool {
	if strings.HasPrefix(text, "failed to get system disk: ") || text == "system disk not found" {
		return true
	}

	failed, found := strings.CutPrefix(text, "upgrade failed: ")

	return found && slices.ContainsFunc([]string{
		"failed to apply install options: ",
		"error connecting to containerd: ",
		"failed to create lease: ",
		"failed to generate container ID: ",
		"failed to create container: ",
		"failed to serialize config: ",
		"failed to create task: ",
	}, func(step string) bool { return strings.HasPrefix(failed, step) })
}

func containsAny(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
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
