// SPDX-License-Identifier: MPL-2.0

package serve

import "os"

// awaitParent returns when the process that started this one is gone. One that
// cannot be watched is taken to stay.
func awaitParent() {
	parent, err := os.FindProcess(os.Getppid())
	if err != nil {
		select {}
	}

	if _, err := parent.Wait(); err != nil {
		select {}
	}
}
