// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os/exec"
	"strings"
)

// watchCommand returns a command for another terminal that shows the nodes as they change; empty if there is no
// kubectl.
func watchCommand(kubeconfig string) string {
	if _, err := exec.LookPath("kubectl"); err != nil {
		return ""
	}

	return "kubectl --kubeconfig " + shellQuote(kubeconfig) + " get nodes --watch"
}

// shellQuote makes one word of a path that may contain anything.
func shellQuote(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }
