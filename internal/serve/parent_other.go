// SPDX-License-Identifier: MPL-2.0

//go:build !windows

package serve

import (
	"os"
	"time"
)

// parentInterval is how often it is looked whether the parent is still there.
const parentInterval = time.Second

// awaitParent returns when the process that started this one is gone: another one
// has inherited it then.
func awaitParent() {
	parent := os.Getppid()

	looks := time.NewTicker(parentInterval)
	defer looks.Stop()

	for os.Getppid() == parent {
		<-looks.C
	}
}
