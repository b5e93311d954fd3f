// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"os"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
)

func TestMain(m *testing.M) {
	os.Exit(wording.Runner{Name: "plan", Tests: m, Update: update}.Run())
}
