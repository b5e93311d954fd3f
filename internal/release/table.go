// SPDX-License-Identifier: MPL-2.0

package release

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
)

// TableLocation is the location of a table of releases: a file, or an https address.
type TableLocation struct {
	Location string
	// SHA256 is the checksum of the table, in hexadecimal; it is optional for a file.
	SHA256 string
}

var sha256Pattern = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

// remote reports whether the location is an address.
func (l TableLocation) remote() bool { return strings.Contains(l.Location, "://") }

// Check returns nil if the location is valid; it need not exist. Errors wrap [ErrLocation].
func (l TableLocation) Check() error {
	switch {
	case l.SHA256 != "" && !sha256Pattern.MatchString(l.SHA256):
		return fmt.Errorf("%w: the SHA-256 is %q, want 64 hexadecimal digits", ErrLocation, clip(l.SHA256))
	case l.Location == "":
		return fmt.Errorf("%w: the location is empty", ErrLocation)
	case !l.remote():
		return nil
	}

	parsed, err := url.Parse(l.Location)
	if err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" || hides(l.Location) {
		return fmt.Errorf("%s is %w: want the path of a file, or an https URL without credentials, query and fragment", quoted(l.Location), ErrLocation)
	}

	if l.SHA256 == "" {
		return fmt.Errorf("%s is %w without its SHA-256: what is at an address may change between a plan and its apply", quoted(l.Location), ErrLocation)
	}

	return nil
}

// ReadTable returns the built-in table with what the table at the location adds. Errors are those of a [Source],
// or wrap [ErrLocation].
func ReadTable(ctx context.Context, at TableLocation, options Options) (*compat.Table, error) {
	if err := at.Check(); err != nil {
		return nil, err
	}

	var (
		text []byte
		err  error
	)

	if at.remote() {
		text, _, err = get(ctx, at.Location, "text/plain", options)
	} else {
		text, err = readFile(at.Location)
	}

	if err != nil {
		return nil, err
	}

	sum := sha256.Sum256(text)
	if found := hex.EncodeToString(sum[:]); at.SHA256 != "" && !strings.EqualFold(found, at.SHA256) {
		return nil, fmt.Errorf("%s: %w: its SHA-256 is %s, want %s", at.Location, ErrAnswer, found, strings.ToLower(at.SHA256))
	}

	table, err := compat.BuiltIn().With(at.Location, string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", at.Location, ErrAnswer, err)
	}

	return table, nil
}

// readFile reads a regular file that is no larger than maxAnswer.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)

	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: %w", path, ErrNotFound)
	case err != nil:
		return nil, fmt.Errorf("%s: %w: %w", path, ErrUnreachable, errors.Unwrap(err))
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: %w: want a file", path, ErrAnswer)
	}

	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrUnreachable, errors.Unwrap(err))
	}

	defer func() { _ = file.Close() }()

	text, err := io.ReadAll(io.LimitReader(file, maxAnswer+1))

	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w: %w", path, ErrUnreachable, err)
	case len(text) > maxAnswer:
		return nil, fmt.Errorf("%s: %w: %w", path, ErrAnswer, errTooLarge)
	default:
		return text, nil
	}
}
