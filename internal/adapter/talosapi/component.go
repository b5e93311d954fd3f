// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	configpb "github.com/siderolabs/talos/pkg/machinery/api/resource/config"
	k8spb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/k8s"
	v1alpha1pb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// finalPrefix marks the configurations that static pods are made from, from Talos 1.14 on. Those without the prefix
// are then only merged into them, and their version says nothing about pods.
const finalPrefix = "final-"

// Component returns the state of the node's kubelet, of one of its static pods, or of what it renders for
// kube-proxy. The error wraps cluster.ErrNotFound if the node has no configuration for the component, as a worker
// for all but the kubelet, or if the configuration disables it.
func (c *Client) Component(ctx context.Context, address string, component cluster.Component) (cluster.ComponentStatus, error) {
	switch component {
	case cluster.Kubelet:
		return c.kubelet(ctx, address)
	case cluster.APIServer:
		return staticPod(ctx, c, address, component, kindAPIServer(), &k8spb.APIServerConfigSpec{})
	case cluster.ControllerManager:
		return staticPod(ctx, c, address, component, kindController(), &k8spb.ControllerManagerConfigSpec{})
	case cluster.Scheduler:
		return staticPod(ctx, c, address, component, kindScheduler(), &k8spb.SchedulerConfigSpec{})
	case cluster.Proxy:
		return c.proxy(ctx, address)
	case cluster.Installer, cluster.Manifests:
	}

	return cluster.ComponentStatus{}, fmt.Errorf("unable to ask %s about %s: %w: machines run no such component by themselves",
		place(address), component, cluster.ErrRefused)
}

// staticPod reads the image and the version of the configuration of a static pod. The meaning of the rest, above
// all of the arguments, changes from one version of Talos to the next.
func staticPod[S interface {
	proto.Message
	GetImage() string
}](ctx context.Context, c *Client, address string, component cluster.Component, of kind, spec S) (cluster.ComponentStatus, error) {
	metadata, err := c.read(ctx, address, of, finalPrefix+string(component), spec)
	if errors.Is(err, cluster.ErrNotFound) {
		metadata, err = c.read(ctx, address, of, string(component), spec)
	}

	if err != nil {
		return cluster.ComponentStatus{}, err
	}

	// The API server cannot be disabled and has no such field.
	if optional, ok := any(spec).(interface{ GetEnabled() bool }); ok && !optional.GetEnabled() {
		return cluster.ComponentStatus{}, fmt.Errorf("%w: the configuration of %s switches %s off", cluster.ErrNotFound, place(address), component)
	}

	return cluster.ComponentStatus{Image: spec.GetImage(), ConfigVersion: metadata.GetVersion()}, nil
}

// kubelet reads what the kubelet should run and the state of its service. While the kubelet restarts, there is no
// service for a moment.
func (c *Client) kubelet(ctx context.Context, address string) (cluster.ComponentStatus, error) {
	var (
		spec    k8spb.KubeletSpecSpec
		service v1alpha1pb.ServiceSpec
	)

	if _, err := c.read(ctx, address, kindKubeletSpec(), string(cluster.Kubelet), &spec); err != nil {
		return cluster.ComponentStatus{}, err
	}

	status := cluster.ComponentStatus{Image: spec.GetImage()}

	metadata, err := c.read(ctx, address, kindService(), string(cluster.Kubelet), &service)
	if errors.Is(err, cluster.ErrNotFound) {
		return status, nil
	}

	if err != nil {
		return cluster.ComponentStatus{}, err
	}

	status.Running, status.Healthy = service.GetRunning(), service.GetHealthy()

	if created := metadata.GetCreated(); created.IsValid() {
		status.Since = created.AsTime()
	}

	return status, nil
}

// proxyManifest is the ID of the manifest with kube-proxy, which Talos has never changed.
const proxyManifest = "10-kube-proxy"

// proxy reads the image that a control plane renders for kube-proxy. The nodes run it as a DaemonSet, of which a
// machine has nothing but the manifest.
func (c *Client) proxy(ctx context.Context, address string) (cluster.ComponentStatus, error) {
	image, err := c.renderedProxy(ctx, address)
	if err != nil {
		return cluster.ComponentStatus{}, err
	}

	if image == "" {
		return cluster.ComponentStatus{}, fmt.Errorf("%w: %s renders no %s", cluster.ErrNotFound, place(address), cluster.Proxy)
	}

	return cluster.ComponentStatus{Image: image}, nil
}

// renderedProxy returns the image in the manifest of kube-proxy; empty if there is none. If the manifest with the
// known ID has no image, all manifests are searched.
func (c *Client) renderedProxy(ctx context.Context, address string) (image string, err error) {
	var own k8spb.ManifestSpec

	found, err := c.resource(ctx, address, kindManifest(), proxyManifest, &own)
	if err != nil {
		return "", err
	}

	if image = manifestProxy(&own); found && image != "" {
		return image, nil
	}

	err = c.resources(ctx, address, kindManifest(), func(spec []byte) error {
		var manifest k8spb.ManifestSpec
		if err := proto.Unmarshal(spec, &manifest); err != nil {
			return err
		}

		image = cmp.Or(image, manifestProxy(&manifest))

		return nil
	})

	return image, err
}

// manifestProxy returns the image of kube-proxy in a manifest; empty if there is none.
func manifestProxy(manifest *k8spb.ManifestSpec) string {
	for _, item := range manifest.GetItems() {
		if image := proxyImage(item.GetObject()); image != "" {
			return image
		}
	}

	return ""
}

// proxyImage returns the image in the DaemonSet of kube-proxy; empty for any other object.
func proxyImage(object *structpb.Struct) string {
	metadata := field(structpb.NewStructValue(object), "metadata")
	name, namespace := field(metadata, "name").GetStringValue(), field(metadata, "namespace").GetStringValue()

	if object.GetFields()["kind"].GetStringValue() != "DaemonSet" || name != string(cluster.Proxy) || namespace != "kube-system" {
		return ""
	}

	containers := field(structpb.NewStructValue(object), "spec", "template", "spec", "containers")
	for _, container := range containers.GetListValue().GetValues() {
		if field(container, "name").GetStringValue() == string(cluster.Proxy) {
			return field(container, "image").GetStringValue()
		}
	}

	return ""
}

// field returns the value at a path in an object; nil, on which every getter works, if there is none.
func field(value *structpb.Value, path ...string) *structpb.Value {
	for _, name := range path {
		value = value.GetStructValue().GetFields()[name]
	}

	return value
}

// The IDs of machine configurations: the one in effect, and the one that the next boot uses, which older versions
// do not have.
const (
	activeConfig     = "v1alpha1"
	persistentConfig = "persistent"
)

// storedConfig is a machine configuration as a node has it. It holds secrets.
type storedConfig struct {
	text []byte
	// version counts the writes since the node booted.
	version string
}

// lookAttempts is how often a change is tried if somebody else writes the configuration at the same time.
const lookAttempts = 3

// Configure changes the image of a component in the machine configuration. It sends one request at most, and none
// if the image is set already. Talos accepts whatever configuration comes last, so the versions before and after
// must show whether somebody else wrote at the same moment; if somebody wrote before that, the change starts over,
// [lookAttempts] times in all. Errors wrap cluster.ErrNotFound if the configuration has no install section to set
// an installer in, and cluster.ErrConflict if it has another image than expected, if it keeps changing or a boot
// would undo it, or if the write of somebody else may have been overwritten. Errors quote nothing of the
// configuration but images.
func (c *Client) Configure(ctx context.Context, address string, change cluster.ImageChange) error {
	what := fmt.Sprintf("change the image of %s in the machine configuration of %s", change.Component, place(address))

	before, edited, err := c.prepareChange(ctx, address, change)
	if err != nil {
		return fmt.Errorf("unable to %s: %w", what, err)
	}

	if edited == nil {
		return nil
	}

	if err := c.applyConfig(ctx, operation{what: what, node: address, timeout: applyTimeout, mutates: true}, edited); err != nil {
		return err
	}

	after, err := c.storedConfig(ctx, address, activeConfig)
	if err != nil {
		return fmt.Errorf("unable to %s: %w: the node accepted, and then could not be asked: %w", what, cluster.ErrOutcomeUnknown, err)
	}

	if err := compareConfigs(before, after, edited); err != nil {
		return fmt.Errorf("unable to %s: %w", what, err)
	}

	return nil
}

// prepareChange reads and edits the configuration until nobody else writes it; edited is nil if nothing has to be
// changed.
func (c *Client) prepareChange(
	ctx context.Context, address string, change cluster.ImageChange,
) (before storedConfig, edited []byte, err error) {
	for range lookAttempts {
		before, err = c.storedConfig(ctx, address, activeConfig)
		if err != nil {
			return storedConfig{}, nil, err
		}

		edited, err = editImage(before.text, change)
		if err != nil || edited == nil {
			return before, nil, err
		}

		// A write that is under way looks for a moment like a configuration that is not settled.
		err = c.assertUntouched(ctx, address, before)
		if !errors.Is(err, cluster.ErrConflict) {
			break
		}
	}

	return before, edited, err
}

func (c *Client) storedConfig(ctx context.Context, address, id string) (storedConfig, error) {
	var spec configpb.MachineConfigSpec

	metadata, err := c.read(ctx, address, kindMachineConfig(), id, &spec)
	if err != nil {
		return storedConfig{}, err
	}

	return storedConfig{text: spec.GetYamlMarshalled(), version: metadata.GetVersion()}, nil
}

// assertUntouched makes sure, right before a write, that the write would undo nothing: neither a change made since
// the configuration was read, nor one that waits for the next boot, nor one that is only being tried.
func (c *Client) assertUntouched(ctx context.Context, address string, read storedConfig) error {
	persistent, missing := c.storedConfig(ctx, address, persistentConfig)
	if missing != nil && !isAbsent(missing) {
		return missing
	}

	now, err := c.storedConfig(ctx, address, activeConfig)

	switch {
	case err != nil:
		return err
	case now.version != read.version || !bytes.Equal(now.text, read.text):
		return fmt.Errorf("%w: it changed while it was being edited, and was left alone", cluster.ErrConflict)
	case missing != nil:
		return c.assertNotTried(ctx, address, now)
	default:
		return assertSettled(persistent, now)
	}
}

// assertNotTried makes sure that a boot would bring back the configuration in effect, for a node that shows no
// stored one. From Talos 1.10 on that means that none was stored since the last boot: what was written since then
// is only being tried.
func (c *Client) assertNotTried(ctx context.Context, address string, active storedConfig) error {
	if writes, known := count(active.version); !known || writes <= 1 {
		return nil
	}

	machine := cluster.Machine{Address: address}
	if err := c.readVersion(ctx, &machine); err != nil {
		return err
	}

	if machine.TalosTag == "" && !machine.Talos.AtLeast(1, 10) {
		return nil
	}

	return fmt.Errorf("%w: the configuration in effect was changed since the node booted and is not stored for its next boot, "+
		"because it was only tried: apply the configuration you want, or reboot the node", cluster.ErrConflict)
}

// assertSettled makes sure that the configuration for the next boot is the one in effect. They need not be equal
// byte for byte.
func assertSettled(persistent, active storedConfig) error {
	if sameMeaning(persistent.text, active.text) {
		return nil
	}

	return fmt.Errorf("%w: the configuration stored for the next boot is not the one in effect, "+
		"because one was staged or is being tried; a change now would undo that", cluster.ErrConflict)
}

// applyConfig replaces the configuration, never with a reboot. The zero value of the mode would reboot.
func (c *Client) applyConfig(ctx context.Context, op operation, text []byte) error {
	return c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		_, err := api.MachineClient.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
			Data: text, Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
		})

		return withoutConfig(err)
	})
}

// compareConfigs looks for another writer after a write of ours.
func compareConfigs(before, after storedConfig, ours []byte) error {
	const advice = "a change made there may have been overwritten: compare the machine configuration with its source"

	// A node may rewrite what it accepted, without changing its meaning.
	if !sameMeaning(after.text, ours) {
		return fmt.Errorf("%w: the configuration is not the one that was applied; %s", cluster.ErrConflict, advice)
	}

	from, known := count(before.version)
	to, stillKnown := count(after.version)

	switch {
	case !known, !stillKnown, to == from+1:
		return nil
	case to <= from:
		return fmt.Errorf("%w: the node restarted in the meantime", cluster.ErrConflict)
	default:
		return fmt.Errorf("%w: it was written %d times and not once; %s", cluster.ErrConflict, to-from, advice)
	}
}

// count returns the number in the version of a resource; false if it is not a number.
func count(version string) (uint64, bool) {
	number, err := strconv.ParseUint(version, 10, 64)

	return number, err == nil
}
