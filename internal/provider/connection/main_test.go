// SPDX-License-Identifier: MPL-2.0

package connection

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
)

var update = flag.Bool("update", false, "write golden files instead of comparing with them")

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(wording.Runner{Name: "provider/connection", Tests: m, Update: update})
}
