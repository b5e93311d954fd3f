// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const handshake = `connection error: desc = "transport: authentication handshake failed: `

// The texts are those that Talos and gRPC give.
func TestExplain_NamesErrorsByMeaning(t *testing.T) {
	t.Parallel()

	read, change := operation{what: "look"}, operation{what: "change", mutates: true}
	unknown := []error{cluster.ErrOutcomeUnknown, cluster.ErrUnreachable}
	unreachable := []error{cluster.ErrUnreachable}

	for name, test := range map[string]struct {
		op   operation
		sent bool
		code codes.Code
		text string
		want []error
	}{
		"expired client certificate": {
			read, false, codes.Unavailable, `connection error: desc = "error reading server preface: remote error: tls: expired certificate"`,
			[]error{cluster.ErrCredentials},
		},
		"expired server certificate": {
			read, false, codes.Unavailable, handshake + `tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time"`,
			[]error{cluster.ErrCredentials},
		},
		"foreign CA": {
			change, false, codes.Unavailable, handshake + `tls: failed to verify certificate: x509: certificate signed by unknown authority"`,
			[]error{cluster.ErrCredentials},
		},
		"behind an endpoint, of no CA of the cluster": {
			operation{what: "look", node: "10.5.0.5"},
			true, codes.Unavailable,
			handshake + `tls: failed to verify certificate: x509: certificate signed by unknown authority"`,
			[]error{cluster.ErrUnreachable, cluster.ErrForeign},
		},
		"registry of no known CA": {
			operation{what: "pull", node: "10.5.0.5", mutates: true},
			true, codes.Unavailable,
			`failed to pull image "x": tls: failed to verify certificate: x509: certificate signed by unknown authority`, unknown,
		},
		"handshake cut off":          {read, false, codes.Unavailable, handshake + `EOF"`, unreachable},
		"certificate not ready":      {read, false, codes.Unavailable, handshake + `remote error: tls: internal error"`, unreachable},
		"trouble behind an endpoint": {read, true, codes.Unavailable, handshake + `tls: failed to verify certificate: x509: certificate has expired"`, unreachable},
		"refused connection":         {read, false, codes.Unavailable, `connection error: desc = "transport: Error while dialing: connect: connection refused"`, unreachable},
		"change, never sent":         {change, false, codes.Unavailable, `connection error: desc = "transport: Error while dialing: connect: connection refused"`, unreachable},
		"change, node unreachable":   {change, true, codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 10.5.0.5:50000: i/o timeout"`, unreachable},
		"change, no containerd":      {change, true, codes.Unavailable, "error connecting to containerd: no such file", unreachable},
		"change, connection broken":  {change, true, codes.Unavailable, "error reading from server: EOF", unknown},
		"change, no answer in time":  {change, true, codes.DeadlineExceeded, "context deadline exceeded", unknown},
		"change, cancelled by peer":  {change, true, codes.Canceled, "context canceled", unknown},
		"read, no answer in time":    {read, true, codes.DeadlineExceeded, "context deadline exceeded", unreachable},
		"keepalive refused":          {read, true, codes.Unavailable, "closing transport due to: ENHANCE_YOUR_CALM, debug data: too_many_pings", unreachable},
		"role missing":               {change, true, codes.PermissionDenied, "not authorized", []error{cluster.ErrDenied}},
		"unknown resource type":      {read, true, codes.PermissionDenied, `resource type "X" is not supported`, []error{cluster.ErrDenied}},
		"worker as endpoint":         {read, true, codes.PermissionDenied, "no request forwarding", []error{cluster.ErrDenied}},
		"call of a newer version":    {change, true, codes.Unimplemented, "unknown service machine.LifecycleService", []error{cluster.ErrUnsupported}},
		"etcd on a worker":           {read, true, codes.Unimplemented, "etcd API is only available on control plane nodes", []error{cluster.ErrUnsupported}},
		"installer busy":             {change, true, codes.FailedPrecondition, "another installation/upgrade is already in progress", []error{cluster.ErrBusy}},
		"configuration busy":         {change, true, codes.FailedPrecondition, "another apply configuration is already in progress", []error{cluster.ErrBusy}},
		"configuration busy, legacy": {
			change, true, codes.Unknown, `resource MachineConfigs.config.talos.dev(config/v1alpha1) update conflict: expected version "3", actual version "4"`,
			[]error{cluster.ErrBusy},
		},
		"container mode":             {change, true, codes.FailedPrecondition, "method is not supported in container mode", []error{cluster.ErrRefused}},
		"bad argument":               {change, true, codes.InvalidArgument, "installer image name is required", []error{cluster.ErrRefused}},
		"missing image":              {change, true, codes.NotFound, "error pulling image: not found", []error{cluster.ErrNotFound}},
		"missing image, legacy pull": {change, true, codes.Unknown, `failed to pull image "x": failed to resolve reference "x": x: not found`, []error{cluster.ErrNotFound}},
		"missing image, legacy upgrade": {
			change, true, codes.Unknown, `error validating installer image "x": failed to pull image "x": failed to resolve reference: x: not found`,
			[]error{cluster.ErrNotFound},
		},
		"broken image, legacy": {change, true, codes.Unknown, `error validating installer image "x": exit code 1`, []error{cluster.ErrRefused}},
		"two members, legacy": {
			change, true, codes.Unknown, "error validating etcd for upgrade: etcd member count(2) is insufficient to maintain quorum if upgrade commences",
			[]error{cluster.ErrRefused},
		},
		"mutex, legacy": {change, true, codes.Unknown, "failed to acquire upgrade mutex: error trying to lock etcd upgrade mutex: mutex: Locked by another session", []error{cluster.ErrRefused}},
		"mutex, legacy, out of time": {
			change, true, codes.DeadlineExceeded, "failed to acquire upgrade mutex: error establishing etcd concurrency session: context deadline exceeded",
			[]error{cluster.ErrRefused},
		},
		"etcd without a leader, legacy": {
			change, true, codes.Unavailable, "failed to acquire upgrade mutex: error trying to lock etcd upgrade mutex: etcdserver: no leader", []error{cluster.ErrRefused},
		},
		"member not healthy, legacy": {
			change, true, codes.DeadlineExceeded,
			"error validating etcd for upgrade: etcd member 00000000000004d2 is not healthy; all members must be healthy to perform an upgrade: context deadline exceeded",
			[]error{cluster.ErrRefused},
		},
		"no etcd client, legacy": {
			change, true, codes.DeadlineExceeded, "failed to create etcd client: error building etcd client: context deadline exceeded", []error{cluster.ErrRefused},
		},
		"registry silent, legacy upgrade": {
			change, true, codes.DeadlineExceeded, `error validating installer image "x": failed to pull image "x": dial tcp 1.2.3.4:443: i/o timeout`,
			[]error{cluster.ErrRefused},
		},
		"containerd of the node down, legacy upgrade": {
			change, true, codes.Unavailable,
			`error validating installer image "x": connection error: desc = "transport: Error while dialing: dial unix /system/run/containerd/containerd.sock: connect: connection refused"`,
			[]error{cluster.ErrRefused},
		},
		"missing image, legacy upgrade, cut off": {
			change, true, codes.Unavailable, `error validating installer image "x": failed to pull image "x": x: not found`, []error{cluster.ErrNotFound},
		},
		"no containerd for the installer": {
			change, true, codes.Internal, `upgrade failed: rpc error: code = Unavailable desc = error connecting to containerd: failed to dial "/run/containerd/containerd.sock": context deadline exceeded`,
			[]error{cluster.ErrRefused},
		},
		"no options for the installer":    {change, true, codes.Internal, "upgrade failed: failed to apply install options: boom", []error{cluster.ErrRefused}},
		"no lease for the installer":      {change, true, codes.Internal, "upgrade failed: failed to create lease: connection refused", []error{cluster.ErrRefused}},
		"no name for the installer":       {change, true, codes.Internal, "upgrade failed: failed to generate container ID: boom", []error{cluster.ErrRefused}},
		"no container for the installer":  {change, true, codes.Internal, "upgrade failed: failed to create container: no space left on device", []error{cluster.ErrRefused}},
		"no configuration for it":         {change, true, codes.Internal, "upgrade failed: failed to serialize config: boom", []error{cluster.ErrRefused}},
		"no task for the installer":       {change, true, codes.Internal, "upgrade failed: failed to create task: runc create failed", []error{cluster.ErrRefused}},
		"no system disk":                  {change, true, codes.Internal, "system disk not found", []error{cluster.ErrRefused}},
		"system disk not read":            {change, true, codes.Internal, "failed to get system disk: context deadline exceeded", []error{cluster.ErrRefused}},
		"installer perhaps not started":   {change, true, codes.Internal, "upgrade failed: failed to start task: context canceled", nil},
		"installer not recorded":          {change, true, codes.Internal, "upgrade failed: failed to record installer PID: boom", nil},
		"installer not waited for":        {change, true, codes.Internal, "upgrade failed: failed to wait for task: boom", nil},
		"installer's code not sent":       {change, true, codes.Internal, "upgrade failed: failed to send exit code: boom", nil},
		"a step in other words":           {change, true, codes.Internal, "upgrade failed: task exited with error: failed to create task: boom", nil},
		"registry wants somebody else":    {change, true, codes.Unknown, `failed to pull image "x": failed to authorize: failed to fetch anonymous token: 401 Unauthorized`, []error{cluster.ErrRefused}},
		"registry wants nobody":           {change, true, codes.Unknown, `failed to pull image "x": unexpected status from HEAD request to https://r/v2/x: 403 Forbidden`, []error{cluster.ErrRefused}},
		"registry tells no difference":    {change, true, codes.Unknown, `failed to pull image "x": pull access denied, repository does not exist or may require authorization`, []error{cluster.ErrRefused}},
		"reference that is none":          {change, true, codes.Unknown, `failed to parse image reference "X": invalid reference format: repository name must be lowercase`, []error{cluster.ErrRefused}},
		"registry has had enough":         {change, true, codes.Unknown, `failed to pull image "x": unexpected status from HEAD request: 429 Too Many Requests`, nil},
		"registry has had enough, signed": {change, true, codes.Unknown, `image verification failed: unexpected status from GET request: 429 Too Many Requests`, nil},
		"image dropped before use":        {change, true, codes.Internal, `upgrade failed: installer image "x" not found in containerd store: x`, []error{cluster.ErrRefused, cluster.ErrNotPulled}},
		"no program in its image": {
			change, true, codes.Internal, "upgrade failed: failed to create task: failed to create shim task: OCI runtime create failed: runc create failed: " +
				`unable to start container process: error during container init: exec: "/bin/installer": stat /bin/installer: no such file or directory`,
			[]error{cluster.ErrRefused, cluster.ErrNoInstaller},
		},
		"installer died":              {change, true, codes.Internal, "upgrade failed: task exited with error", nil},
		"registry down":               {change, true, codes.Unknown, `failed to pull image "x": 503 Service Unavailable`, nil},
		"no leader":                   {read, true, codes.Unavailable, "etcdserver: no leader", []error{cluster.ErrQuorum}},
		"no leader, from a change":    {change, true, codes.Unavailable, "etcdserver: no leader", []error{cluster.ErrQuorum}},
		"etcd changing its leader":    {read, true, codes.Unavailable, "etcdserver: leader changed", unreachable},
		"etcd not up yet":             {read, true, codes.Unknown, "failed to create etcd client: error building etcd client: context deadline exceeded", unreachable},
		"only one member to lead":     {change, true, codes.Unknown, "cannot forfeit leadership, only one member", []error{cluster.ErrRefused}},
		"something nobody knows":      {change, true, codes.Internal, "boom", nil},
		"credentials of another kind": {read, true, codes.Unauthenticated, "no", []error{cluster.ErrCredentials}},
	} {
		c := &Client{config: Config{certificate: Certificate{notAfter: time.Now().Add(time.Hour)}}, dial: nowhere}

		got := c.explain(context.Background(), test.op, &endpoint{name: "10.5.0.2"}, test.sent, status.Error(test.code, test.text))
		if !slices.Equal(got.meanings, test.want) {
			t.Errorf("%s: %v, want %v", name, got.meanings, test.want)
		}

		if strings.Contains(got.Error(), "rpc error") {
			t.Errorf("%s: the text is gRPC's own: %s", name, got)
		}
	}
}

func nowhere(context.Context, string) (net.Conn, error) { return nil, errors.New("no route to host") }

func TestExplain_TreatsAStreamWithoutAnEndAsLost(t *testing.T) {
	t.Parallel()

	c := &Client{config: Config{certificate: Certificate{notAfter: time.Now().Add(time.Hour)}}}

	for _, cut := range []error{io.EOF, io.ErrUnexpectedEOF} {
		got := c.explain(context.Background(), operation{mutates: true}, &endpoint{}, true, cut)
		if !errors.Is(got, cluster.ErrOutcomeUnknown) {
			t.Errorf("%v: %v, want the outcome to be unknown", cut, got)
		}
	}
}

func TestExplain_TellsTheCallersOwnEndFromTheNodes(t *testing.T) {
	t.Parallel()

	reason := errors.New("the run was stopped")

	cancelled, cancel := context.WithCancelCause(context.Background())
	cancel(reason)

	c, through := &Client{}, &endpoint{}
	broken := status.Error(codes.Canceled, "context canceled")

	if got := c.explain(cancelled, operation{}, through, true, broken); !errors.Is(got, reason) || errors.Is(got, cluster.ErrUnreachable) {
		t.Errorf("a read that was cancelled: %v, want only the reason", got)
	}

	if got := c.explain(cancelled, operation{mutates: true}, through, false, broken); !errors.Is(got, reason) || errors.Is(got, cluster.ErrOutcomeUnknown) {
		t.Errorf("a change that was cancelled before it was sent: %v, want only the reason", got)
	}

	if got := c.explain(cancelled, operation{mutates: true}, through, true, broken); !errors.Is(got, reason) || !errors.Is(got, cluster.ErrOutcomeUnknown) {
		t.Errorf("a change that was cancelled while it ran: %v, want reason and unknown outcome", got)
	}
}

// TestExplain_WordsTheEndOfACall: the error quotes neither Go nor gRPC, whoever ended the call.
func TestExplain_WordsTheEndOfACall(t *testing.T) {
	t.Parallel()

	cancelled, cancel := context.WithCancel(context.Background())
	cancel()

	bounded, over := context.WithTimeoutCause(context.Background(), 0, cluster.Unanswered(time.Minute))
	defer over()

	c := &Client{config: Config{certificate: Certificate{notAfter: time.Now().Add(time.Hour)}}}
	late := status.Error(codes.DeadlineExceeded, "context deadline exceeded")

	for want, test := range map[string]struct {
		ctx    context.Context
		ended  error
		causes error
	}{
		"unable to look: unreachable: no answer within 10s (through endpoint 10.5.0.2)":  {context.Background(), late, cluster.ErrUnreachable},
		"unable to look: unreachable: no answer within 1m0s (through endpoint 10.5.0.2)": {bounded, late, context.DeadlineExceeded},
		"unable to look: it was interrupted (through endpoint 10.5.0.2)":                 {cancelled, status.Error(codes.Canceled, "context canceled"), context.Canceled},
		"unable to look: unreachable: failed to create etcd client: no answer in time (through endpoint 10.5.0.2)": {
			context.Background(), status.Error(codes.Unknown, "failed to create etcd client: context deadline exceeded"), cluster.ErrUnreachable,
		},
	} {
		got := c.explain(test.ctx, operation{what: "look", timeout: 10 * time.Second}, &endpoint{name: "10.5.0.2"}, true, test.ended)
		if got.Error() != want || !errors.Is(got, test.causes) {
			t.Errorf("got %q, want %q and %v behind it", got, want, test.causes)
		}
	}
}

func TestExplain_SaysSinceWhenACertificateIsExpired(t *testing.T) {
	t.Parallel()

	expiry := time.Now().Add(-time.Hour)
	c := &Client{config: Config{certificate: Certificate{notAfter: expiry}}}

	for _, text := range []string{"remote error: tls: expired certificate", "write tcp 127.0.0.1: write: broken pipe"} {
		got := c.explain(context.Background(), operation{what: "look"}, &endpoint{name: "10.5.0.2"}, false, status.Error(codes.Unavailable, text))

		if want := "expired on " + expiry.UTC().Format(time.RFC3339); !errors.Is(got, cluster.ErrCredentials) || !strings.Contains(got.Error(), want) {
			t.Errorf("%v, want refused credentials and %q", got, want)
		}
	}
}

// TestCombine_SaysOnceWhatAllEndpointsSay: an expired certificate is one reason,
// however many endpoints there are.
func TestCombine_SaysOnceWhatAllEndpointsSay(t *testing.T) {
	t.Parallel()

	expiry := time.Date(2026, time.March, 4, 5, 6, 7, 0, time.UTC)
	c := &Client{config: Config{certificate: Certificate{notAfter: expiry}}}
	op := operation{what: "list Members of the cluster"}

	var failures []*callError

	for _, name := range []string{"10.5.0.2", "10.5.0.3", "10.5.0.4"} {
		failures = append(failures, c.explain(context.Background(), op, &endpoint{name: name}, false, status.Error(codes.Unavailable, "remote error: tls: expired certificate")))
	}

	const want = "unable to list Members of the cluster: credentials not accepted: the client certificate expired on 2026-03-04T05:06:07Z: " +
		"remote error: tls: expired certificate (through endpoints 10.5.0.2, 10.5.0.3, 10.5.0.4)"

	if got := c.combine(op, failures).Error(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestCombine_LetsTheEndpointThatMayReturnDecide(t *testing.T) {
	t.Parallel()

	down := &callError{meanings: []error{cluster.ErrUnreachable}, detail: "down"}
	worker := &callError{meanings: []error{cluster.ErrDenied}, detail: "worker", forwarding: true}
	foreign := &callError{meanings: []error{cluster.ErrCredentials}, detail: "foreign"}

	for name, test := range map[string]struct {
		failures []*callError
		proven   bool
		want     error
	}{
		"a worker and one that is down":            {[]*callError{worker, down}, false, cluster.ErrUnreachable},
		"only workers":                             {[]*callError{worker, worker}, false, cluster.ErrDenied},
		"refused credentials and one that is down": {[]*callError{down, foreign}, false, cluster.ErrCredentials},
		"credentials that worked before":           {[]*callError{foreign, down}, true, cluster.ErrUnreachable},
	} {
		c := &Client{config: Config{certificate: Certificate{notAfter: time.Now().Add(time.Hour)}}}
		c.proven.Store(test.proven)

		err := c.combine(operation{what: "look"}, test.failures)
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}

		for _, failure := range test.failures {
			if !strings.Contains(err.Error(), failure.detail) {
				t.Errorf("%s: %v leaves out %q", name, err, failure.detail)
			}
		}
	}
}

// TestExplain_EndpointsFailInPlainWords: what gRPC says about a failed connection does not help a person.
func TestExplain_EndpointsFailInPlainWords(t *testing.T) {
	for text, want := range map[string]string{
		dialRefused:  "connection refused",
		dialTimedOut: "i/o timeout",
		noRoute:      "no route to host",
		`connection error: desc = "transport: Error while dialing: dial tcp: lookup cp.example.com on 10.0.0.53:53: no such host"`: "no such host",
		`connection error: desc = "transport: Error while dialing: dial tcp 10.5.0.5:50000: context deadline exceeded"`:            "i/o timeout",
		`name resolver error: produced zero addresses`:                                                                             "no such host",
		`connection error: desc = "error reading server preface: EOF"`:                                                             "hung up",
		`connection error: desc = "transport: authentication handshake failed: EOF"`:                                               "hung up",
		`connection error: desc = "transport: authentication handshake failed: remote error: tls: internal error"`:                 "authentication handshake failed: remote error: tls: internal error",
		`connection error: desc = "transport: Error while dialing: dial tcp [2001:db8::1]:50000: connect: network is unreachable"`: "network is unreachable",
	} {
		if got := undialed(text); got != want {
			t.Errorf("%s is told as %q, want %q", text, got, want)
		}
	}

	for kind, want := range map[kind][2]string{
		kindMember():         {"member", "members"},
		kindBootID():         {"boot ID", "boot IDs"},
		kindIdentity():       {"identity", "identities"},
		kindMachineStatus():  {"machine status", "machine statuses"},
		kindAPIServer():      {"API server config", "API server configs"},
		kindImageSchematic(): {"image factory schematic", "image factory schematics"},
	} {
		if kind.one() != want[0] || kind.all() != want[1] {
			t.Errorf("%s is %q, and several are %q", kind.name, kind.one(), kind.all())
		}
	}
}
