// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// hostTools are packages of this machine's own release that run a machine, and that make its disk.
var hostTools = [...]string{"qemu-system-x86", "qemu-utils", "ovmf", "squashfs-tools", "dosfstools", "mtools", "xz-utils", "kmod"}

// guestPackages are packages of [debianRelease] with what Talos runs and what no Go module has.
var guestPackages = [...]string{
	"systemd-boot-efi", "udev", "kmod", "mount", "xfsprogs", "dosfstools", "e2fsprogs", "lvm2", "dmsetup", "cryptsetup-bin",
	"nftables", "runc", "containernetworking-plugins", "libpam0g",
}

// machineRecipe has to change if programs are built for machines, or images are made, in another way.
const machineRecipe = "4"

// MachineTools are programs that are unpacked, not installed.
type MachineTools struct{ Dir string }

// Firmware returns the code of OVMF, and the variables with which the firmware of a new machine starts.
func (t MachineTools) Firmware() (code, variables string) {
	return below(t.Dir, "usr/share/OVMF/OVMF_CODE_4M.fd"), below(t.Dir, "usr/share/OVMF/OVMF_VARS_4M.fd")
}

// Data returns the directory of QEMU's own firmware.
func (t MachineTools) Data() string { return below(t.Dir, "usr/share/qemu") }

// Command returns a command that runs one of them with its own libraries.
func (t MachineTools) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, below(t.Dir, "usr/bin", name), args...)
	command.Env = t.environment()

	return command
}

// environment returns the environment in which a program finds these tools and their libraries.
func (t MachineTools) environment() []string {
	return append(os.Environ(), "PATH="+below(t.Dir, "usr/bin")+":"+os.Getenv("PATH"),
		"LD_LIBRARY_PATH="+below(t.Dir, "usr/lib/x86_64-linux-gnu"))
}

// below returns a path in a directory; the parts have slashes.
func below(dir string, parts ...string) string {
	return filepath.Join(dir, filepath.FromSlash(path.Join(parts...)))
}

// MachineSystem is a Talos that machines run.
type MachineSystem struct {
	// Version is the version that it reports, such as v1.13.10.
	Version string
	// Line is "1.12" or "1.14" if it is built from internal/tools/talos-<Line>; the version is then of that minor
	// version. It is empty for internal/tools/talos, from which any version is built.
	Line string `json:",omitempty"`
	// Schematic is the schematic that it reports, as 64 hexadecimal digits; empty for none.
	Schematic string
	// Flaw is what is wrong with it; empty for nothing.
	Flaw MachineFlaw
	// Disk is true if a disk with the system is made, for new machines.
	Disk bool
}

// MachineFlaw is what is wrong with a system.
type MachineFlaw string

const (
	// FlawBoot makes the boot sequence fail once it knows its disk: there is a directory in place of a file that it
	// writes. Talos falls back by itself. Nothing like it is known for Talos 1.14.
	FlawBoot MachineFlaw = "boot"
	// FlawNetwork leaves out the configuration of the Pod network: Talos comes up, and the node never becomes ready.
	FlawNetwork MachineFlaw = "network"
	// FlawHang starts the kernel, and nothing after it.
	FlawHang MachineFlaw = "hang"
	// FlawBare leaves out the schematic: the system reports that it was made from none.
	FlawBare MachineFlaw = "bare"
)

// MachineVersion is a system in the form that an installer needs.
type MachineVersion struct {
	MachineSystem

	// Installer is the program, UKI the kernel with the whole system, Boot systemd-boot.
	Installer, UKI, Boot string
	// Image is a disk, as raw bytes, with the system installed and without a configuration; empty unless it was asked
	// for.
	Image string
}

// MachineImages is what machines in QEMU boot and install.
type MachineImages struct {
	Tools    MachineTools
	Versions []MachineVersion
}

// Machines returns tools and images of machines. A system without a line is built from the sources that
// internal/tools/talos pins, whatever version it reports. The first call builds what is missing.
//
// The images have Talos' own programs, built from its modules, on a kernel and tools of Debian: they are not images
// that Sidero Labs publishes.
func Machines(ctx context.Context, containerd string, systems []MachineSystem, options Options) (MachineImages, error) {
	if runtime.GOARCH != "amd64" {
		return MachineImages{}, errors.New("machines in QEMU are made for amd64 alone")
	}

	tools, err := packagesOf(ctx, "machine-tools", hostTools[:], options, func(ctx context.Context, apt aptDir, dir string) error {
		return apt.fetch(ctx, dir, hostTools[:], append(slices.Clone(keepPrograms[:]), "usr/share/qemu/", "usr/share/seabios/", "usr/share/OVMF/"))
	})
	if err != nil {
		return MachineImages{}, err
	}

	guest, err := packagesOf(ctx, "machine-packages", guestPackages[:], options, fetchGuest)
	if err != nil {
		return MachineImages{}, err
	}

	preinit, err := Program(ctx, "./internal/test/real/preinit", options)
	if err != nil {
		return MachineImages{}, err
	}

	maker := imageMaker{
		tools: MachineTools{tools}, guest: guest, preinit: preinit, containerd: containerd, progress: options.progress(),
	}
	made := MachineImages{Tools: maker.tools}

	for _, system := range systems {
		one, err := maker.ensure(ctx, system, options)
		if err != nil {
			return MachineImages{}, err
		}

		made.Versions = append(made.Versions, one)
	}

	return made, nil
}

// ensure returns a system that was made before, or makes it.
func (m imageMaker) ensure(ctx context.Context, system MachineSystem, options Options) (MachineVersion, error) {
	programs, err := machineTalos(ctx, system, options)
	if err != nil {
		return MachineVersion{}, err
	}

	m.programs = programs

	if m.imager, err = imagerOf(ctx, system, programs, options); err != nil {
		return MachineVersion{}, err
	}

	preinit, err := os.ReadFile(m.preinit)
	if err != nil {
		return MachineVersion{}, err
	}

	_, cache, err := places()
	if err != nil {
		return MachineVersion{}, err
	}

	// A struct of strings and booleans always encodes.
	described, _ := json.Marshal(system)

	name := "machine-" + system.Version
	if system.Flaw != "" {
		name += "-" + string(system.Flaw)
	}

	from := [][]byte{[]byte(m.tools.Dir), []byte(m.guest), []byte(programs), []byte(m.containerd), preinit, described, []byte(machineRecipe)}
	if m.imager != programs {
		from = append(from, []byte(m.imager))
	}

	name += "-" + key(from...)

	images, err := entry{cache: cache, name: name}.ensure(ctx, options.progress(), func(ctx context.Context, dir string) error {
		return m.make(ctx, dir, system)
	})
	if err != nil {
		return MachineVersion{}, err
	}

	made := MachineVersion{
		MachineSystem: system,
		Installer:     filepath.Join(programs, "installer"),
		UKI:           filepath.Join(images, ukiFile),
		Boot:          filepath.Join(m.guest, bootLoader),
	}
	if system.Disk {
		made.Image = filepath.Join(images, diskFile)
	}

	return made, nil
}

// fetchGuest fetches the packages of a machine, and a kernel without the packages that it depends on.
func fetchGuest(ctx context.Context, apt aptDir, dir string) error {
	apt, err := apt.useDebian(ctx)
	if err != nil {
		return err
	}

	if err := apt.fetch(ctx, dir, guestPackages[:], append(slices.Clone(keepPrograms[:]), "usr/share/xfsprogs/")); err != nil {
		return err
	}

	kernel, err := apt.kernel(ctx)
	if err != nil {
		return err
	}

	// apt-get download writes into its working directory.
	if err := apt.run(ctx, append([]string{"download"}, kernel...)...); err != nil {
		return err
	}

	return apt.unpack(ctx, apt.dir, dir, []string{"boot/vmlinuz-", "usr/lib/modules/"})
}

// tagFile has the version that all of Talos reports, in the source of machinery. It is embedded, so a linker flag
// does not change it.
const tagFile = "gendata/data/tag"

// machineTalos returns the directory with machined, init and the installer of a system.
func machineTalos(ctx context.Context, system MachineSystem, options Options) (string, error) {
	name := system.module()

	return ensureModule(ctx, name, "machine-"+name+"-"+machineRecipe+"-"+system.Version, options, func(ctx context.Context, module, dir string) error {
		return buildMachineTalos(ctx, module, dir, system, options)
	})
}

func buildMachineTalos(ctx context.Context, module, dir string, system MachineSystem, options Options) error {
	release, talos, err := moduleSource(ctx, module, talosModule)
	if err != nil {
		return err
	}

	if err := os.CopyFS(filepath.Join(dir, "hack"), os.DirFS(filepath.Join(talos, "hack"))); err != nil {
		return fmt.Errorf("keeping files of Talos' source: %w", err)
	}

	flags := []string{"-tags", "grpcnotrace"}

	if system.Line == "" {
		changed := filepath.Join(dir, "machinery")
		defer os.RemoveAll(changed)

		modfile, err := nameTalos(ctx, module, changed, system.Version)
		if err != nil {
			return err
		}

		flags = append(flags, "-modfile", modfile)
	} else if release != system.Version {
		return fmt.Errorf("%s has Talos %s, not %s: its sources have one name", module, release, system.Version)
	}

	return build{
		dir:    module,
		output: dir + string(filepath.Separator),
		packages: []string{
			talosModule + "/internal/app/machined", talosModule + "/internal/app/init", talosModule + "/cmd/installer",
		},
		flags: flags,
		link:  "-X golang.zx2c4.com/wireguard/ipc.socketDirectory=/system/wireguard-sock",
		what:  "machined, init and the installer of Talos " + system.Version,
	}.announced(ctx, options.progress(), "building machined, init and the installer of Talos "+system.Version+
		" for machines in QEMU: once, some minutes for the first one")
}

// nameTalos copies the source of machinery, writes a version into it, and returns a go.mod
// that builds the copy in place of the module.
func nameTalos(ctx context.Context, module, changed, version string) (string, error) {
	const machinery = talosModule + "/pkg/machinery"

	_, source, err := moduleSource(ctx, module, machinery)
	if err != nil {
		return "", err
	}

	if err := os.CopyFS(changed, os.DirFS(source)); err != nil {
		return "", fmt.Errorf("copying the source of machinery: %w", err)
	}

	if err := os.WriteFile(filepath.Join(changed, filepath.FromSlash(tagFile)), []byte(version), 0o644); err != nil {
		return "", fmt.Errorf("naming the version: %w", err)
	}

	return replaceModule(module, filepath.Join(filepath.Dir(changed), "machines.mod"), machinery, changed)
}

// ukiFile and diskFile are the names of the images; bootLoader is the path of systemd-boot in the packages, bootStub
// that of its stub.
const (
	ukiFile    = "system.efi"
	diskFile   = "disk.raw"
	bootLoader = "usr/lib/systemd/boot/efi/systemd-bootx64.efi"
	bootStub   = "usr/lib/systemd/boot/efi/linuxx64.efi.stub"
	// diskSize is the size of a machine's disk in bytes. Most of it is never written.
	diskSize = 8 << 30
)

// earlyModules are the modules that the initial system needs before it has a root directory, in an order in which
// each can be loaded. In Talos' kernel they are built in.
var earlyModules = [...]string{
	"configfs", "virtio_blk", "scsi_common", "scsi_mod", "virtio_scsi", "sd_mod", "failover", "net_failover", "virtio_net", "virtio-rng",
	"loop", "squashfs", "overlay", "efivarfs", "xfs", "fat", "vfat", "nls_cp437", "nls_ascii", "nls_iso8859-1", "nls_utf8", "dm-mod", "button",
	"llc", "stp", "bridge", "br_netfilter",
}

// kernelArguments are used for every version. A minus removes an argument that Talos sets. Others have to be present,
// since Talos checks for them; a later argument disables those.
var kernelArguments = [...]string{
	"-init_on_alloc", "init_on_alloc=0", "nopti", "mitigations=off", "-selinux", "selinux=0", "apparmor=0",
	"-ima_template", "-ima_appraise", "-ima_hash", "-module.sig_enforce", "net.ifnames=0", "talos.dashboard.disabled=1",
	// A kubelet requires that an oops panics, as it does in Talos' kernel.
	"-console", "console=ttyS0", "panic=10", "oops=panic",
}

// imageMaker makes images from what was built and fetched.
type imageMaker struct {
	tools                                MachineTools
	guest, programs, preinit, containerd string
	// imager is the directory with the programs that make a disk.
	imager   string
	progress io.Writer
}

func (m imageMaker) make(ctx context.Context, dir string, system MachineSystem) error {
	started := time.Now()

	work := filepath.Join(dir, ".work")
	defer os.RemoveAll(work)

	kernels, err := filepath.Glob(filepath.Join(m.guest, "boot", "vmlinuz-*"))
	if err != nil {
		return fmt.Errorf("looking for the kernel of machines: %w", err)
	}

	if len(kernels) != 1 {
		return fmt.Errorf("in %s are the kernels %v, want one", m.guest, kernels)
	}

	release := strings.TrimPrefix(filepath.Base(kernels[0]), "vmlinuz-")

	spec, err := BaseRuntimeSpec(ctx, m.containerd)
	if err != nil {
		return err
	}

	root := filepath.Join(work, "root")
	if err := m.root(root, system, release, spec); err != nil {
		return fmt.Errorf("making the root directory of Talos %s: %w", system.Version, err)
	}

	if err := m.runAs(ctx, nil, work, below(m.tools.Dir, "usr/bin/kmod"), "depmod", "--basedir", root, release); err != nil {
		return err
	}

	squashed := root + ".sqsh"

	// In emulation lz4 is read in half the time of zstd, and takes half as much space again.
	if err := runTool(m.tools.Command(ctx, "mksquashfs", root, squashed, "-all-root", "-noappend", "-comp", "lz4", "-no-progress")); err != nil {
		return err
	}

	initial := root + ".cpio"
	if err := m.initial(ctx, initial, squashed, system, release); err != nil {
		return fmt.Errorf("making the initial file system of Talos %s: %w", system.Version, err)
	}

	if err := m.image(ctx, kernels[0], initial, system.Version, "uki", work, filepath.Join(dir, ukiFile)); err != nil {
		return err
	}

	if system.Disk {
		if err := m.image(ctx, kernels[0], initial, system.Version, "image", work, filepath.Join(dir, diskFile)); err != nil {
			return err
		}
	}

	fmt.Fprintf(m.progress, "made the images of Talos %s with Linux %s in %s\n", system.Version, release, time.Since(started).Round(time.Second))

	return nil
}

// runAs runs a program under another name, by which it decides what it is.
func (m imageMaker) runAs(ctx context.Context, input io.Reader, work, program, name string, args ...string) error {
	path := filepath.Join(work, name)
	if err := errors.Join(removed(path), os.Symlink(program, path)); err != nil {
		return err
	}

	command := exec.CommandContext(ctx, path, args...)
	command.Env, command.Stdin = m.tools.environment(), input

	return runTool(command)
}

func runTool(command *exec.Cmd) error {
	if said, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(command.Path), err, said)
	}

	return nil
}

// root assembles the root directory of a machine.
func (m imageMaker) root(dir string, system MachineSystem, release string, spec []byte) error {
	for _, sub := range []string{
		"boot/EFI", "dev", "proc", "sys", "run", "system", "tmp", "var", "mnt", "opt/cni/bin", "opt/containerd/bin", "opt/containerd/lib", ".extra",
		"etc/iscsi", "etc/nvme", "etc/cri/conf.d/hosts", "etc/containerd", "etc/kubernetes/manifests", "etc/cni/net.d", "etc/ssl/certs", "etc/lvm",
		"etc/selinux/targeted/contexts/files", "usr/bin", "usr/etc", "usr/lib/firmware", "usr/lib/modules", "usr/lib64", "usr/lib/systemd/network",
		"usr/lib/udev/rules.d", "usr/lib/udev/hwdb.d", "usr/local/share", "usr/local/lib/kubelet/credentialproviders", "usr/libexec/kubernetes",
		"usr/share/spdx", "usr/share/zoneinfo/Etc", "usr/share/xfsprogs",
	} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}

	if err := linkTree(m.guest, dir, func(path string) bool { return guestFile(path, release) }); err != nil {
		return err
	}

	hack := filepath.Join(m.programs, "hack")

	for source, target := range map[string]string{
		filepath.Join(m.programs, "machined"):                   "usr/bin/init",
		filepath.Join(m.containerd, "containerd"):               "usr/bin/containerd",
		filepath.Join(m.containerd, "containerd-shim-runc-v2"):  "usr/bin/containerd-shim-runc-v2",
		filepath.Join(hack, "containerd.toml"):                  "etc/containerd/config.toml",
		filepath.Join(hack, "cri-containerd.toml"):              "etc/cri/containerd.toml",
		filepath.Join(hack, "cri-plugin.part"):                  "etc/cri/conf.d/00-base.part",
		filepath.Join(hack, "nfsmount.conf"):                    "etc/nfsmount.conf",
		filepath.Join(hack, "lvm.conf"):                         "etc/lvm/lvm.conf",
		below(hack, "zoneinfo/Etc/UTC"):                         "usr/share/zoneinfo/Etc/UTC",
		below(hack, "udevd/99-default.link"):                    "usr/lib/systemd/network/99-default.link",
		below(m.guest, "usr/share/xfsprogs/mkfs/lts_6.12.conf"): "usr/share/xfsprogs/mkfs/lts_6.18.conf",
		below(m.guest, "usr/lib/cni/bridge"):                    "opt/cni/bin/bridge",
		below(m.guest, "usr/lib/cni/host-local"):                "opt/cni/bin/host-local",
		below(m.guest, "usr/lib/cni/loopback"):                  "opt/cni/bin/loopback",
		below(m.guest, "usr/lib/cni/portmap"):                   "opt/cni/bin/portmap",
	} {
		if err := link(source, filepath.Join(dir, target)); err != nil {
			return err
		}
	}

	for name, target := range map[string]string{
		"bin": "usr/bin", "sbin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "usr/sbin": "bin",
		"usr/bin/poweroff": "init", "usr/bin/shutdown": "init", "usr/bin/reboot": "init", "usr/bin/dashboard": "init",
		"usr/bin/modprobe": "kmod", "usr/bin/systemd-udevd": "udevadm", "usr/bin/mkfs.vfat": "mkfs.fat",
		"etc/localtime": "/usr/share/zoneinfo/Etc/UTC",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(removed(path), os.Symlink(target, path)); err != nil {
			return err
		}
	}

	if err := system.lineRoot(dir, hack); err != nil {
		return err
	}

	if err := writeRoot(dir, system, spec); err != nil {
		return err
	}

	switch system.Flaw {
	case FlawBoot:
		return os.Mkdir(below(dir, "usr/lib/udev/rules.d/99-talos.rules"), 0o755)
	case FlawNetwork:
		return os.Remove(below(dir, system.networkFile()))
	case FlawBare:
		return os.Truncate(below(dir, "etc/extensions.yaml"), 0)
	case FlawHang:
	}

	return nil
}

// extensionsOf returns what Talos reads about the extensions in a system. The Image Factory adds an extension that
// only has the schematic of the image.
func extensionsOf(schematic string) string {
	if schematic == "" {
		return ""
	}

	return "layers:\n    - image: \"\"\n      metadata:\n        name: schematic\n        version: " + strconv.Quote(schematic) +
		"\n        author: Image Factory\n        description: Virtual extension which specifies the schematic of the image built with Image Factory.\n"
}

// writeRoot writes the files that are in no package.
func writeRoot(dir string, system MachineSystem, spec []byte) error {
	files := map[string]string{
		"etc/os-release": fmt.Sprintf("NAME=\"Talos\"\nID=talos\nVERSION_ID=%[1]s\nPRETTY_NAME=\"Talos (%[1]s)\"\n", system.Version),
		"etc/passwd":     "root:x:0:0:root:/root:/sbin/nologin\n",
		"etc/group":      "root:x:0:\ndisk:x:6:\nkvm:x:104:\nrender:x:105:\ntty:x:5:\ninput:x:106:\nlp:x:7:\naudio:x:29:\nvideo:x:44:\ncdrom:x:24:\ntape:x:26:\ndialout:x:20:\nsgx:x:107:\n",
		system.networkFile(): `{"name": "pods", "cniVersion": "1.0.0", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true,
"ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": "10.244.250.0/24"}]]}}]}
`,
	}

	// machined binds files of its own over these, so they have to exist.
	for _, name := range []string{
		"etc/resolv.conf", "etc/hosts", "etc/machine-id", "etc/cri/conf.d/cri.toml", "etc/cri/conf.d/01-registries.part",
		"etc/cri/conf.d/20-customization.part", "etc/ssl/certs/ca-certificates.crt",
		"etc/selinux/targeted/contexts/files/file_contexts", "etc/iscsi/initiatorname.iscsi", "etc/nvme/hostid", "etc/nvme/hostnqn",
	} {
		files[name] = ""
	}

	files["etc/cri/conf.d/base-spec.json"], files["etc/extensions.yaml"] = string(spec), extensionsOf(system.Schematic)

	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}

	return nil
}

// removed removes a file if it exists.
func removed(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	return nil
}

// guestFile reports whether a machine needs a file of the packages.
func guestFile(path, release string) bool {
	for _, unwanted := range []string{
		"boot/", "usr/lib/python", "usr/lib/cni/", "usr/lib/systemd/boot/", "usr/lib/systemd/system", "usr/lib/udev/hwdb.d/", "usr/lib/dpkg/",
		"usr/lib/x86_64-linux-gnu/gconv/", "usr/lib/tmpfiles.d/", "usr/lib/terminfo/", "usr/bin/busybox", "usr/bin/python", "usr/bin/dpkg",
		"usr/bin/systemd-", "usr/bin/systemctl", "usr/bin/journalctl", "usr/bin/perl", "usr/bin/openssl", "usr/lib/systemd/systemd",
	} {
		if strings.HasPrefix(path, unwanted) {
			return false
		}
	}

	modules, found := strings.CutPrefix(path, "usr/lib/modules/"+release+"/")
	if !found {
		return true
	}

	kernel, found := strings.CutPrefix(modules, "kernel/")
	if !found {
		return true
	}

	return slices.ContainsFunc([]string{
		"arch/", "crypto/", "lib/", "net/", "fs/overlayfs/", "fs/xfs/", "fs/fat/", "fs/nls/", "fs/efivarfs/", "fs/squashfs/", "fs/configfs/", "fs/ext4/",
		"fs/jbd2/", "fs/fuse/", "drivers/block/", "drivers/md/", "drivers/net/", "drivers/virtio/", "drivers/char/hw_random/", "drivers/scsi/",
		"drivers/watchdog/", "drivers/acpi/", "drivers/firmware/", "drivers/nvme/",
	}, func(prefix string) bool { return strings.HasPrefix(kernel, prefix) })
}

// initial writes the archive that the kernel unpacks: the program that loads modules, Talos' init and the root
// directory.
func (m imageMaker) initial(ctx context.Context, path, squashed string, system MachineSystem, release string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}

	archive := &cpio{to: file}

	for _, dir := range []string{"root", "dev", "proc", "sys", "modules"} {
		archive.add(dir, 0o40755, nil)
	}

	for name, source := range map[string]string{
		"init": m.preinit, "init.talos": filepath.Join(m.programs, "init"), "rootfs.sqsh": squashed,
	} {
		archive.addFile(name, source)
	}

	if system.Flaw == FlawHang {
		archive.add("hang", 0o100644, nil)
	}

	modules := filepath.Join(m.guest, "usr", "lib", "modules", release)

	found := map[string]string{}

	err = filepath.WalkDir(modules, func(path string, entry fs.DirEntry, err error) error {
		if err == nil {
			found[strings.TrimSuffix(entry.Name(), ".ko.xz")] = path
		}

		return err
	})
	if err != nil {
		return errors.Join(fmt.Errorf("looking for modules: %w", err), file.Close())
	}

	builtin, err := os.ReadFile(filepath.Join(modules, "modules.builtin"))
	if err != nil {
		return errors.Join(fmt.Errorf("reading which modules are built in: %w", err), file.Close())
	}

	for i, name := range earlyModules {
		source, there := found[name]
		if !there && bytes.Contains(builtin, []byte("/"+name+".ko\n")) {
			continue
		}

		if !there {
			return errors.Join(fmt.Errorf("this kernel has no module %s", name), file.Close())
		}

		var content, complaint bytes.Buffer

		unpack := m.tools.Command(ctx, "xz", "--decompress", "--stdout", source)
		unpack.Stdout, unpack.Stderr = &content, &complaint

		if err := unpack.Run(); err != nil {
			return errors.Join(fmt.Errorf("xz %s: %w\n%s", source, err, &complaint), file.Close())
		}

		archive.add(fmt.Sprintf("modules/%03d-%s.ko", i, name), 0o100644, content.Bytes())
	}

	archive.add("TRAILER!!!", 0, nil)

	return errors.Join(archive.err, file.Close())
}

// image makes an image with Talos' own imager.
func (m imageMaker) image(ctx context.Context, kernel, initial, version, kind, work, target string) error {
	out := filepath.Join(work, kind)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(out)

	output := map[string]any{"kind": kind, "outFormat": "raw"}
	if kind == "image" {
		output["imageOptions"] = map[string]any{"diskSize": diskSize, "diskFormat": "raw", "bootloader": "sd-boot"}
	}

	profile, err := json.Marshal(map[string]any{
		"arch": "amd64", "platform": "metal", "secureboot": false, "version": version,
		"customization": map[string]any{"extraKernelArgs": kernelArguments},
		"input": map[string]any{
			"kernel":    map[string]any{"path": kernel},
			"initramfs": map[string]any{"path": initial},
			"sdStub":    map[string]any{"path": filepath.Join(m.guest, bootStub)},
			"sdBoot":    map[string]any{"path": filepath.Join(m.guest, bootLoader)},
		},
		"output": output,
	})
	if err != nil {
		return err
	}

	programs := m.programs
	if kind == "image" {
		programs = m.imager
	}

	installer := filepath.Join(programs, "installer")
	if err := m.runAs(ctx, bytes.NewReader(profile), work, installer, "imager", "-", "--output", out); err != nil {
		return err
	}

	made, err := filepath.Glob(filepath.Join(out, "*"))
	if err != nil {
		return fmt.Errorf("looking for what the imager made: %w", err)
	}

	if len(made) != 1 {
		return fmt.Errorf("the imager made %v, want one file", made)
	}

	return os.Rename(made[0], target)
}

// linkTree makes hard links of the wanted files below a directory.
func linkTree(from, to string, wanted func(path string) bool) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}

		relative, err := filepath.Rel(from, path)
		if err != nil || !wanted(filepath.ToSlash(relative)) {
			return err
		}

		return link(path, filepath.Join(to, relative))
	})
}

// link makes a hard link, and replaces what is there. The cache is on one file system.
func link(from, to string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), removed(to), os.Link(from, to))
}

// cpio writes an archive of the kind that a kernel unpacks ("newc").
type cpio struct {
	to     io.Writer
	number int
	err    error
}

func (c *cpio) addFile(name, source string) {
	if c.err != nil {
		return
	}

	content, err := os.ReadFile(source)
	c.err = err
	c.add(name, 0o100755, content)
}

func (c *cpio) add(name string, mode int, content []byte) {
	if c.err != nil {
		return
	}

	c.number++

	var header bytes.Buffer

	header.WriteString("070701")

	for _, field := range []int{c.number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0} {
		fmt.Fprintf(&header, "%08X", field)
	}

	header.WriteString(name + "\x00")
	header.Write(make([]byte, -header.Len()&3))
	header.Write(content)
	header.Write(make([]byte, -len(content)&3))

	_, c.err = c.to.Write(header.Bytes())
}

// replaceModule writes a go.mod, and a go.sum beside it, that builds a directory in place
// of a module.
func replaceModule(module, modfile, path, dir string) (string, error) {
	for from, to := range map[string]string{"go.mod": modfile, "go.sum": strings.TrimSuffix(modfile, ".mod") + ".sum"} {
		text, err := os.ReadFile(filepath.Join(module, from))
		if err != nil {
			return "", fmt.Errorf("reading the module of Talos: %w", err)
		}

		if from == "go.mod" {
			text = append(text, "\nreplace "+path+" => "+strconv.Quote(dir)+"\n"...)
		}

		if err := os.WriteFile(to, text, 0o644); err != nil {
			return "", fmt.Errorf("writing the module of the changed Talos: %w", err)
		}
	}

	return modfile, nil
}
