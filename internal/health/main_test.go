// SPDX-License-Identifier: MPL-2.0

package health_test

import (
	"flag"
	"os"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
)

var update = flag.Bool("update", false, "write what people read instead of comparing it")

func TestMain(m *testing.M) {
	os.Exit(wording.Runner{Name: "health", Tests: m, Update: update}.Run())
}
