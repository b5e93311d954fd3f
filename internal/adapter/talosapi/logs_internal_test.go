// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// logFake is a node whose logs are what the test wants.
type logFake struct {
	nodeFake

	logs func(*machineapi.LogsRequest, grpc.ServerStreamingServer[common.Data]) error
}

func (l *logFake) Logs(request *machineapi.LogsRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	return l.logs(request, stream)
}

func bytesOf(text string) *common.Data { return &common.Data{Bytes: []byte(text)} }

func TestLogs_ReadTakesOnlyItsEndForAnEnd(t *testing.T) {
	t.Parallel()

	broken := errors.New("connection broken")
	proxied := &common.Data{Metadata: &common.Metadata{Error: "connection to the node broke"}} //nolint:staticcheck // how a proxy of Talos says so

	for name, test := range map[string]struct {
		answers []*common.Data
		end     error
		want    []string
		fails   bool
	}{
		"lines in pieces":  {[]*common.Data{bytesOf("one\ntw"), bytesOf("o\nthree")}, io.EOF, []string{"one", "two", "three"}, false},
		"a cut character":  {[]*common.Data{bytesOf("sm\xc3"), bytesOf("\xb8r\nbr\xff\xfed\n")}, io.EOF, []string{"smør", "br\ufffdd"}, false},
		"no text":          {[]*common.Data{bytesOf("\x1b[1;32mgreen\x1b[0m\tand\x00 \x1b]0;title\x07plain\r\n\u202eturned\n\n \n")}, io.EOF, []string{"green and plain", "turned"}, false},
		"broken":           {[]*common.Data{bytesOf("one\ntwo")}, broken, []string{"one", "two"}, true},
		"broken elsewhere": {[]*common.Data{bytesOf("one\n"), proxied}, io.EOF, []string{"one"}, true},
		"empty":            {nil, io.EOF, nil, false},
	} {
		output := lines{most: 5, longest: logLength}
		err := readLog(&script[*common.Data]{test.answers, test.end}, &output)

		if got := output.last(); !slices.Equal(got, test.want) || (err != nil) != test.fails {
			t.Errorf("%s: %q, %v; want %q", name, got, err, test.want)
		}
	}
}

// TestLogs_RecordsOfCallsAreToldFromWhatMachinedDoes uses lines as machined 1.13.9 and 1.14.1 write them.
func TestLogs_RecordsOfCallsAreToldFromWhatMachinedDoes(t *testing.T) {
	t.Parallel()

	records := []string{
		`2026/10/01 17:00:19.523686 machined OK [/cosi.resource.State/Get] 154.451µs unary Success (:authority=localhost;content-type=application/grpc)`,
		`2026/10/01 17:00:19.523686 machined OK [/cosi.resource.State/Get] 154.451µs unary Success {authorized based on PID (366) match with service "apid"} (:authority=l)`,
		`2026/10/01 17:00:19.523 machined Unavailable [/machine.MachineService/EtcdStatus] 10.0s stream error reading (user-agent=grpc-go)`,
		`2026/10/01 17:00:19.523686 machined/authz/unix/authorizer authorized based on PID (366) match with service "apid" (allowed roles [os:admin])`,
		`2026/10/01 17:00:19.523686 machined/authz/authorizer authorized ([os:admin os:reader] includes [os:admin])`,
		`machined OK [/machine.MachineService/Version] 98µs unary Success ()`,
		`2026/10/01 17:00:19.523686 machined 2026/10/01 17:00:19 OK [/cosi.resource.State/Get] 165.659µs unary Success (:authority=localhost)`,
		`2026/10/01 17:00:19.523686 machined/authz/authorizer 2026/10/01 17:00:19 authorized ([os:admin os:reader] includes [os:admin])`,
	}

	others := []string{
		`2026/10/01 17:00:19.523686 [talos] phase upgrade (3/11): done, 1.7ms`,
		`2026/10/01 17:00:19.523686 [talos] reboot via API received. actor id: 1, [/machine.MachineService/Reboot] 1s unary Success`,
		`2026/10/01 17:00:19.523686 machined panic: runtime error: index out of range`,
		`2026/10/01 17:00:19 machined/authz`,
	}

	for _, line := range slices.Concat(records, others) {
		if got, want := recordedCall.MatchString(line), slices.Contains(records, line); got != want {
			t.Errorf("%s: %t", line, got)
		}
	}
}

func TestLogs_ReadIsBounded(t *testing.T) {
	t.Parallel()

	var answers []*common.Data
	for range (3 * logStream) >> 16 {
		answers = append(answers, bytesOf(strings.Repeat(strings.Repeat("x", 1023)+"\n", 64)))
	}

	output := lines{most: logLines, longest: logLength}
	stream := &script[*common.Data]{answers, errors.New("read to its end")}

	if err := readLog(stream, &output); err != nil {
		t.Fatal(err)
	}

	kept := output.last()
	if len(kept) != logLines || len(kept[0]) != logLength {
		t.Errorf("%d lines of %d bytes", len(kept), len(kept[0]))
	}

	kept = lastBytes(append(kept, "the end"), logBytes)
	if len(kept) != logBytes/logLength || kept[len(kept)-1] != "the end" {
		t.Errorf("%d lines of no more than %d bytes, the last is %q", len(kept), logBytes, kept[len(kept)-1])
	}
}

func TestLogs_StalledReadKeepsWhatCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &logFake{logs: func(request *machineapi.LogsRequest, stream grpc.ServerStreamingServer[common.Data]) error {
			if request.GetTailLines() != logLines || request.GetFollow() || request.GetNamespace() != "system" || request.GetDriver() != common.ContainerDriver_CONTAINERD {
				return status.Error(codes.InvalidArgument, request.String())
			}

			if err := stream.Send(bytesOf("one\ntwo\n")); err != nil {
				return err
			}

			<-stream.Context().Done()

			return stream.Context().Err()
		}}

		c := connect(t, fake)
		began := time.Now()

		got, err := c.Logs(t.Context(), "10.5.0.5", "kubelet", 1<<20)
		if !slices.Equal(got, []string{"one", "two"}) || !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrOutcomeUnknown) {
			t.Errorf("%q, %v", got, err)
		}

		if passed := time.Since(began); passed > 2*readTimeout {
			t.Errorf("it took %s", passed)
		}
	})
}
