// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// followEvery is how often a fault script on disk is checked.
const followEvery = 250 * time.Millisecond

// FollowFaults reads the script at the path whenever it changes and passes it to the simulator. If a script cannot
// be read, complain is called, and the one before stays in force. The returned function ends it.
func FollowFaults(ctx context.Context, path string, simulator *Simulator, complain func(error)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	// The caller has read the script in force.
	last, _ := os.ReadFile(path)

	go func() {
		defer close(done)

		ticker := time.NewTicker(followEvery)
		defer ticker.Stop()

		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				last = reload(path, last, simulator, complain)
			}
		}
	}()

	return func() {
		cancel()
		<-done
	}
}

func reload(path string, last []byte, simulator *Simulator, complain func(error)) []byte {
	script, err := os.ReadFile(path)
	if err != nil || bytes.Equal(script, last) {
		return last
	}

	faults, err := model.LoadFaults(script)
	if err != nil {
		complain(fmt.Errorf("%s: %w", path, err))

		return script
	}

	simulator.SetFaults(faults)

	return script
}
