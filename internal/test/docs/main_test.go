// SPDX-License-Identifier: MPL-2.0

// Package docs holds every configuration that the documentation shows to
// what a real Terraform or OpenTofu says about it. TF_ACC=1 enables it.
package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pluginPrefix is what the file name of a provider begins with.
const pluginPrefix = "terraform-provider-"

// TestMain makes the test binary one of the providers of testdata/providers when
// the command line starts it by the name of one.
func TestMain(m *testing.M) {
	if name, ok := strings.CutPrefix(filepath.Base(os.Args[0]), pluginPrefix); ok {
		if err := serveRecorded(strings.TrimSuffix(name, ".exe")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}

		return
	}

	os.Exit(m.Run())
}
