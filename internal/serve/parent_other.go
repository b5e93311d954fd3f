// SPDX-License-Identifier: MPL-2.0

//go:build !windows

package serve

import (
	"os"
	"time"
)

// parentInterval is how often awaitParent checks that the parent still runs.
const parentInterval = time.Second

// awaitParent returns once the process that started this one is gone, which is when this one has another parent.
func awaitParent() {
	parent := os.Getppid()

	looks := time.NewTicker(parentInterval)
	defer looks.Stop()

	for os.Getppid() == parent {
		<-looks.C
	}
}
