// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	configpb "github.com/siderolabs/talos/pkg/machinery/api/resource/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/bootstrap"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const (
	podSubnet     = "10.244.0.0/16"
	serviceSubnet = "10.96.0.0/12"
	dnsAddress    = "10.96.0.10"
	clusterDomain = "cluster.local"
)

// podResources returns the resources of the static pods of a control plane: their configuration, the pods made from
// it, and the status of the pods that run.
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

// versionOf returns a version that is counted elsewhere; undefined below 1.
func versionOf(count int) resource.Version {
	version, err := resource.ParseVersion(strconv.Itoa(max(count, 0)))
	if err != nil {
		return resource.VersionUndefined
	}

	return version
}

// componentConfigs returns the configuration of a component: what the machine configuration says and, from Talos
// 1.14 on, the result.
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

// componentConfig returns one of them, without a version.
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

// argValues returns arguments in the form that resources have.
func argValues(extra map[string]argument) map[string]k8s.ArgValues {
	values := map[string]k8s.ArgValues{}
	for name, value := range extra {
		values[name] = k8s.ArgValues{Values: value}
	}

	return values
}

// ownFlags returns the flags that Talos sets, as far as something looks for them.
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

// podManifest returns a pod as the kubelet is given it.
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

// podStatus returns what the kubelet says about a static pod.
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

// rendering is what a machine's configuration is rendered to. It is kept, because machines change often and their
// configurations rarely.
type rendering struct {
	view      model.NodeState
	arguments extraArguments
	manifests []bootstrap.Manifest
}

func render(view model.NodeState) *rendering {
	made := &rendering{view: view, arguments: readArguments(view.Config)}

	if view.Role == model.ControlPlane {
		made.manifests = bootstrap.Render(view)
	}

	return made
}

// of reports whether it is still valid for a machine.
func (r *rendering) of(view model.NodeState) bool {
	return r != nil && bytes.Equal(r.view.Config, view.Config) && r.view.Talos == view.Talos &&
		r.view.ProxyImage == view.ProxyImage && r.view.CoreDNSImage == view.CoreDNSImage
}

// resources returns the manifests that a control plane offers, and what they are made from.
func (r *rendering) resources() []resource.Resource {
	if r.view.Role != model.ControlPlane {
		return nil
	}

	source := k8s.NewBootstrapManifestsConfig()
	*source.TypedSpec() = k8s.BootstrapManifestsConfigSpec{
		ClusterDomain: clusterDomain, PodCIDRs: []string{podSubnet}, DNSServiceIP: dnsAddress, CNIName: "flannel",
		ProxyEnabled: r.view.ProxyImage != "", ProxyImage: r.view.ProxyImage,
		CoreDNSEnabled: r.view.CoreDNSImage != "", CoreDNSImage: r.view.CoreDNSImage,
	}

	list := []resource.Resource{source}

	for _, manifest := range r.manifests {
		made := k8s.NewManifest(k8s.ControlPlaneNamespaceName, manifest.ID)
		for _, object := range manifest.Objects {
			made.TypedSpec().Items = append(made.TypedSpec().Items, k8s.SingleManifest{Object: object})
		}

		list = append(list, made)
	}

	return list
}

// extraArguments are what a configuration adds to the command lines, by
// component and flag.
type extraArguments map[string]map[string]argument

// argument is the value of a flag, or several.
type argument []string

// UnmarshalYAML implements yaml.Unmarshaler: with a list, the flag is given several times.
func (a *argument) UnmarshalYAML(value *yaml.Node) error {
	if value.Kind == yaml.SequenceNode {
		return value.Decode((*[]string)(a))
	}

	var single string
	if err := value.Decode(&single); err != nil {
		return err
	}

	*a = argument{single}

	return nil
}

// section is the part of a configuration that belongs to one component.
type section struct {
	ExtraArgs map[string]argument `yaml:"extraArgs"`
}

// readArguments returns the extra arguments in a configuration of either form. It stops at a document that cannot
// be parsed: a machine does not take such a configuration.
func readArguments(config []byte) extraArguments {
	found := extraArguments{}

	for decoder := yaml.NewDecoder(bytes.NewReader(config)); ; {
		var document yaml.Node
		if err := decoder.Decode(&document); err != nil {
			return found
		}

		var head struct {
			Kind string `yaml:"kind"`
		}

		_ = document.Decode(&head)

		switch component := documentOf(head.Kind); {
		case component != "":
			var only section
			_ = document.Decode(&only)
			found[component] = only.ExtraArgs
		case head.Kind == "":
			found.addClassic(&document)
		}
	}
}

// addClassic reads the main document, which configures all components.
func (e extraArguments) addClassic(document *yaml.Node) {
	var classic struct {
		Machine struct {
			Kubelet section `yaml:"kubelet"`
		} `yaml:"machine"`
		Cluster struct {
			APIServer         section `yaml:"apiServer"`
			ControllerManager section `yaml:"controllerManager"`
			Scheduler         section `yaml:"scheduler"`
		} `yaml:"cluster"`
	}

	_ = document.Decode(&classic)

	for component, args := range map[string]map[string]argument{
		model.KubeletName:           classic.Machine.Kubelet.ExtraArgs,
		model.APIServerName:         classic.Cluster.APIServer.ExtraArgs,
		model.ControllerManagerName: classic.Cluster.ControllerManager.ExtraArgs,
		model.SchedulerName:         classic.Cluster.Scheduler.ExtraArgs,
	} {
		if len(args) > 0 {
			e[component] = args
		}
	}
}

// documentOf returns the component that a kind of document configures.
func documentOf(kind string) string {
	return map[string]string{
		"KubeletConfig":               model.KubeletName,
		"KubeAPIServerConfig":         model.APIServerName,
		"KubeControllerManagerConfig": model.ControllerManagerName,
		"KubeSchedulerConfig":         model.SchedulerName,
	}[kind]
}

// flagsOf returns the command line of a component without its program: what Talos sets, and what the configuration
// adds or overrides, sorted by the names of the flags.
func flagsOf(own map[string]string, extra map[string]argument) []string {
	merged := map[string]argument{}
	for name, value := range own {
		merged[name] = argument{value}
	}

	for name, values := range extra {
		if before := merged[name]; additive(name) && len(before) > 0 {
			values = argument{strings.Join(append(before, values...), ",")}
		}

		merged[name] = values
	}

	var flags []string

	for _, name := range slices.Sorted(maps.Keys(merged)) {
		for _, value := range merged[name] {
			flags = append(flags, "--"+name+"="+value)
		}
	}

	return flags
}

// additive reports whether the configured values of a flag are added to those that Talos sets.
func additive(flag string) bool {
	return slices.Contains([]string{"enable-admission-plugins", "authorization-mode", "feature-gates"}, flag)
}

// configDocument is the resource MachineConfig with the YAML as it is, whether or not the Talos library of this
// build could read it.
type configDocument struct {
	metadata resource.Metadata
	spec     configSpec
}

type configSpec struct {
	text []byte
}

func newConfigDocument(id resource.ID, text []byte, version resource.Version) *configDocument {
	return &configDocument{
		metadata: resource.NewMetadata(config.NamespaceName, config.MachineConfigType, id, version),
		spec:     configSpec{text: text},
	}
}

// Metadata implements resource.Resource.
func (d *configDocument) Metadata() *resource.Metadata { return &d.metadata }

// Spec implements resource.Resource.
func (d *configDocument) Spec() any { return d.spec }

// DeepCopy implements resource.Resource.
func (d *configDocument) DeepCopy() resource.Resource {
	return &configDocument{metadata: d.metadata, spec: configSpec{text: slices.Clone(d.spec.text)}}
}

// ResourceDefinition implements meta.ResourceDefinitionProvider.
func (d *configDocument) ResourceDefinition() meta.ResourceDefinitionSpec {
	return meta.ResourceDefinitionSpec{
		Type:             config.MachineConfigType,
		Aliases:          []resource.Type{},
		DefaultNamespace: config.NamespaceName,
		Sensitivity:      meta.Sensitive,
	}
}

// MarshalProto implements protobuf.ProtoMarshaler.
func (s configSpec) MarshalProto() ([]byte, error) {
	return proto.Marshal(&configpb.MachineConfigSpec{YamlMarshalled: s.text})
}

// MarshalYAML implements yaml.Marshaler.
func (s configSpec) MarshalYAML() (any, error) { return string(s.text), nil }
