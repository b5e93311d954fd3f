// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"cmp"
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// logLines is the largest number of lines of a log to ask for.
	logLines = 200
	// logLength is how many characters of a line are kept, logBytes how many bytes of all lines.
	logLength = 512
	logBytes  = 16 << 10
	// logStream is how many bytes of a log are read: a node keeps a mebibyte of each log, and one that ignores the
	// requested number of lines sends all of it.
	logStream = 2 << 20
	// machinedLog is the service that records the calls to the Talos API in its log, and logWhole asks for
	// everything that a node keeps of a log.
	machinedLog = "machined"
	logWhole    = -1
)

// recordedCall matches a line in which machined records a call to the Talos API. Up to 1.13 there are three for
// each call, two of which say who was allowed to make it; from 1.14 on there is one. In container mode each line
// has the time twice.
var recordedCall = regexp.MustCompile(`^(?:[\d/]+ [\d:.]+ )?machined(?:/authz/\S+ | (?:[\d/]+ [\d:.]+ )?\w+ \[/[\w.]+/\w+\] \S+ (?:unary|stream) )`)

// recordedLine matches what the container runtime writes in front of each line of a container.
var recordedLine = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\S+ (?:stdout|stderr) [FP] `)

// Logs returns the last lines of a service of a node, or of a container of a static pod ([cluster.ContainerLog]),
// oldest first, at most 200 lines and 16 KiB. Lines in which machined records calls to the Talos API are left out:
// this provider calls a node so often that little else would be left. If a log could not be read to its end, the
// lines read so far are returned with the error. [cluster.ErrNotFound] means that the service has not logged since
// the node's boot, or that the node does not have the container.
func (c *Client) Logs(ctx context.Context, address, service string, most int) ([]string, error) {
	if most = min(most, logLines); most <= 0 {
		return nil, nil
	}

	op := operation{what: "read the log of " + service + " on " + place(address), node: address, timeout: readTimeout}

	var output lines

	tail, skips := int32(most), (func(string) bool)(nil) //nolint:gosec // at most logLines
	if service == machinedLog {
		// It is not known in advance how far back the lines to keep reach.
		tail, skips = logWhole, recordedCall.MatchString
	}

	err := c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		// Another endpoint starts over.
		output = lines{most: most, longest: logLength, skips: skips}

		ctx, cancel := context.WithCancel(ctx)
		defer cancel()

		stream, err := api.MachineClient.Logs(ctx, logRequest(service, tail))
		if err == nil {
			err = readLog(stream, &output)
		}

		return namedLog(err)
	})

	text := output.last()
	for i := range text {
		text[i] = strings.TrimPrefix(text[i], recordedLine.FindString(text[i]))
	}

	return lastBytes(text, logBytes), err
}

// logRequest returns the request for a log. Only the names of containers contain a slash.
func logRequest(service string, lines int32) *machineapi.LogsRequest {
	if strings.Contains(service, "/") {
		return &machineapi.LogsRequest{Namespace: constants.K8sContainerdNamespace, Driver: common.ContainerDriver_CRI, Id: service, TailLines: lines}
	}

	return &machineapi.LogsRequest{
		Namespace: constants.SystemContainerdNamespace, Driver: common.ContainerDriver_CONTAINERD, Id: service, TailLines: lines,
	}
}

// dataStream is a stream of bytes from a node.
type dataStream interface {
	Recv() (*common.Data, error)
}

// readLog reads a log to its end, or until it is longer than any log that a node keeps.
func readLog(stream dataStream, output *lines) error {
	for read := 0; read < logStream; {
		data, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			return err
		}

		if trouble := data.GetMetadata().GetError(); trouble != "" { //nolint:staticcheck // how a proxy of Talos says that the stream broke
			return status.Error(codes.Unavailable, trouble)
		}

		read += len(data.GetBytes())
		output.write(string(data.GetBytes()))
	}

	return nil
}

// namedLog gives the answer of a node that has no such log the code NotFound, which it lacks.
func namedLog(err error) error {
	text := status.Convert(err).Message()
	if err != nil && (strings.Contains(text, "was not registered") || strings.HasPrefix(text, "container ") && strings.HasSuffix(text, "not found")) {
		return status.Error(codes.NotFound, text)
	}

	return err
}

// lastBytes returns as many of the last lines as fit into most bytes.
func lastBytes(text []string, most int) []string {
	first := len(text)
	for size := 0; first > 0; first-- {
		if size += len(text[first-1]); size > most {
			break
		}
	}

	return text[first:]
}

// The output of the installer is for an error message: its end matters, and a runaway installer must not fill the
// memory.
const (
	keptLines  = 20
	keptLength = 400
)

// lines joins the chunks of an output and keeps its last lines.
type lines struct {
	// most is how many lines are kept, longest how many characters of each; zero means [keptLines] and
	// [keptLength].
	most, longest int
	// skips reports whether a line is dropped; nil keeps all.
	skips func(line string) bool

	complete []string
	partial  string
}

func (l *lines) write(chunk string) {
	// A character has up to four bytes, and what is not text is removed later.
	room := 2 * utf8.UTFMax * cmp.Or(l.longest, keptLength)

	for {
		head, tail, found := strings.Cut(chunk, "\n")
		l.partial += head[:min(len(head), max(0, room-len(l.partial)))]

		if !found {
			return
		}

		l.finish()

		chunk = tail
	}
}

func (l *lines) finish() {
	text := shorten(legible(l.partial), cmp.Or(l.longest, keptLength))
	if text != "" && (l.skips == nil || !l.skips(text)) {
		l.complete = append(l.complete, text)
	}

	if excess := len(l.complete) - cmp.Or(l.most, keptLines); excess > 0 {
		l.complete = l.complete[excess:]
	}

	l.partial = ""
}

// last returns the kept lines, oldest first.
func (l *lines) last() []string {
	l.finish()

	return l.complete
}

// legible returns a line for a message: without the colours, cursor movements and titles of a terminal (ECMA-48),
// and with a mark in place of bytes that are not text.
func legible(line string) string {
	if strings.ContainsRune(line, '\x1b') {
		line = regexp.MustCompile(`\x1b(\[[\x30-\x3f]*[\x20-\x2f]*[\x40-\x7e]|\][^\x07\x1b]*(\x07|\x1b\\)?|[\x40-\x5a\x5c\x5e\x5f])`).ReplaceAllString(line, "")
	}

	line = strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return -1
		default:
			return r
		}
	}, strings.ToValidUTF8(line, string(utf8.RuneError)))

	return strings.TrimSpace(withoutSecrets(line))
}

// withoutSecrets removes from the URLs in a line what may be secret: the user, perhaps with a password, and the
// query.
func withoutSecrets(line string) string {
	if !strings.Contains(line, "://") {
		return line
	}

	line = regexp.MustCompile(`://[^/?#\s"']*@`).ReplaceAllString(line, "://...@")

	return regexp.MustCompile(`(://[^?#\s"']*)\?[^#\s"']*`).ReplaceAllString(line, "$1?...")
}
