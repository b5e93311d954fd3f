// SPDX-License-Identifier: MPL-2.0

package bench_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// serveVariable makes the test binary the provider: its value is the factor by which the provider's clock is faster
// than real time.
const serveVariable = "TALOSUPGRADE_BENCH_SERVE"

func TestMain(m *testing.M) {
	if factor := os.Getenv(serveVariable); factor != "" {
		if err := serve(factor); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}

		return
	}

	goleak.VerifyTestMain(m)
}
