// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAPodSaysWhatItWasMadeFromAndWhyItDoesNotRun(t *testing.T) {
	t.Parallel()

	waiting := func(reason, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
	}

	crashed := &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "unknown flag:\n\t--gone"}

	looping := waiting("CrashLoopBackOff", "back-off 5m0s restarting failed container")
	looping.LastTerminationState.Terminated = crashed

	for name, test := range map[string]struct {
		status corev1.ContainerStatus
		want   string
	}{
		"runs":             {corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}, ""},
		"is not reported":  {corev1.ContainerStatus{}, ""},
		"is being created": {waiting("ContainerCreating", ""), ""},
		"has no image":     {waiting("ImagePullBackOff", "Back-off pulling image \"x\":\n not found"), `ImagePullBackOff: Back-off pulling image "x": not found`},
		"has no message":   {waiting("ErrImagePull", ""), "ErrImagePull"},
		"keeps crashing":   {looping, "CrashLoopBackOff: exit code 1: Error: unknown flag: --gone"},
		"has just crashed": {corev1.ContainerStatus{State: corev1.ContainerState{Terminated: crashed}}, "exit code 1: Error: unknown flag: --gone"},
		"talks too much":   {waiting("CreateContainerError", strings.Repeat("ä", 1000)), "CreateContainerError: " + strings.Repeat("ä", 278) + "..."},
	} {
		test.status.Name = "kube-apiserver"

		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "kube-apiserver-cp-0", Labels: map[string]string{"k8s-app": "kube-apiserver"},
			Annotations: map[string]string{"talos.dev/config-version": "7"},
		}}
		pod.Spec.Containers = []corev1.Container{{Name: "kube-apiserver", Image: "registry.k8s.io/kube-apiserver:v1.35.2"}}
		// Another container's trouble is none of ours.
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "sidecar", State: waiting("ErrImagePull", "").State}, test.status}

		api, _ := connect(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")

			_ = json.NewEncoder(w).Encode(corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []corev1.Pod{pod}})
		})

		pods, err := api.ComponentPods(t.Context())
		if err != nil || len(pods) != 1 {
			t.Fatalf("%s: %d pods, %v", name, len(pods), err)
		}

		if pods[0].Trouble != test.want || pods[0].ConfigVersion != "7" {
			t.Errorf("a pod that %s: trouble %q of configuration %q, want %q of 7", name, pods[0].Trouble, pods[0].ConfigVersion, test.want)
		}
	}
}
