// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// callError is a failed call and what it means.
type callError struct {
	what string
	// meanings are sentinels of package cluster; empty if none fits.
	meanings []error
	// detail is what was said and through which endpoint; it is made of said and through if both are known.
	detail        string
	said, through string
	cause         error
	// elsewhere is true if another endpoint may be tried.
	elsewhere bool
	// forwarding is true if the endpoint does not forward calls.
	forwarding bool
	// silent is true if the request was sent and no answer came in time.
	silent bool
	// severed is true if the connection broke after the request was sent.
	severed bool
	// undialed is why the endpoint could not be connected to; empty if it could.
	undialed string
	// silence is set if no endpoint could be connected to.
	silence *SilenceError
}

// SilenceError means that no endpoint of the talosconfig could be connected to.
type SilenceError struct {
	// of describes the context of the talosconfig; empty without one.
	of string
	// reasons has each endpoint once, with what happened.
	reasons []string
}

// Error names every endpoint with its reason.
func (e *SilenceError) Error() string {
	nobody := "no endpoint"
	if e.of != "" {
		nobody += " of " + e.of
	}

	return nobody + " answered: " + strings.Join(e.reasons, "; ")
}

// silenceOf returns the error of a call that reached no endpoint; nil if it reached one.
func (c *Client) silenceOf(failures []*callError) *SilenceError {
	made, reasons := &SilenceError{}, map[string]string{}

	for _, failure := range failures {
		if failure.undialed == "" {
			return nil
		}

		reasons[failure.through] = failure.undialed
	}

	if c.config.Context() != "" {
		made.of = c.config.String()
	}

	for _, tried := range c.endpoints {
		if reason := reasons[tried.name]; reason != "" {
			made.reasons = append(made.reasons, tried.name+" "+reason)
		}
	}

	return made
}

var (
	// connecting matches gRPC's text for a connection that could not be made.
	connecting = regexp.MustCompile(`connection error: desc = "((?:[^"\\]|\\.)*)"`)
	// dialing matches Go's text for an address that could not be connected to or looked up.
	dialing = regexp.MustCompile(`dial tcp(?: ([^ ]+)|): (?:connect: |lookup ([^ :]+)(?: on [^ ]+)?: )?`)
)

// plain returns the text of a failed call without what is only of interest to developers of gRPC.
func plain(text string) string {
	if strings.Contains(text, "produced zero addresses") {
		return "no such host"
	}

	return cluster.Plain(connecting.ReplaceAllStringFunc(text, func(found string) string {
		inner := connecting.FindStringSubmatch(found)[1]
		inner = strings.TrimPrefix(strings.TrimPrefix(inner, "transport: "), "Error while dialing: ")

		return dialing.ReplaceAllString(inner, "$1$2: ")
	}))
}

// undialed returns in a few words why an endpoint could not be connected to.
func undialed(text string) string {
	reason := plain(text)
	dialled := strings.Contains(text, "Error while dialing")

	if index := strings.LastIndex(reason, ": "); dialled && index >= 0 {
		reason = reason[index+len(": "):]
	}

	switch {
	case reason == cluster.Plain(context.DeadlineExceeded.Error()):
		return "i/o timeout"
	case !dialled && strings.HasSuffix(reason, "EOF"):
		return "hung up"
	default:
		return reason
	}
}

func (e *callError) Error() string {
	if e.silence != nil {
		return "unable to " + e.what + ": " + e.silence.Error()
	}

	parts := []string{"unable to " + e.what}
	for _, meaning := range e.meanings {
		parts = append(parts, meaning.Error())
	}

	return strings.Join(append(parts, e.detail), ": ")
}

// Unwrap returns the meanings and the cause, which may be the error of the caller's own context.
func (e *callError) Unwrap() []error {
	all := slices.Clone(e.meanings)

	if e.silence != nil {
		all = append(all, e.silence)
	}

	if e.cause != nil {
		all = append(all, e.cause)
	}

	return all
}

// wordsOf returns the text of a failed call, for people. The operation has a timeout only if that is what ended the
// call; otherwise the deadline was that of a call that the node itself made.
func wordsOf(op operation, text string) string {
	if op.timeout > 0 && text == context.DeadlineExceeded.Error() {
		return cluster.Unanswered(op.timeout).Error()
	}

	return plain(text)
}

// explain gives an error of gRPC its meaning.
func (c *Client) explain(ctx context.Context, op operation, through *endpoint, sent bool, err error) *callError {
	code, text := status.Code(err), err.Error()
	if converted, ok := status.FromError(err); ok {
		text = converted.Message()
	}

	// Talos passes on errors of its own calls as gRPC prints them.
	text = regexp.MustCompile(`rpc error: code = \w+ desc = `).ReplaceAllString(text, "")

	failure := &callError{what: op.what, said: wordsOf(op, text), through: through.name, cause: err}
	defer func() {
		if failure.said != "" {
			failure.detail = failure.said + throughEndpoints(failure.through)
		}
	}()

	switch {
	case op.mutates && (refuses(text) || unpullable(text)):
		// The node answered, whatever the code is and whether or not the caller still waits.
		failure.meanings = meaningOfText(op, text)
	case ctx.Err() != nil:
		failure.cause = cluster.Ended(ctx)
		failure.said = failure.cause.Error()
		failure.meanings = interrupted(ctx, op, sent)
	case code == codes.Unavailable && c.foreign(ctx, op, through, sent, text, failure):
	case !sent && code == codes.Unavailable && c.doubtsCredentials(text):
		c.explainCredentials(text, failure)
	case code == codes.PermissionDenied && strings.Contains(text, "no request forwarding"):
		failure.meanings = []error{cluster.ErrDenied}
		failure.said = ""
		failure.detail = "endpoint " + through.name + " does not forward calls to other nodes, it is a worker: endpoints must be control planes"
		failure.elsewhere, failure.forwarding = true, true
	case isLost(code, err) && !saysEtcd(text):
		failure.meanings = lost(op, sent, text)
		failure.elsewhere = !op.mutates || undelivered(sent, text)
		// After a deadline it is worth checking whether the endpoint is alive; after an answer it is not.
		failure.silent = sent && code == codes.DeadlineExceeded
		failure.severed = sent && code == codes.Unavailable && !undelivered(sent, text)

		if !sent && code == codes.Unavailable {
			failure.undialed = undialed(text)
		}

		failure.elsewhere = failure.elsewhere && !failure.silent
	default:
		failure.meanings = meaning(op, code, text)
		// For a question about the whole cluster, another endpoint may know more: a worker has no kubeconfig, and a
		// booting machine has no resources yet.
		failure.elsewhere = op.node == "" && (code == codes.Unimplemented || code == codes.NotFound)
	}

	return failure
}

// doubtsCredentials reports whether certificates may be why there is no connection.
func (c *Client) doubtsCredentials(text string) bool {
	return rejectsCredentials(text) || c.config.certificate.validity(time.Now()) != ""
}

// explainCredentials gives its meaning to a failure for which certificates may be the reason.
func (c *Client) explainCredentials(text string, failure *callError) {
	failure.meanings = []error{cluster.ErrCredentials}
	if c.clockDiffers(text) {
		failure.meanings = []error{cluster.ErrUnreachable}
	}

	failure.said = c.credentialHint(text)
	failure.elsewhere = true
}

// unissued reports whether a connection ended because the CA of the cluster did not issue the certificate of the
// other side. A node may say the same about a registry, but in other words.
func unissued(text string) bool {
	return strings.HasPrefix(text, `connection error: desc = "transport: authentication handshake failed: `) &&
		strings.Contains(text, "x509: certificate signed by unknown authority")
}

// foreign gives a failure its meaning, and reports true, if what answers in place of a node or an endpoint has no
// certificate of the cluster. An endpoint does not pass on the certificate of the node that it called, so this
// machine connects to the node to look at it. If it cannot, another machine may also have the address of the node.
func (c *Client) foreign(ctx context.Context, op operation, through *endpoint, sent bool, text string, failure *callError) bool {
	switch {
	case !unissued(text), sent && op.node == "":
		return false
	case sent && c.inMaintenance(ctx, net.JoinHostPort(op.node, strconv.Itoa(constants.ApidPort))):
		failure.said = "it is Talos in maintenance mode"
	case sent:
		failure.said = "it is Talos in maintenance mode, or another machine has this address"
	case !c.inMaintenance(ctx, through.address):
		return false
	default:
		failure.said = "the endpoint is in maintenance mode"
	}

	failure.meanings = []error{cluster.ErrUnreachable}
	failure.elsewhere = true

	// If there are other endpoints, one in maintenance mode says nothing about another node.
	if sent || op.node == "" || op.node == through.host || len(c.endpoints) == 1 {
		failure.meanings = append(failure.meanings, cluster.ErrForeign)
	}

	return true
}

// lookTimeout bounds reading a certificate.
const lookTimeout = 2 * time.Second

// inMaintenance reports whether an address ("host:port") presents a certificate of the maintenance service. No
// credentials or other data are sent.
func (c *Client) inMaintenance(ctx context.Context, address string) bool {
	bounded, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()

	conn, err := c.dial(bounded, address)
	if err != nil {
		return false
	}
	defer conn.Close()

	seen := false
	// The certificate is not verified: an impostor could only end a run, which it could as well by not answering.
	_ = tls.Client(conn, &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection: func(state tls.ConnectionState) error {
			seen = state.PeerCertificates[0].Subject.CommonName == constants.MaintenanceServiceCommonName

			return errLookedAt
		},
	}).HandshakeContext(bounded)

	return seen
}

// errLookedAt ends a handshake that was made only to see the certificate.
var errLookedAt = errors.New("looked at")

// interrupted returns the meanings of an error that the caller's own context caused.
func interrupted(ctx context.Context, op operation, sent bool) []error {
	switch {
	case op.mutates && sent:
		return []error{cluster.ErrOutcomeUnknown, cluster.ErrUnreachable}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return []error{cluster.ErrUnreachable}
	default:
		return nil
	}
}

// isLost reports whether no answer came, as opposed to an answer that says no.
func isLost(code codes.Code, err error) bool {
	return code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.Canceled || code == codes.Aborted ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

func lost(op operation, sent bool, text string) []error {
	if op.mutates && !undelivered(sent, text) {
		return []error{cluster.ErrOutcomeUnknown, cluster.ErrUnreachable}
	}

	return []error{cluster.ErrUnreachable}
}

// undelivered reports whether the node cannot have received the call: it never left this machine, the endpoint
// could not connect to the node, or the node could not even connect to its own container runtime. If gRPC moves a
// call from a broken connection to a new one, the error of the call is that of the new one.
func undelivered(sent bool, text string) bool {
	return !sent || containsAny(text,
		"Error while dialing", "authentication handshake failed", "error reading server preface", "error connecting to containerd")
}

// rejectsCredentials reports whether a certificate was rejected, as opposed to a connection that broke during the
// handshake: gRPC gives both the code of a rebooting node. If it reports false, a certificate may still have been
// rejected: in TLS 1.3 the rejection comes after the handshake, and a write may fail before it is read. That is why
// an expired certificate is taken for the reason of any failure to connect.
func rejectsCredentials(text string) bool {
	if !strings.Contains(text, "tls: ") && !strings.Contains(text, "x509: ") {
		return false
	}

	// A booting apid answers this way while it has no certificate yet.
	return !strings.Contains(text, "tls: internal error")
}

// aboutTime reports whether a certificate was rejected because of its validity period, by us or by the other side,
// which uses its own clock.
func aboutTime(text string) bool {
	return strings.Contains(text, "certificate has expired or is not yet valid") || strings.Contains(text, "tls: expired certificate")
}

// clockDiffers reports whether only a clock can be the reason: the credentials were accepted before, and are valid
// by our clock. A node that has just booted may have to wait for its time server.
func (c *Client) clockDiffers(text string) bool {
	return aboutTime(text) && c.proven.Load() && c.config.certificate.validity(time.Now()) == ""
}

// credentialHint returns in plain words why certificates were not accepted.
func (c *Client) credentialHint(text string) string {
	if invalid := c.config.certificate.validity(time.Now()); invalid != "" {
		return invalid + ": " + text
	}

	switch {
	case aboutTime(text):
		return "a clock is wrong, here or on the endpoint, or the endpoint's own certificate is out of date (talosctl time compares clocks): " + text
	case strings.Contains(text, "signed by unknown authority"):
		return "the certificate of the endpoint was not issued by the CA of the " + c.config.String() +
			", which belongs to another cluster or is out of date: " + text
	case strings.Contains(text, "remote error: tls: unknown certificate authority"), strings.Contains(text, "remote error: tls: bad certificate"):
		return "the cluster did not issue the client certificate of the " + c.config.String() + ": " + text
	default:
		return text
	}
}

// weightier reports whether a failure says more than the meanings kept so far. An endpoint that is down may return,
// so that waiting is worth it even if another one is a worker. Rejected credentials stay rejected, unless they were
// accepted before and have not expired since.
func (c *Client) weightier(failure *callError, kept []error) bool {
	weight := func(meanings []error) int {
		switch {
		case slices.Contains(meanings, cluster.ErrOutcomeUnknown):
			return 5
		case slices.Contains(meanings, cluster.ErrCredentials):
			if c.proven.Load() && c.config.certificate.validity(time.Now()) == "" {
				return 1
			}

			return 4
		case slices.Contains(meanings, cluster.ErrForeign):
			return 3
		case slices.Contains(meanings, cluster.ErrUnreachable):
			return 2
		default:
			return 0
		}
	}

	return weight(failure.meanings) > weight(kept)
}

// meaning returns the sentinels for an answer that says no; nil for an unknown answer. The effect of a call that
// changes something is not known then.
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
		// A configuration that was applied and waits for a reboot is temporary, too.
		if strings.Contains(text, "already in progress") || strings.Contains(text, "configuration was already applied") {
			return []error{cluster.ErrBusy}
		}

		return []error{cluster.ErrRefused}
	default:
		return meaningOfText(op, text)
	}
}

// unpullable reports whether a node will not pull an image however often it is asked: its registry denies access,
// the reference is not valid, the node verifies images and this one has no signature, or there is no space for it.
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

// refuses reports whether an answer is one that a node gives before it has changed anything. The code says little:
// if a deadline passed within the node, or etcd did not answer it, the code is that of a lost answer.
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

// beforeInstaller reports whether an install failed before its container was started (machined's lifecycle
// service). A task that failed to start, or that could not be waited for, may have run.
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

// lacksInstaller reports whether an install failed because the image lacks the installer program that a node runs,
// in the words of runc.
func lacksInstaller(text string) bool {
	return strings.HasPrefix(text, "upgrade failed: failed to create task: ") && strings.Contains(text, `exec: "/bin/installer": `)
}

func containsAny(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

// meaningOfText returns the sentinels for answers that Talos gives as plain errors, which gRPC turns into the code
// Unknown or Internal.
func meaningOfText(op operation, text string) []error {
	switch {
	case !op.mutates && (saysEtcd(text) || strings.Contains(text, "failed to create etcd client")):
		// The etcd of a node that is still starting.
		return []error{cluster.ErrUnreachable}
	case op.mutates && unpullable(text):
		return []error{cluster.ErrRefused}
	case strings.Contains(text, "pull") && strings.Contains(text, "not found") && !strings.Contains(text, "containerd store"):
		return []error{cluster.ErrNotFound}
	case op.mutates && strings.Contains(text, "update conflict"):
		// Two configurations at a time: Talos before 1.13.3 did not refuse the second.
		return []error{cluster.ErrBusy}
	case op.mutates && strings.Contains(text, "not found in containerd store"):
		return []error{cluster.ErrRefused, cluster.ErrNotPulled}
	case op.mutates && lacksInstaller(text):
		return []error{cluster.ErrRefused, cluster.ErrNoInstaller}
	case op.mutates && refuses(text):
		return []error{cluster.ErrRefused}
	default:
		return nil
	}
}

// saysEtcd reports whether the answer is one of etcd that Talos passed on.
func saysEtcd(text string) bool { return strings.Contains(text, "etcdserver: ") }

// keptProblems is how many problems of a refused configuration are passed on.
const keptProblems = 3

// problemCount matches the first line of a list of problems, which follow as bullets.
var problemCount = regexp.MustCompile(`[0-9]+ errors? occurred:\s*$`)

// withoutConfig returns the answer of a node to a configuration, without anything that may be part of it: a node
// appends the difference to its own configuration, secrets included, and quotes values. The gRPC error is replaced
// as a whole, so that the original text is not kept as the cause.
func withoutConfig(err error) error {
	answer, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}

	return status.Error(answer.Code(), withoutContent(answer.Message()))
}

func withoutContent(text string) string {
	text, _, _ = strings.Cut(text, "diff:")
	first, rest, _ := strings.Cut(text, "\n")
	kept := []string{first}

	if problemCount.MatchString(first) {
		for line := range strings.Lines(rest) {
			if problem, found := strings.CutPrefix(strings.TrimSpace(line), "* "); found && len(kept) <= keptProblems {
				kept = append(kept, problem)
			}
		}
	}

	plain := withoutQuotes(strings.TrimSpace(strings.Join(kept, " ")))

	// The beginning of a quotation that continues on a later line.
	if cut := strings.IndexAny(plain, "\"`"); cut >= 0 {
		plain = plain[:cut] + "a value"
	}

	return clip(plain)
}

func clip(text string) string { return shorten(text, keptLength) }

// shorten returns the first characters of a text, at most most of them.
func shorten(text string, most int) string {
	for i := range text {
		if most == 0 {
			return text[:i]
		}

		most--
	}

	return text
}
