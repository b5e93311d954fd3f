// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os/exec"
	"strings"
)

// watchCommand is a line for another terminal that shows the message annotation as
// it changes. It ends with the demo, which takes its kubeconfig away; until then a
// watch that a rebooting control plane cut off begins again. Other is what to run where
// no kubectl is on PATH.
func watchCommand(kubeconfig, other string) string {
	program := "kubectl"
	if _, err := exec.LookPath(program); err != nil {
		program = other
	}

	path := shellQuote(kubeconfig)

	return "while sleep 1; test -e " + path + "; do " + program + " --kubeconfig " + path +
		" -n kube-system get configmaps --field-selector metadata.name=talosupgrade -w -o jsonpath='{.metadata.annotations." +
		strings.ReplaceAll(annotationPrefix, ".", `\.`) + `talos-message}{"\n"}'; done`
}

// shellQuote makes one word of a path that may hold anything.
func shellQuote(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }
