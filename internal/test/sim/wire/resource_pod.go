// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const (
	podSubnet     = "10.244.0.0/16"
	serviceSubnet = "10.96.0.0/12"
	dnsAddress    = "10.96.0.10"
	clusterDomain = "cluster.local"
)

// podResources are the static pods of a control plane: what they are
// configured as, what is made of that, and how what runs is.
func podResources(state model.NodeState, arguments extraArguments) []resource.Resource {
	var list []resource.Resource

	if len(state.StaticPods) > 0 {
		secrets := k8s.NewSecretsStatus(k8s.ControlPlaneNamespaceName, k8s.StaticPodSecretsStaticPodID)
		secrets.TypedSpec().Ready, secrets.TypedSpec().Version = true, "1"
		files := k8s.NewConfigStatus(k8s.ControlPlaneNamespaceName, k8s.ConfigStatusStaticPodID)
		files.TypedSpec().Ready, files.TypedSpec().Version = true, strconv.Itoa(state.StaticPods[model.APIServerName].FilesVersion)
		list = append(list, secrets, files)
	}

	for _, component := range slices.Sorted(maps.Keys(state.StaticPods)) {
		pod := state.StaticPods[component]

		configs := componentConfigs(state, component, pod, arguments[component])
		if len(configs) == 0 {
			continue
		}

		list = append(list, configs...)

		if !pod.Disabled {
			manifest := k8s.NewStaticPod(k8s.NamespaceName, component)
			manifest.TypedSpec().Pod = podManifest(component, pod, flagsOf(ownFlags(state, component), arguments[component]))
			list = append(list, manifest)
		}

		if pod.PodImage != "" && state.PodsReported {
			status := k8s.NewStaticPodStatus(k8s.NamespaceName, "kube-system/"+component+"-"+state.Name)
			status.TypedSpec().PodStatus = podStatus(state, component, pod)
			list = append(list, status)
		}
	}

	return list
}

// versionOf is a version that counts elsewhere, undefined below 1.
func versionOf(count int) resource.Version {
	version, err := resource.ParseVersion(strconv.Itoa(max(count, 0)))
	if err != nil {
		return resource.VersionUndefined
	}

	return version
}

// componentConfigs is what a component is configured as: what the machine
// configuration says and, from Talos 1.14 on, what that comes to.
func componentConfigs(state model.NodeState, component string, pod model.StaticPod, extra map[string]argument) []resource.Resource {
	source := componentConfig(state, component, component, pod, extra)
	if source == nil {
		return nil
	}

	source.Metadata().SetVersion(versionOf(pod.SourceVersion))

	if !model.AtLeast(state.Talos, 1, 14) {
		return []resource.Resource{source}
	}

	final := componentConfig(state, k8s.FinalPrefix+component, component, pod, extra)
	final.Metadata().SetVersion(versionOf(pod.ConfigVersion))

	return []resource.Resource{source, final}
}

// componentConfig is one of them, without a version.
func componentConfig(
	state model.NodeState, id resource.ID, component string, pod model.StaticPod, extra map[string]argument,
) resource.Resource {
	values := argValues(extra)

	switch component {
	case model.APIServerName:
		config := k8s.NewAPIServerConfig(id)
		*config.TypedSpec() = k8s.APIServerConfigSpec{
			Image: pod.Image, LocalPort: apiServerPort, ServiceCIDRs: []string{serviceSubnet}, ExtraArgs: values,
			EtcdServers: []string{"https://127.0.0.1:2379"}, AdvertisedAddress: state.Address,
		}

		return config
	case model.ControllerManagerName:
		config := k8s.NewControllerManagerConfig(id)
		*config.TypedSpec() = k8s.ControllerManagerConfigSpec{
			Enabled: !pod.Disabled, Image: pod.Image, ExtraArgs: values,
			PodCIDRs: []string{podSubnet}, ServiceCIDRs: []string{serviceSubnet},
		}

		return config
	case model.SchedulerName:
		config := k8s.NewSchedulerConfig(id)
		*config.TypedSpec() = k8s.SchedulerConfigSpec{Enabled: !pod.Disabled, Image: pod.Image, ExtraArgs: values}

		return config
	default:
		return nil
	}
}

// argValues are arguments as resources have them.
func argValues(extra map[string]argument) map[string]k8s.ArgValues {
	values := map[string]k8s.ArgValues{}
	for name, value := range extra {
		values[name] = k8s.ArgValues{Values: value}
	}

	return values
}

// ownFlags are those that Talos sets, as far as anybody looks for them.
func ownFlags(state model.NodeState, component string) map[string]string {
	switch component {
	case model.APIServerName:
		return map[string]string{
			"advertise-address": state.Address, "authorization-mode": "Node,RBAC", "bind-address": "0.0.0.0",
			"enable-admission-plugins": "NodeRestriction", "etcd-servers": "https://127.0.0.1:2379",
			"secure-port": strconv.Itoa(apiServerPort), "service-cluster-ip-range": serviceSubnet,
		}
	case model.ControllerManagerName:
		return map[string]string{
			"allocate-node-cidrs": "true", "bind-address": "127.0.0.1", "cluster-cidr": podSubnet,
			"service-cluster-ip-range": serviceSubnet, "use-service-account-credentials": "true",
		}
	case model.SchedulerName:
		return map[string]string{"bind-address": "127.0.0.1", "config": "/system/config/kubernetes/kube-scheduler/scheduler-config.yaml"}
	case model.KubeletName:
		return map[string]string{
			"bootstrap-kubeconfig": "/etc/kubernetes/bootstrap-kubeconfig", "cert-dir": "/var/lib/kubelet/pki",
			"config": "/etc/kubernetes/kubelet.yaml", "hostname-override": state.Name,
			"kubeconfig": "/etc/kubernetes/kubeconfig-kubelet", "node-ip": state.Address,
		}
	default:
		return nil
	}
}

// podManifest is a pod as the kubelet is given it.
func podManifest(component string, pod model.StaticPod, flags []string) map[string]any {
	command := []any{"/usr/local/bin/" + component}
	for _, flag := range flags {
		command = append(command, flag)
	}

	annotations := map[string]any{constants.AnnotationStaticPodConfigVersion: strconv.Itoa(pod.ConfigVersion)}
	if component == model.APIServerName {
		annotations[constants.AnnotationStaticPodConfigFileVersion] = strconv.Itoa(pod.FilesVersion)
	}

	return map[string]any{
		"apiVersion": "v1",
		"kind":       "Pod",
		"metadata": map[string]any{
			"name": component, "namespace": "kube-system",
			"annotations": annotations,
			"labels":      map[string]any{"tier": "control-plane", "k8s-app": component, "component": component},
		},
		"spec": map[string]any{
			"priority": int64(2000001000), "priorityClassName": "system-cluster-critical", "hostNetwork": true,
			"containers": []any{map[string]any{"name": component, "image": pod.Image, "command": command}},
		},
	}
}

// podStatus is what the kubelet says of a static pod.
func podStatus(state model.NodeState, component string, pod model.StaticPod) map[string]any {
	ready := "False"
	if pod.Ready {
		ready = "True"
	}

	running := map[string]any{"running": map[string]any{"startedAt": pod.Started.UTC().Format(time.RFC3339)}}

	switch {
	case pod.Trouble != "":
		reason, message, _ := strings.Cut(pod.Trouble, ": ")
		running = map[string]any{"waiting": map[string]any{"reason": reason, "message": message}}
	case pod.Started.IsZero():
		running = map[string]any{"waiting": map[string]any{"reason": "ContainerCreating"}}
	}

	condition := func(kind, status string) any { return map[string]any{"type": kind, "status": status} }

	return map[string]any{
		"phase": "Running", "hostIP": state.Address, "podIP": state.Address,
		"conditions": []any{
			condition("Initialized", "True"), condition("Ready", ready),
			condition("ContainersReady", ready), condition("PodScheduled", "True"),
		},
		"containerStatuses": []any{map[string]any{
			"name": component, "image": pod.PodImage, "ready": pod.Ready, "started": pod.Ready, "state": running,
		}},
	}
}
