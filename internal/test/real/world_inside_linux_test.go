// SPDX-License-Identifier: MPL-2.0

package real

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	architecture = runtime.GOARCH
	clusterName  = "real"
	// bootPatience bounds how long machines may take to boot beside other work, singlePatience how long an emulated
	// control plane may take.
	bootPatience, singlePatience = 10 * time.Minute, 40 * time.Minute
)

// kubernetesVersions are the release with which the cluster begins and the one to which it is upgraded.
var kubernetesVersions = []version.Version{version.MustParse("1.36.3"), version.MustParse("1.36.4")}

// olderKubernetes is a release that is compatible with three minor releases of Talos.
var olderKubernetes = version.MustParse("1.35.3")

// kubernetesReleases returns the releases that are built and served.
func kubernetesReleases(chosen []part) []version.Version {
	all := slices.Clone(kubernetesVersions)

	if slices.ContainsFunc(chosen, func(one part) bool { return one.ground == older }) {
		all = append(all, olderKubernetes)
	}

	return all
}

// world is what is inside the namespaces: machines, their network and their registry.
type world struct {
	dir      string
	cgroups  cgroups
	programs programs
	// root is the directory with what all machines have in common.
	root   string
	images *images
	// discovery is the discovery service of the machines.
	discovery *discovery
	// configs serves the configurations of machines in QEMU.
	configs  *httptest.Server
	machines []*machine
	ground   ground
	// accel is how QEMU runs them, once probe has determined it.
	accel   string
	probe   sync.Once
	started time.Time

	// talosconfig is the path of the administrator's talosconfig.
	talosconfig string
}

// ground is the kind of the machines of a world.
type ground int

const (
	// containers are a control plane and two workers in Talos' container mode.
	containers ground = iota
	// workers have a control plane in a container, and two workers in QEMU.
	workers
	// older has a control plane in a container, and a worker in QEMU whose Talos is of the minor version before.
	older
	// single is one control plane, in QEMU.
	single
	// quorum is three control planes: two in containers, and the last one in QEMU.
	quorum
)

// first returns the system of new machines.
func (g ground) first(pinned string) toolchain.MachineSystem {
	if g == older {
		return toolchain.MachineSystem{Version: "v" + olderTalos, Line: "1.12", Disk: true}
	}

	return toolchain.MachineSystem{Version: pinned, Disk: true}
}

// kubernetes returns the release with which the cluster begins.
func (g ground) kubernetes() version.Version {
	if g == older {
		return olderKubernetes
	}

	return kubernetesVersions[0]
}

// openWorld starts the machines of a ground.
func openWorld(ctx context.Context, t *testing.T, on ground) *world {
	t.Helper()

	w := &world{dir: os.Getenv(worldVariable), ground: on, started: time.Now()}

	note, err := readNote(w.dir)
	if err != nil {
		t.Fatal(err)
	}

	w.cgroups, w.programs = note.Cgroups, note.Programs

	t.Cleanup(func() { w.close(t) })

	for _, step := range []func(context.Context) error{w.makeGround, w.makeImages, w.makeMachines} {
		if err := step(ctx); err != nil {
			t.Fatal(err)
		}
	}

	return w
}

// say prints a line of progress.
func (w *world) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6s  %s\n", time.Since(w.started).Round(time.Second), fmt.Sprintf(format, args...))
}

// patience returns how long machines of this world may take to boot.
func (w *world) patience() time.Duration {
	if (w.ground == single || w.ground == quorum) && w.accel != acceleration {
		return singlePatience
	}

	return bootPatience
}

// applyPatience bounds one run of the CLI.
func (w *world) applyPatience() time.Duration { return 2 * w.patience() }

// state returns a path in the directory that is removed with the world.
func (w *world) state(path ...string) string {
	return filepath.Join(append([]string{w.dir, stateDir}, path...)...)
}

func (w *world) makeGround(ctx context.Context) error {
	if err := makeBridge(); err != nil {
		return err
	}

	w.root = w.state("machine")

	return buildRoot(ctx, w.root, w.programs)
}

// makeImages fills the registry with what the machines of all releases run.
func (w *world) makeImages(ctx context.Context) error {
	logs, err := os.Create(w.state("registry.log"))
	if err != nil {
		return err
	}

	if w.images, err = serveImages(logs); err != nil {
		return err
	}

	// What the kubelet runs to mount volumes, and the libraries that it needs.
	base, err := tree(w.programs.Packages, func(path string) bool {
		return strings.HasPrefix(path, "usr/lib/") && !strings.HasPrefix(path, "usr/lib/cni/") || strings.HasPrefix(path, "usr/lib64/") ||
			slices.Contains([]string{"usr/bin/mount", "usr/bin/umount"}, path)
	})
	if err != nil {
		return err
	}

	for link, target := range map[string]string{"bin": "usr/bin", "sbin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "var/run": "/run"} {
		base = append(base, file{path: link, link: target})
	}

	base = append(base, file{path: "etc/passwd", mode: 0o644, content: []byte("root:x:0:0:root:/root:/sbin/nologin\n")})

	const bin = "usr/local/bin/"

	base = append(base, program(w.programs.Kubelet, bin+"kubelet"))

	made := map[string]*layer{
		"registry.k8s.io/etcd:" + etcdTag: {files: []file{program(w.programs.Etcd, bin+"etcd")}},
	}

	// The tags in containerd's own default and in that of Talos.
	for _, tag := range []string{"3.10", "3.10.1", "3.10.2"} {
		made["registry.k8s.io/pause:"+tag] = &layer{files: []file{program(w.programs.Pause, "pause")}}
	}

	// The image of an upgrade is pulled before the node is drained, so it has to exist, whatever is in it.
	made["ghcr.io/siderolabs/installer:v"+nextTalos] = &layer{files: []file{program(w.programs.Pause, "pause")}}

	w.makeInstallers(made)

	for named, release := range w.programs.Releases {
		tag := ":v" + named
		made["registry.k8s.io/kube-apiserver"+tag] = &layer{files: []file{program(release.APIServer, bin+"kube-apiserver")}}
		made["registry.k8s.io/kube-controller-manager"+tag] = &layer{files: []file{program(release.ControllerManager, bin+"kube-controller-manager")}}
		made["registry.k8s.io/kube-scheduler"+tag] = &layer{files: []file{program(release.Scheduler, bin+"kube-scheduler")}}
		made["ghcr.io/siderolabs/kubelet"+tag] = &layer{files: append(slices.Clone(base), program(release.Kubelet, bin+"kubelet.real"))}
	}

	config := v1.Config{Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}}

	pushes, ctx := errgroup.WithContext(ctx)
	pushes.SetLimit(runtime.NumCPU())

	for reference, l := range made {
		one := config
		if strings.Contains(reference, "/pause:") {
			one.Entrypoint = []string{"/pause"}
		}

		pushes.Go(func() error { return w.images.push(ctx, reference, l, one) })
	}

	if err := pushes.Wait(); err != nil {
		return err
	}

	w.say("the registry serves %d images", len(made))

	return nil
}

// close cuts the power of all machines. If the test has failed, it keeps their logs.
func (w *world) close(t *testing.T) {
	t.Helper()

	for _, m := range w.machines {
		m.cut()
	}

	if w.discovery != nil {
		w.discovery.server.Stop()
	}

	if w.images != nil {
		// A machine without power does not close its connections.
		w.images.server.CloseClientConnections()
		w.images.server.Close()
	}

	if w.configs != nil {
		w.configs.CloseClientConnections()
		w.configs.Close()
	}

	if t.Failed() {
		w.keepLogs(t)
	}

	// Another world may be opened after this one.
	if err := w.clear(); err != nil {
		t.Error(err)
	}
}

// clear removes the network and everything that machines have written.
func (w *world) clear() error {
	written, err := filepath.Glob(w.state("*"))
	if err != nil {
		return err
	}

	all := []error{dropLink(bridgeName)}
	for _, m := range w.machines {
		// The kernel removes it with the namespace of the machine, but some time later.
		all = append(all, dropLink(m.name))
	}

	for _, path := range written {
		all = append(all, os.RemoveAll(path))
	}

	for _, m := range w.machines {
		all = append(all, m.cgroups.remove(sweepPatience))
	}

	return errors.Join(all...)
}

// keepLogs copies the logs of the machines and the registry to a directory that is kept.
func (w *world) keepLogs(t *testing.T) {
	t.Helper()

	parent, err := runsDir()
	if err != nil {
		t.Error(err)

		return
	}

	dir := filepath.Join(parent, "logs-"+w.started.Format("20060102-150405"))
	err = errors.Join(keepLogs(w.machines, dir), copyFile(w.state("registry.log"), filepath.Join(dir, "registry.log")))

	fmt.Fprintf(os.Stderr, "the logs of the machines are in %s (%v)\n", dir, err)
}

// until polls for a condition. If it does not hold in time, it fails the test with the last error.
func (w *world) until(ctx context.Context, t *testing.T, what string, patience time.Duration, holds func(ctx context.Context) error) {
	t.Helper()

	begun := time.Now()

	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	for {
		err := holds(ctx)
		if err == nil {
			w.say("%s, after %s", what, time.Since(begun).Round(time.Second))

			return
		}

		for _, m := range w.machines {
			select {
			case <-m.ended:
				t.Fatalf("%s has ended while this was waited for: %s: %v", m.name, what, m.failure)
			default:
			}
		}

		select {
		case <-ctx.Done():
			t.Fatalf("not within %s: %s: %v", patience, what, err)
		case <-time.After(time.Second):
		}
	}
}

// emulates reports whether the machine with the index runs in QEMU.
func (w *world) emulates(index int) bool {
	switch w.ground {
	case single:
		return true
	case quorum:
		return index == 2
	case workers, older:
		return index > 0
	default:
		return false
	}
}

func (w *world) makeMachines(context.Context) error {
	names := []string{"control-plane", "worker-1", "worker-2"}

	switch w.ground {
	case older:
		names = names[:2]
	case single:
		names = names[:1]
	case quorum:
		names = []string{"control-1", "control-2", "control-3"}
	case containers, workers:
	}

	for i, name := range names {
		w.machines = append(w.machines, &machine{
			name: name, controlPlane: i == 0 || w.ground == quorum, emulated: w.emulates(i),
			dir: w.state("machines", name), address: netip.AddrFrom4([4]byte{10, 5, 0, byte(2 + i)}),
		})
	}

	var err error
	if w.discovery, err = serveDiscovery(); err != nil {
		return err
	}

	if err := w.configure(); err != nil {
		return err
	}

	if err := w.serveConfigs(); err != nil {
		return err
	}

	for _, m := range w.machines {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}

		if err := m.power(w); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}

	w.say(saidPower)

	return nil
}
