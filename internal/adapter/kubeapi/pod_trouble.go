// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// longestTrouble bounds what is repeated of a message, in characters: those of
// container runtimes quote whole chains of causes.
const longestTrouble = 300

// trouble says in one line why the container does not run; empty when it runs,
// when it is just being started, and when the kubelet has not reported.
func trouble(pod *corev1.Pod, container string) string {
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if status.Name != container {
			continue
		}

		switch {
		case status.State.Waiting != nil:
			return waiting(status)
		case status.State.Terminated != nil:
			return oneLine(terminated(status.State.Terminated))
		}
	}

	return ""
}

func waiting(status *corev1.ContainerStatus) string {
	state, last := status.State.Waiting, status.LastTerminationState.Terminated

	switch {
	case state.Reason == "ContainerCreating" || state.Reason == "PodInitializing" || state.Reason == "":
		return ""
	case state.Reason == "CrashLoopBackOff" && last != nil:
		// The message of the state is about the length of the pause only.
		return oneLine(state.Reason + ": " + terminated(last))
	case state.Message == "":
		return oneLine(state.Reason)
	default:
		return oneLine(state.Reason + ": " + state.Message)
	}
}

func terminated(state *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("exit code %d", state.ExitCode)

	for _, detail := range []string{state.Reason, state.Message} {
		if detail != "" {
			text += ": " + detail
		}
	}

	return text
}

// oneLine is a text without line breaks, and not longer than what is repeated of
// one.
func oneLine(text string) string {
	line := []rune(strings.Join(strings.Fields(text), " "))
	if len(line) > longestTrouble {
		return string(line[:longestTrouble]) + "..."
	}

	return string(line)
}
