// SPDX-License-Identifier: MPL-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLinesAreWrappedBesideTheirLead(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		lead, text string
		room       int
		want       []string
	}{
		"that fits":                    {"cp-0  ", "drained 1 pod", 19, []string{"cp-0  drained 1 pod"}},
		"that does not":                {"cp-0  ", "drained 1 pod", 18, []string{"cp-0  drained 1", "      pod"}},
		"with a word that is too long": {"", "see /a/very/long/path there", 12, []string{"see", "/a/very/long/path", "there"}},
		"whose lead leaves no room":    {"a-long-name  ", "drained 1 pod", 20, []string{"a-long-name  drained", "  1 pod"}},
		"with spaces that mean it":     {"", "  a  table", 20, []string{"  a  table"}},
	} {
		if diff := cmp.Diff(test.want, wrap(test.lead, test.text, test.room)); diff != "" {
			t.Errorf("a line %s (-want +got):\n%s", name, diff)
		}
	}
}
