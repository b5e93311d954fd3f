// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// Verdict is the judgement of a history.
type Verdict = checker.Verdict

// ReadHistory calls each with every event of the history in a simulator's directory, in order, whether or not the
// simulator runs.
func ReadHistory(dir string, each func(history.Event)) error {
	file, err := os.Open(filepath.Join(dir, HistoryFile))
	if err != nil {
		return fmt.Errorf("reading the history: %w", err)
	}

	defer func() { _ = file.Close() }()

	return history.Read(file, each)
}

// ReadVerdict judges the history in a simulator's directory, whether or not the simulator runs. The options say
// which policy was in force, which the history does not contain.
func ReadVerdict(dir string, policy ...checker.Option) (Verdict, error) {
	judge := checker.New(policy...)
	if err := ReadHistory(dir, judge.Add); err != nil {
		return Verdict{}, err
	}

	return judge.Verdict(), nil
}
