// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

var errNotAuthorized = status.Error(codes.PermissionDenied, "not authorized")

// allowed returns the roles that may call a method.
func allowed(method string) role.Set {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")

	switch service {
	case "machine.MachineService":
		return allowedMachine(name)
	case "machine.ImageService":
		return map[string]role.Set{"List": everyone(), "Verify": everyone(), "Pull": operators(), "Remove": admins()}[name]
	case "cosi.resource.State":
		return map[string]role.Set{
			"Get": everyone(), "List": everyone(), "Watch": everyone(),
			"Create": admins(), "Update": admins(), "Destroy": admins(),
			"Teardown": admins(), "TeardownAndDestroy": admins(),
		}[name]
	case "cluster.ClusterService":
		return everyone()
	default:
		return admins()
	}
}

func allowedMachine(name string) role.Set {
	switch name {
	case "EtcdAlarmList", "EtcdMemberList", "EtcdStatus":
		return role.MakeSet(role.Admin, role.Operator, role.Reader, role.EtcdBackup)
	case "EtcdSnapshot":
		return role.MakeSet(role.Admin, role.Operator, role.EtcdBackup)
	case "EtcdAlarmDisarm", "EtcdDefragment", "ImagePull", "PacketCapture", "Reboot", "Restart",
		"ServiceRestart", "ServiceStart", "ServiceStop", "Shutdown":
		return operators()
	case "Containers", "CPUInfo", "CPUFreqStats", "DiskStats", "DiskUsage", "Dmesg", "Events", "Hostname",
		"ImageList", "List", "LoadAvg", "Logs", "LogsContainers", "Memory", "Mounts", "NetworkDeviceStats",
		"Netstat", "Processes", "ServiceList", "Stats", "SystemStat", "Version", "ApplyConfiguration":
		return everyone()
	case "MetaWrite", "MetaDelete":
		return role.MakeSet(role.Admin, role.MetaWriter)
	default:
		return admins()
	}
}

func admins() role.Set    { return role.MakeSet(role.Admin) }
func operators() role.Set { return role.MakeSet(role.Admin, role.Operator) }
func everyone() role.Set  { return role.MakeSet(role.Admin, role.Operator, role.Reader) }

// rolesOf returns the caller's roles as the endpoint found them in its certificate.
func rolesOf(ctx context.Context) role.Set {
	values := metadata.ValueFromIncomingContext(ctx, constants.APIAuthzRoleMetadataKey)
	roles, _ := role.Parse(values)

	return roles
}

func authorize(ctx context.Context, method string) error {
	if !rolesOf(ctx).IncludesAny(allowed(method)) {
		return errNotAuthorized
	}

	return nil
}

// strongest returns the role of a certificate that allows most.
func strongest(roles role.Set) string {
	for _, candidate := range []role.Role{role.Admin, role.Operator, role.Reader} {
		if roles.Includes(candidate) {
			return string(candidate)
		}
	}

	return strings.Join(roles.Strings(), ",")
}

// mutating reports whether a method changes a machine.
func mutating(method string) bool {
	_, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")

	switch name {
	case "ApplyConfiguration", "Bootstrap", "EtcdAlarmDisarm", "EtcdDefragment", "EtcdForfeitLeadership", "EtcdLeaveCluster",
		"EtcdRecover", "EtcdRemoveMemberByID", "EtcdDowngradeEnable", "EtcdDowngradeCancel", "ImagePull", "Import", "Install",
		"MetaDelete", "MetaWrite", "Pull", "Reboot", "Remove", "Reset", "Restart", "Rollback", "ServiceRestart",
		"ServiceStart", "ServiceStop", "Shutdown", "Upgrade", "Create", "Update", "Destroy", "Teardown", "TeardownAndDestroy":
		return true
	default:
		return false
	}
}

// gate authorizes and records every call to a machine's services.
type gate struct {
	node     string
	recorder history.Recorder
	called   func(node, method, code string)
	sync     func(ctx context.Context) error // nil without other faces
}

const syncTimeout = 2 * time.Second

// admit lets a call in, after everything that ended before it came.
func (g gate) admit(ctx context.Context, method string) error {
	if err := authorize(ctx, method); err != nil {
		return err
	}

	if g.sync != nil && mutating(method) {
		ctx, cancel := context.WithTimeout(ctx, syncTimeout)
		defer cancel()

		_ = g.sync(ctx)
	}

	return nil
}

func (g gate) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if err := g.admit(ctx, info.FullMethod); err != nil {
		g.record(ctx, info.FullMethod, err)

		return nil, err
	}

	response, err := handle(ctx, request)
	g.record(ctx, info.FullMethod, err)

	return response, err
}

func (g gate) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	err := g.admit(stream.Context(), info.FullMethod)
	if err == nil {
		err = handle(server, stream)
	}

	g.record(stream.Context(), info.FullMethod, err)

	return err
}

func (g gate) record(ctx context.Context, method string, err error) {
	code := status.Code(err).String()

	g.recorder.Record(g.node, history.KindRPC, map[string]string{
		"method": method, "role": strongest(rolesOf(ctx)), "code": code, "mutating": strconv.FormatBool(mutating(method)),
	})
	g.called(g.node, method, code)
}
