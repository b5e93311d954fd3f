// SPDX-License-Identifier: MPL-2.0

package removal

import (
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// listFlags returns the flags whose values are lists that add up if the flag is repeated, as Talos does for
// arguments that are lists. The checks read only the first occurrence.
func listFlags() []string { return []string{featureGates, "--enable-admission-plugins"} }

// commandOf returns the name and the command line of the first container of a static pod, in which every such flag
// occurs once. Nothing else of the pod is checked there.
func commandOf(pod *k8s.StaticPod) (name string, command []string, err error) {
	described, err := podOf(pod)
	if err != nil {
		return "", nil, err
	}

	if len(described.Spec.Containers) == 0 {
		return "", nil, fmt.Errorf("%w: static pod %s has no containers", cluster.ErrRefused, pod.Metadata().ID())
	}

	container := described.Spec.Containers[0]
	command = append(slices.Clone(container.Command), container.Args...)

	for _, flag := range listFlags() {
		command = mergeFlag(command, flag)
	}

	return container.Name, command, nil
}

// merged returns a static pod with one container of that name and command line.
func merged(pod *k8s.StaticPod, name string, command []string) *k8s.StaticPod {
	result := k8s.NewStaticPod(pod.Metadata().Namespace(), pod.Metadata().ID())
	result.TypedSpec().Pod = map[string]any{
		"spec": map[string]any{"containers": []any{map[string]any{"name": name, "command": command}}},
	}

	return result
}

// notAPod returns an error without the reason, which would quote the pod.
func notAPod(pod *k8s.StaticPod) error {
	return fmt.Errorf("%w: what is rendered for static pod %s is no pod", cluster.ErrRefused, pod.Metadata().ID())
}

// mergeFlag moves the values of all occurrences of a flag, which may be arguments of their own, into the first one.
func mergeFlag(command []string, flag string) []string {
	var (
		kept   []string
		values []string
		first  = -1
	)

	for index := 0; index < len(command); index++ {
		key, value, joined := strings.Cut(command[index], "=")

		// The components accept either.
		if strings.ReplaceAll(key, "_", "-") != flag {
			kept = append(kept, command[index])

			continue
		}

		if !joined && index+1 < len(command) {
			index++
			value = command[index]
		}

		if first < 0 {
			first = len(kept)
		}

		for _, element := range strings.Split(value, ",") {
			if element = strings.TrimSpace(element); element != "" {
				values = append(values, element)
			}
		}
	}

	if first < 0 {
		return command
	}

	return slices.Insert(kept, first, flag+"="+strings.Join(values, ","))
}
