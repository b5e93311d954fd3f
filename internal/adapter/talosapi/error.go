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
	// meanings are sentinels of package cluster; empty for what has no name.
	meanings []error
	// detail is what was said, and through which endpoint: said and through, where
	// both are known.
	detail        string
	said, through string
	cause         error
	// elsewhere tells that another endpoint may be tried.
	elsewhere bool
	// forwarding tells that the endpoint does not forward calls.
	forwarding bool
	// silent tells that the request was sent and no answer came in time.
	silent bool
	// severed tells that the connection ended under the request.
	severed bool
	// undialed is why the endpoint could not be connected to; empty where it could.
	undialed string
	// silence is set where no endpoint could be.
	silence *SilenceError
}

// SilenceError tells that no endpoint of the talosconfig could be connected to.
type SilenceError struct {
	// of is the context of the talosconfig, as people call it; empty without one.
	of string
	// reasons are the endpoints, each once, with what came of them.
	reasons []string
}

// Error names every endpoint, with the reason.
func (e *SilenceError) Error() string {
	nobody := "no endpoint"
	if e.of != "" {
		nobody += " of " + e.of
	}

	return nobody + " answered: " + strings.Join(e.reasons, "; ")
}

// silenceOf is the error of a call that reached no endpoint; nil where it reached one.
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
	// connecting is how gRPC prints that a connection could not be made.
	connecting = regexp.MustCompile(`connection error: desc = "((?:[^"\\]|\\.)*)"`)
	// dialing is how Go prints that an address could not be connected to, or looked up.
	dialing = regexp.MustCompile(`dial tcp(?: ([^ ]+)|): (?:connect: |lookup ([^ :]+)(?: on [^ ]+)?: )?`)
)

// plain is the text of a failed call without what only developers of gRPC look for.
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

// undialed is why an endpoint could not be connected to, in a few words.
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

// Unwrap gives the meanings and the cause, which may be the caller's own
// context.
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

// wordsOf is the text of a failed call, for people. The operation has a timeout if that was
// what ended the call: a node may have run out of time with a call of its own before that.
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

	// Talos hands on errors of its own calls as gRPC prints them.
	text = regexp.MustCompile(`rpc error: code = \w+ desc = `).ReplaceAllString(text, "")

	failure := &callError{what: op.what, said: wordsOf(op, text), through: through.name, cause: err}
	defer func() {
		if failure.said != "" {
			failure.detail = failure.said + throughEndpoints(failure.through)
		}
	}()

	switch {
	case op.mutates && (refuses(text) || unpullable(text)):
		// The node answered, whatever its code looks like and whether or not the
		// caller still waits.
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
		// A deadline is worth a second look at the endpoint, an answer is not.
		failure.silent = sent && code == codes.DeadlineExceeded
		failure.severed = sent && code == codes.Unavailable && !undelivered(sent, text)

		if !sent && code == codes.Unavailable {
			failure.undialed = undialed(text)
		}

		failure.elsewhere = failure.elsewhere && !failure.silent
	default:
		failure.meanings = meaning(op, code, text)
		// What concerns the whole cluster, another endpoint may know: a worker
		// has no kubeconfig, a machine that is booting has no resources yet.
		failure.elsewhere = op.node == "" && (code == codes.Unimplemented || code == codes.NotFound)
	}

	return failure
}

// doubtsCredentials tells that certificates may be why there is no connection.
func (c *Client) doubtsCredentials(text string) bool {
	return rejectsCredentials(text) || c.config.certificate.validity(time.Now()) != ""
}

// explainCredentials gives a failure its meaning where certificates may be why.
func (c *Client) explainCredentials(text string, failure *callError) {
	failure.meanings = []error{cluster.ErrCredentials}
	if c.clockDiffers(text) {
		failure.meanings = []error{cluster.ErrUnreachable}
	}

	failure.said = c.credentialHint(text)
	failure.elsewhere = true
}

// unissued tells a connection that ended because the CA of the cluster did not issue the other
// side's certificate. A node may say the same of a registry, in other words.
func unissued(text string) bool {
	return strings.HasPrefix(text, `connection error: desc = "transport: authentication handshake failed: `) &&
		strings.Contains(text, "x509: certificate signed by unknown authority")
}

// foreign gives a failure its meaning, and tells whether it did, if what answers in place of a node
// or of an endpoint has no certificate of the cluster. An endpoint does not hand on the certificate
// of the node that it called, so it is looked at from here. If the node cannot be reached from here,
// another machine may have its address as well.
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

	// Where there are others, an endpoint in maintenance mode says nothing of another node.
	if sent || op.node == "" || op.node == through.host || len(c.endpoints) == 1 {
		failure.meanings = append(failure.meanings, cluster.ErrForeign)
	}

	return true
}

// lookTimeout bounds a look at a certificate.
const lookTimeout = 2 * time.Second

// inMaintenance tells whether a certificate of the maintenance service is shown at an address
// ("host:port"). No credentials go there, and nothing is sent.
func (c *Client) inMaintenance(ctx context.Context, address string) bool {
	bounded, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()

	conn, err := c.dial(bounded, address)
	if err != nil {
		return false
	}
	defer conn.Close()

	seen := false
	// Whoever pretends to be that ends a run, which whoever does not answer does too.
	_ = tls.Client(conn, &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection: func(state tls.ConnectionState) error {
			seen = state.PeerCertificates[0].Subject.CommonName == constants.MaintenanceServiceCommonName

			return errLookedAt
		},
	}).HandshakeContext(bounded)

	return seen
}

// errLookedAt ends a handshake that was made for the certificate.
var errLookedAt = errors.New("looked at")

// interrupted is the meaning of an error that the caller's own context caused.
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

// isLost tells that no answer came, as opposed to an answer that says no.
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

// undelivered tells that the node cannot have received the call: it never left
// this machine, the endpoint could not connect to the node, or the node could
// not even connect to its own container runtime. A call that gRPC moves from a
// connection that is gone to a new one ends with what became of the new one.
func undelivered(sent bool, text string) bool {
	return !sent || containsAny(text,
		"Error while dialing", "authentication handshake failed", "error reading server preface", "error connecting to containerd")
}

// rejectsCredentials tells a refused certificate from a connection that broke
// during the handshake: gRPC gives both the code of a rebooting node. The text
// cannot be relied on the other way round: in TLS 1.3 the refusal comes after
// the handshake, and a write may fail before it is read. That is why an expired
// certificate is taken for the reason of any failure to connect.
func rejectsCredentials(text string) bool {
	if !strings.Contains(text, "tls: ") && !strings.Contains(text, "x509: ") {
		return false
	}

	// A booting apid has no certificate to show yet and answers this way.
	return !strings.Contains(text, "tls: internal error")
}

// aboutTime tells a certificate that was refused for the time of its validity,
// by us or by the other side, which goes by its own clock.
func aboutTime(text string) bool {
	return strings.Contains(text, "certificate has expired or is not yet valid") || strings.Contains(text, "tls: expired certificate")
}

// clockDiffers tells that only a clock can be the reason: the credentials were
// accepted before, and are valid by ours. A node that has just booted may have
// to wait for its time server.
func (c *Client) clockDiffers(text string) bool {
	return aboutTime(text) && c.proven.Load() && c.config.certificate.validity(time.Now()) == ""
}

// credentialHint says in plain words why certificates were not accepted.
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

// weightier tells whether a failure says more than the meanings kept so far.
// An endpoint that is down may return, so that waiting is worth it even when
// another one is a worker; refused credentials do not heal, unless they were
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

// lacksInstaller tells an install that failed for want of the program that a node runs of an
// installer's image, as runc says it.
func lacksInstaller(text string) bool {
	return strings.HasPrefix(text, "upgrade failed: failed to create task: ") && strings.Contains(text, `exec: "/bin/installer": `)
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

// saysEtcd tells that etcd answered, through Talos.
func saysEtcd(text string) bool { return strings.Contains(text, "etcdserver: ") }

// keptProblems is how many problems of a refused configuration are passed on.
const keptProblems = 3

// problemCount is the first line of a list of problems, which follow as
// bullets.
var problemCount = regexp.MustCompile(`[0-9]+ errors? occurred:\s*$`)

// withoutConfig is the answer of a node to a configuration, without anything
// that may be part of it: a node appends the difference to the one it has,
// secrets included, and quotes values. The answer of gRPC is replaced as a whole, so
// that nobody finds the text as the cause of an error.
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

	// What is left of a quotation that goes on further down.
	if cut := strings.IndexAny(plain, "\"`"); cut >= 0 {
		plain = plain[:cut] + "a value"
	}

	return clip(plain)
}

func clip(text string) string { return shorten(text, keptLength) }

// shorten is the beginning of a text, at most that many characters.
func shorten(text string, most int) string {
	for i := range text {
		if most == 0 {
			return text[:i]
		}

		most--
	}

	return text
}
