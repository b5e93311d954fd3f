// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestReleaseIsCalledWhatWasAskedFor(t *testing.T) {
	got := releaseLink(version.MustParse("1.36.4"))

	for _, want := range []string{
		"-X k8s.io/component-base/version.gitVersion=v1.36.4", "-X k8s.io/component-base/version.gitMinor=36",
		"-X k8s.io/client-go/pkg/version.gitVersion=v1.36.4",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the linker is told %q, which lacks %q", got, want)
		}
	}
}
