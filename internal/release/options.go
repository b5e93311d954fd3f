// SPDX-License-Identifier: MPL-2.0

package release

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
)

// Options are what all sources have in common.
type Options struct {
	// FactoryURL is the base of the Image Factory; empty means
	// [DefaultFactoryURL].
	FactoryURL string
	// PreReleases includes alphas, betas and release candidates.
	PreReleases bool
	// Timeout is how long one answer may take; zero means [DefaultTimeout].
	Timeout time.Duration
	// UserAgent names the caller to the source.
	UserAgent string
	// Table is what is known without querying a source; nil means [compat.BuiltIn].
	Table *compat.Table
}

func (o Options) table() *compat.Table { return cmp.Or(o.Table, compat.BuiltIn()) }

func (o Options) timeout() time.Duration {
	if o.Timeout == 0 {
		return DefaultTimeout
	}

	return o.Timeout
}

// digest matches the digest at the end of an image reference.
var digest = regexp.MustCompile(`@sha256:[0-9a-f]+$`)

// hides reports whether the text may contain credentials: in front of a host, in a query or in a fragment.
func hides(text string) bool {
	return strings.ContainsAny(digest.ReplaceAllString(text, ""), "@?#")
}

// quoted returns the text as a message may repeat it.
func quoted(text string) string {
	if hides(text) {
		return "the value (not repeated here, because it may hold credentials)"
	}

	return strconv.Quote(text)
}
