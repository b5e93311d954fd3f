// SPDX-License-Identifier: MPL-2.0

package release

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// maxRedirects is how many redirects in a row are followed.
const maxRedirects = 10

var (
	// errTooLarge is returned if an answer exceeds the limit.
	errTooLarge = errors.New("the answer is larger than " + strconv.Itoa(maxAnswer>>20) + " MiB")
	// errRedirects is returned if a source redirects too often.
	errRedirects = errors.New("more than " + strconv.Itoa(maxRedirects) + " redirects in a row")
)

// meter is a transport for one query of one source. It limits the bytes of all answers together, so that neither
// a body nor a chain of pages is endless, and the redirects, which not every client on top of it does.
type meter struct {
	inner     *http.Transport
	read      atomic.Int64
	redirects atomic.Int64
}

func newMeter() *meter {
	return &meter{inner: &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: DefaultTimeout}).DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}}
}

// RoundTrip implements [http.RoundTripper].
func (m *meter) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := m.inner.RoundTrip(req)
	if err != nil {
		return nil, err
	}

	resp.Body = &meteredBody{ReadCloser: resp.Body, meter: m}

	if resp.Header.Get("Location") == "" {
		m.redirects.Store(0)
	} else if m.redirects.Add(1) > maxRedirects {
		_ = resp.Body.Close()

		return nil, errRedirects
	}

	return resp, nil
}

// close closes idle connections. Answers that were not read to the end are cut off by the context of their
// request.
func (m *meter) close() { m.inner.CloseIdleConnections() }

type meteredBody struct {
	io.ReadCloser

	meter *meter
}

// Read implements [io.Reader].
func (b *meteredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.meter.read.Add(int64(n)) > maxAnswer {
		return n, errTooLarge
	}

	return n, err
}

// get returns the content at the address, and its content type. Errors are those of a [Source].
func get(ctx context.Context, address, accept string, options Options) (body []byte, contentType string, err error) {
	bounded, cancel := context.WithTimeout(ctx, options.timeout())
	defer cancel()

	wire := newMeter()
	defer wire.close()

	req, err := http.NewRequestWithContext(bounded, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w: %w", address, ErrLocation, err)
	}

	req.Header.Set("Accept", accept)

	if options.UserAgent != "" {
		req.Header.Set("User-Agent", options.UserAgent)
	}

	resp, err := (&http.Client{Transport: wire}).Do(req)
	if err != nil {
		return nil, "", failed(ctx, address, options.timeout(), err)
	}

	defer func() { _ = resp.Body.Close() }()

	if resp.StatusCode != http.StatusOK {
		return nil, "", refused(address, resp.StatusCode, "")
	}

	body, err = io.ReadAll(resp.Body)
	if err != nil {
		return nil, "", failed(ctx, address, options.timeout(), err)
	}

	return body, resp.Header.Get("Content-Type"), nil
}

// failed puts the reason why a source gave no answer into words. Outer is the caller's context, without the
// timeout.
func failed(outer context.Context, source string, timeout time.Duration, err error) error {
	var (
		request     *url.Error
		certificate *tls.CertificateVerificationError
		network     net.Error
	)

	// The message already begins with the address that this error repeats.
	if errors.As(err, &request) {
		err = request.Err
	}

	switch {
	case outer.Err() != nil:
		return fmt.Errorf("%s: %w", source, cluster.Ended(outer))
	case errors.Is(err, errTooLarge):
		return fmt.Errorf("%s: %w: %w", source, ErrAnswer, errTooLarge)
	case errors.Is(err, errRedirects):
		return fmt.Errorf("%s: %w: %w", source, ErrAnswer, errRedirects)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w: no answer within %s", source, ErrUnreachable, timeout)
	case errors.As(err, &certificate):
		return fmt.Errorf("%s: %w: its certificate is not trusted here: %s", source, ErrUnreachable, clip(err.Error()))
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s: %w: %s", source, ErrUnreachable, clip(err.Error()))
	default:
		return fmt.Errorf("%s: %w: %s", source, ErrAnswer, clip(err.Error()))
	}
}

// refused puts an HTTP status other than success into words. Text is what the source said about it; it may be
// empty.
func refused(source string, status int, text string) error {
	meaning := ErrAnswer

	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		meaning = ErrDenied
	case status == http.StatusNotFound:
		meaning = ErrNotFound
	case status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		meaning = ErrUnreachable
	}

	err := fmt.Errorf("%s: %w: status %d", source, meaning, status)
	if name := http.StatusText(status); name != "" {
		err = fmt.Errorf("%w %s", err, name)
	}

	if text != "" {
		err = fmt.Errorf("%w (%s)", err, clip(text))
	}

	return err
}

// clip makes foreign text fit into a message: printable, and not too long.
func clip(text string) string {
	const most = 200

	var out []rune

	for _, r := range text {
		if len(out) == most {
			return string(out) + "..."
		}

		if !unicode.IsPrint(r) {
			r = ' '
		}

		out = append(out, r)
	}

	return string(out)
}
