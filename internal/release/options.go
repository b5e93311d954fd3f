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
	// PreReleases asks for alphas, betas and release candidates as well.
	PreReleases bool
	// Timeout of one answer; zero means [DefaultTimeout].
	Timeout time.Duration
	// UserAgent names the caller to the source.
	UserAgent string
	// Table is what is known without asking anybody; nil means [compat.BuiltIn].
	Table *compat.Table
}

func (o Options) table() *compat.Table { return cmp.Or(o.Table, compat.BuiltIn()) }

func (o Options) timeout() time.Duration {
	if o.Timeout == 0 {
		return DefaultTimeout
	}

	return o.Timeout
}

// digest is how a reference to an image may end.
var digest = regexp.MustCompile(`@sha256:[0-9a-f]+$`)

// hides tells whether the text may hold credentials: in front of a host, in a
// query or in a fragment.
func hides(text string) bool {
	return strings.ContainsAny(digest.ReplaceAllString(text, ""), "@?#")
}

// quoted is the text as a message may repeat it.
func quoted(text string) string {
	if hides(text) {
		return "the value (not repeated here, because it may hold credentials)"
	}

	return strconv.Quote(text)
}
