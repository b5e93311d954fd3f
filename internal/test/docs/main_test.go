// SPDX-License-Identifier: MPL-2.0

// Package docs checks every configuration that the documentation shows with a real Terraform or OpenTofu. TF_ACC=1
// enables it.
package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pluginPrefix is the beginning of the file name of a provider.
const pluginPrefix = "terraform-provider-"

// TestMain makes the test binary one of the providers of testdata/providers if the command line starts it under the
// name of one.
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
