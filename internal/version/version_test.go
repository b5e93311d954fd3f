// SPDX-License-Identifier: MPL-2.0

package version_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestParse_AcceptsVersionsWithAndWithoutV(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"1.13.4":       "1.13.4",
		"v1.13.4":      "1.13.4",
		"v1.14.0-rc.1": "1.14.0-rc.1",
		"0.0.0":        "0.0.0",
	} {
		got, err := version.Parse(text)
		if err != nil {
			t.Errorf("Parse(%q): %v", text, err)

			continue
		}

		if got.String() != want {
			t.Errorf("Parse(%q) = %s, want %s", text, got, want)
		}

		if got.Tag() != "v"+want {
			t.Errorf("Parse(%q).Tag() = %s, want v%s", text, got.Tag(), want)
		}
	}
}

func TestParse_RefusesWhatIsNoVersion(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"", "v", "latest", "1.13", "1", "vv1.13.4", "1.13.4 ", " 1.13.4", "1.13.4+build", "1.013.4", "1.13.4.5", "-1.2.3", "1.13.x"} {
		got, err := version.Parse(text)
		if !errors.Is(err, version.ErrMalformed) {
			t.Errorf("Parse(%q) = %v, %v; want ErrMalformed", text, got, err)

			continue
		}

		if !strings.Contains(err.Error(), "\""+text+"\"") {
			t.Errorf("Parse(%q): error does not quote the input: %v", text, err)
		}
	}
}

func TestCompare_OrdersReleasesAndTreatsZeroAsOldest(t *testing.T) {
	t.Parallel()

	ordered := []version.Version{
		{},
		version.MustParse("1.9.9"),
		version.MustParse("1.10.0-alpha.1"),
		version.MustParse("1.10.0-beta.0"),
		version.MustParse("1.10.0"),
		version.MustParse("1.10.1"),
		version.MustParse("2.0.0"),
	}

	for i, left := range ordered {
		for j, right := range ordered {
			got, want := sign(left.Compare(right)), sign(i-j)
			if got != want {
				t.Errorf("%s compared with %s: %d, want %d", left, right, got, want)
			}
		}
	}
}

func TestCompare_LowestAndHighestIgnoreUnknownVersions(t *testing.T) {
	t.Parallel()

	older, newer := version.MustParse("1.12.6"), version.MustParse("1.13.4")

	if got := version.Lowest(version.Version{}, newer, older); !got.Equal(older) {
		t.Errorf("Lowest = %s, want %s", got, older)
	}

	if got := version.Highest(older, version.Version{}, newer); !got.Equal(newer) {
		t.Errorf("Highest = %s, want %s", got, newer)
	}

	if got := version.Lowest(); !got.IsZero() {
		t.Errorf("Lowest of nothing = %s, want unknown", got)
	}
}

func TestCompare_AtLeastComparesMinorLines(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]bool{"1.12.9": false, "1.13.0-beta.0": true, "1.13.0": true, "2.0.0": true} {
		if got := version.MustParse(text).AtLeast(1, 13); got != want {
			t.Errorf("%s at least 1.13: %t, want %t", text, got, want)
		}
	}

	if (version.Version{}).AtLeast(0, 0) {
		t.Error("an unknown version is at least nothing")
	}
}

// FuzzParse holds the parser to two promises: it never panics, and what it
// accepts survives being printed and parsed again.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"1.13.4", "v1.14.0-rc.1", "", "v", "1.2.3-x.y", "999999999999999999999.1.1", "1.2.3+z"} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := version.Parse(text)
		if err != nil {
			return
		}

		for _, spelling := range []string{parsed.String(), parsed.Tag()} {
			again, err := version.Parse(spelling)
			if err != nil || !again.Equal(parsed) {
				t.Fatalf("Parse(%q) = %s, which parses as %s, %v", text, parsed, again, err)
			}
		}
	})
}

func sign(n int) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	default:
		return 0
	}
}
