// SPDX-License-Identifier: MPL-2.0

package serve

import "os"

// awaitParent returns once the process that started this one is gone. If that cannot be watched, it never returns.
func awaitParent() {
	parent, err := os.FindProcess(os.Getppid())
	if err != nil {
		select {}
	}

	if _, err := parent.Wait(); err != nil {
		select {}
	}
}
