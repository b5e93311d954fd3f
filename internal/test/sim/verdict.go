// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
)

// Verdict is what a history amounts to.
type Verdict = checker.Verdict

// ReadVerdict judges the history in a simulator's directory, whether the
// simulator runs or not. The options say which policy was in force, which the
// history does not tell.
func ReadVerdict(dir string, policy ...checker.Option) (Verdict, error) {
	file, err := os.Open(filepath.Join(dir, HistoryFile))
	if err != nil {
		return Verdict{}, fmt.Errorf("reading the history: %w", err)
	}

	defer func() { _ = file.Close() }()

	return checker.Read(file, policy...)
}
