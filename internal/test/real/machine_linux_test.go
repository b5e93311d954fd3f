// SPDX-License-Identifier: MPL-2.0

package real

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// bootIDFile is where a machine's kubelet reads its boot ID: the kernel's boot ID is the same for all machines of a
// world.
const bootIDFile = "/run/boot-id"

// machine is a Talos machine: a root directory with namespaces of its own, or a machine in QEMU.
type machine struct {
	name         string
	address      netip.Addr
	controlPlane bool
	// emulated is true if it runs in QEMU.
	emulated bool
	// unconfigured is true if it starts without the address of its configuration.
	unconfigured bool

	config []byte

	dir     string
	cgroups cgroups
	command *exec.Cmd
	ended   chan struct{}
	failure error
}

// machineOrder is the input of the process that becomes a machine.
type machineOrder struct {
	Name    string
	Address netip.Addr
	// Dir has what it writes; Lower are directories with what it never changes, beginning with the topmost.
	Dir         string
	Lower       []string
	Hierarchies []hierarchy
	BootID      string
	Config      []byte
}

// power starts the machine.
func (m *machine) power(w *world) error {
	if m.emulated {
		return m.emulate(w)
	}

	all, err := hierarchies()
	if err != nil {
		return err
	}

	if m.cgroups, err = w.cgroups.below(m.name); err != nil {
		return err
	}

	log, err := os.Create(m.log())
	if err != nil {
		return fmt.Errorf("making the log of the machine: %w", err)
	}
	defer log.Close()

	order, err := json.Marshal(machineOrder{
		Name: m.name, Address: m.address, Dir: m.dir, Lower: []string{w.root, w.programs.Packages},
		Hierarchies: all, BootID: newUUID(), Config: m.config,
	})
	if err != nil {
		return fmt.Errorf("writing the order of the machine: %w", err)
	}

	if m.command, err = self(roleMachine); err != nil {
		return err
	}

	input, err := m.command.StdinPipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}

	m.command.Stdout, m.command.Stderr = log, log
	m.command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: worldNamespaces, Pdeathsig: syscall.SIGKILL, Setsid: true}

	if err := m.start(); err != nil {
		return err
	}

	if err := errors.Join(m.cgroups.enter(m.command.Process.Pid), plugIn(m.name, m.command.Process.Pid)); err != nil {
		return err
	}

	_, err = input.Write(order)

	return errors.Join(err, input.Close())
}

// start starts the command and records when it has ended.
func (m *machine) start() error {
	started := make(chan error)
	m.ended = make(chan struct{})

	// The thread that starts the command has to live as long as the command.
	go func() {
		runtime.LockOSThread()
		defer close(m.ended)

		err := m.command.Start()
		started <- err

		if err == nil {
			m.failure = m.command.Wait()
		}
	}()

	if err := <-started; err != nil {
		return fmt.Errorf("starting the machine: %w", err)
	}

	return nil
}

// cut cuts the power of the machine: everything in it is killed.
func (m *machine) cut() {
	if m.command == nil || m.command.Process == nil {
		return
	}

	_ = m.command.Process.Kill()
	<-m.ended
}

// log returns the path of the log of machined, or of the console of QEMU.
func (m *machine) log() string { return filepath.Join(filepath.Dir(m.dir), m.name+".log") }

func newUUID() string {
	var raw [16]byte

	// Read never fails.
	_, _ = rand.Read(raw[:])

	return fmt.Sprintf("%x-%x-%x-%x-%x", raw[:4], raw[4:6], raw[6:8], raw[8:10], raw[10:])
}

// beMachine becomes Talos' machined, as the first process of a machine.
func beMachine() error {
	// The namespaces belong to a thread until it has become machined.
	runtime.LockOSThread()

	content, err := io.ReadAll(os.Stdin)
	if err != nil || len(content) == 0 {
		return fmt.Errorf("waiting for the order: %w", err)
	}

	var order machineOrder
	if err := json.Unmarshal(content, &order); err != nil {
		return fmt.Errorf("reading the order: %w", err)
	}

	for _, step := range []func(machineOrder) error{
		func(machineOrder) error { return unix.Unshare(unix.CLONE_NEWCGROUP) },
		func(o machineOrder) error { return unix.Sethostname([]byte(o.Name)) },
		func(o machineOrder) error { return connectMachine(o.Address) },
		mountRoot, mountKernel, mountCgroups, mountDevices, mountBootID, coverTunables, changeRoot,
	} {
		if err := step(order); err != nil {
			return err
		}
	}

	err = unix.Exec("/usr/bin/init", []string{"/sbin/init"}, []string{
		"PLATFORM=container", "TALOSSKU=2CPU-2048RAM", "USERDATA=" + base64.StdEncoding.EncodeToString(order.Config),
	})

	return fmt.Errorf("becoming machined: %w", err)
}

// root returns a path in the root directory of the machine while that is assembled.
func (o machineOrder) root(path ...string) string {
	return filepath.Join(append([]string{o.Dir, "root"}, path...)...)
}

func mountRoot(o machineOrder) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keeping mounts in the machine: %w", err)
	}

	for _, name := range []string{"root", "upper", "work", "var", "system-state"} {
		if err := os.MkdirAll(filepath.Join(o.Dir, name), 0o755); err != nil {
			return err
		}
	}

	layers := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", strings.Join(o.Lower, ":"), filepath.Join(o.Dir, "upper"), filepath.Join(o.Dir, "work"))
	if err := unix.Mount("overlay", o.root(), "overlay", 0, layers); err != nil {
		return fmt.Errorf("mounting the root directory of the machine: %w", err)
	}

	// Talos shares some of these with containers, so they have to be mounts.
	for _, name := range []string{"run", "system", "tmp", "etc/cni"} {
		if err := mountAt(o.root(name), "tmpfs", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
			return err
		}
	}

	for name, content := range map[string]string{
		"etc/hostname":                   o.Name + "\n",
		"etc/hosts":                      "127.0.0.1 localhost\n" + o.Address.String() + " " + o.Name + "\n",
		"etc/resolv.conf":                "nameserver " + gateway.String() + "\n",
		"etc/cni/net.d/10-pods.conflist": podNetwork(o.Address.As4()[3]),
	} {
		if err := os.MkdirAll(filepath.Dir(o.root(name)), 0o755); err != nil {
			return err
		}

		if err := os.WriteFile(o.root(name), []byte(content), 0o644); err != nil {
			return err
		}
	}

	for from, to := range map[string]string{"var": "var", "system-state": "system/state"} {
		if err := mountAt(o.root(to), filepath.Join(o.Dir, from), "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}

	return nil
}

// mountAt mounts something on a directory, which it creates.
func mountAt(target, source, system string, flags uintptr, data string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}

	if err := unix.Mount(source, target, system, flags, data); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", source, target, err)
	}

	return nil
}

func mountKernel(o machineOrder) error {
	const plain = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

	return errors.Join(
		mountAt(o.root("proc"), "proc", "proc", plain, ""),
		mountAt(o.root("sys"), "sysfs", "sysfs", plain, ""),
	)
}

func mountCgroups(o machineOrder) error {
	const plain = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

	if o.Hierarchies[0].unified() {
		return mountAt(o.root(cgroupMount), "cgroup2", "cgroup2", plain, "")
	}

	if err := mountAt(o.root(cgroupMount), "tmpfs", "tmpfs", plain, "mode=0755"); err != nil {
		return err
	}

	for _, one := range o.Hierarchies {
		options := one.Options
		if strings.HasPrefix(options, "name=") {
			options = "none," + options
		}

		if err := mountAt(o.root(one.dir()), "cgroup", "cgroup", plain, options); err != nil {
			return err
		}
	}

	return nil
}

func mountDevices(o machineOrder) error {
	if err := mountAt(o.root("dev"), "tmpfs", "tmpfs", unix.MS_NOSUID, "mode=0755"); err != nil {
		return err
	}

	unix.Umask(0)
	defer unix.Umask(0o022)

	for name, device := range map[string][2]uint32{
		"null": {1, 3}, "zero": {1, 5}, "full": {1, 7}, "random": {1, 8}, "urandom": {1, 9}, "kmsg": {1, 11}, "tty": {5, 0},
	} {
		if err := unix.Mknod(o.root("dev", name), unix.S_IFCHR|0o666, int(unix.Mkdev(device[0], device[1]))); err != nil {
			return fmt.Errorf("making the device %s: %w", name, err)
		}
	}

	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
	} {
		if err := os.Symlink(target, o.root("dev", name)); err != nil {
			return err
		}
	}

	return errors.Join(
		mountAt(o.root("dev/pts"), "devpts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"),
		mountAt(o.root("dev/shm"), "tmpfs", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"),
		mountAt(o.root("dev/mqueue"), "mqueue", "mqueue", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""),
	)
}

// mountBootID gives the machine a boot ID of its own.
func mountBootID(o machineOrder) error {
	file := o.root(bootIDFile)
	if err := os.WriteFile(file, []byte(o.BootID+"\n"), 0o444); err != nil {
		return err
	}

	if err := unix.Mount(file, o.root("proc/sys/kernel/random/boot_id"), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("giving the machine a boot ID: %w", err)
	}

	return nil
}

// coverTunables gives the machine copies of the parameters that it sets and that have no namespace.
func coverTunables(o machineOrder) error {
	for _, name := range tunables {
		own, copied := o.root(tunablesDir+name), o.root("/run/parameters/"+name)

		value, err := os.ReadFile(own)
		if err != nil {
			return fmt.Errorf("reading a parameter of the kernel: %w", err)
		}

		if err := os.MkdirAll(filepath.Dir(copied), 0o755); err != nil {
			return err
		}

		if err := os.WriteFile(copied, value, 0o644); err != nil {
			return err
		}

		if err := unix.Mount(copied, own, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("covering %s: %w", own, err)
		}
	}

	return nil
}

func changeRoot(o machineOrder) error {
	if err := unix.Chdir(o.root()); err != nil {
		return err
	}

	// The old root is on top of the new one until it is unmounted.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("changing the root directory: %w", err)
	}

	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("taking the world out of the machine's sight: %w", err)
	}

	return unix.Chdir("/")
}

// buildRoot assembles what is the same on every machine and does not exist on other Linux systems.
func buildRoot(ctx context.Context, dir string, from programs) error {
	for _, sub := range []string{
		"boot/EFI", "dev", "proc", "sys", "run", "system", "tmp", "var", "mnt", "opt/cni/bin", "opt/containerd/bin", "opt/containerd/lib",
		"etc/iscsi", "etc/nvme", "etc/cri/conf.d/hosts", "etc/containerd", "etc/kubernetes/manifests", "etc/cni", "etc/ssl/certs",
		"usr/bin", "usr/etc", "usr/lib/modules", "usr/lib/firmware", "usr/lib64", "usr/local/share", "usr/local/lib/kubelet/credentialproviders",
		"usr/libexec/kubernetes", "usr/share/spdx", "usr/share/zoneinfo/Etc",
	} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}

	config := from.Talos.Config

	copies := map[string]string{
		from.Talos.Machined: "usr/bin/init",
		from.Runc:           "usr/bin/runc",
		filepath.Join(from.Containerd, "containerd"):              "usr/bin/containerd",
		filepath.Join(from.Containerd, "containerd-shim-runc-v2"): "usr/bin/containerd-shim-runc-v2",
		filepath.Join(from.Packages, "usr", "bin", "runc"):        "usr/bin/runc.real",
		filepath.Join(config, "containerd.toml"):                  "etc/containerd/config.toml",
		filepath.Join(config, "cri-containerd.toml"):              "etc/cri/containerd.toml",
		filepath.Join(config, "cri-plugin.part"):                  "etc/cri/conf.d/00-base.part",
	}

	for source, target := range copies {
		if err := copyFile(source, filepath.Join(dir, target)); err != nil {
			return err
		}
	}

	plugins := os.DirFS(filepath.Join(from.Packages, "usr", "lib", "cni"))
	if err := os.CopyFS(filepath.Join(dir, "opt", "cni", "bin"), plugins); err != nil {
		return fmt.Errorf("copying the plugins of CNI: %w", err)
	}

	for name, target := range map[string]string{
		"bin": "usr/bin", "sbin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "usr/sbin": "bin",
		"usr/bin/poweroff": "init", "usr/bin/shutdown": "init", "usr/bin/reboot": "init",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			return err
		}
	}

	spec, err := toolchain.BaseRuntimeSpec(ctx, from.Containerd)
	if err != nil {
		return err
	}

	// machined binds files of its own over these, so they have to exist.
	files := map[string]string{
		"usr/etc/in-container": "", "etc/extensions.yaml": "", "etc/resolv.conf": "", "etc/hosts": "", "etc/machine-id": "", "etc/nfsmount.conf": "",
		"etc/cri/conf.d/cri.toml": "", "etc/cri/conf.d/01-registries.part": "", "etc/cri/conf.d/20-customization.part": "",
		"etc/cri/conf.d/base-spec.json": string(spec), "etc/ssl/certs/ca-certificates.crt": "", "etc/iscsi/initiatorname.iscsi": "",
		"etc/nvme/hostid": "", "etc/nvme/hostnqn": "", "etc/localtime": "",
		"etc/os-release": fmt.Sprintf("NAME=\"Talos\"\nID=talos\nVERSION_ID=%[1]s\nPRETTY_NAME=\"Talos (%[1]s)\"\n", from.Talos.Version),
	}

	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}

	return nil
}

// copyFile makes a hard link if that is possible, and a copy otherwise.
func copyFile(from, to string) error {
	if err := os.Link(from, to); err == nil {
		return nil
	}

	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()

	info, err := source.Stat()
	if err != nil {
		return err
	}

	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}

	_, err = io.Copy(target, source)

	return errors.Join(err, target.Close())
}

// keepLogs copies what the machines have written to a directory that is kept.
func keepLogs(machines []*machine, dir string) error {
	var all []error

	for _, m := range machines {
		target := filepath.Join(dir, m.name)

		all = append(all, os.MkdirAll(target, 0o755))

		if m.emulated {
			// Its other logs are on its disk. If QEMU has not started, there is no console log.
			all = append(all, copyFile(m.complaints(), filepath.Join(target, "qemu.log")))

			if _, err := os.Stat(m.log()); err == nil {
				all = append(all, copyFile(m.log(), filepath.Join(target, "console.log")))
			}

			continue
		}

		all = append(all, copyFile(m.log(), filepath.Join(target, "console.log")))

		source := filepath.Join(m.dir, "var", "log")

		all = append(all, filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}

			relative, err := filepath.Rel(source, path)
			if err != nil {
				return err
			}

			to := filepath.Join(target, relative)

			return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), copyFile(path, to))
		}))
	}

	return errors.Join(all...)
}
